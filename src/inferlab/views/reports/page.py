"""The elements of a page, out of which reports are made, and the page itself: one HTML file that opens offline."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from inferlab.records import Model, OutputCheck
from inferlab.units import three_digits
from inferlab.views.fields import UNKNOWN, Ends, Field, Form, between_at, rounded
from inferlab.views.tables import Block, Code, Note, Pair, Table, rendered
from inferlab.views.text import model_facts

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Nothing may be fetched, whatever a model's names say.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
#: What stands in a table of a report where a value is not known.
MISSING = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that sorts: its text, and the number behind it."""

    text: str
    number: float | None = None
    #: Whether it must not be missed.
    wrong: bool = False


#: Of a table that sorts, by their titles.
Columns = dict[str, list[Cell]]


class Element(dict[str, Any]):
    """A part of a page: its kind, and what the template shows of it."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        super().__init__(values, kind=kind)


class Charts:
    """The figures of a page by what is chosen, every value in them kept once."""

    def __init__(self) -> None:
        self.charts: dict[str, dict[str, Any]] = {}
        self._pool: dict[str, int] = {}

    def add(self, name: str, figures: Mapping[str, Figure]) -> Element:
        """The place of a chart; figures go by the values of its selectors, joined by |."""
        views = {}
        for key, figure in figures.items():
            drawn = figure.to_plotly_json()
            traces = [{part: self._place_of(value) for part, value in trace.items()} for trace in drawn["data"]]
            views[key] = {"traces": traces, "layout": self._place_of(drawn["layout"])}
        self.charts[name] = views
        return Element("chart", {"name": name})

    def _place_of(self, value: Any) -> int:
        text = json.dumps(_short(value), separators=(",", ":"), allow_nan=False)
        return self._pool.setdefault(text, len(self._pool))

    def json(self) -> str:
        """All of it, such that it cannot end the script in which it stands."""
        charts = json.dumps(self.charts, separators=(",", ":"))
        return f'{{"charts":{charts},"pool":[{",".join(self._pool)}]}}'.replace("<", "\\u003c")


def _short(value: Any) -> Any:
    """Figures as JSON: seven digits tell all that a screen can show, and what is no number is null."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value


def page(
    title: str,
    head: Iterable[Element | None],
    sections: Mapping[str, Sequence[Element | None]],
    charts: Charts | None = None,
) -> str:
    """One self-contained page with links to its sections, of which empty ones are left out; text is escaped."""
    # Late: both take a good part of a second.
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    here = files("inferlab.views") / "templates"
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    drawn = charts or Charts()
    return rendered(
        "report.html",
        title=title,
        policy=_POLICY,
        head=list(filter(None, head)),
        sections={name: there for name, parts in sections.items() if (there := list(filter(None, parts)))},
        style=Markup(style),  # noqa: S704  our own file
        data=Markup(drawn.json()),  # noqa: S704  it cannot end the script in which it stands
        plotly=Markup(get_plotlyjs() if drawn.charts else ""),  # noqa: S704  the library's own
        script=Markup(script),  # noqa: S704  our own file
    )


def of_blocks(title: str, blocks: Iterable[Block]) -> str:
    """The report of what is shown as blocks: named values, tables that sort, and sentences."""
    pairs, parts, notes = [], [], []
    for block in blocks:
        if isinstance(block, Pair):
            pairs.append((block.name, block.value))
        elif isinstance(block, Table):
            parts += [subheading(block.title)] if block.title else []
            parts.append(sortable(f"table-{len(parts)}", block))
        elif isinstance(block, Code):
            parts.append(Element("code", {"text": block.text}))
        elif isinstance(block, Note):
            notes.append(block)
        elif block:
            parts.append(caption(block))
    head = [
        heading(title, ()),
        box([note.text for note in notes if note.warning], wrong=True),
        box([note.text for note in notes if not note.warning]),
    ]
    return page(title, head, {"Result": [Element("facts", {"pairs": pairs}), *parts]})


def sortable(name: str, table: Table, missing: str = UNKNOWN) -> Element:
    """A table of fields, which sorts by the numbers behind its texts."""
    shown = columns(table, missing)
    left = [field.label for field in table.fields if field.left]
    return rows_table(name, list(shown), list(zip(*shown.values(), strict=True)), left)


def columns(table: Table, missing: str = MISSING) -> Columns:
    """The columns of a table of fields: their texts, and the numbers behind them."""
    values = [[field.get(row) for row in table.rows] for field in table.fields]
    groups: dict[str, list[float | None]] = {}
    for field, column in zip(table.fields, values, strict=True):
        groups.setdefault(field.group or field.label, []).extend(column if field.digits is not None else ())
    shown: Columns = {}
    for field, column in zip(table.fields, values, strict=True):
        if field.digits is not None:
            shown[field.label] = _numbers(column, _places(groups[field.group or field.label], field.digits))
        else:
            shown[field.label] = [
                _cell(field, row, value, missing) for row, value in zip(table.rows, column, strict=True)
            ]
    return shown


def _cell(field: Field, row: Any, value: Any, missing: str) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell(missing)
    return Cell(field.text(row), value if isinstance(value, int | float) else None)


def model_heading(name: str, model: Model, more: Sequence[str]) -> Element:
    """The name of a model, and below it what it is and whatever `more` is known."""
    digest = f"digest {model.digest[:12]}" if model.digest else ""
    return heading(name, [*model_facts(model), digest, *more])


def heading(text: str, below: Sequence[str]) -> Element:
    """The title of the page, and what is known at a glance."""
    return Element("heading", {"text": text, "below": " · ".join(filter(None, below))})


def subheading(text: str) -> Element:
    """The title of a part of a section."""
    return Element("subheading", {"text": text})


def tile(label: str, value: str, note: str = "", style: str = "") -> Element:
    """A number with its name; `style` is main where it stands out, words where it is a text."""
    return Element("tile", {"label": label, "value": value, "note": note, "style": style})


def measured_tile(label: str, value: float | None, ends: Ends, form: Form = three_digits) -> Element:
    """A number that was measured, with its interval and the digits that this supports, as on cards."""
    note = "no interval: one process" if ends is None else between_at(ends, 0.95, form)
    return tile(label, "–" if value is None else rounded(value, ends, form), note, "main")


def tiles(*elements: Element | None) -> Element:
    """Tiles beside each other."""
    return Element("tiles", {"tiles": list(filter(None, elements))})


def check_tile(check: OutputCheck) -> Element:
    """Whether the outputs are right."""
    tolerance = "" if check.tolerance is None else f", tolerance {check.tolerance:g}"
    error = "" if check.error is None else f"error {check.error:.2g}{tolerance}, against {check.reference}"
    status = "WRONG" if check.status == "mismatch" else check.status
    return tile("Output check", status, error or check.detail, "words")


def box(lines: Sequence[str], wrong: bool = False) -> Element | None:
    """What must not be missed."""
    return Element("box", {"lines": list(lines), "wrong": wrong}) if lines else None


def facts(pairs: Mapping[str, str]) -> Element:
    """Names with what they stand for."""
    return Element("facts", {"pairs": [(name, value) for name, value in pairs.items() if value]})


def caption(text: str) -> Element:
    """A remark on what is shown."""
    return Element("caption", {"text": text})


def selectors(chart: str, choices: Mapping[str, Mapping[str, str]]) -> Element:
    """Selectors of a chart, by their labels; the order is that of the keys of its figures."""
    return Element("selectors", {"chart": chart, "choices": choices})


def alternatives(
    name: str, label: str, options: Mapping[str, str], parts: Mapping[str, Sequence[Element]], chosen: str
) -> Element:
    """A selector that shows one of several parts."""
    values = {"name": name, "label": label, "options": options, "parts": parts, "chosen": chosen}
    return Element("alternatives", values)


def details(summary: str, *parts: Element) -> Element:
    """What is shown on request."""
    return Element("details", {"summary": summary, "parts": parts})


def rows_table(
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    left: Collection[str] = (),
    kinds: Sequence[str] = (),
) -> Element:
    """A table that sorts, and filters by the kind of each row where kinds are given; `left` columns are names."""
    cells = [[Cell(content) if isinstance(content, str) else content for content in row] for row in rows]
    values = {"name": name, "head": list(head), "rows": cells, "left": list(left), "kinds": list(kinds)}
    choices = {"": "all types"} | {kind: kind for kind in sorted(set(kinds))}
    return Element("rows", {**values, "kind_choices": choices})


def small_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    stripes: Sequence[tuple[float, float]] = (),
    title: str = "",
) -> Element:
    """A table of a few rows; a stripe is as wide as its first number, of which the second is filled, in %."""
    values = {"head": list(head), "rows": [list(row) for row in rows], "stripes": list(stripes)}
    return Element("comparison", {**values, "stripes_title": title})


def _places(values: Iterable[float | None], digits: int) -> int:
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    return max(0, digits - (math.floor(math.log10(largest)) if largest > 0 else 0))


def _numbers(values: Sequence[float | None], places: int) -> list[Cell]:
    """Numbers with so many places, so that points stand below each other."""
    # Adding zero turns a rounded -0 into 0.
    return [
        Cell(MISSING)
        if value is None or not math.isfinite(value)
        else Cell(format(value if value >= 0 else round(value, places) + 0.0, f",.{places}f"), value)
        for value in values
    ]


def numbers(values: Sequence[float | None], digits: int = 3) -> list[Cell]:
    """A column of numbers with as many places as its largest needs."""
    return _numbers(values, _places(values, digits))
