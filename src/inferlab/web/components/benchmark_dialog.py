"""The dialog that asks for a benchmark or a comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from nicegui import html, ui

from inferlab import machine
from inferlab.errors import BadInput, InferlabError
from inferlab.options.plan import COMPARISON, make_plan
from inferlab.records import Model
from inferlab.store.entries import BENCHMARK, Entry, Project
from inferlab.units import plural
from inferlab.views.history import age
from inferlab.web.components.dialogs import Foot, dialog
from inferlab.web.components.fields import (
    EngineSelect,
    NumberChips,
    OptionFields,
    ReasonSelect,
    VersionSelect,
    number,
    shapes_field,
    whole,
)
from inferlab.web.components.jobs import duration
from inferlab.web.desk import Desk
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.entries import given_name, measured_on, reference_to
from inferlab.workspace.jobs import parts_of
from inferlab.workspace.requests import BenchmarkRequest, Side, benchmark_request, has_sequence, own_batch_size
from inferlab.workspace.versions import Version

#: What each scenario is, beside its name.
SCENARIOS = {
    "sync": "one request at a time",
    "async": "several streams, the cores divided among them",
    "elastic": "several streams that share all cores",
    "offline": "everything at once, for throughput",
    "server": "requests arrive at a rate, whether or not the last is done",
}
#: The options that have fields of their own; others are shown as they are declared.
_LAID_OUT = (
    *("engine", "num_cores", "batch_size", "scenario", "num_streams", "rate"),
    *("sequence_length", "input_shapes", "time"),
)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
# With more cores than this, powers of two are offered; any other can be typed in.
_MOST_CHIPS = 16
# Benchmarks that one can be compared with: the newest.
_RECENT = 50
_TAKEN = "As in {}"
_ONLY = "Its core counts, batch sizes and scenario are taken: only the same can be compared."


class BenchmarkDialog:
    """Opens at once; `run` is given what was filled in, and the dialog closes when it succeeds."""

    def __init__(
        self,
        model: Model,
        choices: Sequence[EngineChoice],
        recent: Sequence[Entry],
        run: Callable[[BenchmarkRequest], Awaitable[None]],
        against: str | None = None,
        versions: Sequence[Version] = (),
        version: str | None = None,
        input_shapes: str = "",
    ) -> None:
        self._model, self._choices, self._usual_shapes = model, choices, input_shapes
        self._versions, self._begin_with = versions, version
        self._recent = {entry.id: entry for entry in recent}
        self._turn = 0
        with dialog(
            "Create benchmark", "il-bench-dialog", name="benchmark-dialog", persistent=True
        ) as self._dialog:
            self._what()
            self._comparison(against)
            self._how_much()
            self._how()
            self._foot = Foot(self._dialog, "Run", "run", lambda: run(self.form()))

    async def begin(self) -> None:
        """Show what follows from what it begins with."""
        await self._changed()

    # The fields.

    def _what(self) -> None:
        with html.div().classes("il-fields-2-1"):
            self._engine = EngineSelect(self._choices, "Inference engine").props('data-testid="engine"')
            self._engine.on_value_change(self._changed)
            self._version = VersionSelect(self._versions, self._begin_with).props('data-testid="version"')
            self._version.on_value_change(self._changed)

    def _comparison(self, against: str | None) -> None:
        with html.div().classes("il-row il-bench-compare"):
            compares = against is not None or self._begin_with is not None
            self._compares = ui.checkbox("Enable comparison", value=compares, on_change=self._changed)
            self._compares.props('dense data-testid="enable-comparison"')
            kinds = {"engine": "interleaved", "benchmark": "with an existing benchmark"}
            self._rival = ui.radio(
                kinds, value="engine" if against is None else "benchmark", on_change=self._changed
            ).props('inline dense data-testid="compare-with"')
        with html.div().classes("il-fields-2-1") as self._engine_row:
            others = [choice for choice in self._choices if choice.name != self._engine.value]
            value = next((other.name for other in others if not other.reason), None)
            if self._begin_with is not None:
                # Who comes from a version wants to know what it gained.
                value = self._engine.value
            self._other = EngineSelect(self._choices, "Comparing to", value).props('data-testid="other-engine"')
            self._other.on_value_change(self._changed)
            self._other_version = VersionSelect(self._versions).props('data-testid="other-version"')
            self._other_version.on_value_change(self._changed)
            self._fresh = ui.checkbox("Start every process from nothing", on_change=self._changed)
            self._fresh.props('dense data-testid="fresh"').tooltip(COMPARISON["fresh"].help)
        with html.div() as self._benchmark_row:
            self._against = ui.select(
                {entry.id: _named(entry) for entry in self._recent.values()},
                label="Existing benchmark" if self._recent else "Existing benchmark: none in this project yet",
                value=against if against in self._recent else next(iter(self._recent), None),
                on_change=self._changed,
            ).props(f'hint="{_ONLY}" data-testid="against"')
            self._against.set_enabled(bool(self._recent))

    def _how_much(self) -> None:
        cores = len(machine.cores())
        usual = range(1, cores + 1) if cores <= _MOST_CHIPS else [2**power for power in range(cores.bit_length())]
        self._cores = NumberChips("Core counts", "cores", usual, machine.usable_cores(), cores, self._changed)
        own = own_batch_size(self._model)
        self._batches = NumberChips("Batch sizes", "batches", _BATCH_SIZES, own, None, self._changed)

    def _how(self) -> None:
        with html.div().classes("il-fields-3"):
            names = {name: name for name in SCENARIOS}
            self._scenario = ReasonSelect("scenario", "Scenario", names, "sync", {}, SCENARIOS)
            self._scenario.props('data-testid="scenario"').on_value_change(self._changed)
            self._streams = number("Streams", "streams", self._changed, props="precision=0")
            self._rate = number("Requests per second", "rate", self._changed)
        with html.div().classes("il-fields-3"):
            self._time = number("Time (s)", "time", self._changed, value=10.0)
            self._sequence = None
            if has_sequence(self._model):
                self._sequence = number(
                    "Sequence length", "sequence-length", self._changed, props='placeholder="128"'
                )
        self._shapes = shapes_field(self._model, self._usual_shapes, self._changed)
        self._more = OptionFields("benchmark", _LAID_OUT, self._changed)

    # What follows from what was chosen.

    @property
    def _like(self) -> Entry | None:
        """The benchmark to compare with, whose conditions are taken."""
        chosen = self._compares.value and self._rival.value == "benchmark"
        return self._recent.get(self._against.value) if chosen else None

    def form(self) -> BenchmarkRequest:
        """What was filled in."""
        like = self._like
        scenario = self._scenario.value
        compares = bool(self._compares.value)
        if not self._engine.value:
            raise BadInput("No engine here can run this model. Install one on the start page.")
        if compares and self._rival.value == "benchmark" and like is None:
            raise BadInput("There is no benchmark in this project yet that could be compared with.")
        in_turns = compares and self._rival.value == "engine"
        values = {
            **self._more.values(),
            "engine": (self._engine.value,),
            "num_cores": tuple(self._cores.values),
            "batch_size": tuple(self._batches.values),
            "scenario": (scenario,),
            "num_streams": (whole(self._streams.value, "number of streams") if scenario != "sync" else None,),
            "rate": (self._rate.value if scenario == "server" else None,),
            "sequence_length": (whole(self._sequence.value, "sequence length") if self._sequence else None,),
            "input_shapes": (self._shapes.value or "").strip(),
            "time": 0.0 if self._time.value is None else float(self._time.value),
        }
        return BenchmarkRequest(
            plan=make_plan("", values),
            version=self._version.chosen,
            compare_engine=self._other.value if in_turns else None,
            compare_version=self._other_version.chosen if in_turns else None,
            against=like.id if like else None,
            fresh=bool(in_turns and self._fresh.value),
        )

    async def _changed(self) -> None:
        self._follow()
        await self._tell()

    def _follow(self) -> None:
        """Show and disable what follows."""
        compares, like = bool(self._compares.value), self._like
        self._rival.set_visibility(compares)
        self._engine_row.set_visibility(compares and self._rival.value == "engine")
        self._benchmark_row.set_visibility(compares and self._rival.value == "benchmark")
        if like is None:
            self._cores.free()
            self._batches.free()
        else:
            cells, taken = [cell.cell for cell in like.cells], _TAKEN.format(reference_to(like))
            self._cores.fix(list(dict.fromkeys(cell.num_cores for cell in cells)), taken)
            self._batches.fix(list(dict.fromkeys(cell.batch_size for cell in cells)), taken)
        self._follow_scenario(compares, like)
        self._time.props["hint"] = "For each comparison" if compares and like is None else "For each combination"

    def _follow_scenario(self, compares: bool, like: Entry | None) -> None:
        if like is not None:
            self._scenario.value = like.cells[0].cell.scenario
        scenario, taken = self._scenario.value, _TAKEN.format(reference_to(like)) if like else ""
        _enable(self._scenario, not like, taken or SCENARIOS[scenario])
        alone = "sync has one request at a time" if scenario == "sync" else ""
        _enable(self._streams, not (alone or taken), alone or taken or "Empty: chosen by the cores")
        _enable(
            self._rate,
            scenario == "server" and not taken,
            taken or ("" if scenario == "server" else "server only"),
        )
        if self._sequence is not None:
            _enable(self._sequence, not taken, taken or "Empty: 128")

    async def _tell(self) -> None:
        """Say how long it takes, or what is wrong."""
        self._turn += 1
        turn = self._turn
        try:
            form = self.form()
            estimate = await asyncio.to_thread(
                _predicted, form, self._side(form.version), self._side(form.compare_version)
            )
            error = ""
        except InferlabError as problem:
            estimate, error = "", str(problem)
        if turn == self._turn and not self._dialog.is_deleted:
            self._foot.tell(estimate, error)

    def _side(self, version_id: str | None) -> Side:
        """What stands for a version while nothing is measured: its digest tells it from the others."""
        chosen = next((version for version in self._versions if version.id == version_id), None)
        if chosen is None:
            return Side(self._model)
        return Side(replace(self._model, source=chosen.path, digest=chosen.digest), chosen.name)


async def open_dialog(
    desk: Desk,
    project: Project,
    queued: Callable[[], Awaitable[None]],
    against: str | None = None,
    version: str | None = None,
) -> None:
    """Ask for a benchmark of a project, or of a version against the original; `queued` is called afterwards."""
    workspace = desk.workspace

    async def run(form: BenchmarkRequest) -> None:
        await asyncio.to_thread(workspace.add_benchmark, project.id, form)
        await queued()

    waiting = None
    if workspace.engines.known is None:
        waiting = ui.notification("Checking which engines are available…", timeout=None, spinner=True)
    choices = await asyncio.to_thread(workspace.engines.choices, project.model)
    if waiting is not None:
        waiting.dismiss()
    entries = await asyncio.to_thread(workspace.cards, project.id, _RECENT)
    recent = [entry for entry in entries if entry.kind == BENCHMARK and any(cell.runs for cell in entry.cells)]
    if against is not None and all(entry.id != against for entry in recent):
        recent.append(await asyncio.to_thread(workspace.store.entry, against))
    versions = await asyncio.to_thread(workspace.versions.of_project, project.id)
    opened = BenchmarkDialog(project.model, choices, recent, run, against, versions, version, project.input_shapes)
    await opened.begin()


def _predicted(form: BenchmarkRequest, side: Side, rival: Side) -> str:
    """How much there is to measure, and about how long that takes."""
    request = benchmark_request(form, side, rival)
    cores, batches = len(set(form.plan.num_cores)), len(set(form.plan.batch_sizes))
    cells = cores * batches
    noun = "comparison" if form.compare_engine else "combination"
    of = f" of {plural(cores, 'core count')} and {plural(batches, 'batch size')}" if cells > 1 else ""
    takes = sum(part.expected_s for part in parts_of(request))
    return f"{plural(cells, noun)}{of}, about {duration(takes)}."


def _named(entry: Entry) -> str:
    """An entry in a list."""
    return f"{given_name(entry) or measured_on(entry)} ({age(entry.created_at, datetime.now(UTC))})"


def _enable(field: ui.number | ui.select, on: bool, hint: str) -> None:
    field.set_enabled(on)
    field.props["hint"] = hint
