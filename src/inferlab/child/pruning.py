"""Which weights pruning removes: the smallest by magnitude; and what reads channels that are removed."""

from __future__ import annotations

from typing import Any, Sequence


def smallest(values: Any, level: float) -> Any:
    """A mask, flat, of the share `level` of the values that is smallest by magnitude; of equal ones the first.

    Any binary float will do, bfloat16 also as the bits that stand for it.
    """
    import numpy

    bits = magnitude_bits(values)
    count = how_many(bits.size, level)
    if count == 0:
        return numpy.zeros(bits.size, bool)
    if count == bits.size:
        return numpy.ones(bits.size, bool)
    limit = numpy.partition(bits, count - 1)[count - 1]
    mask = bits < limit
    equal = numpy.flatnonzero(bits == limit)
    mask[equal[: count - int(numpy.count_nonzero(mask))]] = True
    return mask


def how_many(elements: int, level: float) -> int:
    """How many of so many elements are zero at a level."""
    return int(elements * level + 0.5)


def channels_removed(channels: int, share: float) -> int:
    """How many of so many channels go at a share; one stays."""
    return min(how_many(channels, share), channels - 1)


def channel_places(channels: Any, start: int, repeat: int) -> Any:
    """Where channels stand on an axis, on which from a start on each stands so many times in a row; by channel."""
    import numpy

    return start + numpy.asarray(channels, "i8")[:, None] * repeat + numpy.arange(repeat)


def without_channels(values: Any, axis: int, stretches: Sequence[Sequence[int]], channels: Any) -> Any:
    """A copy of a weight that reads nothing of some channels; stretches are starts and repeats on the axis."""
    import numpy

    copy = values.copy()
    rows = numpy.moveaxis(copy, axis, 0)
    for start, repeat in stretches:
        rows[channel_places(channels, start, repeat).reshape(-1)] = 0
    return copy


def magnitude_bits(values: Any) -> Any:
    """The bits of floats without their signs, flat: as whole numbers they sort as the magnitudes do, NaN last."""
    import numpy

    flat = numpy.ascontiguousarray(values).reshape(-1)
    width = flat.dtype.itemsize
    kind = numpy.dtype("u{}".format(width))
    return flat.view(kind) & kind.type((1 << (8 * width - 1)) - 1)


def count_nan(values: Any) -> int:
    """How many floats are not numbers; 16-bit integers are the bits of bfloat16."""
    import numpy

    bits = magnitude_bits(values)
    infinity = {"f2": 0x7C00, "u2": 0x7F80, "f4": 0x7F800000, "f8": 0x7FF << 52}[values.dtype.str[1:]]
    return int(numpy.count_nonzero(bits > bits.dtype.type(infinity)))


def energy_shares(values: Any, levels: Sequence[float]) -> Any:
    """The share of the sum of squares that pruning to each level removes; values are floats, not their bits."""
    import numpy

    sizes = numpy.abs(numpy.asarray(values).reshape(-1))
    counts = [how_many(sizes.size, level) for level in levels]
    inner = sorted({count for count in counts if 0 < count < sizes.size})
    if inner:
        sizes.partition(inner)
    edges = [0, *inner, sizes.size]
    parts = [_energy(sizes[start:end]) for start, end in zip(edges, edges[1:])]
    below = dict(zip(edges, [0.0, *numpy.cumsum(parts).tolist()]))
    whole = below[sizes.size]
    return [below[count] / whole if whole else 0.0 for count in counts]


def _energy(values: Any) -> float:
    """The sum of squares, in portions, so that no copy in double precision of a large weight is made."""
    import numpy

    portion = 1 << 20
    return float(
        sum(
            numpy.square(values[start : start + portion].astype(numpy.float64)).sum()
            for start in range(0, len(values), portion)
        )
    )
