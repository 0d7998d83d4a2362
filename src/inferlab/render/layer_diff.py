"""Two profiles layer by layer, as text."""

from __future__ import annotations

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.records import Estimate
from inferlab.render import columns
from inferlab.units import decimal, share

_SHOWN = 20
_WIDTH = 36
_WHOLE = {"inconclusive": "neither surely faster nor slower", "same": "the same"}
_WORDS = {"inconclusive": "?"}


def lines(diff: LayerDiff, shown: int = _SHOWN) -> list[str]:
    """The whole model, then the layers that differ most."""
    told = [
        f"A: {diff.labels[0]}: {decimal(diff.a_ms)} ms an item",
        f"B: {diff.labels[1]}: {decimal(diff.b_ms)} ms an item",
        f"Verdict: B is {_WHOLE.get(diff.verdict, diff.verdict)} ({_ratio(diff.ratio)}, margin "
        f"{share(diff.margin)})",
    ]
    told += [f"Note: they differ in {one}." for one in diff.differences]
    told.append("Note: profiles are not measured in turns, so a change of the machine between them counts too.")
    rows = [["Type", "Id", "Layers A", "Layers B", "A (ms)", "B (ms)", "B - A (ms)", "B / A", "Interval", "B is"]]
    rows += [_row(one) for one in diff.rows[:shown]]
    more = len(diff.rows) - shown
    head = "Layers by difference (time an item; intervals hold for all rows together with 95 %)"
    return [*told, f"{head}{f', {more} more' if more > 0 else ''}:", *columns.aligned(rows, left=(0, 1, 9))]


def _row(row: Row) -> list[str]:
    ratio = row.ratio
    ends = (
        "-" if ratio is None or ratio.low is None or ratio.high is None else f"{ratio.low:.3g} to {ratio.high:.3g}"
    )
    alone = "only in A" if not row.b else "only in B" if not row.a else _WORDS.get(row.verdict, row.verdict)
    return [
        row.type,
        columns.shortened(row.id, _WIDTH),
        str(len(row.a)),
        str(len(row.b)),
        decimal(row.a_ms, 3),
        decimal(row.b_ms, 3),
        f"{row.b_ms - row.a_ms:+.3f}",
        "-" if ratio is None else f"{ratio.value:.3g}",
        ends,
        alone,
    ]


def _ratio(ratio: Estimate) -> str:
    said = f"{decimal(ratio.value)} of A's time"
    if ratio.low is None or ratio.high is None:
        return f"{said}, too few processes for an interval"
    return f"{said}, {100 * ratio.level:.4g} % interval {decimal(ratio.low)} to {decimal(ratio.high)}"
