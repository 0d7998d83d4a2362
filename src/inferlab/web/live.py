"""What pages show while it changes: the queue in the bar, and parts that follow the jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from nicegui import html, ui
from nicegui.element import Element

from inferlab.store.entries import QueuedJob
from inferlab.units import plural
from inferlab.views.history import age
from inferlab.web.desk import Desk, Snapshot

_LOOK_S = 1.0
_JUST_NOW = timedelta(minutes=1)
#: What a job is about, in the bar and on cards.
NAMES = {
    "benchmark": "Running benchmark",
    "comparison": "Comparing",
    "profile": "Profiling",
    "optimization": "Making a version",
    "install": "Installing an engine",
}


def follow(desk: Desk, changed: Callable[[Snapshot, Snapshot], Awaitable[None] | None]) -> None:
    """Call back about once a second while the queue or the store changes, with the older and the newer state."""
    last = desk.watch.wanted()

    async def look() -> None:
        nonlocal last
        now = desk.watch.wanted()
        if now != last:
            before, last = last, now
            waiting = changed(before, now)
            if waiting is not None:
                await waiting

    ui.timer(_LOOK_S, look)


def aged(then: datetime) -> str:
    """How long ago it was, as it stays true until a page says it anew."""
    now = datetime.now(UTC)
    return "just now" if now - then < _JUST_NOW else age(then, now)


def queue_indicator(desk: Desk, slot: Element) -> None:
    """What is being measured and how much waits, in the bar of every page; a link to where it is shown."""
    with slot:
        link: Element = html.a(href="/").classes("il-queue-link").props('data-testid="queue"')
        with link:
            words = ui.label("")

    def show(_: Snapshot, now: Snapshot) -> None:
        words.set_text(summary(now.jobs))
        link.props["href"] = _where(now.jobs)
        link.set_visibility(bool(now.jobs))

    snapshot = desk.watch.wanted()
    show(snapshot, snapshot)
    follow(desk, show)


def summary(jobs: tuple[QueuedJob, ...]) -> str:
    """The queue in a few words."""
    running = [one for one in jobs if one.status == "running"]
    waiting = len(jobs) - len(running)
    words = [f"{NAMES[one.kind]}{'' if one.fraction is None else f' {one.fraction:.0%}'}" for one in running]
    if waiting:
        words.append(f"{plural(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}")
    return ", ".join(words)


def _where(jobs: tuple[QueuedJob, ...]) -> str:
    """The page that shows the first job."""
    if not jobs or jobs[0].project_id is None:
        return "/"
    page = {"profile": "performance", "optimization": "optimization"}.get(jobs[0].kind, "benchmarks")
    return f"/projects/{jobs[0].project_id}/{page}"
