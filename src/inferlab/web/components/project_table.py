"""All projects as a table: what each is of, and its best result."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import html, ui
from nicegui.element import Element

from inferlab.store.entries import CellEntry, ProjectLine
from inferlab.units import count, plural, size
from inferlab.views.history import half_width
from inferlab.web.live import aged
from inferlab.web.components import model_facts
from inferlab.workspace.engines import title

# Fewer are seen at one look.
_SEARCH_FROM = 6
# A page of them; a longer one takes longer to paint than to search.
_PAGE = 20
_HEADS = (("Project", ""), ("Model", ""), ("Size", "il-right"), ("Parameters", "il-right"), ("Best result", ""))
_MORE_HEADS = (("Measured", ""), ("Last change", ""))


class ProjectTable:
    """Shows projects where it is made, with a search box where there are many."""

    def __init__(self) -> None:
        self._lines: Sequence[ProjectLine] = ()
        self._limit = _PAGE
        # What is painted; None before anything is.
        self._rows: list[tuple[ProjectLine, str]] | None = None
        self._search = ui.input(placeholder="Search projects", on_change=lambda: self._paint())
        self._search.props('clearable data-testid="search-projects"').classes("il-search")
        with self._search.add_slot("prepend"):
            ui.icon("search")
        with html.div().classes("il-card il-card-flush"):
            self._box: Element = html.div()
            # It is never painted anew: a click on a button that was just replaced would be lost.
            self._more = ui.button(on_click=self._show_more).props('flat data-testid="more-projects"')
            self._more.classes("il-more")

    def show(self, lines: Sequence[ProjectLine]) -> None:
        """Show these projects, or those of them that are searched for."""
        self._lines = lines
        self._search.set_visibility(len(lines) >= _SEARCH_FROM)
        self._paint()

    def _paint(self) -> None:
        found = [line for line in self._lines if fits(line, self._search.value or "")]
        hidden = len(found) - self._limit
        self._more.set_visibility(hidden > 0)
        self._more.set_text(f"Show {min(_PAGE, hidden)} more of {len(found)}")
        rows = [(line, aged(line.active_at)) for line in found[: self._limit]]
        if rows == self._rows:
            return
        self._rows = rows
        self._box.clear()
        with self._box:
            if not found:
                html.div("No project fits this search.").classes("il-muted il-no-rows")
                return
            with html.div().classes("il-scroll"), html.table().classes("il-table il-projects"):
                with html.thead(), html.tr():
                    for head, classes in (*_HEADS, *_MORE_HEADS):
                        html.th(head).classes(classes)
                with html.tbody():
                    for line, changed in rows:
                        _row(line, changed)

    def _show_more(self) -> None:
        self._limit += _PAGE
        self._paint()


def fits(line: ProjectLine, search: str) -> bool:
    """Whether every word of a search is in a project's name, description or model."""
    project = line.project
    text = " ".join((project.name, project.description, project.model.source, project.model.precision)).lower()
    return all(word in text for word in search.lower().split())


def best(cell: CellEntry | None, digest: str = "") -> tuple[str, str]:
    """A result with its interval, and where it was reached; empty where there is none.

    `digest` is that of the project's model: what has another is a version of it.
    """
    if cell is None or cell.items_per_sec is None:
        return "", ""
    half = half_width(cell.items_per_sec_low, cell.items_per_sec_high)
    fixed = cell.cell
    where = [title(fixed.engine), plural(fixed.num_cores, "core"), f"batch {fixed.batch_size}"]
    where += ["optimised version"] if digest not in ("", fixed.model_digest) else []
    return f"{count(cell.items_per_sec)} items/s{half}", ", ".join(where)


def _row(line: ProjectLine, changed: str) -> None:
    project, model = line.project, line.project.model
    reached, where = best(line.best, model.digest)
    with html.tr().props(f'data-testid="project-{project.id}"'):
        with html.td().classes("il-project-name"):
            html.a(project.name, href=f"/projects/{project.id}").classes("il-row-link")
            if project.description:
                html.div(project.description).classes("il-muted il-small il-cut").props["title"] = (
                    project.description
                )
        with html.td().classes("il-project-model"):
            html.div(model_facts.source(model)).classes("il-cut").props["title"] = model.source
            html.div(f"{model_facts.kind(model)}, {model.precision}").classes("il-muted il-small")
        html.td(size(model.size_bytes)).classes("il-right")
        html.td(model_facts.parameters(model)).classes("il-right")
        with html.td():
            html.div(reached or "no benchmark yet").classes("" if reached else "il-muted")
            if where:
                html.div(where).classes("il-muted il-small")
        html.td(f"{plural(line.benchmarks, 'benchmark')}, {plural(line.profiles, 'profile')}")
        html.td(changed).classes("il-nowrap").props["title"] = f"{line.active_at.astimezone():%c}"
