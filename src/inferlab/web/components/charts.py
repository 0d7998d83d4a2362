"""Figures and tables of layers, which the browser draws of one text, and pages whose content takes a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from nicegui import json, ui
from nicegui.element import Element
from nicegui.elements import plotly as _plotly  # noqa: F401

from inferlab.errors import BadInput
from inferlab.views.charts import frame
from inferlab.views.reports.page import Cell, Columns
from inferlab.views.reports.profile import NAMES
from inferlab.web import shell
from inferlab.web.shell import div, refilled

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


# Plotly itself comes with NiceGUI's element.


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure as the browser gets it, and what its title and subtitle said."""

    text: str
    height: int
    title: str
    notes: tuple[str, ...]


def drawn(figure: Figure, bar: bool = True) -> Drawn:
    """A figure with as large an area between its axes, no title, and perhaps a bar of tools."""
    meta = figure.layout.meta
    content = figure.to_plotly_json()
    if not any(_has_values(trace) for trace in content["data"]):
        raise BadInput("There is nothing to draw: nothing of this was measured.")
    layout = content["layout"]
    before, around = layout["margin"], frame.compact_margin(figure)
    height = layout["height"] - before["t"] - before["b"] + around["t"] + around["b"]
    content["layout"] = {**layout, "title": None, "height": height, "margin": {**before, **around}}
    config = {"displaylogo": False} if bar else {"displaylogo": False, "displayModeBar": False}
    return Drawn(json.dumps({**content, "config": config}), height, meta["title"], tuple(meta["subtitle"]))


def _has_values(trace: Mapping[str, Any]) -> bool:
    """Whether a trace has a point that would be seen."""
    for name in ("y", "x", "r", "values"):
        values = trace.get(name)
        if isinstance(values, list | tuple):
            return any(value is not None and value == value for value in values)
    return True


class FigureElement(Element, component="figure.js"):
    """A Plotly figure as JSON.

    Unlike NiceGUI's own element it takes it as one text: there, on its way to the browser, every number of it is
    wrapped to be observed, which for thousands of layers takes longer than all the rest.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._props["data-testid"] = name
        self._update_method = "update"

    def draw(self, drawing: Drawn) -> None:
        """Show this figure."""
        self._props["figure"] = drawing.text
        self.style(f"height: {drawing.height}px")
        self.update()


def prepare() -> None:
    """Let the browser load Plotly while the page is still waiting for what it shall draw."""
    ui.run_javascript("import('nicegui-plotly')")


class Chart:
    """The place of a figure, with its notes below; what cannot be drawn says why instead.

    Notes in `facts` need not be said, for the page says them. `explain` fills the place where there is no figure.
    """

    def __init__(
        self,
        name: str,
        facts: Collection[str] = (),
        *,
        min_height: int = 0,
        bar: bool = True,
        explain: Callable[[str], None] | None = None,
    ) -> None:
        self._name, self._facts, self._bar, self._explain = name, facts, bar, explain
        self._turn = 0
        self._plot: FigureElement | None = None
        with div("il-figure"):
            self._slot = div().style(f"min-height: {min_height}px" if min_height else "")
            self._notes = ui.label().classes("il-caption")

    async def show(self, make: Callable[[], Figure]) -> str:
        """Draw what `make` makes, unless something newer was asked for meanwhile; returns its title."""
        self._turn += 1
        turn = self._turn
        try:
            drawing = await asyncio.to_thread(lambda: drawn(make(), self._bar))
        except BadInput as error:
            if turn == self._turn and not self._slot.is_deleted:
                self._refuse(str(error))
            return ""
        if turn == self._turn and not self._slot.is_deleted:
            self._draw(drawing)
            self._notes.set_text(" · ".join(note for note in drawing.notes if note not in self._facts))
        return drawing.title

    def _refuse(self, why: str) -> None:
        self._slot.clear()
        self._plot = None
        self._notes.set_text("" if self._explain else why)
        if self._explain is not None:
            with self._slot:
                self._explain(why)

    def _draw(self, drawing: Drawn) -> None:
        if self._plot is None:
            with refilled(self._slot):
                self._plot = FigureElement(self._name)
        self._plot.draw(drawing)


class ChosenChart:
    """A card with a chart and the selectors of what it shows, such as Summary Type and Value Display."""

    def __init__(
        self,
        name: str,
        choices: Mapping[str, Mapping[str, str]],
        draw: Callable[..., Figure],
        facts: Collection[str] = (),
    ) -> None:
        #: Takes what is chosen, in the order of the selectors.
        self._draw = draw
        self._selects: list[ui.select] = []
        with shell.card("il-chart-card"):
            with div("il-chosen"):
                for label, options in choices.items():
                    slug = label.lower().replace(" ", "-")
                    select = ui.select(dict(options), label=label, value=next(iter(options)))
                    select.props(f'data-testid="{name}-{slug}"').on_value_change(self.refresh)
                    self._selects.append(select)
            self._chart = Chart(f"{name}-chart", facts)

    @property
    def chosen(self) -> tuple[str, ...]:
        """What is selected now."""
        return tuple(str(select.value) for select in self._selects)

    async def refresh(self) -> None:
        """Draw what is selected."""
        chosen = self.chosen
        await self._chart.show(lambda: self._draw(*chosen))


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
# What is there sooner comes with the page itself, which saves the browser a second drawing.
_AT_ONCE_S = 0.15


async def loaded(read: Callable[_Given, _Found], *arguments: _Given.args, **named: _Given.kwargs) -> _Found:
    """What `read` returns, from a thread; a page that waits longer for it is sent with a sign that it does."""
    task = asyncio.create_task(asyncio.to_thread(read, *arguments, **named))
    done, _ = await asyncio.wait([task], timeout=_AT_ONCE_S)
    if not done:
        prepare()
        waiting = div("il-empty il-muted", "Opening…", name="opening")
        client = ui.context.client
        await client.connected()
        await asyncio.wait([task])
        if client.is_deleted:
            # Nobody came for the page, as under load: there is nothing left to put the content into.
            raise asyncio.CancelledError
        waiting.delete()
    return task.result()


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

    async def show(self, make: Callable[[], Columns]) -> None:
        """Show other rows: the columns that `make` makes in another thread."""
        self._props["content"] = await asyncio.to_thread(lambda: _content(make()))
        self.update()


def _content(columns: Columns) -> str:
    """Columns as the browser gets them: titles, texts, and the numbers that they are sorted by.

    Beside the names, which stay in sight, comes first what a profile is about.
    """
    first = [title for title in (*_FROZEN, *_FIRST) if title in columns] if _FROZEN[0] in columns else []
    columns = {title: columns[title] for title in dict.fromkeys((*first, *columns))}
    # One text: NiceGUI wraps every item of a list to observe it, which takes longer than all the rest.
    return json.dumps([_column(title, cells) for title, cells in columns.items()])


def _column(title: str, cells: Sequence[Cell]) -> dict[str, Any]:
    texts = [cell.text for cell in cells]
    longest = min(max(map(len, texts), default=0), _LONGEST)
    return {
        "title": title,
        "texts": texts,
        "numbers": None if title in NAMES else [cell.number for cell in cells],
        "width": round(_PADDING + max(_CHARACTER * longest, _CHARACTER * len(title) + _ARROW)),
    }
