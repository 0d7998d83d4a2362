"""How a benchmark was measured, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlab.errors import BadInput
from inferlab.records import Benchmark
from inferlab.units import duration, plural, share, size
from inferlab.version import __version__
from inferlab.views import command
from inferlab.views import report_parts as parts


def how(benchmark: Benchmark) -> list[str]:
    """All that a reader needs to measure the same again."""
    plan, model = benchmark.plan, benchmark.model
    cells = [one.cell for one in benchmark.outcomes]
    runs = [run for one in benchmark.outcomes for run in one.runs]
    machines = list(dict.fromkeys(parts.machine(run.machine) for run in runs))
    memory = (run.machine.memory_bytes for run in runs)
    times = sorted(run.started_at for run in runs)
    processes = _processes([len(one.runs) for one in benchmark.outcomes if one.runs])
    pairs = {
        "Model": model.source,
        "Digest": model.digest,
        "Opset": str(model.opset or ""),
        "Command": _command(benchmark),
        "Measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        "Each cell": f"{duration(plan.time_s)} in all"
        + (f", in {processes}" if processes else "")
        + f", each after a warm-up of {duration(plan.warmup_s)} at most",
        "Precision": "" if plan.precision is None else f"until the interval was ±{share(plan.precision)} narrow",
        "Numbers": "A cell's median and throughput are those of its typical process; an interval (95 %) is "
        "Student's on what its processes say.",
        "Speed-ups": "Not measured in turns, hence less sure than inferlab compare." if len(cells) > 1 else "",
        "Inputs": _each(parts.shapes(dict(cell.shapes)) for cell in cells),
        "Streams": _each(run.stream_mode for run in runs if run.stream_mode != "single"),
        "Pinning": _each(cell.thread_pinning for cell in cells),
        "Engine options": ", ".join(f"{name}={value}" for name, value in plan.engine_options),
        "Seed": str(plan.seed),
        "Machine": "; ".join(machines),
        "Memory": _each(size(one) for one in memory if one is not None),
        "Versions": _each(f"{name} {version}" for run in runs for name, version in run.versions.items()),
        "Made by": f"inferlab {__version__} {benchmark.id}".strip(),
    }
    return [parts.facts(pairs)]


def _processes(counts: Sequence[int]) -> str:
    fewest, most = min(counts, default=0), max(counts, default=0)
    if fewest == most:
        return plural(most, "fresh process", "fresh processes") if most else ""
    return f"{fewest} to {most} fresh processes"


def _each(texts: Iterable[str]) -> str:
    """All of these, each once."""
    return ", ".join(dict.fromkeys(filter(None, texts)))


def _command(benchmark: Benchmark) -> str:
    try:
        return command.benchmark(benchmark.plan)
    except BadInput:  # Python can ask for what no single command says
        return ""
