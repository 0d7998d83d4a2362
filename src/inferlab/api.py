"""The Python API: one function for each question, with the options of the command line by their long names."""

from __future__ import annotations

import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from inferlab.errors import BadInput, GoalNotReached
from inferlab.in_memory import InMemory
from inferlab.lab import Lab
from inferlab.lab.comparison import arm_plans, generation_arms
from inferlab.lab.lab import concerns_tokens, open_lab
from inferlab.machine.conditions import examine
from inferlab.measure import unpaired
from inferlab.measure.queueing import parse_objective
from inferlab.measure.unpaired import SavedResult, compare_saved, results_of
from inferlab.model_results import OptimizationResult, ProfileResult
from inferlab.optimizing.pareto import outcome
from inferlab.optimizing.recipes import version_options
from inferlab.options import FILE, FLAG, WORD, Option, check_keywords, model_name, of_command, refuse_unknown
from inferlab.options.generation import (
    GENERATION,
    ONLY_GENERATION,
    GenerationKeywords,
    TokenCapacityKeywords,
    TokenComparisonKeywords,
    TokenSearchKeywords,
    generation_values,
    make_generation_plan,
)
from inferlab.options.optimization import PROFILE, VERSION, ProfileKeywords, VersionKeywords, make_profile
from inferlab.options.plan import (
    BENCHMARK,
    COMPARISON,
    PER_ARM,
    PLAN,
    BenchmarkKeywords,
    StrPath,
    make_plan,
)
from inferlab.plotting import plot
from inferlab.records import Benchmark, Event, Listener, Objective, Recommendation
from inferlab.records.comparison import ComparedMetric
from inferlab.records.generation import GenerationPlan
from inferlab.results import (
    BenchmarkResult,
    CapacityResult,
    ComparisonResult,
    ComparisonSweepResult,
    DoctorResult,
    GenerationCapacityResult,
    GenerationComparisonResult,
    GenerationRecommendationResult,
    GenerationResult,
    RecommendationResult,
)
from inferlab.store import open_store
from inferlab.views import benchmark_file, optimization, results, text

if TYPE_CHECKING:
    from inferlab.store.store import Store

__all__ = [
    "benchmark",
    "capacity",
    "compare",
    "doctor",
    "generate",
    "open_store",
    "optimize",
    "plot",
    "profile",
    "recommend",
]

#: A path or name, or an onnx.ModelProto or torch.nn.Module, which are imported by those who have them.
ModelLike: TypeAlias = StrPath | Any
#: None is the user's own store, False none.
Where = StrPath | bool | None
#: Hears how much is done, where that is known, and what the log would say.
Progress = Callable[[float | None, str], object]


def benchmark(
    model: ModelLike,
    *,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[BenchmarkKeywords],
) -> BenchmarkResult:
    """Measure how fast a model runs, as `inferlab benchmark` does; lists make a sweep of all combinations.

    A cell that fails is a value in the result, not an exception; Ctrl-C keeps what was measured. With a cluster
    every cell is measured on every machine type of it.
    """
    with _Call("benchmark", BENCHMARK, given, store, progress) as call:
        plan = make_plan(call.model(model), call.values)
        return BenchmarkResult(call.lab.benchmark(plan, call.listener, live=progress is not None))


def compare(
    a: ModelLike | BenchmarkResult | Benchmark | GenerationResult,
    b: ModelLike | BenchmarkResult | Benchmark | GenerationResult | None = None,
    *,
    a_options: Mapping[str, Any] | None = None,
    b_options: Mapping[str, Any] | None = None,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[TokenComparisonKeywords],
) -> ComparisonResult | GenerationComparisonResult:
    """Whether B is faster than A, as `inferlab compare` says it: measured interleaved, in fresh processes.

    Two models; one model on a pair of engines or with options of each arm's own; or two results that were
    measured before (objects, files, ids in the store), which are less sure. Models that generate tokens are
    compared by how fast they do, behind the same prompts, of results that were measured before by `metric`.
    """
    with _Call("compare", _COMPARED, given, store, progress) as call:
        margin, own = call.values["margin"], {"a_options": a_options, "b_options": b_options}
        if _is_saved(a, call.lab) or _is_saved(b, call.lab):
            of_a, of_b = (_saved(one, call.lab, call.values["metric"]) for one in (a, b))
            taken = ("margin",) if of_a.metric is None else ("margin", "metric")
            for name in (*(name for name in given if name not in taken), *filter(own.get, own)):
                raise BadInput(f"Results that were measured before are compared as they are: leave out {name}.")
            return ComparisonResult(compare_saved(of_a, of_b, margin))
        models = [call.model(one) for one in (a, b) if one is not None]
        settings = [_own(*item) for item in own.items()]
        if call.concerns_tokens(models, settings):
            values = generation_values("compare", call.given)
            arms = generation_arms(models, values, settings)
            compared = call.lab.compare_generations(
                *arms, values["metric"], values["time"], margin, call.listener, fresh=values["fresh"]
            )
            return GenerationComparisonResult(compared)
        plans = arm_plans(models, call.values, settings)
        fresh = call.values["fresh"]
        return ComparisonResult(call.lab.compare(*plans, call.values["time"], margin, call.listener, fresh=fresh))


def compare_sweeps(
    a: StrPath | BenchmarkResult | Benchmark | GenerationResult,
    b: StrPath | BenchmarkResult | Benchmark | GenerationResult,
    *,
    margin: float = 0.01,
    metric: str = "tpot",
    store: Store | Where = None,
) -> ComparisonSweepResult:
    """All cells that two benchmarks have in common, as `inferlab compare` says it of two saved sweeps.

    They were not measured interleaved, and are less sure. The intervals hold for all cells together. `metric` is
    what is compared of models that generate tokens.
    """
    with _Call("compare", _COMPARED, {"margin": margin, "metric": metric}, store, None) as call:
        of_a, of_b = (_saved_cells(one, call.lab, call.values["metric"]) for one in (a, b))
        return ComparisonSweepResult(unpaired.compare_sweeps(of_a, of_b, call.values["margin"]))


def profile(
    model: ModelLike,
    *,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[ProfileKeywords],
) -> ProfileResult:
    """Where a model's time goes, and what pruning would gain and cost, as `inferlab profile` says it.

    A profile that was made before (its file, or its id in the store) is read again, for another budget where one
    is given. What an engine could not do is a sentence in `problems`, not an exception.
    """
    with _Call("profile", PROFILE, given, store, progress) as call:
        name = call.model(model)
        if call.lab.is_profile(name):
            for option in given:
                if option != "budget":
                    raise BadInput(f"A profile that was made before is read as it is: leave out {option}.")
            found = ProfileResult(call.lab.saved_profile(name))
            return found.with_budget(call.values["budget"]) if "budget" in given else found
        plan = make_plan(name, call.values, timed=False)
        return ProfileResult(call.lab.profile(plan, make_profile(call.values), call.listener))


def optimize(
    model: ModelLike,
    out: StrPath,
    *,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[VersionKeywords],
) -> OptimizationResult:
    """Make an optimised version of a model, and measure what it cost and gained, as `inferlab optimize` does.

    `measure` names the engines to compare it with the original on, "none" for none; by default that of `engine`.
    What an engine could not do is a sentence in `problems`, not an exception.

    With a `goal` such as "2x faster" recipes are tried until one reaches it within `max_loss`, for `search_time`
    seconds at most. What is chosen is made and measured again, and that measurement decides. Where it misses the
    goal, or leaves it open, GoalNotReached is raised, whose `front` is what was found and `version` what was made;
    with `nearest` what comes nearest to the goal is returned.
    """
    with _Call("optimize", VERSION, given, store, progress) as call:
        wanted = version_options(call.values, FILE.check("out", out))
        plan = make_plan(call.model(model), call.values, timed=False)
        if wanted.goal is None:
            return OptimizationResult(call.lab.optimize(plan, wanted, call.listener))
        nearest = call.values["nearest"]
        found, version = call.lab.reach(plan, wanted, call.listener, nearest)
        made = None if version is None else OptimizationResult(version)
        if made is None or (outcome(found) != "reached" and not nearest):
            raise GoalNotReached(" ".join(optimization.goal_verdict(found)), found, made)
        return made


def recommend(
    model: ModelLike,
    *,
    slo: str | None = None,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[TokenSearchKeywords],
) -> RecommendationResult | GenerationRecommendationResult:
    """Find the best engine, cores, streams and batch size for a model here, as `inferlab recommend` does.

    What is left empty is searched over; what is given limits the search. Of a model that generates tokens it is
    the engine, cores and batch size that generate most tokens per second.
    """
    with _Call("recommend", _HERE, given, store, progress) as call:
        name = call.model(model)
        if call.concerns_tokens([name], slo=slo):
            wanted, values = call.generation_plan(name, slo)
            return GenerationRecommendationResult(
                call.lab.recommend_generation(wanted, values["time"], call.listener)
            )
        objective = None if slo is None else _objective(slo)
        plan = make_plan(name, call.values, timed=False)
        found = call.lab.recommend(plan, objective, call.values["time"], call.listener)
        assert isinstance(found, Recommendation), "only a plan with a cluster has several"
        return RecommendationResult(found)


def capacity(
    model: ModelLike,
    slo: str,
    *,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[TokenCapacityKeywords],
) -> CapacityResult | GenerationCapacityResult:
    """Find the highest rate of requests at which a model meets an objective, as `inferlab capacity` does.

    Requests arrive by a Poisson process, and their response time counts from then. Of a model that generates
    tokens the objective limits what each request may take, such as "ttft<500ms,tpot<50ms".
    """
    with _Call("capacity", _SERVED, given, store, progress) as call:
        name = call.model(model)
        if call.concerns_tokens([name], slo=slo):
            wanted, values = call.generation_plan(name, slo)
            return GenerationCapacityResult(
                call.lab.generation_capacity(wanted, values["attainment"], call.listener)
            )
        objective = _objective(slo)
        plan = make_plan(name, call.values)
        return CapacityResult(call.lab.capacity(plan, objective, call.listener, live=progress is not None))


def generate(
    model: StrPath,
    *,
    store: Store | Where = None,
    progress: Progress | None = None,
    **given: Unpack[GenerationKeywords],
) -> GenerationResult:
    """Measure how fast a language model generates tokens, as `inferlab generate` does; lists make a sweep.

    A cell that fails is a value in the result, not an exception; Ctrl-C keeps what was measured.
    """
    with _Call("generate", GENERATION, given, store, progress) as call:
        plan = make_generation_plan(model_name(model), call.values)
        return GenerationResult(call.lab.generate(plan, call.listener))


def doctor(*, measure: bool = True, progress: Progress | None = None) -> DoctorResult:
    """Whether this machine is fit for measuring, and what to do about what disturbs, as `inferlab doctor` says."""
    facts = examine()
    if FLAG.check("measure", measure):
        facts = (*facts, Lab().smallest_difference(listener=_listener(progress)))
    return DoctorResult(facts)


#: Of functions that take models of either kind; a search is on this machine.
_HERE = {
    **{name: option for name, option in PLAN.items() if option.group != "Cluster"},
    **of_command(ONLY_GENERATION, "recommend"),
}
_SERVED = {**PLAN, **of_command(ONLY_GENERATION, "capacity")}
_COMPARED = {**COMPARISON, **of_command(ONLY_GENERATION, "compare")}


class _Call:
    """One call of a function: its options, checked; objects in memory, as files; the store, open until its end."""

    def __init__(
        self, function: str, known: Mapping[str, Option], given: Any, store: Any, progress: Progress | None
    ) -> None:
        names = [*of_command(known, function), *_EXTRA[function]]
        refuse_unknown(f"{function}()", given, names)
        self.listener = _listener(progress)
        self._stack = ExitStack()
        self._memory = InMemory(self._stack)
        self._function, self._known, self._given, self._store = function, known, dict(given), store

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.push(self._stack)
            given = self._memory.options(self._given)
            self.values = check_keywords(self._function, self._known, given)
            labels = self.values.get("label", ())
            self.lab = self._stack.enter_context(open_lab(self._store, labels, self.listener))
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, checked."""
        return {name: value for name, value in self.values.items() if name in self._given}

    def concerns_tokens(
        self, models: Sequence[str], own: Sequence[Mapping[str, Any]] = (), slo: str | None = None
    ) -> bool:
        """Whether this is about generating tokens."""
        return concerns_tokens(models, self.given, "" if slo is None else WORD.check("slo", slo), own)

    def generation_plan(self, model: str, slo: str | None) -> tuple[GenerationPlan, dict[str, Any]]:
        """The plan of a model that generates, and the values of all options."""
        values = generation_values(self._function, {**self.given, "slo": GENERATION["slo"].check(slo)})
        return make_generation_plan(model, values), values

    def model(self, value: Any) -> str:
        """The name of a model."""
        return self._memory.model(value, self._given)


def _objective(slo: Any) -> Objective:
    return parse_objective(WORD.check("slo", slo))


def _own(name: str, settings: Any) -> dict[str, Any]:
    """The options of one arm alone."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise BadInput(f"{name} is a dictionary such as {{'num_cores': 2}}, not a {type(settings).__name__}.")
    refuse_unknown(name, map(str, settings), ["model", *PER_ARM])
    return {
        key: model_name(value) if key == "model" else PER_ARM[key].check(value) for key, value in settings.items()
    }


def _is_saved(thing: Any, lab: Lab) -> bool:
    if isinstance(thing, str | os.PathLike):
        name = str(os.fspath(thing))
        return results.is_file(name) or lab.has_entry(name)
    return isinstance(thing, BenchmarkResult | Benchmark | GenerationResult)


def _saved_cells(thing: Any, lab: Lab, metric: ComparedMetric) -> list[SavedResult]:
    """All cells of a result that were measured."""
    if not _is_saved(thing, lab):
        raise BadInput("Two results that were measured before are compared: objects, files or ids of the store.")
    if isinstance(thing, str | os.PathLike):
        name = str(os.fspath(thing))
        return benchmark_file.load_all(name, metric) if results.is_file(name) else lab.saved_results(name, metric)
    record = thing if isinstance(thing, Benchmark) else thing.record
    return [cell for cell in results_of(record.model.source, record, metric) if cell is not None]


def _saved(thing: Any, lab: Lab, metric: ComparedMetric) -> SavedResult:
    if not _is_saved(thing, lab):
        raise BadInput("A result that was measured before is compared with another one, not with a model.")
    if isinstance(thing, str | os.PathLike):
        name = str(os.fspath(thing))
        return benchmark_file.load(name, metric) if results.is_file(name) else lab.saved_result(name, metric)
    label = text.generation_label if isinstance(thing, GenerationResult) else text.cell_label
    if not isinstance(thing, Benchmark):
        thing = thing.record
    name = f"{thing.model.source}, {label(thing.outcomes[0].cell)}"
    if len(thing.outcomes) > 1:
        raise BadInput(
            f"This result has {len(thing.outcomes)} cells. Compare two of them: compare(result[0], result[1]), "
            "or all of two results: compare_sweeps(result, other)"
        )
    (result,) = results_of(name, thing, metric)
    if result is None:
        raise BadInput(f"{name} has no measurement: its status is {thing.outcomes[0].status}.")
    return result


def _listener(progress: Progress | None) -> Listener:
    """A listener that passes on what the log would say, each line once."""
    if progress is not None and not callable(progress):
        raise BadInput(f"progress is a function of a fraction and a text, not a {type(progress).__name__}.")
    last = ""

    def listen(event: Event) -> None:
        nonlocal last
        if event.code == "unsaved":
            warnings.warn(f"The result is not saved: {event.data['reason']}", stacklevel=2)
        if progress is None:
            return
        if event.fraction is not None:
            progress(event.fraction, event.code)
        elif (line := text.event(event)) and line != last:
            last = line
            progress(None, line)

    return listen


#: What the arguments mean that are no declared options.
_ARGUMENTS = {
    "model": "A path, a URL or a name such as demo:resnet50; or an onnx.ModelProto or torch.nn.Module object.",
    "a": "The first arm: a model, or a result that was measured before (an object, a file, an id in the store).",
    "b": "The second arm; without it both arms are of model A, on two engines or with options of their own.",
    "out": "The ONNX file to write.",
    "slo": 'An objective, such as "p99<20ms", "median<3ms" or "mean<5ms"; of tokens "ttft<500ms,tpot<50ms".',
    "a_options": "Options of arm A alone, such as {'num_cores': 2}.",
    "b_options": "Options of arm B alone.",
    "measure": "Find out in 15 seconds how small a difference could be seen here.",
    "store": "Where results are saved: a path or URL, an open store, None for your own, False for nowhere.",
    "progress": "A function of a fraction (or None) and a text, called as the work goes on.",
}


def _describe(function: Callable[..., Any], known: Mapping[str, Option]) -> list[str]:
    """Give a function the signature and the documentation of its declared options; returns its other arguments."""
    name = function.__name__
    own = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    declared = of_command(known, name)
    options = [
        inspect.Parameter(
            key, inspect.Parameter.KEYWORD_ONLY, default=one.python_default(name), annotation=one.type
        )
        for key, one in declared.items()
    ]
    first = [one for one in own if one.kind is one.POSITIONAL_OR_KEYWORD]
    parameters = [*first, *options, *(one for one in own if one not in first)]
    meanings = {
        **{
            key: one.help_of.get(name, one.help) + (f" None: {one.unset}." if one.unset else "")
            for key, one in declared.items()
        },
        **{one.name: _ARGUMENTS[one.name] for one in own},
    }
    told = [
        textwrap.fill(
            f"{parameter.name}: {meanings[parameter.name]}",
            100,
            initial_indent="    ",
            subsequent_indent="        ",
        )
        for parameter in parameters
    ]
    lists = "" if function is not benchmark else "\n\nLists of values make a sweep of all combinations."
    function.__doc__ = "\n".join([f"{inspect.getdoc(function)}{lists}", "", "Arguments:", *told])
    function.__signature__ = inspect.signature(function).replace(parameters=parameters)  # type: ignore[attr-defined]
    return [one.name for one in own if one not in first]


_EXTRA = {
    function.__name__: _describe(function, known)
    for function, known in (
        (benchmark, BENCHMARK),
        (compare, _COMPARED),
        (profile, PROFILE),
        (optimize, VERSION),
        (recommend, _HERE),
        (capacity, _SERVED),
        (generate, GENERATION),
        (doctor, {}),
    )
}
