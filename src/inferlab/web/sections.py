"""The frame of every page of a project: its sections, with the profiles that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from inferlab.render.history import age
from inferlab.store.entries import Entry, Project
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.web.live import queue_indicator
from inferlab.web.shell import Frame, Item, Section


@dataclass(frozen=True, slots=True)
class Opened:
    """A project whose page is shown; its profiles are newest first."""

    project: Project
    profiles: tuple[Entry, ...]
    frame: Frame


def measured(profiles: Sequence[Entry]) -> list[Entry]:
    """Profiles with times of layers."""
    return [one for one in profiles if one.brief.get("performance")]


def losses(profiles: Sequence[Entry]) -> list[Entry]:
    """Profiles with losses that were measured."""
    return [one for one in profiles if _method(one) not in (None, "approximated")]


def approximated(profiles: Sequence[Entry]) -> Entry | None:
    """The oldest profile whose losses were foretold from the weights: the one that the project began with."""
    return next((one for one in reversed(profiles) if _method(one) == "approximated"), None)


def _method(entry: Entry) -> str | None:
    loss = entry.brief.get("loss")
    return str(loss["method"]) if loss else None


@asynccontextmanager
async def project_page(
    desk: Desk,
    project_id: str,
    here: str,
    title: str = "",
    add_performance: Callable[[], object] | None = None,
    add_loss: Callable[[], object] | None = None,
) -> AsyncIterator[Opened]:
    """A page of a project under its frame; `here` is what follows the project's address, such as benchmarks.

    A "+" beside the profiles calls what is given for it.
    """
    workspace = desk.workspace
    project = await asyncio.to_thread(workspace.project, project_id)
    profiles = tuple(await asyncio.to_thread(workspace.profiles, project_id))
    base = f"/projects/{project_id}"
    sections = (
        Section(
            "Performance Profiles",
            "speed",
            f"{base}/performance",
            (
                *_items(measured(profiles), "performance", base),
                Item("FLOPS", f"{base}/performance/flops"),
            ),
            add_performance,
        ),
        Section(
            "Loss Profiles",
            "trending_down",
            f"{base}/loss",
            (*_items(losses(profiles), "loss", base), Item("Approximated", f"{base}/loss/approximated")),
            add_loss,
        ),
        Section("Optimization", "tune", f"{base}/optimization"),
        Section("Benchmarks", "leaderboard", f"{base}/benchmarks"),
        Section("Settings", "settings", f"{base}/settings"),
    )
    with shell.project_frame(project.name, project_id, sections, f"{base}/{here}", title) as frame:
        queue_indicator(desk, frame.queue)
        with frame.content:
            yield Opened(project, profiles, frame)


def _items(entries: list[Entry], part: str, base: str) -> list[Item]:
    now = datetime.now(UTC)
    return [
        Item(str(one.brief[part]["name"]), f"{base}/{part}/{one.id}", age(one.created_at, now)) for one in entries
    ]
