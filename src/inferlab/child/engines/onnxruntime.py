"""ONNX Runtime: it runs a model once, or generates with graphs that take their cache as inputs."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import json
import os
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..processes import pin
from .base import MOST_RUNS, WARMUP, BadOption, Engine, LoadOptions, Options, layer, middle_half, times_ns
from .past_present import Graph, PastPresentEngine, Port, with_head_size

_DEPLOYMENT = '''import os

import numpy
import onnxruntime


def load(cpus):
    """A session on these CPUs."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # first of all: the session's threads inherit it
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = {threads}
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
{bind_workers}    session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
{bind_caller}    return session


def stream(session):
    """One stream; measured with inputs that stay bound, which saves a few microseconds a call."""
    return lambda inputs: session.run(None, inputs)
'''
_BIND_WORKERS = """    # Each worker thread on a CPU of its own, counted from 1; the first CPU is the caller's.
    workers = ";".join(str(cpu + 1) for cpu in cpus[1:])
    options.add_session_config_entry("session.intra_op_thread_affinities", workers)
"""
_BIND_CALLER = "    os.sched_setaffinity(0, cpus[:1])\n"

#: How far a graph is optimised.
LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_LONGEST_REASON = 300


def session_options(threads: int, level: str, entries: Mapping[str, str], **settings: Any) -> Any:
    """Options of a session that says nothing of what it finds odd; `settings` have their names in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    for name, value in settings.items():
        setattr(options, name, value)
    for key, entry in entries.items():
        options.add_session_config_entry(key, entry)
    return options


def external_weights(file: str, least_bytes: int) -> Dict[str, str]:
    """Session entries by which an optimised graph that is written has its large weights in another file."""
    written = "session.optimized_model_external_initializers_"
    return {written + "file_name": file, written + "min_size_in_bytes": str(least_bytes)}


class OnnxRuntime(Engine):
    """One session; inputs and outputs are bound once and stay where they are."""

    capabilities = frozenset({"shared_streams", "layer_times"})
    kinds = frozenset({"onnx"})
    packages = ("onnxruntime",)

    _session: Any = None

    def prepare(self) -> None:
        """Import onnxruntime."""
        import onnxruntime  # noqa: F401

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: io_binding, graph_optimization, spinning, arena, and any session entry as session.NAME."""
        settings = Options(options.options)
        entries = settings.passed_on(lambda key: key.startswith("session."))
        self._io_binding = settings.flag("io_binding", True)
        level = settings.text("graph_optimization", "all", tuple(LEVELS))
        spinning = settings.flag("spinning", True)
        arena = settings.flag("arena", True)
        settings.finish()

        import onnxruntime

        self._module = onnxruntime
        self._affinity = worker_affinity(options)
        bound = {"session.intra_op_thread_affinities": self._affinity} if self._affinity else {}
        entries = {**bound, "session.intra_op.allow_spinning": str(int(spinning)), **entries}
        self._make_options = functools.partial(
            session_options, options.threads, level, entries, enable_cpu_mem_arena=arena
        )
        self._open = functools.partial(self._open_session, model, options)
        self._open(self._make_options())
        self._output_names = [output.name for output in self._session.get_outputs()]
        self._declared = [output.shape for output in self._session.get_outputs()]
        if any(not output.type.startswith("tensor(") for output in self._session.get_outputs()):
            self._io_binding = False  # sequences and maps cannot be bound
        if any(port.type == "tensor(string)" for port in self._session.get_inputs() + self._session.get_outputs()):
            self._io_binding = False
        self._settings = {
            "io_binding": int(self._io_binding),
            "intra_op_num_threads": options.threads,
            "graph_optimization": level,
            "spinning": int(spinning),
            "arena": int(arena),
        }
        return self._settings

    def _open_session(self, model: str, options: LoadOptions, session_options: Any) -> None:
        self._session = self._module.InferenceSession(model, session_options, providers=["CPUExecutionProvider"])
        if self._affinity and options.streams == 1:
            pin(options.cpus[:1])  # the caller computes too, beside the workers that have the other CPUs

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """session.run_with_iobinding on buffers that stay, or the plain session.run."""
        if not self._io_binding:
            return self._plain(inputs)
        binding = self._session.io_binding()
        # An OrtValue only refers to the array's memory: whoever frees the array lets the model run on garbage.
        arrays: List[Any] = [inputs]
        for name, array in inputs.items():
            value = self._module.OrtValue.ortvalue_from_numpy(array)
            arrays.append(value)
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            # The first run allocates the output, later runs write into the same buffer.
            binding.bind_output(name, "cpu")
        call = functools.partial(self._session.run_with_iobinding, binding)
        call.kept = arrays  # type: ignore[attr-defined]
        return call

    def _plain(self, inputs: Dict[str, Any]) -> Callable[[], Any]:
        return functools.partial(self._session.run, self._output_names, inputs)

    def after_first_run(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The same call, or the plain session.run where a bound output has another shape than the model declares.

        ONNX Runtime then refuses every run but the first, which allocates the output.
        """
        if not self._io_binding or not hasattr(call, "kept"):
            return call
        shapes = [value.shape() for value in call.args[0].get_outputs()]  # type: ignore[attr-defined]
        if not any(map(_contradicts, self._declared, shapes)):
            return call
        try:
            call()
        except Exception as error:  # a type of its own, which differs between versions
            self._io_binding = False
            self._settings.update(io_binding=0, io_binding_refused=" ".join(str(error).split())[:_LONGEST_REASON])
            return self._plain(call.kept[0])
        return call

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Copies of the bound outputs, or what session.run returned."""
        if returned is not None:
            return dict(zip(self._output_names, returned))
        binding = call.args[0]  # type: ignore[attr-defined]
        return dict(zip(self._output_names, binding.copy_outputs_to_cpu()))

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each node of the optimised graph takes, by ONNX Runtime's own trace of a fresh session."""
        # Its workers would go on spinning on the CPUs that the new session's are bound to.
        self._session = None
        with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
            traced = self._make_options()
            _trace_into(traced, folder)
            self._open(traced)
            walls_ns = times_ns(self.bind(inputs), seconds, most=MOST_RUNS)
            trace = self._session.end_profiling()
            self._session = None
            return _read_trace(trace, folder, walls_ns)

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """A session with the same threads on the same CPUs."""
        bound = bool(worker_affinity(options))
        return _DEPLOYMENT.format(
            threads=options.threads,
            bind_workers=_BIND_WORKERS if bound else "",
            bind_caller=_BIND_CALLER if bound else "",
        )


def _contradicts(declared: Any, actual: Sequence[int]) -> bool:
    """Whether a shape has another rank or another size than declared; what is symbolic fits any size."""
    if len(declared) != len(actual):
        return True
    return any(isinstance(size, int) and size != real for size, real in zip(declared, actual))


def worker_affinity(options: LoadOptions) -> str:
    """Each worker thread on its own CPU, numbered from 1; the first is left to the calling thread."""
    if options.pinning != "core" or len(options.cpus) < 2 or not sys.platform.startswith("linux"):
        return ""
    return ";".join(str(cpu + 1) for cpu in options.cpus[1 : options.threads])


# What each node takes in ONNX Runtime: its own trace of a session, read and added up.

#: What the name of a node ends in where a trace tells its time.
KERNEL_TIME = "_kernel_time"
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
_GRAPH = "optimised.onnx"
_WEIGHTS = "weights.bin"


def _trace_into(options: Any, folder: str) -> None:
    """Let a session write its trace and its optimised graph into the folder."""
    options.enable_profiling = True
    options.profile_file_prefix = os.path.join(folder, "trace")
    options.optimized_model_filepath = os.path.join(folder, _GRAPH)
    # Only the graph is read again: its weights, which may be gigabytes, go nowhere where that is possible.
    with contextlib.suppress(OSError):
        os.symlink(os.devnull, os.path.join(folder, _WEIGHTS))
    for key, entry in external_weights(_WEIGHTS, 64).items():
        options.add_session_config_entry(key, entry)


def _read_trace(trace: str, folder: str, walls_ns: List[int]) -> Dict[str, Any]:
    """The layers by the trace; of the runs after the warm-up the middle half by their time is averaged."""
    import statistics

    events, runs = _events(trace)
    begins = sorted(run["ts"] for run in runs)[WARMUP:]
    if any(event["op"] in _WITH_BODIES for event in events):
        _subtract_bodies(events)
    times: List[Dict[Tuple[str, int], float]] = [{} for _ in begins]
    seen: Dict[Tuple[str, int], Dict[str, Any]] = {}
    for event in events:
        place = bisect.bisect_right(begins, event["ts"]) - 1
        if place < 0:
            continue
        key = (event["name"], event["index"])
        seen.setdefault(key, event)
        # Whole microseconds, what is beyond them cut off: half of one on average.
        times[place][key] = times[place].get(key, 0.0) + event["dur"] + (0.5 if event["dur"] >= 0 else 0.0)
    chosen = middle_half([run for run in times if run], lambda run: sum(run.values()))
    with open(os.path.join(folder, _GRAPH), "rb") as file:
        graph = file.read()
    layers = [
        layer(key[0], figures["op"], "", [], 1000.0 * sum(run.get(key, 0.0) for run in chosen) / len(chosen))
        for key, figures in seen.items()
    ]
    return {
        "layers": layers,
        "wall_ns": float(statistics.median(walls_ns)),
        "iterations": len(walls_ns),
        "graph": graph,
    }


def _events(trace: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """The executed nodes and the runs, in the order of the file."""
    nodes, runs = [], []
    for event in trace_events(trace):
        if event["name"] == "model_run":
            runs.append(event)
        elif event["cat"] == "Node" and event["name"].endswith(KERNEL_TIME):
            nodes.append(
                {
                    "name": event["name"][: -len(KERNEL_TIME)],
                    "index": int(event["args"].get("node_index", 0)),
                    "op": event["args"].get("op_name", ""),
                    "ts": event["ts"],
                    "dur": event["dur"],
                }
            )
    return nodes, runs


def trace_events(trace: str) -> Iterator[Dict[str, Any]]:
    """What a trace says of nodes and of whole runs; it has a line for each."""
    with open(trace, encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"Node"' in line or '"model_run"' in line:
                yield json.loads(line.strip().rstrip(",").rstrip("]"))


def _subtract_bodies(events: List[Dict[str, Any]]) -> None:
    """Leave to a branch or loop only what the nodes of its body do not take."""
    around: List[Tuple[int, Dict[str, Any]]] = []
    for node_event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while around and around[-1][0] <= node_event["ts"]:
            around.pop()
        end = node_event["ts"] + node_event["dur"]
        if around:
            around[-1][1]["dur"] -= node_event["dur"]
        if node_event["op"] in _WITH_BODIES:
            around.append((end, node_event))


# Generating: the cache stays in the engine's memory.

PORT_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
# Of this session only: its workers spin on the CPUs that the other sessions of the model compute on.
_STOP_SPINNING = "session.force_spinning_stop"


#: What a folder of ONNX Runtime GenAI is described by.
GENAI_CONFIG = "genai_config.json"


class OnnxRuntimeGenerator(PastPresentEngine, OnnxRuntime):
    """Sessions for the decoder, and the encoder if there is one; bound outputs are the next call's inputs."""

    kinds = frozenset({"onnx", "ort", "onnxruntime-genai"})

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: cache, and those of onnxruntime but io_binding."""
        given = Options({"cache": options.options.get("cache", "1")})
        caches = given.flag("cache", True)
        others = {key: value for key, value in options.options.items() if key != "cache"}
        if "io_binding" in others:
            raise BadOption("a cache is always bound when tokens are generated; leave io_binding out")
        head_size = None
        if options.kind == "onnxruntime-genai":
            decoder_config = read_genai_config(model)["model"]["decoder"]
            model, head_size = os.path.join(model, decoder_config["filename"]), decoder_config.get("head_size")
        settings: Dict[str, Any] = {}

        def open_graph(file: str, steps: bool) -> _Session:
            # The session that runs token after token, the last one, keeps its workers awake.
            stopping = {} if steps else {_STOP_SPINNING: "1"}
            settings.update(OnnxRuntime.load(self, file, options._replace(options={**stopping, **others})))
            return _Session(self._module, self._session, head_size)

        state = self._open_graphs(model, options, open_graph)
        del settings["io_binding"]
        return self._generate_with(state, caches, settings)

    def close(self) -> None:
        """Let the sessions go."""


class _Session(Graph):
    def __init__(self, module: Any, session: Any, head_size: Optional[int]) -> None:
        self._module, self._session = module, session
        self.inputs = with_head_size([_port(port) for port in session.get_inputs()], head_size)
        self.outputs = [_port(output) for output in session.get_outputs()]

    def run(self, arrays: Dict[str, Any], values: Dict[str, Any], wanted: Sequence[str], first: bool) -> List[Any]:
        """Bind, run, and take the outputs as they lie in the session's memory."""
        binding = self._session.io_binding()
        make = self._module.OrtValue.ortvalue_from_numpy
        # An OrtValue refers to its array, which must live until the call is done.
        bound = {name: make(array) for name, array in arrays.items()}
        for name, value in bound.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in wanted:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        return list(binding.get_outputs())

    def view(self, value: Any) -> Any:
        """The value's own memory; whoever asks keeps the value."""
        import numpy

        dtype, shape = numpy.dtype(PORT_TYPES[value.data_type()]), value.shape()
        size = dtype.itemsize
        for dim in shape:
            size *= dim
        if not size:
            return numpy.zeros(shape, dtype)
        memory: Any = (ctypes.c_char * size).from_address(value.data_ptr())
        memory.kept = value
        return numpy.frombuffer(memory, dtype).reshape(shape)


def _port(port: Any) -> Port:
    return Port(port.name, PORT_TYPES.get(port.type, port.type), list(port.shape))


def read_genai_config(folder: str) -> Dict[str, Any]:
    """The configuration of a folder of ONNX Runtime GenAI, which names its vocabulary and its decoder's file."""
    try:
        with open(os.path.join(folder, GENAI_CONFIG), encoding="utf-8") as file:
            config: Dict[str, Any] = json.load(file)
        config["model"]["decoder"]["filename"]
        int(config["model"]["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadOption("{} cannot be read: {!r}".format(GENAI_CONFIG, error)) from None
    return config
