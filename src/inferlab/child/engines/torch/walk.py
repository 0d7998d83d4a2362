"""One inference, operator by operator: what each of them reads, writes and computes, and what it is called.

Operators are named as torch.export names its nodes: linear, linear_1, … in the order of execution. A tensor is
known by its memory, so that a weight is found behind any view of it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .counts import Work, base_name, count, packed_weight, tensors

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
