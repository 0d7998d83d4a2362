"""The Python API: one function for each question, with the options of the command line by their long names."""

from __future__ import annotations

import builtins
import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from inferlab import kinds, options
from inferlab.errors import BadInput, GoalNotReached
from inferlab.in_memory import InMemory
from inferlab.lab import Lab
from inferlab.lab.comparison import arm_plans
from inferlab.machine.conditions import examine
from inferlab.measure.queueing import parse_objective
from inferlab.measure.unpaired import SavedResult, compare_saved, saved_result
from inferlab.model_results import OptimizationResult, ProfileResult
from inferlab.optimizing.options import VersionOptions
from inferlab.optimizing.pareto import outcome
from inferlab.optimizing.recipe import Options, recipe_of, search_of
from inferlab.plotting import plot
from inferlab.profiling.estimate import BUDGET
from inferlab.profiling.options import ProfileOptions
from inferlab.records import Benchmark, Event, Listener, Plan, Recommendation
from inferlab.results import (
    BenchmarkResult,
    CapacityResult,
    ComparisonResult,
    DoctorResult,
    RecommendationResult,
)
from inferlab.store import open_store, saving_store
from inferlab.views import events, flat, optimization, text

if TYPE_CHECKING:
    from inferlab.store.store import Store

__all__ = [
    "benchmark",
    "capacity",
    "compare",
    "doctor",
    "open_store",
    "optimize",
    "plot",
    "profile",
    "recommend",
]

T = TypeVar("T")
StrPath = str | os.PathLike[str]
#: One value, or a list whose values are all measured.
Some: TypeAlias = T | Sequence[T]
#: A number, or all that there are: None and "max" mean the same.
Count: TypeAlias = int | Literal["max"] | None
#: Text as on the command line, lists in the order of the inputs, or by their names.
Shapes: TypeAlias = str | Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]
#: A path or name, or an onnx.ModelProto or torch.nn.Module, which are imported by those who have them.
ModelLike: TypeAlias = StrPath | Any
#: None is the user's own store, False none.
Where = StrPath | bool | None
#: Hears how much is done, where that is known, and what the log would say.
Progress = Callable[[float | None, str], object]


def benchmark(
    model: ModelLike,
    *,
    engine: Some[str] = "onnxruntime",
    batch_size: Some[int | None] = None,
    sequence_length: Some[int | None] = None,
    num_cores: Some[Count] = None,
    scenario: Some[str] = "async",
    rate: Some[float | None] = None,
    num_streams: Some[Count] = None,
    instances: Some[int] = 1,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    stream_mode: str = "auto",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float | None = None,
    time: float = 10.0,
    warmup_time: float = 2.0,
    processes: int | None = None,
    precision: float | None = None,
    cluster: str | None = None,
    on: Some[str] = (),
    nodes: int = 1,
    price: Mapping[str, float] | None = None,
    wait: float = 0.0,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> BenchmarkResult:
    """Measure how fast a model runs, as `inferlab benchmark` does; lists make a sweep of all combinations.

    A cell that fails is a value in the result, not an exception; Ctrl-C keeps what was measured. With a cluster
    every cell is measured on every machine type of it.
    """
    given = locals()  # All options by name: the table in options.py says what each must be.
    options.refuse_unknown("benchmark()", unknown, [*options.KEYWORDS, "store", "progress"])
    listener = _listener(progress)
    with ExitStack() as stack:
        memory = InMemory(stack)
        plan = options.plan(memory.model(model, given), memory.options(given))
        opened = stack.enter_context(_store(store, listener))
        return BenchmarkResult(Lab(opened).benchmark(plan, listener, live=progress is not None))


def compare(
    a: ModelLike | BenchmarkResult | Benchmark,
    b: ModelLike | BenchmarkResult | Benchmark | None = None,
    *,
    engine: Some[str] = "onnxruntime",
    a_options: Mapping[str, Any] | None = None,
    b_options: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    num_cores: Count = None,
    scenario: str = "async",
    num_streams: Count = None,
    instances: int = 1,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    stream_mode: str = "auto",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float | None = None,
    time: float = 60.0,
    margin: float = 0.01,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> ComparisonResult:
    """Whether B is faster than A, as `inferlab compare` says it: measured interleaved, in fresh processes.

    Two models; one model on a pair of engines or with options of each arm's own; or two results that were
    measured before (objects, files, ids in the store), which are less sure.
    """
    given = {**locals()}  # All options by name: the table in options.py says what each must be.
    options.refuse_unknown("compare()", unknown, _OF_COMPARE)
    margin = kinds.NUMBER.check("margin", margin)
    listener = _listener(progress)
    with _store(store, listener) as opened:
        lab = Lab(opened)
        if _is_saved(a, lab) or _is_saved(b, lab):
            _refuse_options(compare, (*options.KEYWORDS, "a_options", "b_options"), given, _AS_THEY_ARE)
            return ComparisonResult(compare_saved(_saved(a, lab), _saved(b, lab), margin))
        with ExitStack() as stack:
            memory = InMemory(stack)
            models = [memory.model(one, given) for one in (a, b) if one is not None]
            plans = _arms(models, memory.options(given))
            return ComparisonResult(lab.compare(*plans, kinds.NUMBER.check("time", time), margin, listener))


def profile(
    model: ModelLike,
    *,
    performance: bool = True,
    loss: bool = True,
    performance_name: str = "baseline",
    loss_name: str = "baseline",
    levels: Sequence[float] | str | None = None,
    int8: bool = False,
    roofline: bool = False,
    data: StrPath | None = None,
    budget: float = BUDGET,
    verify_estimate: bool = False,
    engine: str = "onnxruntime",
    batch_size: int | None = None,
    sequence_length: int | None = None,
    num_cores: Count = None,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float | None = None,
    time: float = 10.0,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> ProfileResult:
    """Where a model's time goes, and what pruning would buy and cost, as `inferlab profile` says it.

    A profile that was made before (its file, or its id in the store) is read again, for another budget where one
    is given. What an engine could not do is a sentence in `problems`, not an exception.
    """
    given = locals()
    options.refuse_unknown("profile()", unknown, [name for name in given if name not in ("unknown", "model")])
    listener = _listener(progress)
    wanted = ProfileOptions(
        performance=kinds.FLAG.check("performance", performance),
        loss=kinds.FLAG.check("loss", loss),
        performance_name=str(performance_name),
        loss_name=str(loss_name),
        levels=kinds.Levels().maybe("levels", levels),
        int8=kinds.FLAG.check("int8", int8),
        roofline=kinds.FLAG.check("roofline", roofline),
        data_file=kinds.FILE.maybe("data", data),
        time_s=kinds.NUMBER.check("time", time),
        budget=kinds.NUMBER.check("budget", budget),
        verify=kinds.FLAG.check("verify_estimate", verify_estimate),
        approximate=kinds.FLAG.check("loss", loss),
    )
    with ExitStack() as stack:
        memory = InMemory(stack)
        name = memory.model(model, given)
        lab = Lab(stack.enter_context(_store(store, listener)))
        if lab.is_profile(name):
            _refuse_options(profile, _OF_MAKING, given, "A profile that was made before is read as it is")
            found = ProfileResult(lab.saved_profile(name))
            return found if wanted.budget == BUDGET else found.with_budget(wanted.budget)
        return ProfileResult(lab.profile(options.plan(name, memory.options(given)), wanted, listener))


def optimize(
    model: ModelLike,
    out: StrPath,
    *,
    name: str = "",
    sparsity: float | None = None,
    scope: str = "uniform",
    pattern: str = "unstructured",
    layers: Mapping[str, float] | None = None,
    include: Some[str] = (),
    exclude: Some[str] = (),
    minimum: float = 0.0,
    maximum: float = 1.0,
    ends: bool = False,
    budget: float | None = None,
    profile: StrPath | None = None,
    int8: str | None = None,
    weights_only: int | None = None,
    float: str | None = None,
    keep_sensitive: int = 0,
    per_tensor: bool = False,
    cleanup: bool = True,
    recipe: StrPath | None = None,
    goal: str | None = None,
    max_loss: str | builtins.float | None = None,
    search_time: builtins.float | None = None,
    nearest: bool = False,
    data: StrPath | None = None,
    engine: str = "onnxruntime",
    measure: Some[str] | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    num_cores: Count = None,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    timeout: builtins.float | None = None,
    time: builtins.float = 10.0,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> OptimizationResult:
    """Make an optimised version of a model, and measure what it cost and gained, as `inferlab optimize` does.

    `measure` names the engines to compare it with the original on, "none" for none; by default that of `engine`.
    What an engine could not do is a sentence in `problems`, not an exception.

    With a `goal` such as "2x faster" recipes are tried until one reaches it within `max_loss`, for `search_time`
    seconds at most. What is chosen is made and measured again, and that measurement decides. Where it misses the
    goal, or leaves it open, GoalNotReached is raised, whose `front` is what was found and `version` what was made;
    with `nearest` what comes nearest to the goal is returned.
    """
    given = locals()
    options.refuse_unknown("optimize()", unknown, [key for key in given if key not in ("unknown", "model", "out")])
    listener = _listener(progress)
    engines = kinds.check_each(kinds.WORD, "measure", measure if measure is not None else engine)
    profile_id = kinds.FILE.maybe("profile", profile)
    wanted = VersionOptions(
        recipe=recipe_of(Options(**options.version_settings(given)), kinds.WHOLE.check("seed", seed)),
        out=kinds.FILE.maybe("out", out) or "",
        name=str(name),
        data_file=kinds.FILE.maybe("data", data),
        engines=() if engines == ("none",) else engines,
        time_s=kinds.NUMBER.check("time", time),
        performance_id=profile_id,
        loss_id=profile_id,
        **search_of(
            goal, max_loss, None if search_time is None else kinds.NUMBER.check("search_time", search_time)
        ),
    )
    if kinds.FLAG.check("nearest", nearest) and wanted.goal is None:
        raise BadInput("The option nearest belongs to a search: give a goal.")
    with ExitStack() as stack:
        memory = InMemory(stack)
        plan = options.plan(memory.model(model, given), memory.options(given))
        lab = Lab(stack.enter_context(_store(store, listener)))
        if wanted.goal is None:
            return OptimizationResult(lab.optimize(plan, wanted, listener))
        found, version = lab.reach(plan, wanted, listener, nearest)
        made = None if version is None else OptimizationResult(version)
        if made is None or (outcome(found) != "reached" and not nearest):
            raise GoalNotReached(" ".join(optimization.goal_verdict(found)), found, made)
        return made


def recommend(
    model: ModelLike,
    *,
    slo: str | None = None,
    engine: Some[str] = (),
    batch_size: Some[int] = (),
    num_cores: Some[int] = (),
    num_streams: Some[int] = (),
    sequence_length: int | None = None,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    seed: int = 0,
    verify: bool = True,
    timeout: float | None = None,
    time: float = 120.0,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> RecommendationResult:
    """Find the best engine, cores, streams and batch size for a model here, as `inferlab recommend` does.

    What is left empty is searched over; what is given limits the search.
    """
    given = locals()
    options.refuse_unknown("recommend()", unknown, [name for name in given if name not in ("unknown", "model")])
    listener = _listener(progress)
    objective = None if slo is None else parse_objective(kinds.check_each(kinds.WORD, "slo", slo)[0])
    open_ended = ("engine", "batch_size", "num_cores", "num_streams")
    with ExitStack() as stack:
        memory = InMemory(stack)
        name = memory.model(model, {**given, "engine": engine or "onnxruntime"})
        limits = {key: value for key, value in memory.options(given).items() if key != "time"}
        searched = [key for key in open_ended if given[key] is None or given[key] == ()]
        plan = options.plan(name, {key: value for key, value in limits.items() if key not in searched})
        empty: dict[str, Any] = {_FIELDS[key]: () for key in searched}
        plan = replace(plan, **empty)
        lab = Lab(stack.enter_context(_store(store, listener)))
        recommendation = lab.recommend(plan, objective, kinds.NUMBER.check("time", time), listener)
        assert isinstance(recommendation, Recommendation), "only a plan with a cluster has several"
        return RecommendationResult(recommendation)


def capacity(
    model: ModelLike,
    slo: str,
    *,
    engine: str = "onnxruntime",
    batch_size: int | None = None,
    sequence_length: int | None = None,
    num_cores: Count = None,
    num_streams: Count = None,
    instances: int = 1,
    input_shapes: Shapes | None = None,
    input: StrPath | Mapping[str, Any] | None = None,
    thread_pinning: str = "core",
    stream_mode: str = "auto",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float | None = None,
    time: float = 60.0,
    processes: int | None = None,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> CapacityResult:
    """Find the highest rate of requests at which a model keeps an objective, as `inferlab capacity` does.

    Requests arrive by a Poisson process, and their response time counts from then.
    """
    given = locals()
    known = [name for name in given if name not in ("unknown", "model", "slo")]
    options.refuse_unknown("capacity()", unknown, known)
    listener = _listener(progress)
    objective = parse_objective(kinds.check_each(kinds.WORD, "slo", slo)[0])
    with ExitStack() as stack:
        memory = InMemory(stack)
        plan = options.plan(memory.model(model, given), memory.options(given))
        lab = Lab(stack.enter_context(_store(store, listener)))
        return CapacityResult(lab.capacity(plan, objective, listener, live=progress is not None))


def doctor(*, measure: bool = True, progress: Progress | None = None) -> DoctorResult:
    """Whether this machine is fit for measuring, and what to do about what disturbs, as `inferlab doctor` says."""
    facts = examine()
    if kinds.FLAG.check("measure", measure):
        facts = (*facts, Lab().smallest_difference(listener=_listener(progress)))
    return DoctorResult(facts)


_FIELDS = {key: options.KEYWORDS[key].field for key in ("engine", "batch_size", "num_cores", "num_streams")}
_OF_MAKING = [name for name in inspect.signature(profile).parameters
              if name not in ("model", "budget", "store", "progress", "unknown")]  # fmt: skip
_NOT_OF_COMPARE = ("rate", "warmup_time", "processes", "precision", *options.keywords("cluster"))
_OF_COMPARE = [
    *(name for name in options.KEYWORDS if name not in _NOT_OF_COMPARE),
    *("a_options", "b_options", "margin", "store", "progress"),
]
_AS_THEY_ARE = "Results that were measured before are compared as they are"


def _arms(models: Sequence[str], given: dict[str, Any]) -> tuple[Plan, Plan]:
    """Both plans: what is common to them, then what is each one's own."""
    common = {name: given[name] for name in options.KEYWORDS if name in given and name not in ("time", "engine")}
    own = _own("a_options", given), _own("b_options", given)
    return arm_plans(
        models,
        kinds.check_each(kinds.WORD, "engine", given["engine"]),
        common,
        own,
        lambda settings: options.plan(options.model_name(settings["model"]), settings),
    )


def _own(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one arm alone; its engine options add to those of both."""
    settings = given[name]
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise BadInput(f"{name} is a dictionary such as {{'num_cores': 2}}, not a {type(settings).__name__}.")
    options.refuse_unknown(name, map(str, settings), ["model", *options.keywords("cell")])
    common, own = given["engine_option"], settings.get("engine_option")
    if isinstance(common, Mapping) and isinstance(own, Mapping):
        return {**settings, "engine_option": {**common, **own}}
    return dict(settings)


def _is_saved(thing: Any, lab: Lab) -> bool:
    if isinstance(thing, str | os.PathLike):
        name = str(os.fspath(thing))
        return flat.is_file(name) or lab.has_entry(name)
    return isinstance(thing, BenchmarkResult | Benchmark)


def _saved(thing: Any, lab: Lab) -> SavedResult:
    if not _is_saved(thing, lab):
        raise BadInput("A result that was measured before is compared with another one, not with a model.")
    if isinstance(thing, BenchmarkResult):
        thing = thing.record
    if not isinstance(thing, Benchmark):
        name = str(os.fspath(thing))
        return flat.load(name) if flat.is_file(name) else lab.saved_result(name)
    name = f"{thing.model.source}, {text.cell_label(thing.outcomes[0].cell)}"
    if len(thing.outcomes) > 1:
        raise BadInput(
            f"This result has {len(thing.outcomes)} cells. Compare two of them: compare(result[0], result[1])"
        )
    result = saved_result(name, thing, thing.outcomes[0])
    if result is None:
        raise BadInput(f"{name} has no measurement: its status is {thing.outcomes[0].status}.")
    return result


def _refuse_options(
    function: Callable[..., Any], names: Iterable[str], given: Mapping[str, Any], reason: str
) -> None:
    """Options of measuring mean nothing where nothing is measured."""
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    for name in names:
        if name in given and given[name] != defaults[name]:
            raise BadInput(f"{reason}: leave out {name}.")


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
        elif (line := events.event(event)) and line != last:
            last = line
            progress(None, line)

    return listen


@contextmanager
def _store(store: Any, listener: Listener) -> Iterator[Store | None]:
    """The store to save in: an open one stays open."""
    if store is False:
        yield None
        return
    if store is None or isinstance(store, str | os.PathLike):
        with saving_store(None if store is None else str(os.fspath(store)), listener) as opened:
            yield opened
        return
    from inferlab.store.store import Store

    if not isinstance(store, Store):
        raise BadInput(f"store is a path, a URL, an open store, None or False, not a {type(store).__name__}.")
    yield store


#: What each argument means, said once for all functions.
_ARGUMENTS = {
    **{option.keyword: option.meaning for option in options.PLAN},
    "model": "A path, a URL or a name such as demo:resnet50; or an onnx.ModelProto or torch.nn.Module object.",
    "a": "The first arm: a model, or a result that was measured before (an object, a file, an id in the store).",
    "b": "The second arm; without it both arms are of model A, on two engines or with options of their own.",
    "out": "The ONNX file to write.",
    "slo": 'A latency objective, such as "p99<20ms", "median<3ms" or "mean<5ms".',
    "a_options": "Options of arm A alone, such as {'num_cores': 2}.",
    "b_options": "Options of arm B alone.",
    "margin": "The share up to which a difference does not matter.",
    "performance": "Measure the layers' times.",
    "loss": "Measure what pruning each layer costs; without it there is no loss profile and no estimate.",
    "performance_name": "What the performance profile is called.",
    "loss_name": "What the loss profile is called.",
    "levels": 'Shares of zeros to measure times at: a list, "all" or "none".',
    "roofline": "Measure the machine's ceilings, and what limits each layer.",
    "data": "An .npz file with your inputs, and labels if there are any; or demo:digits.",
    "verify_estimate": "Make the estimated model and measure it.",
    "name": "What the version is called; by default as the file.",
    "sparsity": "Share of weights to make zero, the smallest first, such as 0.8.",
    "scope": '"uniform": each layer alike; "global": all weights together with one threshold.',
    "pattern": 'unstructured, block4, N:M such as "2:4", or channel: whole channels go.',
    "layers": "The sparsity of layers by the name of a weight or node, or a regular expression.",
    "include": "Prune only these layers, by name or regular expression.",
    "exclude": "Leave these layers as they are.",
    "minimum": "Least sparsity of a layer.",
    "maximum": "Highest sparsity of a layer.",
    "ends": "Prune the first and the last layer too.",
    "budget": "The loss that pruning may cost; profiles then choose each layer's sparsity.",
    "profile": "A profile made before (its file or id), to take times and losses from.",
    "int8": 'Compute in INT8: "dynamic" or "static" to optimise; True to measure such a copy in a profile.',
    "weights_only": "Store weights in 8 or 4 bits and compute in floats.",
    "float": '"fp16": compute in half precision.',
    "keep_sensitive": "Leave so many layers that lose most in their precision.",
    "per_tensor": "One scale per tensor in INT8, not one per channel.",
    "cleanup": "Fold constants and remove dead nodes first.",
    "recipe": "A recipe file to repeat.",
    "goal": 'What to reach, such as "2x faster" or "30% smaller"; recipes are tried until one does.',
    "max_loss": "The loss that the goal may cost, such as 0.01 or 1%.",
    "search_time": "Seconds that the search may take.",
    "nearest": "Where the goal is not reached, return what comes nearest to it.",
    "measure": "Engines to compare the version with the original on, or none; of doctor: find out in 15 s how "
    "small a difference could be seen.",
    "store": "Where results are saved: a path or URL, an open store, None for your own, False for nowhere.",
    "progress": "A function of a fraction (or None) and a text, called as the work goes on.",
}


def _explain(function: Callable[..., Any]) -> None:
    """Add what each argument means to a function's documentation."""
    names = [
        one.name for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD
    ]
    told = [
        textwrap.fill(f"{name}: {_ARGUMENTS[name]}", 100, initial_indent="    ", subsequent_indent="        ")
        for name in names
    ]
    lists = "" if function is not benchmark else "\n\nLists of values make a sweep of all combinations."
    function.__doc__ = "\n".join([f"{inspect.getdoc(function)}{lists}", "", "Arguments:", *told])


for _function in (benchmark, compare, profile, optimize, recommend, capacity, doctor):
    _explain(_function)
