"""The frame of every page of a project: its sections, with the profiles that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from inferlab.render.history import age
from inferlab.store.entries import Entry, Project
from inferlab.web import shell
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow, queue_indicator
from inferlab.web.parts.profile_dialogs import open_loss, open_performance
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
async def project_page(desk: Desk, project_id: str, here: str, title: str = "") -> AsyncIterator[Opened]:
    """A page of a project under its frame; `here` is what follows the project's address, such as benchmarks."""
    workspace = desk.workspace
    project = await asyncio.to_thread(workspace.project, project_id)
    profiles = tuple(await asyncio.to_thread(workspace.profiles, project_id))
    address = f"/projects/{project_id}/{here}"
    sections = _sections(desk, project, profiles)
    with shell.project_frame(project.name, project_id, sections, address, title) as frame:
        queue_indicator(desk, frame.queue)
        _follow_profiles(desk, project, profiles, frame, address)
        with frame.content:
            yield Opened(project, profiles, frame)


def _sections(desk: Desk, project: Project, profiles: Sequence[Entry]) -> tuple[Section, ...]:
    base = f"/projects/{project.id}"
    return (
        Section(
            "Performance Profiles",
            "speed",
            f"{base}/performance",
            (
                *_items(measured(profiles), "performance", base),
                Item("FLOPS", f"{base}/performance/flops"),
            ),
            lambda: open_performance(desk, project),
        ),
        Section(
            "Loss Profiles",
            "trending_down",
            f"{base}/loss",
            (*_items(losses(profiles), "loss", base), Item("Approximated", f"{base}/loss/approximated")),
            lambda: open_loss(desk, project),
        ),
        Section("Optimization", "tune", f"{base}/optimization"),
        Section("Benchmarks", "leaderboard", f"{base}/benchmarks"),
        Section("Settings", "settings", f"{base}/settings"),
    )


def _follow_profiles(desk: Desk, project: Project, profiles: Sequence[Entry], frame: Frame, address: str) -> None:
    """Show profiles in the navigation as they come and go."""
    shown = [(one.id, one.brief) for one in profiles]

    async def changed(before: Snapshot, now: Snapshot) -> None:
        nonlocal shown
        if before.stamp == now.stamp or frame.rail is None:
            return
        found = await asyncio.to_thread(desk.workspace.profiles, project.id)
        listed = [(one.id, one.brief) for one in found]
        if listed != shown:
            shown = listed
            shell.fill_rail(frame.rail, project.name, _sections(desk, project, found), address)

    follow(desk, changed)


def _items(entries: list[Entry], part: str, base: str) -> list[Item]:
    now = datetime.now(UTC)
    return [
        Item(str(one.brief[part]["name"]), f"{base}/{part}/{one.id}", age(one.created_at, now)) for one in entries
    ]
