"""The Model Summary of a profile's report."""

from __future__ import annotations

from collections.abc import Iterator

from inferlab.records.profile import Interval, PerformanceProfile, Profile
from inferlab.units import count, decimal, share
from inferlab.views import report_parts as parts
from inferlab.views.intervals import between_at
from inferlab.views.profile_words import overhead


def _ends(ends: Interval | None) -> str:
    if ends is None:
        return "no interval: one process"
    return between_at(ends, 0.95)


def summary(profile: Profile) -> list[str]:
    """How fast the whole model is and is estimated to be, and how far that can be believed."""
    performance = profile.performance
    if performance is None:
        return [
            parts.caption("No times were measured: what follows is from the architecture and the weights alone.")
        ]
    faster = performance.estimated_ms_per_batch is not None and profile.estimate is not None
    speedup = performance.estimated_speedup
    budget = f"loss budget {profile.estimate.budget:g}" if profile.estimate else ""
    return [
        parts.tiles(
            parts.tile("Name", performance.name, kind="words"),
            parts.tile("Engine", performance.engine_and_version, kind="words"),
            parts.tile("Batch Size", str(performance.batch_size)),
            parts.tile("Core Count", str(performance.num_cores)),
            parts.tile("Instruction Sets", ", ".join(performance.instruction_sets) or "unknown", kind="words"),
        ),
        parts.tiles(
            parts.tile(
                "MS per Batch (median)",
                decimal(performance.ms_per_batch, 3),
                _ends(performance.ms_interval),
                "main",
            ),
            parts.tile(
                "Items per Second (mean)",
                count(performance.items_per_second),
                _ends(performance.items_interval),
                "main",
            ),
            parts.tile("Estimated MS per Batch", decimal(performance.estimated_ms_per_batch or 0.0, 3), budget)
            if faster
            else "",
            parts.tile("Estimated Speed-up", f"{speedup:.2f} ×", "with limited effect on the loss")
            if faster and speedup is not None
            else "",
            _int8(performance),
        ),
        parts.tiles(
            parts.check_tile(performance.output_check),
            *_layered(performance),
        ),
    ]


def _layered(performance: PerformanceProfile) -> Iterator[str]:
    """How far the layers' times can be believed."""
    if not performance.layers:
        return
    own = performance.layers_sum_ms
    clean = f"{share(own / performance.ms_per_batch)} of the clean time" if performance.ms_per_batch else ""
    yield parts.tile("Profiler Overhead", overhead(performance), "of an inference, while it looks on")
    yield parts.tile("Unjoined Share", share(performance.unjoined_share), "of the time, to no node of the graph")
    yield parts.tile("Layers' Own Sum", f"{decimal(own, 3)} ms", clean)


def _int8(performance: PerformanceProfile) -> str:
    ms = performance.int8_ms_per_batch
    if ms is None:
        return ""
    gain = f"{performance.ms_per_batch / ms:.2f} × as fast" if ms else ""
    return parts.tile("INT8 MS per Batch", decimal(ms, 3), gain)
