"""Requests for tokens at 50 % and 80 % load: mean wait and TTFT over those simulated with measured services."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import side_by_side as side
from inferlab import Lab
from inferlab.measure import queueing
from inferlab.records.generation import Generation, GenerationPlan, GenerationRun

#: Services are drawn this often in a simulation of the arrivals that were measured.
_DRAWS = 200


class Load(NamedTuple):
    """What a process measured: arrivals, waits and services in nanoseconds."""

    arrivals: NDArray[np.int64]
    waits: NDArray[np.int64]
    services: NDArray[np.int64]


def main() -> None:
    """Measure services one after the other, then at each load, and compare with Lindley's recursion."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:llama")
    parser.add_argument("--engine", default="llamacpp")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=16)
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("-t", "--time", type=float, default=60.0, help="seconds at each load")
    parser.add_argument("--processes", type=int, default=3)
    arguments = parser.parse_args()
    shape = {
        "engines": (arguments.engine,),
        "prompt_tokens": (arguments.prompt,),
        "new_tokens": (arguments.new,),
        "num_cores": (arguments.num_cores,),
        "processes": arguments.processes,
        "batch_sizes": (1,),
    }
    closed = runs_of(GenerationPlan(arguments.model, time_s=arguments.time / 4, **shape))
    services = np.array([sequence.token_ns[-1] for sequence in sequences_of(closed)])
    mean_s = services.mean() / 1e9
    spread = services.std() / services.mean()
    print(
        f"# {arguments.model} on {arguments.engine}: {1e3 * mean_s:.2f} ms each "
        f"(CV {spread:.3f}), {len(services)} times"
    )
    for load in (0.5, 0.8):
        plan = GenerationPlan(
            arguments.model, time_s=arguments.time, scenario="server", rates=(load / mean_s,), **shape
        )
        loads = [load_of(run) for run in runs_of(plan)]
        waited = np.concatenate([each.waits for each in loads])
        busy = sum(each.services.sum() for each in loads) / sum(np.ptp(each.arrivals) for each in loads)
        print(f"# {load:.0%}: {len(waited)} requests, mean wait {waited.mean() / 1e6:.2f} ms, load {busy:.0%}")
        same = [each.waits.mean() / queueing.waits(each.arrivals, each.services).mean() for each in loads]
        drawn = [each.waits.mean() / simulated_ns(each.arrivals, services) for each in loads]
        side.report_paired(
            f"mean wait at {load:.0%} / the same services in Lindley's", same, "processes", "0.95 to 1.05"
        )
        side.report_paired(f"mean wait at {load:.0%} / services of the closed loop", drawn, "processes", "about 1")


def runs_of(plan: GenerationPlan) -> tuple[GenerationRun, ...]:
    """Measure a plan of one cell."""
    (outcome,) = Lab().generate(plan).outcomes
    assert outcome.failure is None, outcome.failure
    return outcome.runs


def sequences_of(runs: tuple[GenerationRun, ...]) -> list[Generation]:
    """All that were generated."""
    return [sequence for run in runs for repetition in run.repetitions for sequence in repetition.sequences]


def load_of(run: GenerationRun) -> Load:
    """One process's requests, in the order of their arrival."""
    served = sorted(sequences_of((run,)), key=lambda sequence: sequence.scheduled_ns or 0)
    return Load(
        np.array([sequence.scheduled_ns or 0 for sequence in served]),
        np.array([sequence.submitted_ns for sequence in served]),
        np.array([sequence.token_ns[-1] - sequence.submitted_ns for sequence in served]),
    )


def simulated_ns(arrivals: NDArray[np.int64], services: NDArray[np.int64]) -> float:
    """The mean wait of these arrivals with services drawn from those that were measured."""
    draw = np.random.default_rng(0)
    means = [queueing.waits(arrivals, draw.choice(services, len(arrivals))).mean() for _ in range(_DRAWS)]
    return float(np.mean(means))


if __name__ == "__main__":
    main()
