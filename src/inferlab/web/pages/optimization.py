"""Optimization: the versions of a project's model, the next one with its estimates, and each as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from nicegui import ui

from inferlab.errors import BadInput, InferlabError
from inferlab.options import field_values
from inferlab.options.plan import PLAN
from inferlab.profiling.gains import check_budget, check_calibration
from inferlab.records import Model
from inferlab.records.optimization import Recipe, Scheme
from inferlab.records.profile import BUDGET
from inferlab.units import plural, size
from inferlab.views.fields import in_brackets
from inferlab.views.optimization import recipe as recipe_words
from inferlab.web import shell
from inferlab.web.components import models
from inferlab.web.components.actions import ProjectJobs, ProjectWork, duration, offer_undo
from inferlab.web.components.charts import loaded
from inferlab.web.components.forms import EngineBoxes, OptionForm, RequestDialog, engine_choices
from inferlab.web.components.uploads import HINT, DataField
from inferlab.web.components.version_editor import VersionEditor
from inferlab.web.desk import Desk
from inferlab.web.pages.version import VersionPage, fidelity
from inferlab.web.sections import (
    Opened,
    named,
    only_generates,
    project_page,
)
from inferlab.web.shell import aged, div, p, span, tag
from inferlab.workspace.engines import EngineChoice, title
from inferlab.workspace.jobs import parts_of
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import (
    PATTERNS,
    SCHEMES,
    Basis,
    Version,
    VersionRequest,
    free_name,
    version_request,
)


def register(desk: Desk) -> None:
    """Define the pages."""

    @shell.page("/projects/{project_id}/optimization")
    async def optimization(
        project_id: str,
        removed: str = "",
        preset: str = "",
        performance: str = "",
        loss: str = "",
        budget: str = "",
    ) -> None:
        async with project_page(desk, project_id, "optimization") as opened:
            if only_generates(opened):
                return
            await offer_undo(desk, removed, f"/projects/{project_id}/optimization", "the version")
            await _Overview(desk, opened, preset, (performance, loss), budget).build()

    @shell.page("/projects/{project_id}/optimization/{version_id}")
    async def version(project_id: str, version_id: str) -> None:
        async with project_page(desk, project_id, f"optimization/{version_id}") as opened:
            if not await asyncio.to_thread(desk.workspace.store.projects.belongs, project_id, version_id):
                gone = "This project has no such version: it may have been removed."
                shell.empty("No such version", gone, "no-version")
                return
            await VersionPage(desk, opened, version_id).build()


@dataclass(frozen=True, slots=True)
class _Content:
    """What the page begins with; without a basis nothing can be pruned, for the reason given."""

    versions: list[Version]
    basis: Basis | None
    problem: str


class _Overview:
    """All versions, and the editor of the next one."""

    def __init__(self, desk: Desk, opened: Opened, preset: str, profiles: tuple[str, str], budget: str) -> None:
        self._desk, self._opened, self._project = desk, opened, opened.project
        self._preset, self._budget = preset, BUDGET
        # What an address names may be gone by now.
        known = (named(opened.own, "performance"), named(opened.own, "loss"))
        self._performance_id, self._loss_id = (
            name if name in names else None for name, names in zip(profiles, known, strict=True)
        )
        with suppress(ValueError, InferlabError):
            given = float(budget)
            check_budget(given)
            self._budget = given
        self._base = f"/projects/{opened.project.id}/optimization"
        self._editor: VersionEditor | None = None

    async def build(self) -> None:
        """Fill the page."""
        with shell.titled("Optimization"):
            self._button = ui.button("Create version", icon="add", on_click=self._create)
            self._button.props('data-testid="create-version"').set_enabled(False)
        content = await loaded(self._read)
        shell.section("Versions")
        table = VersionTable(self._project.model, self._base)
        table.show(content.versions)
        self._jobs = _version_jobs(self._desk, self._project.id, self._base, content.versions, table.show)
        await self._jobs.refresh()
        shell.section("New version", "estimates follow the sliders")
        if content.basis is None:
            self._precision(content.problem)
            return
        own = self._opened.own
        names = named(own, "performance"), named(own, "loss")
        self._editor = VersionEditor(content.basis, self._rebase, *names, self._budget)
        self._button.set_enabled(True)
        await self._editor.begin(self._preset)

    def _precision(self, problem: str) -> None:
        """What can be chosen of a version where nothing can be pruned."""
        if self._project.model.kind != "onnx":
            shell.empty("No versions", "Only ONNX models can be optimised. Export the model to ONNX first.")
            return
        with shell.card("il-version-new"), div("il-column", name="nothing-to-prune"):
            p("", f"Nothing can be pruned: {problem} Its precision can be changed.")
            options = {str(scheme): text for scheme, text in SCHEMES.items()}
            self._scheme = ui.select(options, label="Precision", value="static").props('data-testid="scheme"')
        self._button.set_enabled(True)

    def _draft(self, taken: set[str]) -> VersionRequest:
        """The version that was put together so far."""
        if self._editor is None:
            scheme: Scheme = self._scheme.value
            name = SCHEMES[scheme].replace(", ", " ")
            return VersionRequest(free_name(name, taken), quantization=scheme)
        draft, basis = self._editor.draft, self._editor.basis
        form = draft.form(free_name(draft.suggested(), taken), basis)
        return self._desk.workspace.as_profiled(basis.performance_id, form)

    def _recipe(self, form: VersionRequest) -> Recipe | None:
        """What the profile says is done; None where the form says it itself."""
        return self._editor.basis.estimated(form) if self._editor is not None and form.as_estimated else None

    def _read(self) -> _Content:
        versions = self._desk.workspace.versions.of_project(self._project.id)
        try:
            basis = self._desk.workspace.read_basis(self._project.id, self._performance_id, self._loss_id)
            if not basis.loss.layers:
                raise BadInput("This model has no weights that could be pruned.")
        except InferlabError as error:
            return _Content(versions, None, str(error))
        return _Content(versions, basis, "")

    async def _rebase(self, performance_id: str | None, loss_id: str | None) -> Basis:
        return await asyncio.to_thread(self._desk.workspace.read_basis, self._project.id, performance_id, loss_id)

    async def _create(self) -> None:
        workspace, project = self._desk.workspace, self._project
        versions = await asyncio.to_thread(workspace.versions.entries, project.id)
        form = await asyncio.to_thread(self._draft, {version.brief["name"] for version in versions})
        recipe = await asyncio.to_thread(self._recipe, form)

        async def run(asked: VersionRequest) -> None:
            await self._desk.change(workspace.add_version, project.id, asked)
            await self._jobs.refresh()

        choices = await engine_choices(self._desk, project.model)
        await VersionDialog(project.model, choices, form, run, workspace.sources, recipe).changed()


def _version_jobs(
    desk: Desk,
    project_id: str,
    base: str,
    versions_before: Sequence[Version],
    on_versions: Callable[[Sequence[Version]], None],
) -> ProjectJobs:
    """The jobs that make versions of a project; `shown` is given the versions whenever they may have changed."""
    workspace = desk.workspace

    def read() -> ProjectWork:
        jobs_there = workspace.store.jobs.of_project(project_id)
        # Without its entry, a job that has ended is one whose version was removed.
        jobs = [job for job in jobs_there if job.kind == "optimization" and (job.alive or job.entry_id is None)]
        versions = workspace.versions.of_project(project_id)
        return ProjectWork(jobs, {version.id: version.name for version in versions}, versions)

    def show(work: ProjectWork) -> bool:
        on_versions(work.entries)
        return True

    news = "The version “{}” is made and measured. Open it."
    return ProjectJobs(desk, read, show, [version.id for version in versions_before], base, news)


def done_to(version: Version) -> str:
    """What was done to the original."""
    words = []
    if version.pattern:
        words.append(f"pruned ({PATTERNS.get(version.pattern, version.pattern).lower()})")
    if version.scheme:
        words.append(SCHEMES.get(version.scheme, version.scheme))  # type: ignore[call-overload]
    return ", ".join(words) or "cleaned up"


def speedup(measured: Mapping[str, Any]) -> str:
    """How many times as fast, with the interval."""
    ends = measured["speedup_interval"]
    span = in_brackets(ends) or ", no interval"
    return f"{measured['speedup']:.2f} ×{span}"


def where(measured: Mapping[str, Any]) -> str:
    """On what it was measured."""
    return f"{title(measured['engine'])}, cores {measured['num_cores']}, batch {measured['batch_size']}"


_HEADS = ("Version", "Precision", "Zeros", "Parameters", "Size", "Measured speed-up", "Outputs", "Age")


class VersionTable:
    """Made within the page; `show` draws it again where something changed."""

    def __init__(self, model: Model, base: str) -> None:
        self._model, self._base = model, base
        with shell.card("il-card-flush il-scroll"):
            self._part = shell.Part()

    def show(self, versions: Sequence[Version]) -> None:
        """Show these versions below the original."""
        right = ("Zeros", "Parameters", "Size")
        rows = [self._original(), *map(self._row, versions)]
        self._part.show(tuple(versions), lambda: shell.table(_HEADS, rows, right, "il-versions", "versions"))

    def _original(self) -> shell.Row:
        def name() -> None:
            div("il-strong", "original")
            div("il-muted il-small il-break", models.source(self._model))

        return shell.Row((name, models.precision(self._model), *_facts(self._model), "", "", ""))

    def _row(self, version: Version) -> shell.Row:
        def name() -> None:
            tag("a", "il-version-link", version.name, href=f"{self._base}/{version.id}")
            div("il-muted il-small", done_to(version))
            if version.file != "there":
                shell.chip("file gone" if version.file == "gone" else "file changed", "wrong")
            elif version.problems or version.interrupted:
                shell.chip("not all was measured", "warn")

        def gained() -> None:
            if not version.measured:
                span("il-muted", "not measured")
            for comparison in version.measured:
                with div("il-version-gain"):
                    span("", speedup(comparison))
                    shell.verdict(comparison["verdict"])
                    span("il-muted il-small", where(comparison))

        def outputs() -> None:
            value, detail, on = fidelity(version.distance)
            div("", value, title=on)
            div("il-muted il-small", detail)

        made = aged(version.entry.created_at)
        cells = (name, version.precision, *_facts(version), gained, outputs, lambda: span("il-nowrap", made))
        return shell.Row(cells, name=f"version-{version.id}")


def _facts(model: Model | Version) -> tuple[str, str, str]:
    return models.zeros(model), models.parameters(model), size(model.size_bytes)


_GENERATED = "Without data, ranges are found on generated inputs, which are not like yours."


class VersionDialog(RequestDialog[VersionRequest]):
    """Asks how a version is called, and on what it is measured."""

    def __init__(
        self,
        model: Model,
        choices: Sequence[EngineChoice],
        draft: VersionRequest,
        run: Callable[[VersionRequest], Awaitable[None]],
        sources: Sources,
        recipe: Recipe | None = None,
    ) -> None:
        self._recipe = recipe
        self._model, self._choices, self._draft, self._sources = model, choices, draft, sources
        super().__init__("Create version", "version-dialog", run, "Create")

    def _fill(self) -> None:
        draft = self._draft
        p("il-muted", _described(draft, self._recipe), name="version-what")
        self._name = ui.input("Name", value=draft.name, on_change=self.changed)
        self._name.props('data-testid="version-name"')
        self._engines = EngineBoxes(
            "Measure against the original on", "on", self._choices, self.changed, next(iter(draft.engines), "")
        )
        self._form = OptionForm("optimize", self.changed)
        with div("il-fields-3"):
            self._form.number("time", draft.plan.time_s, 'hint="For each engine"')
            self._form.cell(self._model, draft.plan)
        known = "demo:digits" if self._model.source == "demo:digits" else ""
        hint = f"{HINT} {_GENERATED}" if draft.quantization == "static" else HINT
        self._data = DataField(self._sources, draft.data or known, hint, self.changed)

    def form(self) -> VersionRequest:
        """What was filled in."""
        return replace(
            self._draft,
            name=self._name.value or "",
            engines=self._engines.values,
            plan=replace(self._draft.plan, **field_values(PLAN, self._draft.plan, self._form.values())),
            data=self._data.source,
        )

    def _predicted(self, form: VersionRequest) -> str:
        if self._recipe is not None:
            check_calibration(self._recipe, form.data)
        request = version_request(form, self._model, form.levels, self._recipe)
        takes = duration(sum(part.expected_s for part in parts_of(request)))
        engines = plural(len(form.engines), "engine") if form.engines else "no engine"
        return f"Made, then measured on {engines}: about {takes}."


def _described(draft: VersionRequest, recipe: Recipe | None) -> str:
    """What will be made."""
    if recipe is not None:
        return f"As estimated: {recipe_words(recipe)}."
    levels = sorted(draft.levels.values())
    words = []
    if levels:
        span = (
            f"{100 * levels[0]:g} %"
            if levels[0] == levels[-1]
            else f"{100 * levels[0]:g} to {100 * levels[-1]:g} %"
        )
        words.append(f"{plural(len(levels), 'layer')} pruned to {span} zeros ({draft.pattern})")
    if draft.quantization:
        words.append(SCHEMES[draft.quantization])
    return ", then ".join(words) or "Nothing would change."
