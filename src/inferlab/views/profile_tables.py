"""The tables of a profile, column by column: layers as measured and in theory, losses, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.profiling.estimate import estimated_ms, has_estimate
from inferlab.records.profile import (
    FlopsProfile,
    Layer,
    LossProfile,
    Profile,
)
from inferlab.units import decimal, share
from inferlab.views.charts.profile_values import fewer_channels
from inferlab.views.fields import Field, between, interval_of, interval_text, rounded
from inferlab.views.profile import typical_level
from inferlab.views.report import Cell, numbers
from inferlab.views.tables import Block, Note, Pair, Table, notes

#: Of a table, by their titles; those in NAMES hold text, the others numbers.
Columns = dict[str, Sequence[str | Cell]]
NAMES = ("ID", "Type", "Weight", "Kernel", "Data type", "Bound by", "Interval", "B is")


def layer_columns(profile: Profile) -> Columns:
    """All that is known of each measured layer."""
    performance = profile.performance
    assert performance is not None
    found = performance.layers
    # In one go, so that both have as many places.
    both = numbers([*(one.ms for one in found), *(one.spread_ms for one in found)])
    columns: Columns = {
        "#": [Cell(str(one.index), one.index) for one in found],
        "ID": [one.id for one in found],
        "Type": [_kind(one) for one in found],
        "Weight": [one.weight for one in found],
        "Kernel": [one.kernel for one in found],
        "ms": both[: len(found)],
        "± ms": both[len(found) :],
        "Share %": numbers([100 * one.share for one in found], 2),
        "MFLOP": numbers([None if one.flops is None else one.flops / 1e6 for one in found], 2),
        "GFLOP/s": numbers([one.gflops_per_second for one in found], 2),
        "KiB": numbers([None if one.bytes is None else one.bytes / 1024 for one in found]),
        "Params": [_whole(one.params) for one in found],
        "Zeros %": numbers([None if one.zero_fraction is None else 100 * one.zero_fraction for one in found], 1),
    }
    level = typical_level(performance)
    if level:
        columns[f"At {level} ms"] = numbers([one.pruned.get(level) for one in found])
    if any(one.int8_ms is not None for one in found):
        columns["INT8 ms"] = numbers([one.int8_ms for one in found])
    for told, copy in fewer_channels(performance).values():
        columns[f"{told} ms"] = numbers([copy.layers_ms.get(one.id) for one in found])
    if has_estimate(profile):
        after = estimated_ms(profile)
        columns["Est. ms"] = numbers([after[one.index] for one in found])
        columns["Speed-up"] = [_times(one.ms, after[one.index]) for one in found]
    if any(one.bound for one in found):
        columns["Bound by"] = [one.bound or "–" for one in found]
        columns["Of limit %"] = numbers([None if one.of_limit is None else 100 * one.of_limit for one in found], 1)
    return columns


def _times(before: float, after: float) -> Cell:
    return Cell(f"{before / after:.2f} ×", before / after) if after > 0 else Cell("–")


def _kind(one: Layer) -> str:
    return f"{one.type} (fallback)" if one.fallback else one.type


def theory_columns(flops: FlopsProfile) -> Columns:
    """All that the architecture tells of each node."""
    found = flops.layers
    return {
        "#": [Cell(str(one.index), one.index) for one in found],
        "ID": [one.id for one in found],
        "Type": [one.type for one in found],
        "Weight": [one.weight for one in found],
        "Data type": [one.dtype for one in found],
        "FLOPs": [_whole(one.flops) for one in found],
        "MACs": [_whole(one.macs) for one in found],
        "Parameters": [_whole(one.params) for one in found],
        "Read bytes": [_whole(one.read_bytes) for one in found],
        "Weight bytes": [_whole(one.weight_bytes) for one in found],
        "Written bytes": [_whole(one.write_bytes) for one in found],
        "FLOPs per byte": numbers([one.intensity for one in found]),
        "Zeros %": numbers([None if one.zero_fraction is None else 100 * one.zero_fraction for one in found], 1),
    }


def loss_columns(loss: LossProfile) -> Columns:
    """How each layer takes pruning, level by level."""
    found = loss.layers
    levels = sorted({key for one in found for key in one.losses if float(key) > 0}, key=float)
    columns: Columns = {
        "#": [Cell(str(one.index), one.index) for one in found],
        "ID": [one.id for one in found],
        "Type": [one.type for one in found],
        "Weight": [one.weight for one in found],
        "Parameters": [_whole(one.params) for one in found],
        "Sensitivity": [_significant(one.sensitivity) for one in found],
    }
    columns |= {f"at {key}": [_significant(one.losses.get(key)) for one in found] for key in levels}
    return columns


def diff_columns(diff: LayerDiff) -> Columns:
    """Two profiles side by side, the largest difference first."""
    found = diff.rows
    both = numbers([*(one.a_ms for one in found), *(one.b_ms for one in found)])
    return {
        "Type": [one.type for one in found],
        "ID": [one.id for one in found],
        "Layers A": [Cell(str(len(one.a)), len(one.a)) for one in found],
        "Layers B": [Cell(str(len(one.b)), len(one.b)) for one in found],
        "A ms": both[: len(found)],
        "B ms": both[len(found) :],
        "B - A ms": numbers([one.b_ms - one.a_ms for one in found]),
        "B / A": numbers([None if one.ratio is None else one.ratio.value for one in found], 2),
        "Interval": [_interval(one) for one in found],
        "Kernel A": [kernels(one.a) for one in found],
        "Kernel B": [kernels(one.b) for one in found],
        "B is": [_b_is(one) for one in found],
    }


def kernels(layers: Sequence[Layer]) -> str:
    """The kernels that an engine chose for layers, each once, where it tells."""
    return ", ".join(dict.fromkeys(layer.kernel for layer in layers if layer.kernel))


def _b_is(row: Row) -> str:
    return "only in B" if not row.a else "only in A" if not row.b else row.verdict


def _interval(row: Row) -> str:
    ends = row.ratio.ends if row.ratio else None
    return "" if ends is None else between(ends)


def _whole(value: int | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,}", value)


def _significant(value: float | None) -> Cell:
    # Losses span decades: digits that count say more than places that align.
    return Cell("–") if value is None else Cell(f"{value:.3g}", value)


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
