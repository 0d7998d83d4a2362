"""The bar on top of every page, and what pages are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

from nicegui import html, ui
from nicegui.element import Element

from inferlab.units import plural
from inferlab.views.history import age
from inferlab.web import faults

if TYPE_CHECKING:
    from inferlab.views.tables import Table
    from inferlab.workspace.cards import CellTable

API_DESCRIPTION = "/api/v1/openapi.json"
_PAGE_TIMEOUT_S = 30.0
_JUST_NOW = timedelta(minutes=1)


def tag(kind: str, classes: str = "", text: str | None = None, name: str = "", **props: str) -> Element:
    """An element of HTML; its text is shown as it stands, never read as HTML, and tests find it by its name."""
    element: Element = getattr(html, kind)(text, **props).classes(classes)
    if name:
        element.props["data-testid"] = name
    return element


div, span, p = partial(tag, "div"), partial(tag, "span"), partial(tag, "p")


@contextmanager
def refilled(box: Element) -> Iterator[None]:
    """Put other content into an element, in place of what it has."""
    box.clear()
    with box:
        yield


class Part:
    """A part of a page, drawn again only when what it shows has changed: a button under the pointer stays."""

    def __init__(self, classes: str = "", name: str = "") -> None:
        self.box = div(classes, name=name)
        self._shown: object = object()

    def show(self, key: object, draw: Callable[[], object]) -> None:
        """Let `draw` fill it, unless it shows what has this key already."""
        if key != self._shown:
            self._shown = key
            with refilled(self.box):
                draw()


def page(path: str) -> ui.page:
    """Defines the page at an address; on a busy machine it comes late rather than not at all."""
    return ui.page(path, response_timeout=_PAGE_TIMEOUT_S)


@contextmanager
def frame(title: str, crumbs: Sequence[tuple[str, str]] = ()) -> Iterator[Element]:
    """A page under the bar, which has a place for the queue; crumbs are titles and addresses of what is above."""
    queue = bar(title, (*crumbs, (title, "")))
    with div("il-body"), tag("main", "il-main"):
        yield queue


def bar(title: str, crumbs: Sequence[tuple[str, str]]) -> Element:
    """The bar on top of a page; returns where it says what is in the queue."""
    ui.page_title(f"{title} – inferlab")
    ui.on_exception(_show_error)
    with tag("header", "il-bar"):
        tag("a", "il-wordmark", "inferlab", href="/")
        with tag("nav", "il-crumbs").props('aria-label="You are here"'):
            for crumb, href in crumbs:
                with span("il-cut"):
                    tag("a", "", crumb, href=href) if href else span("", crumb)
        queue = div("il-queue")
        with div("il-tools"):
            api = {"href": API_DESCRIPTION, "target": "_blank", "title": "Description of the HTTP API"}
            tag("a", "il-tool", "API", **api)
            with tag("button", "il-tool", type="button", title="Light or dark") as toggle:
                ui.icon("dark_mode").classes("il-to-dark")
                ui.icon("light_mode").classes("il-to-light")
            toggle.on("click", js_handler="() => inferlabTheme.toggle()")
    return queue


def reload() -> None:
    """Load the page again, for what stands in its frame too; not where the user is leaving it."""
    ui.run_javascript("inferlabReload()")


def _show_error(error: Exception) -> None:
    """An error in an event of a page is said there; faults are kept by the server."""
    ui.notify(faults.sentence(error), type="negative", multi_line=True, close_button="Close", timeout=10_000)


def aged(then: datetime) -> str:
    """How long ago it was, as it stays true until a page says it again."""
    now = datetime.now(UTC)
    return "just now" if now - then < _JUST_NOW else age(then, now)


def titled(title: str, detail: str = "") -> Element:
    """The first row of a page: its title, something small beside it, and on the right what `with` puts there."""
    with div("il-title"):
        tag("h1", "", title)
        if detail:
            span("il-muted", detail)
        return div("il-title-actions")


def section(title: str, detail: str = "") -> Element:
    """A heading within a page; `with` puts more into its row."""
    with div("il-heading") as row:
        tag("h2", "", title)
        if detail:
            span("il-muted il-small", detail)
    return row


def card(classes: str = "") -> Element:
    """A surface for things that belong together."""
    return div(f"il-card {classes}")


def stats(classes: str = "") -> Element:
    """A grid for stats."""
    return div(f"il-stats {classes}")


def stat(label: str, value: str, detail: str = "", name: str = "") -> Element:
    """A number with its name above and its interval, or what else qualifies it, below; tests find it by `name`."""
    with div("il-stat", name=name) as whole:
        div("il-stat-label", label)
        div("il-stat-value", value)
        if detail:
            div("il-stat-detail", detail)
    return whole


def fact(label: str, value: str, name: str, wide: bool = False) -> Element:
    """A stat that is words rather than a number; long ones take a whole row."""
    return stat(label, value, name=name).classes(f"il-stat-words {'il-whole-row' if wide else ''}")


Kind = Literal["ok", "warn", "wrong", "muted", "info"]
_ICONS = {"ok": "check_circle", "warn": "warning", "wrong": "error", "muted": "info", "info": "info"}


def banner(kind: Kind, text: str, name: str = "") -> Element:
    """A message across the page: wrong cannot be missed, warn is amber; `with` puts buttons at its end."""
    with div(f"il-banner il-banner-{kind}", name=name, role="alert") as whole:
        ui.icon(_ICONS[kind])
        div("il-banner-text", faults.on_pages(text))
    return whole


def findings(lines: Iterable[str], name: str = "findings") -> None:
    """What qualifies the numbers: one chip with how many there are, which opens to show them."""
    if texts := [faults.on_pages(line) for line in lines]:
        with tag("details", "il-notes", name=name):
            with tag("summary"), span("il-chip il-warn", plural(len(texts), "note")):
                ui.icon("expand_more")
            with tag("ul", "il-findings"):
                for text in texts:
                    tag("li", "", text)


def chip(text: str, kind: Kind = "info", name: str = "") -> Element:
    """A word or two about a thing, in the colour of its kind."""
    return span(f"il-chip il-{kind}", text, name)


_VERDICTS: dict[str, Kind] = {"faster": "ok", "slower": "wrong", "same": "muted", "inconclusive": "warn"}


def verdict(text: str) -> Element:
    """The verdict of a comparison, in its colour."""
    return chip(text, _VERDICTS.get(text, "muted"), "verdict")


def empty(title: str, text: str, name: str = "") -> Element:
    """What a page says where there is nothing yet; `with` puts in what could be done about it."""
    with div("il-empty", name=name):
        div("il-empty-title", title)
        div("il-empty-text", faults.on_pages(text))
        return div("il-empty-actions")


#: A text; one with something small below it; or what fills it.
Cell = str | tuple[str, str] | Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: Sequence[Cell]
    classes: str = ""
    name: str = ""


def table(
    heads: Sequence[str], rows: Iterable[Row], right: Collection[str] = (), classes: str = "", name: str = ""
) -> None:
    """A table with these heads, those in `right` above numbers."""
    sides = ["il-right" if head in right else "" for head in heads]
    with tag("table", f"il-table {classes}", name=name):
        with tag("thead"), tag("tr"):
            for head, side in zip(heads, sides, strict=True):
                tag("th", side, head)
        with tag("tbody"):
            for row in rows:
                with tag("tr", row.classes, name=row.name):
                    for head, side, cell in zip(heads, sides, row.cells, strict=True):
                        # Where there is no room for a head, every cell says it.
                        with tag("td", side, **{"data-label": head}):
                            _fill(cell)


def _fill(cell: Cell) -> None:
    if callable(cell):
        cell()
        return
    text, detail = (cell, "") if isinstance(cell, str) else cell
    span("", text)
    if detail:
        div("il-muted il-small", detail)


def text_table(shown: Table | CellTable, strong: str = "il-strong", name: str = "") -> None:
    """A table as it is shown everywhere; rows that stand out have the class `strong`."""
    heads, *texts = shown.texts
    rows = (Row(row, strong if number in shown.strong else "") for number, row in enumerate(texts))
    table(heads, rows, [head for index, head in enumerate(heads) if index not in shown.left], name=name)


def facts(pairs: Iterable[tuple[str, str]], name: str = "") -> None:
    """Names and values in two columns, without those that have no value."""
    with div("il-facts", name=name):
        for label, value in pairs:
            if value:
                div("", label)
                div("", value)


def steps(titles: Sequence[tuple[str, str]], at: int) -> None:
    """The header of a form of several steps, given with their icons: those before `at` are done."""
    with div("il-steps", role="list"):
        for number, (title, icon) in enumerate(titles):
            state = "il-step-done" if number < at else "il-step-here" if number == at else ""
            with div(f"il-step {state}", role="listitem"):
                with div("il-step-circle"):
                    ui.icon(icon)
                div("il-step-title", title)


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


class Working:
    """What goes on at the moment: words, a button that ends it, and how much is done."""

    def __init__(self, name: str, cancel: Callable[[], object]) -> None:
        with div("il-working", name=name) as self.box:
            self._words = ui.label().classes("il-grow il-cut")
            ui.button("Cancel", on_click=cancel).props(f'flat dense data-testid="cancel-{name}"')
            self._bar = Progress()

    def show(self, words: str, share: float | None = None) -> None:
        """Show how far it is."""
        self._words.set_text(words)
        self._bar.set(share)


def copy_handler(expression: str) -> str:
    """A handler in JavaScript that copies what an expression gives."""
    # At the top: what was removed can be undone at the bottom.
    told = 'Quasar.Notify.create({ message: "Copied", timeout: 1500, position: "top" })'
    return f"async () => {{ await inferlabCopy({expression}); {told} }}"


def command_line(text: str, name: str = "copy-command") -> None:
    """A command as it is typed in a terminal, to be copied."""
    with div("il-command"):
        tag("code", "", text)
        button = ui.button(icon="content_copy").props(f'flat dense round data-testid="{name}" aria-label="Copy"')
        with button:
            ui.tooltip("Copy")
    button.on("click", js_handler=copy_handler(json.dumps(text)))
