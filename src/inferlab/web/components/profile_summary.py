"""The Model Summary of a profile: how fast it is, and what pruning would give within a loss budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlencode

from nicegui import ui
from nicegui.element import Element

from inferlab.profiling.gains import best_gain
from inferlab.profiling.zeros import gains_from_zeros
from inferlab.records import Shape
from inferlab.records.optimization import CHANNEL, Scheme
from inferlab.records.profile import Interval, PerformanceProfile, Profile, PruningEstimate, RecipeEstimate
from inferlab.units import count, decimal, plural, share
from inferlab.views import profile as words
from inferlab.views import text
from inferlab.views.fields import between_at
from inferlab.web import shell
from inferlab.web.shell import div, p, refilled
from inferlab.workspace.engines import title
from inferlab.workspace.versions import Basis

# A speed-up that is worth the work.
_WORTH_SAYING = 1.01


def notices(profile: Profile) -> None:
    """What must not be missed, above everything: wrong outputs first."""
    if told := words.wrong(profile):
        shell.banner("wrong", told, "wrong-outputs")
    shell.findings(words.notes(profile), "notes")


def start_optimizing(project_id: str, speedup: float | None = None, begin: str = "") -> ui.button:
    """The way from what pruning would give to where it is done, which begins as an address says."""
    gain = "Prune or quantise the model, and measure what that gains."
    if speedup is not None and speedup >= _WORTH_SAYING:
        gain = f"An estimated {speedup:.2f} × speed-up could be achieved by optimizing."
    p("il-caption", gain, name="optimizing-gain")
    button = ui.button("Start optimizing").classes("il-start-optimizing")
    button.props(f'href="/projects/{project_id}/optimization{begin}" data-testid="start-optimizing"')
    return button


def as_estimated(performance_id: str, loss_id: str | None, budget: float) -> str:
    """What begins the next version with what a profile estimates within a budget, as the end of an address."""
    query = {"preset": "estimated", "performance": performance_id, "loss": loss_id or "", "budget": f"{budget:g}"}
    return f"?{urlencode(query)}"


def of_version(name: str | None) -> None:
    """Say which version of the model was profiled, where it is not the original."""
    if name is not None:
        shell.chip(f"version: {name}", name="profiled-version")


def setting(performance: PerformanceProfile) -> None:
    """Under which conditions it was measured."""
    version = performance.versions.get(performance.engine, "")
    with shell.stats("il-summary-facts"):
        shell.fact("Name", performance.name, "name")
        shell.fact("Engine", f"{title(performance.engine)} {version}".rstrip(), "engine")
        shell.fact("Batch size", str(performance.batch_size), "batch-size")
        shell.fact("Core count", str(performance.num_cores), "num-cores")
        input_shapes(performance.shapes)
        sets = ", ".join(
            instruction_set.upper().replace("_", ".") for instruction_set in performance.instruction_sets
        )
        shell.fact("Measured", moment(performance.measured_at), "measured-at")
        shell.fact("Instruction sets", sets or "unknown", "instruction-sets", wide=True)


def input_shapes(shapes: Mapping[str, Shape]) -> None:
    """Which shapes the inputs had."""
    shell.fact("Input shapes", text.shapes(shapes) or "unknown", "shapes", wide=True)


def measured(performance: PerformanceProfile) -> None:
    """How fast it is."""
    with shell.stats("il-summary-numbers"):
        ms, items = performance.ms_per_batch, performance.items_per_second
        ms_ends, items_ends = performance.ms_interval, performance.items_interval
        shell.stat(
            "Time per batch (ms, median)",
            decimal(ms, 3),
            _ends(ms_ends, lambda ms: decimal(ms, 3)),
            "ms-per-batch",
        )
        shell.stat("Throughput (items/s, mean)", count(items), _ends(items_ends, count), "items-per-second")
        if performance.int8_ms_per_batch:
            int8_ms = performance.int8_ms_per_batch
            shell.stat(
                "INT8 time per batch (ms)",
                decimal(int8_ms, 3),
                f"{ms / int8_ms:.2f} × as fast",
                "int8-ms-per-batch",
            )
    check = performance.output_check
    kind: shell.Kind = {"match": "ok", "mismatch": "wrong"}.get(check.status, "warn")  # type: ignore[assignment]
    with div("il-chips"):
        shell.chip(f"outputs: {check.status}", kind, "output-check")
        if performance.layers:
            shell.chip(f"profiler overhead {words.overhead(performance)}", "muted")
            shell.chip(f"{share(performance.unattributed_share)} not attributed", "muted")


def estimated(slot: Element, profile: Profile) -> None:
    """How fast it could be, within the budget."""
    timed: PerformanceProfile | PruningEstimate | None = profile.performance or profile.estimate
    ms, speedup = (timed.estimated_ms_per_batch, timed.estimated_speedup) if timed else (None, None)
    time, consists = UNKNOWN if ms is None else decimal(ms, 3), words.estimate_source(profile)
    _estimated_stats(
        slot,
        profile,
        ("Estimated time per batch (ms)", time, _spent(profile), "estimated-ms"),
        ("Estimated speed-up", _times_as_fast(speedup), consists, "estimated-speedup"),
    )


def pruned(slot: Element, profile: Profile) -> None:
    """What pruning within the budget would leave: of the parameters, and of the outputs' quality."""
    estimate = profile.estimate
    left = 1.0 if estimate is None else 1 - estimate.parameter_reduction
    zeros = "" if estimate is None else f"{share(estimate.parameter_reduction)} of the parameters become zero"
    recovery = UNKNOWN if estimate is None or estimate.recovery is None else share(estimate.recovery)
    reduction = _times_as_fast(1 / left if estimate is not None and left > 0 else None)
    _estimated_stats(
        slot,
        profile,
        ("Estimated reduction", reduction, zeros, "reduction"),
        ("Estimated recovery", recovery, _spent(profile), "recovery"),
    )


def _estimated_stats(slot: Element, profile: Profile, *stats: tuple[str, str, str, str]) -> None:
    with refilled(slot):
        with shell.stats("il-summary-numbers"):
            for stat in stats:
                shell.stat(*stat)
        known = profile.estimate is not None or profile.gains
        note = _note(profile) if known else _why_none(profile)
        p("il-caption", note, name="estimate-note")


def _times_as_fast(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.2f} ×"


def moment(text: str) -> str:
    """A moment as it was kept, in the time of this machine."""
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return text


def _ends(ends: Interval | None, told: Callable[[float], str]) -> str:
    if ends is None:
        return "no interval: one process"
    return between_at(ends, 0.95, told)


UNKNOWN = "–"


def _spent(profile: Profile) -> str:
    """How much of the budget it takes."""
    best = best_gain(profile)
    estimate = best if best is not None and best.loss is not None else profile.estimate
    if estimate is None:
        return ""
    return f"loss {estimate.loss:.3g} of {estimate.budget:g}{words.expected_accuracy(estimate, ', ')}"


def _why_none(profile: Profile) -> str:
    if profile.loss is None:
        return "There is no loss profile of this model, so pruning cannot be estimated."
    return "No layer of this model can be pruned: nothing can be estimated."


def _note(profile: Profile) -> str:
    estimate, performance = profile.estimate, profile.performance
    if profile.gains:
        return _tried(profile)
    assert estimate is not None
    if performance is not None and (told := _nothing_gained(performance)):
        return told
    if not estimate.levels:
        return "Nothing is pruned: no layer gains enough for what it would cost. Allow more loss."
    levels = sorted(estimate.levels.values())
    span = f"{levels[0]:g}" if levels[0] == levels[-1] else f"{levels[0]:g} to {levels[-1]:g}"
    return f"{plural(len(levels), 'weight')} pruned, to {span} zeros."


def _nothing_gained(performance: PerformanceProfile) -> str:
    """Why zeros gain no time, or nobody knows what they gain; empty where something is known."""
    if not performance.pruned:
        return (
            "Times of pruned copies were not measured, so nothing is said of what pruning gains in time. Add a "
            "performance profile with “Times of pruned copies”, or on an engine that imposes sparsity."
        )
    if gains_from_zeros(performance):
        return ""
    return (
        f"Zeros in the weights gain nothing on {title(performance.engine)}: pruning would not make this model "
        "faster here."
    )


def _tried(profile: Profile) -> str:
    """What was tried on copies besides the best."""
    best = best_gain(profile)
    told = [words.gain_line(gain) for gain in profile.gains if gain is not best]
    sentences = [f"{'Tried' if best is None else 'Also tried'}: {'; '.join(told)}."] if told else []
    if elsewhere := words.other_engine(profile):
        sentences.append(f"Elsewhere: {elsewhere}.")
    return " ".join(sentences)


def show_estimate(basis: Basis, estimate: RecipeEstimate, scheme: Scheme | None, pattern: str) -> None:
    """The numbers of an estimate, and a note on each thing that it cannot know."""
    performance = basis.profile.performance
    ms, speedup = estimate.estimated_ms_per_batch, estimate.estimated_speedup
    with shell.stats("il-summary-numbers"):
        if performance is not None:
            where = f"{title(performance.engine)}, batch {performance.batch_size}, now"
            shell.stat("Time per batch (ms)", decimal(performance.ms_per_batch, 3), where, "ms-per-batch")
        shell.stat("Estimated time per batch (ms)", UNKNOWN if ms is None else decimal(ms, 3), "", "estimated-ms")
        shell.stat("Estimated speed-up", _times_as_fast(speedup), "", "estimated-speedup")
        zeros = _zeros(basis, estimate)
        shell.stat("Zeros", share(zeros), "of all parameters", "estimated-zeros")
        loss = "loss not known" if estimate.loss is None else f"loss {estimate.loss:.3g}"
        loss = "outputs are not numbers" if estimate.loss == math.inf else loss
        recovery = UNKNOWN if estimate.recovery is None else share(estimate.recovery)
        if unmeasured := basis.unmeasured(estimate.levels):
            recovery, loss = UNKNOWN, f"{plural(len(unmeasured), 'layer')} not measured"
        else:
            loss += words.expected_accuracy(estimate, ", ")
        shell.stat("Estimated recovery", recovery, f"{loss}, before retraining", "estimated-recovery")
    for note in notes(basis, estimate, scheme, pattern):
        p("il-caption", note, name="estimate-note")


def notes(basis: Basis, estimate: RecipeEstimate, scheme: Scheme | None, pattern: str) -> list[str]:
    """What the numbers rest on, and what they do not say."""
    performance, told = basis.profile.performance, []
    if estimate.levels and pattern == CHANNEL and basis.loss.groups:
        told.append("The loss is that of removed channels; those of single layers below are of zeros anywhere.")
    elif estimate.levels and pattern == CHANNEL:
        told.append(
            "The profiles tried zeros anywhere: whole channels cost more, and what they gain in time is measured "
            "when the version is made."
            if estimate.estimated_ms_per_batch is None
            else "Time and loss are those of copies with fewer channels; losses of single layers below are of "
            "zeros anywhere."
        )
    elif estimate.levels and pattern != "unstructured":
        told.append("The profiles tried zeros anywhere: zeros in a pattern cost more, and may gain otherwise.")
    if unmeasured := basis.unmeasured():
        told.append(
            f"The losses of {len(unmeasured)} of {plural(len(basis.loss.layers), 'layer')} were not measured: a "
            "budget leaves them alone. Choose “Approximated” to prune by estimated losses, or add a loss profile "
            "with more time."
        )
    if performance is None:
        told.append("No layer was timed yet, so nothing is said of time: add a performance profile.")
    elif estimate.levels and pattern != CHANNEL and (why := _nothing_gained(performance)):
        told.append(why)
    if estimate.levels and basis.loss.method == "approximated":
        told.append("Losses are only approximated from the weights: add a loss profile for measured ones.")
    if scheme == "static" and performance is not None:
        told.append(_of_int8(basis, estimate, pattern))
    elif scheme is not None:
        told.append("What this precision gains and costs is measured when the version is made.")
    return told


def _of_int8(basis: Basis, estimate: RecipeEstimate, pattern: str) -> str:
    gain = basis.int8_speedup()
    costs = "What it costs in outputs is measured when the version is made."
    if estimate.loss is not None:
        costs = "What it costs is what that copy lost" + (", added to the rest." if estimate.levels else ".")
    if gain is None:
        return f"No INT8 copy was timed: add a performance profile with “INT8 copy”. {costs}"
    told = f"An INT8 copy was {gain:.2f} × as fast in the profile"
    multiplied = estimate.levels and pattern != CHANNEL
    together = "; together with pruning, both gains are multiplied" if multiplied else ""
    return f"{told}{together}. {costs}"


def _zeros(basis: Basis, estimate: RecipeEstimate) -> float:
    """The share of all parameters that are zero afterwards."""
    loss = basis.loss
    weights = {layer.weight: layer for layer in loss.layers}
    before = sum(weight.params * weight.zero_fraction for weight in weights.values())
    return estimate.parameter_reduction + (before / loss.params if loss.params else 0.0)
