"""The HTTP API: all that the pages do, for programs. One file a noun; each route calls the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends

from inferlab.web.api import (
    benchmarks,
    engines,
    entries,
    generations,
    jobs,
    profiles,
    projects,
    system,
    uploads,
    versions,
)
from inferlab.web.api.common import PROBLEMS, giving, only_known

if TYPE_CHECKING:
    from inferlab.web.desk import Desk

_NOUNS = (system, engines, uploads, projects, benchmarks, generations, profiles, versions, entries, jobs)


def router(desk: Desk | None) -> APIRouter:
    """All routes; without a desk they can be described, but answer nothing."""
    api = APIRouter(dependencies=[Depends(giving(desk)), Depends(only_known)], responses=PROBLEMS)
    for noun in _NOUNS:
        api.include_router(noun.router)
    return api
