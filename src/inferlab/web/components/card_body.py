"""The opened part of a card: what can be chosen of it, the numbers and the chart of that, and what to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nicegui import ui
from nicegui.element import Element

from inferlab.records import Comparison
from inferlab.units import capitalized, plural
from inferlab.views.charts import comparisons
from inferlab.views.charts.cards import HEIGHT
from inferlab.views.charts.points import varying
from inferlab.views.charts.sweeps import CELL, CURVE, TOKEN, generation_chart
from inferlab.views.text import finding, output_error
from inferlab.web import shell
from inferlab.web.components.card_stats import show_best, show_cell, show_scaling, show_speedup, show_stats
from inferlab.web.components.cards import CardCache, point, scaling
from inferlab.web.components.charts import Chart
from inferlab.web.components.forms import close_button, dialog
from inferlab.web.faults import on_pages
from inferlab.web.shell import div, refilled
from inferlab.workspace.cards import Card, CardCell, Duel, GenerationCard, Place

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_STATES = {
    "pending": "Not measured yet.",
    "cancelled": "Cancelled before it was measured.",
    "done": "Nothing was measured.",
    "failed": "It failed without giving a reason.",
}
_DIFFERENT = (
    "Both sides are different models, and their outputs differ: the faster one may be less accurate. The page "
    "of a version shows how far its outputs deviate."
)
_WORTHLESS = "Wrong outputs: this speed is meaningless."


@dataclass(slots=True)
class Chosen:
    """What the user chose to see of a card; it outlives the card's being drawn again."""

    view: str = ""
    arm: int = 0
    #: The machine of a cluster whose arms are shown.
    machine: str = ""
    #: By the name of what varies, such as num_cores.
    places: dict[str, Any] = field(default_factory=dict)


class CardBody:
    """What the opened part of every card has: tabs, selectors, numbers, a chart and notes.

    Made within the element that shall show it; `draw` fills it, and does so again when something is chosen.
    """

    #: What can be seen, by the names of the views that this card has.
    views: Mapping[str, str] = {}

    def __init__(self, chosen: Chosen, chart_name: str = "chart") -> None:
        self._chosen = chosen
        self._selects: dict[str, ui.select] = {}
        if chosen.view not in self.views:
            chosen.view = next(iter(self.views), "")
        with div("il-bench-body") as self._root:
            self._alert = div("il-bench-alert")
            with div("il-bench-choices"):
                self._tab_slot = div("il-bench-tabs")
                with div("il-bench-selectors"):
                    self._selectors()
            with div("il-bench-grid"):
                self._stats = div("il-bench-stats")
                with div("il-bench-chart"):
                    self._chart = Chart(chart_name, min_height=HEIGHT, explain=self._fill_cause, bar=False)
                    self._more = div()
            self._cells = div()
            self._below = div("il-bench-below")
        _fill(self._tab_slot, self._tabs)
        _fill(self._cells, self._fill_cells)

    async def draw(self) -> None:
        """Show what is chosen: the numbers at once, the chart as soon as it is made."""
        for name, select in self._selects.items():
            select.set_visibility(self._filters_by(name))
        _fill(self._alert, self._fill_alert)
        _fill(self._stats, self._fill_stats)
        _fill(self._more, self._fill_more)
        _fill(self._below, self._fill_below)
        await self._chart.show(self._figure())

    def _tabs(self) -> None:
        if len(self.views) > 1:
            self._tab_row(dict(self.views), self._chosen.view, "view", str)

    def _tab_row(self, names: dict[str, str], value: str, what: str, kind: Callable[[str], int | str]) -> None:
        tabs = ui.tabs(on_change=lambda event: self._choose(what, kind(event.value))).props("outside-arrows")
        with tabs:
            for name, label in names.items():
                ui.tab(name, label).props(f'data-testid="{what}-{name}"')
        tabs.set_value(value)

    def _select(self, values: Sequence[Any], label: str, what: str, name: str) -> None:
        """A selector of one value of what varies."""
        select = ui.select(list(values), label=label, value=self._chosen.places[what])
        select.props(f'data-testid="select-{name}"')
        select.on_value_change(lambda event: self._choose(what, event.value))
        self._selects[what] = select

    def _choose(self, what: str, value: Any) -> Awaitable[None] | None:
        chosen = self._chosen
        before = chosen.places[what] if what in chosen.places else getattr(chosen, what)
        if before == value:
            return None
        if what in chosen.places:
            chosen.places[what] = value
        else:
            setattr(chosen, what, value)
        return self.draw()

    def _filters_by(self, what: str) -> bool:
        """Whether the view shows one value of what varies, rather than all of them along its axis."""
        raise NotImplementedError

    def _selectors(self) -> None:
        """The selectors of what varies."""
        raise NotImplementedError

    def _figure(self) -> Callable[[], Figure]:
        """What makes the chart of what is chosen, in another thread."""
        raise NotImplementedError

    def _fill_stats(self) -> None:
        raise NotImplementedError

    def _fill_alert(self) -> None:
        """What must not be missed."""

    def _fill_more(self) -> None:
        """What belongs to the chart."""

    def _fill_cells(self) -> None:
        """All cells, below the chart."""

    def _fill_below(self) -> None:
        """What to know of the numbers."""

    def _fill_cause(self, why: str) -> None:
        """Why there is no chart."""
        with div("il-bench-cause", name="cause"):
            div("il-bench-cause-text", why)


def body_of(card: Card | GenerationCard, cache: CardCache, mark: tuple[object, ...], chosen: Chosen) -> CardBody:
    """The opened part of a card, by what it is a card of."""
    if isinstance(card, GenerationCard):
        return GenerationBody(card, chosen)
    return ArmsBody(card, cache, mark, chosen)


_ARM_VIEWS = {"baseline": "Baseline", "cores": "Core scaling", "batches": "Batch size scaling"}
#: What the chart of a view has along its axis.
_ARM_AXES = {"cores": "num_cores", "batches": "batch_size"}


class ArmsBody(CardBody):
    """A benchmark or a comparison: its engines, how they scale, and how they compare."""

    def __init__(self, card: Card, cache: CardCache, mark: tuple[object, ...], chosen: Chosen) -> None:
        self._cache, self._card, self._mark = cache, card, mark
        several = {"cores": len(card.core_counts) > 1, "batches": len(card.batch_sizes) > 1}
        self.views = {view: title for view, title in _ARM_VIEWS.items() if several.get(view, True)}
        # Something else is chosen where the card does not have what was.
        chosen.arm = chosen.arm if chosen.arm < len(card.arms) else 0
        chosen.machine = card.arms[chosen.arm].machine
        places = {"num_cores": card.core_counts, "batch_size": card.batch_sizes}
        if any(chosen.places.get(name) not in values for name, values in places.items()):
            chosen.places.update(zip(places, card.first_place, strict=True))
        super().__init__(chosen)

    # What can be chosen.

    def _tabs(self) -> None:
        arms = {
            str(index): arm.label
            for index, arm in enumerate(self._card.arms)
            if arm.machine == self._chosen.machine
        }
        if len(arms) > 1:
            self._tab_row(arms, str(self._chosen.arm), "arm", int)
        super()._tabs()

    def _selectors(self) -> None:
        card = self._card
        if len(card.machines) > 1:
            select = ui.select(card.machines, label="Machine", value=self._chosen.machine)
            select.props('data-testid="select-machine"')
            select.on_value_change(lambda event: self._choose_machine(str(event.value)))
        if len(card.core_counts) > 1:
            self._select(card.core_counts, "Cores", "num_cores", "cores")
        if len(card.batch_sizes) > 1:
            self._select(card.batch_sizes, "Batch size", "batch_size", "batch")

    async def _choose_machine(self, machine: str) -> None:
        """Show another machine, by the same engine where it has it."""
        arms = self._card.arms
        if machine == self._chosen.machine:
            return
        engine = arms[self._chosen.arm].engine
        there = [index for index, arm in enumerate(arms) if arm.machine == machine]
        self._chosen.arm = next((arm for arm in there if arms[arm].engine == engine), there[0])
        self._chosen.machine = machine
        _fill(self._tab_slot, self._tabs)
        await self.draw()

    def _filters_by(self, what: str) -> bool:
        return _ARM_AXES.get(self._chosen.view) != what

    # What is shown of it.

    @property
    def _place(self) -> Place:
        return self._chosen.places["num_cores"], self._chosen.places["batch_size"]

    @property
    def _cell(self) -> CardCell | None:
        return self._card.arms[self._chosen.arm].at(*self._place)

    @property
    def _duel(self) -> Duel | None:
        return self._card.duel(self._chosen.arm, *self._place)

    def _fill_stats(self) -> None:
        chosen, arms = self._chosen, self._card.arms
        if chosen.view != "baseline":
            # Along what varies, at what is fixed.
            by_cores = chosen.view == "cores"
            fixed = 1 if by_cores else 0
            cells = [cell for cell in arms[chosen.arm].cells if cell.place[fixed] == self._place[fixed]]
            show_scaling(list(map(point, cells)), by_cores)
            return
        cell, duel = self._cell, self._duel
        if cell is None or cell.numbers is None:
            show_stats(None)
            return
        if duel is not None:
            show_speedup(duel, chosen.arm, arms[duel.other if chosen.arm == 0 else 0].label)
        stats = cell.numbers
        values = (stats.ms_per_item, stats.ms_per_batch, stats.items_per_second)
        show_stats(values, cell.cell.scenario, cell.wrong, (stats.processes, stats.iterations))

    def _fill_alert(self) -> None:
        for problem in self._card.problems:
            shell.banner("warn", problem)
        text, kind = self._wrong_outputs()
        if text:
            shell.banner(kind, text, "wrong-outputs" if kind == "wrong" else "different-outputs")

    def _wrong_outputs(self) -> tuple[str, shell.Kind]:
        """What must not be missed of the outputs; empty where they are right."""
        if self._chosen.view != "baseline":
            cells = self._card.cells
            wrong = sum(other.wrong for other in cells)
            sentence = (
                f"{plural(wrong, 'cell')} of {len(cells)} computed wrong outputs: their speed is meaningless."
            )
            return sentence if wrong else "", "wrong"
        cell, duel = self._cell, self._duel
        if cell is not None and cell.numbers is not None and cell.output_check is not None and cell.wrong:
            return f"{_WORTHLESS} {_sentence(output_error(cell.output_check))}", "wrong"
        if duel is None or duel.outputs_match is not False:
            return "", "wrong"
        if self._card.of_different_models:
            return _DIFFERENT, "warn"
        return "The outputs of both sides DIFFER: a speed-up of something else is meaningless.", "wrong"

    def _fill_more(self) -> None:
        if self._chosen.view == "baseline" and self._comparison() is not None:
            button = ui.button("Ratio of every pair", icon="scatter_plot", on_click=self._show_ratios)
            button.props('flat dense data-testid="ratios"')

    def _fill_below(self) -> None:
        if self._chosen.view != "baseline":
            return
        duel, cell = self._duel, self._cell
        lines = list(duel.notes) if duel else []
        for warning in cell.findings if cell and cell.numbers else ():
            # Wrong outputs have a banner; the notes of a comparison say the rest with the name of its side.
            line = finding(warning)
            if warning.code != "output-mismatch" and not any(note.endswith(line) for note in lines):
                lines.append(line)
        shell.findings(list(dict.fromkeys(map(_sentence, lines))))

    # The chart.

    def _figure(self) -> Callable[[], Figure]:
        card, arm, place, view = self._card, self._chosen.arm, self._place, self._chosen.view
        if view != "baseline":
            return lambda: scaling(card, arm, place, view == "cores")
        return lambda: self._cache.iterations(card.id, self._mark, arm, place)

    def _fill_cause(self, why: str) -> None:
        cell = self._cell
        if self._chosen.view != "baseline":
            super()._fill_cause("No combination was measured that could be drawn.")
            return
        text = "Not planned on this side." if cell is None else _STATES[cell.status]
        if cell is not None and cell.failure is not None:
            text = on_pages(cell.failure.message)
        with div("il-bench-cause", name="cause"):
            if cell is not None and cell.status == "failed":
                shell.chip("failed", "wrong")
            div("il-bench-cause-text", text)

    def _comparison(self) -> Comparison | None:
        """The comparison at the chosen place, where its pairs are kept."""
        duels = zip(self._card.duels, self._card.results, strict=False)
        at_place = (result for duel, result in duels if (duel.num_cores, duel.batch_size) == self._place)
        return next(at_place, None)

    async def _show_ratios(self) -> None:
        comparison = self._comparison()
        assert comparison is not None, "the button is there only with a comparison"
        with dialog("Ratio of every pair", "il-log-dialog", self._root.client) as opened:
            chart = Chart("ratios-chart", bar=False)
            close_button(opened)
        await chart.show(lambda: comparisons.ratios(comparisons.of_comparison(comparison)))


_GENERATION_VIEWS = {
    "depth": "TPOT by depth",
    "prompt_tokens": "TTFT by prompt length",
    CURVE: "Latency and throughput",
    "num_cores": "TPOT by cores",
    CELL: "Side by side",
    TOKEN: "Token after token",
}
# What a chart lets one choose, where several were measured and it does not lie along its axis.
_SELECTS = {"num_cores": "Cores", "batch_size": "Batch size", "prompt_tokens": "Prompt", "depth": "Depth"}
_ALL_CELLS = (CELL, TOKEN)


class GenerationBody(CardBody):
    """A generation: its numbers, charts of the tokens, and the table of its cells."""

    def __init__(self, card: GenerationCard, chosen: Chosen) -> None:
        self._card, self._several = card, varying(card.points)
        self.views = {view: _GENERATION_VIEWS[view] for view in views_of(card)}
        for name, values in self._several.items():
            if chosen.places.get(name) not in values:
                chosen.places[name] = values[0]
        super().__init__(chosen, "generation-chart")
        self._root.props('data-testid="generation"')

    @property
    def _axis(self) -> str:
        """What the chart has along its axis."""
        return {CURVE: "batch_size"}.get(self._chosen.view, self._chosen.view)

    def _filters_by(self, what: str) -> bool:
        return self._chosen.view not in _ALL_CELLS and what != self._axis

    def _selectors(self) -> None:
        for name, label in _SELECTS.items():
            if name in self._several and set(self.views) - {*_ALL_CELLS, name}:
                self._select(self._several[name], label, name, name)

    def _figure(self) -> Callable[[], Figure]:
        card, view = self._card, self._chosen.view
        fixed = {name: self._chosen.places[name] for name in self._selects if self._filters_by(name)}
        points = [
            point for point in card.points if all(getattr(point, name) == value for name, value in fixed.items())
        ]
        return lambda: generation_chart(points, [card.alone] if card.alone is not None else [], view)

    def _fill_stats(self) -> None:
        cells = self._card.cells
        if len(cells) == 1:
            show_cell(cells[0])
        else:
            show_best(cells)

    def _fill_alert(self) -> None:
        for note in self._card.notes:
            if note.warning:
                shell.banner("wrong" if "WRONG" in note.text else "warn", note.text)

    def _fill_cells(self) -> None:
        card = self._card
        if len(card.cells) < 2 and any(cell.numbers for cell in card.cells):
            # A single cell has its numbers beside the chart, and the rest as facts.
            shell.facts([(name, on_pages(value)) for name, value in card.facts])
            return
        with div("il-scroll il-generation-cells") as box:
            shell.text_table(card.table, "il-wrong-row", "cells")
        box.props('tabindex=0 role=region aria-label="All cells"')

    def _fill_below(self) -> None:
        shell.findings(note.text for note in self._card.notes if not note.warning)


def views_of(card: GenerationCard) -> list[str]:
    """The charts that a card has: those along what varies, and of a single cell its tokens."""
    if card.alone is not None:
        return [TOKEN] if card.alone.runs else []
    several = varying(card.points)
    if not any(point.value("ttft_ms") is not None for point in card.points):
        return []
    views: list[str] = [name for name in ("depth", "prompt_tokens", "num_cores") if name in several]
    if "batch_size" in several or "rate" in several:
        views.insert(min(len(views), 2), CURVE)
    return [*views, CELL]


def _fill(slot: Element, fill: Callable[[], None]) -> None:
    with refilled(slot):
        fill()


def _sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a point."""
    clean = text.strip()
    return f"{capitalized(clean)}{'' if clean.endswith(('.', '!', '?')) else '.'}"
