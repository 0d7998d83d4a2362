"""A profile as text, and what is said of it in sentences, in its report and on its pages alike."""

from __future__ import annotations

import math
from collections.abc import Iterator

from inferlab.profiling.estimate import estimated_ms
from inferlab.profiling.predict import gains_from_zeros
from inferlab.records import Finding
from inferlab.records.profile import (
    FlopsProfile,
    Layer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    Verified,
)
from inferlab.units import count, decimal, duration, plural, scaled, share, size
from inferlab.views import columns
from inferlab.views.intervals import between, rounded, useful
from inferlab.views.text import finding, machine_line, output_check, shapes

# So many layers are shown; all of them are in the file and in the report.
SHOWN = 15
_WIDTH = 36
# So many layers that were left out are named.
_NAMED = 5
_TYPICAL = "0.9"
_METHODS = {
    "approximated": "foretold from the weights alone",
    "one-shot": "measured on {items} of generated inputs: how far the outputs move",
    "one-shot with data": "measured on {items} of your data: {metric}",
}
_METRICS = {"relative power": "how far the outputs move", "cross-entropy": "the rise of the cross-entropy"}


def lines(profile: Profile, shown: int = SHOWN) -> list[str]:
    """Model summary, layer summaries, the slowest layers, the loss profile."""
    parts = [_model(profile)]
    if profile.performance is not None:
        parts += [summary(profile.performance), types(profile), slowest(profile, shown)]
    if profile.flops is not None:
        parts.append(_flops(profile.flops, shown if profile.performance is None else 0))
    if profile.loss is not None:
        parts.append(_loss(profile.loss, shown))
    if profile.estimate is not None:
        parts.append(_estimate(profile.estimate))
    parts.append([f"Note: {one}" for one in profile.problems])
    if profile.interrupted:
        parts.append(["Note: interrupted; what was done by then is kept."])
    return [line for index, part in enumerate(filter(None, parts)) for line in ([""] if index else []) + part]


def _model(profile: Profile) -> list[str]:
    model = profile.model
    facts = [size(model.size_bytes), model.precision]
    if model.parameters is not None:
        facts.insert(0, f"{scaled(model.parameters)} parameters")
    if model.zero_fraction and round(model.zero_fraction, 3):
        facts.append(f"{share(round(model.zero_fraction, 3))} zeros")
    return [f"Model: {model.source} ({', '.join(facts)})"]


def summary(found: PerformanceProfile) -> list[str]:
    """How fast the whole model is, and how that was measured."""
    sets = ", ".join(found.instruction_sets[-3:])
    told = [
        f"Performance Profile: {found.name}",
        f"Engine: {found.engine_and_version}, {plural(found.num_cores, 'core')}, batch size "
        f"{found.batch_size}, instruction sets {sets or 'unknown'}",
        f"Median Time (ms/batch): {_with_interval(found.ms_per_batch, found.ms_interval)} from "
        f"{plural(len(found.processes_ms), 'process', 'processes')}",
        f"Mean Throughput (items/sec): {_with_interval(found.items_per_second, found.items_interval)}",
    ]
    if found.layers:
        own = share(found.layers_sum_ms / found.ms_per_batch)
        told.append(
            f"Layers: {len(found.layers)}, by the engine's own clock {decimal(found.layers_sum_ms)} ms ({own} "
            f"of the clean time, to which they are scaled); what its profiler adds: {overhead(found)}; "
            f"{share(found.unjoined_share)} of the time belongs to no node of the graph"
        )
    told.append(f"Output Check: {output_check(found.output_check)}")
    told += [f"Note: {finding(one)}" for one in found.findings]
    return told + [f"Note: {one}" for one in (*_truth(found), *found.problems)]


def _with_interval(value: float, ends: tuple[float, float] | None) -> str:
    if ends is None:
        return decimal(value)
    if not useful(ends):
        return f"{decimal(value)} ({between(ends)})"
    return f"{rounded(value, ends)} (95 % interval {between(ends)})"


def _truth(found: PerformanceProfile) -> Iterator[str]:
    """What pruning did for this engine, where it was tried by zeroing weights."""
    if found.pruning != "zeroed" or not found.pruned or gains_from_zeros(found):
        return
    level, best = min(found.pruned.items(), key=lambda one: one[1])
    yield (
        f"{found.engine} gains nothing from zeros: with weights zeroed in a copy it is no faster at any level "
        f"(at best {decimal(best)} ms, at {level})."
    )


def typical_level(found: PerformanceProfile) -> str | None:
    """The level that stands for pruning where a table has room for one; None where none was measured."""
    measured = {key for layer in found.layers for key in layer.pruned}
    return next((key for key in (_TYPICAL, *found.pruned) if key in measured), None)


def types(profile: Profile) -> list[str]:
    """Layer summaries: time by type of layer, as it is, at a level of pruning, in INT8 and as estimated."""
    found = profile.performance
    if found is None or not found.layers:
        return []
    level = typical_level(found)
    estimated = estimated_ms(profile) if profile.estimate and profile.estimate.gained == "time" else None
    head = ["Type", "Layers", "Time (ms)", "Share"]
    head += [f"Pruned {level} (ms)"] if level else []
    head += ["INT8 (ms)"] if found.int8_ms_per_batch is not None else []
    head += ["Estimated (ms)", "Speed-up"] if estimated else []
    groups: dict[str, list[Layer]] = {}
    for layer in found.layers:
        groups.setdefault(layer.type, []).append(layer)
    rows = []
    for name, members in sorted(groups.items(), key=lambda one: -sum(layer.ms for layer in one[1])):
        ms = sum(layer.ms for layer in members)
        row = [columns.shortened(name, _WIDTH), str(len(members)), decimal(ms, 3), share(ms / found.ms_per_batch)]
        row += [decimal(sum(layer.pruned.get(level, layer.ms) for layer in members), 3)] if level else []
        if found.int8_ms_per_batch is not None:
            row.append(decimal(sum(_first(layer.int8_ms, layer.ms) for layer in members), 3))
        if estimated:
            after = sum(estimated[layer.index] for layer in members)
            row += [decimal(after, 3), f"{ms / after:.3g}x" if after else "-"]
        rows.append(row)
    return ["Layer Summaries:", *columns.aligned([head, *rows], left=(0,))]


def _first(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def slowest(profile: Profile, shown: int = SHOWN) -> list[str]:
    """The slowest layers, with what each does and reaches."""
    found = profile.performance
    layers = sorted(found.layers, key=lambda layer: -layer.ms)[:shown] if found else []
    if found is None or not layers:
        return []
    bound = any(layer.bound for layer in layers)
    head = ["#", "Type", "Id", "Weight", "Time (ms)", "±", "Share", "GFLOP/s", "Zeros"]
    head += ["Bound by", "Of limit"] if bound else []
    rows = [head]
    for layer in layers:
        row = [
            str(layer.index),
            layer.type + (" (fallback)" if layer.fallback else ""),
            columns.shortened(layer.id, _WIDTH),
            columns.shortened(layer.weight or "-", _WIDTH),
            decimal(layer.ms, 3),
            "-" if layer.spread_ms is None else decimal(layer.spread_ms, 1),
            share(layer.share),
            "-" if layer.gflops_per_second is None else count(layer.gflops_per_second),
            "-" if layer.zero_fraction is None else share(round(layer.zero_fraction, 3)),
        ]
        row += [layer.bound or "-", "-" if layer.of_limit is None else share(layer.of_limit)] if bound else []
        rows.append(row)
    more = len(found.layers) - len(layers)
    left = (1, 2, 3, 9) if bound else (1, 2, 3)
    told = [f"Slowest Layers{f' ({more} more)' if more > 0 else ''}:", *columns.aligned(rows, left=left)]
    if found.ceilings is not None:
        one = found.ceilings
        int8 = "" if one.int8_gops is None else f", {count(one.int8_gops)} GOP/s in INT8"
        told.append(
            f"Ceilings of this machine on {plural(one.num_cores, 'core')}: {count(one.fp32_gflops)} GFLOP/s in "
            f"FP32{int8}, {count(one.bandwidth_gb_per_s)} GB/s"
        )
    return told


def _flops(found: FlopsProfile, shown: int) -> list[str]:
    """What the architecture says; layer by layer where nothing was measured."""
    kinds = ", ".join(f"{scaled(work.flops, 'FLOP')} in {name}" for name, work in found.by_dtype.items())
    told = [
        f"FLOPS Profile (theoretical, batch size {found.batch_size}): {scaled(found.flops, 'FLOP')} "
        f"({scaled(found.macs, 'MAC')}{'; ' + kinds if len(found.by_dtype) > 1 else ''}), {scaled(found.params)} "
        f"parameters, {size(found.weight_bytes)} of weights, {size(found.activation_bytes)} of activations moved"
    ]
    if found.uncounted:
        named = ", ".join(f"{one.type} ({one.count}: {one.reason})" for one in found.uncounted)
        told.append(f"Note: not counted: {named}.")
    heavy = sorted((one for one in found.layers if one.flops), key=lambda one: -(one.flops or 0))[:shown]
    if heavy:
        rows = [["#", "Type", "Id", "Weight", "FLOP", "Share", "Parameters", "FLOP/byte"]]
        rows += [
            [
                str(one.index),
                one.type,
                columns.shortened(one.id, _WIDTH),
                columns.shortened(one.weight or "-", _WIDTH),
                scaled(one.flops or 0),
                share((one.flops or 0) / max(1, found.flops)),
                scaled(one.params),
                "-" if one.intensity is None else f"{one.intensity:.3g}",
            ]
            for one in heavy
        ]
        told += columns.aligned(rows, left=(1, 2, 3))
    return told


def _loss(found: LossProfile, shown: int) -> list[str]:
    items = plural(found.items, "item")
    how = _METHODS[found.method].format(items=items, metric=_METRICS[found.metric])
    told = [
        f"Loss Profile: {found.name} ({how})",
        f"Parameters: {scaled(found.params)}, {share(found.prunable_params / max(1, found.params))} of them in "
        f"{plural(len(found.layers), 'layer')} that can be pruned",
    ]
    if found.dense_accuracy is not None:
        loss = _first(found.dense_loss, math.nan)
        told.append(f"Dense: cross-entropy {loss:.4g}, accuracy {share(found.dense_accuracy)}")
    if found.average_sensitivity is not None:
        told.append(f"Average Sensitivity: {found.average_sensitivity:.3g}")
    told += [f"Note: {finding(one)}" for one in found.findings]
    told += [f"Note: {layer} was left out: {reason}." for layer, reason in list(found.left_out.items())[:_NAMED]]
    if len(found.left_out) > _NAMED:
        told.append(f"Note: {plural(len(found.left_out) - _NAMED, 'more layer')} left out.")
    known = [one for one in found.layers if one.sensitivity is not None]
    ordered = sorted(known, key=lambda one: -(one.sensitivity or 0.0))[:shown]
    if ordered:
        levels = [one for one in ("0.6", "0.8", "0.9", "0.95") if one in ordered[0].losses]
        rows = [["#", "Type", "Weight", "Parameters", "Sensitivity", *(f"Loss at {level}" for level in levels)]]
        for one in ordered:
            losses = [one.losses.get(level) for level in levels]
            rows.append(
                [
                    str(one.index),
                    one.type,
                    columns.shortened(one.weight, _WIDTH),
                    scaled(one.params),
                    f"{one.sensitivity:.3g}",
                    *("-" if loss is None else f"{loss:.3g}" for loss in losses),
                ]
            )
        told += ["Most Sensitive Layers:", *columns.aligned(rows, left=(1, 2))]
    return told


def _estimate(found: PruningEstimate) -> list[str]:
    pruned = (
        f"{plural(len(found.levels), 'layer')} pruned, {share(found.parameter_reduction)} of the parameters zero"
    )
    recovery = "" if found.recovery is None else f", {share(found.recovery)} recovered"
    limit = f"loss {found.loss:.3g} of a budget of {found.budget:g}"
    if found.estimated_ms_per_batch is None or found.ms_per_batch is None:
        return [
            f"Estimate: {pruned} ({limit}{recovery})",
            "Note: no time at levels of pruning was measured, so no speed-up is foretold. deepsparse can impose "
            "them; other engines measure them with --levels.",
        ]
    told = [
        f"Estimate: {decimal(found.estimated_ms_per_batch)} ms/batch, {found.estimated_speedup:.3g}x of the speed "
        f"({pruned}; {limit}{recovery})"
    ]
    return told + (_verified(found, found.verified) if found.verified else [])


def _verified(found: PruningEstimate, verified: Verified) -> list[str]:
    speedup = verified.baseline_ms_per_batch / verified.ms_per_batch
    loss = "" if verified.loss is None else f", loss {verified.loss:.3g}"
    return [
        f"Verified: the model was made and takes {_with_interval(verified.ms_per_batch, verified.ms_interval)} "
        f"ms/batch, {speedup:.3g}x of the speed{loss}; the estimate is off by {share(verified.error)}",
        f"Output Check: {output_check(verified.output_check)}",
    ]


_METHOD_SENTENCES = {
    "approximated": "foretold from the weights alone",
    "one-shot": "measured without data: each layer pruned alone, on {items}",
    "one-shot with data": "measured with data: each layer pruned alone, on {items}",
}
_METRIC_SENTENCES = {
    "relative power": "A loss is the power of the change of the outputs over the power of the dense outputs.",
    "cross-entropy": "A loss is the rise of the cross-entropy over that of the dense model.",
}
ROOFLINE = (
    "Below the slope a layer waits for memory, below the flat part it computes. Ceilings were measured on this "
    "machine with as many cores; a layer whose data stay in the cache may lie above the slope."
)


def wrong(profile: Profile) -> str:
    """That the outputs are not what they should be; empty where they are, or where nobody knows."""
    check = profile.performance.output_check if profile.performance else None
    if check is None or check.status != "mismatch":
        return ""
    return f"The outputs are {output_check(check)}. These times are worth nothing."


def notes(profile: Profile) -> list[str]:
    """All that qualifies the numbers: findings, what could not be made, that it was cut off."""
    performance = profile.performance
    found = [_sentence(one) for one in _findings(profile) if one.code != "output-mismatch"]
    if performance and performance.output_check.status == "unchecked":
        found.append(f"The outputs were not checked: {performance.output_check.detail or 'no reason is known'}.")
    found += profile.problems
    found += performance.problems if performance else ()
    if profile.interrupted:
        found.append("It was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(found))


def fallbacks(profile: Profile) -> str:
    """How much of the time ran elsewhere than in the engine; empty where nothing did."""
    found = sum(one.share for one in profile.performance.layers if one.fallback) if profile.performance else 0.0
    return (
        f"{share(found)} of the time ran in the engine's fallback, which pruning does not help." if found else ""
    )


def method(loss: LossProfile) -> str:
    """How the losses were found."""
    return _METHOD_SENTENCES[loss.method].format(items=plural(loss.items, "input"))


def metric(loss: LossProfile) -> str:
    """What a loss is, in a sentence."""
    return _METRIC_SENTENCES[loss.metric]


def left_out(loss: LossProfile, most: int = 5) -> str:
    """Which weights have no losses, and why; empty where all have."""
    named = [f"{name}: {reason}" for name, reason in loss.left_out.items()]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return f"Left out: {'; '.join(named[:most])}{more}." if named else ""


def _findings(profile: Profile) -> list[Finding]:
    return [one for part in (profile.performance, profile.loss) if part for one in part.findings]


def _sentence(one: Finding) -> str:
    """A finding as a sentence that stands alone."""
    sentence = finding(one)
    return sentence[:1].upper() + sentence[1:]


def overhead(found: PerformanceProfile) -> str:
    """What the engine's profiler adds to an inference, with its interval; it cannot make one faster."""
    ends = found.overhead_interval
    between = "" if ends is None else f"{share(ends[0])} to {share(ends[1])}"
    if found.profiler_overhead < 0 or (ends is not None and ends[0] <= 0):
        return f"not measurable ({between})" if between else "not measurable"
    return f"{share(found.profiler_overhead)} ({between})" if between else share(found.profiler_overhead)


#: How levels of pruning were tried.
PRUNING = {
    "imposed": "The engine imposed each level on its kernels; no weight was changed.",
    "zeroed": "At each level the smallest weights were set to zero in a copy of the model, which was measured.",
}


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
            "Inputs": shapes(performance.shapes),
            "Machine": machine_line(machine),
            "Memory": "" if machine.memory_bytes is None else size(machine.memory_bytes),
            "Versions": ", ".join(f"{name} {version}" for name, version in performance.versions.items()),
            "Settings": ", ".join(f"{name} {value}" for name, value in performance.settings.items()),
            "Pruning": PRUNING.get(performance.pruning, ""),
        }
    elif profile.flops:
        pairs["Inputs"] = shapes(profile.flops.shapes)
    if profile.loss:
        pairs["Loss"] = (
            f"{profile.loss.method}, {plural(profile.loss.items, 'input')}, {duration(profile.loss.seconds)}"
        )
        pairs["Sensitivity"] = "The mean of a layer's loss over all shares of zeros: the area under its curve."
    pairs["Made by"] = f"inferlab {profile.inferlab}, {profile.created_at}, {profile.format} {profile.id}".strip()
    return pairs
