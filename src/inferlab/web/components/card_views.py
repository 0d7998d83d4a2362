"""The opened part of a card: its engines, its views, the numbers and the chart of what is chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nicegui import html, ui
from nicegui.element import Element
from nicegui.events import ValueChangeEventArguments

from inferlab.records import Comparison
from inferlab.units import plural
from inferlab.views.charts.cards import HEIGHT
from inferlab.web import shell
from inferlab.web.components.advice import on_pages
from inferlab.web.components.card_faces import CellFace, Drawing, Face, Place, Shelf
from inferlab.web.components.card_numbers import scaling, speedup, stats_of
from inferlab.workspace.cards import Duel

_VIEWS = {"baseline": "Baseline", "cores": "Core scaling", "batches": "Batch size scaling"}
_STATES = {
    "pending": "Not measured yet.",
    "cancelled": "Cancelled before it was measured.",
    "done": "Nothing was measured.",
    "failed": "It failed without a reason.",
}
_DIFFERENT = (
    "Both sides are different models, and their outputs differ: what is faster has its price. The page of a "
    "version says how far its outputs are off."
)
_WORTHLESS = "Wrong outputs: this speed is worth nothing."


@dataclass(slots=True)
class Chosen:
    """What the user chose to see of a card; it outlives the card's being drawn anew."""

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

    def fit(self, face: Face) -> None:
        """Choose something else where a card does not have what was chosen."""
        if self.arm >= len(face.cells):
            self.arm = 0
        self.machine = face.card.arms[self.arm].machine
        if self.view not in views_of(face):
            self.view = "baseline"
        if self.num_cores not in face.card.core_counts or self.batch_size not in face.card.batch_sizes:
            self.num_cores, self.batch_size = face.first()


def views_of(face: Face) -> list[str]:
    """What there is to see: scaling only of what varies."""
    several = {"cores": len(face.card.core_counts) > 1, "batches": len(face.card.batch_sizes) > 1}
    return [one for one in _VIEWS if several.get(one, True)]


class CardViews:
    """Made within the element that shall show it; `draw` fills it, and does so again when something is chosen."""

    def __init__(self, shelf: Shelf, face: Face, mark: tuple[object, ...], chosen: Chosen) -> None:
        self._shelf, self._face, self._mark, self._chosen = shelf, face, mark, chosen
        self._asked = 0
        chosen.fit(face)
        with html.div().classes("il-bench-body") as self._root:
            self._alert = html.div().classes("il-bench-alert")
            self._tab_slot: Element = html.div()
            self._fill(self._tab_slot, self._tabs)
            with html.div().classes("il-bench-grid"):
                self._stats: Element = html.div().classes("il-bench-stats")
                with html.div().classes("il-bench-chart"):
                    self._frame: Element = html.div().style(f"min-height: {HEIGHT}px")
                    self._more: Element = html.div()
                self._plot: ui.plotly | None = None
                self._selectors()
            self._below: Element = html.div().classes("il-bench-below")

    async def draw(self) -> None:
        """Show what is chosen: the numbers at once, the chart as soon as it is made."""
        self._asked += 1
        asked = self._asked
        self._show_selectors()
        self._fill(self._stats, self._fill_stats)
        self._fill(self._more, self._fill_more)
        self._fill(self._below, self._fill_below)
        self._fill(self._alert, self._fill_alert)
        drawing = await self._drawing()
        # Something else may have been chosen meanwhile, or the card is gone.
        if asked == self._asked and not self._root.is_deleted:
            self._show(drawing)

    # What can be chosen.

    def _tabs(self) -> None:
        every, views = self._face.card.arms, views_of(self._face)
        arms = {index: arm for index, arm in enumerate(every) if arm.machine == self._chosen.machine}
        if len(arms) == 1 and len(views) == 1:
            return
        stacked = "il-bench-stacked" if len(arms) > 2 and len(views) > 1 else ""
        with html.div().classes(f"il-bench-tabs {stacked}"):
            if len(arms) > 1:
                names = {str(index): arm.label for index, arm in arms.items()}
                self._tab_row(names, str(self._chosen.arm), "arm", self._choose_arm)
            if len(views) > 1:
                row = self._tab_row(
                    {one: _VIEWS[one] for one in views}, self._chosen.view, "view", self._choose_view
                )
                row.classes("il-bench-views" if len(arms) > 1 else "")

    @staticmethod
    def _tab_row(
        names: dict[str, str],
        value: str,
        what: str,
        choose: Callable[[ValueChangeEventArguments[Any]], Awaitable[None]],
    ) -> ui.tabs:
        with ui.tabs(on_change=choose).props("outside-arrows") as tabs:
            for name, label in names.items():
                ui.tab(name, label).props(f'data-testid="{what}-{name}"')
        tabs.set_value(value)
        return tabs

    def _selectors(self) -> None:
        card = self._face.card
        self._cores: ui.select | None = None
        self._batch: ui.select | None = None
        if len(card.core_counts) == 1 and len(card.batch_sizes) == 1 and len(card.machines) < 2:
            return
        with html.div().classes("il-bench-selectors"):
            if len(card.machines) > 1:
                ui.select(
                    card.machines, label="Machine", value=self._chosen.machine, on_change=self._choose_machine
                ).props('data-testid="select-machine"')
            if len(card.core_counts) > 1:
                self._cores = ui.select(
                    card.core_counts, label="Cores", value=self._chosen.num_cores, on_change=self._choose_cores
                ).props('data-testid="select-cores"')
            if len(card.batch_sizes) > 1:
                self._batch = ui.select(
                    card.batch_sizes,
                    label="Batch Size",
                    value=self._chosen.batch_size,
                    on_change=self._choose_batch,
                ).props('data-testid="select-batch"')

    def _show_selectors(self) -> None:
        if self._cores is not None:
            self._cores.set_visibility(self._chosen.view != "cores")
        if self._batch is not None:
            self._batch.set_visibility(self._chosen.view != "batches")

    async def _choose_arm(self, event: ValueChangeEventArguments[Any]) -> None:
        await self._choose("arm", int(event.value))

    async def _choose_machine(self, event: ValueChangeEventArguments[Any]) -> None:
        """Show another machine, by the same engine where it has it."""
        arms, machine = self._face.card.arms, str(event.value)
        if machine == self._chosen.machine:
            return
        engine = arms[self._chosen.arm].engine
        there = [index for index, arm in enumerate(arms) if arm.machine == machine]
        self._chosen.arm = next((one for one in there if arms[one].engine == engine), there[0])
        self._chosen.machine = machine
        self._fill(self._tab_slot, self._tabs)
        await self.draw()

    async def _choose_view(self, event: ValueChangeEventArguments[Any]) -> None:
        await self._choose("view", str(event.value))

    async def _choose_cores(self, event: ValueChangeEventArguments[Any]) -> None:
        await self._choose("num_cores", int(event.value))

    async def _choose_batch(self, event: ValueChangeEventArguments[Any]) -> None:
        await self._choose("batch_size", int(event.value))

    async def _choose(self, name: str, value: int | str) -> None:
        if getattr(self._chosen, name) != value:
            setattr(self._chosen, name, value)
            await self.draw()

    # What is shown of it.

    @property
    def _cell(self) -> CellFace | None:
        return self._face.cell(self._chosen.arm, self._chosen.place)

    @property
    def _duel(self) -> Duel | None:
        return self._face.card.duel(self._chosen.arm, *self._chosen.place)

    @staticmethod
    def _fill(slot: Element, fill: Callable[[], None]) -> None:
        slot.clear()
        with slot:
            fill()

    def _fill_stats(self) -> None:
        chosen, arms = self._chosen, self._face.card.arms
        if chosen.view != "baseline":
            by_cores = chosen.view == "cores"
            where = {"batch_size": chosen.batch_size} if by_cores else {"num_cores": chosen.num_cores}
            scaling(self._face.points(chosen.arm, **where), by_cores)
            return
        cell = self._cell
        if cell is None or cell.numbers is None:
            stats_of(None)
            return
        duel = self._duel
        if duel is not None:
            speedup(duel, chosen.arm, arms[duel.other if chosen.arm == 0 else 0].label)
        found = cell.numbers
        values = (found.ms_per_item, found.ms_per_batch, found.items_per_second)
        stats_of(values, cell.point.scenario, found.wrong)
        html.div(
            f"{plural(found.processes, 'process', 'processes')}, {plural(found.iterations, 'batch', 'batches')}"
        ).classes("il-stat-detail")

    def _fill_alert(self) -> None:
        for problem in self._face.card.problems:
            shell.banner("warn", problem)
        if self._chosen.view == "baseline":
            cell, duel = self._cell, self._duel
            if cell is not None and cell.numbers is not None and cell.numbers.wrong:
                told = cell.numbers.check.removeprefix("WRONG (").removesuffix(")")
                text = f"{_WORTHLESS} {_sentence(told)}"
                shell.banner("wrong", text).props('data-testid="wrong-outputs"')
            elif duel is not None and duel.outputs_match is False and self._face.card.of_different_models:
                shell.banner("warn", _DIFFERENT).props('data-testid="different-outputs"')
            elif duel is not None and duel.outputs_match is False:
                text = "The outputs of both sides DIFFER: a speed-up of something else is worth nothing."
                shell.banner("wrong", text).props('data-testid="wrong-outputs"')
            return
        points = [one for arm in range(len(self._face.cells)) for one in self._face.points(arm)]
        wrong = sum(one.wrong for one in points)
        if wrong:
            text = (
                f"{plural(wrong, 'cell')} of {len(points)} computed wrong outputs: their speed is worth nothing."
            )
            shell.banner("wrong", text).props('data-testid="wrong-outputs"')

    def _fill_more(self) -> None:
        if self._chosen.view == "baseline" and self._told() is not None:
            button = ui.button("Ratio of every pair", icon="scatter_plot", on_click=self._show_ratios)
            button.props('flat dense data-testid="ratios"')

    def _fill_below(self) -> None:
        if self._chosen.view != "baseline":
            return
        duel, cell = self._duel, self._cell
        lines = self._notes(duel) if duel else []
        for line in cell.numbers.findings if cell and cell.numbers else ():
            # The notes of a comparison have it with the name of its side.
            if not any(note.endswith(line) for note in lines):
                lines.append(line)
        if lines:
            with html.ul().classes("il-findings").props('data-testid="findings"'):
                for line in dict.fromkeys(on_pages(_sentence(one)) for one in lines):
                    html.li(line)

    def _notes(self, duel: Duel) -> list[str]:
        """What is to be said of a comparison, its sides by their names."""
        arms = self._face.card.arms
        names = {"A: ": f"{arms[duel.other].label}: ", "B: ": f"{arms[0].label}: "}
        return [f"{names[one[:3]]}{one[3:]}" if one[:3] in names else one for one in duel.notes]

    # The chart.

    async def _drawing(self) -> Drawing | None:
        chosen, shelf = self._chosen, self._shelf
        if chosen.view == "cores":
            return await shelf.core_scaling(self._face, chosen.arm, chosen.batch_size)
        if chosen.view == "batches":
            return await shelf.batch_scaling(self._face, chosen.arm, chosen.num_cores)
        return await shelf.iterations(self._face.card.id, self._mark, chosen.arm, chosen.place)

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
            text = "Not planned on this side." if cell is None else on_pages(cell.failure) or _STATES[cell.status]
        with html.div().classes("il-bench-cause").props('data-testid="cause"'):
            if cell is not None and cell.status == "failed":
                shell.chip("failed", "wrong")
            html.div(text).classes("il-bench-cause-text")

    def _told(self) -> Comparison | None:
        """The comparison at the chosen place, where its pairs are kept."""
        card = self._face.card
        places = ((one.num_cores, one.batch_size) for one in card.duels)
        return next(
            (told for place, told in zip(places, card.results, strict=False) if place == self._chosen.place), None
        )

    async def _show_ratios(self) -> None:
        comparison = self._told()
        drawing = await self._shelf.ratios(comparison) if comparison else None
        with self._root, ui.dialog(value=True) as dialog, ui.card().classes("il-dialog il-log-dialog"):
            if drawing is None:
                html.div("The ratios of this comparison cannot be drawn.")
            else:
                ui.plotly(drawing).classes("il-bench-plot").props('data-testid="ratios-chart"')
            with html.div().classes("il-dialog-actions"):
                ui.button("Close", on_click=dialog.close).props("flat")
        dialog.on("hide", dialog.delete)


def _sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a point."""
    clean = text.strip()
    return f"{clean[:1].upper()}{clean[1:]}{'' if clean.endswith(('.', '!', '?')) else '.'}"
