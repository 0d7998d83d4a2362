"""Two profiles layer by layer, as text."""

from __future__ import annotations

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.records import Estimate
from inferlab.units import decimal, share
from inferlab.views import columns
from inferlab.views.intervals import between, interval_text, rounded

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
    ends = None if ratio is None else ratio.ends
    alone = "only in A" if not row.b else "only in B" if not row.a else _WORDS.get(row.verdict, row.verdict)
    return [
        row.type,
        columns.shortened(row.id, _WIDTH),
        str(len(row.a)),
        str(len(row.b)),
        decimal(row.a_ms, 3),
        decimal(row.b_ms, 3),
        f"{row.b_ms - row.a_ms:+.3f}",
        "-" if ratio is None else rounded(ratio.value, ends, "{:.3g}".format),
        "-" if ends is None else between(ends),
        alone,
    ]


def _ratio(ratio: Estimate) -> str:
    return f"{rounded(ratio.value, ratio.ends)} of A's time, {interval_text(ratio.ends, ratio.level)}"
