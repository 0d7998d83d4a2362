"""Server on the real clock with a service of fixed length: mean wait over that of Lindley's recursion."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path

import numpy as np

from inferlab.child import counters, scenarios
from inferlab.child.processes import pin
from inferlab.measure import queueing

CPU = 0
SECONDS = 5.0


def main(rounds: int = 5) -> None:
    """Compare at two lengths of service and two loads, one stream, each round in a fresh process."""
    from benchmarks import side_by_side as side

    for service_us in (1000, 200):
        for load in (0.5, 0.8):
            measurements = [_round(service_us, load, seed) for seed in range(rounds)]
            name = f"{service_us} µs at {load:.0%}"
            keys = ("gap_us", "late_us", "late_p99_us")
            gap, late, latest = (statistics.median(measured[key] for measured in measurements) for key in keys)
            robbed = ", ".join(f"{measured['robbed']:.2%}" for measured in measurements)
            print(f"# {name}: {gap:.1f} µs between two queued requests, an idle server began {late:.1f} µs late")
            print(f"# (p99 {latest:.0f} µs); of each round the CPU was taken from us for {robbed}")
            for services in ("nominal", "measured"):
                ratios = [measured[services] for measured in measurements]
                side.report(f"mean wait / Lindley's, {services} services, {name}", ratios, "0.95 to 1.05")


def _round(service_us: int, load: float, seed: int) -> dict[str, float]:
    request = json.dumps({"service_ns": 1000 * service_us, "load": load, "seed": seed})
    command = [sys.executable, "-m", "benchmarks.server_queueing", request]
    ended = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, float] = json.loads(ended.stdout)
    return answer


def worker(service_ns: int, load: float, seed: int) -> None:
    """Serve for a while with a call that spins, and print how its waits compare with theory."""
    pin([CPU])
    clock = time.perf_counter_ns
    arrivals = queueing.poisson_arrivals(load * 1e9 / service_ns, SECONDS, seed)

    def call() -> None:
        end = clock() + service_ns
        while clock() < end:
            pass

    take = scenarios.from_memory(array("q", arrivals.tobytes()))
    before = counters.read([CPU])
    start_ns = clock() + 100_000_000
    (served,) = scenarios.serve_all([call], [[]], take, start_ns, [1 << 62], len(arrivals))
    noise = counters.difference(before, counters.read([CPU]))
    scheduled, starts, ends = (np.frombuffer(content, np.int64) for content in served)
    waits = starts - scheduled
    free = np.concatenate([[0], ends[:-1]])
    idle = scheduled > free
    answer = {
        "nominal": waits.mean() / queueing.waits(arrivals, service_ns).mean(),
        "measured": waits.mean() / queueing.waits(arrivals, ends - starts).mean(),
        "gap_us": np.mean((starts - free)[~idle]) / 1e3,
        "late_us": np.percentile(waits[idle], 50) / 1e3,
        "late_p99_us": np.percentile(waits[idle], 99) / 1e3,
        # By other processes (the time spent ready to run) and by other machines on the same host.
        "robbed": (noise.get("run_queue_wait_s", 0.0) + noise.get("steal_s", 0.0)) / SECONDS,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(**json.loads(sys.argv[1]))
    else:
        main()
