"""The frame of every page of a project: its sections, with the profiles that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.element import Element
from starlette.responses import RedirectResponse, Response

from inferlab.store.entries import Entry, Project
from inferlab.web import shell
from inferlab.web.components.actions import queue_indicator
from inferlab.web.components.profile_form import open_profile
from inferlab.web.desk import Desk, Snapshot, follow
from inferlab.web.shell import aged, div, refilled, span, tag
from inferlab.workspace.versions import version_names
from inferlab.workspace.workspace import ONLY_GENERATES


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a section: where it leads, and how old it is."""

    title: str
    href: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a project; `add` makes a new item, and a section without items may still have none to show."""

    title: str
    icon: str
    href: str
    items: tuple[Item, ...] = ()
    add: Callable[[], object] | None = None

    def holds(self, address: str) -> bool:
        """Whether the page of an address belongs to it."""
        own = address == self.href or address.startswith(f"{self.href}/")
        return own or any(item.href == address for item in self.items)


#: What the page of each part is called that rests on the architecture alone.
THEORY = {"performance": "flops", "loss": "approximated"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A project whose page is shown; its profiles are newest first."""

    project: Project
    profiles: tuple[Entry, ...]
    #: Where dialogs and messages of the page belong.
    content: Element
    #: The names of versions by the digests of their models.
    versions: Mapping[str, str]

    @property
    def own(self) -> tuple[Entry, ...]:
        """The profiles of the model as it is, without those of its versions."""
        return tuple(profile for profile in self.profiles if profile.model_digest == self.project.model.digest)


def measured(profiles: Sequence[Entry], part: str) -> list[Entry]:
    """Profiles of which a part, performance or loss, was measured."""
    return [profile for profile in profiles if is_measured(profile.brief, part)]


def approximated(profiles: Sequence[Entry]) -> Entry | None:
    """The oldest profile whose losses were estimated from the weights: the one that the project began with."""
    methods = ((profile, (profile.brief.get("loss") or {}).get("method")) for profile in reversed(profiles))
    return next((profile for profile, method in methods if method == "approximated"), None)


def named(profiles: Sequence[Entry], part: str) -> dict[str, str]:
    """Profiles of a part to choose from, by their ids: those that were measured, then the estimate of losses."""
    names = {
        entry.id: f"{entry.brief[part]['name']} ({aged(entry.created_at)})" for entry in measured(profiles, part)
    }
    theory = approximated(profiles) if part == "loss" else None
    return {**names, theory.id: "Approximated"} if theory else names


async def newest_profile(desk: Desk, project_id: str, part: str, removed: str = "") -> Response:
    """Lead on to the newest profile of a part of a project, or to what its architecture says."""
    workspace = desk.workspace
    await asyncio.to_thread(workspace.store.projects.get, project_id)
    profiles = measured(await asyncio.to_thread(workspace.profiles, project_id), part)
    page = profiles[0].id if profiles else THEORY[part]
    return RedirectResponse(f"/projects/{project_id}/{part}/{page}{f'?removed={removed}' if removed else ''}")


def only_generates(opened: Opened) -> bool:
    """Whether a page makes no sense for a model that only generates tokens, which it then says."""
    if opened.project.only_generates:
        shell.empty("Not for this model", ONLY_GENERATES, "only-generates")
    return opened.project.only_generates


@asynccontextmanager
async def project_page(desk: Desk, project_id: str, here: str) -> AsyncIterator[Opened]:
    """A page of a project under its frame; `here` is what follows the project's address, such as benchmarks."""
    workspace = desk.workspace
    project = await asyncio.to_thread(workspace.store.projects.get, project_id)
    listed = await asyncio.to_thread(_read, desk, project_id)
    address = f"/projects/{project_id}/{here}"
    sections = _sections(desk, project, listed)
    title = next((section.title for section in sections if section.holds(address)), project.name)
    crumbs = ((project.name, f"/projects/{project_id}"), (title, ""))
    queue_indicator(desk, shell.bar(f"{title} – {project.name}", crumbs))
    with div("il-body"):
        with tag("nav", "il-rail").props('aria-label="Sections of the project"'):
            rail = div("il-rail-inner")
        _fill_rail(rail, project.name, sections, address)
        _follow_entries(desk, project, listed, rail, address)
        with tag("main", "il-main") as content:
            yield Opened(project, listed.profiles, content, version_names(listed.versions))


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the navigation lists."""

    profiles: tuple[Entry, ...]
    versions: tuple[Entry, ...]

    def ages(self) -> list[str]:
        """How old it says they are."""
        return [aged(entry.created_at) for entry in (*self.profiles, *self.versions)]


def _read(desk: Desk, project_id: str) -> _Listed:
    workspace = desk.workspace
    return _Listed(tuple(workspace.profiles(project_id)), tuple(workspace.versions.entries(project_id)))


def _sections(desk: Desk, project: Project, listed: _Listed) -> tuple[Section, ...]:
    base = f"/projects/{project.id}"
    benchmarks = Section("Benchmarks", "leaderboard", f"{base}/benchmarks")
    settings = Section("Settings", "settings", f"{base}/settings")
    if project.only_generates:
        return benchmarks, settings
    profiles = [
        Section(
            f"{part.capitalize()} profiles",
            icon,
            f"{base}/{part}",
            (
                *_items(measured(listed.profiles, part), part, base, version_names(listed.versions)),
                Item(theory, f"{base}/{part}/{THEORY[part]}"),
            ),
            partial(open_profile, desk, project, part),
        )
        for part, icon, theory in (("performance", "speed", "FLOPS"), ("loss", "trending_down", "Approximated"))
    ]
    versions = tuple(
        Item(version.brief["name"], f"{base}/optimization/{version.id}", aged(version.created_at))
        for version in listed.versions
    )
    optimization = Section("Optimization", "tune", f"{base}/optimization", versions)
    return *profiles, optimization, benchmarks, Section("Trends", "show_chart", f"{base}/trends"), settings


def _follow_entries(desk: Desk, project: Project, listed: _Listed, rail: Element, address: str) -> None:
    """Show profiles and versions in the navigation as they come and go, and grow older."""
    drawn = (listed, listed.ages())

    async def renew() -> None:
        nonlocal drawn
        listed_now = await asyncio.to_thread(_read, desk, project.id)
        if (listed_now, listed_now.ages()) != drawn:
            drawn = (listed_now, listed_now.ages())
            _fill_rail(rail, project.name, _sections(desk, project, listed_now), address)

    async def changed(before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp:
            await renew()

    follow(desk, changed, renew)


def _fill_rail(rail: Element, project_name: str, sections: Sequence[Section], here: str) -> None:
    """Show the sections of a project, that of the address `here` open; what was shown before goes."""
    opened = next((section for section in sections if section.holds(here)), None)
    with refilled(rail):
        with tag("a", "il-rail-project", href="/", title="All projects"):
            ui.icon("chevron_left")
            span("il-cut", project_name)
        for section in sections:
            with div("il-section-open" if section is opened else ""):
                _section(section, section is opened, here)


def _section(section: Section, is_open: bool, here: str) -> None:
    with div("il-section-row"):
        with _rail_link("il-section-link", section.title, section.href, here):
            ui.icon(section.icon)
            span("il-cut", section.title)
        if section.add is not None and is_open:
            with tag(
                "button", "il-add", name="add-profile", type="button", title=f"Add to {section.title}"
            ) as add:
                ui.icon("add", size="20px")
            add.on("click", section.add, [])
    if is_open and section.items:
        with div("il-items"):
            for item in section.items:
                with _rail_link("il-item", item.title, item.href, here):
                    span("il-cut", item.title)
                    if item.detail:
                        span("il-item-detail", item.detail)


def _rail_link(classes: str, title: str, href: str, here: str) -> Element:
    """A link of the navigation, which says where it leads to the page that is shown."""
    link = tag("a", classes, href=href, title=title)
    if href == here:
        link.props["aria-current"] = "page"
    return link


def _items(entries: list[Entry], part: str, base: str, versions: Mapping[str, str]) -> list[Item]:
    """Profiles; those of a version say of which."""
    items = []
    for entry in entries:
        version = versions.get(entry.model_digest, "")
        name = f"{entry.brief[part]['name']} · {version}" if version else str(entry.brief[part]["name"])
        items.append(Item(name, f"{base}/{part}/{entry.id}", aged(entry.created_at)))
    return items


def is_measured(brief: Mapping[str, Any], part: str) -> bool:
    """Whether a part of a profile was measured."""
    measured = brief.get(part) or {}
    return bool(measured) and measured.get("method") != "approximated"
