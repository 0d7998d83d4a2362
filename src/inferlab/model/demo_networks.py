"""The architectures of the built-in perceptrons, convolutional networks and BERTs, with seeded weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

Floats = NDArray[np.float32]
Dims = Sequence[int | str]

# The newest that DeepSparse 1.8 loads.
_IR_VERSION = 8
_OPSET = 13


class Graph:
    """A graph in the making: nodes and weights are added, their outputs' names returned."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._model = ModelProto(ir_version=_IR_VERSION, producer_name="inferlab")
        self._model.opset_import.append(helper.make_opsetid("", _OPSET))

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        output = name or f"{operator.lower()}_{len(self._model.graph.node)}"
        node = helper.make_node(operator, inputs, [output], name=f"{output}_node", **attributes)
        self._model.graph.node.append(node)
        return output

    def constant(self, name: str, value: Any) -> str:
        """Add an initializer."""
        array = np.asarray(value)
        # Filled in place: helper.make_graph and make_model would copy all of a BERT's weights again.
        tensor = self._model.graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.dims.extend(array.shape)
        tensor.raw_data = array.tobytes()
        return name

    def shaped(self, name: str, dims: Dims) -> str:
        """Note the dimensions of a float value where inference would not find them."""
        self._model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        return name

    def normal(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        """Add an initializer of normal numbers."""
        values = self._random.standard_normal(shape, dtype=np.float32)
        values *= np.float32(deviation)
        values += np.float32(mean)
        return self.constant(name, values)

    def kernel(self, name: str, shape: Sequence[int], gain: float) -> str:
        """Add a convolution's or Gemm's weight, [out, in, …], that keeps the size of what passes through it.

        Each filter over several channels sums to zero. Otherwise the positive mean that every ReLU leaves would
        grow from layer to layer until the outputs hardly depend on the input.
        """
        fan_in = math.prod(shape[1:])
        values: Floats = self._random.standard_normal(shape, dtype=np.float32)
        if shape[1] > 1:
            values -= values.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        values *= np.float32(gain / math.sqrt(fan_in))
        return self.constant(name, values)

    def finish(self, name: str, inputs: dict[str, tuple[int, Dims]], outputs: dict[str, Dims]) -> ModelProto:
        """The model, from its inputs (type and dimensions) and its float outputs (dimensions)."""
        graph = self._model.graph
        graph.name = name
        graph.input.extend(helper.make_tensor_value_info(key, kind, dims) for key, (kind, dims) in inputs.items())
        graph.output.extend(
            helper.make_tensor_value_info(key, TensorProto.FLOAT, dims) for key, dims in outputs.items()
        )
        return self._model


_RELU_GAIN = math.sqrt(2)  # half of what enters a ReLU is lost


def mlp(widths: Sequence[int]) -> ModelProto:
    """A multilayer perceptron with ReLU between its layers."""
    graph = Graph()
    value, last = "input", len(widths) - 1
    for index in range(1, len(widths)):
        gain = 1.0 if index == 1 else _RELU_GAIN
        weight = graph.kernel(f"fc{index}.weight", (widths[index], widths[index - 1]), gain)
        bias = graph.normal(f"fc{index}.bias", (widths[index],), 0.1)
        value = graph.node("Gemm", value, weight, bias, transB=1, name="output" if index == last else "")
        if index < last:
            value = graph.node("Relu", value)
    return graph.finish(
        "mlp", {"input": (TensorProto.FLOAT, ("batch", widths[0]))}, {"output": ("batch", widths[-1])}
    )


def mobilenet_v1() -> ModelProto:
    """MobileNetV1, width 1.0: a convolution, 13 depthwise separable blocks, a classifier."""
    net = _ConvNet()
    value = net.conv("input", 3, 32, 3, stride=2, gain=1.0)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    width = 32
    for out, stride in blocks:
        value = net.conv(value, width, width, 3, stride=stride, groups=width)
        value = net.conv(value, width, out, 1)
        width = out
    return net.classifier("mobilenet_v1", value, width, gain=16.0)


def mobilenet_v2() -> ModelProto:
    """MobileNetV2, width 1.0: inverted residuals with linear bottlenecks and ReLU6."""
    net = _ConvNet(cap=6.0)
    value = net.conv("input", 3, 32, 3, stride=2, gain=1.0)
    stages = [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]  # fmt: skip
    width = 32
    for expansion, out, repeats, first_stride in stages:
        for index in range(repeats):
            value = _inverted_residual(net, value, width, out, expansion, first_stride if index == 0 else 1)
            width = out
    value = net.conv(value, width, 1280, 1, gain=1.0)
    return net.classifier("mobilenet_v2", value, 1280, gain=4.0)


def _inverted_residual(net: _ConvNet, start: str, width: int, out: int, expansion: int, stride: int) -> str:
    value, inner = start, width * expansion
    if expansion > 1:
        value = net.conv(value, width, inner, 1, gain=1.0)
    value = net.conv(value, inner, inner, 3, stride=stride, groups=inner)
    residual = stride == 1 and width == out
    value = net.conv(value, inner, out, 1, gain=_BRANCH_GAIN if residual else _RELU_GAIN, activate=False)
    return net.graph.node("Add", start, value) if residual else value


def resnet50() -> ModelProto:
    """ResNet-50 (v1.5, the stride in the 3 × 3 convolution): 16 bottleneck blocks."""
    net = _ConvNet()
    value = net.conv("input", 3, 64, 7, stride=2, gain=1.0)
    value = net.graph.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for inner, repeats, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(repeats):
            value = _bottleneck(net, value, width, inner, first_stride if index == 0 else 1, shortcut=index == 0)
            width = inner * 4
    return net.classifier("resnet50", value, width, gain=20.0)


def _bottleneck(net: _ConvNet, start: str, width: int, inner: int, stride: int, shortcut: bool) -> str:
    value = net.conv(start, width, inner, 1)
    value = net.conv(value, inner, inner, 3, stride=stride)
    value = net.conv(value, inner, inner * 4, 1, gain=_BRANCH_GAIN, activate=False)
    if shortcut:
        start = net.conv(start, width, inner * 4, 1, stride=stride, activate=False, gain=1.0)
    return net.graph.node("Relu", net.graph.node("Add", value, start))


_BRANCH_GAIN = 0.7  # of the last convolution in a residual branch, so that sums do not grow block by block


class _ConvNet:
    """Convolutions with their BatchNormalization folded into weight and bias, as an exporter leaves them.

    Folding leaves one bias a channel where there were a scale and a shift (and two statistics): MobileNetV1 has
    4,221,032 parameters here instead of 4,231,976, MobileNetV2 3,487,816 instead of 3,504,872, ResNet-50
    25,530,472 instead of 25,557,032.
    """

    def __init__(self, cap: float | None = None) -> None:
        self.graph = Graph()
        self._count = 0
        self._limits: tuple[str, ...] = ()
        if cap is not None:
            zero, top = np.float32(0), np.float32(cap)
            self._limits = (self.graph.constant("relu6.min", zero), self.graph.constant("relu6.max", top))

    def conv(
        self,
        value: str,
        width: int,
        out: int,
        size: int,
        *,
        stride: int = 1,
        groups: int = 1,
        gain: float = _RELU_GAIN,
        activate: bool = True,
    ) -> str:
        """Add a convolution that pads by half its size, and its activation."""
        name = f"conv{self._count}"
        self._count += 1
        weight = self.graph.kernel(f"{name}.weight", (out, width // groups, size, size), gain)
        bias = self.graph.normal(f"{name}.bias", (out,), 0.02)
        value = self.graph.node(
            "Conv",
            value,
            weight,
            bias,
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[size // 2] * 4,
            group=groups,
        )
        if not activate:
            return value
        return self.graph.node("Clip", value, *self._limits) if self._limits else self.graph.node("Relu", value)

    def classifier(self, name: str, value: str, width: int, gain: float) -> ModelProto:
        """Add pooling, which averages away most of what varies, and 1000 classes with logits of about 1."""
        value = self.graph.node("Flatten", self.graph.node("GlobalAveragePool", value))
        weight = self.graph.kernel("classifier.weight", (1000, width), gain)
        bias = self.graph.normal("classifier.bias", (1000,), 0.1)
        self.graph.node("Gemm", value, weight, bias, transB=1, name="logits")
        image: Dims = ("batch", 3, 224, 224)
        return self.graph.finish(name, {"input": (TensorProto.FLOAT, image)}, {"logits": ("batch", 1000)})


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


_MAKERS: dict[str, Callable[[], ModelProto]] = {
    "mlp": lambda: mlp((64, 64, 10)),
    "mlp_medium": lambda: mlp((256, 256, 128, 128, 10)),
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "bert_base": lambda: bert(layers=12, hidden=768, heads=12),
    "bert_3layer": lambda: bert(layers=3, hidden=384, heads=12),
}


def make(name: str) -> ModelProto:
    """The built-in model of this name."""
    return _MAKERS[name]()
