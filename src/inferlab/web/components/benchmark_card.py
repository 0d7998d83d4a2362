"""A card of the benchmarks page: its head and cached numbers at once, all else when it comes into view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.machine import describe, vector_width
from inferlab.store.entries import BENCHMARK, Entry, QueuedJob
from inferlab.web import shell
from inferlab.web.components.card_faces import Face, Shelf
from inferlab.web.components.card_items import Head, Item, is_here
from inferlab.web.components.card_jobs import JobActions, JobPanel
from inferlab.web.components.card_numbers import stats_of
from inferlab.web.components.card_views import CardViews, Chosen
from inferlab.web.components.card_words import estimates
from inferlab.web.live import aged

_EXPORTS = {"json": "Export JSON", "csv": "Export CSV", "html": "Export HTML"}


@dataclass(frozen=True, slots=True)
class CardActions:
    """What the menu of a card can do; each is given the entry's id."""

    jobs: JobActions
    rerun: Callable[[str], Awaitable[None]]
    compare: Callable[[str], Awaitable[None]]
    copy: Callable[[str], Awaitable[None]]
    rename: Callable[[str], Awaitable[None]]
    export: Callable[[str, str], Awaitable[None]]
    remove: Callable[[str], Awaitable[None]]


class BenchmarkCard:
    """Made within the list; `update` draws only what changed, and keeps what the user chose to see."""

    def __init__(
        self, item: Item, position: int, shelf: Shelf, actions: CardActions, in_sight: bool = True
    ) -> None:
        self._shelf, self._actions = shelf, actions
        self._chosen = Chosen()
        self._seen = False
        self._opened: tuple[object, ...] | None = None
        self._head_shown: tuple[object, ...] = ()
        self.item = item
        with shell.card("il-bench") as self.root:
            self._head: Element = html.div().classes("il-bench-head")
            self._panel = JobPanel(html.div(), actions.jobs)
            self._body: Element = html.div()
            # Covers the card without being in the way, and tells when it comes into view.
            sentinel = ui.element("q-intersection").props('once margin="300px"').classes("il-bench-sentinel")
            sentinel.on("visibility", self._came_into_view, [])
        self._instruction_set = _here(item.entry)
        self._show(position)
        self._fill_quickly(in_sight)

    async def update(self, item: Item, position: int) -> None:
        """Show another state of the same card."""
        self.item = item
        self._show(position)
        await self._open()

    def progress(self, job: QueuedJob, position: int) -> None:
        """Show how far the job is, and nothing else."""
        self.item = replace(self.item, job=job)
        self._panel.progress(job, position)

    def grow_older(self) -> None:
        """Say how old it is by now."""
        self._age.set_text(aged(self.item.created_at))

    def _show(self, position: int) -> None:
        item = self.item
        self.root.props(f'data-testid="card-{item.id}"')
        self._show_head()
        self._panel.show(item, position)
        self._body.set_visibility(not item.alive and _has_body(item.entry))

    # The head.

    def _show_head(self) -> None:
        item = self.item
        wrong = item.entry is not None and any(one.wrong for one in item.entry.cells)
        shown = (item.id, item.head, wrong, item.alive, item.entry is None, self._instruction_set)
        if shown == self._head_shown:
            return
        self._head_shown = shown
        self._head.clear()
        with self._head:
            html.h2(item.head.title).classes("il-cut").props('data-testid="engines"')
            self._age = ui.label(aged(item.created_at)).classes("il-muted il-bench-age")
            if wrong:
                shell.chip("wrong outputs", "wrong")
            with html.div().classes("il-bench-facts"):
                for name, value in _facts(item.head, self._instruction_set):
                    with html.span():
                        html.span(name).classes("il-muted")
                        html.span(value).classes("il-bench-fact")
            if item.entry is not None and not item.alive:
                self._menu(item.entry)

    def _menu(self, entry: Entry) -> None:
        def open_menu() -> None:
            # Made when it is asked for: ten menus would be half of the page.
            with button:
                menu = _menu_of(entry, self._actions)
            menu.on("hide", menu.delete)
            menu.open()

        button = ui.button(icon="more_vert", on_click=open_menu).classes("il-quiet")
        button.props('flat round dense data-testid="menu" aria-label="More"')

    # The body.

    async def _came_into_view(self) -> None:
        self._seen = True
        await self._open()

    async def _open(self) -> None:
        """Read all of the entry and show it, where that was not done yet and somebody looks."""
        item = self.item
        mark = item.mark
        if not self._seen or item.entry is None or item.alive or not _has_body(item.entry) or mark == self._opened:
            return
        self._opened = mark
        try:
            face = await self._shelf.face(item.entry.id, mark)
        except InferlabError as error:
            self._opened = None
            if not self.root.is_deleted:
                self._body.clear()
                with self._body:
                    shell.banner("warn", f"This cannot be shown: {error}")
            return
        if self.root.is_deleted or self._opened != mark:
            return
        self._instruction_set = face.instruction_set or self._instruction_set
        self._show_head()
        self._body.clear()
        with self._body:
            await self._fill(face, mark)

    async def _fill(self, face: Face, mark: tuple[object, ...]) -> None:
        if face.card.lines or not face.cells:
            html.pre("\n".join(face.card.lines)).classes("il-lines").props('data-testid="lines"')
        if any(face.cells):
            await CardViews(self._shelf, face, mark, self._chosen).draw()
        if self.item.head.note:
            html.div(f"Note: {self.item.head.note}").classes("il-muted il-small")

    def _fill_quickly(self, in_sight: bool) -> None:
        """What the store has cached, until the entry is opened; of cards out of sight, only their room."""
        entry = self.item.entry
        if entry is None or not _has_body(entry):
            return
        # Of a comparison A and B take turns, and B is shown first.
        cells = entry.cells[1::2] if entry.kind == "comparison" else entry.cells
        first = next((one for one in cells if one.runs), None) if in_sight else None
        with self._body, html.div().classes("il-bench-body"), html.div().classes("il-bench-grid"):
            if first is not None:
                with html.div().classes("il-bench-stats"):
                    stats_of(estimates(first), first.cell.scenario, first.wrong)
            html.div().classes("il-bench-chart il-bench-empty")


def _menu_of(entry: Entry, actions: CardActions) -> ui.menu:
    measured = entry.kind in (BENCHMARK, "comparison")
    with ui.menu().props('auto-close no-parent-event anchor="bottom right" self="top right"') as menu:
        if measured:
            _item("Re-run Benchmark", "rerun", partial(actions.rerun, entry.id))
        if entry.kind == BENCHMARK and any(one.runs for one in entry.cells):
            _item("Compare with this…", "compare", partial(actions.compare, entry.id))
        _item("Rename…", "rename", partial(actions.rename, entry.id))
        if measured:
            _item("Copy command line", "copy-command", partial(actions.copy, entry.id))
            ui.separator()
        for ending, text in _EXPORTS.items():
            if ending == "json" or measured:
                _item(text, f"export-{ending}", partial(actions.export, entry.id, ending))
        ui.separator()
        _item("Remove", "remove", partial(actions.remove, entry.id))
    return menu


def _item(text: str, name: str, action: Callable[[], Awaitable[None]]) -> None:
    ui.menu_item(text, on_click=action).props(f'data-testid="{name}"')


def _has_body(entry: Entry | None) -> bool:
    """Whether there is more to show than what became of its job."""
    if entry is None:
        return False
    causes = {one.failure.message if one.failure else "" for one in entry.cells}
    return not entry.cells or any(one.runs for one in entry.cells) or len(causes) > 1


def _here(entry: Entry | None) -> str:
    """The instruction set, as far as it is known without opening the entry: that of this machine."""
    return vector_width(describe().instruction_sets).upper() if entry is None or is_here(entry) else ""


def _facts(head: Head, instruction_set: str) -> list[tuple[str, str]]:
    found = [
        ("Version", head.version),
        ("Engine", head.engine),
        ("Scenario", head.scenario),
        ("Batch Size", head.batch_sizes),
        ("Core Count", head.core_counts),
        ("Instruction Set", instruction_set if head.core_counts else ""),
        ("Machine", head.node),
    ]
    return [(name, value) for name, value in found if value]
