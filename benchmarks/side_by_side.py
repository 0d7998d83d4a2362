"""Running inferlab and a bare loop interleaved, each in fresh processes, and comparing them round by round."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.lab import read_model
from inferlab.measure.intervals import student
from inferlab.measure.stats import latencies_ns
from inferlab.model.inputs import make_inputs
from inferlab.model.shapes import resolve
from inferlab.records import Comparison, Estimate, Run

BARE = Path(__file__).parent / "bare.py"
Measure = Callable[[], float]


def inputs_file(source: str, folder: Path, length: int | None = None) -> tuple[Path, Path]:
    """The model's file, and the very inputs that inferlab makes for it."""
    model = read_model(source)
    resolved = resolve(model.inputs, None, length, {})
    path = folder / "inputs.npz"
    np.savez(path, **make_inputs(model.inputs, resolved.shapes, 0))  # type: ignore[arg-type]
    return Path(model.path), path


def bare(interpreter: str = sys.executable, **wanted: Any) -> dict[str, float]:
    """Run the bare loop once in a fresh process."""
    wanted = {"call": "run", "warmup_s": 0.5, "time_s": 1.5, **wanted}
    done = subprocess.run([interpreter, BARE, json.dumps(wanted)], capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def inferlab(source: str, *options: str, time_s: float = 1.5, warmup_s: float = 0.5) -> dict[str, Any]:
    """Run the installed command once and return its exported result."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [str(Path(sys.executable).parent / "inferlab"), "benchmark", source, "-q", "-x", str(out)]
        # One process against one bare loop: rounds, not intervals, tell how much they differ.
        command += ["--processes", "1"]
        command += ["-t", str(time_s), "-w", str(warmup_s), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result: dict[str, Any] = json.loads(out.read_text())
    assert result["output_check"]["status"] == "match", result["output_check"]
    return result


def ratios(ours: Measure, theirs: Measure, rounds: int) -> list[float]:
    """Ours over theirs, round by round, in random order."""
    found = []
    for _ in range(rounds):
        pair: dict[Measure, float] = {}
        for one in random.sample([ours, theirs], 2):
            pair[one] = one()
        found.append(pair[ours] / pair[theirs])
    return found


def report(name: str, found: Sequence[float], aim: str) -> None:
    """One line: the median ratio, its range, and what was aimed at."""
    print(
        f"{name:<58} {statistics.median(found):6.3f}  ({min(found):.3f} to {max(found):.3f}, "
        f"{len(found)} rounds; aim: {aim})",
        flush=True,
    )


def report_paired(name: str, found: Sequence[float], pairs: str, aim: str) -> None:
    """One line for many pairs: the typical ratio, with its interval."""
    estimate = student(found)
    low, high = (math.nan if end is None else end for end in (estimate.low, estimate.high))
    print(
        f"{name}: {estimate.value:.4f} (95 % interval {low:.4f} to {high:.4f}, {len(found)} {pairs} from "
        f"{min(found):.3f} to {max(found):.3f}; aim: {aim})",
        flush=True,
    )


def cpu_ratio(compared: Comparison) -> Estimate:
    """B's CPU time per inference over A's, of all pairs: other programs show less in it than in time."""
    return student([_cpu_s(pair.b) / _cpu_s(pair.a) for pair in compared.pairs])


def _cpu_s(run: Run) -> float:
    calls = sum(len(latencies_ns(stream)) for window in run.windows for stream in window.streams)
    return sum(window.counters.get("cpu_s", 0.0) for window in run.windows) / calls


def ratio_text(ratio: Estimate) -> str:
    """A ratio, with its interval where there is one."""
    return f"{ratio.value:.2f}" + ("" if ratio.ends is None else f" ({ratio.ends[0]:.2f}–{ratio.ends[1]:.2f})")
