"""Jobs: the queue, how far each is, and cancelling, resuming and forgetting them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import Depends, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from inferlab.errors import NotThere
from inferlab.store.entries import QueuedJob
from inferlab.web.api.common import CONFLICT, PROBLEMS, SHOWN, JobId, TheDesk, TheWorkspace, as_json, routes
from inferlab.web.api.schemas import Answer, JobDetails, JobFacts, of_record
from inferlab.workspace.workspace import Workspace

job_routes = routes("jobs")


@of_record()
class QueueFacts(Answer):
    """The queue at one moment."""

    jobs: list[JobFacts]


@job_routes.get("/jobs", summary="The queue")
def list_jobs(
    workspace: TheWorkspace,
    recent: Annotated[
        int, Query(ge=0, le=200, description="How many of the jobs that ended last to include.")
    ] = 0,
) -> list[JobFacts]:
    """What runs and what waits, in the order of the queue; then what ended, the last first."""
    alive = _queue(workspace.store.jobs.alive())
    return alive + [JobFacts.of(job, None) for job in workspace.store.jobs.recent(recent)]


@job_routes.get(
    "/jobs/events",
    summary="Follow the queue",
    response_class=EventSourceResponse,
    responses=as_json(PROBLEMS),
)
async def follow_jobs(desk: TheDesk) -> AsyncIterable[ServerSentEvent]:
    """The queue as server-sent events: `queue` with all jobs on their way, now and whenever something changes.

    An entry or a project that comes or goes counts as a change. It does not end by itself.
    """
    await desk.watch.refresh()
    async for snapshot in desk.watch.changes():
        yield ServerSentEvent(event="queue", data=QueueFacts(jobs=_queue(snapshot.jobs)))


@job_routes.get("/jobs/{job_id}", summary="One job")
def read_job(workspace: TheWorkspace, job_id: JobId) -> JobDetails:
    """A job with its log."""
    return _details(workspace, job_id)


def _there(workspace: TheWorkspace, job_id: JobId) -> None:
    """Refuse an unknown job before the answer has begun."""
    workspace.store.jobs.get(job_id)


@job_routes.get(
    "/jobs/{job_id}/events",
    summary="Follow a job",
    response_class=EventSourceResponse,
    responses=as_json(PROBLEMS),
    dependencies=[Depends(_there)],
)
async def follow_job(desk: TheDesk, job_id: JobId) -> AsyncIterable[ServerSentEvent]:
    """A job as server-sent events: `progress` now and about once a second, at last `end` with its log."""
    last: JobFacts | None = None
    await desk.watch.refresh()
    async for snapshot in desk.watch.changes():
        facts = next((line for line in _queue(snapshot.jobs) if line.id == job_id), None)
        if facts is None:
            try:
                ended = await asyncio.to_thread(_details, desk.workspace, job_id)
            except NotThere:
                # It was forgotten meanwhile, with its project perhaps.
                return
            if ended.position is None:
                yield ServerSentEvent(event="end", data=ended)
                return
            # It was queued again since the queue was looked at.
            continue
        if facts != last:
            last = facts
            yield ServerSentEvent(event="progress", data=facts)


@job_routes.post("/jobs/{job_id}/cancel", summary="Cancel a job", dependencies=SHOWN)
def cancel_job(workspace: TheWorkspace, job_id: JobId) -> JobFacts:
    """Take a job out of the queue, or ask a running one to end; what is measured is kept."""
    job = workspace.store.jobs.cancel(job_id)
    return JobFacts.of(job, workspace.position(job))


@job_routes.post("/jobs/{job_id}/resume", summary="Resume a job", responses=CONFLICT, dependencies=SHOWN)
def resume_job(workspace: TheWorkspace, job_id: JobId) -> JobFacts:
    """Queue a job again that was cancelled or interrupted; what is done is not measured again."""
    job = workspace.store.jobs.resume(job_id)
    return JobFacts.of(job, workspace.position(job))


@job_routes.delete(
    "/jobs/{job_id}", status_code=204, summary="Remove a job", responses=CONFLICT, dependencies=SHOWN
)
def remove_job(workspace: TheWorkspace, job_id: JobId) -> None:
    """Remove a job that has ended; its entry stays."""
    workspace.store.jobs.remove(job_id)


def _queue(jobs: tuple[QueuedJob, ...] | list[QueuedJob]) -> list[JobFacts]:
    return [JobFacts.of(job, position) for position, job in enumerate(jobs)]


def _details(workspace: Workspace, job_id: str) -> JobDetails:
    job = workspace.store.jobs.get(job_id)
    return JobDetails.of(job, workspace.position(job))
