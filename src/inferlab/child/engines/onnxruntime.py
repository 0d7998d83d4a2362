"""ONNX Runtime."""

from __future__ import annotations

import bisect
import contextlib
import functools
import json
import os
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..pinning import pin
from .base import BadOption, Engine, LoadOptions, Options

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

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


_LONGEST_REASON = 300


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
        settings = Options(
            {key: value for key, value in options.options.items() if not key.startswith("session.")}
        )
        self._io_binding = settings.flag("io_binding", True)
        level = settings.text("graph_optimization", "all", tuple(_LEVELS))
        spinning = settings.flag("spinning", True)
        arena = settings.flag("arena", True)
        settings.finish()

        import onnxruntime

        self._module = onnxruntime
        self._affinity = worker_affinity(options)
        self._make_options = functools.partial(self._session_options, options, level, spinning, arena)
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

    def _session_options(self, options: LoadOptions, level: str, spinning: bool, arena: bool) -> Any:
        session_options = self._module.SessionOptions()
        session_options.log_severity_level = 3
        session_options.intra_op_num_threads = options.threads
        session_options.inter_op_num_threads = 1
        session_options.graph_optimization_level = getattr(self._module.GraphOptimizationLevel, _LEVELS[level])
        session_options.enable_cpu_mem_arena = arena
        if self._affinity:
            session_options.add_session_config_entry("session.intra_op_thread_affinities", self._affinity)
        session_options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        for key, value in options.options.items():
            if key.startswith("session."):
                session_options.add_session_config_entry(key, value)
        return session_options

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
        if imposed_sparsity is not None:
            raise BadOption("onnxruntime cannot impose sparsity; prune a copy of the model")
        # Its workers would go on spinning on the CPUs that the new session's are bound to.
        self._session = None
        with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
            session_options = self._make_options()
            _trace_into(session_options, folder)
            self._open(session_options)
            walls_ns, warmups = _run_traced(self.bind(inputs), seconds)
            trace = self._session.end_profiling()
            self._session = None
            return _read_trace(trace, folder, walls_ns, warmups)

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

_WARMUP = 3
_LEAST = 3
# A trace has about a kilobyte for every node of every run, and keeps a million events at most.
_MOST_RUNS = 1000
_SUFFIX = "_kernel_time"
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
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "64")


def _run_traced(call: Callable[[], Any], seconds: float) -> Tuple[List[int], int]:
    """Run for a while; gives the time of each call after the warm-up, and how many calls that was."""
    clock = time.perf_counter_ns
    for _ in range(_WARMUP):
        call()
    walls_ns: List[int] = []
    end = clock() + int(seconds * 1e9)
    while len(walls_ns) < _LEAST or (clock() < end and len(walls_ns) < _MOST_RUNS):
        started = clock()
        call()
        walls_ns.append(clock() - started)
    return walls_ns, _WARMUP


def _read_trace(trace: str, folder: str, walls_ns: List[int], warmups: int) -> Dict[str, Any]:
    """The layers by the trace; of the runs after the warm-up the middle half by their time is averaged."""
    import statistics

    events, runs = _events(trace)
    begins = sorted(run["ts"] for run in runs)[warmups:]
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
    chosen = _middle(times)
    with open(os.path.join(folder, _GRAPH), "rb") as file:
        graph = file.read()
    layers = []
    for key, figures in seen.items():
        ns = 1000.0 * sum(each.get(key, 0.0) for each in chosen) / len(chosen)
        layers.append(
            {
                "name": key[0],
                "type": figures["op"],
                "kernel": "",
                "covers": [],
                "fallback": False,
                "ns": max(0.0, ns),
            }
        )
    return {
        "layers": layers,
        "wall_ns": float(statistics.median(walls_ns)),
        "iterations": len(walls_ns),
        "graph": graph,
    }


def _events(trace: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """The executed nodes and the runs, in the order of the file, which has a line for each."""
    nodes, runs = [], []
    with open(trace, encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"Node"' not in line and '"model_run"' not in line:
                continue
            event = json.loads(line.strip().rstrip(",").rstrip("]"))
            if event["name"] == "model_run":
                runs.append(event)
            elif event["cat"] == "Node" and event["name"].endswith(_SUFFIX):
                nodes.append(
                    {
                        "name": event["name"][: -len(_SUFFIX)],
                        "index": int(event["args"].get("node_index", 0)),
                        "op": event["args"].get("op_name", ""),
                        "ts": event["ts"],
                        "dur": event["dur"],
                    }
                )
    return nodes, runs


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


def _middle(times: List[Dict[Tuple[str, int], float]]) -> List[Dict[Tuple[str, int], float]]:
    """The middle half of the runs: a disturbed one would stretch the layer that it happened to hit."""
    ordered = sorted(
        (iteration for iteration in times if iteration), key=lambda iteration: sum(iteration.values())
    )
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter] or ordered
