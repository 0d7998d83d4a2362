"""Compare two results that were saved at other times or places: unpaired, and so less sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inferlab.measure import intervals
from inferlab.records import Comparison, Estimate

#: What two results may differ in, by the key of the file, and how it is called.
_CONDITIONS = {
    "machine_type": "machine type",
    "engine": "engine",
    "version": "engine version",
    "batch_size": "batch size",
    "num_cores": "cores",
    "scenario": "scenario",
    "num_streams": "streams",
    "instances": "instances",
    "rate": "rate",
    "stream_mode": "stream mode",
    "thread_pinning": "pinning",
    "engine_options": "engine options",
    "inputs": "input shapes",
}


@dataclass(frozen=True, slots=True)
class Saved:
    """A result of one cell, as JSON has it, and what the user calls it."""

    path: str
    content: dict[str, Any]

    @property
    def is_sync(self) -> bool:
        """Whether its headline is latency."""
        return bool(self.content["scenario"] == "singlestream")

    def times_ms(self, metric: str) -> tuple[float, ...]:
        """Time an item, process by process."""
        batch = self.content["batch_size"]
        # Version 1 had one process, whose numbers are the result's.
        processes = self.content.get("processes") or [self.content["benchmark_result"]]
        found = [one["median"] / batch if metric == "median" else 1e3 / one["items_per_sec"] for one in processes]
        return tuple(map(float, found))


def compare_saved(a: Saved, b: Saved, margin: float) -> Comparison:
    """Compare two saved results by what their processes measured."""
    metric = "median" if a.is_sync and b.is_sync else "throughput"
    times = a.times_ms(metric), b.times_ms(metric)
    ratio = intervals.welch(*times, level=1 - intervals.ALPHA)
    verdict = intervals.verdict(ratio, margin)
    seconds = sum(float(one.content["benchmark_result"]["seconds_ran"]) for one in (a, b))
    match, detail = _outputs(a, b)
    return Comparison(
        labels=(a.path, b.path),
        ratio=ratio,
        verdict=verdict,
        margin=margin,
        metric="median" if metric == "median" else "throughput",
        seconds=seconds,
        outputs_match=match,
        output_error=None,
        output_detail=detail,
        settle_s=_settle_s(ratio, margin, times, seconds) if verdict == "inconclusive" else None,
        times_ms=times,
        differences=tuple(_differences(a.content, b.content)),
    )


def _outputs(a: Saved, b: Saved) -> tuple[bool | None, str]:
    """Both match the reference of the same model, one is wrong, or nothing is known."""
    checks = [one.content.get("output_check", {}) for one in (a, b)]
    states = [check.get("status") for check in checks]
    if "mismatch" in states:
        return False, str(checks[states.index("mismatch")].get("detail", ""))
    same_model = a.content["model"]["digest"] == b.content["model"]["digest"]
    if same_model and states == ["match", "match"]:
        return True, ""
    return None, "saved results have no outputs to compare"


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    found = [
        f"{name}: {a.get(key)} and {b.get(key)}"
        for key, name in _CONDITIONS.items()
        if (a.get(key) or None) != (b.get(key) or None)
    ]
    if a["model"]["digest"] != b["model"]["digest"]:
        found.append(f"model: {a['orig_model_path']} and {b['orig_model_path']}")
    machines = [one.get("machine") or {} for one in (a, b)]
    for key, name in (
        ("node", "machine"),
        ("instance_type", "instance type"),
        ("cpu", "CPU"),
        ("system", "system"),
        ("cpu_quota", "CPU quota"),
    ):
        values = [one.get(key) for one in machines]
        if values[0] != values[1]:
            found.append(f"{name}: {values[0]} and {values[1]}")
    return found


def _settle_s(
    ratio: Estimate, margin: float, times: tuple[tuple[float, ...], tuple[float, ...]], seconds: float
) -> float | None:
    """What both measurements would take if each had as many processes as are needed."""
    fewest = min(map(len, times))
    count = intervals.pairs_to_settle(ratio, margin, fewest)
    return None if count is None else seconds * count / fewest
