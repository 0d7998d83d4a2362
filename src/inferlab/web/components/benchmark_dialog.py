"""The dialogs that ask for a benchmark or a comparison, and for what a model that generates tokens can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from nicegui import ui

from inferlab import machine
from inferlab.errors import BadInput
from inferlab.options.generation import GENERATION, ONLY_GENERATION, make_generation_plan
from inferlab.options.plan import COMPARISON, make_plan
from inferlab.records import Model
from inferlab.records.generation import GenerationPlan, GenerativeModel
from inferlab.store.entries import BENCHMARK, Entry, Project
from inferlab.units import plural
from inferlab.web.components.actions import duration, name_in_lists
from inferlab.web.components.forms import (
    EngineBoxes,
    EngineSelect,
    NumberChips,
    OptionForm,
    ReasonSelect,
    RequestDialog,
    VersionSelect,
    engine_choices,
    shapes_field,
)
from inferlab.web.desk import Desk
from inferlab.web.shell import aged, div
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.entries import reference_to
from inferlab.workspace.jobs import parts_of
from inferlab.workspace.requests import (
    BenchmarkRequest,
    GenerationCapacityRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
    GenerationRequest,
    JobRequest,
    Side,
    TokenRequest,
    benchmark_request,
    has_sequence,
    own_batch_size,
    token_request,
)
from inferlab.workspace.versions import Version

#: What each scenario is, beside its name.
SCENARIOS = {
    "sync": "one request at a time",
    "async": "several streams, the cores divided among them",
    "elastic": "several streams that share all cores",
    "offline": "everything at once, for throughput",
    "server": "requests arrive at a rate, whether or not the last is done",
}
#: The options that have fields of another kind; all others are shown as they are declared.
_LAID_OUT = ("engine", "num_cores", "batch_size", "scenario", "input_shapes")
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
# With more cores than this, powers of two are offered; any other can be typed in.
_MOST_CHIPS = 16
# Benchmarks that one can be compared with: the newest.
_RECENT = 50
_TAKEN = "As in {}"
_ONLY = "Its core counts, batch sizes and scenario are taken: only the same can be compared."


class BenchmarkDialog(RequestDialog[BenchmarkRequest]):
    """Asks for a benchmark of a model, or of one of its versions against another."""

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
        self._versions, self._begin_with, self._begin_against = versions, version, against
        self._recent = {entry.id: entry for entry in recent}
        super().__init__("Create benchmark", "benchmark-dialog", run)

    # The fields.

    def _fill(self) -> None:
        with div("il-fields-2-1"):
            self._engine = EngineSelect(self._choices, "Inference engine").props('data-testid="engine"')
            self._engine.on_value_change(self.changed)
            self._version = VersionSelect(self._versions, self._begin_with).props('data-testid="version"')
            self._version.on_value_change(self.changed)
        self._comparison(self._begin_against)
        self._cores = _core_chips(self.changed)
        own = own_batch_size(self._model)
        self._batches = NumberChips("Batch sizes", "batches", _BATCH_SIZES, own, None, self.changed)
        self._how()

    def _comparison(self, against: str | None) -> None:
        with div("il-row il-bench-compare"):
            compares = against is not None or self._begin_with is not None
            self._compares = ui.checkbox("Enable comparison", value=compares, on_change=self.changed)
            self._compares.props('dense data-testid="enable-comparison"')
            kinds = {"engine": "interleaved", "benchmark": "with an existing benchmark"}
            self._rival = ui.radio(
                kinds, value="engine" if against is None else "benchmark", on_change=self.changed
            ).props('inline dense data-testid="compare-with"')
        with div("il-fields-2-1") as self._engine_row:
            others = [choice for choice in self._choices if choice.name != self._engine.value]
            value = next((other.name for other in others if not other.reason), None)
            if self._begin_with is not None:
                # Who comes from a version wants to know what it gained.
                value = self._engine.value
            self._other = EngineSelect(self._choices, "Comparing to", value).props('data-testid="other-engine"')
            self._other.on_value_change(self.changed)
            self._other_version = VersionSelect(self._versions).props('data-testid="other-version"')
            self._other_version.on_value_change(self.changed)
            self._fresh = ui.checkbox("Start every process from nothing", on_change=self.changed)
            self._fresh.props('dense data-testid="fresh"').tooltip(COMPARISON["fresh"].help)
        with div() as self._benchmark_row:
            self._against = ui.select(
                {entry.id: _named(entry) for entry in self._recent.values()},
                label="Existing benchmark" if self._recent else "Existing benchmark: none in this project yet",
                value=against if against in self._recent else next(iter(self._recent), None),
                on_change=self.changed,
            ).props(f'hint="{_ONLY}" data-testid="against"')
            self._against.set_enabled(bool(self._recent))

    def _how(self) -> None:
        self._form = OptionForm("benchmark", self.changed)
        with div("il-fields-3"):
            names = {name: name for name in SCENARIOS}
            self._scenario = ReasonSelect("scenario", "Scenario", names, "sync", {}, SCENARIOS)
            self._scenario.props('data-testid="scenario"').on_value_change(self.changed)
            self._streams = self._form.number("num_streams", props='data-testid="streams"')
            self._rate = self._form.number("rate")
        with div("il-fields-3"):
            self._time = self._form.number("time", 10.0)
            self._sequence = self._form.number("sequence_length") if has_sequence(self._model) else None
        self._shapes = shapes_field(self._model, self._usual_shapes, self.changed)
        self._form.rest((*_LAID_OUT, "sequence_length"))

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
        interleaved = compares and self._rival.value == "engine"
        values = {
            **self._form.values(),
            "engine": (self._engine.value,),
            "num_cores": tuple(self._cores.values),
            "batch_size": tuple(self._batches.values),
            "scenario": (scenario,),
            "input_shapes": (self._shapes.value or "").strip(),
        }
        # What the scenario does not have keeps what was typed, for when it is chosen again.
        values |= {"num_streams": (None,)} if scenario == "sync" else {}
        values |= {"rate": (None,)} if scenario != "server" else {}
        return BenchmarkRequest(
            plan=make_plan("", values),
            version=self._version.chosen,
            compare_engine=self._other.value if interleaved else None,
            compare_version=self._other_version.chosen if interleaved else None,
            against=like.id if like else None,
            fresh=bool(interleaved and self._fresh.value),
        )

    def _follow(self) -> None:
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
        self._follow_scenario(like)
        self._time.props["hint"] = "For each comparison" if compares and like is None else "For each combination"

    def _follow_scenario(self, like: Entry | None) -> None:
        if like is not None:
            self._scenario.value = like.cells[0].cell.scenario
        scenario, taken = self._scenario.value, _TAKEN.format(reference_to(like)) if like else ""
        _enable(self._scenario, not like, taken or SCENARIOS[scenario])
        alone = "sync has one request at a time" if scenario == "sync" else ""
        _enable(self._streams, not (alone or taken), alone or taken or "Empty: chosen by the cores")
        serves = scenario == "server"
        _enable(self._rate, serves and not taken, taken or ("" if serves else "server only"))
        if self._sequence is not None:
            _enable(self._sequence, not taken, taken or "Empty: 128")

    def _predicted(self, form: BenchmarkRequest) -> str:
        request = benchmark_request(form, self._side(form.version), self._side(form.compare_version))
        cores, batches = len(set(form.plan.num_cores)), len(set(form.plan.batch_sizes))
        cells = cores * batches
        noun = "comparison" if form.compare_engine else "combination"
        of = f" of {plural(cores, 'core count')} and {plural(batches, 'batch size')}" if cells > 1 else ""
        return f"{plural(cells, noun)}{of}, about {_takes(request)}."

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
        await desk.change(workspace.add_benchmark, project.id, form)
        await queued()

    choices = await engine_choices(desk, project.model)
    entries = await asyncio.to_thread(workspace.cards, project.id, _RECENT)
    recent = [entry for entry in entries if entry.kind == BENCHMARK and any(cell.runs for cell in entry.cells)]
    if against is not None and all(entry.id != against for entry in recent):
        recent.append(await asyncio.to_thread(workspace.store.entry, against))
    versions = await asyncio.to_thread(workspace.versions.of_project, project.id)
    opened = BenchmarkDialog(project.model, choices, recent, run, against, versions, version, project.input_shapes)
    await opened.changed()


def _core_chips(changed: Callable[[], Awaitable[None]]) -> NumberChips:
    """Chips for the core counts of this machine."""
    cores = len(machine.cores())
    offered = range(1, cores + 1) if cores <= _MOST_CHIPS else [2**power for power in range(cores.bit_length())]
    return NumberChips("Core counts", "cores", offered, machine.usable_cores(), cores, changed)


def _named(entry: Entry) -> str:
    """An entry in a list."""
    return f"{name_in_lists(entry)} ({aged(entry.created_at)})"


def _enable(field: ui.number | ui.select, on: bool, hint: str) -> None:
    field.set_enabled(on)
    field.props["hint"] = hint


def _takes(request: JobRequest) -> str:
    """About how long a job takes."""
    return duration(sum(part.expected_s for part in parts_of(request)))


#: Of a generation, by keyword: what its chips are called, and what is offered where it fits into the context.
_OFFERED = {
    "prompt": ("Prompt length (tokens)", (16, 32, 128, 512, 2048)),
    "new": ("New tokens", (16, 32, 64, 128, 256)),
    "depth": ("Depth (tokens in the cache before the prompt)", (0, 256, 512, 2048, 8192)),
}
_BATCHES = (1, 2, 4, 8, 16)
_LAID_OUT_FOR_TOKENS = (*_OFFERED, "engine", "batch_size", "num_cores", "scenario", "slo")
#: What can be asked of a model that generates: a scenario, or what is made of several measurements.
_TASKS = {
    "sync": "one batch after the other",
    "server": SCENARIOS["server"],
    "compare": "two engines generate the same tokens, interleaved",
    "capacity": "the highest rate of requests of which enough meet an objective",
    "recommend": "the engine, cores and batch size that generate most tokens per second",
}
_TITLES = {"compare": "compare engines", "capacity": "highest rate", "recommend": "best configuration"}
_WITH_OBJECTIVE = ("server", "capacity", "recommend")
# What a comparison has beside its plans, by keyword.
_OF_COMPARISONS = {"metric": ONLY_GENERATION["metric"], **{name: COMPARISON[name] for name in ("margin", "fresh")}}


class GenerationDialog(RequestDialog[TokenRequest]):
    """Asks for a generation: engines, prompts, tokens, depths, batch sizes, cores, and how long."""

    def __init__(
        self,
        model: GenerativeModel,
        choices: Sequence[EngineChoice],
        run: Callable[[TokenRequest], Awaitable[None]],
    ) -> None:
        self._model, self._choices = model, choices
        super().__init__("Create generation", "generation-dialog", run)

    def _fill(self) -> None:
        names = {name: _TITLES.get(name, name) for name in _TASKS}
        self._scenario = ReasonSelect("scenario", "What to measure", names, "sync", {}, _TASKS)
        self._scenario.props('data-testid="scenario"').on_value_change(self._task_changed)
        self._engines = EngineBoxes("Engines", "engine", self._choices, self.changed)
        self._chips = {name: self._number_chips(name, *offered) for name, offered in _OFFERED.items()}
        self._chips["batch_size"] = NumberChips("Batch sizes", "batches", _BATCHES, 1, None, self.changed)
        self._chips["num_cores"] = _core_chips(self.changed)
        self._form = OptionForm("generate", self.changed, GENERATION)
        with div("il-fields-2"):
            self._time = self._form.number("time", GenerationPlan("").time_s)
            self._rate = self._form.number("rate")
        with div() as self._slo_row:
            self._slo = ui.input("Objective (optional)", on_change=self.changed)
            self._slo.props('stack-label debounce=300 placeholder="ttft<500ms,tpot<50ms" data-testid="slo"')
            self._slo.props["hint"] = "What a request must meet to count as good"
        self._compared = OptionForm("compare", self.changed, _OF_COMPARISONS)
        with div("il-fields-3") as self._compare_row:
            for keyword in _OF_COMPARISONS:
                self._compared.field(keyword)
        self._form.rest(_LAID_OUT_FOR_TOKENS)

    def _number_chips(self, name: str, label: str, offered: Sequence[int]) -> NumberChips:
        """Chips for what fits into the context; where even the usual value does not, for the largest that does."""
        most, usual = self._model.context, GENERATION[name].default[0]
        fitting = [value for value in offered if most is None or value < most] or [1]
        chosen = usual if most is None or usual < most else fitting[0]
        return NumberChips(label, name, fitting, chosen, most, self.changed)

    def form(self) -> TokenRequest:
        """What was filled in."""
        engines, task = self._engines.values, str(self._scenario.value)
        if not self._engines.any_offered:
            raise BadInput("No engine here can generate with this model. Install one on the start page.")
        if not engines:
            raise BadInput("Choose an engine.")
        serves = task == "server"
        if serves and not self._rate.value:
            raise BadInput("Give the requests per second that arrive.")
        slo = (self._slo.value or "").strip()
        values = {
            **self._form.values(),
            **{name: tuple(chips.values) for name, chips in self._chips.items()},
            "engine": engines,
            "scenario": "server" if serves else "sync",
            "slo": GENERATION["slo"].check(slo or None) if task in _WITH_OBJECTIVE else (),
        }
        values |= {} if serves else {"rate": (None,)}
        plan = make_generation_plan("", values)
        if task == "compare":
            a, b = replace(plan, engines=engines[:1]), replace(plan, engines=engines[1:])
            return GenerationComparisonRequest(a, b, time_s=plan.time_s, **self._compared.values())
        if task == "capacity":
            return GenerationCapacityRequest(plan, values["attainment"])
        if task == "recommend":
            return GenerationRecommendationRequest(plan, plan.time_s)
        return GenerationRequest(plan)

    async def _task_changed(self) -> None:
        """Begin with the time that what was chosen usually takes."""
        self._time.set_value(GENERATION["time"].default_of(str(self._scenario.value)))
        await self.changed()

    def _follow(self) -> None:
        task = str(self._scenario.value)
        self._scenario.props["hint"] = _TASKS[task]
        self._time.props["hint"] = "In all" if task in _TITLES else "For each combination"
        _enable(self._rate, task == "server", "" if task == "server" else "server only")
        self._slo_row.set_visibility(task in _WITH_OBJECTIVE)
        self._compare_row.set_visibility(task == "compare")

    def _predicted(self, form: TokenRequest) -> str:
        request = token_request(form, self._model)
        if not isinstance(request, GenerationRequest):
            return f"About {_takes(request)}."
        # The first part is reading the model.
        return f"{plural(len(parts_of(request)) - 1, 'combination')}, about {_takes(request)}."


async def open_generation_dialog(desk: Desk, project: Project, queued: Callable[[], Awaitable[None]]) -> None:
    """Ask for a generation of a project; `queued` is called afterwards."""
    model = project.generative
    assert model is not None, "only a model that generates has this dialog"

    async def run(form: TokenRequest) -> None:
        await desk.change(desk.workspace.add_generation, project.id, form)
        await queued()

    await GenerationDialog(model, await engine_choices(desk, model), run).changed()
