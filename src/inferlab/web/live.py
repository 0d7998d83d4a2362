"""What pages show while it changes: the queue in the bar, and parts that follow the jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from nicegui import app, background_tasks, ui
from nicegui.element import Element

from inferlab.store.entries import QueuedJob
from inferlab.units import plural
from inferlab.views.history import age
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.shell import tag

#: What is called when something has changed.
Changed = Callable[[], Awaitable[None] | None]
_JUST_NOW = timedelta(minutes=1)
#: What a job is about, in the bar and on cards.
NAMES = {
    "benchmark": "Running benchmark",
    "comparison": "Comparing",
    "generation": "Generating tokens",
    "generation-comparison": "Comparing generation",
    "generation-capacity": "Searching the highest rate",
    "generation-recommendation": "Searching a configuration",
    "profile": "Profiling",
    "optimization": "Making a version",
    "install": "Installing an engine",
}


def follow(
    desk: Desk,
    changed: Callable[[Snapshot, Snapshot], Awaitable[None] | None],
    renew: Changed | None = None,
) -> None:
    """Call `changed` with the older and the newer state when the queue or the store changes.

    It goes on for as long as there is the part of the page that it is called in. `renew` shows ages as they are by
    then.
    """
    slot, client = ui.context.slot, ui.context.client
    part = slot.parent
    last, ticks, busy = desk.watch.snapshot, desk.watch.ticks, False

    async def catch_up() -> None:
        nonlocal last, ticks, busy
        if busy or part.is_deleted or not client.has_socket_connection:
            return
        busy = True
        try:
            with slot:
                while desk.watch.snapshot != last and not part.is_deleted:
                    before, last = last, desk.watch.snapshot
                    await done(changed(before, last))
                if renew is not None and ticks != desk.watch.ticks:
                    ticks = desk.watch.ticks
                    await done(renew())
        except Exception as error:
            with client:
                app.handle_exception(error)
        finally:
            busy = False

    def tell() -> None:
        if part.is_deleted:
            stop()
        else:
            background_tasks.create(catch_up(), name="follow")

    stop = desk.watch.follow(tell)
    client.on_connect(catch_up)
    client.on_delete(stop)


async def done(waiting: Awaitable[None] | None) -> None:
    """Wait for what a handler does, where it returned something to wait for."""
    if waiting is not None:
        await waiting


def aged(then: datetime) -> str:
    """How long ago it was, as it stays true until a page says it again."""
    now = datetime.now(UTC)
    return "just now" if now - then < _JUST_NOW else age(then, now)


def queue_indicator(desk: Desk, slot: Element) -> None:
    """What is being measured and how much waits, in the bar of every page; a link to where it is shown."""
    with slot:
        link = tag("a", "il-queue-link", name="queue", href="/")
        with link:
            words = ui.label("")

    def show(_: Snapshot, now: Snapshot) -> None:
        words.set_text(summary(now.jobs))
        link.props["href"] = page_of(now.jobs[0]) if now.jobs else "/"
        link.set_visibility(bool(now.jobs))

    snapshot = desk.watch.snapshot
    show(snapshot, snapshot)
    follow(desk, show)


def summary(jobs: tuple[QueuedJob, ...]) -> str:
    """The queue in a few words."""
    running = [job for job in jobs if job.status == "running"]
    waiting = len(jobs) - len(running)
    words = [f"{NAMES[job.kind]}{'' if job.fraction is None else f' {job.fraction:.0%}'}" for job in running]
    if waiting:
        words.append(f"{plural(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}")
    return ", ".join(words)


def page_of(job: QueuedJob) -> str:
    """The address of the page that shows what a job makes."""
    if job.project_id is None:
        return "/"
    page = {"profile": "performance", "optimization": "optimization"}.get(job.kind, "benchmarks")
    return f"/projects/{job.project_id}/{page}"
