"""The tables of a profile: layers as measured and in theory, losses, differences, and estimates by loss budget."""

from __future__ import annotations

import html
from collections.abc import Sequence

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.profiling.estimate import estimate, estimated_ms
from inferlab.records.profile import (
    FlopsProfile,
    Layer,
    LossProfile,
    Profile,
    PruningEstimate,
    TypeGain,
    Verified,
)
from inferlab.units import decimal, plural, share
from inferlab.views import report_parts as parts
from inferlab.views.intervals import between
from inferlab.views.profile import typical_level
from inferlab.views.report_parts import Cell, numbers
from inferlab.views.text import output_check

_BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# Of more layers estimates take too long for a page that is made by the way.
_MOST_LAYERS = 600

#: Of a table, by their titles; those in NAMES hold text, the others numbers.
Columns = dict[str, Sequence[str | Cell]]
NAMES = ("ID", "Type", "Weight", "Kernel", "Data type", "Bound by", "Interval", "B is")


def layers(profile: Profile) -> str:
    """All layers as they were measured."""
    return _table("layers", layer_columns(profile))


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
    if profile.estimate and profile.estimate.gained == "time":
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


def theory(flops: FlopsProfile) -> str:
    """All nodes as the architecture has them."""
    return _table("theory", theory_columns(flops))


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
        "FLOPs a byte": numbers([one.intensity for one in found]),
        "Zeros %": numbers([None if one.zero_fraction is None else 100 * one.zero_fraction for one in found], 1),
    }


def losses(loss: LossProfile) -> str:
    """What every level costs in every layer."""
    return _table("losses", loss_columns(loss))


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
        "B is": ["only in B" if not one.a else "only in A" if not one.b else one.verdict for one in found],
    }


def _interval(row: Row) -> str:
    ends = row.ratio.ends if row.ratio else None
    return "" if ends is None else between(ends)


def _table(name: str, columns: Columns) -> str:
    rows = list(zip(*columns.values(), strict=True))
    return parts.table(name, list(columns), rows, NAMES, [str(one) for one in columns["Type"]])


def _whole(value: int | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,}", value)


def _significant(value: float | None) -> Cell:
    # Losses span decades: digits that count say more than places that align.
    return Cell("–") if value is None else Cell(f"{value:.3g}", value)


def estimates(profile: Profile) -> list[str]:
    """What pruning would give, for this budget and for others."""
    own = profile.estimate
    if own is None:
        return []
    found = {f"{own.budget:g}": own}
    if profile.loss and len(profile.loss.layers) <= _MOST_LAYERS:
        for budget in _BUDGETS:
            if f"{budget:g}" not in found and (other := estimate(profile.performance, profile.loss, budget)):
                found[f"{budget:g}"] = other
    found = dict(sorted(found.items(), key=lambda one: float(one[0])))
    made = [
        parts.caption(
            "Which layers are pruned how far is chosen by what is gained for the loss, until the budget is spent; "
            "the losses of single layers are added up."
        ),
        parts.alternatives(
            "budget",
            "Loss Budget",
            {key: f"{key} (this profile)" if one is own else key for key, one in found.items()},
            {key: _estimate(one) for key, one in found.items()},
            f"{own.budget:g}",
        ),
    ]
    if own.verified and own.estimated_ms_per_batch is not None:
        made += [f"<h3>Verified at a budget of {own.budget:g}</h3>", _verified(own, own.verified)]
    return made


def _estimate(one: PruningEstimate) -> str:
    speedup, ms = one.estimated_speedup, one.estimated_ms_per_batch
    made = parts.tiles(
        parts.tile(
            "Estimated MS per Batch", decimal(ms, 3), f"{decimal(one.ms_per_batch or 0.0, 3)} as it is", "main"
        )
        if ms is not None
        else "",
        parts.tile("Estimated Speed-up", f"{speedup:.2f} ×", kind="main") if speedup is not None else "",
        parts.tile("Loss", f"{one.loss:.3g}", f"of a budget of {one.budget:g}"),
        parts.tile("Parameters Zeroed", share(one.parameter_reduction), f"in {plural(len(one.levels), 'weight')}"),
        parts.tile("Recovery", share(one.recovery)) if one.recovery is not None else "",
    )
    if not one.levels:
        made += parts.caption("Nothing is pruned: no layer gains enough for what it would cost.")
    return made + _by_type(one.by_type)


def _by_type(gains: Sequence[TypeGain]) -> str:
    if not gains:
        return parts.caption("No times at levels of pruning were measured, so no speed-up can be told.")
    top = max(one.ms for one in gains) or 1.0
    gains = sorted(gains, key=lambda one: -one.ms)
    left = [100 * one.estimated_ms / one.ms if one.ms else 100.0 for one in gains]
    saved = [one.ms - one.estimated_ms for one in gains]
    # In one go, so that all three have as many places.
    told = [
        one.text for one in numbers([*(one.ms for one in gains), *(one.estimated_ms for one in gains), *saved])
    ]
    size = len(gains)
    columns = {
        "ms": told[:size],
        "Estimated ms": told[size : 2 * size],
        "Saved ms": told[2 * size :],
        "Saved %": [one.text for one in numbers([100 - one for one in left], 2)],
    }
    head = "".join(f"<th class=n>{name}</th>" for name in columns)
    body = []
    for index, one in enumerate(gains):
        cells = "".join(f"<td class=n>{column[index]}</td>" for column in columns.values())
        inner = f'<i style="width:{min(left[index], 100):.1f}%"></i>'
        stripe = f'<span class=part style="width:{100 * one.ms / top:.1f}%">{inner}</span>'
        body.append(f"<tr><td>{html.escape(one.type)}</td>{cells}<td class=stripe>{stripe}</td></tr>")
    return _plain(f"<th>Type</th>{head}<th>Blue: what is left</th>", body)


def _plain(head: str, body: Sequence[str]) -> str:
    inner = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll whole"><table>{inner}</table></div>'


def _verified(one: PruningEstimate, verified: Verified) -> str:
    ends = verified.ms_interval
    speedup = verified.baseline_ms_per_batch / verified.ms_per_batch if verified.ms_per_batch else 0.0
    pairs = [
        ("ms per batch", decimal(one.estimated_ms_per_batch or 0.0, 3), decimal(verified.ms_per_batch, 3)),
        ("95 % interval", "", "" if ends is None else between(ends)),
        ("ms per batch as it is", decimal(one.ms_per_batch or 0.0, 3), decimal(verified.baseline_ms_per_batch, 3)),
        ("speed-up", f"{one.estimated_speedup or 0.0:.2f} ×", f"{speedup:.2f} ×"),
        ("loss", f"{one.loss:.3g}", "" if verified.loss is None else f"{verified.loss:.3g}"),
    ]
    body = [
        f"<tr><td>{name}</td><td class=n>{told}</td><td class=n>{seen}</td></tr>" for name, told, seen in pairs
    ]
    told = f"The estimate is off by {share(verified.error)}. Outputs: {output_check(verified.output_check)}."
    made = _plain("<th></th><th class=n>Estimated</th><th class=n>Measured</th>", body)
    return made + parts.caption(told)
