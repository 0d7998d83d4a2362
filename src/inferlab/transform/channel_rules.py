"""Follow the channels of a model: what each operator does with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnx import ModelProto, NodeProto, numpy_helper

from inferlab.model.onnx_graph import attribute, label, subgraphs
from inferlab.records import Shape
from inferlab.transform.channel_groups import DOMAINS, Axes, ChannelTrace, Layout, Operand, Unclear, repeated

# Element by element, whatever they compute; a constant among their inputs loses the same channels.
_ELEMENTWISE = {
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "Cast", "Ceil", "Celu",
    "Clip", "Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
}  # fmt: skip
_POOLS = {"MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}
_REDUCTIONS = {
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin",
}  # fmt: skip
_ALONG_AN_AXIS = {"Softmax", "LogSoftmax", "Hardmax"}
_NORMS = {"BatchNormalization", "InstanceNormalization"}


def follow(proto: ModelProto, shapes: Mapping[str, Shape | None]) -> ChannelTrace:
    """Follow the channels of all products to all that reads them, or hold them where that is not clear."""
    trail = ChannelTrace(proto, shapes)
    for node in proto.graph.node:
        _follow(trail, node)
    for value in proto.graph.output:
        trail.hold(value.name, "its channels are an output of the model")
    trail.hold_what_others_read()
    return trail


def _follow(trail: ChannelTrace, node: NodeProto) -> None:
    if subgraphs(node):
        for name in _all_reads(node):
            trail.hold(name, f"its channels go into {label(node)}, a branch or loop")
        return
    handler = _HANDLERS.get(node.op_type) if node.domain in DOMAINS else None
    if trail.turns(node):
        return
    if handler not in _PRODUCTS and not any(trail.values.get(name) for name in node.input):
        return
    try:
        if handler is None:
            raise Unclear(f"its channels go into {label(node)}, through which they are not followed")
        handler(trail, node)
    except Unclear as error:
        for name in node.input:
            trail.hold(name, str(error))
            if name in trail.turned:
                trail.reasons.setdefault(trail.turned[name].name, str(error))
            elif name in trail.stored:
                trail.reasons.setdefault(name, str(error))


def _conv(trail: ChannelTrace, node: NodeProto) -> None:
    """A convolution: with groups only where each channel is its own."""
    weight, source = trail.weight(node, 1), trail.only(node, 1)
    groups = attribute(node, "group", 1)
    if len(weight.dims) < 3:
        raise Unclear(f"the weight of {label(node)} has no kernel")
    if groups == 1:
        trail.sum_over(weight, 1, source)
        layout = trail.make(node, weight, 0, 1)
    elif weight.dims[1] == 1 and weight.dims[0] % groups == 0:
        if source is None:
            raise Unclear("a convolution of each channel on its own follows channels that are not removed")
        layout = repeated(source, weight.dims[0] // groups)
        trail.lose(weight, 0, layout)
        trail.followers.append((weight.name, layout))
        trail.group_counts.append((node, source))
        trail.values[node.output[0]] = {1: layout}
    else:
        raise Unclear(f"{label(node)} is a convolution in {groups} groups")
    trail.vector(node, 2, layout)
    trail.read(node, 1, 2)


def _conv_transpose(trail: ChannelTrace, node: NodeProto) -> None:
    """A transposed convolution; its weight has the input channels first."""
    weight, source = trail.weight(node, 1), trail.only(node, 1)
    if attribute(node, "group", 1) != 1:
        raise Unclear(f"{label(node)} is a convolution in groups")
    trail.sum_over(weight, 0, source)
    trail.vector(node, 2, trail.make(node, weight, 1, 1))
    trail.read(node, 1, 2)


def _gemm(trail: ChannelTrace, node: NodeProto) -> None:
    """A product of two matrices, the second of which is the weight."""
    weight, crossed = _matrix(trail, node), attribute(node, "transB", 0)
    if attribute(node, "transA", 0):
        raise Unclear(f"its channels go into {label(node)}, which turns them")
    source = trail.only(node, 1)
    trail.sum_over(weight, 1 if crossed else 0, source)
    trail.vector(node, 2, trail.make(node, weight, 0 if crossed else 1, 1))
    trail.read(node, 1, 2)


def _matmul(trail: ChannelTrace, node: NodeProto) -> None:
    """A product of many matrices with a weight."""
    if trail.operand(node.input[1]) is None:
        raise Unclear(f"its channels go into {label(node)}, a product of activations")
    weight = _matrix(trail, node)
    last = len(trail.shape(node.input[0])) - 1
    axes = dict(trail.axes_of(node.input[0]))
    trail.sum_over(weight, 0, axes.pop(last, None))
    trail.make(node, weight, 1, last)
    trail.values[node.output[0]].update(axes)
    trail.read(node, 1)


def _matrix(trail: ChannelTrace, node: NodeProto) -> Operand:
    """The weight of a product."""
    weight = trail.weight(node, 1)
    if len(weight.dims) != 2:
        raise Unclear(f"the weight of {label(node)} is not a matrix")
    return weight


def _elementwise(trail: ChannelTrace, node: NodeProto) -> None:
    """Element by element, smaller operands spread over larger ones."""
    rank = len(trail.shape(node.output[0]))
    axes: Axes = {}
    for axis in sorted(
        {rank - len(trail.shape(name)) + axis for name in node.input for axis in trail.axes_of(name)}
    ):
        axes[axis] = _met(trail, node, axis, rank)
    for name in node.output:
        if name:
            trail.values[name] = dict(axes)
    trail.read(node, *range(len(node.input)))


def _met(trail: ChannelTrace, node: NodeProto, axis: int, rank: int) -> Layout:
    """What an axis of the output is, joined over all inputs that have it."""
    layout_here: Layout | None = None
    size = trail.shape(node.output[0])[axis]
    for name in filter(None, node.input):
        operand = trail.operand(name)
        shape = operand.dims if operand else trail.shape(name)
        own = axis - rank + len(shape)
        layout = trail.axes_of(name).get(own)
        if layout is not None and shape[own] == size:
            layout_here = layout if layout_here is None else layout_here
            trail.groups.join(layout_here, layout)
        elif layout is not None:
            raise Unclear(f"its single channel is spread by {label(node)}")
    assert layout_here is not None
    for name in filter(None, node.input):
        operand = trail.operand(name)
        shape = operand.dims if operand else trail.shape(name)
        own = axis - rank + len(shape)
        if own < 0 or shape[own] == 1 or own in trail.axes_of(name):
            continue
        if operand is None:
            raise Unclear(f"its channels meet others in {label(node)} that are not followed")
        trail.lose(operand, own, layout_here)
    return layout_here


def _norm(trail: ChannelTrace, node: NodeProto) -> None:
    """Batch or instance normalisation: vectors with an element for each channel."""
    layout = trail.only(node, 1)
    if layout is None:
        raise Unclear(f"its channels go into {label(node)} as other than its first input")
    for place in range(1, len(node.input)):
        trail.vector(node, place, layout)
    trail.values[node.output[0]] = {1: layout}
    trail.read(node, *range(1, len(node.input)))


def _pool(trail: ChannelTrace, node: NodeProto) -> None:
    """Pooling leaves channels as they are."""
    layout = trail.only(node, 1)
    if layout is None or any(trail.uses[name] for name in node.output[1:]):
        raise Unclear(f"its channels go into {label(node)}, through which they are not followed")
    trail.values[node.output[0]] = {1: layout}


def _along_an_axis(trail: ChannelTrace, node: NodeProto) -> None:
    """Other axes than the one that is normalised over stay as they are."""
    rank = len(trail.shape(node.input[0]))
    # Before opset 13 all axes from this one on were taken as one.
    own = attribute(node, "axis", -1 if trail.opset >= 13 else 1) % rank
    if any(axis == own or (axis > own and trail.opset < 13) for axis in trail.axes_of(node.input[0])):
        raise Unclear(f"{label(node)} computes over all its channels")
    trail.values[node.output[0]] = dict(trail.axes_of(node.input[0]))


def _reduce(trail: ChannelTrace, node: NodeProto) -> None:
    """A sum or the like over other axes."""
    rank = len(trail.shape(node.input[0]))
    listed = _integers(trail, node, 1, attribute(node, "axes", attribute(node, "axis", None)))
    summed = {axis % rank for axis in ([listed] if isinstance(listed, int) else listed or range(rank))}
    axes = trail.axes_of(node.input[0])
    if summed & set(axes):
        raise Unclear(f"{label(node)} computes over all its channels")
    keeps = bool(attribute(node, "keepdims", 1))
    trail.values[node.output[0]] = {
        axis if keeps else axis - sum(other < axis for other in summed): layout for axis, layout in axes.items()
    }


def _transpose(trail: ChannelTrace, node: NodeProto) -> None:
    """Axes in another order."""
    rank = len(trail.shape(node.input[0]))
    order = list(attribute(node, "perm", None) or reversed(range(rank)))
    trail.values[node.output[0]] = {
        order.index(axis): layout for axis, layout in trail.axes_of(node.input[0]).items()
    }


def _reshape(trail: ChannelTrace, node: NodeProto) -> None:
    """A new shape in which the channels still lie together: flattened, or with axes of one added or taken."""
    before, after = trail.shape(node.input[0]), trail.shape(node.output[0])
    axes: Axes = {}
    for axis, layout in trail.axes_of(node.input[0]).items():
        place, times = _kept_together(before, axis, after) or (-1, 0)
        if not times:
            raise Unclear(f"its channels are divided by {label(node)}, such as into heads")
        axes[place] = repeated(layout, times)
        if node.op_type == "Reshape":
            _resize(trail, node, axis, place, axes[place])
    trail.values[node.output[0]] = axes
    trail.read(node, 1)


def _resize(trail: ChannelTrace, node: NodeProto, axis: int, place: int, layout: Layout) -> None:
    """Let the shape that a Reshape is told follow the channels, where it tells their number."""
    name, copied = node.input[1], place == axis
    maker = trail.nodes.get(name)
    if name not in trail.stored and maker is not None and maker.op_type == "Concat":
        # Shapes that are put together of single numbers.
        if len(maker.input) != len(trail.shape(node.output[0])):
            raise Unclear(f"the shape that {label(node)} gives is not a constant")
        name, place = maker.input[place], 0
        trail.understood[name] += 1
    if name not in trail.stored:
        raise Unclear(f"the shape that {label(node)} gives is not a constant")
    stated = int(numpy_helper.to_array(trail.stored[name]).reshape(-1)[place])
    if stated == 0 and not copied:
        raise Unclear(f"its channels are divided by {label(node)}, such as into heads")
    if stated > 0:
        if trail.uses[name] > 1:
            raise Unclear(f"the shape that {label(node)} gives is also another's")
        trail.sizes.append((name, place, layout))


def _concat(trail: ChannelTrace, node: NodeProto) -> None:
    """Channels of several values one after the other, or side by side on another axis."""
    rank = len(trail.shape(node.output[0]))
    own = attribute(node, "axis", 0) % rank
    axes = {axis for name in node.input for axis in trail.axes_of(name)}
    out_axes: Axes = {}
    for axis in sorted(axes - {own}):
        joined = next(layout for name in node.input if (layout := trail.axes_of(name).get(axis)) is not None)
        for name in node.input:
            layout = trail.axes_of(name).get(axis)
            if layout is None:
                raise Unclear(f"its channels meet others in {label(node)} that are not followed")
            trail.groups.join(joined, layout)
        out_axes[axis] = joined
    if own in axes:
        parts = [trail.axes_of(name).get(own) or _held(trail, trail.shape(name)[own]) for name in node.input]
        out_axes[own] = tuple(segment for part in parts for segment in part)
    trail.values[node.output[0]] = out_axes


def _held(trail: ChannelTrace, size: int) -> Layout:
    layout = trail.groups.new(size)
    trail.groups.hold(layout, "these channels are made by no product")
    return layout


def _on_other_axes(trail: ChannelTrace, node: NodeProto) -> None:
    """Slices, splits and padding that leave the axis of the channels as it is."""
    axes = trail.axes_of(node.input[0])
    before = trail.shape(node.input[0])
    for name in filter(None, node.output):
        after = trail.shape(name)
        if len(after) != len(before) or any(after[axis] != before[axis] for axis in axes):
            raise Unclear(f"its channels are divided by {label(node)}")
        trail.values[name] = dict(axes)
    _refuse_given_sizes(trail, node)


def _refuse_given_sizes(trail: ChannelTrace, node: NodeProto) -> None:
    if node.op_type == "Resize" and len(node.input) > 3 and node.input[3]:
        _resize_to(trail, node)
    if node.op_type == "Slice":
        rank = len(trail.shape(node.input[0]))
        sliced = _integers(trail, node, 3, attribute(node, "axes", None))
        if sliced is None or {axis % rank for axis in sliced} & set(trail.axes_of(node.input[0])):
            raise Unclear(f"its channels are divided by {label(node)}")


def _resize_to(trail: ChannelTrace, node: NodeProto) -> None:
    """Let the sizes that a Resize is told follow the channels."""
    name, followed = node.input[3], trail.axes_of(node.input[0])
    rank = len(trail.shape(node.input[0]))
    resized = [axis % rank for axis in attribute(node, "axes", None) or range(rank)]
    if not set(resized) & set(followed):
        return
    if name not in trail.stored:
        raise Unclear(f"{label(node)} is told its channels' number")
    if trail.uses[name] > 1:
        raise Unclear(f"the sizes that {label(node)} is told are also another's")
    for axis, layout in followed.items():
        if axis in resized:
            trail.sizes.append((name, resized.index(axis), layout))


def _integers(
    trail: ChannelTrace, node: NodeProto, place: int, otherwise: Sequence[int] | int | None
) -> Sequence[int] | None:
    if place >= len(node.input) or not node.input[place]:
        return [otherwise] if isinstance(otherwise, int) else otherwise
    if node.input[place] not in trail.stored:
        raise Unclear(f"the axes of {label(node)} are not constants")
    return [int(number) for number in numpy_helper.to_array(trail.stored[node.input[place]]).reshape(-1)]


def _shape(trail: ChannelTrace, _: NodeProto) -> None:
    """A shape that is asked for while the model runs is right by itself."""


def _kept_together(before: Shape, axis: int, after: Shape) -> tuple[int, int] | None:
    """Where an axis lies after a reshape, and how often each of its elements is repeated; None if nowhere."""
    for place, size in enumerate(after):
        if math.prod(after[:place]) != math.prod(before[:axis]):
            continue
        for end in range(axis + 1, len(before) + 1):
            if size == math.prod(before[axis:end]) and size >= before[axis] > 0:
                return place, size // before[axis]
    return None


def _all_reads(node: NodeProto) -> Iterator[str]:
    """What a node and the graphs in it read."""
    yield from node.input
    for graph in subgraphs(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from _all_reads(inner)


_Handler = Callable[[ChannelTrace, NodeProto], None]
_HANDLERS: dict[str, _Handler] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Transpose": _transpose,
    "Concat": _concat,
    "Shape": _shape,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Slice", "Split", "Pad", "Resize", "Upsample"), _on_other_axes),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_NORMS, _norm),
    **dict.fromkeys(_ALONG_AN_AXIS, _along_an_axis),
}
# They make channels, also of values that are not followed.
_PRODUCTS: tuple[_Handler | None, ...] = (_conv, _conv_transpose, _gemm, _matmul)
