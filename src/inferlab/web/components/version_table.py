"""The versions of a project as a table, the original first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nicegui import html
from nicegui.element import Element

from inferlab.records import Model
from inferlab.units import scaled, share, size
from inferlab.views.history import age
from inferlab.web import shell
from inferlab.web.components import model_facts
from inferlab.web.components.version_words import TONES, done_to, fidelity, speedup, where
from inferlab.workspace.versions import Version

_HEADS = ("Version", "Precision", "Zeros", "Parameters", "Size", "Measured Speed-up", "Outputs", "Age")


class VersionTable:
    """Made within the page; `show` draws it anew where something changed."""

    def __init__(self, model: Model, base: str) -> None:
        self._model, self._base = model, base
        self._shown: tuple[Version, ...] | None = None
        with shell.card("il-card-flush il-scroll"):
            self._box: Element = html.table().classes("il-table il-versions").props('data-testid="versions"')

    def show(self, versions: Sequence[Version]) -> None:
        """Show these versions below the original."""
        if self._shown == tuple(versions):
            return
        self._shown = tuple(versions)
        self._box.clear()
        with self._box:
            with html.thead(), html.tr():
                for head in _HEADS:
                    html.th(head).classes("il-right" if head in ("Zeros", "Parameters", "Size") else "")
            with html.tbody():
                self._original()
                for one in versions:
                    self._row(one)

    def _original(self) -> None:
        model = self._model
        with html.tr():
            with html.td():
                html.div("original").classes("il-strong")
                html.div(model_facts.source(model)).classes("il-muted il-small il-break")
            html.td(model_facts.precision(model))
            html.td(model_facts.zeros(model)).classes("il-right il-nowrap")
            html.td(model_facts.parameters(model)).classes("il-right il-nowrap")
            html.td(size(model.size_bytes)).classes("il-right il-nowrap")
            for _ in range(3):
                html.td()

    def _row(self, one: Version) -> None:
        with html.tr().props(f'data-testid="version-{one.id}"'):
            with html.td():
                html.a(one.name, href=f"{self._base}/{one.id}").classes("il-version-link")
                html.div(done_to(one)).classes("il-muted il-small")
                if one.file != "there":
                    shell.chip("file gone" if one.file == "gone" else "file changed", "wrong")
                elif one.problems or one.interrupted:
                    shell.chip("not all was measured", "warn")
            html.td(one.precision)
            html.td("unknown" if one.zero_fraction is None else share(one.zero_fraction)).classes(
                "il-right il-nowrap"
            )
            html.td("unknown" if one.parameters is None else scaled(one.parameters)).classes("il-right il-nowrap")
            html.td(size(one.size_bytes)).classes("il-right il-nowrap")
            with html.td():
                self._gained(one)
            value, detail, on = fidelity(one.distance)
            with html.td().props(f'title="{on}"'):
                html.div(value)
                html.div(detail).classes("il-muted il-small")
            html.td(age(one.entry.created_at, datetime.now(UTC))).classes("il-nowrap")

    @staticmethod
    def _gained(one: Version) -> None:
        if not one.measured:
            html.span("not measured").classes("il-muted")
        for measured in one.measured:
            with html.div().classes("il-version-gain"):
                html.span(speedup(measured))
                shell.chip(measured["verdict"], TONES.get(measured["verdict"], "muted"))
                html.span(where(measured)).classes("il-muted il-small")
