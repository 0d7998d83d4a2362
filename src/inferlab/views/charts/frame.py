"""How all charts look: calm, one accent colour, readable on light and on dark pages."""

from __future__ import annotations

import html
import importlib.util
import logging
import math
import statistics
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.views.tables import rendered

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


ACCENT = "#2f7fd6"
#: Grey with the same contrast to white as to black.
INK = "#777b80"
FAINT = "rgba(127,127,127,0.22)"
HEIGHT = 460
#: Lines of one chart that are not the best.
DASHES = ("solid", "dash", "dot", "dashdot")
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_FONT_SIZE = 13
#: Of the usual character, in pixels; names are cut rather than measured.
_CHARACTER = 7.2
_SUBTITLE_WIDTH = 104
_LABEL_HEIGHT = 18
# So few things have a tick each.
_FEW = 12
_BOTTOM = 64
# To the line on which the title stands.
_ABOVE_TITLE = 30
# Beyond this factor between the largest and the smallest, small values vanish on a linear axis.
_WIDE = 30.0
_MOST_DECADES = 4
# Of charts in cards: room for a line of legend, for none, and for an axis with its title.
_COMPACT_LEGEND, _COMPACT_TOP, _COMPACT_BOTTOM = 30, 14, 50


def made(
    traces: Sequence[dict[str, Any]],
    title: str,
    subtitle: Sequence[str],
    x: dict[str, Any],
    y: dict[str, Any],
    **layout: Any,
) -> Figure:
    """A figure of these traces; titles are foreign text."""
    import plotly.graph_objects as go  # late: it takes a good part of a second

    lines = wrapped(subtitle)
    small = "".join(f"<br><span style='font-size:12px'>{safe(line)}</span>" for line in lines)
    margin = {"l": 72, "r": 32, "t": top_margin(subtitle), "b": _BOTTOM, **layout.pop("margin", {})}
    return go.Figure(
        data=list(traces),
        layout={
            "template": "none",
            "title": {
                "text": f"{safe(title)}{small}",
                "x": 0.015,
                "xanchor": "left",
                "xref": "container",
                "y": 1 - _ABOVE_TITLE / layout.get("height", HEIGHT),
                "yanchor": "top",
                "yref": "container",
                "font": {"size": 16},
            },
            "font": {"family": _FONT, "size": _FONT_SIZE, "color": INK},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "height": HEIGHT,
            "hoverlabel": {"align": "left"},
            # For pages that say it beside the chart.
            "meta": {"title": title, "subtitle": list(subtitle)},
            "modebar": {
                "bgcolor": "rgba(0,0,0,0)",
                "color": INK,
                "activecolor": ACCENT,
                "remove": ["sendChartToCloud", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
            },
            "margin": margin,
            "xaxis": axis(x, showgrid=False),
            "yaxis": axis(y, showgrid=True),
            **layout,
        },
    )


def compact(figure: Figure, height: int) -> Figure:
    """The same figure for a card that has a title of its own: none in it, less room around it, this height."""
    import plotly.graph_objects as go

    return go.Figure(figure).update_layout(title=None, height=height, margin=compact_margin(figure))


def compact_margin(figure: Figure) -> dict[str, int]:
    """The room above and below a figure that has no title in it."""
    lines = 1 + (figure.layout.xaxis.title.text or "").count("<br>")
    return {"t": _COMPACT_LEGEND if figure.layout.showlegend else _COMPACT_TOP, "b": _compact_bottom(lines)}


def compact_plot_height(height: int, lines: int) -> int:
    """The least height of the area between the axes of such a figure, with so many lines below, in pixels."""
    return height - _COMPACT_LEGEND - _compact_bottom(lines)


def _compact_bottom(lines: int) -> int:
    return _COMPACT_BOTTOM + _LABEL_HEIGHT * (lines - 1)


def legend_above() -> dict[str, Any]:
    """A legend in a line above the chart."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12},
        "itemsizing": "constant",
    }


def axis(own: dict[str, Any], showgrid: bool) -> dict[str, Any]:
    """What all axes have in common, and what is this one's own; its title is its text."""
    return {
        "showgrid": showgrid,
        "gridcolor": FAINT,
        "zeroline": False,
        "showline": True,
        "linecolor": INK,
        "ticks": "outside",
        "tickcolor": INK,
        "automargin": True,
        **(_log_ticks(own["range"]) if own.get("type") == "log" else {}),
        **own,
        "title": {"text": own.get("title", ""), "standoff": 12, "font": {"size": _FONT_SIZE}},
    }


def _log_ticks(area: Sequence[float]) -> dict[str, Any]:
    """1, 2, 5, 10 and so on, or only powers of ten where these would run into each other."""
    decades = range(math.floor(area[0]), math.ceil(area[1]) + 1)
    digits = (1, 2, 5) if area[1] - area[0] < _MOST_DECADES else (1,)
    values = [digit * 10.0**decade for decade in decades for digit in digits]
    ticks = [value for value in values if area[0] <= math.log10(value) <= area[1]]
    return {"tickvals": ticks, "ticktext": [f"{value:.12g}" for value in ticks]}


def wrapped(items: Sequence[str], width: int = _SUBTITLE_WIDTH) -> list[str]:
    """Items on as few lines as they need, none of them torn unless it is longer than a line."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" · {item}"
        else:
            lines += textwrap.wrap(item, width)
    return lines


def top_margin(subtitle: Sequence[str]) -> int:
    """Room for a title with these items below it."""
    return _ABOVE_TITLE + 24 + 21 * len(wrapped(subtitle))


def plot_height(height: int, subtitle: Sequence[str]) -> int:
    """The height of the area between the axes, in pixels."""
    return height - top_margin(subtitle) - _BOTTOM


def safe(text: str) -> str:
    """Foreign text, such as a model's name, that Plotly would otherwise read as markup."""
    return html.escape(text, quote=False)


def width(texts: Sequence[str]) -> int:
    """The room that the longest of these texts takes, in pixels."""
    return math.ceil(_CHARACTER * max(map(len, texts), default=0))


def label(text: str, x: float, y: float, color: str = INK, **more: Any) -> dict[str, Any]:
    """A text beside what it names."""
    return {
        "text": safe(text),
        "x": x,
        "y": y,
        "xanchor": "left",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"color": color},
        **more,
    }


def beside(
    texts: Sequence[str], places: Sequence[float], colors: Sequence[str], xshift: int = 8
) -> list[dict[str, Any]]:
    """Texts in a column right of the chart, each at its place on the y axis."""
    return [
        label(text, 1, place, color, xref="paper", xshift=xshift)
        for text, place, color in zip(texts, places, colors, strict=True)
    ]


def scatter(
    mode: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str] | None = None, **more: Any
) -> dict[str, Any]:
    """A trace of marks, lines or texts, and what those read who point at them; None: nothing."""
    hovering = {"hoverinfo": "skip"} if hover is None else {"hoverinfo": "text", "hovertext": list(hover)}
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **hovering, **more}


def error_bars(
    values: Sequence[float], ends: Sequence[Sequence[float] | None], color: str, thickness: float = 1.2
) -> dict[str, Any]:
    """Bars from each value to both ends of its interval, where it has one."""
    both = list(zip(values, ends, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if end is None else end[1] - value for value, end in both],
        "arrayminus": [None if end is None else value - end[0] for value, end in both],
        "color": color,
        "thickness": thickness,
        "width": 4,
    }


def rows(names: Sequence[str]) -> dict[str, Any]:
    """The y axis of things below each other, the first at the top."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [safe(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "ticks": "",
    }


def sparsities(title: str) -> dict[str, Any]:
    """The x axis of levels of pruning."""
    return {"range": [-0.03, 1.03], "tickvals": [0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1], "title": title}


def span(values: Sequence[float], ends: Sequence[float]) -> tuple[str, list[float]]:
    """The type of an axis, logarithmic where values differ widely, and the range that holds the ends too."""
    low, high = min((*values, *ends)), max((*values, *ends))
    if low > 0 and max(values) / min(values) > _WIDE:
        return "log", [math.log10(low) - 0.08, math.log10(high) + 0.1]
    return "linear", [0.0, (high * 1.08) or 1.0]


def axis_title(text: str, kind: str) -> str:
    """The title of an axis, which says where it is logarithmic."""
    return f"{text[:-1]}, logarithmic)" if kind == "log" else text


def place(kind: str, value: float) -> float:
    """Where a value lies on an axis, as its range and annotations count."""
    return math.log10(value) if kind == "log" else value


def depths(count: int, title: str) -> dict[str, Any]:
    """An axis for so many layers, from the first to the last one."""
    return {**whole(-0.6, count - 0.4), "title": title}


def whole(low: float, high: float) -> dict[str, Any]:
    """The range of an axis along which things are counted: no tick stands between two of them."""
    step = {"tick0": 0, "dtick": 1} if high - low <= _FEW else {}
    return {"range": [low, high], "tickformat": "d", **step}


def spread(places: Sequence[float], area: Sequence[float], pixels: float) -> list[float]:
    """The same places, moved apart as far as labels of one line need, within an axis of so many pixels."""
    low, high = area
    gap = _LABEL_HEIGHT * (high - low) / pixels
    order = sorted(range(len(places)), key=lambda index: places[index])
    # Without their gaps, labels that touch fall on one place: the mean of those where they belong.
    groups: list[list[float]] = []
    for rank, index in enumerate(order):
        groups.append([places[index] - rank * gap])
        while len(groups) > 1 and statistics.fmean(groups[-2]) >= statistics.fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    # Half a label below the end: beyond it, be it by a rounding error, a label is not drawn.
    top = high - (len(places) - 0.5) * gap
    settled = [max(low, min(top, statistics.fmean(group))) for group in groups for _ in group]
    settled_at = dict(zip(order, settled, strict=True))
    return [settled_at[index] + order.index(index) * gap for index in range(len(places))]


def height_for(labels: int, subtitle: Sequence[str]) -> int:
    """The height of a chart with so many labels above each other."""
    return max(HEIGHT, (labels + 2) * _LABEL_HEIGHT + top_margin(subtitle) + _BOTTOM)


def level(value: float, color: str, dash: str = "dash") -> dict[str, Any]:
    """A line across the chart."""
    line = {"color": color, "width": 1, "dash": dash}
    return {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": value, "y1": value, "line": line}


def band(low: float, high: float, color: str, upright: bool = False) -> dict[str, Any]:
    """A stripe across the chart, or from its bottom to its top."""
    across, along = ("y", "x") if upright else ("x", "y")
    return {
        "type": "rect",
        f"{across}0": 0,
        f"{across}1": 1,
        f"{across}ref": "paper",
        f"{along}0": low,
        f"{along}1": high,
        "layer": "below",
        "fillcolor": color,
        "line": {"width": 0},
    }


#: Of more bars than this each is narrower than what a screen can show, and their outline is drawn.
MOST_BARS = 1000


def outline(x: Sequence[float], y: Sequence[float | None], color: str, bottom: float = 0.0) -> dict[str, Any]:
    """The outline of bars at every whole number of x; those without a value end at the bottom."""
    return scatter(
        "lines",
        x,
        [bottom if value is None else value for value in y],
        line={"shape": "hvh", "width": 1, "color": color},
        fill="tozeroy",
        fillcolor=color,
        opacity=0.85,
    )


def places(x: Sequence[float], y: Sequence[float | None], hovering: Mapping[str, Any]) -> dict[str, Any]:
    """What those read who point at a bar of an outline; it goes with the layout's hovermode x."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"width": 0, "color": "rgba(0,0,0,0)"},
        **hovering,
    }


def bottom_of(axis: Mapping[str, Any]) -> float:
    """Where bars stand: on a logarithmic axis there is no 0."""
    return float(10.0 ** (axis["range"][0] - 1)) if axis["type"] == "log" else 0.0


def seen(color: str) -> str:
    """Bars that ran elsewhere are hollow, of which an outline would show nothing."""
    return color if color.startswith("#") else FAINT


ENDINGS = (".html", ".png")
_HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_WIDTH = 960
# Sharp on screens of twice the density.
_SCALE = 2
_INSTALL = (
    "Install it (Debian: apt-get install chromium), name one with BROWSER_PATH, or give a name that ends in .html."
)


def page(figure: Figure, title: str = "inferlab") -> str:
    """One self-contained page; nothing is loaded from another host."""
    from markupsafe import Markup

    drawn = figure.to_html(
        full_html=False,
        include_plotlyjs=True,
        include_mathjax=False,
        div_id="chart",
        config={"displaylogo": False, "responsive": True},
    )
    return rendered("chart.html", title=title, figure=Markup(drawn))  # noqa: S704  the library's own


def png(figure: Figure) -> bytes:
    """A picture, drawn by a browser of this machine."""
    if importlib.util.find_spec("kaleido") is None:
        raise BadInput(
            "A PNG needs the package kaleido. Install it (pip install 'inferlab[png]'), or give a name that ends "
            "in .html, which needs nothing more."
        )
    import kaleido
    from choreographer.browsers import Chromium
    from choreographer.errors import BrowserClosedError, BrowserFailedError, ChromeNotFoundError

    settings = {"format": "png", "width": _WIDTH, "height": figure.layout.height, "scale": _SCALE}
    with tempfile.TemporaryDirectory(prefix="inferlab-browser-", ignore_cleanup_errors=True) as home:

        class Guest(Chromium):
            """A browser that leaves the user's home folder as it is."""

            def get_env(self) -> MutableMapping[str, str]:
                """Its folders, all of them in one that goes away."""
                return {**super().get_env(), **dict.fromkeys(_HOMES, home)}

        # Formulas would be drawn by a script that is fetched from another host; no chart has any.
        options = {"mathjax": False, "browser_cls": Guest}
        try:
            with _unheard("choreographer", "kaleido"):
                picture: bytes = kaleido.calc_fig_sync(figure.to_dict(), settings, kopts=options)
        except (ChromeNotFoundError, BrowserFailedError, BrowserClosedError, OSError) as error:
            raise BadInput(
                f"A PNG needs Chrome or Chromium, which is not here or did not start. {_INSTALL}"
            ) from error
    return picture


@contextmanager
def _unheard(*names: str) -> Iterator[None]:
    """Keep these packages' logs quiet: a browser closed in the middle of a word is an error to them."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def check_ending(path: Path) -> None:
    """Refuse a name that says neither HTML nor PNG."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(
            f"A chart is written as .html or .png, by the ending of its name, which {path} does not have."
        )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as HTML or PNG, by the file's ending."""
    check_ending(path)
    content = page(figure, path.stem).encode() if path.suffix.lower() == ".html" else png(figure)
    try:
        with whole_file(path.resolve()) as file:
            file.write(content)
    except OSError as error:
        raise BadInput(f"The chart could not be written to {path}: {error.strerror}.") from error
