"""How a profile was measured, for the report."""

from __future__ import annotations

from inferlab.records.profile import Profile
from inferlab.units import decimal, duration, plural, size
from inferlab.views import report_parts as parts

#: How levels of pruning were tried.
PRUNING = {
    "imposed": "The engine imposed each level on its kernels; no weight was changed.",
    "zeroed": "At each level the smallest weights were set to zero in a copy of the model, which was measured.",
}


def how(profile: Profile) -> list[str]:
    """The section of the report."""
    return [parts.facts(facts(profile))]


def facts(profile: Profile) -> dict[str, str]:
    """All that a reader needs to measure the same again, by name; what is empty need not be shown."""
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
            "Inputs": parts.shapes(performance.shapes),
            "Machine": parts.machine(machine),
            "Memory": "" if machine.memory_bytes is None else size(machine.memory_bytes),
            "Versions": ", ".join(f"{name} {version}" for name, version in performance.versions.items()),
            "Settings": ", ".join(f"{name} {value}" for name, value in performance.settings.items()),
            "Pruning": PRUNING.get(performance.pruning, ""),
        }
    elif profile.flops:
        pairs["Inputs"] = parts.shapes(profile.flops.shapes)
    if profile.loss:
        pairs["Loss"] = (
            f"{profile.loss.method}, {plural(profile.loss.items, 'input')}, {duration(profile.loss.seconds)}"
        )
        pairs["Sensitivity"] = "The mean of a layer's loss over all shares of zeros: the area under its curve."
    pairs["Made by"] = f"inferlab {profile.inferlab}, {profile.created_at}, {profile.format} {profile.id}".strip()
    return pairs
