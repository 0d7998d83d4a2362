"""A dialog over the page, which goes away for good when it is closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import html, ui


@contextmanager
def dialog(title: str, classes: str = "") -> Iterator[ui.dialog]:
    """A dialog, open at once; `with` fills it.

    It belongs to the page rather than to the part whose button opens it: that may be painted anew meanwhile.
    """
    with ui.context.client.content, ui.dialog(value=True) as opened, ui.card().classes(f"il-dialog {classes}"):
        html.h2(title).classes("il-dialog-title")
        yield opened
    opened.on("hide", opened.delete)
