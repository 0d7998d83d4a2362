"""Tables of layers, of which the browser draws the rows in sight: to read, to edit, and to compare."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nicegui import html, json, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.profiling.diff import LayerDiff
from inferlab.records.profile import LossLayer
from inferlab.store.entries import Entry
from inferlab.units import decimal, plural, scaled
from inferlab.views.charts.profiles import layer_diff
from inferlab.views.fields import between
from inferlab.views.profile_tables import NAMES, Columns, diff_columns
from inferlab.views.report import Cell
from inferlab.web import shell
from inferlab.web.components.charts import Chart
from inferlab.web.desk import Desk
from inferlab.web.live import aged
from inferlab.workspace.engines import title

_FROZEN, _FIRST = ("#", "ID"), ("ms", "Share %")
#: Names are cut to this many characters, in their middle.
_LONGEST = 26
# Of the usual character and around a text, in pixels; a title needs room for the arrow that tells the order too.
_CHARACTER, _PADDING, _ARROW = 8.6, 26, 20


class LayerTable(Element, component="layer_table.js"):
    """Rows of layers; `noun` is what the count calls them."""

    def __init__(self, name: str, noun: str = "layers", searched: str = "id, weight, kernel") -> None:
        super().__init__()
        self._props["content"] = "[]"
        self._props["name"] = name
        self._props["noun"] = noun
        self._props["searched"] = searched
        self._props["longest"] = _LONGEST

    def fill(self, text: str) -> None:
        """Show other rows, as `content` makes them of columns."""
        self._props["content"] = text
        self.update()


def content(columns: Columns) -> str:
    """Columns as the browser gets them: titles, texts, and the numbers that they are sorted by.

    Beside the names, which stay in sight, comes first what a profile is about.
    """
    first = [title for title in (*_FROZEN, *_FIRST) if title in columns] if _FROZEN[0] in columns else []
    columns = {title: columns[title] for title in dict.fromkeys((*first, *columns))}
    # One text: NiceGUI wraps every item of a list to observe it, which takes longer than all the rest.
    return json.dumps([_column(title, cells) for title, cells in columns.items()])


def _column(title: str, cells: Sequence[str | Cell]) -> dict[str, Any]:
    texts = [cell if isinstance(cell, str) else cell.text for cell in cells]
    longest = min(max(map(len, texts), default=0), _LONGEST)
    return {
        "title": title,
        "texts": texts,
        "numbers": None if title in NAMES else [cell.number for cell in cells if isinstance(cell, Cell)],
        "width": round(_PADDING + max(_CHARACTER * longest, _CHARACTER * len(title) + _ARROW)),
    }


class LayerEditor(Element, component="layer_editor.js"):
    """Layers by their weights; who made it hears what was moved, turned on or off, or chosen to look at."""

    def __init__(
        self,
        layers: Sequence[LossLayer],
        moved: Callable[[Mapping[str, float]], Any],
        turned: Callable[[Sequence[str], bool], Any],
        chosen: Callable[[str], Any],
    ) -> None:
        super().__init__()
        # A weight that several layers share is pruned once.
        self.weights = list(dict.fromkeys(layer.weight for layer in layers))
        self._moved, self._turned, self._chosen = moved, turned, chosen
        first = {layer.weight: layer for layer in reversed(layers)}
        # One text each: NiceGUI wraps every item of a list to observe it.
        self._props["content"] = json.dumps([_row(first[weight]) for weight in self.weights])
        self._props["state"] = json.dumps({"levels": [0.0] * len(self.weights), "on": [False] * len(self.weights)})
        self._props["told"] = "{}"
        self._props["fixed"] = False
        self.on("moved", self._move)
        self.on("turn", self._turn)
        self.on("choose", self._choose)

    def fill(self, levels: Mapping[str, float], on: set[str], fixed: bool) -> None:
        """Show these shares of zeros; where they are fixed, only the switches can be moved."""
        self._props["state"] = json.dumps(
            {
                "levels": [levels.get(weight, 0.0) for weight in self.weights],
                "on": [weight in on for weight in self.weights],
            }
        )
        self._props["fixed"] = fixed
        self.update()

    def tell(self, ms: Mapping[str, float], losses: Mapping[str, float], unmeasured: Collection[str] = ()) -> None:
        """Show what is predicted of every layer; of some nobody measured the losses."""
        self._props["told"] = json.dumps(
            {
                "ms": [_number(ms.get(weight)) for weight in self.weights] if ms else None,
                "loss": [
                    "not measured" if weight in unmeasured else _number(losses.get(weight))
                    for weight in self.weights
                ],
            }
        )
        self.update()

    def _move(self, event: GenericEventArguments) -> Any:
        return self._moved({self.weights[int(at)]: float(level) for at, level in event.args.items()})

    def _turn(self, event: GenericEventArguments) -> Any:
        return self._turned([self.weights[at] for at in event.args["places"]], bool(event.args["on"]))

    def _choose(self, event: GenericEventArguments) -> Any:
        return self._chosen(self.weights[int(event.args)])


def _row(layer: LossLayer) -> dict[str, Any]:
    return {
        "weight": layer.weight,
        "id": layer.id,
        "type": layer.type,
        "params": layer.params,
        "told": scaled(layer.params),
    }


def _number(value: float | None) -> float | None:
    """Three digits; none for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


_NOTE = "Profiles are not measured interleaved, so a change of the machine between them counts too."


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
                options = {other.id: described(other) for other in others}
                self._select = ui.select(options, label="Compare with", clearable=True).classes("il-wide-select")
                self._select.props('data-testid="diff-with"').on_value_change(self._show)
            self._told = ui.label(
                "Choose another performance profile: layers that cover the same nodes are shown side by side."
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
        f"This profile (B) takes {decimal(diff.ratio.value)} of the other's (A) time per item ({sure}): "
        f"{diff.verdict}.{differ} {_NOTE}"
    )
