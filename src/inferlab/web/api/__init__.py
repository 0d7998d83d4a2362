"""The HTTP API: all that the pages do, for programs. One file a noun; each route calls the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends

from inferlab.web.api.common import PROBLEMS, giving, only_known
from inferlab.web.api.entries import benchmark_routes, entry_routes
from inferlab.web.api.generations import generation_routes
from inferlab.web.api.jobs import job_routes
from inferlab.web.api.profiles import profile_routes
from inferlab.web.api.projects import project_routes, upload_routes
from inferlab.web.api.system import engine_routes, system_routes
from inferlab.web.api.versions import version_routes

if TYPE_CHECKING:
    from inferlab.web.desk import Desk

_ROUTES = (
    *(system_routes, engine_routes, upload_routes, project_routes, benchmark_routes),
    *(generation_routes, profile_routes, version_routes, entry_routes, job_routes),
)


def router(desk: Desk | None) -> APIRouter:
    """All routes; without a desk they can be described, but answer nothing."""
    api = APIRouter(dependencies=[Depends(giving(desk)), Depends(only_known)], responses=PROBLEMS)
    for routes in _ROUTES:
        api.include_router(routes)
    return api
