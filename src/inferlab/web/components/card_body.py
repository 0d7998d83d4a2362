"""The opened part of a card: its engines, its views, the numbers and the chart of what is chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import html, ui
from nicegui.element import Element
from nicegui.events import ValueChangeEventArguments

from inferlab.measure.headline import statistic
from inferlab.measure.intervals import LEVEL
from inferlab.records import Comparison, Estimate
from inferlab.store.entries import CellEntry
from inferlab.units import count, plural, three_digits
from inferlab.views.charts.cards import HEIGHT, best_and_worst
from inferlab.views.charts.points import Point
from inferlab.views.intervals import between, level_percent, rounded, useful
from inferlab.views.text import finding, output_error
from inferlab.web import shell
from inferlab.web.components.cards import CardCache, Drawing, point
from inferlab.web.components.dialogs import close_button, dialog
from inferlab.web.faults import on_pages
from inferlab.workspace.cards import Card, CardCell, Duel, Place, ms_per_item

_VIEWS = {"baseline": "Baseline", "cores": "Core scaling", "batches": "Batch size scaling"}
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
_PAIRED = "measured interleaved"
_UNPAIRED = "not measured interleaved: less sure"
_OPPOSITE = {"faster": "slower", "slower": "faster"}


@dataclass(slots=True)
class Chosen:
    """What the user chose to see of a card; it outlives the card's being drawn again."""

    arm: int = 0
    view: str = "baseline"
    num_cores: int = 0
    batch_size: int = 0
    #: The machine of a cluster whose arms are shown.
    machine: str = ""

    @property
    def place(self) -> Place:
        """The cell of an arm."""
        return self.num_cores, self.batch_size

    def fit(self, card: Card) -> None:
        """Choose something else where a card does not have what was chosen."""
        if self.arm >= len(card.arms):
            self.arm = 0
        self.machine = card.arms[self.arm].machine
        if self.view not in _views_of(card):
            self.view = "baseline"
        if self.num_cores not in card.core_counts or self.batch_size not in card.batch_sizes:
            self.num_cores, self.batch_size = card.first_place


def _views_of(card: Card) -> list[str]:
    """What there is to see: scaling only of what varies."""
    several = {"cores": len(card.core_counts) > 1, "batches": len(card.batch_sizes) > 1}
    return [view for view in _VIEWS if several.get(view, True)]


class CardBody:
    """The opened part of a card: its engines, its views, the numbers and the chart of what is chosen.

    Made within the element that shall show it; `draw` fills it, and does so again when something is chosen.
    """

    def __init__(self, cache: CardCache, card: Card, mark: tuple[object, ...], chosen: Chosen) -> None:
        self._cache, self._card, self._mark, self._chosen = cache, card, mark, chosen
        self._turn = 0
        chosen.fit(card)
        with html.div().classes("il-bench-body") as self._root:
            self._alert: Element = html.div().classes("il-bench-alert")
            with html.div().classes("il-bench-choices"):
                self._tab_slot: Element = html.div().classes("il-bench-tabs")
                self._selectors()
            with html.div().classes("il-bench-grid"):
                self._stats: Element = html.div().classes("il-bench-stats")
                with html.div().classes("il-bench-chart"):
                    self._frame: Element = html.div().style(f"min-height: {HEIGHT}px")
                    self._more: Element = html.div()
                self._plot: ui.plotly | None = None
            self._below: Element = html.div().classes("il-bench-below")
        _fill(self._tab_slot, self._tabs)

    async def draw(self) -> None:
        """Show what is chosen: the numbers at once, the chart as soon as it is made."""
        self._turn += 1
        turn = self._turn
        for select, view in ((self._cores, "cores"), (self._batch, "batches")):
            if select is not None:
                select.set_visibility(self._chosen.view != view)
        _fill(self._stats, self._fill_stats)
        _fill(self._more, self._fill_more)
        _fill(self._below, self._fill_below)
        _fill(self._alert, self._fill_alert)
        drawing = await self._drawing()
        # Something else may have been chosen meanwhile, or the card is gone.
        if turn == self._turn and not self._root.is_deleted:
            self._show(drawing)

    # What can be chosen.

    def _tabs(self) -> None:
        every, views = self._card.arms, _views_of(self._card)
        arms = {str(index): arm.label for index, arm in enumerate(every) if arm.machine == self._chosen.machine}
        if len(arms) > 1:
            self._tab_row(arms, str(self._chosen.arm), "arm", int)
        if len(views) > 1:
            self._tab_row({view: _VIEWS[view] for view in views}, self._chosen.view, "view", str)

    def _tab_row(self, names: dict[str, str], value: str, what: str, kind: Callable[[str], int | str]) -> None:
        tabs = ui.tabs(on_change=lambda event: self._choose(what, kind(event.value))).props("outside-arrows")
        with tabs:
            for name, label in names.items():
                ui.tab(name, label).props(f'data-testid="{what}-{name}"')
        tabs.set_value(value)

    def _selectors(self) -> None:
        card, chosen = self._card, self._chosen
        with html.div().classes("il-bench-selectors"):
            if len(card.machines) > 1:
                select = ui.select(card.machines, label="Machine", value=chosen.machine)
                select.props('data-testid="select-machine"').on_value_change(self._choose_machine)
            self._cores = self._number_select(card.core_counts, "Cores", "num_cores", "select-cores")
            self._batch = self._number_select(card.batch_sizes, "Batch size", "batch_size", "select-batch")

    def _number_select(self, values: list[int], label: str, what: str, name: str) -> ui.select | None:
        if len(values) == 1:
            return None
        select = ui.select(values, label=label, value=getattr(self._chosen, what))
        select.on_value_change(lambda event: self._choose(what, int(event.value)))
        return select.props(f'data-testid="{name}"')

    async def _choose_machine(self, event: ValueChangeEventArguments[Any]) -> None:
        """Show another machine, by the same engine where it has it."""
        arms, machine = self._card.arms, str(event.value)
        if machine == self._chosen.machine:
            return
        engine = arms[self._chosen.arm].engine
        there = [index for index, arm in enumerate(arms) if arm.machine == machine]
        self._chosen.arm = next((arm for arm in there if arms[arm].engine == engine), there[0])
        self._chosen.machine = machine
        _fill(self._tab_slot, self._tabs)
        await self.draw()

    def _choose(self, name: str, value: int | str) -> Awaitable[None] | None:
        if getattr(self._chosen, name) == value:
            return None
        setattr(self._chosen, name, value)
        return self.draw()

    # What is shown of it.

    @property
    def _cell(self) -> CardCell | None:
        return self._card.arms[self._chosen.arm].at(*self._chosen.place)

    @property
    def _duel(self) -> Duel | None:
        return self._card.duel(self._chosen.arm, *self._chosen.place)

    def _fill_stats(self) -> None:
        chosen, arms = self._chosen, self._card.arms
        if chosen.view != "baseline":
            # Along what varies, at what is fixed.
            by_cores = chosen.view == "cores"
            fixed = 1 if by_cores else 0
            cells_there = [other for other in arms[chosen.arm].cells if other.place[fixed] == chosen.place[fixed]]
            _scaling(list(map(point, cells_there)), by_cores)
            return
        cell, duel = self._cell, self._duel
        if cell is None or cell.numbers is None:
            show_stats(None)
            return
        if duel is not None:
            _speedup(duel, chosen.arm, arms[duel.other if chosen.arm == 0 else 0].label)
        stats = cell.numbers
        values = (stats.ms_per_item, stats.ms_per_batch, stats.items_per_second)
        show_stats(values, cell.cell.scenario, cell.wrong)
        html.div(
            f"{plural(stats.processes, 'process', 'processes')}, {plural(stats.iterations, 'batch', 'batches')}"
        ).classes("il-stat-detail")

    def _fill_alert(self) -> None:
        for problem in self._card.problems:
            shell.banner("warn", problem)
        text, kind = self._wrong_outputs()
        if text:
            name = "wrong-outputs" if kind == "wrong" else "different-outputs"
            shell.banner(kind, text).props(f'data-testid="{name}"')

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

    async def _drawing(self) -> Drawing | None:
        chosen, cache = self._chosen, self._cache
        if chosen.view != "baseline":
            return await cache.scaling(self._card, chosen.arm, chosen.place, chosen.view == "cores")
        return await cache.iterations(self._card.id, self._mark, chosen.arm, chosen.place)

    def _show(self, drawing: Drawing | None) -> None:
        if drawing is not None and self._plot is not None:
            self._plot.update_figure(drawing)
            return
        self._frame.clear()
        self._plot = None
        with self._frame:
            if drawing is not None:
                self._plot = ui.plotly(drawing).classes("il-bench-plot").props('data-testid="chart"')
            else:
                self._fill_cause()

    def _fill_cause(self) -> None:
        """Why there is no chart."""
        cell = self._cell
        if self._chosen.view != "baseline":
            text = "No combination was measured that could be drawn."
        else:
            text = "Not planned on this side." if cell is None else _STATES[cell.status]
            if cell is not None and cell.failure is not None:
                text = on_pages(cell.failure.message)
        with html.div().classes("il-bench-cause").props('data-testid="cause"'):
            if cell is not None and cell.status == "failed":
                shell.chip("failed", "wrong")
            html.div(text).classes("il-bench-cause-text")

    def _comparison(self) -> Comparison | None:
        """The comparison at the chosen place, where its pairs are kept."""
        card = self._card
        places = ((duel.num_cores, duel.batch_size) for duel in card.duels)
        return next(
            (
                comparison
                for place, comparison in zip(places, card.results, strict=False)
                if place == self._chosen.place
            ),
            None,
        )

    async def _show_ratios(self) -> None:
        comparison = self._comparison()
        drawing = await self._cache.ratios(comparison) if comparison else None
        with dialog("Ratio of every pair", "il-log-dialog", self._root.client) as opened:
            if drawing is None:
                html.div("The ratios of this comparison cannot be drawn.")
            else:
                ui.plotly(drawing).classes("il-bench-plot").props('data-testid="ratios-chart"')
            close_button(opened)


def _fill(slot: Element, fill: Callable[[], None]) -> None:
    slot.clear()
    with slot:
        fill()


# The numbers, each with its interval.


def show_stats(
    values: tuple[Estimate, Estimate, Estimate] | None, scenario: str = "", struck: bool = False
) -> None:
    """Time per item and per batch, items per second; struck out where meaningless, dashes for nothing."""
    labels = {
        "ms-per-item": f"Time per item (ms, {statistic(scenario)})",
        "ms-per-batch": "Time per batch (ms, median)",
        "items-per-second": "Throughput (items/s, mean)",
    }
    for (name, label), value in zip(labels.items(), values or (None,) * 3, strict=True):
        if value is None:
            shell.stat(label, "–")
            continue
        text = rounded(value.value, value.ends, count if name == "items-per-second" else three_digits)
        shell.stat(label, text, _interval(value), name).classes("il-struck" if struck else "")


def cached_stats(entry: CellEntry) -> tuple[Estimate, Estimate, Estimate] | None:
    """Time per item and per batch and items per second as the store has them cached; None where it has not."""
    if entry.median_ms is None or not entry.items_per_sec:
        return None
    batch = Estimate(entry.median_ms, entry.median_ms_low, entry.median_ms_high, LEVEL, "student")
    rate = Estimate(entry.items_per_sec, entry.items_per_sec_low, entry.items_per_sec_high, LEVEL, "student")
    return ms_per_item(entry.cell, batch, rate), batch, rate


def _speedup(duel: Duel, arm: int, other: str) -> None:
    """How many times as fast an arm is as the other, which has a name, and whether that is sure."""
    value, verdict = duel.speedup, duel.verdict
    if arm != 0:
        value, verdict = duel.ratio, _OPPOSITE.get(duel.verdict, duel.verdict)
    with html.div().classes("il-stat").props('data-testid="speedup"'):
        html.div(f"Speed-up over {other}").classes("il-stat-label")
        with html.div().classes("il-bench-verdict"):
            html.span(f"{three_digits(value.value)}×").classes("il-stat-value")
            shell.verdict(verdict)
        html.div(_interval(value, "×")).classes("il-stat-detail")
        html.div(_PAIRED if duel.paired else _UNPAIRED).classes("il-stat-detail")


def _scaling(points: Sequence[Point], by_cores: bool) -> None:
    """The best and the worst of some cells along core counts, or along batch sizes."""
    what, name = ("core count", "num_cores") if by_cores else ("batch size", "batch_size")
    extremes = best_and_worst(points)
    if extremes is None:
        html.div("No cell has a valid result.").classes("il-muted")
        return
    best, worst = extremes
    low, high = best.ends("ms_per_item") or (None, None)
    took = Estimate(best.ms_per_item or 0.0, low, high, LEVEL, "student")
    shell.stat(f"Best {what}", str(getattr(best, name))).props('data-testid="best"')
    shell.stat(f"Time per item (ms, {statistic(best.scenario)})", three_digits(took.value), _interval(took))
    detail = f"{three_digits(worst.ms_per_item or 0.0)} ms per item"
    shell.stat(f"Worst {what}", str(getattr(worst, name)), detail).props('data-testid="worst"')


def _interval(estimate: Estimate, unit: str = "") -> str:
    """Both ends of an interval, with what it was made for."""
    if estimate.ends is None or not useful(estimate.ends):
        return between(estimate.ends)
    return f"{between(estimate.ends)}{unit} ({level_percent(estimate.level)} %)"


def _sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a point."""
    clean = text.strip()
    return f"{clean[:1].upper()}{clean[1:]}{'' if clean.endswith(('.', '!', '?')) else '.'}"
