"""How many operations attention takes.

The scores are counted in full, whether or not a causal mask or a window would let an engine leave some out; for
each of them, the scale and a softmax are 6 operations, a mask 1, a soft cap 3. Where the cache is a buffer that
is only partly filled, all of it is counted.
"""

from __future__ import annotations

import math

from inferlab.model.flops.operands import Count, Formula, Operands, Unknown, multiply_adds

_SOFTMAX = 5
_ROTARY = 3  # six operations turn a pair


def onnx_attention(op: Operands) -> Count:
    """Attention of ai.onnx: [batch, heads, length, size], or [batch, length, heads × size]."""
    query, key, value = op.shape(0), op.shape(1), op.shape(2)
    heads, kv_heads = op.attribute("q_num_heads", 0), op.attribute("kv_num_heads", 0)
    if len(query) == 4:
        batch, heads, length, size = query
        total, value_size = key[2], value[3]
    else:
        if not heads or not kv_heads:
            raise Unknown("it does not say how many heads it has")
        batch, length, size = query[0], query[1], query[2] // heads
        total, value_size = key[1], value[2] // kv_heads
    total += op.shape(4)[2] if op.has(4) else 0
    return _core(batch, heads, length, total, size, value_size, op.has(3), op.attribute("softcap", 0.0))


def projected(past: int, mask: int, bias: int = 2) -> Formula:
    """Attention, QAttention: queries, keys and values are one product of the input first."""

    def count(op: Operands) -> Count:
        batch, length, width = op.shape(0)
        columns = op.shape(1)[-1]
        sizes = op.attribute("qkv_hidden_sizes") or [columns // 3] * 3
        heads = op.attribute("num_heads", 0)
        if not heads:
            raise Unknown("it does not say how many heads it has")
        total = length + (op.shape(past)[3] if op.has(past) else 0)
        product = batch * length * columns
        turned = _ROTARY * batch * length * (sizes[0] + sizes[1]) if op.attribute("do_rotary", 0) else 0
        inner = _core(batch, heads, length, total, sizes[0] // heads, sizes[2] // heads, op.has(mask))
        return multiply_adds(product * width, product * op.has(bias) + turned) + inner

    return count


def multi_head(bias: int, masks: tuple[int, ...], past: int) -> Formula:
    """MultiHeadAttention and the decoder's: queries, keys and values apart, or packed into 5 dimensions."""

    def count(op: Operands) -> Count:
        query, heads = op.shape(0), op.attribute("num_heads", 0)
        if not heads:
            raise Unknown("it does not say how many heads it has")
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
    heads, kv_heads = op.attribute("num_heads", 0), op.attribute("kv_num_heads", 0)
    if not heads or not kv_heads:
        raise Unknown("it does not say how many heads it has")
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
    heads, kv_heads = op.attribute("q_num_heads", 0), op.attribute("kv_num_heads", 0)
    if not heads or not kv_heads:
        raise Unknown("it does not say how many heads it has")
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
