"""OpenVINO on the CPU: it runs a model once, or generates with graphs whose cache is an input or a state."""

from __future__ import annotations

import functools
import math
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .base import WARMUP, BadOption, Engine, LoadOptions, Options, layer, times_ns
from .past_present import Graph, PastPresentEngine, Port

_DEPLOYMENT = '''import os

import numpy
import openvino


def load(cpus):
    """A compiled model on these CPUs."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # first of all: OpenVINO's threads inherit it
{limit}    core = openvino.Core()
    network = core.read_model(MODEL)
    network.reshape({shapes})
    settings = {{
        "INFERENCE_NUM_THREADS": {threads},
        "NUM_STREAMS": {streams},
        "PERFORMANCE_HINT": "{hint}",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": {pinning},
        "ENABLE_HYPER_THREADING": True,
    }}
    return core.compile_model(network, "CPU", settings)


def stream(compiled):
    """One stream: a request of its own."""
    request = compiled.create_infer_request()
    return lambda inputs: list(request.infer(inputs).values())
'''
_LIMIT = """    os.environ["ONEDNN_MAX_CPU_ISA"] = {!r}  # its kernels use no newer instructions
"""
# In a thread that has fewer CPUs than its process, OpenVINO would bind to the process's first ones.
_PINNING = "os.sched_getaffinity(0) == os.sched_getaffinity(os.getpid())"

_SETTINGS = (
    *("INFERENCE_NUM_THREADS", "NUM_STREAMS", "PERFORMANCE_HINT", "INFERENCE_PRECISION_HINT"),
    *("EXECUTION_MODE_HINT", "ENABLE_CPU_PINNING", "ENABLE_HYPER_THREADING"),
)
# The environment variable that says which instructions the kernels of oneDNN may use.
_MAX_ISA = "ONEDNN_MAX_CPU_ISA"
_PRECISIONS = {"f32": "FP32", "f64": "FP64", "f16": "FP16", "bf16": "BF16"}
_NARROW = ("i8", "u8", "i4", "u4", "nf4")


class OpenVino(Engine):
    """One compiled model; each bound set of inputs has a request of its own and stays where it is."""

    # Not "shared_streams": requests on one stream take turns (a lock on its graph), so they share no cores.
    capabilities = frozenset({"native_streams", "layer_times"})
    kinds = frozenset({"onnx", "openvino"})
    packages = ("openvino",)

    def prepare(self) -> None:
        """Import openvino."""
        _import()

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: precision, execution_mode, hyper_threading, dynamic, max_cpu_isa; properties in capitals."""
        settings = Options(options.options)
        properties, limit = self._properties(settings, options)
        dynamic = settings.flag("dynamic", False)
        settings.finish()
        self._start_up(properties, limit)
        shapes = {} if dynamic else options.shapes
        self._compile = functools.partial(_compiled, self._module, model, options.kind, shapes, properties)
        self._compiled: Any = self._compile()
        return {"dynamic": int(dynamic), **self._in_force(self._compiled, properties, limit)}

    def _properties(self, settings: Options, options: LoadOptions) -> Tuple[Dict[str, Any], str]:
        """The properties that were asked for, and the instructions that kernels may use."""
        properties: Dict[str, Any] = {
            "INFERENCE_NUM_THREADS": _threads(options),
            "NUM_STREAMS": options.streams,
            "PERFORMANCE_HINT": _hint(options),
            # Left to itself it computes in bf16 where the CPU can: faster, and not what was asked for.
            "INFERENCE_PRECISION_HINT": settings.text("precision", "f32", ("f32", "bf16", "f16")),
            "ENABLE_CPU_PINNING": _may_pin(options),
            "ENABLE_HYPER_THREADING": settings.flag("hyper_threading", True),
        }
        mode = settings.text("execution_mode", "default", ("default", "performance", "accuracy"))
        if mode != "default":
            properties["EXECUTION_MODE_HINT"] = mode.upper()
        limit = settings.text("max_cpu_isa", "")
        return {**properties, **settings.passed_on(str.isupper)}, limit

    def _start_up(self, properties: Dict[str, Any], limit: str) -> None:
        if limit:
            # Before the first model is compiled: oneDNN reads it once.
            os.environ[_MAX_ISA] = limit.rpartition(":")[2]
        self._module = _import()
        _check_properties(self._module.Core(), properties)

    @staticmethod
    def _in_force(compiled: Any, properties: Dict[str, Any], limit: str) -> Dict[str, Any]:
        names = dict.fromkeys((*_SETTINGS, *properties))
        return {
            "precision": _plain(compiled.get_property("INFERENCE_PRECISION_HINT")),
            **{name.lower(): _plain(compiled.get_property(name)) for name in names},
            # Which instructions its kernels may use is not a property of OpenVINO's.
            **({_MAX_ISA.lower(): os.environ[_MAX_ISA]} if os.environ.get(_MAX_ISA) else {}),
            **({"max_cpu_isa": limit} if limit else {}),
        }

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """A request whose tensors are the arrays' own memory, called below the Python layer of OpenVINO.

        Which stream serves a request is OpenVINO's choice: it takes one that is free.
        """
        request = self._compiled.create_infer_request()
        tensors: List[Any] = [inputs, request]
        for name, array in inputs.items():
            # Strings have no memory to share.
            tensor = self._module.Tensor(array, shared_memory=array.dtype.kind not in "OSU")
            tensors.append(tensor)
            request.set_tensor(name, tensor)
        # InferRequest.infer dispatches on the type of the inputs and wraps the outputs, which costs 2 to 3 µs a
        # call; what it calls in the end takes no new inputs and gives views of the outputs.
        infer = super(type(request), request).infer  # type: ignore[misc]
        call = functools.partial(infer, {}, True, False)
        call.kept = tensors  # type: ignore[attr-defined]
        return call

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Copies of the outputs, in the model's order."""
        return [value.copy() for value in returned.values()]

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each executed layer takes, by the counters of a fresh compiled model, which count every call."""
        self._compiled = None
        self._compiled = self._compile(PERF_COUNT=True)
        call = self.bind(inputs)
        return _measure_layers(self._compiled, call.kept[1], call, seconds)  # type: ignore[attr-defined]

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """A compiled model with the same properties."""
        pinned = options.pinning == "core" and options.scheduler != "elastic"
        limit = str(options.options.get("max_cpu_isa", "")).rpartition(":")[2]
        return _DEPLOYMENT.format(
            shapes=dict(options.shapes),
            threads=_threads(options),
            streams=options.streams,
            hint=_hint(options),
            limit=_LIMIT.format(limit) if limit else "",
            pinning=_PINNING if pinned and hasattr(os, "sched_getaffinity") else "False",
        )

    def inspect(self, model: str, kind: str) -> Dict[str, Any]:
        """Inputs, outputs and weights, as plain data."""
        network = _read(_import().Core(), model, kind)
        weights = [node for node in network.get_ops() if node.get_type_name() == "Constant"]
        weights = [node for node in weights if node.get_element_type().get_type_name() in (*_PRECISIONS, *_NARROW)]
        zeros, counted = 0, 0
        for node in weights:
            if len(node.get_output_shape(0)) >= 2 and not node.get_element_type().get_type_name().endswith("4"):
                values = node.data
                zeros, counted = zeros + int((values == 0).sum()), counted + int(values.size)
        return {
            "inputs": [dict(_port(port), below=_rows(port)) for port in network.inputs],
            "outputs": [_port(output) for output in network.outputs],
            "parameters": sum(_size(node) for node in weights),
            "zero_fraction": zeros / counted if counted else None,
            "precision": _precision(network, weights),
        }


def _import() -> Any:
    """The openvino module, without the telemetry that would write an id into the user's home folder."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def _compiled(
    module: Any, model: str, kind: str, shapes: Dict[str, List[int]], properties: Dict[str, Any], **more: Any
) -> Any:
    core = module.Core()
    network = _read(core, model, kind)
    if shapes:
        network.reshape({name: list(shape) for name, shape in shapes.items()})
    return core.compile_model(network, "CPU", {**properties, **more})


def _read(core: Any, model: str, kind: str) -> Any:
    if kind == "openvino" and not os.path.exists(os.path.splitext(model)[0] + ".bin"):
        with open(model, "rb") as file:
            start = file.read(4096)
        if b"<net" not in start:
            raise BadOption("{} is not an OpenVINO model (an .xml file that describes a net)".format(model))
    return core.read_model(model)


def _threads(options: LoadOptions) -> int:
    return max(options.threads, min(options.threads * options.streams, options.cores))


def _hint(options: LoadOptions) -> str:
    return "LATENCY" if options.scheduler == "single_stream" else "THROUGHPUT"


def _may_pin(options: LoadOptions) -> bool:
    """Whether OpenVINO may bind threads to CPUs itself.

    It binds to the first CPUs that the *process* may use, the calling thread too. Models that are loaded in
    threads with CPUs of their own would then all run on the first one (measured: 2 streams on 2 cores used
    1.0 cores; unbound 2.0, because its threads inherit the CPUs of the thread that loads the model).
    """
    if options.pinning != "core" or options.scheduler == "elastic" or not hasattr(os, "sched_getaffinity"):
        return False
    return os.sched_getaffinity(0) == os.sched_getaffinity(os.getpid())


def _check_properties(core: Any, properties: Dict[str, Any]) -> None:
    writable = {
        name for name, access in core.get_property("CPU", "SUPPORTED_PROPERTIES").items() if access != "RO"
    }
    unknown = sorted(set(properties) - writable)
    if unknown:
        raise BadOption(
            "unknown property {}; the CPU device takes {}".format(", ".join(unknown), ", ".join(sorted(writable)))
        )


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    name = getattr(value, "get_type_name", None)  # element types
    return name() if name else getattr(value, "name", str(value))  # enumerations


def _port(port: Any) -> Dict[str, Any]:
    shape = port.get_partial_shape()
    dims = None if shape.rank.is_dynamic else [None if dim.is_dynamic else dim.get_length() for dim in shape]
    names = sorted(port.get_names())
    try:
        dtype = port.get_element_type().to_dtype().name
    except RuntimeError:  # strings and types that NumPy does not have
        dtype = port.get_element_type().get_type_name()
    return {"name": names[0] if names else port.get_node().get_friendly_name(), "dtype": dtype, "dims": dims}


def _rows(port: Any) -> Optional[int]:
    """The rows of the smallest constant table that an integer input indexes."""
    rows: List[int] = []
    waiting = [port]
    while waiting:
        for target in waiting.pop().get_target_inputs():
            node = target.get_node()
            if node.get_type_name() == "Convert":
                waiting.extend(node.outputs())
            elif node.get_type_name() == "Gather" and target.get_index() == 1:
                table = node.input_value(0).get_partial_shape()
                if table.rank.is_static and len(table) == 2 and not table[0].is_dynamic:
                    rows.append(table[0].get_length())
    return min(rows) if rows else None


def _size(node: Any) -> int:
    return math.prod(node.get_output_shape(0))


def _precision(network: Any, weights: List[Any]) -> str:
    """INT8 or INT4 where weights are so narrow or operators quantise; else what most weights are stored in."""
    sizes: Dict[str, int] = {}
    for node in weights:
        name = node.get_element_type().get_type_name()
        sizes[name] = sizes.get(name, 0) + _size(node)
    if any(name.endswith("4") and name in _NARROW for name in sizes):
        return "INT4"
    if any(name in _NARROW for name in sizes) or any(
        op.get_type_name() == "FakeQuantize" for op in network.get_ops()
    ):
        return "INT8"
    return _PRECISIONS[max(sizes, key=lambda name: sizes[name])] if sizes else "FP32"


# What each layer takes in OpenVINO: its counters, with the names of the nodes that it fused.


def _measure_layers(compiled: Any, request: Any, call: Callable[[], Any], seconds: float) -> Dict[str, Any]:
    """Run a fresh model for a while and tell what its layers took, brought to the median inference.

    The counters are means over all inferences: those of the warm-up are taken out, and a mean of disturbed ones is
    no median, which the clean time is.
    """
    import statistics

    for _ in range(WARMUP):
        call()
    cold = {counted.node_name: _mean_ns(counted) for counted in request.profiling_info}
    walls_ns = times_ns(call, seconds, warmup=0)
    count = len(walls_ns)
    middle = float(statistics.median(walls_ns))
    factor = middle / statistics.mean(walls_ns)
    names = {
        op.get_friendly_name(): _text(op.get_rt_info(), "originalLayersNames")
        for op in compiled.get_runtime_model().get_ops()
    }
    layers = []
    for counted in request.profiling_info:
        if not str(counted.status).endswith("EXECUTED"):
            continue
        name = counted.node_name
        ns = (_mean_ns(counted) * (count + WARMUP) - cold.get(name, 0.0) * WARMUP) / count
        covers = [node for node in names.get(name, "").split(",") if node]
        layers.append(layer(name, counted.node_type, counted.exec_type, covers, ns * factor))
    return {"layers": layers, "wall_ns": middle, "iterations": count}


def _mean_ns(counter: Any) -> float:
    """Whole microseconds, what is beyond them cut off: half of one on average."""
    return float(1e9 * counter.real_time.total_seconds() + 500.0)


def _text(info: Any, key: str) -> str:
    try:
        value = info[key]
    except (KeyError, RuntimeError):
        return ""
    return str(value.astype(str) if hasattr(value, "astype") else value)


# Generating: a cache that is an input is what another request gave as outputs.

_TYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "boolean": "bool",
}
# What OpenVINO GenAI folders have: a graph whose cache is a state.
_STATEFUL = "openvino_model.xml"
_STATEFUL_INPUTS = frozenset({"input_ids", "attention_mask", "position_ids", "beam_idx"})
_CACHE_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


class OpenVinoGenerator(PastPresentEngine, OpenVino):
    """Compiled models for the decoder, and the encoder if there is one, their shapes left open."""

    kinds = frozenset({"onnx", "openvino-genai"})

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: cache, and those of openvino but dynamic."""
        given = Options(options.options)
        caches = given.flag("cache", True)
        properties, limit = self._properties(given, options)
        given.finish()
        self._start_up(properties, limit)
        core, module = self._module.Core(), self._module
        if options.kind == "openvino-genai":
            compiled = core.compile_model(os.path.join(model, _STATEFUL), "CPU", properties)
            in_force = self._in_force(compiled, properties, limit)
            return self._generate_with(_Stateful(compiled), caches, in_force)  # type: ignore[arg-type]
        settings: Dict[str, Any] = {}

        def open_graph(file: str, steps: bool) -> _Compiled:
            graph = _Compiled(module, core.compile_model(file, "CPU", properties))
            settings.update(self._in_force(graph.compiled, properties, limit))
            return graph

        return self._generate_with(self._open_graphs(model, options, open_graph), caches, settings)


class _Stateful:
    """A graph that keeps the cache of one batch of sequences itself; does what `PastPresent` does."""

    form = "state"
    together = True

    def __init__(self, compiled: Any) -> None:
        unknown = {port.get_any_name() for port in compiled.inputs} - _STATEFUL_INPUTS
        if unknown:
            raise BadOption("its graph has an input '{}' that inferlab does not know".format(min(unknown)))
        self._inputs = [port.get_any_name() for port in compiled.inputs]
        self._request = compiled.create_infer_request()
        self.kv_dtype = compiled.get_property("KV_CACHE_PRECISION").get_type_name()
        self.clear()

    def clear(self) -> None:
        """Forget all tokens."""
        self._request.reset_state()
        self._length = 0

    def keep(self) -> None:
        """Nothing: states that are read and written again lose precision where the cache is quantised."""

    def restore(self, depth: int) -> bool:
        """The context is computed again."""
        return False

    def forward(self, tokens: Any) -> Any:
        """Compute tokens [sequence, position] behind those in the state; the logits of the last [sequence, id]."""
        import numpy

        rows, count = tokens.shape
        places = numpy.arange(self._length, self._length + count, dtype=numpy.int64)
        arrays = {
            "input_ids": numpy.ascontiguousarray(tokens, numpy.int64),
            "attention_mask": numpy.ones((rows, self._length + count), numpy.int64),
            "position_ids": numpy.tile(places, (rows, 1)),
            "beam_idx": numpy.arange(rows, dtype=numpy.int32),
        }
        self._request.infer({name: arrays[name] for name in self._inputs})
        self._length += count
        return self._request.get_tensor("logits").data[:, -1]

    def cache_bytes(self) -> Optional[int]:
        """What the states of keys and values take; None where they are kept in another form than shown."""
        if self.kv_dtype not in _CACHE_BYTES:
            return None
        values = sum(state.state.get_size() for state in self._request.query_state())
        return int(values * _CACHE_BYTES[self.kv_dtype])


class _Compiled(Graph):
    def __init__(self, module: Any, compiled: Any) -> None:
        self._module, self.compiled = module, compiled
        self.inputs = [_graph_port(port) for port in compiled.inputs]
        self.outputs = [_graph_port(output) for output in compiled.outputs]
        # What a request gave lies in its own memory until it runs again: two take turns, and the first call, whose
        # part of the cache that is the encoder's stays for the whole generation, has one of its own.
        self._turns = [compiled.create_infer_request() for _ in range(2)]
        self._first = compiled.create_infer_request()

    def run(self, arrays: Dict[str, Any], values: Dict[str, Any], wanted: Sequence[str], first: bool) -> List[Any]:
        """Hand over, run, and take the outputs as they lie in the request's memory."""
        if first:
            request = self._first
        else:
            self._turns.reverse()
            request = self._turns[0]
        tensors = {name: self._tensor(array) for name, array in arrays.items()}
        for name, tensor in tensors.items():
            request.set_tensor(name, tensor)
        for name, tensor in values.items():
            request.set_tensor(name, tensor)
        # Below the Python layer, as in the engine that calls models once.
        super(type(request), request).infer({}, True, False)  # type: ignore[misc]
        return [request.get_tensor(name) for name in wanted]

    def _tensor(self, array: Any) -> Any:
        if not array.size:
            return self._module.Tensor(array.dtype, list(array.shape))
        return self._module.Tensor(array, shared_memory=True)

    def view(self, value: Any) -> Any:
        """The tensor's own memory."""
        return value.data

    def lasting(self, value: Any) -> Any:
        """A copy: the request will run again."""
        copy = self._module.Tensor(value.element_type, value.shape)
        value.copy_to(copy)
        return copy


def _graph_port(port: Any) -> Port:
    dims = [int(dim.get_length()) if dim.is_static else None for dim in port.partial_shape]
    kind = port.element_type.get_type_name()
    return Port(port.get_any_name(), _TYPES.get(kind, kind), dims)
