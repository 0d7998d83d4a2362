"""Figures as files: a page that opens offline, or a picture."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.views.tables import rendered

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
