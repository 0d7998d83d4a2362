"""Time changed copies of a model interleaved with the model itself, so that both meet the same noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import EngineFailed, InferlabError
from inferlab.measure.cell import measuring_alone, prepare_cell
from inferlab.measure.cells import Job
from inferlab.measure.children import Children
from inferlab.measure.paired import settled, shortest_turn_s, times_ms
from inferlab.measure.stats import service_ns
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs as count
from inferlab.profiling.join import Graph
from inferlab.profiling.layers import apportion, layer_records
from inferlab.profiling.performance import (
    LayerReport,
    ask_layers,
    graph_of,
    layer_problem,
    timed_layers_of,
    with_unique_names,
)
from inferlab.records import Listener, Model, OutputCheck, ignore
from inferlab.records.profile import PerformanceProfile

# Turns of both, of which the median counts: fewer are at the mercy of a burst.
_FEWEST_TURNS, _MOST_TURNS = 4, 64
# Where the model itself takes so many times what its profile says, others had the CPU in most of its turns.
_DISTURBED = 1.5
_HOPELESS = 3.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed copy of a model, measured beside it."""

    #: What it takes of the model's time, times that of the model's profile.
    ms_per_batch: float
    #: By the ids of the original's layers that have nodes, 0 where no layer of the copy covers them; empty where
    #: the engine did not tell.
    layers_ms: Mapping[str, float]
    output_check: OutputCheck
    problems: tuple[str, ...]


class InterleavedTimer:
    """A context manager that keeps the model loaded, in a process that is stopped while a copy runs."""

    def __init__(
        self, job: Job, costs: Costs, baseline: PerformanceProfile, time_s: float, listener: Listener
    ) -> None:
        """`time_s` bounds what measuring a copy takes, its layers included, but not the loading.

        Only what keeps it from beginning is told: how each of many copies is measured is the same.
        """
        self._job, self._costs, self._baseline = job, costs, baseline
        self._time_s, self._listener = time_s, listener
        self._stack = ExitStack()
        self._original: Children | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def measure(self, model: Model, check: bool = True, engine: str | None = None) -> Variant:
        """Measure a copy; its outputs are checked against its own reference, unless that is not needed.

        It has the same graph up to nodes that quantise and dequantise. On another engine it has no layers.
        """
        cell = replace(self._job.cell, model_digest=model.digest, verify=self._job.cell.verify and check)
        if engine is not None:
            cell = replace(cell, engine=engine, engine_options=())
        changed = replace(self._job, model=model, cell=cell)
        original = self._loaded()
        with ExitStack() as stack:
            setup = stack.enter_context(prepare_cell(changed, ignore))
            copy = stack.enter_context(Children(stack.enter_context(with_unique_names(setup))))
            copy.check_outputs()
            copy.warm_up(cell.warmup_s)
            copy.pause()
            turns = _interleaved(original, copy, self._time_s / 2)
            before_ms, after_ms = typical_ms(turns, self._baseline.ms_per_batch)
            copy.resume()
            copy.check_outputs()
            output_check = copy.output_check()
            ms = self._baseline.ms_per_batch * after_ms / before_ms
            if engine is not None or not self._baseline.layers:
                return Variant(ms, {}, output_check, ())
            try:
                layers = ask_layers(copy, self._time_s / 2, None)
            except InferlabError as error:
                return Variant(ms, {}, output_check, (layer_problem(error, None),))
        return Variant(ms, self._layers_ms(changed, layers, after_ms, ms), output_check, ())

    def _loaded(self) -> Children:
        """The model itself, loaded when the first copy is there."""
        if self._original is None:
            label = f"profile of {self._job.model.source} on {self._job.cell.engine}"
            self._stack.enter_context(measuring_alone(label, self._listener))
            # Its outputs were checked.
            job = replace(self._job, cell=replace(self._job.cell, verify=False))
            prepared = self._stack.enter_context(prepare_cell(job, ignore))
            self._original = self._stack.enter_context(Children(prepared))
            self._original.warm_up(job.cell.warmup_s)
            self._original.pause()
        return self._original

    def _layers_ms(self, changed: Job, layers: LayerReport, clean_ms: float, ms: float) -> dict[str, float]:
        """What the layers of the original take in a copy that takes `ms` in all."""
        graph = graph_of(changed.model, count(changed.model, dict(changed.cell.shapes)), changed)
        timed_layers = timed_layers_of(changed, [layers], graph)
        original = {node.id for node in self._costs.nodes}
        records = layer_records(timed_layers, [clean_ms], ms, graph)
        served = [
            (_originals(layer.nodes, graph, original), record.ms)
            for layer, record in zip(timed_layers, records, strict=True)
        ]
        flops = {node.id: node.flops or 0 for node in self._costs.nodes}
        return apportion(served, self._baseline.layers, flops)


def typical_ms(turns: NDArray[np.float64], usual_ms: float) -> tuple[float, float]:
    """What both arms take, in ms, given the logarithms of their turns in ns, and what the first took before.

    Other programs only ever add to a time: where they took most turns, the quietest of each arm counts.
    """
    before_ms, after_ms = times_ms(turns)
    if before_ms > _DISTURBED * usual_ms:
        before_ms, after_ms = (math.exp(log) / 1e6 for log in turns.min(axis=0))
    if before_ms > _HOPELESS * usual_ms:
        raise EngineFailed(
            f"other programs took the CPU: beside the copy the model itself took {before_ms / usual_ms:.1f} times "
            "as long as alone. Stop them and repeat."
        )
    return before_ms, after_ms


def _interleaved(a: Children, b: Children, seconds: float) -> NDArray[np.float64]:
    """The logarithms of both arms' times of a batch in turns A B B A, in ns; what is compared is their ratio."""
    each_s = max(shortest_turn_s(arm, seconds) for arm in (a, b))
    doubles = max(_FEWEST_TURNS, min(_MOST_TURNS, round(seconds / (2 * each_s))))
    turns: list[list[float]] = []
    for number in range(doubles):
        logs = [0.0, 0.0]
        for arm in (0, 1) if number % 2 else (1, 0):
            logs[arm] = _turn(a if arm == 0 else b, each_s)
        turns.append(logs)
    return np.array(turns)


def _turn(arm: Children, seconds: float) -> float:
    """The logarithm of the median call of one turn, in nanoseconds."""
    arm.resume()
    window = settled(arm.measure(seconds))
    arm.pause()
    if arm.interrupted:
        raise KeyboardInterrupt
    return math.log(np.median(np.concatenate([service_ns(stream) for stream in window.streams if len(stream)])))


def _originals(members: Sequence[int], graph: Graph, original: set[str]) -> list[str]:
    """The nodes of the original that a layer covers, or the next ones that use what it quantises."""
    own = [graph.nodes[number].id for number in members if graph.nodes[number].id in original]
    waiting, seen = list(members), set(members)
    while not own and waiting:
        users = [user for number in waiting for user in graph.after(number) if user not in seen]
        own = [graph.nodes[user].id for user in users if graph.nodes[user].id in original]
        seen.update(users)
        waiting = users
    return own
