"""How a profile was measured, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferlab.profiling.records import Profile
from inferlab.render import profile_parts as parts
from inferlab.units import decimal, duration, plural, size

#: How levels of pruning were tried.
PRUNING = {
    "imposed": "The engine imposed each level on its kernels; no weight was changed.",
    "zeroed": "At each level the smallest weights were set to zero in a copy of the model, which was measured.",
}


def how(profile: Profile) -> list[str]:
    """All that a reader needs to measure the same again."""
    performance, model = profile.performance, profile.model
    pairs: dict[str, str] = {"Model": model.source, "Digest": model.digest, "Opset": str(model.opset or "")}
    if performance:
        machine = performance.machine
        processes = plural(len(performance.processes_ms), "fresh process", "fresh processes")
        times = ", ".join(decimal(one, 3) for one in performance.processes_ms)
        pairs |= {
            "Clean pass": f"{processes}, without a profiler: {times} ms",
            "Layers": "The engine's own times of a second pass, scaled so that they add up to the clean time; "
            "a spread is the standard deviation between processes.",
            "Measured": performance.measured_at,
            "Inputs": _shapes(performance.shapes),
            "Machine": f"{machine.node}: {machine.cpu}, {machine.architecture}, "
            f"{plural(machine.physical_cores, 'core')}, {plural(machine.logical_cpus, 'logical CPU')}, "
            f"{machine.system}",
            "Memory": "" if machine.memory_bytes is None else size(machine.memory_bytes),
            "Versions": ", ".join(f"{name} {version}" for name, version in performance.versions.items()),
            "Settings": ", ".join(f"{name} {value}" for name, value in performance.settings.items()),
            "Pruning": PRUNING.get(performance.pruning, ""),
        }
    elif profile.flops:
        pairs["Inputs"] = _shapes(profile.flops.shapes)
    if profile.loss:
        pairs["Loss"] = (
            f"{profile.loss.method}, {plural(profile.loss.items, 'input')}, {duration(profile.loss.seconds)}"
        )
        pairs["Sensitivity"] = "The mean of a layer's loss over all shares of zeros: the area under its curve."
    pairs["Made by"] = f"inferlab {profile.inferlab}, {profile.created_at}, {profile.format} {profile.id}".strip()
    return [parts.facts(pairs)]


def _shapes(shapes: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in shapes.items())
