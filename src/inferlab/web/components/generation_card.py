"""The opened part of a generation's card: its numbers, its charts, and the table of its cells."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nicegui import html, ui
from nicegui.element import Element

from inferlab.records import Estimate
from inferlab.records.generation import Agreement
from inferlab.units import count, plural, share, three_digits
from inferlab.views.charts.generation_points import GenerationPoint, varying
from inferlab.views.charts.generations import CELL, CURVE, TOKEN, generation_chart
from inferlab.views.fields import between, level_percent, rounded, useful
from inferlab.web import shell
from inferlab.web.components.charts import Chart
from inferlab.web.faults import on_pages
from inferlab.workspace.generations import GenerationCard, GenerationCardCell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_VIEWS = {
    "depth": "TPOT by depth",
    "prompt_tokens": "TTFT by prompt length",
    CURVE: "Latency and throughput",
    "num_cores": "TPOT by cores",
    CELL: "Side by side",
    TOKEN: "Token after token",
}
# What a chart lets one choose, where several were measured and it does not lie along its axis.
_SELECTS = {"num_cores": "Cores", "batch_size": "Batch size", "prompt_tokens": "Prompt", "depth": "Depth"}
# What the chart of a view has along its axis.
_ALONG = {CURVE: "batch_size"}


@dataclass(slots=True)
class GenerationChosen:
    """What the user chose to see of a card; it outlives the card's being drawn again."""

    view: str = ""
    #: By the name of what varies.
    places: dict[str, Any] = field(default_factory=dict)


class GenerationBody:
    """Made within the element that shall show it; `draw` fills it, and does so again when something is chosen."""

    def __init__(self, card: GenerationCard, chosen: GenerationChosen) -> None:
        self._card, self._chosen = card, chosen
        self._several = varying(card.points)
        views = views_of(card)
        if chosen.view not in views:
            chosen.view = views[0] if views else ""
        for name, values in self._several.items():
            if chosen.places.get(name) not in values:
                chosen.places[name] = values[0]
        warnings = [note.text for note in card.notes if note.warning]
        with html.div().classes("il-bench-body").props('data-testid="generation"'):
            with html.div().classes("il-bench-alert"):
                for text in warnings:
                    shell.banner("wrong" if "WRONG" in text else "warn", on_pages(text))
            if views:
                self._choices(views)
            with html.div().classes("il-bench-grid"):
                with html.div().classes("il-bench-stats"):
                    self._stats()
                with html.div().classes("il-bench-chart"):
                    self._chart = Chart("generation-chart") if views else None
            _table(card)
            with html.div().classes("il-bench-below"):
                shell.findings([on_pages(note.text) for note in card.notes if not note.warning])

    async def draw(self) -> None:
        """Draw what is chosen."""
        for name, select in self._selects.items():
            select.set_visibility(name != _ALONG.get(self._chosen.view, self._chosen.view) and self._filters)
        if self._chart is not None:
            await self._chart.show(self._figure)

    @property
    def _filters(self) -> bool:
        """Whether the view shows some of the cells, rather than all or the only one."""
        return self._chosen.view not in (CELL, TOKEN)

    def _figure(self) -> Figure:
        card, view = self._card, self._chosen.view
        outcomes = [card.alone] if card.alone is not None else []
        return generation_chart(self._shown(), outcomes, view)

    def _shown(self) -> list[GenerationPoint]:
        if not self._filters:
            return list(self._card.points)
        along = _ALONG.get(self._chosen.view, self._chosen.view)
        fixed = {name: value for name, value in self._chosen.places.items() if name in _SELECTS and name != along}
        return [
            point
            for point in self._card.points
            if all(getattr(point, name) == value for name, value in fixed.items() if name in self._several)
        ]

    def _choices(self, views: list[str]) -> None:
        self._selects: dict[str, ui.select] = {}
        with html.div().classes("il-bench-choices"):
            with html.div().classes("il-bench-tabs"):
                if len(views) > 1:
                    tabs = ui.tabs(on_change=lambda event: self._choose_view(event.value)).props("outside-arrows")
                    with tabs:
                        for name in views:
                            ui.tab(name, _VIEWS[name]).props(f'data-testid="view-{name}"')
                    tabs.set_value(self._chosen.view)
            with html.div().classes("il-bench-selectors"):
                for name, label in _SELECTS.items():
                    if name in self._several and set(views) - {CELL, TOKEN, name}:
                        self._selects[name] = self._select(name, label)

    def _select(self, name: str, label: str) -> ui.select:
        select = ui.select(self._several[name], label=label, value=self._chosen.places[name])
        select.props(f'data-testid="select-{name}"')
        select.on_value_change(lambda event: self._choose(name, event.value))
        return select

    def _choose_view(self, view: str) -> Awaitable[None] | None:
        if view == self._chosen.view:
            return None
        self._chosen.view = view
        return self.draw()

    def _choose(self, name: str, value: Any) -> Awaitable[None] | None:
        if self._chosen.places.get(name) == value:
            return None
        self._chosen.places[name] = value
        return self.draw()

    def _stats(self) -> None:
        cells = self._card.cells
        if len(cells) == 1:
            _one(cells[0])
        else:
            _best(cells)


def views_of(card: GenerationCard) -> list[str]:
    """The charts that a card has: those along what varies, and of a single cell its tokens."""
    if card.alone is not None:
        return [TOKEN] if card.alone.runs else []
    several = varying(card.points)
    if not any(point.value("ttft_ms") is not None for point in card.points):
        return []
    found: list[str] = [name for name in ("depth", "prompt_tokens", "num_cores") if name in several]
    if "batch_size" in several or "rate" in several:
        found.insert(min(len(found), 2), CURVE)
    return [*found, CELL]


def _one(cell: GenerationCardCell) -> None:
    numbers = cell.numbers
    if numbers is None:
        shell.stat("Time per output token (ms)", "–")
        return
    shell.stat(*_told("Time to first token (ms)", numbers.ttft_ms), name="ttft")
    shell.stat(*_told("Time per output token (ms)", numbers.tpot_ms), name="tpot")
    if cell.cell.rate is None:
        shell.stat(*_told("Decode (tokens/s)", numbers.decode_tokens_per_s), name="decode")
    else:
        shell.stat(*_told("Output (tokens/s)", numbers.output_tokens_per_s), name="output")
    shell.stat("Agreement", *_agreement(cell.agreement), name="agreement")
    html.div(
        f"{plural(cell.measured_processes, 'process', 'processes')}, {plural(numbers.sequences, 'sequence')}"
    ).classes("il-stat-detail")


def _best(cells: tuple[GenerationCardCell, ...]) -> None:
    """The best of each number, of cells whose tokens are right."""
    right = [cell for cell in cells if cell.numbers is not None and cell.status == "done" and not cell.wrong]
    for label, name, sign in (
        ("Lowest TTFT (ms)", "ttft_ms", 1.0),
        ("Lowest TPOT (ms)", "tpot_ms", 1.0),
        ("Highest output (tokens/s)", "output_tokens_per_s", -1.0)
        if any(cell.cell.rate is not None for cell in cells)
        else ("Highest decode (tokens/s)", "decode_tokens_per_s", -1.0),
    ):
        known = [value for cell in right if (value := getattr(cell.numbers, name)) is not None]
        found = min(known, key=lambda value: sign * value.value, default=None)
        shell.stat(*_told(label, found), name=name.replace("_", "-"))
    checked = [cell.agreement for cell in cells if cell.agreement is not None]
    worst = min((one for one in checked if one.top1 is not None), key=lambda one: one.top1 or 0.0, default=None)
    shell.stat("Lowest agreement", *_agreement(worst or next(iter(checked), None)), name="agreement")


def _told(label: str, value: Estimate | None) -> tuple[str, str, str]:
    if value is None:
        return label, "–", ""
    form = count if value.value >= 100 else three_digits
    if value.ends is None or not useful(value.ends):
        return label, form(value.value), between(value.ends)
    interval = f"{between(value.ends, form)} ({level_percent(value.level)} %)"
    return label, rounded(value.value, value.ends, form), interval


def _agreement(found: Agreement | None) -> tuple[str, str]:
    if found is None or found.top1 is None:
        return "unchecked", ""
    word = "WRONG, " if found.status == "mismatch" else ""
    return f"{word}{share(found.top1)}", f"{found.agreeing} of {found.positions} tokens"


def _table(card: GenerationCard) -> None:
    """All cells; those whose tokens are wrong stand out."""
    if len(card.cells) < 2 and any(cell.numbers for cell in card.cells):
        # A single cell has its numbers beside the chart, and the rest as facts.
        shell.facts([(name, on_pages(value)) for name, value in card.facts])
        return
    table = card.table
    right = [head for index, head in enumerate(table.heads) if index not in table.left]
    box: Element
    with html.div().classes("il-scroll il-generation-cells") as box, shell.table(table.heads, right, name="cells"):
        for number, row in enumerate(table.rows):
            with html.tr().classes("il-wrong-row" if number in table.wrong else ""):
                for index, text in enumerate(row):
                    html.td(text).classes("" if index in table.left else "il-right")
    box.props('tabindex=0 role=region aria-label="All cells"')
