"""The pieces of a report's page: tiles, tables, selectors and charts; all text is foreign and escaped."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from inferlab.records import Machine, Model, OutputCheck
from inferlab.units import plural, scaled, share, shortened, size

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_LONGEST = 30
# Nothing may be fetched, whatever a model's names say.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
<noscript><p class="box">The charts of this page are drawn by JavaScript, which is turned off.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{plotly}</script>
<script>
{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that sorts: its text, and the number behind it."""

    text: str
    number: float | None = None
    #: Whether it must not be missed.
    wrong: bool = False


class Charts:
    """The figures of a page by what is chosen, every value in them kept once."""

    def __init__(self) -> None:
        self.charts: dict[str, dict[str, Any]] = {}
        self._pool: dict[str, int] = {}

    def add(self, name: str, figures: Mapping[str, Figure]) -> str:
        """The place of a chart; figures go by the values of its selectors, joined by |."""
        views = {}
        for key, figure in figures.items():
            drawn = figure.to_plotly_json()
            traces = [{part: self._kept(value) for part, value in trace.items()} for trace in drawn["data"]]
            views[key] = {"traces": traces, "layout": self._kept(drawn["layout"])}
        self.charts[name] = views
        return f'<div class="chart" id="chart-{name}"></div>'

    def _kept(self, value: Any) -> int:
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


def page(title: str, body: Sequence[str], charts: Charts) -> str:
    """One self-contained page; nothing is loaded from another host."""
    from plotly.offline import get_plotlyjs  # late: it takes a good part of a second

    here = files("inferlab.views") / "page"
    return _PAGE.format(
        policy=_POLICY,
        title=html.escape(title),
        style=(here / "report.css").read_text(encoding="utf-8"),
        body="\n".join(filter(None, body)),
        data=charts.json(),
        plotly=get_plotlyjs(),
        script=(here / "report.js").read_text(encoding="utf-8"),
    )


def document(title: str, head: Sequence[str], sections: Mapping[str, Sequence[str]], charts: Charts) -> str:
    """A page with links to its sections; those without a body are left out."""
    there = {name: body for name, body in sections.items() if body}
    links = " ".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name in there)
    body = [*head, f"<nav>{links}</nav>"]
    for name, section in there.items():
        body += [f'<h2 id="{_anchor(name)}">{html.escape(name)}</h2>', *section]
    return page(title, body, charts)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def heading(name: str, model: Model, more: Sequence[str]) -> str:
    """The name of a model, and below it what it is and whatever `more` is known."""
    zeros = round(model.zero_fraction or 0.0, 3)
    known = [
        size(model.size_bytes),
        "" if model.parameters is None else f"{scaled(model.parameters)} parameters",
        model.precision,
        f"{share(zeros)} zeros" if zeros else "",
        f"digest {model.digest[:12]}" if model.digest else "",
        *more,
    ]
    return f'<h1>{html.escape(name)}</h1>\n<p class="soft">{html.escape(" · ".join(filter(None, known)))}</p>'


def machine(found: Machine) -> str:
    """The machine that measured, in a line."""
    return (
        f"{found.node}: {found.cpu}, {found.architecture}, {plural(found.physical_cores, 'core')}, "
        f"{plural(found.logical_cpus, 'logical CPU')}, {found.system}"
    )


def shapes(found: Mapping[str, Sequence[Any]]) -> str:
    """Inputs with their shapes, in a line."""
    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in found.items())


def escaped(text: str) -> str:
    """Foreign text as part of a page."""
    return html.escape(text)


def tile(label: str, value: str, note: str = "", kind: str = "") -> str:
    """A number with its name; `kind` is main where it stands out, words where it is a text."""
    size = "value words" if kind == "words" else "value"
    below = f'<div class="note">{html.escape(note)}</div>' if note else ""
    return (
        f'<div class="tile {kind}"><div class="label">{html.escape(label)}</div>'
        f'<div class="{size}">{html.escape(value)}</div>{below}</div>'
    )


def tiles(*made: str) -> str:
    """Tiles beside each other."""
    return f'<div class="tiles">{"".join(filter(None, made))}</div>'


def check_tile(check: OutputCheck) -> str:
    """Whether the outputs are right."""
    tolerance = "" if check.tolerance is None else f", tolerance {check.tolerance:g}"
    error = "" if check.error is None else f"error {check.error:.2g}{tolerance}, against {check.reference}"
    status = "WRONG" if check.status == "mismatch" else check.status
    return tile("Output Check", status, error or check.detail, "words")


def box(lines: Sequence[str], wrong: bool = False) -> str:
    """What must not be missed."""
    inner = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return f'<div class="box{" wrong" if wrong else ""}" role="note">{inner}</div>' if lines else ""


def facts(pairs: Mapping[str, str]) -> str:
    """Names with what they stand for."""
    inner = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in pairs.items() if value
    )
    return f"<dl>{inner}</dl>"


def caption(text: str) -> str:
    """A remark on what is shown."""
    return f'<p class="caption">{html.escape(text)}</p>'


def selectors(chart: str, choices: Mapping[str, Mapping[str, str]]) -> str:
    """Selectors of a chart, by their labels; the order is that of the keys of its figures."""
    inner = "".join(
        f'<label>{html.escape(label)}<select data-chart="{chart}">{_options(options)}</select></label>'
        for label, options in choices.items()
    )
    return f'<div class="bar">{inner}</div>'


def alternatives(name: str, label: str, options: Mapping[str, str], parts: Mapping[str, str], chosen: str) -> str:
    """A selector that shows one of several parts."""
    inner = "".join(
        f'<div data-of="{name}" data-key="{html.escape(key)}"{"" if key == chosen else " hidden"}>{part}</div>'
        for key, part in parts.items()
    )
    bar = f'<label>{html.escape(label)}<select data-shows="{name}">{_options(options, chosen)}</select></label>'
    return f'<div class="bar">{bar}</div>{inner}'


def _options(options: Mapping[str, str], chosen: str = "") -> str:
    return "".join(
        f'<option value="{html.escape(key)}"{" selected" if key == chosen else ""}>{html.escape(text)}</option>'
        for key, text in options.items()
    )


def table(
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    left: Collection[str] = (),
    kinds: Sequence[str] = (),
) -> str:
    """A table that sorts, and filters by the kind of each row where kinds are given; `left` columns are names."""
    numeric = [title not in left for title in head]
    titles = "".join(
        f'<th{" class=n" if number else ""}><button type="button">{html.escape(title)}</button></th>'
        for title, number in zip(head, numeric, strict=True)
    )
    body = []
    for index, row in enumerate(rows):
        cells = "".join(_cell(one, number) for one, number in zip(row, numeric, strict=True))
        body.append(f'<tr data-type="{html.escape(kinds[index])}">{cells}</tr>' if kinds else f"<tr>{cells}</tr>")
    made = (
        f'<div class="scroll"><table class="sortable" id="{name}"><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
    if not kinds:
        return made
    options = {"": "all types"} | {kind: kind for kind in sorted(set(kinds))}
    return (
        f'<div class="bar" data-filters="{name}">'
        '<label>Filter<input type="search" placeholder="id, weight, …"></label>'
        f"<label>Layer Type<select>{_options(options)}</select></label>"
        f'<output class="caption">{len(rows)} of {len(rows)} layers</output></div>{made}'
    )


def _cell(one: str | Cell, numeric: bool) -> str:
    if isinstance(one, str):
        one = Cell(one)
    text, also = html.escape(one.text), " wrong" if one.wrong else ""
    if not numeric:
        # Cut in the middle, as ends tell names apart; the whole name is found, sorted by and shown at the pointer.
        return f'<td class="name{also}" title="{text}">{html.escape(shortened(one.text, _LONGEST))}</td>'
    number = "" if one.number is None else f' data-v="{one.number:.9g}"'
    return f'<td class="n{also}"{number}>{text}</td>'


def numbers(values: Sequence[float | None], digits: int = 3) -> list[Cell]:
    """A column of numbers with as many places as its largest needs, so that points stand below each other."""
    known = [None if value is None or not math.isfinite(value) else value for value in values]
    largest = max((abs(value) for value in known if value is not None), default=0.0)
    places = max(0, digits - (math.floor(math.log10(largest)) if largest > 0 else 0))
    form = f",.{places}f"
    # Adding zero turns a rounded -0 into 0.
    return [
        Cell("–")
        if value is None
        else Cell(format(value if value >= 0 else round(value, places) + 0.0, form), value)
        for value in known
    ]
