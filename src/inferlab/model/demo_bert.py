"""The architecture of the built-in BERTs, in the operators that PyTorch exports, so that engines fuse them."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, TensorProto

from inferlab.model.demo_nets import Graph

_VOCABULARY = 30522
_POSITIONS = 512
_HIDDEN_STATE = "last_hidden_state"


def bert(*, layers: int, hidden: int, heads: int) -> ModelProto:
    """A BERT encoder with pooler; batch and sequence (up to 512) are dynamic."""
    net = _Bert(hidden, heads)
    value = net.embeddings()
    mask = net.mask()
    for index in range(layers):
        value = net.layer(f"layer{index}", value, mask, _HIDDEN_STATE if index == layers - 1 else "")
    net.pooler(value)
    ids = ("batch", "sequence")
    return net.graph.finish(
        "bert",
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (TensorProto.INT64, ids)),
        {_HIDDEN_STATE: ("batch", "sequence", hidden), "pooler_output": ("batch", hidden)},
    )


class _Bert:
    """The parts of a BERT, added to one graph."""

    def __init__(self, hidden: int, heads: int) -> None:
        self.graph = Graph()
        self._hidden = hidden
        size = hidden // heads
        graph = self.graph
        self._split = graph.constant("split_heads", np.array([0, 0, heads, size], np.int64))
        self._join = graph.constant("join_heads", np.array([0, 0, hidden], np.int64))
        self._root = graph.constant("root_of_head_size", np.float32(math.sqrt(size)))
        self._one = graph.constant("one", np.float32(1))
        self._half = graph.constant("half", np.float32(0.5))
        self._two = graph.constant("two", np.float32(2))
        self._root_of_two = graph.constant("root_of_two", np.float32(math.sqrt(2)))
        self._epsilon = graph.constant("epsilon", np.float32(1e-12))

    def embeddings(self) -> str:
        """Words, token types and as many positions as the sequence is long, added and normalised."""
        graph = self.graph
        words = graph.normal("embeddings.word", (_VOCABULARY, self._hidden), 0.6)
        types = graph.normal("embeddings.token_type", (2, self._hidden), 0.3)
        places = graph.normal("embeddings.position", (_POSITIONS, self._hidden), 0.6)
        first, axis = (
            graph.constant("zero", np.array([0], np.int64)),
            graph.constant("axis_1", np.array([1], np.int64)),
        )
        length = graph.node(
            "Gather", graph.node("Shape", "input_ids"), graph.constant("index_1", np.int64(1)), axis=0
        )
        length = graph.node("Unsqueeze", length, first)
        all_places = graph.constant("position_ids", np.arange(_POSITIONS, dtype=np.int64)[None])
        place_ids = graph.node("Slice", all_places, first, length, axis)
        value = graph.node(
            "Add", graph.node("Gather", words, "input_ids"), graph.node("Gather", types, "token_type_ids")
        )
        value = graph.node(
            "Add", value, graph.shaped(graph.node("Gather", places, place_ids), (1, "sequence", self._hidden))
        )
        return self._layer_norm("embeddings.norm", value)

    def mask(self) -> str:
        """What is added to attention scores: nothing where the mask is 1, −10,000 where it is 0."""
        graph = self.graph
        value = graph.node("Unsqueeze", "attention_mask", "axis_1")
        value = graph.node("Unsqueeze", value, graph.constant("axis_2", np.array([2], np.int64)))
        value = graph.node("Cast", value, to=TensorProto.FLOAT)
        return graph.node("Mul", graph.node("Sub", self._one, value), graph.constant("masked", np.float32(-10000)))

    def layer(self, name: str, value: str, mask: str, output: str) -> str:
        """Attention and feed-forward, each with its residual and normalisation."""
        graph = self.graph
        attended = self._linear(
            f"{name}.attention.out", self._attention(name, value, mask), self._hidden, self._hidden
        )
        value = self._layer_norm(f"{name}.attention.norm", graph.node("Add", attended, value))
        inner = self._gelu(self._linear(f"{name}.intermediate", value, self._hidden, 4 * self._hidden))
        fed = self._linear(f"{name}.out", inner, 4 * self._hidden, self._hidden)
        return self._layer_norm(f"{name}.norm", graph.node("Add", fed, value), output)

    def pooler(self, value: str) -> None:
        """A dense layer and tanh on the first token."""
        graph = self.graph
        first = graph.node("Gather", value, graph.constant("index_0", np.int64(0)), axis=1)
        weight = graph.normal("pooler.weight", (self._hidden, self._hidden), 0.5 / math.sqrt(self._hidden))
        bias = graph.normal("pooler.bias", (self._hidden,), 0.02)
        graph.node("Tanh", graph.node("Gemm", first, weight, bias, transB=1), name="pooler_output")

    def _attention(self, name: str, value: str, mask: str) -> str:
        graph = self.graph
        query = self._head(f"{name}.attention.query", value, (0, 2, 1, 3))
        key = self._head(f"{name}.attention.key", value, (0, 2, 3, 1))
        content = self._head(f"{name}.attention.value", value, (0, 2, 1, 3))
        scores = graph.node("Div", graph.node("MatMul", query, key), self._root)
        shares = graph.node("Softmax", graph.node("Add", scores, mask), axis=-1)
        mixed = graph.node("Transpose", graph.node("MatMul", shares, content), perm=[0, 2, 1, 3])
        return graph.node("Reshape", mixed, self._join)

    def _head(self, name: str, value: str, order: tuple[int, ...]) -> str:
        value = self._linear(name, value, self._hidden, self._hidden)
        return self.graph.node("Transpose", self.graph.node("Reshape", value, self._split), perm=list(order))

    def _linear(self, name: str, value: str, width: int, out: int) -> str:
        weight = self.graph.normal(f"{name}.weight", (width, out), 1 / math.sqrt(width))
        bias = self.graph.normal(f"{name}.bias", (out,), 0.02)
        return self.graph.node("Add", self.graph.node("MatMul", value, weight), bias)

    def _layer_norm(self, name: str, value: str, output: str = "") -> str:
        graph = self.graph
        centred = graph.node("Sub", value, graph.node("ReduceMean", value, axes=[-1]))
        variance = graph.node("ReduceMean", graph.node("Pow", centred, self._two), axes=[-1])
        scale = graph.node("Sqrt", graph.node("Add", variance, self._epsilon))
        value = graph.node(
            "Mul", graph.node("Div", centred, scale), graph.normal(f"{name}.weight", (self._hidden,), 0.02, 1.0)
        )
        return graph.node("Add", value, graph.normal(f"{name}.bias", (self._hidden,), 0.02), name=output)

    def _gelu(self, value: str) -> str:
        graph = self.graph
        error = graph.node("Erf", graph.node("Div", value, self._root_of_two))
        return graph.node("Mul", graph.node("Mul", value, graph.node("Add", error, self._one)), self._half)
