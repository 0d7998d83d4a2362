"""What a formula sees of a node and answers; how many operations convolutions, products and attention take.

Biases, scales (alpha, beta) and fused activations add one operation for each element that they touch.
Rounding the result of an integer product to its own scale is part of the product.

The scores of attention are counted in full, whether or not a causal mask or a window would let an engine leave
some out; for each of them, the scale and a softmax are 6 operations, a mask 1, a soft cap 3. Where the cache is a
buffer that is only partly filled, all of it is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import NodeProto

from inferlab.model.onnx_graph import Tensor, attribute
from inferlab.records import Shape


class Unknown(Exception):
    """The operations of a node cannot be told; the message says why."""


@dataclass(frozen=True, slots=True)
class Count:
    """Operations: a multiply-add is two of `flops` and one of `macs`."""

    flops: int
    macs: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.flops + other.flops, self.macs + other.macs)


def multiply_adds(macs: int, more: int = 0) -> Count:
    """So many multiply-adds, and more operations beside."""
    return Count(2 * macs + more, macs)


@dataclass(frozen=True, slots=True)
class Operands:
    """A node with the types and shapes of what it reads and writes; None where an input is left out."""

    node: NodeProto
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    #: The whole numbers of a small constant input; empty where it is none.
    integers: Callable[[int], list[int]] = field(default=lambda _: [])

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value; text as str."""
        value = attribute(self.node, name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def has(self, index: int) -> bool:
        """Whether this input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def heads(self, *names: str) -> list[int]:
        """How many heads of each kind it has, by its attributes, which must say so."""
        counts: list[int] = [self.attribute(name, 0) for name in names]
        if not all(counts):
            raise Unknown("it does not say how many heads it has")
        return counts

    def shape(self, index: int) -> Shape:
        """The shape of an input."""
        return _shape(self.inputs, index, "input", "reads")

    def result(self, index: int = 0) -> Shape:
        """The shape of an output."""
        return _shape(self.outputs, index, "output", "writes")

    def size(self, index: int = 0) -> int:
        """How many elements an input has."""
        return math.prod(self.shape(index))

    def result_size(self) -> int:
        """How many elements the output has."""
        return math.prod(self.result())


Formula = Callable[[Operands], Count]


def _shape(tensors: Sequence[Tensor | None], index: int, side: str, does: str) -> Shape:
    tensor = tensors[index] if index < len(tensors) else None
    if tensor is None:
        raise Unknown(f"its {side} {index} is missing")
    if tensor.shape is None:
        raise Unknown(f"the shape of what it {does} is not known")
    return tensor.shape


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
        weight, recurrence = op.shape(1), op.shape(2)
        hidden = recurrence[1] if transposed else recurrence[2]
        steps = first * second * weight[0]
        extra = gates * (1 + op.has(3)) + pointwise + (6 if gates == 4 and op.has(7) else 0)
        return multiply_adds(steps * gates * hidden * (width + hidden), steps * hidden * extra)

    return count


def expert_mixture(weights: Sequence[int], bits: str = "") -> Formula:
    """MoE and QMoE: each token goes through its k experts; one operation for each hidden unit's activation."""

    def count(op: Operands) -> Count:
        rows, width = op.size() // op.shape(0)[-1], op.shape(0)[-1]
        packed = 8 // op.attribute(bits, 4) if bits else 1
        routed_rows = rows * op.attribute("k", 1)
        sizes = [math.prod(op.shape(index)[1:]) * packed for index in weights if op.has(index)]
        return multiply_adds(routed_rows * sum(sizes), routed_rows * (sizes[1] // width))

    return count


def _activated(op: Operands) -> int:
    return int(bool(op.attribute("activation", "")))


_SOFTMAX = 5
_ROTARY = 3  # six operations turn a pair


def onnx_attention(op: Operands) -> Count:
    """Attention of ai.onnx: [batch, heads, length, size], or [batch, length, heads × size]."""
    query, key, value = op.shape(0), op.shape(1), op.shape(2)
    if len(query) == 4:
        batch, heads, length, size = query
        total, value_size = key[2], value[3]
    else:
        heads, kv_heads = op.heads("q_num_heads", "kv_num_heads")
        batch, length, size = query[0], query[1], query[2] // heads
        total, value_size = key[1], value[2] // kv_heads
    total += op.shape(4)[2] if op.has(4) else 0
    return _core(batch, heads, length, total, size, value_size, op.has(3), op.attribute("softcap", 0.0))


def projected(past: int, mask: int) -> Formula:
    """Attention, QAttention: queries, keys and values are one product of the input first."""

    def count(op: Operands) -> Count:
        batch, length, width = op.shape(0)
        columns = op.shape(1)[-1]
        sizes = op.attribute("qkv_hidden_sizes") or [columns // 3] * 3
        (heads,) = op.heads("num_heads")
        total = length + (op.shape(past)[3] if op.has(past) else 0)
        product = batch * length * columns
        turned = _ROTARY * batch * length * (sizes[0] + sizes[1]) if op.attribute("do_rotary", 0) else 0
        inner = _core(batch, heads, length, total, sizes[0] // heads, sizes[2] // heads, op.has(mask))
        return multiply_adds(product * width, product * op.has(2) + turned) + inner

    return count


def multi_head(bias: int, masks: tuple[int, ...], past: int) -> Formula:
    """MultiHeadAttention and the decoder's: queries, keys and values apart, or packed into 5 dimensions."""

    def count(op: Operands) -> Count:
        query, (heads,) = op.shape(0), op.heads("num_heads")
        batch, length = query[0], query[1]
        size = query[4] if len(query) == 5 else query[-1] // heads
        total, value_size = length, size
        if op.has(1):
            key = op.shape(1)
            total = key[2] if len(key) == 4 else key[1]
            value = op.shape(2) if op.has(2) else ()
            value_size = value[3] if len(value) == 4 else value[2] // heads if value else size
        total += op.shape(past)[2] if op.has(past) else 0
        added = batch * length * heads * (2 * size + value_size) if op.has(bias) else 0
        masked = any(op.has(index) for index in masks)
        return Count(added) + _core(batch, heads, length, total, size, value_size, masked)

    return count


def group_query(op: Operands) -> Count:
    """GroupQueryAttention: fewer heads for keys and values than for queries; the cache counts."""
    batch, length, width = op.shape(0)
    heads, kv_heads = op.heads("num_heads", "kv_num_heads")
    size = width // heads if op.has(1) else width // (heads + 2 * kv_heads)
    scalars = op.integers(6)
    if scalars:
        total = scalars[0]
    elif len(op.outputs) > 1 and op.outputs[1] is not None and op.outputs[1].shape is not None:
        total = op.result(1)[2]
    else:
        total = length + (op.shape(3)[2] if op.has(3) else 0)
    turned = batch * length * (heads + kv_heads) * size * _ROTARY if op.attribute("do_rotary", 0) else 0
    capped = op.attribute("softcap", 0.0)
    return Count(turned) + _core(batch, heads, length, total, size, size, op.has(10), capped)


def linear_attention(op: Operands) -> Count:
    """LinearAttention, token by token: each head's state is updated and read, and corrected by a delta rule."""
    batch, length, width = op.shape(0)
    heads, kv_heads = op.heads("q_num_heads", "kv_num_heads")
    state = (width // heads) * (op.shape(2)[-1] // kv_heads)
    rule = op.attribute("update_rule", "gated_delta")
    reads = heads + kv_heads * (2 if "delta" in rule else 1)
    tokens = batch * length
    return multiply_adds(tokens * state * reads, tokens * kv_heads * state * ("gated" in rule))


def rotary(op: Operands) -> Count:
    """RotaryEmbedding: three operations for each element that it turns."""
    turned, size = op.attribute("rotary_embedding_dim", 0), op.shape(0)[-1]
    heads = op.attribute("num_heads", 0)
    if len(op.shape(0)) == 3 and heads:
        size //= heads
    return Count(_ROTARY * op.result_size() * (turned or size) // size)


def _core(
    batch: int,
    heads: int,
    length: int,
    total: int,
    size: int,
    value_size: int,
    masked: bool = False,
    softcap: float = 0.0,
) -> Count:
    scores = math.prod((batch, heads, length, total))
    return multiply_adds(scores * (size + value_size), scores * (1 + _SOFTMAX + masked + (3 if softcap else 0)))
