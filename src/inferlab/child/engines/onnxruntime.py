"""ONNX Runtime."""

from __future__ import annotations

import functools
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence

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
        given = Options({key: value for key, value in options.options.items() if not key.startswith("session.")})
        self._io_binding = given.flag("io_binding", True)
        level = given.text("graph_optimization", "all", tuple(_LEVELS))
        spinning = given.flag("spinning", True)
        arena = given.flag("arena", True)
        given.finish()

        import onnxruntime

        self._module = onnxruntime
        self._affinity = _worker_affinity(options)
        self._make_options = functools.partial(self._session_options, options, level, spinning, arena)
        self._open = functools.partial(self._open_session, model, options)
        self._open(self._make_options())
        self._output_names = [one.name for one in self._session.get_outputs()]
        self._declared = [one.shape for one in self._session.get_outputs()]
        if any(not one.type.startswith("tensor(") for one in self._session.get_outputs()):
            self._io_binding = False  # sequences and maps cannot be bound
        if any(one.type == "tensor(string)" for one in self._session.get_inputs() + self._session.get_outputs()):
            self._io_binding = False
        self._settings = {
            "io_binding": int(self._io_binding),
            "intra_op_num_threads": options.threads,
            "graph_optimization": level,
            "spinning": int(spinning),
            "arena": int(arena),
        }
        return self._settings

    def _open_session(self, model: str, options: LoadOptions, wanted: Any) -> None:
        self._session = self._module.InferenceSession(model, wanted, providers=["CPUExecutionProvider"])
        if self._affinity and options.streams == 1:
            pin(options.cpus[:1])  # the caller computes too, beside the workers that have the other CPUs

    def _session_options(self, options: LoadOptions, level: str, spinning: bool, arena: bool) -> Any:
        wanted = self._module.SessionOptions()
        wanted.log_severity_level = 3
        wanted.intra_op_num_threads = options.threads
        wanted.inter_op_num_threads = 1
        wanted.graph_optimization_level = getattr(self._module.GraphOptimizationLevel, _LEVELS[level])
        wanted.enable_cpu_mem_arena = arena
        if self._affinity:
            wanted.add_session_config_entry("session.intra_op_thread_affinities", self._affinity)
        wanted.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        for key, value in options.options.items():
            if key.startswith("session."):
                wanted.add_session_config_entry(key, value)
        return wanted

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """session.run_with_iobinding on buffers that stay, or the plain session.run."""
        if not self._io_binding:
            return self._plain(inputs)
        binding = self._session.io_binding()
        # An OrtValue only refers to the array's memory: whoever frees the array lets the model run on garbage.
        kept: List[Any] = [inputs]
        for name, array in inputs.items():
            value = self._module.OrtValue.ortvalue_from_numpy(array)
            kept.append(value)
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            # The first run allocates the output, later runs write into the same buffer.
            binding.bind_output(name, "cpu")
        call = functools.partial(self._session.run_with_iobinding, binding)
        call.kept = kept  # type: ignore[attr-defined]
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
        from . import onnxruntime_layers as layers

        # Its workers would go on spinning on the CPUs that the new session's are bound to.
        self._session = None
        with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
            wanted = self._make_options()
            layers.look_on(wanted, folder)
            self._open(wanted)
            walls_ns, warmups = layers.run(self.bind(inputs), seconds)
            trace = self._session.end_profiling()
            self._session = None
            return layers.read(trace, folder, walls_ns, warmups)

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """A session with the same threads on the same CPUs."""
        bound = bool(_worker_affinity(options))
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


def _worker_affinity(options: LoadOptions) -> str:
    """Each worker thread on its own CPU; the first is left to the calling thread."""
    if options.pinning != "core" or len(options.cpus) < 2 or not sys.platform.startswith("linux"):
        return ""
    return ";".join(str(cpu + 1) for cpu in options.cpus[1 : options.threads])
