"""What torch's operators compute: FLOPs by torch's own formulas where it has them, by the rules below elsewhere.

A multiply-add counts as two. Element-wise operators count one for each element that they write, moving data
counts nothing, on purpose. What has no rule is named, never taken for nothing.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


# Names without the underscore that an operator in place ends with.
_MOVED = _words(
    """
    alias arange as_strided bernoulli cat channel_shuffle clone constant_pad_nd contiguous copy detach diag
    embedding empty empty_like empty_permuted empty_strided eye fill flip full full_like gather im2col index
    index_put index_select is_nonzero item lift_fresh lift_fresh_copy _local_scalar_dense masked_fill
    masked_scatter masked_select native_channel_shuffle native_dropout _nested_tensor_from_mask new_empty
    new_empty_strided new_full new_ones new_zeros _nnpack_available nonzero ones ones_like pixel_shuffle
    pixel_unshuffle randn reflection_pad1d reflection_pad2d repeat repeat_interleave replication_pad1d
    replication_pad2d _reshape_alias _reshape_copy resize resolve_conj resolve_neg roll scalar_tensor scatter
    select_scatter set slice_scatter split_with_sizes_copy stack _to_copy to_dense tril triu unfold
    _unsafe_index _unsafe_view upsample_nearest1d upsample_nearest2d zero zeros zeros_like
    """
)
# Element-wise in fact, although torch does not say so.
_POINTWISE = _words(
    """
    _prelu_kernel dequantize fake_quantize_per_channel_affine fake_quantize_per_tensor_affine floor_divide glu
    hardswish log_sigmoid_forward quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic rsub
    dequantize_per_tensor dequantize_per_channel add_relu mul_relu
    """
)
# Operations for each element that they read, by the steps that they stand for.
_READING = {
    1: """
       all amax amin any aminmax argmax argmin cumprod cumsum logcumsumexp max mean min nansum prod sum
       _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d
       """,
    2: """
       batch_norm native_batch_norm _native_batch_norm_legit_no_training linalg_vector_norm logsumexp norm
       """,
    4: "std std_mean var var_mean _fused_rms_norm rms_norm",
    5: "_softmax _log_softmax _safe_softmax",
    7: "native_layer_norm native_group_norm",
}
_POOLS = _words(
    """
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices
    """
)
_EACH_INPUT = {name: count for count, names in _READING.items() for name in _words(names)}


class Work(NamedTuple):
    """What one layer computes."""

    flops: int
    macs: int
    groups: int
    #: Nothing but a new look at the same memory.
    view: bool
    #: Operators without a rule.
    unknown: Tuple[str, ...]


def base_name(operator: Any) -> str:
    """An operator's name without namespace, overload and the underscore of operators in place."""
    name = str(operator.name()).split("::")[-1].split(".")[0]
    return name.rstrip("_") or name


def count(call: Callable[[], Any]) -> Tuple[Any, Work]:
    """Run a call in inference mode; gives what it returns and what was computed."""
    counter = _Counter()
    with counter:
        returned = call()
    unknown = tuple(sorted(set(counter.unknown)))
    return returned, Work(counter.flops, counter.macs, counter.groups, counter.only_views, unknown)


def tensors(value: Any) -> List[Any]:
    """All tensors within nested arguments or results."""
    return [
        tree_leaf for tree_leaf in torch.utils._pytree.tree_leaves(value) if isinstance(tree_leaf, torch.Tensor)
    ]


def packed_weight(operator: Any, args: Any) -> Any:
    """The weight and the bias within the packed argument of a quantised operator; None where there is none."""
    packed = [
        tree_leaf
        for tree_leaf in torch.utils._pytree.tree_leaves(args)
        if isinstance(tree_leaf, torch.ScriptObject)
    ]
    if not packed:
        return None
    name = base_name(operator)
    unpack = "linear_unpack" if name.startswith("linear") else name.split("_")[0] + "_unpack"
    with contextlib.suppress(AttributeError, RuntimeError):
        return getattr(torch.ops.quantized, unpack)(packed[0])
    return None


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    """Adds up what the operators compute that are called while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.macs = 0
        self.groups = 1
        self.only_views = True
        self.unknown: List[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(operator)
        formula = flop_registry.get(operator._overloadpacket) or _FORMULAS.get(name)
        simple = name in _MOVED or operator.is_view
        if (
            name.endswith("dropout")
            and "train" in _names(operator)
            and not _argument(operator, args, kwargs, "train")
        ):
            # It gives back what it is given, but torch would take it apart as a copy.
            return operator(*args, **kwargs)
        if formula is None and not simple and name not in _EACH_INPUT:
            # Operators that are made of others are counted by what they are made of.
            with self:
                returned = operator.decompose(*args, **kwargs)
            if returned is not NotImplemented:
                return returned
        returned = operator(*args, **kwargs)
        self.only_views = self.only_views and (operator.is_view or name in ("_reshape_alias", "_unsafe_view"))
        if formula is not None:
            flops = int(formula(*args, **kwargs, out_val=returned))
            self.flops, self.macs = self.flops + flops, self.macs + flops // 2
            if "convolution" in name and "groups" in _names(operator):
                self.groups = _argument(operator, args, kwargs, "groups")
        elif simple:
            pass
        elif name in _POOLS:
            window = _argument(operator, args, kwargs, "kernel_size")
            dims = returned[0].dim() - 2 if isinstance(returned, tuple) else returned.dim() - 2
            each = math.prod(window) if len(window) > 1 else window[0] ** max(dims, 1)
            self.flops += each * (returned[0] if isinstance(returned, tuple) else returned).numel()
        elif name in _EACH_INPUT:
            self.flops += _EACH_INPUT[name] * tensors(args)[0].numel()
        elif torch.Tag.pointwise in operator.tags or name in _POINTWISE:
            self.flops += sum(tensor.numel() for tensor in tensors(returned))
        elif (packed := packed_weight(operator, args)) is not None:
            flops = 2 * returned.numel() * math.prod(packed[0].shape[1:])
            self.flops, self.macs = self.flops + flops, self.macs + flops // 2
        else:
            self.unknown.append(name)
        return returned


def _names(operator: Any) -> List[str]:
    return [argument.name for argument in operator._schema.arguments]


def _argument(operator: Any, args: Any, kwargs: Dict[str, Any], name: str) -> Any:
    """An argument by its name, wherever it was given."""
    place = _names(operator).index(name)
    if name in kwargs:
        return kwargs[name]
    return args[place] if place < len(args) else operator._schema.arguments[place].default_value


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Two products of matrices, whichever kernel computes them."""
    rows = query.numel() // query.shape[-1]
    return int(2 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _matrix_vector(matrix: Any, *_: Any, **__: Any) -> int:
    return int(2 * matrix.numel())


def _added_matrix_vector(_: Any, matrix: Any, *__: Any, **___: Any) -> int:
    return int(2 * matrix.numel())


def _recurrent(*args: Any, **kwargs: Any) -> int:
    """Every matrix of the layers by every step's vector; the gates' own arithmetic is left out."""
    values = [*args, kwargs.get("params")]
    weights = [
        value for value in values if isinstance(value, (list, tuple)) and len(tensors(value)) == len(value) > 1
    ][-1]
    steps = args[0].numel() // args[0].shape[-1]
    return int(2 * steps * sum(weight.numel() for weight in weights if weight.dim() == 2))


def _interpolation(neighbours: int) -> Callable[..., int]:
    """A multiply-add for each neighbour of each element that is written."""

    def formula(*_: Any, out_val: Any, **__: Any) -> int:
        return int(2 * neighbours * out_val.numel())

    return formula


# Where torch has no formula, or has it only for what this is made of on other hardware.
_FORMULAS: Dict[str, Callable[..., int]] = {
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "mv": _matrix_vector,
    "dot": _matrix_vector,
    "vdot": _matrix_vector,
    "addmv": _added_matrix_vector,
    **dict.fromkeys(_words("lstm gru rnn_tanh rnn_relu"), _recurrent),
    "upsample_linear1d": _interpolation(2),
    "upsample_bilinear2d": _interpolation(4),
    "upsample_bicubic2d": _interpolation(16),
    "upsample_trilinear3d": _interpolation(8),
}


Weights = Dict[str, Any]
# They read only what they give.
_ROWS = ("embedding", "gather", "index", "index_select")
# Their largest weight may be thinned out.
_PRUNABLE = ("conv", "linear", "addmm", "mm", "matmul", "bmm", "baddbmm", "einsum")


def named_weights(module: Any) -> Weights:
    """All parameters, buffers and constants of a module or of a torch.export program, by name."""
    if hasattr(module, "graph_signature"):
        tensors_by_name = {**module.constants, **module.state_dict}
        return {name: tensor for name, tensor in tensors_by_name.items() if isinstance(tensor, torch.Tensor)}
    return {**dict(module.named_buffers()), **dict(module.named_parameters())}


def is_layer(node: Any) -> bool:
    """Whether a node of a graph computes tensors: neither sizes nor one of several results."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return any("Tensor" in str(result.type) for result in node.target._schema.returns)
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def node_type(node: Any) -> str:
    """The operator of a node, without its overload."""
    return base_name(node.target).lstrip("_")


def node_path(node: Any) -> str:
    """The module that a node of a torch.export program comes from; empty for the outermost."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


class Recorder:
    """Collects one record for each operator that it runs."""

    def __init__(self, weights: Weights, inputs: Mapping[str, Any]) -> None:
        self.nodes: List[Dict[str, Any]] = []
        #: Weights by their memory; several may lie in one piece of it.
        self._weights: Dict[int, List[Tuple[str, Any]]] = {}
        #: What was computed from a weight alone, kept so that its memory is not used again.
        self._derived: Dict[int, Tuple[str, Any, Any]] = {}
        self._writers = {_memory(value): name for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        self._zeros: Dict[str, Optional[float]] = {}
        self._counts: Dict[str, int] = {}
        for name, weight in weights.items():
            if _memory(weight):
                self._weights.setdefault(_memory(weight), []).append((name, weight))

    def number(self, kind: str) -> str:
        """A name for one more operator of this kind, as torch.export would give it."""
        seen = self._counts[kind] = self._counts.get(kind, -1) + 1
        return "{}_{}".format(kind, seen) if seen else kind

    def run(self, name: str, kind: str, path: str, operator: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        """Run one operator and record it; its results are those of the operator."""
        arguments = tensors((args, kwargs))
        weights: Weights = {}
        read: List[Any] = []
        inputs = []
        for tensor in arguments:
            weight = self._weight(tensor)
            if weight is None:
                read.append(tensor)
                inputs.append(self._writers.get(_memory(tensor), ""))
            else:
                weights[weight[0]] = weight[1]
                inputs.append(weight[0])
        packed = _unpacked(operator, args, path or name)
        returned, work = _counted(operator, args, kwargs)
        written = tensors(returned)
        if weights and not read and kind not in _ROWS:
            # Only looks at weights or prepares them: they belong to the operator that uses them.
            largest = max(weights, key=lambda weight: weights[weight].numel())
            for tensor in written:
                if _memory(tensor) not in self._weights:
                    self._derived[_memory(tensor)] = (largest, weights[largest], tensor)
            weights = {}
        for tensor in written:
            self._writers[_memory(tensor)] = name
        self.nodes.append(
            {
                **self._cost(kind, work, {**weights, **packed}, read, written),
                **({"dtype": "int8", "prunable": False} if packed else {}),
                "id": name,
                "type": kind,
                "name": path or _parent(weights) or "",
                "inputs": inputs,
                "outputs": [name, *("{}.{}".format(name, n) for n in range(1, len(written)))],
                "kernel": str(operator),
            }
        )
        return returned

    def _weight(self, tensor: Any) -> Optional[Tuple[str, Any]]:
        memory = _memory(tensor)
        if memory in self._derived:
            return self._derived[memory][:2]
        if memory not in self._weights and memory not in self._writers and tensor.numel() > 1 and memory:
            # Nobody computed it: a constant, as frozen modules hold their weights.
            self._weights[memory] = [("constant_{}".format(len(self._weights)), tensor)]
        weights = self._weights.get(memory)
        if not weights or not tensor.numel():
            return None
        same = [weight for weight in weights if weight[1].data_ptr() == tensor.data_ptr()]
        return (same or weights)[0]

    def _cost(
        self, kind: str, work: Work, weights: Weights, read: Sequence[Any], written: Sequence[Any]
    ) -> Dict[str, Any]:
        params = {name: tensor for name, tensor in weights.items() if _is_param(tensor)}
        largest = max(params, key=lambda name: params[name].numel(), default="")
        weight = params.get(largest)
        matrix = weight is not None and weight.is_floating_point() and weight.dim() >= 2
        return {
            "dtype": _dtype(written),
            "flops": None if work.unknown else work.flops,
            "macs": None if work.unknown else work.macs,
            "uncounted": "torch has no formula for {}".format(", ".join(work.unknown)) if work.unknown else "",
            "params": sum(param.numel() for param in params.values()),
            "weight": largest,
            "weight_shape": list(weight.shape) if weight is not None else [],
            "zero_fraction": self._zero_fraction(largest, weight) if weight is not None else None,
            "prunable": matrix and work.macs > 0 and kind.startswith(_PRUNABLE),
            "groups": work.groups,
            # A view moves nothing.
            "read_bytes": 0 if work.view else _bytes(read),
            "weight_bytes": min(_bytes(weights.values()), _bytes(written) if kind in _ROWS else 1 << 62),
            "write_bytes": 0 if work.view else _bytes(written),
        }

    def _zero_fraction(self, name: str, weight: Any) -> Optional[float]:
        if name not in self._zeros:
            values = weight.int_repr() if weight.is_quantized else weight
            self._zeros[name] = int((values == 0).sum()) / max(values.numel(), 1)
        return self._zeros[name]


def walk_program(graph: Any, values: Sequence[Any], recorder: Recorder) -> None:
    """Run a graph node by node; the operators have the names of their nodes."""

    class Walk(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            if not is_layer(node):
                return super().run_node(node)
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            return recorder.run(node.name, node_type(node), node_path(node), node.target, args, kwargs)

    with torch.inference_mode():
        Walk(graph).run(*values, enable_io_processing=False)


def walk_called(module: Any, call: Callable[[], Any], recorder: Recorder) -> None:
    """Run a module; its operators are what it calls of torch."""
    stack: List[str] = []
    names = {} if isinstance(module, torch.jit.ScriptModule) else {id(v): k for k, v in module.named_modules()}

    class Walk(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kind = base_name(operator).lstrip("_")
            path = stack[-1] if stack else ""
            return recorder.run(recorder.number(kind), kind, path, operator, args, kwargs or {})

    def enter(entered: Any, _: Any) -> None:
        stack.append(names.get(id(entered), ""))

    def leave(*_: Any) -> None:
        stack.pop()

    hooks = []
    if names:
        hooks.append(torch.nn.modules.module.register_module_forward_pre_hook(enter))
        hooks.append(torch.nn.modules.module.register_module_forward_hook(leave, always_call=True))
    try:
        with torch.inference_mode():
            # The first calls of a model may prepare things, and TorchScript rewrites itself after them.
            for _ in range(3):
                call()
            with Walk():
                call()
    finally:
        for hook in hooks:
            hook.remove()


def _counted(operator: Any, args: Any, kwargs: Dict[str, Any]) -> Tuple[Any, Work]:
    if isinstance(operator, torch._ops.OpOverload):
        return count(lambda: operator(*args, **kwargs))
    # Branches and loops: they run as one operator, and torch lets nobody look into some of them.
    try:
        return count(lambda: operator(*args, **kwargs))
    except (NotImplementedError, RuntimeError):
        return operator(*args, **kwargs), Work(0, 0, 1, False, (str(operator.name()),))


def _unpacked(operator: Any, args: Any, path: str) -> Weights:
    """The weights within the packed argument of a quantised operator, which has no name for them."""
    unpacked = packed_weight(operator, args) if isinstance(operator, torch._ops.OpOverload) else None
    named = zip(("weight", "bias"), unpacked or ())
    return {"{}.{}".format(path, name): value for name, value in named if value is not None}


def _is_param(tensor: Any) -> bool:
    """Whether a tensor is a weight: not a table of positions or another set of whole numbers."""
    return bool(tensor.is_floating_point() or tensor.is_quantized or tensor.element_size() == 1)


def _memory(tensor: Any) -> int:
    """The address of a tensor's memory; 0 for tensors in a layout of their own."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0


def _parent(weights: Weights) -> str:
    return next(iter(weights), "").rpartition(".")[0]


def _bytes(accessed: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in accessed)


def _dtype(written: Sequence[Any]) -> str:
    return str(written[0].dtype).replace("torch.", "") if written else ""
