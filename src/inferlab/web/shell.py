"""The frame around every page: a bar on top and, within a project, its sections on the left."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from nicegui import html, ui
from nicegui.element import Element

from inferlab.units import plural
from inferlab.web import faults

API_DESCRIPTION = "/api/v1/openapi.json"
_PAGE_TIMEOUT_S = 30.0


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


@dataclass(frozen=True, slots=True)
class Frame:
    """What a page may fill besides its content, each with `with`."""

    crumbs: Element
    queue: Element
    content: Element
    #: The sections of a project; see `fill_rail`.
    rail: Element | None = None


def page(path: str) -> ui.page:
    """Defines the page at an address; on a busy machine it comes late rather than not at all."""
    return ui.page(path, response_timeout=_PAGE_TIMEOUT_S)


@contextmanager
def frame(title: str, crumbs: Sequence[tuple[str, str]] = ()) -> Iterator[Frame]:
    """A page under the bar; crumbs are titles and addresses, from the outermost, without the page itself."""
    with _page(title) as slots:
        _fill(slots.crumbs, (*crumbs, (title, "")))
        with ui.element("div").classes("il-body"), ui.element("main").classes("il-main") as content:
            yield Frame(slots.crumbs, slots.queue, content)


@contextmanager
def project_frame(
    project_name: str, project_id: str, sections: Sequence[Section], here: str, title: str = ""
) -> Iterator[Frame]:
    """A page of a project: `here` is its address, which opens the section that it belongs to."""
    opened = next((each for each in sections if _within(each, here)), None)
    page_title = title or (opened.title if opened else project_name)
    with _page(f"{page_title} – {project_name}") as slots:
        _fill(slots.crumbs, ((project_name, f"/projects/{project_id}"), (page_title, "")))
        with ui.element("div").classes("il-body"):
            with ui.element("nav").classes("il-rail").props('aria-label="Sections of the project"'):
                rail = ui.element("div").classes("il-rail-inner")
            fill_rail(rail, project_name, sections, here)
            with ui.element("main").classes("il-main") as content:
                yield Frame(slots.crumbs, slots.queue, content, rail)


@dataclass(frozen=True, slots=True)
class _Slots:
    crumbs: Element
    queue: Element


@contextmanager
def _page(title: str) -> Iterator[_Slots]:
    ui.page_title(f"{title} – inferlab")
    ui.on_exception(_show_error)
    with ui.element("header").classes("il-bar"):
        _link("/", "il-wordmark", "inferlab")
        crumbs = ui.element("nav").classes("il-crumbs").props('aria-label="You are here"')
        queue = ui.element("div").classes("il-queue")
        with ui.element("div").classes("il-tools"):
            _link(API_DESCRIPTION, "il-tool", "API", target="_blank", title="Description of the HTTP API")
            with html.button(type="button", title="Light or dark").classes("il-tool") as toggle:
                ui.icon("dark_mode").classes("il-to-dark")
                ui.icon("light_mode").classes("il-to-light")
            toggle.on("click", js_handler="() => inferlabTheme.toggle()")
    yield _Slots(crumbs, queue)


def reload() -> None:
    """Load the page again, for what stands in its frame too; not where the user is leaving it."""
    ui.run_javascript("inferlabReload()")


def _show_error(error: Exception) -> None:
    """An error in an event of a page is said there; faults are kept by the server."""
    ui.notify(faults.sentence(error), type="negative", multi_line=True, close_button="Close", timeout=10_000)


def _fill(crumbs: Element, steps: Sequence[tuple[str, str]]) -> None:
    with crumbs:
        for title, href in steps:
            with ui.element("span").classes("il-cut"):
                if href:
                    _link(href, "", title)
                else:
                    _text("", title)


def _within(section: Section, here: str) -> bool:
    return (
        here == section.href or here.startswith(f"{section.href}/") or any(i.href == here for i in section.items)
    )


def fill_rail(rail: Element, project_name: str, sections: Sequence[Section], here: str) -> None:
    """Show the sections of a project, that of the address `here` open; what was shown before goes."""
    opened = next((each for each in sections if _within(each, here)), None)
    rail.clear()
    with rail:
        with _link("/", "il-rail-project", title="All projects"):
            ui.icon("chevron_left")
            _text("il-cut", project_name)
        for section in sections:
            with ui.element("div").classes("il-section-open" if section is opened else ""):
                _section(section, section is opened, here)


def _section(section: Section, is_open: bool, here: str) -> None:
    with ui.element("div").classes("il-section-row"):
        with _link(section.href, "il-section-link", title=section.title, **_current(section.href, here)):
            ui.icon(section.icon)
            _text("il-cut", section.title)
        if section.add is not None and is_open:
            with html.button(type="button", title=f"Add to {section.title}").classes("il-add") as button:
                ui.icon("add", size="20px")
            button.props('data-testid="add-profile"').on("click", section.add, [])
    if is_open and section.items:
        with ui.element("div").classes("il-items"):
            for item in section.items:
                _item(item, here)


def _item(item: Item, here: str) -> None:
    classes = "il-item il-here" if item.href == here else "il-item"
    with _link(item.href, classes, title=item.title, **_current(item.href, here)):
        _text("il-cut", item.title)
        if item.detail:
            _text("il-item-detail", item.detail)


def _current(href: str, here: str) -> dict[str, str]:
    return {"aria-current": "page"} if href == here else {}


def _link(href: str, classes: str, text: str | None = None, **props: str) -> Element:
    link: Element = html.a(text, href=href, **props).classes(classes)
    return link


def _text(classes: str, text: str) -> Element:
    """Foreign text: it is shown as it stands, never read as HTML."""
    element: Element = html.span(text).classes(classes)
    return element


def titled(title: str, detail: str = "") -> Element:
    """The first row of a page: its title, something small beside it, and on the right what `with` puts there."""
    with html.div().classes("il-title"):
        html.h1(title)
        if detail:
            _text("il-muted", detail)
        actions: Element = html.div().classes("il-title-actions")
    return actions


def section(title: str, detail: str = "") -> Element:
    """A heading within a page; `with` puts more into its row."""
    with html.div().classes("il-heading") as row:
        html.h2(title)
        if detail:
            _text("il-muted il-small", detail)
    heading: Element = row
    return heading


def card(classes: str = "") -> Element:
    """A surface for things that belong together."""
    surface: Element = html.div().classes(f"il-card {classes}")
    return surface


def stats(classes: str = "") -> Element:
    """A grid for stats."""
    grid: Element = html.div().classes(f"il-stats {classes}")
    return grid


def stat(label: str, value: str, detail: str = "", name: str = "") -> Element:
    """A number with its name above and its interval, or what else qualifies it, below; tests find it by `name`."""
    with html.div().classes("il-stat") as whole:
        html.div(label).classes("il-stat-label")
        html.div(value).classes("il-stat-value")
        if detail:
            html.div(detail).classes("il-stat-detail")
    element: Element = whole.props(f'data-testid="{name}"' if name else "")
    return element


def fact(label: str, value: str, name: str) -> Element:
    """A stat that is words rather than a number."""
    return stat(label, value, name=name).classes("il-stat-words")


Kind = Literal["ok", "warn", "wrong", "muted", "info"]
_ICONS = {"ok": "check_circle", "warn": "warning", "wrong": "error", "muted": "info", "info": "info"}


def banner(kind: Kind, text: str) -> Element:
    """A message across the page: wrong cannot be missed, warn is amber; `with` puts buttons at its end."""
    with html.div(role="alert").classes(f"il-banner il-banner-{kind}") as whole:
        ui.icon(_ICONS[kind])
        html.div(text).classes("il-banner-text")
    element: Element = whole
    return element


def findings(lines: Sequence[str], name: str = "findings") -> None:
    """What qualifies the numbers: one chip with how many there are, which opens to show them."""
    if lines:
        with html.details().classes("il-notes").props(f'data-testid="{name}"'):
            with html.summary(), _text("il-chip il-warn", plural(len(lines), "note")):
                ui.icon("expand_more")
            with html.ul().classes("il-findings"):
                for line in lines:
                    html.li(line)


def chip(text: str, kind: Kind = "info") -> Element:
    """A word or two about a thing, in the colour of its kind."""
    return _text(f"il-chip il-{kind}", text)


_VERDICTS: dict[str, Kind] = {"faster": "ok", "slower": "wrong", "same": "muted", "inconclusive": "warn"}


def verdict(text: str) -> Element:
    """The verdict of a comparison, in its colour."""
    return chip(text, _VERDICTS.get(text, "muted")).props('data-testid="verdict"')


def empty(title: str, text: str) -> Element:
    """What a page says where there is nothing yet; `with` puts in what could be done about it."""
    with html.div().classes("il-empty"):
        html.div(title).classes("il-empty-title")
        html.div(text).classes("il-empty-text")
        actions: Element = html.div().classes("il-empty-actions")
    return actions


def table(heads: Sequence[str], right: Collection[str] = (), classes: str = "", name: str = "") -> Element:
    """A table with these heads, those in `right` above numbers; `with` puts rows into its body."""
    with html.table().classes(f"il-table {classes}").props(f'data-testid="{name}"' if name else ""):
        with html.thead(), html.tr():
            for head in heads:
                html.th(head).classes("il-right" if head in right else "")
        body: Element = html.tbody()
    return body


def text_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[int],
    classes: Mapping[int, str] | None = None,
    name: str = "",
) -> None:
    """A table of texts, those in the columns `left` words and all others numbers; some rows have classes."""
    with table(heads, [head for index, head in enumerate(heads) if index not in left], name=name):
        for number, row in enumerate(rows):
            with html.tr().classes((classes or {}).get(number, "")):
                for index, text in enumerate(row):
                    html.td(text).classes("" if index in left else "il-right")


def facts(pairs: Sequence[tuple[str, str]]) -> Element:
    """Names and values in two columns."""
    with html.div().classes("il-facts") as whole:
        for name, value in pairs:
            html.div(name)
            html.div(value)
    element: Element = whole
    return element


def steps(titles: Sequence[tuple[str, str]], at: int) -> Element:
    """The header of a form of several steps, given with their icons: those before `at` are done."""
    with html.div(role="list").classes("il-steps") as whole:
        for number, (title, icon) in enumerate(titles):
            state = "il-step-done" if number < at else "il-step-here" if number == at else ""
            with html.div(role="listitem").classes(f"il-step {state}"):
                with html.div().classes("il-step-circle"):
                    ui.icon(icon)
                html.div(title).classes("il-step-title")
    element: Element = whole
    return element


class Progress:
    """How much is done, as a bar or as a ring with its percentage; unknown while the share is None.

    Nothing moves by itself: a browser that animates takes time from what is being measured beside it.
    """

    def __init__(self, share: float | None = None, ring: bool = False) -> None:
        self._label: ui.label | None = None
        self._bar: ui.circular_progress | ui.linear_progress
        if ring:
            with ui.circular_progress(min=0.0, max=1.0, size="96px", show_value=False) as self._bar:
                self._label = ui.label()
            self._bar.props('show-value thickness=0.15 instant-feedback aria-label="Share done"').classes(
                "il-ring"
            )
        else:
            self._bar = ui.linear_progress(show_value=False, size="6px")
            self._bar.props('rounded instant-feedback aria-label="Share done"').classes("il-progress")
        self.set(share)

    def set(self, share: float | None) -> None:
        """Show another share, from 0 to 1."""
        fraction = None if share is None else min(max(share, 0.0), 1.0)
        self._bar.classes(**{"add" if fraction is None else "remove": "il-busy"})
        self._bar.set_value(fraction or 0.0)
        if self._label is not None:
            self._label.text = "…" if fraction is None else f"{100 * fraction:.0f} %"


# The clipboard is only there on this machine and by https, and only while a click is handled; the old way works
# everywhere. The answer says whether it was done.
COPY = """
(async (text) => {
  try { await navigator.clipboard.writeText(text); return true; } catch {}
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
})(%s)
"""
# At the top: what was removed can be undone at the bottom.
_COPIED = 'Quasar.Notify.create({ message: "Copied", timeout: 1500, position: "top" })'


def copy_handler(expression: str) -> str:
    """A handler in JavaScript that copies what an expression gives."""
    return f"async () => {{ await {COPY % expression}; {_COPIED} }}"


def command_line(text: str, name: str = "copy-command") -> Element:
    """A command as it is typed in a terminal, to be copied."""
    with html.div().classes("il-command") as whole:
        html.code(text)
        button = ui.button(icon="content_copy").props(f'flat dense round data-testid="{name}" aria-label="Copy"')
        with button:
            ui.tooltip("Copy")
    button.on("click", js_handler=copy_handler(json.dumps(text)))
    element: Element = whole
    return element
