"""Models: what one is, before a project is made of it."""

from __future__ import annotations

from fastapi import APIRouter

from inferlab.web.api.asking import ModelAsking
from inferlab.web.api.common import NOT_THERE, SmallBody, TheWorkspace
from inferlab.web.api.schemas import ModelFacts

router = APIRouter(tags=["models"], route_class=SmallBody)


@router.post("/models/analyse", summary="What a model is", responses=NOT_THERE)
def analyse_model(workspace: TheWorkspace, asking: ModelAsking) -> ModelFacts:
    """Find a model, fetching it where needed, and read what it is; nothing is kept but a download."""
    return ModelFacts.of(workspace.analyse(asking.source), workspace.sources)
