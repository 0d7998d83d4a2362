"""Models: what one is, before a project is made of it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from inferlab.web.api.asking import ModelAsking
from inferlab.web.api.common import NOT_THERE, TOO_LARGE, TOO_MANY, SmallBody, TheDesk, analysed
from inferlab.web.api.schemas import ModelFacts

router = APIRouter(tags=["models"], route_class=SmallBody)


@router.post("/models/analyse", summary="What a model is", responses={**NOT_THERE, **TOO_LARGE, **TOO_MANY})
async def analyse_model(desk: TheDesk, request: Request, asking: ModelAsking) -> ModelFacts:
    """Find a model, fetching it where needed, and read what it is; nothing is kept but a download."""
    return ModelFacts.of(await analysed(desk, request, asking.source), desk.workspace.sources)
