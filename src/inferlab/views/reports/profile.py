"""A profile as one HTML file that opens offline, and the tables of its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from inferlab.errors import BadInput
from inferlab.profiling.gains import best_gain, estimated_ms, has_estimate, with_estimate
from inferlab.records.profile import (
    ChangedCopy,
    FlopsProfile,
    Layer,
    LossProfile,
    PerformanceProfile,
    Profile,
    TypeGain,
    Verified,
)
from inferlab.units import count, decimal, plural, scaled, share, size
from inferlab.views import profile as words
from inferlab.views.charts import losses
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.profile_values import FLOPS, VALUES, fewer_channels, summaries
from inferlab.views.fields import Field, between
from inferlab.views.profile import expected_accuracy, loss_at, overhead, type_or_fallback, typical_level
from inferlab.views.reports import page as parts
from inferlab.views.reports.page import Columns, Element, columns, numbers
from inferlab.views.results import short_name
from inferlab.views.tables import Table
from inferlab.views.text import output_check, what_is_done

#: The titles of columns that hold text; all others hold numbers.
NAMES = ("ID", "Type", "Weight", "Kernel", "Data type", "Bound by", "Interval", "B is")


def _text(label: str, get: Callable[[Any], str | None]) -> Field:
    return Field("", label, get, left=True)


def _number(
    label: str, name: str, digits: int = 3, change: Callable[[float], float] = float, group: str = ""
) -> Field:
    def get(layer: Any) -> float | None:
        value = getattr(layer, name)
        return None if value is None else change(value)

    return Field("", label, get, digits=digits, group=group)


def _whole(label: str, name: str) -> Field:
    return Field("", label, attrgetter(name), "{:,}".format)


def _significant(label: str, get: Callable[[Any], float | None]) -> Field:
    # Losses span decades: digits that count say more than places that align.
    return Field("", label, get, "{:.3g}".format)


def _percent(label: str, name: str, digits: int = 1) -> Field:
    return _number(label, name, digits, lambda part: 100 * part)


_INDEX = Field("", "#", attrgetter("index"))
_ID, _TYPE, _WEIGHT = (_text(label, attrgetter(label.lower())) for label in ("ID", "Type", "Weight"))
_ZEROS = _percent("Zeros %", "zero_fraction")


def layer_columns(profile: Profile) -> Columns:
    """All that is known of each measured layer."""
    performance = profile.performance
    assert performance is not None
    layers = performance.layers
    fields = [
        *(_INDEX, _ID, _text("Type", type_or_fallback), _WEIGHT, _text("Kernel", attrgetter("kernel"))),
        *(_number("ms", "ms", group="ms"), _number("± ms", "spread_ms", group="ms")),
        _percent("Share %", "share", 2),
        _number("MFLOP", "flops", 2, lambda flops: flops / 1e6),
        _number("GFLOP/s", "gflops_per_second", 2),
        _number("KiB", "bytes", 3, lambda count: count / 1024),
        *(_whole("Params", "params"), _ZEROS),
    ]
    if level := typical_level(performance):
        fields.append(Field("", f"At {level} ms", lambda layer: layer.pruned.get(level), digits=3))
    if any(layer.int8_ms is not None for layer in layers):
        fields.append(_number("INT8 ms", "int8_ms"))
    for told, copy in fewer_channels(performance).values():
        fields.append(Field("", f"{told} ms", _time_in(copy), digits=3))
    if has_estimate(profile):
        after = estimated_ms(profile)
        fields.append(Field("", "Est. ms", lambda layer: after[layer.index], digits=3))
        fields.append(Field("", "Speed-up", lambda layer: _ratio(layer.ms, after[layer.index]), "{:.2f} ×".format))
    if any(layer.bound for layer in layers):
        fields += [_text("Bound by", lambda layer: layer.bound or None), _percent("Of limit %", "of_limit")]
    return columns(Table(fields, layers))


def _time_in(copy: ChangedCopy) -> Callable[[Layer], float | None]:
    return lambda layer: copy.layers_ms.get(layer.id)


def _ratio(before: float, after: float) -> float | None:
    return before / after if after > 0 else None


def theory_columns(flops: FlopsProfile) -> Columns:
    """All that the architecture tells of each node."""
    fields = [
        *(_INDEX, _ID, _TYPE, _WEIGHT, _text("Data type", attrgetter("dtype"))),
        *(_whole("FLOPs", "flops"), _whole("MACs", "macs"), _whole("Parameters", "params")),
        *(_whole("Read bytes", "read_bytes"), _whole("Weight bytes", "weight_bytes")),
        *(_whole("Written bytes", "write_bytes"), _number("FLOPs per byte", "intensity"), _ZEROS),
    ]
    return columns(Table(fields, flops.layers))


def loss_columns(loss: LossProfile) -> Columns:
    """How each layer takes pruning, level by level."""
    levels = sorted({key for layer in loss.layers for key in layer.losses if float(key) > 0}, key=float)
    fields = [
        *(_INDEX, _ID, _TYPE, _WEIGHT, _whole("Parameters", "params")),
        _significant("Sensitivity", attrgetter("sensitivity")),
        *(_significant(f"at {key}", loss_at(key)) for key in levels),
    ]
    return columns(Table(fields, loss.layers))


def group_columns(loss: LossProfile) -> Columns:
    """What removing channels of each group costs, share by share."""
    shares = sorted({key for group in loss.groups for key in group.losses}, key=float)
    fields = [
        _text("Weight", lambda group: ", ".join(group.weights)),
        _whole("Channels", "channels"),
        *(_significant(f"without {share(float(key))}", loss_at(key)) for key in shares),
    ]
    return columns(Table(fields, loss.groups))


def layer_rows(profile: Profile) -> list[dict[str, Any]]:
    """One row a layer: those that the engine executed, or the graph's nodes where nothing was measured."""
    if profile.performance is None or not profile.performance.layers:
        return [asdict(layer) for layer in profile.flops.layers] if profile.flops else []
    estimated, channels = estimated_ms(profile), fewer_channels(profile.performance)
    rows = []
    for layer in profile.performance.layers:
        row = asdict(layer)
        pruned = {f"pruned_{level}_ms": ms for level, ms in row.pop("pruned").items()}
        pruned |= {f"{key}_ms": copy.layers_ms.get(layer.id) for key, (_, copy) in channels.items()}
        rows.append({**row, **pruned, "estimated_ms": estimated[layer.index]})
    return rows


def report(profile: Profile) -> str:
    """The report of a profile: one self-contained page."""
    drawn = parts.Charts()
    sections: dict[str, Sequence[Element | None]] = {
        "Model summary": _summary(profile),
        "Layer summaries": _timed(profile, drawn, "summaries"),
        "Layer results": _timed(profile, drawn, "results"),
        "Pruning": _pruning(profile, drawn),
        "Roofline": _roofline(profile, drawn),
        "Estimate": _estimates(profile),
        "Loss profile": _loss(profile.loss, profile, drawn),
        "FLOPS profile": _flops(profile.flops, profile, drawn),
        "How it was measured": [parts.facts(words.facts(profile))],
    }
    return parts.page(f"{short_name(profile.model.source)}: profile", [*_head(profile)], sections, drawn)


def _head(profile: Profile) -> Iterator[Element | None]:
    performance = profile.performance
    known = [profile.created_at[:16].replace("T", " ")]
    if performance:
        known += [performance.machine.cpu, performance.engine_and_version]
    yield parts.model_heading(short_name(profile.model.source), profile.model, known)
    if told := words.wrong(profile):
        yield parts.box([told], wrong=True)
    yield parts.box(words.notes(profile))


def _timed(profile: Profile, drawn: parts.Charts, name: str) -> list[Element]:
    """Layer summaries or layer results, with what may be chosen."""
    performance = profile.performance
    if performance is None or not performance.layers:
        return []
    options = {key: text for key, text in summaries(profile).items() if key not in FLOPS}
    made = [*_chosen(profile, drawn, name, options)]
    if name == "summaries":
        if told := words.fallbacks(profile):
            made.append(parts.caption(told))
        return made
    return [*made, parts.subheading("All layers"), _table("layers", layer_columns(profile))]


def _chosen(profile: Profile, drawn: parts.Charts, name: str, options: Mapping[str, str]) -> Iterator[Element]:
    draw = charts.layer_summaries if name.endswith("summaries") else charts.layer_results
    figures = {f"{key}|{value}": draw(profile, key, value) for key in options for value in VALUES}
    yield parts.selectors(name, {"Summary type": options, "Value display": VALUES})
    yield drawn.add(name, figures)


def _pruning(profile: Profile, drawn: parts.Charts) -> list[Element]:
    performance = profile.performance
    if performance is None or not performance.pruned:
        return []
    return [
        parts.caption(words.PRUNING.get(performance.pruning, "")),
        drawn.add("pruning", {"": charts.pruning(profile)}),
    ]


def _roofline(profile: Profile, drawn: parts.Charts) -> list[Element | None]:
    try:
        figure = charts.roofline(profile)
    except BadInput:  # no layer has both a time and counted work
        return []
    return [
        parts.caption(words.ROOFLINE) if profile.performance and profile.performance.ceilings else None,
        drawn.add("roofline", {"": figure}),
    ]


def _loss(loss: LossProfile | None, profile: Profile, drawn: parts.Charts) -> list[Element]:
    if loss is None:
        return []
    estimate = profile.estimate
    known = loss.average_sensitivity
    made = [
        parts.caption(f"{loss.name}: {words.method(loss)}. {words.metric(loss)}"),
        parts.tiles(
            parts.tile("Parameters", scaled(loss.params), f"{scaled(loss.prunable_params)} can be pruned"),
            parts.tile("Average sensitivity", "unknown" if known is None else f"{known:.3g}"),
            parts.tile(
                "Estimated reduction",
                share(estimate.parameter_reduction),
                f"of the parameters, budget {estimate.budget:g}",
            )
            if estimate
            else None,
            parts.tile(
                "Estimated recovery",
                share(estimate.recovery),
                expected_accuracy(estimate) or "of the outputs' quality",
            )
            if estimate and estimate.recovery is not None
            else None,
            parts.tile("Dense accuracy", share(loss.dense_accuracy)) if loss.dense_accuracy is not None else None,
            parts.tile("Dense loss", f"{loss.dense_loss:.4g}") if loss.dense_loss is not None else None,
        ),
    ]
    if told := words.left_out(loss):
        made.append(parts.caption(told))
    if not loss.layers:
        return made
    for name, title, draw in (
        ("sensitivities", "Layer sensitivities", losses.loss_sensitivities),
        ("parameters", "Parameter counts", losses.parameter_counts),
    ):
        made += [parts.subheading(title), parts.selectors(name, {"Value display": VALUES})]
        made.append(drawn.add(name, {value: draw(profile, value) for value in VALUES}))
        if name == "sensitivities" and any(
            value is not None for layer in loss.layers for value in layer.losses.values()
        ):
            made.append(drawn.add("curves", {"": losses.loss_curves(profile)}))
    made.append(parts.details("Losses of all layers", _table("losses", loss_columns(loss))))
    if loss.groups:
        made.append(parts.details("Losses of removed channels", _table("groups", group_columns(loss))))
    return made


def _flops(flops: FlopsProfile | None, profile: Profile, drawn: parts.Charts) -> list[Element | None]:
    if flops is None:
        return []
    intensity = "unknown" if flops.intensity is None else f"{flops.intensity:.3g}"
    made: list[Element | None] = [
        parts.caption("In theory, from the architecture alone; a multiply-add counts as two."),
        parts.tiles(
            parts.tile("FLOPs", scaled(flops.flops, "FLOP"), words.work_by_type(flops)),
            parts.tile("Multiply-adds", scaled(flops.macs, "MAC")),
            parts.tile("Parameters", scaled(flops.params), size(flops.weight_bytes)),
            parts.tile("Activations", size(flops.activation_bytes), "read and written"),
            parts.tile("Intensity", intensity, "FLOPs per byte"),
            parts.tile("Batch size", str(flops.batch_size)),
        ),
        parts.box(
            [f"Not counted: {plural(one.count, 'node')} of {one.type}: {one.reason}." for one in flops.uncounted]
        ),
    ]
    if not flops.layers:
        return made
    for name, title in (("flops-summaries", "FLOPs by layer type"), ("flops-results", "FLOPs by layer")):
        made += [parts.subheading(title), *_chosen(profile, drawn, name, FLOPS)]
    return [*made, parts.details("All layers in theory", _table("theory", theory_columns(flops)))]


def _summary(profile: Profile) -> list[Element]:
    """How fast the whole model is and is estimated to be, and how far that can be believed."""
    performance = profile.performance
    if performance is None:
        return [
            parts.caption("No times were measured: what follows is from the architecture and the weights alone.")
        ]
    faster, speedup = performance.estimated_ms_per_batch is not None, performance.estimated_speedup
    budget = f"loss budget {profile.estimate.budget:g}" if profile.estimate else ""
    return [
        parts.tiles(
            parts.tile("Name", performance.name, style="words"),
            parts.tile("Engine", performance.engine_and_version, style="words"),
            parts.tile("Batch size", str(performance.batch_size)),
            parts.tile("Core count", str(performance.num_cores)),
            parts.tile("Instruction sets", ", ".join(performance.instruction_sets) or "unknown", style="words"),
        ),
        parts.tiles(
            parts.measured_tile("Time per batch (ms, median)", performance.ms_per_batch, performance.ms_interval),
            parts.measured_tile(
                "Throughput (items/s, mean)", performance.items_per_second, performance.items_interval, count
            ),
            parts.tile(
                "Estimated time per batch (ms)", decimal(performance.estimated_ms_per_batch or 0.0, 3), budget
            )
            if faster
            else None,
            parts.tile("Estimated speed-up", f"{speedup:.2f} ×", words.estimate_source(profile))
            if faster and speedup is not None
            else None,
            _int8(performance),
        ),
        parts.tiles(
            parts.check_tile(performance.output_check),
            *_layered(performance),
        ),
    ]


def _layered(performance: PerformanceProfile) -> Iterator[Element]:
    """How far the layers' times can be believed."""
    if not performance.layers:
        return
    own = performance.layers_sum_ms
    clean = (
        f"{share(own / performance.ms_per_batch)} of the time without the profiler"
        if performance.ms_per_batch
        else ""
    )
    yield parts.tile("Profiler overhead", overhead(performance), "of an inference, while profiling")
    yield parts.tile(
        "Not attributed", share(performance.unattributed_share), "of the time, to no node of the graph"
    )
    yield parts.tile("Layers' own sum", f"{decimal(own, 3)} ms", clean)


def _int8(performance: PerformanceProfile) -> Element | None:
    ms = performance.int8_ms_per_batch
    if ms is None:
        return None
    gain = f"{performance.ms_per_batch / ms:.2f} × as fast" if ms else ""
    return parts.tile("INT8 time per batch (ms)", decimal(ms, 3), gain)


_BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# Of more layers estimates take too long for a page that is made by the way.
_MOST_LAYERS = 600


def _table(name: str, shown: parts.Columns) -> Element:
    rows = list(zip(*shown.values(), strict=True))
    return parts.rows_table(name, list(shown), rows, NAMES, [cell.text for cell in shown.get("Type", ())])


def _estimates(profile: Profile) -> list[Element]:
    """What could be gained, for this budget and for others."""
    zeros, best = profile.estimate, best_gain(profile)
    if zeros is None and not profile.gains:
        return []
    own = zeros.budget if zeros is not None else profile.gains[0].budget
    estimated = {f"{own:g}": profile}
    if profile.loss is None or len(profile.loss.layers) <= _MOST_LAYERS:
        for budget in _BUDGETS:
            estimated.setdefault(f"{budget:g}", with_estimate(profile, budget))
    estimated = dict(sorted(estimated.items(), key=lambda item: float(item[0])))
    made = [
        parts.alternatives(
            "budget",
            "Loss budget",
            {key: f"{key} (this profile)" if one is profile else key for key, one in estimated.items()},
            {key: [*_gains(one), *_zeros(one)] for key, one in estimated.items()},
            f"{own:g}",
        ),
    ]
    verified = best.verified if best is not None and best.verified else zeros.verified if zeros else None
    ms = best.ms_per_batch if best is not None else zeros.estimated_ms_per_batch if zeros else None
    if verified is not None and ms is not None and profile.performance is not None:
        loss = best.loss if best is not None else zeros.loss if zeros else None
        made += [
            parts.subheading(f"Verified at a budget of {own:g}"),
            *_verified(ms, profile.performance.ms_per_batch, loss, verified),
        ]
    return made


def _gains(profile: Profile) -> list[Element]:
    """The best within the budget, and all that was tried."""
    performance = profile.performance
    if not profile.gains or performance is None:
        return []
    ms, speedup = performance.estimated_ms_per_batch, performance.estimated_speedup
    before = f"{decimal(performance.ms_per_batch, 3)} as it is"
    tiles = parts.tiles(
        None if ms is None else parts.tile("Estimated time per batch (ms)", decimal(ms, 3), before, "main"),
        None
        if speedup is None
        else parts.tile("Estimated speed-up", f"{speedup:.2f} ×", words.estimate_source(profile), "main"),
    )
    rows = [
        (
            what_is_done(gain),
            decimal(gain.ms_per_batch, 3),
            f"{gain.speedup:.2f} ×",
            words.gain_verdict(gain),
        )
        for gain in profile.gains
    ]
    elsewhere = words.other_engine(profile)
    return [
        tiles,
        *([parts.caption(f"Elsewhere: {elsewhere}.")] if elsewhere else []),
        parts.small_table(["Change", "Estimated ms", "Speed-up", "Loss"], rows),
    ]


def _zeros(profile: Profile) -> list[Element]:
    """Which layers would be pruned how far."""
    one = profile.estimate
    if one is None:
        return []
    speedup, ms = one.estimated_speedup, one.estimated_ms_per_batch
    before = f"{decimal(one.ms_per_batch or 0.0, 3)} as it is"
    made = [
        *([parts.subheading("Zeros in the weights")] if profile.gains else []),
        parts.caption(
            "Which layers are pruned how far is chosen by what is gained for the loss, until the budget is spent; "
            "the losses of single layers are added up."
        ),
        parts.tiles(
            None if ms is None else parts.tile("Estimated time per batch (ms)", decimal(ms, 3), before, "main"),
            None if speedup is None else parts.tile("Estimated speed-up", f"{speedup:.2f} ×", style="main"),
            parts.tile("Loss", f"{one.loss:.3g}", f"of a budget of {one.budget:g}"),
            parts.tile(
                "Parameters zeroed", share(one.parameter_reduction), f"in {plural(len(one.levels), 'weight')}"
            ),
            None if one.recovery is None else parts.tile("Recovery", share(one.recovery), expected_accuracy(one)),
        ),
    ]
    if not one.levels:
        made.append(parts.caption("Nothing is pruned: no layer gains enough for what it would cost."))
    return [*made, _by_type(one.by_type)]


def _by_type(gains: Sequence[TypeGain]) -> Element:
    if not gains:
        return parts.caption("No times at sparsity levels were measured, so no speed-up can be estimated.")
    top = max(gain.ms for gain in gains) or 1.0
    gains = sorted(gains, key=lambda gain: -gain.ms)
    left = [100 * gain.estimated_ms / gain.ms if gain.ms else 100.0 for gain in gains]
    saved = [gain.ms - gain.estimated_ms for gain in gains]
    # In one go, so that all three have as many places.
    told = numbers([*(gain.ms for gain in gains), *(gain.estimated_ms for gain in gains), *saved])
    size = len(gains)
    shown = {
        "ms": told[:size],
        "Estimated ms": told[size : 2 * size],
        "Saved ms": told[2 * size :],
        "Saved %": numbers([100 - one for one in left], 2),
    }
    rows = [[gain.type, *(column[index].text for column in shown.values())] for index, gain in enumerate(gains)]
    stripes = [(100 * gain.ms / top, min(part, 100)) for gain, part in zip(gains, left, strict=True)]
    return parts.small_table(["Type", *shown], rows, stripes, "Blue: what is left")


def _verified(ms: float, before_ms: float, loss: float | None, verified: Verified) -> list[Element]:
    ends = verified.ms_interval
    speedup = verified.baseline_ms_per_batch / verified.ms_per_batch if verified.ms_per_batch else 0.0
    rows = [
        ("ms per batch", decimal(ms, 3), decimal(verified.ms_per_batch, 3)),
        ("95 % interval", "", "" if ends is None else between(ends)),
        ("ms per batch as it is", decimal(before_ms, 3), decimal(verified.baseline_ms_per_batch, 3)),
        ("speed-up", f"{before_ms / ms if ms else 0.0:.2f} ×", f"{speedup:.2f} ×"),
        ("loss", *("" if one is None else f"{one:.3g}" for one in (loss, verified.loss))),
    ]
    told = f"The estimate is off by {share(verified.error)}. Outputs: {output_check(verified.output_check)}."
    return [parts.small_table(["", "Estimated", "Measured"], rows), parts.caption(told)]
