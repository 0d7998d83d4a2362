"""The measuring of a performance profile: in each of several fresh processes the clean pass, then the layers'."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab.errors import InferlabError
from inferlab.measure.cell import PreparedCell, measuring_alone, prepare_cell
from inferlab.measure.cells import Job
from inferlab.measure.children import Children
from inferlab.measure.stats import WINDOW_S, median_ms
from inferlab.model.flops.costs import NodeCost
from inferlab.model.onnx_file import has_unique_names, rewrite, unique_name
from inferlab.records import Event, Listener, Model, Run
from inferlab.worker import Launch

# Fewer processes than this tell too little of the spread between them.
_LEAST_PROCESSES = 3
# A level is measured for so long in one process before it is measured in another one too.
_LEVEL_S = 0.5
# How long all processes may take to load and to check, relative to the measuring.
_BESIDE = 0.7


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What an engine said of its layers, with its optimised graph where it has one."""

    data: Mapping[str, Any]
    graph: bytes | None


@dataclass(frozen=True, slots=True)
class Passes:
    """What one process measured."""

    run: Run
    #: The median of the clean pass.
    clean_ms: float
    #: None where the engine failed to tell.
    layers: LayerReport | None
    #: With so many zeros imposed on the weights.
    imposed: Mapping[float, LayerReport]
    #: What went wrong after the clean pass.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """How the measuring time is divided; each of them is for all processes together."""

    clean_s: float
    layers_s: float
    levels_s: float = 0.0


def share(time_s: float, levels: Sequence[float]) -> Shares:
    """Half for the clean pass and half for the layers; less for both where levels are imposed too."""
    if not levels:
        return Shares(time_s / 2, time_s / 2)
    return Shares(0.4 * time_s, 0.3 * time_s, 0.3 * time_s)


def measure_passes(
    job: Job, time_s: float, levels: Sequence[float], listener: Listener, processes: int
) -> list[Passes]:
    """Measure both passes in each process; the levels are divided among the processes.

    What failed after the clean pass of one process is not tried again in the next ones.
    """
    label = f"profile of {job.model.source} on {job.cell.engine}"
    shares = share(time_s, levels)
    passes: list[Passes] = []
    wanted = processes
    with (
        measuring_alone(label, listener),
        prepare_cell(job, listener) as setup,
        with_unique_names(setup) as prepared,
    ):
        while len(passes) < wanted:
            began = time.monotonic()
            number = len(passes)
            listener(Event("loading", {"engine": job.cell.engine, "process": number + 1}))
            with Children(prepared) as fresh:
                if number == 0:
                    listener(Event("engine", fresh.settings()))
                telling = all(done.layers is not None for done in passes)
                failed = any(done.problems for done in passes)
                measured = _measure(fresh, shares, processes, telling, () if failed else levels, number, listener)
            passes.append(measured)
            if number == 0:
                # What the processes need besides their measuring must stay below it.
                beside_s = time.monotonic() - began - (shares.clean_s + shares.layers_s) / processes
                wanted = max(
                    min(_LEAST_PROCESSES, processes), min(processes, int(_BESIDE * time_s / max(0.1, beside_s)))
                )
    return passes


def engine_nodes(nodes: Sequence[NodeCost], model: Model, launch: Launch) -> tuple[NodeCost, ...]:
    """The nodes with the names that they have in the engine's file."""
    if not _needs_names(model, launch):
        return tuple(nodes)
    return tuple(dataclasses.replace(node, name=unique_name(node.id)) for node in nodes)


def _needs_names(model: Model, launch: Launch) -> bool:
    """Whether the engine gets a copy with unique names of nodes.

    One that writes into its file or converts it has a copy already; it tells its layers by their outputs.
    """
    copied = launch.writes_model or launch.converts
    return model.kind == "onnx" and not copied and not has_unique_names(Path(model.path))


@contextmanager
def with_unique_names(setup: PreparedCell) -> Iterator[PreparedCell]:
    """The same setup, its file replaced by a copy with unique names of nodes where that is needed."""
    model = setup.job.model
    if not _needs_names(model, setup.launch):
        yield setup
        return
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        path = rewrite(
            model, Path(folder), batch=setup.job.rewrite_batch, newest_ir=None, copy_data=False, unique_names=True
        )
        yield dataclasses.replace(setup, path=path)


def _measure(
    fresh: Children,
    shares: Shares,
    processes: int,
    telling: bool,
    levels: Sequence[float],
    number: int,
    listener: Listener,
) -> Passes:
    cell = fresh.prepared.job.cell
    fresh.check_outputs()
    seconds = shares.clean_s / processes
    fresh.warm_up(cell.warmup_s)
    listener(Event("measuring", {"scenario": cell.scenario, "seconds": shares.clean_s}))
    count = max(1, round(seconds / WINDOW_S))
    for _ in range(count):
        full = fresh.measure(seconds / count).full
        if fresh.interrupted:
            raise KeyboardInterrupt
        if full:
            break
    # Now, not after the layers' pass: that one lets the measured model go.
    fresh.check_outputs()
    run = fresh.run()
    clean = Passes(run, median_ms(run), None, {})
    if not telling:
        return clean
    listener(Event("layers", {"engine": cell.engine, "process": number + 1}))
    try:
        layers = ask_layers(fresh, shares.layers_s / processes, None)
    except InferlabError as error:
        return dataclasses.replace(clean, problems=(layer_problem(error, None),))
    imposed: dict[float, LayerReport] = {}
    problems: list[str] = []
    repeats = _repeats(shares, len(levels), processes)
    for level in _turn(levels, repeats, processes, number):
        try:
            imposed[level] = ask_layers(fresh, shares.levels_s / len(levels) / repeats, level)
        except InferlabError as error:
            problems.append(layer_problem(error, level))
            break
    return dataclasses.replace(clean, layers=layers, imposed=imposed, problems=tuple(problems))


def _repeats(shares: Shares, levels: int, processes: int) -> int:
    """In how many processes each level is measured, as far as the time allows."""
    most = min(_LEAST_PROCESSES, processes)
    return max(1, min(most, int(shares.levels_s / max(1, levels) / _LEVEL_S)))


def _turn(levels: Sequence[float], repeats: int, processes: int, number: int) -> Sequence[float]:
    """The levels of one process: the first few share them, so that each has its repeats."""
    most = min(_LEAST_PROCESSES, processes)
    turns = math.ceil(most / repeats)
    return levels[number % turns :: turns] if number < most else ()


def ask_layers(fresh: Children, seconds: float, level: float | None) -> LayerReport:
    """What the engine says of its layers, with so many zeros imposed on the weights."""
    reply = fresh.layers(seconds, level)
    return LayerReport(reply.data, reply.blocks[0] if reply.blocks else None)


def layer_problem(error: InferlabError, level: float | None) -> str:
    """That layers were not timed, in a sentence."""
    what = "The layers could not be timed" if level is None else f"Sparsity {level:g} could not be imposed"
    return f"{what}: {error}"
