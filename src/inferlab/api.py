"""The Python API: one function for each question, with the options of the command line by their long names."""

from __future__ import annotations

import builtins
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from inferlab import arms, asked, saving
from inferlab.errors import BadInput, GoalNotReached
from inferlab.lab import Lab
from inferlab.measure.saved import Saved, compare_saved
from inferlab.optimization_result import OptimizationResult
from inferlab.optimizing.asked import Asked
from inferlab.optimizing.front import outcome
from inferlab.optimizing.options import recipe_of, search_of
from inferlab.plotting import plot
from inferlab.profile_result import ProfileResult
from inferlab.profiling.asked import Wanted
from inferlab.profiling.estimate import BUDGET
from inferlab.records import Benchmark, Event, Listener, Plan
from inferlab.render import events, files, front, saved, text
from inferlab.results import BenchmarkResult, ComparisonResult
from inferlab.store import open_store

if TYPE_CHECKING:
    from inferlab.store.store import Store

__all__ = ["benchmark", "compare", "open_store", "optimize", "plot", "profile"]

T = TypeVar("T")
StrPath = str | os.PathLike[str]
#: One value, or a list whose values are all measured.
Some: TypeAlias = T | Sequence[T]
#: None is the user's own store, False none.
Where = StrPath | bool | None
#: Hears how much is done, where that is known, and what the log would say.
Progress = Callable[[float | None, str], object]


def benchmark(
    model: StrPath,
    *,
    engine: Some[str] = "onnxruntime",
    batch_size: Some[int | None] = None,
    sequence_length: Some[int | None] = None,
    num_cores: Some[int | None] = None,
    scenario: Some[str] = "async",
    rate: Some[float | None] = None,
    num_streams: Some[int | None] = None,
    instances: Some[int] = 1,
    input_shapes: str | None = None,
    input: StrPath | None = None,
    thread_pinning: str = "core",
    stream_mode: str = "auto",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float = 300.0,
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
    given = locals()  # All options by name: the table in asked.py says what each must be.
    asked.refuse_unknown("benchmark()", unknown, [*asked.KEYWORDS, "store", "progress"])
    plan = asked.plan(asked.model_name(model), given)
    listener = _listener(progress)
    with _store(store, listener) as opened:
        return BenchmarkResult(Lab(opened).benchmark(plan, listener, live=progress is not None))


def compare(
    a: StrPath | BenchmarkResult | Benchmark,
    b: StrPath | BenchmarkResult | Benchmark | None = None,
    *,
    engine: Some[str] = "onnxruntime",
    a_options: Mapping[str, Any] | None = None,
    b_options: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    num_cores: int | None = None,
    scenario: str = "async",
    num_streams: int | None = None,
    instances: int = 1,
    input_shapes: str | None = None,
    input: StrPath | None = None,
    thread_pinning: str = "core",
    stream_mode: str = "auto",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float = 300.0,
    time: float = 60.0,
    margin: float = 0.01,
    store: Store | Where = None,
    progress: Progress | None = None,
    **unknown: Any,
) -> ComparisonResult:
    """Whether B is faster than A, as `inferlab compare` says it: measured in turns, in fresh processes.

    Two models; one model on a pair of engines or with options of each arm's own; or two results that were
    measured before (objects, files, ids in the store), which are less sure.
    """
    given = {**locals()}  # All options by name: the table in asked.py says what each must be.
    asked.refuse_unknown("compare()", unknown, _OF_COMPARE)
    margin = asked.number("margin", margin)
    listener = _listener(progress)
    with _store(store, listener) as opened:
        lab = Lab(opened)
        if _is_saved(a, lab) or _is_saved(b, lab):
            _refuse_options(compare, (*asked.KEYWORDS, "a_options", "b_options"), given, _AS_THEY_ARE)
            return ComparisonResult(compare_saved(_saved(a, lab), _saved(b, lab), margin))
        plans = _arms([asked.model_name(one) for one in (a, b) if one is not None], given)
        return ComparisonResult(arms.compare(lab, *plans, asked.number("time", time), margin, listener))


def profile(
    model: StrPath,
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
    num_cores: int | None = None,
    input_shapes: str | None = None,
    input: StrPath | None = None,
    thread_pinning: str = "core",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    verify: bool = True,
    timeout: float = 300.0,
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
    asked.refuse_unknown("profile()", unknown, [name for name in given if name not in ("unknown", "model")])
    name = asked.model_name(model)
    listener = _listener(progress)
    wanted = Wanted(
        performance=asked.flag("performance", performance),
        loss=asked.flag("loss", loss),
        performance_name=str(performance_name),
        loss_name=str(loss_name),
        levels=asked.levels(levels),
        int8=asked.flag("int8", int8),
        roofline=asked.flag("roofline", roofline),
        data_file=asked.path("data", data),
        time_s=asked.number("time", time),
        budget=asked.number("budget", budget),
        verify=asked.flag("verify_estimate", verify_estimate),
        approximate=asked.flag("loss", loss),
    )
    with _store(store, listener) as opened:
        lab = Lab(opened)
        if lab.is_profile(name):
            _refuse_options(profile, _OF_MAKING, given, "A profile that was made before is read as it is")
            found = ProfileResult(lab.saved_profile(name))
            return found if wanted.budget == BUDGET else found.with_budget(wanted.budget)
        return ProfileResult(lab.profile(asked.plan(name, given), wanted, listener))


def optimize(
    model: StrPath,
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
    num_cores: int | None = None,
    input_shapes: str | None = None,
    input: StrPath | None = None,
    thread_pinning: str = "core",
    engine_option: Mapping[str, Any] | None = None,
    seed: int = 0,
    timeout: builtins.float = 300.0,
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
    asked.refuse_unknown("optimize()", unknown, [key for key in given if key not in ("unknown", "model", "out")])
    listener = _listener(progress)
    engines = asked.words("measure", measure if measure is not None else engine)
    profile_id = asked.path("profile", profile)
    wanted = Asked(
        recipe=recipe_of(asked.optimization(given), asked.whole("seed", seed)),
        out=asked.path("out", out) or "",
        name=str(name),
        data_file=asked.path("data", data),
        engines=() if engines == ("none",) else engines,
        time_s=asked.number("time", time),
        performance_id=profile_id,
        loss_id=profile_id,
        **search_of(goal, max_loss, None if search_time is None else asked.number("search_time", search_time)),
    )
    if asked.flag("nearest", nearest) and wanted.goal is None:
        raise BadInput("The option nearest belongs to a search: give a goal.")
    plan = asked.plan(asked.model_name(model), given)
    with _store(store, listener) as opened:
        lab = Lab(opened)
        if wanted.goal is None:
            return OptimizationResult(lab.optimize(plan, wanted, listener))
        found, version = lab.reach(plan, wanted, listener, nearest)
        made = None if version is None else OptimizationResult(version)
        if made is None or (outcome(found) != "reached" and not nearest):
            raise GoalNotReached(" ".join(front.verdict(found)), found, made)
        return made


_OF_MAKING = [name for name in inspect.signature(profile).parameters
              if name not in ("model", "budget", "store", "progress", "unknown")]  # fmt: skip
_NOT_OF_COMPARE = ("rate", "warmup_time", "processes", "precision", *asked.CLUSTER)
_OF_COMPARE = [
    *(name for name in asked.KEYWORDS if name not in _NOT_OF_COMPARE),
    *("a_options", "b_options", "margin", "store", "progress"),
]
_AS_THEY_ARE = "Results that were measured before are compared as they are"


def _arms(models: Sequence[str], given: dict[str, Any]) -> tuple[Plan, Plan]:
    """Both plans: what is common to them, then what is each one's own."""
    common = {name: given[name] for name in asked.KEYWORDS if name in given and name not in ("time", "engine")}
    own = _own("a_options", given), _own("b_options", given)
    return arms.plans(
        models,
        asked.words("engine", given["engine"]),
        common,
        own,
        lambda options: asked.plan(asked.model_name(options["model"]), options),
    )


def _own(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one arm alone; its engine options add to those of both."""
    options = given[name]
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise BadInput(f"{name} is a dictionary such as {{'num_cores': 2}}, not a {type(options).__name__}.")
    asked.refuse_unknown(name, map(str, options), ["model", *asked.CELL])
    common, own = given["engine_option"], options.get("engine_option")
    if isinstance(common, Mapping) and isinstance(own, Mapping):
        return {**options, "engine_option": {**common, **own}}
    return dict(options)


def _is_saved(thing: Any, lab: Lab) -> bool:
    if isinstance(thing, str | os.PathLike):
        return lab.is_saved(str(os.fspath(thing)))
    return isinstance(thing, BenchmarkResult | Benchmark)


def _saved(thing: Any, lab: Lab) -> Saved:
    if not _is_saved(thing, lab):
        raise BadInput("A result that was measured before is compared with another one, not with a model.")
    if isinstance(thing, BenchmarkResult):
        thing = thing.record
    if not isinstance(thing, Benchmark):
        return lab.saved_result(str(os.fspath(thing)))
    name = f"{thing.model.source}, {text.cell_label(thing.outcomes[0].cell)}"
    if len(thing.outcomes) > 1:
        raise BadInput(
            f"This result has {len(thing.outcomes)} cells. Compare two of them: compare(result[0], result[1])"
        )
    return saved.choose(name, [files.result(thing, thing.outcomes[0])], None)


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
        with saving.opened(None if store is None else str(os.fspath(store)), listener) as opened:
            yield opened
        return
    from inferlab.store.store import Store

    if not isinstance(store, Store):
        raise BadInput(f"store is a path, a URL, an open store, None or False, not a {type(store).__name__}.")
    yield store
