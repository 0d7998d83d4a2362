"""The trends of a project: each of its cells over time, where it changed, and the entries before and after."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nicegui import ui
from nicegui.element import Element

from inferlab.errors import BadInput
from inferlab.lab.tracking import TrendRequest, find_series
from inferlab.records.series import Across, Series, SeriesMetric, Trend
from inferlab.units import capitalized, plural
from inferlab.views import trend as view
from inferlab.web import shell
from inferlab.web.components.charts import Chart, loaded
from inferlab.web.desk import Desk, Snapshot, follow
from inferlab.web.sections import Opened, only_generates, project_page
from inferlab.web.shell import div, refilled

_METRICS: dict[SeriesMetric, str] = {"time": "Time", "memory": "Peak memory"}
_ACROSS: dict[str, str] = {
    "": "Machines and versions apart",
    "machine": "All machines together",
    "version": "All versions together",
}
_EMPTY = (
    "No trends yet",
    "A trend shows the same benchmark measured again and again: on other commits, days or releases. Measure one "
    "again from its card, or on every commit: inferlab benchmark MODEL --label commit=abc123",
)


def register(desk: Desk) -> None:
    """Define the page."""

    @shell.page("/projects/{project_id}/trends")
    async def trends(project_id: str) -> None:
        async with project_page(desk, project_id, "trends") as opened:
            if only_generates(opened):
                return
            await _Trends(desk, opened).build()


class _Trends:
    """What is chosen, and the chart and table of one series; it follows the store."""

    def __init__(self, desk: Desk, opened: Opened) -> None:
        self._desk, self._opened = desk, opened
        self._found: Trend | None = None
        self._problem = ""
        #: How often a series was drawn, so that of two at a time the later stays.
        self._turn = 0

    async def build(self) -> None:
        """Fill the page."""
        shell.titled("Trends")
        self._body = div("il-column")
        await loaded(self._read, "time", "")
        self._show("time", "")
        follow(self._desk, self._changed)

    def _read(self, metric: SeriesMetric, across: str) -> None:
        chosen: dict[str, tuple[Across, ...]] = {"machine": ("machine",), "version": ("version",)}
        project_id = self._opened.project.id
        request = TrendRequest(metric=metric, across=chosen.get(across, ()), project_id=project_id)
        self._problem = ""
        try:
            self._found = find_series(self._desk.workspace.store, request)
        except BadInput as error:
            self._found, self._problem = None, str(error)

    def _show(self, metric: SeriesMetric, across: str, kept: Series | None = None) -> None:
        """Put the selectors into the page, and the series that was shown before, else the longest."""
        with refilled(self._body):
            if not self._problem and (self._found is None or not self._found.series):
                shell.empty(*_EMPTY, "no-trends")
                return
            with shell.card("il-chart-card"):
                with div("il-chosen"):
                    series = self._found.series if self._found else ()
                    # The longest says most.
                    shown = max(range(len(series)), key=lambda index: len(series[index].points), default=None)
                    shown = next((index for index, other in enumerate(series) if _same(other, kept)), shown)
                    self._series = ui.select(self._names(), label="Series", value=shown)
                    self._series.classes("il-wide-select").props('data-testid="trend-series"')
                    self._metric = ui.select(dict(_METRICS), label="Metric", value=metric)
                    self._metric.props('data-testid="trend-metric"')
                    self._across = ui.select(_ACROSS, label="Machines and versions", value=across)
                    self._across.props('data-testid="trend-across"')
                self._series.on_value_change(self._draw)
                self._metric.on_value_change(self._choose)
                self._across.on_value_change(self._choose)
                self._chart = Chart("trend-chart")
                self._notes = div(name="trend-notes")
            self._table: Element = div("il-scroll", name="trend-table").props(
                'tabindex=0 role=region aria-label="Segments"'
            )
        with self._body:
            # Not where the selector was whose event led here: it is gone.
            ui.timer(0, self._draw, once=True)

    def _names(self) -> dict[int, str]:
        known = self._found.series if self._found else ()
        versions = self._opened.versions
        names = {}
        for number, series in enumerate(known):
            version = versions.get(series.cell.model_digest, "")
            said = [version, view.name(series), plural(len(series.points), "entry", "entries")]
            said += [view.origin(series)] if len({other.machines for other in known}) > 1 else []
            names[number] = " · ".join(filter(None, said))
        return names

    async def _choose(self) -> None:
        metric, across = self._metric.value, self._across.value
        await asyncio.to_thread(self._read, metric, across)
        self._show(metric, across)

    async def _draw(self) -> None:
        known = self._found.series if self._found else ()
        chosen = self._series.value
        self._turn += 1
        turn = self._turn
        self._table.clear()
        self._notes.clear()
        if self._problem or chosen is None or chosen >= len(known):
            with self._notes:
                shell.banner("warn", self._problem or "This series is gone.")
            return
        series: Series = known[chosen]
        named = replace(series, model=self._opened.project.name)
        await self._chart.show(lambda: view.figure(named))
        if turn != self._turn:
            return
        with self._notes:
            shell.findings((capitalized(note.text) for note in view.notes(series)), "trend-findings")
        with self._table:
            shell.text_table(view.segment_table(series), name="segments")

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        if before.stamp == now.stamp:
            return
        shown = self._found.series if self._found else ()
        metric: SeriesMetric = self._metric.value if shown else "time"
        across: str = self._across.value if shown else ""
        chosen = self._series.value if shown else None
        kept = None if chosen is None or chosen >= len(shown) else shown[chosen]
        await asyncio.to_thread(self._read, metric, across)
        if self._found is not None and self._found.series != shown and not self._body.is_deleted:
            self._show(metric, across, kept)


def _same(series: Series, other: Series | None) -> bool:
    """Whether both are the same series, of which one may have points that the other lacks."""
    return other is not None and (series.cell.id, series.machines, series.versions) == (
        other.cell.id,
        other.machines,
        other.versions,
    )
