"""The frame of every page of a project: its sections, with the profiles that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nicegui import html
from starlette.responses import RedirectResponse, Response

from inferlab.store.entries import Entry, Project
from inferlab.web import shell
from inferlab.web.components.profile_form import open_loss, open_performance
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import aged, follow, queue_indicator
from inferlab.web.shell import Frame, Item, Section
from inferlab.workspace.workspace import ONLY_GENERATES

#: What the page of each part is called that rests on the architecture alone.
THEORY = {"performance": "flops", "loss": "approximated"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A project whose page is shown; its profiles are newest first."""

    project: Project
    profiles: tuple[Entry, ...]
    frame: Frame
    #: The names of versions by the digests of their models.
    versions: Mapping[str, str]

    @property
    def own(self) -> tuple[Entry, ...]:
        """The profiles of the model as it is, without those of its versions."""
        return tuple(profile for profile in self.profiles if profile.model_digest == self.project.model.digest)


def measured(profiles: Sequence[Entry]) -> list[Entry]:
    """Profiles with times of layers."""
    return [profile for profile in profiles if profile.brief.get("performance")]


def losses(profiles: Sequence[Entry]) -> list[Entry]:
    """Profiles with losses that were measured."""
    return [profile for profile in profiles if _method(profile) not in (None, "approximated")]


def approximated(profiles: Sequence[Entry]) -> Entry | None:
    """The oldest profile whose losses were estimated from the weights: the one that the project began with."""
    return next((profile for profile in reversed(profiles) if _method(profile) == "approximated"), None)


async def newest_profile(desk: Desk, project_id: str, part: str, removed: str = "") -> Response:
    """Lead on to the newest profile of a part of a project, or to what its architecture says."""
    workspace = desk.workspace
    await asyncio.to_thread(workspace.store.projects.get, project_id)
    profiles = await asyncio.to_thread(workspace.profiles, project_id)
    profiles_of_part = measured(profiles) if part == "performance" else losses(profiles)
    page = profiles_of_part[0].id if profiles_of_part else THEORY[part]
    return RedirectResponse(f"/projects/{project_id}/{part}/{page}{f'?removed={removed}' if removed else ''}")


def only_generates(opened: Opened) -> bool:
    """Whether a page makes no sense for a model that only generates tokens, which it then says."""
    if opened.project.only_generates:
        with html.div().props('data-testid="only-generates"'):
            shell.empty("Not for this model", ONLY_GENERATES)
    return opened.project.only_generates


def _method(entry: Entry) -> str | None:
    loss = entry.brief.get("loss")
    return str(loss["method"]) if loss else None


@asynccontextmanager
async def project_page(desk: Desk, project_id: str, here: str, title: str = "") -> AsyncIterator[Opened]:
    """A page of a project under its frame; `here` is what follows the project's address, such as benchmarks."""
    workspace = desk.workspace
    project = await asyncio.to_thread(workspace.store.projects.get, project_id)
    listed = await asyncio.to_thread(_read, desk, project_id)
    address = f"/projects/{project_id}/{here}"
    sections = _sections(desk, project, listed)
    with shell.project_frame(project.name, project_id, sections, address, title) as frame:
        queue_indicator(desk, frame.queue)
        _follow_entries(desk, project, listed, frame, address)
        with frame.content:
            yield Opened(project, listed.profiles, frame, listed.names)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the navigation lists."""

    profiles: tuple[Entry, ...]
    versions: tuple[Entry, ...]

    @property
    def names(self) -> dict[str, str]:
        """The names of versions by the digests of their models."""
        return {version.brief["optimized"]["digest"]: version.brief["name"] for version in self.versions}

    def ages(self) -> list[str]:
        """How old it says they are."""
        return [aged(entry.created_at) for entry in (*self.profiles, *self.versions)]


def _read(desk: Desk, project_id: str) -> _Listed:
    workspace = desk.workspace
    return _Listed(tuple(workspace.profiles(project_id)), tuple(workspace.versions.entries(project_id)))


def _sections(desk: Desk, project: Project, listed: _Listed) -> tuple[Section, ...]:
    base = f"/projects/{project.id}"
    profiles, names = listed.profiles, listed.names
    versions = [
        Item(version.brief["name"], f"{base}/optimization/{version.id}", aged(version.created_at))
        for version in listed.versions
    ]
    common = (
        Section("Benchmarks", "leaderboard", f"{base}/benchmarks"),
        Section("Settings", "settings", f"{base}/settings"),
    )
    if project.only_generates:
        return common
    return (
        Section(
            "Performance profiles",
            "speed",
            f"{base}/performance",
            (
                *_items(measured(profiles), "performance", base, names),
                Item("FLOPS", f"{base}/performance/{THEORY['performance']}"),
            ),
            lambda: open_performance(desk, project),
        ),
        Section(
            "Loss profiles",
            "trending_down",
            f"{base}/loss",
            (
                *_items(losses(profiles), "loss", base, names),
                Item("Approximated", f"{base}/loss/{THEORY['loss']}"),
            ),
            lambda: open_loss(desk, project),
        ),
        Section("Optimization", "tune", f"{base}/optimization", tuple(versions)),
        common[0],
        Section("Trends", "show_chart", f"{base}/trends"),
        *common[1:],
    )


def _follow_entries(desk: Desk, project: Project, listed: _Listed, frame: Frame, address: str) -> None:
    """Show profiles and versions in the navigation as they come and go, and grow older."""
    drawn = (listed, listed.ages())

    async def renew() -> None:
        nonlocal drawn
        listed_now = await asyncio.to_thread(_read, desk, project.id)
        if frame.rail is not None and (listed_now, listed_now.ages()) != drawn:
            drawn = (listed_now, listed_now.ages())
            shell.fill_rail(frame.rail, project.name, _sections(desk, project, listed_now), address)

    async def changed(before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp:
            await renew()

    follow(desk, changed, renew)


def _items(entries: list[Entry], part: str, base: str, versions: Mapping[str, str]) -> list[Item]:
    """Profiles; those of a version say of which."""
    items = []
    for entry in entries:
        version = versions.get(entry.model_digest, "")
        name = f"{entry.brief[part]['name']} · {version}" if version else str(entry.brief[part]["name"])
        items.append(Item(name, f"{base}/{part}/{entry.id}", aged(entry.created_at)))
    return items
