"""The layers of a profile beside those of another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import html, ui

from inferlab.profiling.diff import LayerDiff
from inferlab.store.entries import Entry
from inferlab.units import between, decimal, plural
from inferlab.views.charts.layer_diffs import layer_diff
from inferlab.views.profile_tables import diff_columns
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.web.live import aged
from inferlab.web.components.figures import Chart
from inferlab.web.components.layer_table import LayerTable, content
from inferlab.workspace.engines import title

_NOTE = "Profiles are not measured in turns, so a change of the machine between them counts too."


def described(entry: Entry) -> str:
    """A measured profile in a line."""
    found = entry.brief["performance"]
    where = f"{title(found['engine'])}, batch {found['batch_size']}, {plural(found['num_cores'], 'core')}"
    return f"{found['name']} ({where}, {aged(entry.created_at)})"


class DiffSection:
    """A selector of the other profile, and what the two differ in once one is chosen."""

    def __init__(self, desk: Desk, entry: Entry, others: Sequence[Entry]) -> None:
        self._workspace, self._entry = desk.workspace, entry
        with shell.card("il-chart-card"):
            with html.div().classes("il-chosen"):
                options = {one.id: described(one) for one in others}
                self._select = ui.select(options, label="Compare with", clearable=True).classes("il-wide-select")
                self._select.props('data-testid="diff-with"').on_value_change(self._show)
            self._told = ui.label(
                "Choose another performance profile: layers that cover the same nodes stand beside each other."
            ).classes("il-caption")
            with html.div() as self._found:
                self._verdict = ui.label().classes("il-verdict").props('data-testid="diff-verdict"')
                self._chart = Chart("diff-chart")
                self._table = LayerTable("diff-table", "rows", "id")
            self._found.set_visibility(False)

    async def _show(self) -> None:
        other = self._select.value
        self._found.set_visibility(bool(other))
        self._told.set_visibility(not other)
        if not other:
            return
        self._verdict.set_text("Comparing…")
        diff, rows = await asyncio.to_thread(self._read, other)
        if other != self._select.value:
            return
        self._verdict.set_text(_verdict(diff))
        await self._chart.show(lambda: layer_diff(diff))
        self._table.fill(rows)

    def _read(self, other: str) -> tuple[LayerDiff, str]:
        diff = self._workspace.layer_diff(self._entry.id, other)
        return diff, content(diff_columns(diff))


def _verdict(diff: LayerDiff) -> str:
    ends = diff.ratio.ends
    sure = "too few processes for an interval" if ends is None else between(ends)
    differ = f" They differ in {'; '.join(diff.differences)}." if diff.differences else ""
    return (
        f"This profile (B) takes {decimal(diff.ratio.value)} of the other's (A) time an item ({sure}): "
        f"{diff.verdict}.{differ} {_NOTE}"
    )
