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

    def count(op: Operands) -> Count:
        out = op.result_size()
        touched = op.has(bias) + (bias == 2 and op.has(3)) + _activated(op)
        return multiply_adds(out * math.prod(op.shape(weight)[1:]), out * touched)

    return count


def conv_transpose(weight: int = 1, bias: int = 2) -> Formula:
    """ConvTranspose: each input is spread by one filter over a group's outputs; all of them, cropped or not."""

    def count(op: Operands) -> Count:
        return multiply_adds(
            op.size() * math.prod(op.shape(weight)[1:]), op.result_size() * (op.has(bias) + _activated(op))
        )

    return count


def deform_conv(op: Operands) -> Count:
    """A convolution, and four multiply-adds for each value that it picks from between the pixels."""
    out, channels = op.result(), op.shape(0)[1]
    picked = out[0] * channels * math.prod(out[2:]) * math.prod(op.shape(1)[2:])
    return conv(1, 3)(op) + multiply_adds(4 * picked, picked * op.has(4))


def causal_conv(op: Operands) -> Count:
    """CausalConvWithState: a depthwise convolution over the past."""
    out = op.result_size()
    active = op.attribute("activation", "none") != "none"
    return multiply_adds(out * math.prod(op.shape(1)[1:]), out * (op.has(2) + active))


def matmul(each: int = 0, bias: int = NO_INPUT) -> Formula:
    """A product of matrices, in batches or broadcast; `each` more operations for every element of the result."""

    def count(op: Operands) -> Count:
        shape, out = op.shape(0), op.result_size()
        if not shape:
            raise Unknown("its first input is a scalar")
        common = shape[-1]
        if len(shape) > 1 and op.attribute("transA", 0):
            common = shape[0] if op.attribute("transBatchA", 0) else shape[-2]
        scaled = op.attribute("alpha", 1.0) != 1.0
        return multiply_adds(out * common, out * (each + op.has(bias) + scaled + _activated(op)))

    return count


def gemm(bias: int = 2) -> Formula:
    """Gemm: what is added counts where it is given, alpha and beta where they are not 1."""

    def count(op: Operands) -> Count:
        shape, out = op.shape(0), op.result_size()
        if len(shape) != 2:
            raise Unknown(f"its first input has {len(shape)} dimensions instead of 2")
        touched = op.has(bias) + (op.attribute("alpha", 1.0) != 1.0) + _activated(op)
        touched += op.has(bias) and op.attribute("beta", 1.0) not in (0.0, 1.0)
        return multiply_adds(out * shape[0 if op.attribute("transA", 0) else 1], out * touched)

    return count


def quantizing_matmul(op: Operands) -> Count:
    """DynamicQuantizeMatMul: its left side is quantised first (4 for each element), its result scaled back."""
    return matmul(each=1, bias=4)(op) + Count(4 * op.size())


def packed_matmul(op: Operands) -> Count:
    """MatMulNBits and its like: N and K are attributes, for the weights are packed; unpacking is not counted."""
    rows = math.prod(op.shape(0)[:-1])
    out = rows * op.attribute("N", 0)
    return multiply_adds(out * op.attribute("K", 0), out * op.has(5))


def einsum(op: Operands) -> Count:
    """Einsum, as one loop over all its indices: a product for each operand beyond the first, a sum if it sums."""
    equation = op.attribute("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    shapes = [op.shape(index) for index in range(len(terms))]
    sizes: dict[str, int] = {}
    labels = [_labels(term, shape) for term, shape in zip(terms, shapes, strict=True)]
    for names, shape in zip(labels, shapes, strict=True):
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    if arrow:
        output_axes = set(right.replace("...", "")) | {name for name in sizes if name.startswith(".")}
    else:
        flat = [name for names in labels for name in names]
        output_axes = {name for name in flat if name.startswith(".") or flat.count(name) == 1}
    total = math.prod(sizes.values())
    sums = any(name not in output_axes for name in sizes)
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

    def count(op: Operands) -> Count:
        first, second, width = op.shape(0)
        weight, again = op.shape(1), op.shape(2)
        hidden = again[1] if transposed else again[2]
        steps = first * second * weight[0]
        extra = gates * (1 + op.has(3)) + pointwise + (6 if gates == 4 and op.has(7) else 0)
        return multiply_adds(steps * gates * hidden * (width + hidden), steps * hidden * extra)

    return count


def expert_mixture(weights: Sequence[int], bits: str = "") -> Formula:
    """MoE and QMoE: each token goes through its k experts; one operation for each hidden unit's activation."""

    def count(op: Operands) -> Count:
        rows, width = op.size() // op.shape(0)[-1], op.shape(0)[-1]
        packed = 8 // op.attribute(bits, 4) if bits else 1
        taken = rows * op.attribute("k", 1)
        sizes = [math.prod(op.shape(index)[1:]) * packed for index in weights if op.has(index)]
        return multiply_adds(taken * sum(sizes), taken * (sizes[1] // width))

    return count


def _activated(op: Operands) -> int:
    return int(bool(op.attribute("activation", "")))
