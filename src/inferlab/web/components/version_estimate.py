"""What is foretold of a version before it is made, and what that rests on."""

from __future__ import annotations

import math

from nicegui import html

from inferlab.profiling.foretell import gains_from_zeros
from inferlab.records.optimization import Scheme
from inferlab.records.profile import PruningEstimate
from inferlab.units import decimal, plural, share
from inferlab.web import shell
from inferlab.web.components.foretold import UNKNOWN
from inferlab.workspace.engines import title
from inferlab.workspace.version_forms import Basis


def show_estimate(basis: Basis, found: PruningEstimate, scheme: Scheme | None, pattern: str) -> None:
    """The numbers of an estimate, and a note on each thing that it cannot know."""
    performance = basis.profile.performance
    ms, speedup = _times(basis, found, scheme) if pattern != "channel" or not found.levels else (None, None)
    with shell.stats("il-summary-numbers"):
        if performance is not None:
            where = f"{title(performance.engine)}, batch {performance.batch_size}, now"
            _stat("MS per Batch", decimal(performance.ms_per_batch, 3), where, "ms-per-batch")
        _stat("Estimated MS per Batch", UNKNOWN if ms is None else decimal(ms, 3), "", "estimated-ms")
        _stat("Estimated Speed-up", UNKNOWN if speedup is None else f"{speedup:.2f} ×", "", "estimated-speedup")
        zeros = _zeros(basis, found)
        _stat("Zeros", share(zeros), "of all parameters", "estimated-zeros")
        loss = "outputs are no numbers" if math.isinf(found.loss) else f"loss {found.loss:.3g}"
        recovery = UNKNOWN if found.recovery is None else share(found.recovery)
        if unmeasured := basis.unmeasured(found.levels):
            recovery, loss = UNKNOWN, f"{plural(len(unmeasured), 'layer')} not measured"
        _stat("Estimated Recovery", recovery, f"{loss}, before retraining", "estimated-recovery")
    for note in notes(basis, found, scheme, pattern):
        html.p(note).classes("il-caption").props('data-testid="estimate-note"')


def notes(basis: Basis, found: PruningEstimate, scheme: Scheme | None, pattern: str) -> list[str]:
    """What the numbers rest on, and what they do not say."""
    performance, told = basis.profile.performance, []
    if found.levels and pattern == "channel":
        told.append(
            "The profiles tried zeros anywhere: whole channels cost more, and what they gain in time is measured "
            "when the version is made."
        )
    elif found.levels and pattern != "unstructured":
        told.append("The profiles tried zeros anywhere: zeros in a pattern cost more, and may gain otherwise.")
    if unmeasured := basis.unmeasured():
        told.append(
            f"The losses of {len(unmeasured)} of {plural(len(basis.loss.layers), 'layer')} were not measured: a "
            "budget leaves them alone. Choose “Approximated” to prune by estimated losses, or add a loss profile "
            "with more time."
        )
    if performance is None:
        told.append("No layer was timed yet, so nothing is said of time: add a performance profile.")
    elif found.gained == "parameters" and found.levels and pattern != "channel":
        told.append(
            "Times of pruned copies were not measured, so nothing is said of what pruning gains in time: add a "
            "performance profile with “Times of pruned copies”, or on DeepSparse."
        )
    elif found.levels and pattern != "channel" and not gains_from_zeros(performance):
        told.append(
            f"{title(performance.engine)} gains nothing from zeros in the weights: pruning would not make this "
            "model faster there."
        )
    if found.levels and basis.loss.method == "approximated":
        told.append("Losses are only approximated from the weights: add a loss profile for measured ones.")
    if scheme == "static" and performance is not None:
        told.append(_of_int8(basis, found))
    elif scheme is not None:
        told.append("What this precision gains and costs is measured when the version is made.")
    return told


def _of_int8(basis: Basis, found: PruningEstimate) -> str:
    gain = basis.int8_speedup()
    costs = "What it costs in outputs is measured when the version is made."
    if gain is None:
        return f"No INT8 copy was timed: add a performance profile with “INT8 copy”. {costs}"
    told = f"An INT8 copy was {gain:.2f} × as fast in the profile"
    together = "; together with pruning, both gains are multiplied" if found.levels else ""
    return f"{told}{together}. {costs}"


def _times(basis: Basis, found: PruningEstimate, scheme: Scheme | None) -> tuple[float | None, float | None]:
    """The estimated time and speed-up; None where something that matters was not timed."""
    performance = basis.profile.performance
    if performance is None:
        return None, None
    speedup = found.estimated_speedup if found.levels else 1.0
    if scheme is not None:
        gain = basis.int8_speedup() if scheme == "static" else None
        speedup = None if gain is None or speedup is None else speedup * gain
    return (None, None) if speedup is None else (performance.ms_per_batch / speedup, speedup)


def _zeros(basis: Basis, found: PruningEstimate) -> float:
    """The share of all parameters that are zero afterwards."""
    loss = basis.loss
    weights = {one.weight: one for one in loss.layers}
    before = sum(one.params * one.zero_fraction for one in weights.values())
    return found.parameter_reduction + (before / loss.params if loss.params else 0.0)


def _stat(label: str, value: str, detail: str, name: str) -> None:
    shell.stat(label, value, detail).props(f'data-testid="{name}"')
