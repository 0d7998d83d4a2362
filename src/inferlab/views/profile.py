"""A profile as text, and what is said of it in sentences, in its report and on its pages alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from inferlab.profiling.gains import (
    best_gain,
    estimated_ms,
    faster_elsewhere,
    has_estimate,
    outputs_are_wrong,
)
from inferlab.profiling.zeros import gains_from_zeros
from inferlab.records import Finding
from inferlab.records.profile import (
    ChannelGroup,
    FlopsProfile,
    Gain,
    Layer,
    LossLayer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    RecipeEstimate,
    Verified,
)
from inferlab.store import formats
from inferlab.units import capitalized, count, decimal, duration, plural, scaled, share, size
from inferlab.views import tables
from inferlab.views.fields import Field, between, rounded, useful
from inferlab.views.results import View, short_name
from inferlab.views.tables import Block, Note, Pair, Table
from inferlab.views.text import (
    finding,
    machine_line,
    model_line,
    output_check,
    shapes,
    what_is_done,
    what_is_done_by,
)

# So many layers are shown; all of them are in the file and in the report.
SHOWN = 15
_WIDTH = 36
# So many layers that were left out are named.
_NAMED = 5
_TYPICAL = "0.9"
_METHODS = {
    "approximated": "estimated from the weights alone",
    "one-shot": "measured on {items} of generated inputs: how far the outputs move",
    "one-shot with data": "measured on {items} of your data: {metric}",
}
_METRICS = {"relative power": "how far the outputs move", "cross-entropy": "the rise of the cross-entropy"}


def view_of(profile: Profile) -> View:
    """How it is shown and written."""

    def rows() -> list[dict[str, Any]]:
        from inferlab.views.reports.profile import layer_rows  # late: it draws charts

        return layer_rows(profile)

    def html() -> str:
        from inferlab.views.reports.profile import report

        return report(profile)

    title = f"{short_name(profile.model.source)}: profile"
    return View(title, lambda: blocks(profile), rows, lambda: formats.content_of(profile), html)


def blocks(profile: Profile, shown: int = SHOWN, summary_type: str = "") -> list[Block]:
    """Model summary, layer summaries, the slowest layers, the loss profile.

    With a summary type, as the pages call it, the tables of layers have that.
    """
    parts: list[Sequence[Block]] = [[Pair("Model", model_line(profile.model))]]
    if profile.performance is not None:
        parts += [
            summary(profile.performance),
            types(profile, summary_type),
            slowest(profile, shown, summary_type),
        ]
    if profile.flops is not None:
        parts.append(_flops(profile.flops, shown if profile.performance is None else 0))
    if profile.loss is not None:
        parts.append(_loss(profile.loss, shown))
    if profile.estimate is not None or profile.gains or outputs_are_wrong(profile):
        parts.append(_estimate(profile))
    parts.append(tables.notes(profile.problems))
    if profile.interrupted:
        parts.append([Note("interrupted; what was done by then is kept.")])
    return tables.spaced(*parts)


def summary(found: PerformanceProfile) -> list[Block]:
    """How fast the whole model is, and how that was measured."""
    sets = ", ".join(found.instruction_sets[-3:])
    processes = plural(len(found.processes_ms), "process", "processes")
    told: list[Block] = [
        Pair("Performance profile", found.name),
        Pair(
            "Engine",
            f"{found.engine_and_version}, {plural(found.num_cores, 'core')}, batch size "
            f"{found.batch_size}, instruction sets {sets or 'unknown'}",
        ),
        Pair(
            "Median time (ms/batch)",
            f"{_with_interval(found.ms_per_batch, found.ms_interval)} from {processes}",
            strong=True,
        ),
        Pair("Mean throughput (items/sec)", _with_interval(found.items_per_second, found.items_interval)),
    ]
    if found.layers:
        own = share(found.layers_sum_ms / found.ms_per_batch)
        layers = (
            f"{len(found.layers)}, by the engine's own clock {decimal(found.layers_sum_ms)} ms ({own} "
            f"of the time without the profiler, to which they are scaled); profiler overhead: {overhead(found)}; "
            f"{share(found.unattributed_share)} of the time belongs to no node of the graph"
        )
        told.append(Pair("Layers", layers))
    told.append(Pair("Output check", output_check(found.output_check)))
    return [*told, *tables.notes([*map(finding, found.findings), *_truth(found), *found.problems])]


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
    level, best = min(found.pruned.items(), key=lambda item: item[1])
    yield (
        f"{found.engine} gains nothing from zeros: with weights zeroed in a copy it is no faster at any level "
        f"(at best {decimal(best)} ms, at {level})."
    )


def typical_level(found: PerformanceProfile) -> str | None:
    """The level that stands for pruning where a table has room for one; None where none was measured."""
    measured = {key for layer in found.layers for key in layer.pruned}
    return next((key for key in (_TYPICAL, *found.pruned) if key in measured), None)


def types(profile: Profile, summary_type: str = "") -> list[Block]:
    """Layer summaries: time by type of layer, as it is, at a level of pruning, in INT8 and as estimated.

    With a summary type, that in their place.
    """
    found = profile.performance
    if found is None or not found.layers:
        return []
    level = typical_level(found)
    estimated = estimated_ms(profile) if has_estimate(profile) else None
    groups: dict[str, list[Layer]] = {}
    for layer in found.layers:
        groups.setdefault(layer.type, []).append(layer)
    rows = sorted(groups.items(), key=lambda row: -_total_ms(row))
    shown = [
        Field("type", "Type", lambda row: row[0], left=True, longest=_WIDTH),
        Field("layers", "Layers", lambda row: len(row[1])),
        Field("ms", "Time (ms)", _total_ms, _three_places),
        Field("share", "Share", lambda row: _total_ms(row) / found.ms_per_batch, share),
    ]
    if summary_type:
        return [Table([*shown, *_chosen_by_type(profile, summary_type)], rows, "Layer summaries")]
    if level:
        pruned = _summed(lambda layer: layer.pruned.get(level, layer.ms))
        shown.append(Field(f"pruned_{level}_ms", f"Pruned {level} (ms)", pruned, _three_places))
    if found.int8_ms_per_batch is not None:
        int8 = _summed(lambda layer: _first(layer.int8_ms, layer.ms))
        shown.append(Field("int8_ms", "INT8 (ms)", int8, _three_places))
    if estimated:
        after = _summed(lambda layer: estimated[layer.index])
        shown.append(Field("estimated_ms", "Estimated (ms)", after, _three_places))
        shown.append(
            Field(
                "speed_up",
                "Speed-up",
                lambda row: _total_ms(row) / after(row) if after(row) else None,
                "{:.3g}x".format,
            )
        )
    return [Table(shown, rows, "Layer summaries")]


_Group = tuple[str, Sequence[Layer]]


def _chosen_by_type(profile: Profile, summary_type: str) -> list[Field]:
    """A summary type as columns; a layer without a time of its own counts as it is."""
    from inferlab.views.charts.profile_values import timed_summary  # late: it draws charts

    title, values = timed_summary(profile, summary_type)
    saves = summary_type == "speedup"
    after = _summed(lambda layer: _first(values[layer.index], 0.0 if saves else layer.ms))

    def speedup(row: _Group) -> float | None:
        left = _total_ms(row) - after(row) if saves else after(row)
        return _total_ms(row) / left if left else None

    if summary_type == "baseline":
        return []
    column = Field(f"{summary_type}_ms", _titled(title), after, _three_places)
    return [column, Field("speed_up", "Speed-up", speedup, "{:.3g}x".format)]


def _titled(title: str) -> str:
    return f"{title.removesuffix(' ms')} (ms)"


def _summed(get: Callable[[Layer], float]) -> Callable[[_Group], float]:
    return lambda row: sum(map(get, row[1]))


def _total_ms(row: _Group) -> float:
    return sum(layer.ms for layer in row[1])


def _three_places(value: float) -> str:
    return decimal(value, 3)


def _first(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def type_or_fallback(layer: Layer) -> str:
    """The type of a layer, and whether it ran elsewhere than in the engine."""
    return f"{layer.type} (fallback)" if layer.fallback else layer.type


_INDEX = Field("index", "#", attrgetter("index"))
_TYPE = Field("type", "Type", attrgetter("type"), left=True)
_ID = Field("id", "Id", attrgetter("id"), left=True, longest=_WIDTH)
_WEIGHT = Field("weight", "Weight", lambda layer: layer.weight or None, left=True, longest=_WIDTH)
_PARAMS = Field("params", "Parameters", attrgetter("params"), scaled)


def slowest(profile: Profile, shown: int = SHOWN, summary_type: str = "") -> list[Block]:
    """The slowest layers, with what each does and reaches."""
    found = profile.performance
    layers = sorted(found.layers, key=lambda layer: -layer.ms)[:shown] if found else []
    if found is None or not layers:
        return []
    fields = [
        *(_INDEX, replace(_TYPE, get=type_or_fallback), _ID, _WEIGHT),
        Field("ms", "Time (ms)", lambda layer: layer.ms, _three_places),
        Field("spread_ms", "±", lambda layer: layer.spread_ms, lambda value: decimal(value, 1)),
        Field("share", "Share", lambda layer: layer.share, share),
        Field("gflops_per_second", "GFLOP/s", lambda layer: layer.gflops_per_second, count),
        Field("zero_fraction", "Zeros", lambda layer: layer.zero_fraction, lambda part: share(round(part, 3))),
    ]
    if summary_type not in ("", "baseline"):
        from inferlab.views.charts.profile_values import timed_summary  # late: it draws charts

        title, values = timed_summary(profile, summary_type)
        own = Field(f"{summary_type}_ms", _titled(title), lambda layer: values[layer.index], _three_places)
        fields.insert(next(place for place, field in enumerate(fields) if field.key == "spread_ms") + 1, own)
    if any(layer.bound for layer in layers):
        fields.append(Field("bound", "Bound by", lambda layer: layer.bound or None, left=True))
        fields.append(Field("of_limit", "Of limit", lambda layer: layer.of_limit, share))
    more = len(found.layers) - len(layers)
    told: list[Block] = [Table(fields, layers, f"Slowest layers{f' ({more} more)' if more > 0 else ''}")]
    if found.ceilings is not None:
        one = found.ceilings
        int8 = "" if one.int8_gops is None else f", {count(one.int8_gops)} GOP/s in INT8"
        told.append(
            f"Ceilings of this machine on {plural(one.num_cores, 'core')}: {count(one.fp32_gflops)} GFLOP/s in "
            f"FP32{int8}, {count(one.bandwidth_gb_per_s)} GB/s"
        )
    return told


def _flops(found: FlopsProfile, shown: int) -> list[Block]:
    """What the architecture says; layer by layer where nothing was measured."""
    kinds = work_by_type(found)
    told: list[Block] = [
        Pair(
            f"FLOPS profile (theoretical, batch size {found.batch_size})",
            f"{scaled(found.flops, 'FLOP')} ({scaled(found.macs, 'MAC')}"
            f"{'; ' + kinds if len(found.by_dtype) > 1 else ''}), {scaled(found.params)} parameters, "
            f"{size(found.weight_bytes)} of weights, {size(found.activation_bytes)} of activations moved",
        )
    ]
    if found.uncounted:
        named = ", ".join(f"{one.type} ({one.count}: {one.reason})" for one in found.uncounted)
        told.append(Note(f"not counted: {named}."))
    heavy = sorted((layer for layer in found.layers if layer.flops), key=lambda layer: -(layer.flops or 0))[:shown]
    if heavy:
        fields = [
            *(_INDEX, _TYPE, _ID, _WEIGHT),
            Field("flops", "FLOP", lambda layer: layer.flops or 0, scaled),
            Field("share", "Share", lambda layer: (layer.flops or 0) / max(1, found.flops), share),
            _PARAMS,
            Field("intensity", "FLOP/byte", attrgetter("intensity"), "{:.3g}".format),
        ]
        told.append(Table(fields, heavy))
    return told


def work_by_type(found: FlopsProfile) -> str:
    """The work in each type of data."""
    return ", ".join(f"{scaled(work.flops, 'FLOP')} in {name}" for name, work in found.by_dtype.items())


def _loss(found: LossProfile, shown: int) -> list[Block]:
    items = plural(found.items, "item")
    how = _METHODS[found.method].format(items=items, metric=_METRICS[found.metric])
    told: list[Block] = [
        Pair("Loss profile", f"{found.name} ({how})"),
        Pair(
            "Parameters",
            f"{scaled(found.params)}, {share(found.prunable_params / max(1, found.params))} of them in "
            f"{plural(len(found.layers), 'layer')} that can be pruned",
        ),
    ]
    if found.dense_accuracy is not None:
        loss = _first(found.dense_loss, math.nan)
        told.append(Pair("Dense", f"cross-entropy {loss:.4g}, accuracy {share(found.dense_accuracy)}"))
    if found.average_sensitivity is not None:
        told.append(Pair("Average sensitivity", f"{found.average_sensitivity:.3g}"))
    told += tables.notes(map(finding, found.findings))
    left_out = list(found.left_out.items())
    told += [Note(f"{layer} was left out: {reason}.") for layer, reason in left_out[:_NAMED]]
    if len(found.left_out) > _NAMED:
        told.append(Note(f"{plural(len(found.left_out) - _NAMED, 'more layer')} left out."))
    known = [layer for layer in found.layers if layer.sensitivity is not None]
    ordered = sorted(known, key=lambda layer: -(layer.sensitivity or 0.0))[:shown]
    if ordered:
        levels = [key for key in ("0.6", "0.8", "0.9", "0.95") if any(key in layer.losses for layer in ordered)]
        fields = [
            *(_INDEX, _TYPE, _WEIGHT, _PARAMS),
            Field("sensitivity", "Sensitivity", attrgetter("sensitivity"), "{:.3g}".format),
            *(Field(f"loss_{level}", f"Loss at {level}", loss_at(level), "{:.3g}".format) for level in levels),
        ]
        told.append(Table(fields, ordered, "Most sensitive layers"))
    return told + _groups(found, shown)


def _groups(found: LossProfile, shown: int) -> list[Block]:
    """What removing channels costs, the groups with most of them first."""
    groups = sorted(found.groups, key=lambda group: -group.channels)[:shown]
    told: list[Block] = []
    if groups:
        shares = [key for key in ("0.125", "0.25", "0.5", "0.75") if any(key in group.losses for group in groups)]
        fields = [
            Field("weights", "Channels of", lambda group: ", ".join(group.weights), left=True, longest=_WIDTH),
            Field("channels", "Channels", lambda group: group.channels),
            *(
                Field(f"loss_{key}", f"Loss without {share(float(key))}", loss_at(key), "{:.3g}".format)
                for key in shares
            ),
        ]
        more = len(found.groups) - len(groups)
        told.append(Table(fields, groups, f"Channels that go together{f' ({more} more)' if more > 0 else ''}"))
    kept = list(found.channels_kept.items())
    told += [Note(f"{weight} keeps its channels: {reason}.") for weight, reason in kept[:_NAMED]]
    if len(kept) > _NAMED:
        told.append(Note(f"{plural(len(kept) - _NAMED, 'more weight')} keep theirs."))
    return told


def loss_at(level: str) -> Callable[[LossLayer | ChannelGroup], float | None]:
    """What pruning a layer, or removing channels, this far costs, where it was tried."""
    return lambda pruned: pruned.losses.get(level)


def expected_accuracy(found: PruningEstimate | RecipeEstimate | Gain, before: str = "") -> str:
    """The accuracy that an estimate expects, with what goes before it; empty without labels."""
    return "" if found.accuracy is None else f"{before}accuracy {share(found.accuracy)} expected"


def _estimate(profile: Profile) -> list[Block]:
    """How fast the model could be, and what else was tried."""
    zeros, best = profile.estimate, best_gain(profile)
    told: list[Block]
    if outputs_are_wrong(profile):
        return [Pair("Estimate", NO_ESTIMATE, strong=True)]
    if nothing_gains(profile):
        told = [Pair("Estimate", f"no faster: {NOTHING_GAINS}", strong=True)]
    elif best is None or best.zeros:
        told = [] if zeros is None else _zeros_estimate(zeros, profile.interrupted)
    else:
        told = [
            Pair(
                "Estimate",
                f"{decimal(best.ms_per_batch)} ms/batch, {best.speedup:.3g} times as fast ({what_is_done(best)}; "
                f"{gain_verdict(best)})",
                strong=True,
            )
        ]
    others = [gain for gain in profile.gains if gain is not best]
    if others:
        told.append(Pair("Also tried" if best else "Tried", "; ".join(_tried(gain) for gain in others)))
    if elsewhere := other_engine(profile):
        told.append(Pair("Elsewhere", elsewhere))
    verified = best.verified if best is not None and best.verified else zeros.verified if zeros else None
    return told + (_verified(verified) if verified else [])


#: Where the engine computes wrongly as it is.
NO_ESTIMATE = "none, for the outputs are wrong; --no-verify makes it all the same"
#: What an estimate says where the model is best left as it is.
NOTHING_GAINS = "nothing that was tried gains within the loss budget"


def nothing_gains(profile: Profile) -> bool:
    """Whether something was tried to make the model faster, and none of it counts."""
    zeros = profile.estimate
    from_zeros = zeros is not None and zeros.gained == "time" and bool(zeros.levels)
    return has_estimate(profile) and best_gain(profile) is None and (bool(profile.gains) or not from_zeros)


def estimate_source(profile: Profile) -> str:
    """What the estimated speed-up comes from, or that nothing gains; empty where nothing was tried."""
    best, zeros = best_gain(profile), profile.estimate
    if best is not None:
        return what_is_done(best)
    if nothing_gains(profile):
        return NOTHING_GAINS
    return "" if zeros is None else f"{share(zeros.parameter_reduction)} of the parameters zero"


def other_engine(profile: Profile) -> str:
    """That another installed engine is faster still, in a clause; empty where none is known to be."""
    other, performance = faster_elsewhere(profile), profile.performance
    if other is None or performance is None:
        return ""
    here = performance.estimated_ms_per_batch or performance.ms_per_batch
    changed = what_is_done_by(other.int8, other.channels, other.zeros)
    changed += f", loss {other.loss:.3g}" if other.loss is not None else ""
    than = "the estimate here" if performance.estimated_ms_per_batch else "here"
    there = f", and {decimal(other.unchanged_ms)} without that" if changed and other.unchanged_ms else ""
    return (
        f"{other.engine} takes {decimal(other.ms_per_batch)} ms/batch ({changed or 'the model as it is'}){there}, "
        f"{here / other.ms_per_batch:.3g} times as fast as {than}"
    )


def gain_line(gain: Gain) -> str:
    """A gain in a line: what is done, what it gives, and why it does not count where it does not."""
    return f"{what_is_done(gain)}: {gain.speedup:.2f} ×{_in_brackets(gain_verdict(gain), gain)}"


def _tried(gain: Gain) -> str:
    ms, verdict = decimal(gain.ms_per_batch), _in_brackets(gain_verdict(gain), gain)
    return f"{what_is_done(gain)}: {ms} ms/batch, {gain.speedup:.3g} times as fast{verdict}"


def gain_verdict(gain: Gain) -> str:
    """Its loss, the accuracy that is expected, and why it does not count where it does not."""
    accuracy = expected_accuracy(gain, ", ")
    if gain.loss is None:
        return f"its loss is not known{accuracy}"
    if gain.loss > gain.budget:
        return f"its loss of {gain.loss:.3g} is above the budget of {gain.budget:g}{accuracy}"
    if not gain.counts:
        return f"no faster beyond the noise, loss {gain.loss:.3g}{accuracy}"
    return f"loss {gain.loss:.3g} of a budget of {gain.budget:g}{accuracy}"


def _in_brackets(verdict: str, gain: Gain) -> str:
    return "" if gain.counts else f" ({verdict})"


def _zeros_estimate(found: PruningEstimate, interrupted: bool) -> list[Block]:
    """What zeros in the weights would give."""
    pruned = (
        f"{plural(len(found.levels), 'layer')} pruned, {share(found.parameter_reduction)} of the parameters zero"
    )
    recovery = "" if found.recovery is None else f", {share(found.recovery)} recovered"
    recovery += expected_accuracy(found, ", ")
    limit = f"loss {found.loss:.3g} of a budget of {found.budget:g}"
    if found.estimated_ms_per_batch is None or found.ms_per_batch is None:
        reason = (
            "it was interrupted before any changed copy was timed, so no speed-up is predicted."
            if interrupted
            else "no times at sparsity levels were measured, so no speed-up is predicted. deepsparse can impose "
            "them; other engines measure them with --levels."
        )
        return [Pair("Estimate", f"{pruned} ({limit}{recovery})", strong=True), Note(reason)]
    return [
        Pair(
            "Estimate",
            f"{decimal(found.estimated_ms_per_batch)} ms/batch, {found.estimated_speedup:.3g} times as fast "
            f"({pruned}; {limit}{recovery})",
            strong=True,
        )
    ]


def _verified(verified: Verified) -> list[Block]:
    speedup = verified.baseline_ms_per_batch / verified.ms_per_batch
    loss = "" if verified.loss is None else f", loss {verified.loss:.3g}"
    return [
        Pair(
            "Verified",
            f"the model was made and takes {_with_interval(verified.ms_per_batch, verified.ms_interval)} "
            f"ms/batch, {speedup:.3g} times as fast{loss}; the estimate is off by {share(verified.error)}",
        ),
        Pair("Output check", output_check(verified.output_check)),
    ]


_METHOD_SENTENCES = {
    "approximated": "estimated from the weights alone",
    "one-shot": "measured without data: each layer pruned alone, on {items}",
    "one-shot with data": "measured with data: each layer pruned alone, on {items}",
}
_METRIC_SENTENCES = {
    "relative power": "A loss is the mean square change of the outputs over the mean square of the dense outputs.",
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
    return f"The outputs are {output_check(check)}. These times are meaningless."


def notes(profile: Profile) -> list[str]:
    """All that qualifies the numbers: findings, what could not be made, that it was cut off."""
    performance = profile.performance
    found = [capitalized(finding(one)) for one in _findings(profile) if one.code != "output-mismatch"]
    if performance and performance.output_check.status == "unchecked":
        found.append(f"The outputs were not checked: {performance.output_check.detail or 'no reason is known'}.")
    found += profile.problems
    found += performance.problems if performance else ()
    if profile.interrupted:
        found.append("It was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(found))


def fallbacks(profile: Profile) -> str:
    """How much of the time ran elsewhere than in the engine; empty where nothing did."""
    found = (
        sum(layer.share for layer in profile.performance.layers if layer.fallback) if profile.performance else 0.0
    )
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
            "Whole model": f"{processes}, without the profiler: {times} ms",
            "Layers": "The engine's own times of a second pass, scaled so that they add up to the time "
            "without the profiler; a spread is the standard deviation between processes.",
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
        pairs["Sensitivity"] = "The mean of a layer's loss over all sparsities: the area under its curve."
    pairs["Made by"] = f"inferlab {profile.inferlab}, {profile.created_at}, {profile.format} {profile.id}".strip()
    return pairs
