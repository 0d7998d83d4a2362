"""What a cluster costs: Ray's share of a cell, medians on a node and here interleaved, many cells on 3 nodes."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster

from benchmarks import side_by_side as side
from inferlab.lab import Lab, read_model
from inferlab.measure.stats import median_ms
from inferlab.records import Event, Plan, ignore
from inferlab.store import Saver, open_store
from inferlab.store.samples import pack_run, unpack_run

_MACHINES, _CELLS = 1000, 100
#: Each cell there, of five processes with calls of 1 ms.
_CELL_S, _PROCESSES, _CALL_S = 20.0, 5, 1e-3
_REPEATS = 20
_MODEL_BYTES = 100e6
#: What a usual network between machines of a data centre carries, in bytes a second.
_NETWORK = 1.25e9


@contextmanager
def cluster(count: int) -> Iterator[str]:
    """A cluster of so many nodes on this machine, each a type of its own: n1, n2, …"""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    own = {"RAY_worker_niceness": "0"}
    try:
        for number in range(1, count + 1):
            cluster.add_node(
                num_cpus=2, resources={f"n{number}": 1}, env_vars={**own, "INFERLAB_NODE": f"n{number}"}
            )
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def main(cells: int = 1000, rounds: int = 5, pairs: int = 40, seconds: float = 2.0) -> None:
    """Print all figures."""
    with cluster(3) as address:
        added_s = overhead(address, rounds)
        medians(address, pairs, seconds)
        constants = many(address, cells)
    paper(added_s, **constants)


def fake(cells: int, **more: Any) -> Plan:
    """So many cells of the scripted engine that take next to no time."""
    usual: dict[str, Any] = {"time_s": 0.02, "warmup_s": 0.0, "processes": 1, "verify": False}
    batches = tuple(range(1, cells + 1))
    scripted = {"engines": ("fake",), "scenarios": ("sync",), "num_cores": (1,), "batch_sizes": batches}
    return Plan("demo:mlp", **{**scripted, **usual, **more})


def overhead(address: str, rounds: int) -> float:
    """What a cell takes longer on a node than here: both measure the same ten cells, interleaved."""
    here, there = [], []
    for _ in range(rounds):
        here.append(_between_cells_s(fake(10)))
        there.append(_between_cells_s(fake(10, cluster=address, on=("n1",))))
    added = statistics.median(there) - statistics.median(here)
    print(
        f"A cell of the scripted engine: {statistics.median(here):.3f} s here, "
        f"{statistics.median(there):.3f} s on a node; Ray adds {added:.3f} s a cell  (aim: at most 1)"
    )
    return added


def _between_cells_s(plan: Plan) -> float:
    """The median time from the end of one cell to the end of the next."""
    ends: list[float] = []

    def listen(event: Event) -> None:
        inner = event.data["event"] if event.code == "on-node" else event
        if inner.code == "measured":
            ends.append(time.monotonic())

    Lab().benchmark(plan, listen)
    return statistics.median(b - a for a, b in itertools.pairwise(ends))


def medians(address: str, rounds: int, seconds: float) -> None:
    """The median latency of a real engine on a node over that here: pairs of fresh processes, one core."""
    here = Plan(
        "demo:mobilenet_v2", scenarios=("sync",), num_cores=(1,), time_s=seconds, warmup_s=0.5, processes=1
    )
    there = replace(here, cluster=address, on=("n1",))
    ratios = []
    for _ in range(rounds):
        order = random.sample([here, there], 2)
        medians = {plan.cluster: median_ms(Lab().benchmark(plan).outcomes[0].runs[0]) for plan in order}
        ratios.append(medians[address] / medians[None])
    name = "Median of demo:mobilenet_v2 on a node over that here"
    side.report_paired(name, ratios, "pairs of processes", "within 2 %")


def many(address: str, cells: int) -> dict[str, float]:
    """So many cells over three nodes, saved in a store; what each costs the driver."""
    each = -(-cells // 3)
    plan = fake(each, cluster=address, on=("n1", "n2", "n3"))
    with tempfile.TemporaryDirectory() as folder, open_store(str(Path(folder) / "lab.db")) as store:
        before_bytes, before_cpu, began = _memory_bytes(), time.process_time(), time.monotonic()
        benchmark = Lab(store).benchmark(plan)
        taken, cpu = time.monotonic() - began, time.process_time() - before_cpu
        grown = _memory_bytes() - before_bytes
    count = len(benchmark.outcomes)
    measured = sum(outcome.status == "done" for outcome in benchmark.outcomes)
    sent = [sum(map(len, pack_run(run))) for outcome in benchmark.outcomes for run in outcome.runs]
    print(
        f"{measured} of {count} cells over 3 nodes in {taken:.1f} s: {3 * taken / count:.3f} s a cell and node; "
        f"the driver computes {cpu / count * 1e3:.1f} ms a cell (scheduling, unpacking, saving); its memory grew "
        f"by {grown / count / 1e3:.1f} kB a cell; a run travels in {statistics.median(sent) / 1e3:.1f} kB"
    )
    return {"driver_s": cpu / count, "cell_bytes": grown / count, "task_bytes": statistics.median(sent)}


def _memory_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def paper(added_s: float, driver_s: float, cell_bytes: float, task_bytes: float) -> None:
    """What that means for many machines, on paper: nothing of it was measured at that size."""
    cells = _MACHINES * _CELLS
    run_bytes, run_s = _handling()
    result_bytes = cells * max(task_bytes, _PROCESSES * run_bytes)
    model_s = _MODEL_BYTES / _NETWORK
    alone_s = _CELLS * (_CELL_S + added_s)
    driver_total_s = cells * (driver_s + _PROCESSES * run_s)
    # The start and the end of each call, 8 bytes each.
    memory_bytes = cells * (cell_bytes + 16 * _CELL_S / _CALL_S)
    print(
        f"\nOn paper, {_MACHINES:,} machines with {_CELLS} cells each of {_CELL_S:g} s ({_PROCESSES} processes, "
        f"{1e3 * _CALL_S:g} ms calls):"
    )
    print(
        f"  data: the model of {_MODEL_BYTES / 1e6:g} MB to each, {_MACHINES * _MODEL_BYTES / 1e9:.0f} GB in all, "
        "of which the driver sends some copies and nodes the rest to each other "
        f"({model_s:.2f} s a copy at 10 Gbit/s); results of {result_bytes / 1e9:.1f} GB to the driver"
    )
    print(
        f"  driver: {driver_total_s / 60:.0f} min of computing within {max(alone_s, driver_total_s) / 60:.0f} "
        f"min; it keeps all samples of a plan until its end: {memory_bytes / 1e9:.0f} GB"
    )
    limits = {"the machines themselves": alone_s, "the driver's one thread": driver_total_s}
    worst = max(limits, key=lambda name: limits[name])
    print(
        f"  time: {max(limits.values()) / 60:.0f} min; the bottleneck is {worst}. The driver's memory is the "
        "limit before its time: divide such a plan by machine types, one driver each, all with one store"
    )


def _handling() -> tuple[float, float]:
    """The bytes that a process of such a cell travels in, and the seconds that unpacking and saving it take."""
    options = (("latency_us", str(int(_CALL_S * 1e6))), ("spin", "1"))
    plan = fake(1, time_s=_CELL_S / _PROCESSES, engine_options=options)
    with tempfile.TemporaryDirectory() as folder, open_store(str(Path(folder) / "lab.db")) as store:
        (outcome,) = Lab().benchmark(plan).outcomes
        travelling = pack_run(outcome.runs[0])
        saver = Saver(store, ignore)
        saver.begin(plan, read_model(plan.model), [outcome.cell])
        began = time.process_time()
        for _ in range(_REPEATS):
            saver.run(outcome.cell, unpack_run(*travelling))
        return sum(map(len, travelling)), (time.process_time() - began) / _REPEATS


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The numbers of cells, rounds, pairs of processes, and seconds of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=2.0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(parse()))
