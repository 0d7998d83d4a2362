"""Two profiles layer by layer: as blocks, and as the table of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from inferlab.profiling.diff import LayerDiff, Row
from inferlab.records.profile import Layer
from inferlab.units import decimal, share
from inferlab.views.fields import MS, Field, between, interval_of, ratio_of
from inferlab.views.reports.page import Columns, columns
from inferlab.views.tables import Block, Note, Pair, Table, notes

_SHOWN = 20
_WHOLE = {"inconclusive": "neither clearly faster nor slower", "same": "the same"}


def kernels(layers: Sequence[Layer]) -> str:
    """The kernels that an engine chose for layers, each once, where it tells."""
    return ", ".join(dict.fromkeys(layer.kernel for layer in layers if layer.kernel))


def _b_is(row: Row) -> str:
    return "only in B" if not row.a else "only in A" if not row.b else row.verdict


def _interval(row: Row) -> str:
    ends = row.ratio.ends if row.ratio else None
    return "" if ends is None else between(ends)


_TYPE = Field("type", "Type", attrgetter("type"), left=True)
_ID = Field("id", "Id", attrgetter("id"), left=True, longest=36)
_LAYERS = (
    Field("layers_a", "Layers A", lambda row: len(row.a)),
    Field("layers_b", "Layers B", lambda row: len(row.b)),
)
_A_MS = Field("a_ms", "A (ms)", attrgetter("a_ms"), MS, group="ms")
_B_MS = Field("b_ms", "B (ms)", attrgetter("b_ms"), MS, group="ms")
_DIFFERENCE = Field("difference_ms", "B - A (ms)", lambda row: row.b_ms - row.a_ms, "{:+.3f}".format)
_RATIO = Field(
    "ratio",
    "B / A",
    lambda row: row.ratio and row.ratio.value,
    "{:.3g}".format,
    ends=lambda row: row.ratio and row.ratio.ends,
)
_KERNELS = (
    Field("kernel_a", "Kernel A", lambda row: kernels(row.a), left=True, longest=30),
    Field("kernel_b", "Kernel B", lambda row: kernels(row.b), left=True, longest=30),
)
_B_IS = Field("verdict", "B is", _b_is, lambda verdict: "?" if verdict == "inconclusive" else verdict, left=True)


def diff_blocks(diff: LayerDiff, shown: int = _SHOWN) -> list[Block]:
    """The whole model, then the layers that differ most."""
    more = len(diff.rows) - shown
    told_kernels = any(kernels(row.a) or kernels(row.b) for row in diff.rows)
    fields = [
        *(_TYPE, _ID, *_LAYERS, _A_MS, _B_MS, _DIFFERENCE, _RATIO, interval_of(_RATIO, "Interval", decimal)),
        *(_KERNELS if told_kernels else ()),
        _B_IS,
    ]
    title = "Layers by difference (time per item; intervals hold for all rows together with 95 %)"
    told = f"{ratio_of(diff.ratio)}, margin {share(diff.margin)}"
    return [
        Pair("A", f"{diff.labels[0]}: {decimal(diff.a_ms)} ms per item"),
        Pair("B", f"{diff.labels[1]}: {decimal(diff.b_ms)} ms per item"),
        Pair("Verdict", f"B is {_WHOLE.get(diff.verdict, diff.verdict)} ({told})", strong=True),
        *notes(f"they differ in {difference}." for difference in diff.differences),
        Note("profiles are not measured interleaved, so a change of the machine between them counts too."),
        Table(fields, diff.rows[:shown], f"{title}{f', {more} more' if more > 0 else ''}"),
    ]


def diff_columns(diff: LayerDiff) -> Columns:
    """The same as a table that sorts: all layers, and nothing cut."""
    whole = partial(replace, longest=None)
    fields = [
        *(_TYPE, whole(_ID, label="ID"), *_LAYERS, _A_MS.aligned("A ms"), _B_MS.aligned("B ms")),
        *(
            _DIFFERENCE.aligned("B - A ms"),
            _RATIO.aligned("B / A", 2),
            Field("", "Interval", _interval, left=True),
        ),
        *(*map(whole, _KERNELS), replace(_B_IS, form=str)),
    ]
    return columns(Table(fields, diff.rows))
