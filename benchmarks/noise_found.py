"""Is noise noticed? Runs with a CPU hog on every measured core, and quiet ones, interleaved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from inferlab import Lab, Plan, machine
from inferlab.measure.findings import find

_HOG = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
DISTURBED = {"waited-for-cpu", "throttled", "steal", "clock-changed"}


@contextmanager
def hogs(cpus: tuple[int, ...]) -> Iterator[None]:
    """A busy process on each of these CPUs."""
    busy = [subprocess.Popen([sys.executable, "-c", _HOG, str(cpu)]) for cpu in cpus]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def finding_codes(num_cores: int) -> set[str]:
    """The findings of a short benchmark."""
    plan = Plan("demo:mobilenet_v2", scenarios=("sync",), num_cores=(num_cores,), time_s=2.0, warmup_s=0.5)
    (outcome,) = Lab().benchmark(plan).outcomes
    return {finding.code for finding in find(outcome.cell, outcome.runs)}


def main(rounds: int = 25) -> None:
    """Half of the runs on one core, half on all."""
    counts: dict[str, Counter[str]] = {"hog": Counter(), "quiet": Counter()}
    for number in range(1, rounds + 1):
        for num_cores in (1, len(machine.cores())):
            cpus = machine.choose_cpus(num_cores, "core")
            with hogs(cpus):
                counts["hog"].update(finding_codes(num_cores) & DISTURBED or {"nothing"})
            counts["quiet"].update(finding_codes(num_cores) & DISTURBED or {"nothing"})
        if number % 5 == 0 or number == rounds:
            report(counts, 2 * number)


def report(counts: dict[str, Counter[str]], runs: int) -> None:
    """How often noise was noticed so far, and how often some was seen where none was made."""
    hog, quiet = counts["hog"], counts["quiet"]
    reported = 100 * hog["waited-for-cpu"] / runs
    print(f"hog on each measured core: reported in {reported:.0f} % of {runs} (aim: ≥ 95 %)")
    print(f"quiet: flagged in {100 * (1 - quiet['nothing'] / runs):.0f} % of {runs} (aim: ≤ 5 %): {dict(quiet)}")
    print(f"load while measuring: {os.getloadavg()}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
