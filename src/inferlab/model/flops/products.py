"""How many operations convolutions, matrix products and recurrent layers take.

Biases, scales (alpha, beta) and fused activations add one operation for each element that they touch.
Rounding the result of an integer product to its own scale is part of the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inferlab.model.flops.operands import Count, Formula, Operands, Unknown, multiply_adds
from inferlab.records import Shape

#: Stands for the place of an input that an operator does not have.
NO_INPUT = 99


def conv(weight: int = 1, bias: int = 2) -> Formula:
    """Conv, of any rank, groups and dilation: each output takes one filter, which spans a group's channels."""

    def count(one: Operands) -> Count:
        out = one.result_size()
        touched = one.has(bias) + (bias == 2 and one.has(3)) + _activated(one)
        return multiply_adds(out * math.prod(one.shape(weight)[1:]), out * touched)

    return count


def conv_transpose(weight: int = 1, bias: int = 2) -> Formula:
    """ConvTranspose: each input is spread by one filter over a group's outputs; all of them, cropped or not."""

    def count(one: Operands) -> Count:
        return multiply_adds(
            one.size() * math.prod(one.shape(weight)[1:]), one.result_size() * (one.has(bias) + _activated(one))
        )

    return count


def deform_conv(one: Operands) -> Count:
    """A convolution, and four multiply-adds for each value that it picks from between the pixels."""
    out, channels = one.result(), one.shape(0)[1]
    picked = out[0] * channels * math.prod(out[2:]) * math.prod(one.shape(1)[2:])
    return conv(1, 3)(one) + multiply_adds(4 * picked, picked * one.has(4))


def causal_conv(one: Operands) -> Count:
    """CausalConvWithState: a depthwise convolution over the past."""
    out = one.result_size()
    active = one.attribute("activation", "none") != "none"
    return multiply_adds(out * math.prod(one.shape(1)[1:]), out * (one.has(2) + active))


def matmul(each: int = 0, bias: int = NO_INPUT) -> Formula:
    """A product of matrices, in batches or broadcast; `each` more operations for every element of the result."""

    def count(one: Operands) -> Count:
        shape, out = one.shape(0), one.result_size()
        if not shape:
            raise Unknown("its first input is a scalar")
        common = shape[-1]
        if len(shape) > 1 and one.attribute("transA", 0):
            common = shape[0] if one.attribute("transBatchA", 0) else shape[-2]
        scaled = one.attribute("alpha", 1.0) != 1.0
        return multiply_adds(out * common, out * (each + one.has(bias) + scaled + _activated(one)))

    return count


def gemm(bias: int = 2) -> Formula:
    """Gemm: what is added counts where it is given, alpha and beta where they are not 1."""

    def count(one: Operands) -> Count:
        shape, out = one.shape(0), one.result_size()
        if len(shape) != 2:
            raise Unknown(f"its first input has {len(shape)} dimensions instead of 2")
        touched = one.has(bias) + (one.attribute("alpha", 1.0) != 1.0) + _activated(one)
        touched += one.has(bias) and one.attribute("beta", 1.0) not in (0.0, 1.0)
        return multiply_adds(out * shape[0 if one.attribute("transA", 0) else 1], out * touched)

    return count


def quantizing_matmul(one: Operands) -> Count:
    """DynamicQuantizeMatMul: its left side is quantised first (4 for each element), its result scaled back."""
    return matmul(each=1, bias=4)(one) + Count(4 * one.size())


def packed_matmul(one: Operands) -> Count:
    """MatMulNBits and its like: N and K are attributes, for the weights are packed; unpacking is not counted."""
    rows = math.prod(one.shape(0)[:-1])
    out = rows * one.attribute("N", 0)
    return multiply_adds(out * one.attribute("K", 0), out * one.has(5))


def einsum(one: Operands) -> Count:
    """Einsum, as one loop over all its indices: a product for each operand beyond the first, a sum if it sums."""
    equation = one.attribute("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    shapes = [one.shape(index) for index in range(len(terms))]
    sizes: dict[str, int] = {}
    labels = [_labels(term, shape) for term, shape in zip(terms, shapes, strict=True)]
    for names, shape in zip(labels, shapes, strict=True):
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    if arrow:
        kept = set(right.replace("...", "")) | {name for name in sizes if name.startswith(".")}
    else:
        flat = [name for names in labels for name in names]
        kept = {name for name in flat if name.startswith(".") or flat.count(name) == 1}
    total = math.prod(sizes.values())
    sums = any(name not in kept for name in sizes)
    if len(terms) > 1 and sums:
        return Count(len(terms) * total, total)
    return Count((len(terms) - 1 + sums) * total)


def _labels(term: str, shape: Shape) -> list[str]:
    """An operand's indices; those of an ellipsis are counted from its end, where broadcasting aligns them."""
    before, dots, after = term.partition("...")
    hidden = len(shape) - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise Unknown(f"'{term}' of its equation does not fit the shape {list(shape)}")
    return [*before, *(f".{index}" for index in range(hidden, 0, -1)), *after]


def recurrent(gates: int, pointwise: int, transposed: bool = False) -> Formula:
    """LSTM, GRU or RNN over the longest sequence: products with W and R at every step, then gate by gate."""

    def count(one: Operands) -> Count:
        first, second, width = one.shape(0)
        weight, again = one.shape(1), one.shape(2)
        hidden = again[1] if transposed else again[2]
        steps = first * second * weight[0]
        extra = gates * (1 + one.has(3)) + pointwise + (6 if gates == 4 and one.has(7) else 0)
        return multiply_adds(steps * gates * hidden * (width + hidden), steps * hidden * extra)

    return count


def expert_mixture(weights: Sequence[int], bits: str = "") -> Formula:
    """MoE and QMoE: each token goes through its k experts; one operation for each hidden unit's activation."""

    def count(one: Operands) -> Count:
        rows, width = one.size() // one.shape(0)[-1], one.shape(0)[-1]
        packed = 8 // one.attribute(bits, 4) if bits else 1
        taken = rows * one.attribute("k", 1)
        sizes = [math.prod(one.shape(index)[1:]) * packed for index in weights if one.has(index)]
        return multiply_adds(taken * sum(sizes), taken * (sizes[1] // width))

    return count


def _activated(one: Operands) -> int:
    return int(bool(one.attribute("activation", "")))
