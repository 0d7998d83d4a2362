"""Which elements of a weight a pattern of pruning makes zero: single ones, blocks of four, N of every M."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from inferlab.child.pruning import magnitude_bits, smallest
from inferlab.errors import BadInput

Array = np.ndarray[Any, Any]

BLOCK = 4
_PORTION = 1 << 20
_LARGEST_GROUP = 64


def parse_groups(pattern: str) -> tuple[int, int] | None:
    """N and M of a pattern such as 2:4; None for unstructured and block4."""
    if pattern in ("unstructured", "block4"):
        return None
    match = re.fullmatch(r"(\d+):(\d+)", pattern)
    if match is None:
        raise BadInput(
            f"'{pattern}' is not a pruning pattern. Choose unstructured, block4, or N:M such as 2:4 "
            "(two of every four zero)."
        )
    zeros, group = int(match[1]), int(match[2])
    if not 0 < zeros < group <= _LARGEST_GROUP:
        raise BadInput(
            f"The pattern {pattern} cannot be: of M elements, at least one and not all become zero, "
            f"and M is at most {_LARGEST_GROUP}."
        )
    return zeros, group


def mask(rows: Array, level: float, pattern: str) -> Array:
    """Which elements become zero, flat; each row holds what one output is a sum over, in the order of its sum.

    Any binary float will do, bfloat16 also as the bits that stand for it. Of equal ones the first are chosen.
    """
    groups = parse_groups(pattern)
    if groups is not None:
        return in_groups(rows, *groups).reshape(-1)
    if pattern == "block4":
        return in_blocks(rows, level).reshape(-1)
    chosen: Array = smallest(rows, level)
    return chosen


def in_groups(rows: Array, zeros: int, group: int) -> Array:
    """The `zeros` smallest of every `group` neighbours in a row; of a shorter rest that share, rounded down."""
    count, length = rows.shape
    bits = magnitude_bits(rows).reshape(count, length)
    whole = length - length % group
    chosen = np.zeros(rows.shape, bool)
    chosen[:, :whole] = _least(bits[:, :whole].reshape(-1, group), zeros).reshape(count, whole)
    chosen[:, whole:] = _least(bits[:, whole:], (length - whole) * zeros // group)
    return chosen


def in_blocks(rows: Array, level: float) -> Array:
    """Blocks of four neighbours in a row, the smallest mean squares first, until the level is reached."""
    count, length = rows.shape
    edges = np.arange(0, length, BLOCK)
    if not len(edges) or not count:
        return np.zeros(rows.shape, bool)
    sizes = np.diff([*edges, length])
    portion = max(1, _PORTION // length)
    means = np.concatenate(
        [
            np.add.reduceat(np.square(as_floats(rows[start : start + portion]).astype(np.float64)), edges, axis=1)
            for start in range(0, count, portion)
        ]
    )
    means = (means / sizes).reshape(-1)
    order = np.argsort(means, kind="stable")
    widths = np.tile(sizes, count)[order]
    # A block is in where its middle is: the level is met to within half a block.
    chosen = np.zeros(means.size, bool)
    chosen[order[np.cumsum(widths) - widths / 2 <= rows.size * level]] = True
    return np.repeat(chosen.reshape(count, -1), sizes, axis=1)


def _least(bits: Array, many: int) -> Array:
    """The `many` smallest of every row."""
    chosen = np.zeros(bits.shape, bool)
    for start in range(0, len(bits) if many else 0, _PORTION):
        part = bits[start : start + _PORTION]
        order = np.argsort(part, axis=1, kind="stable")[:, :many]
        np.put_along_axis(chosen[start : start + _PORTION], order, True, axis=1)
    return chosen


def as_floats(stored: Array) -> Array:
    """Floats as they are stored; 16-bit integers are the bits of bfloat16."""
    return (stored.astype(np.uint32) << 16).view(np.float32) if stored.dtype.kind == "u" else stored
