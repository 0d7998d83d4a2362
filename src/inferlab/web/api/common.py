"""What all routes of the HTTP API share: the desk, ids, refusals, and how jobs are answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from inferlab.errors import NotThere
from inferlab.records import Model
from inferlab.store.entries import QueuedJob
from inferlab.web.api.schemas import JobFacts, Problem
from inferlab.web.desk import Desk
from inferlab.workspace.workspace import Workspace

PREFIX = "/api/v1"
_ID = re.compile(r"[a-z2-7]{10}")
# What is no upload is a few lines of JSON.
_MOST_BODY_BYTES = 2**20
_LOOK_S = 0.5

#: What any route may answer beside what it is for.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request cannot be carried out; the answer says why."},
    404: {"model": Problem, "description": "Not found."},
    422: {"model": Problem, "description": "A field is missing, unknown or of the wrong type."},
}
#: And some of them.
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Not possible in its current state."}
}
TOO_MANY: dict[int | str, dict[str, Any]] = {
    429: {"model": Problem, "description": "The limit on how many there may be at once is reached."}
}
TOO_LARGE: dict[int | str, dict[str, Any]] = {413: {"model": Problem, "description": "Larger than allowed."}}


def as_json(problems: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """What a route may answer that else answers something other than JSON."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    return {
        status: {"description": problem["description"], "content": content} for status, problem in problems.items()
    }


# Dependencies that only pass something on are coroutines: each function would cost a change of threads.


async def desk_of(request: Request) -> Desk:
    """The desk of this server, which `giving` put there."""
    desk: Desk = request.state.desk
    return desk


async def workspace_of(request: Request) -> Workspace:
    """What the pages call as well."""
    return (await desk_of(request)).workspace


TheDesk = Annotated[Desk, Depends(desk_of)]
TheWorkspace = Annotated[Workspace, Depends(workspace_of)]


def giving(desk: Desk | None) -> Callable[[Request, Response], Coroutine[Any, Any, None]]:
    """A dependency that lets routes have the desk."""

    async def give(request: Request, response: Response) -> None:
        request.state.desk = desk
        response.headers["Cache-Control"] = "no-store"

    return give


async def only_known(request: Request) -> None:
    """Refuse a query with names that the route does not know: a slip of the pen would go unnoticed."""
    names = {query_param.alias for query_param in request.scope["route"].dependant.query_params}
    unknown = [name for name in request.query_params if name not in names]
    if unknown:
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": "There is no such parameter"} for name in unknown]
        )


async def analysed(desk: Desk, request: Request, source: str) -> Model:
    """What a model is; where it must be fetched and whoever asked goes away, so does the download."""
    task = asyncio.create_task(desk.analyse(source))
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_LOOK_S)
            if not task.done() and await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()


async def shown_at_once(desk: TheDesk) -> AsyncIterator[None]:
    """Let open pages show at once what a request changed."""
    yield
    await desk.watch.refresh()


SHOWN = [Depends(shown_at_once)]


def _whole(id_text: str) -> str:
    """An id in full: the beginning of one, which will do on the command line, is another thing tomorrow."""
    if not _ID.fullmatch(id_text):
        raise NotThere(f"There is nothing with the id {id_text[:40]!r}.")
    return id_text


EntryId = Annotated[str, AfterValidator(_whole), Path(description="The id of an entry.")]
ProjectId = Annotated[str, AfterValidator(_whole), Path(description="The id of a project.")]
JobId = Annotated[str, AfterValidator(_whole), Path(description="The id of a job.")]
UploadId = Annotated[str, AfterValidator(_whole), Path(description="The id of an upload.")]
#: An id in a query.
SomeId = Annotated[str, AfterValidator(_whole)]


def queued(job: QueuedJob, workspace: Workspace, response: Response) -> JobFacts:
    """The answer to whoever queued a job: where it is shown, and how many go before it."""
    response.headers["Location"] = f"{PREFIX}/jobs/{job.id}"
    return JobFacts.of(job, workspace.position(job))


class SmallBody(APIRoute):
    """A route that takes no more than a few lines: bodies of JSON are read into memory whole."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As any route's, with a limit."""
        handle = super().get_route_handler()

        async def limited(request: Request) -> Response:
            return await handle(_Limited(request.scope, request.receive))

        return limited


class _Limited(Request):
    async def stream(self) -> AsyncIterator[bytes]:  # type: ignore[override]
        """The parts of the body, as long as it is short."""
        got = 0
        async for chunk in super().stream():
            got += len(chunk)
            if got > _MOST_BODY_BYTES:
                raise HTTPException(413, "This is more than 1 MiB. Send models to /uploads.")
            yield chunk


def routes(noun: str) -> APIRouter:
    """The routes of a noun, which take no more than a few lines."""
    return APIRouter(tags=[noun], route_class=SmallBody)


def start(
    router: APIRouter,
    noun: str,
    name: str,
    summary: str,
    description: str,
    request_type: Any,
    add: Callable[[Workspace, str, Any], QueuedJob],
) -> None:
    """A route that queues a job of a project; `add` takes the request, and refuses what cannot be measured.

    Clients that are generated from the description know it by its name.
    """

    def add_job(workspace: TheWorkspace, project_id: ProjectId, request: Any, response: Response) -> JobFacts:
        return queued(add(workspace, project_id, request), workspace, response)

    add_job.__annotations__["request"] = request_type
    router.post(
        f"/projects/{{project_id}}/{noun}",
        status_code=202,
        name=name,
        summary=summary,
        description=description,
        dependencies=SHOWN,
    )(add_job)
