"""One threshold for all layers: the share of each that falls below it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.child.pruning import count_nan, how_many, magnitude_bits
from inferlab.confined import confined
from inferlab.errors import BadInput
from inferlab.model import sparsity
from inferlab.model.graph import parse_onnx
from inferlab.records import Model

Array = np.ndarray[Any, Any]
# As many digits as tell a million weights apart, and as people can read.
DIGITS = 6


@confined(reads=["model"])
def global_levels(
    model: Model, weights: list[str], target: float, minimum: float, maximum: float, fixed: Mapping[str, float]
) -> dict[str, float]:
    """The share of every weight's smallest elements that makes `target` of all of them together zero.

    No share lies outside the limits; those in `fixed` are as they say and count. Where equal magnitudes stand at
    the threshold, the first layers' go.
    """
    sizes = _sorted_bits(model, weights)
    limits = {
        name: (how_many(len(bits), fixed.get(name, minimum)), how_many(len(bits), fixed.get(name, maximum)))
        for name, bits in sizes.items()
    }
    wanted = how_many(sum(map(len, sizes.values())), target)

    def counts(threshold: int, side: Any) -> dict[str, int]:
        below = {name: int(np.searchsorted(bits, np.uint32(threshold), side)) for name, bits in sizes.items()}
        return {name: min(max(below[name], limits[name][0]), limits[name][1]) for name in below}

    # The bits of a float's magnitude sort as it does.
    low, high = 0, 0x7F800000
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if sum(counts(middle, "right").values()) >= wanted else (middle + 1, high)
    found, most = counts(low, "left"), counts(low, "right")
    missing = wanted - sum(found.values())
    for name in found:
        more = min(max(0, missing), most[name] - found[name])
        found[name] += more
        missing -= more
    shares = {name: round(count / len(sizes[name]), DIGITS) for name, count in found.items()}
    # A count is whole, a limit is kept.
    return {name: min(max(share, minimum), maximum) for name, share in shares.items()} | dict(fixed)


def _sorted_bits(model: Model, names: list[str]) -> dict[str, Array]:
    """The magnitudes of each weight as the bits of 32-bit floats, in their order."""
    file = Path(model.path)
    stored = {one.name: one.stored for one in sparsity.weights(parse_onnx(file))}
    return {name: _bits(name, sparsity.values(stored[name], file.parent)) for name in names}


def _bits(name: str, values: Array) -> Array:
    if wrong := count_nan(values):
        raise BadInput(
            f"The weight '{name}' has {wrong:,} values that are not numbers (NaN), so it cannot be pruned. "
            "Export the model again from sound weights."
        )
    if values.dtype == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    bits: Array = np.sort(magnitude_bits(values.astype(np.float32)))
    return bits
