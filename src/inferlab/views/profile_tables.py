"""The tables of a profile, column by column: layers as measured and in theory, losses, and differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.profiling.estimate import estimated_ms, has_estimate
from inferlab.records.profile import (
    ChangedCopy,
    FlopsProfile,
    Layer,
    LossProfile,
    Profile,
)
from inferlab.units import decimal, share
from inferlab.views.charts.profile_values import fewer_channels
from inferlab.views.fields import Field, between, interval_of, interval_text, rounded
from inferlab.views.profile import loss_at, typical_level
from inferlab.views.report import Columns, columns
from inferlab.views.tables import Block, Note, Pair, Table, notes

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
        *(_INDEX, _ID, _text("Type", _kind), _WEIGHT, _text("Kernel", attrgetter("kernel"))),
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


def _kind(layer: Layer) -> str:
    return f"{layer.type} (fallback)" if layer.fallback else layer.type


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


def diff_columns(diff: LayerDiff) -> Columns:
    """Two profiles side by side, the largest difference first."""
    fields = [
        *(_TYPE, _ID),
        Field("", "Layers A", lambda row: len(row.a)),
        Field("", "Layers B", lambda row: len(row.b)),
        *(_number("A ms", "a_ms", group="ms"), _number("B ms", "b_ms", group="ms")),
        Field("", "B - A ms", lambda row: row.b_ms - row.a_ms, digits=3),
        Field("", "B / A", lambda row: row.ratio and row.ratio.value, digits=2),
        _text("Interval", _interval),
        _text("Kernel A", lambda row: kernels(row.a)),
        _text("Kernel B", lambda row: kernels(row.b)),
        _text("B is", _b_is),
    ]
    return columns(Table(fields, diff.rows))


def kernels(layers: Sequence[Layer]) -> str:
    """The kernels that an engine chose for layers, each once, where it tells."""
    return ", ".join(dict.fromkeys(layer.kernel for layer in layers if layer.kernel))


def _b_is(row: Row) -> str:
    return "only in B" if not row.a else "only in A" if not row.b else row.verdict


def _interval(row: Row) -> str:
    ends = row.ratio.ends if row.ratio else None
    return "" if ends is None else between(ends)


_DIFF_SHOWN = 20
_WHOLE = {"inconclusive": "neither clearly faster nor slower", "same": "the same"}


def diff_blocks(diff: LayerDiff, shown: int = _DIFF_SHOWN) -> list[Block]:
    """The whole model, then the layers that differ most."""
    ratio = diff.ratio
    told = f"{rounded(ratio.value, ratio.ends)} of A's time, {interval_text(ratio.ends, ratio.level)}"
    verdict = f"B is {_WHOLE.get(diff.verdict, diff.verdict)} ({told}, margin {share(diff.margin)})"
    more = len(diff.rows) - shown
    told_kernels = any(kernels(row.a) or kernels(row.b) for row in diff.rows)
    fields = (*_DIFF_FIELDS, *(_KERNEL_FIELDS if told_kernels else ()), _B_IS)
    title = "Layers by difference (time per item; intervals hold for all rows together with 95 %)"
    return [
        Pair("A", f"{diff.labels[0]}: {decimal(diff.a_ms)} ms per item"),
        Pair("B", f"{diff.labels[1]}: {decimal(diff.b_ms)} ms per item"),
        Pair("Verdict", verdict, strong=True),
        *notes(f"they differ in {difference}." for difference in diff.differences),
        Note("profiles are not measured interleaved, so a change of the machine between them counts too."),
        Table(fields, diff.rows[:shown], f"{title}{f', {more} more' if more > 0 else ''}"),
    ]


_RATIO = Field(
    "ratio",
    "B / A",
    lambda row: row.ratio.value if row.ratio else None,
    "{:.3g}".format,
    ends=lambda row: row.ratio.ends if row.ratio else None,
)
_DIFF_FIELDS = (
    Field("type", "Type", lambda row: row.type, left=True),
    Field("id", "Id", lambda row: row.id, left=True, longest=36),
    Field("layers_a", "Layers A", lambda row: len(row.a)),
    Field("layers_b", "Layers B", lambda row: len(row.b)),
    Field("a_ms", "A (ms)", lambda row: row.a_ms, lambda ms: decimal(ms, 3)),
    Field("b_ms", "B (ms)", lambda row: row.b_ms, lambda ms: decimal(ms, 3)),
    Field("difference_ms", "B - A (ms)", lambda row: row.b_ms - row.a_ms, "{:+.3f}".format),
    *(_RATIO, interval_of(_RATIO, "Interval", decimal)),
)
_B_IS = Field("verdict", "B is", lambda row: "?" if (told := _b_is(row)) == "inconclusive" else told, left=True)
_KERNEL_FIELDS = (
    Field("kernel_a", "Kernel A", lambda row: kernels(row.a), left=True, longest=30),
    Field("kernel_b", "Kernel B", lambda row: kernels(row.b), left=True, longest=30),
)


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
