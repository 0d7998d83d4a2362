"""DeepSparse 1.8: the engine that gains from pruned weights; it lives in an environment of its own."""

from __future__ import annotations

import functools
import os
import re
from typing import Any, Callable, Dict, List, Optional

from ..processes import in_fork, pin
from .base import BadOption, Engine, LoadOptions, Options, layer, times_ns

_DEPLOYMENT = '''import os
import tempfile

import numpy


def load(cpus):
    """An engine on these CPUs."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # before deepsparse is imported: it counts the cores then
    os.environ["NM_BIND_THREADS_TO_CORES"] = "{to_cores}"
    os.environ["NM_BIND_THREADS_TO_SOCKETS"] = "{to_sockets}"
    import deepsparse
    import onnx

    # DeepSparse writes into the file that it loads, and reads no newer IR version than 8: it gets a copy.
    network = onnx.load(MODEL)
    network.ir_version = min(8, network.ir_version)
    for one in network.graph.input:
        for dim, size in zip(one.type.tensor_type.shape.dim, {shapes}.get(one.name, [])):
            dim.dim_value = size
    del network.graph.value_info[:]
    copy = os.path.join(tempfile.mkdtemp(), "model.onnx")
    onnx.save(network, copy)
    engine = deepsparse.compile_model(
        copy,
        batch_size={batch_size},
        num_cores={cores},
        num_streams={streams},
        scheduler=deepsparse.Scheduler("{scheduler}"),
    )
{bind_caller}    return engine


def stream(engine):
    """One stream; inputs must be contiguous."""
    return lambda inputs: engine.run([inputs[name] for name in engine.input_names])
'''
_BIND_CALLER = """    if cpus:
        os.sched_setaffinity(0, [min(cpus)])  # the caller computes too, beside the bound workers
"""

_SCHEDULERS = ("single_stream", "multi_stream", "elastic")


class DeepSparse(Engine):
    """One deepsparse.Engine; its inputs stay where they are, its outputs are new arrays at every run."""

    capabilities = frozenset({"native_streams", "shared_streams", "layer_times", "imposed_sparsity"})
    kinds = frozenset({"onnx"})
    packages = ("deepsparse",)

    def prepare(self) -> None:
        """Import deepsparse, which reads the number of cores from the CPUs that the process is bound to."""
        import deepsparse  # noqa: F401

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: scheduler, and plain_run=1 for engine.run with its checks of the inputs.

        The model file is written to where its shapes are not those asked for.
        """
        settings = Options(options.options)
        scheduler = settings.text("scheduler", _scheduler(options), _SCHEDULERS)
        self._plain_run = settings.flag("plain_run", False)
        settings.finish()

        import deepsparse

        batch_size = _batch_size(options)
        fix_shapes = functools.partial(_fix_shapes, model, options.shapes, batch_size)
        rewritten = in_fork(fix_shapes, "the model's inputs could not be read or set to the shapes asked for")
        bound = _bind_workers(options, scheduler)
        self._settings = {
            "model": model,
            "batch_size": batch_size,
            "num_cores": _cores(options),
            "scheduler": deepsparse.Scheduler(scheduler),
        }
        self._engine: Any = deepsparse.Engine(
            num_streams=options.streams if scheduler != "single_stream" else None, **self._settings
        )
        self._input_names = list(self._engine.input_names)
        self._bind_caller = functools.partial(_bind_caller, options, scheduler)
        self._bind_caller()
        self.fraction_of_supported_ops = float(self._engine.fraction_of_supported_ops)
        return {
            "onnx_file": model,
            "batch_size": batch_size,
            "input_shapes": [list(shape) for shape in self._engine.input_shapes],
            "shapes_rewritten": int(rewritten),
            "num_cores": self._engine.num_cores,
            "scheduler": scheduler,
            "num_streams": self._engine.num_streams,
            "threads_bound": int(bound),
            "plain_run": int(self._plain_run),
            "cpu_avx_type": self._engine.cpu_avx_type,
            "cpu_vnni": bool(self._engine.cpu_vnni),
            "fraction_of_supported_ops": self.fraction_of_supported_ops,
        }

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """The native call that engine.run ends in, or engine.run itself."""
        import numpy

        # An array that is not contiguous gives wrong results without an error.
        arrays = [numpy.require(inputs[name], requirements="C") for name in self._engine.input_names]
        run = self._engine.run if self._plain_run else self._engine._eng_net.execute_list_out
        return functools.partial(run, arrays)

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """The arrays that the call returned, by name."""
        return dict(zip(self._engine.output_names, returned))

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each executed layer takes, by DeepSparse's analysis; as if that share of all weights were zeros."""
        import numpy

        if imposed_sparsity is not None and hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < 2:
            # Tried with 1.8.0: it never comes back, whatever model it is.
            raise BadOption(
                "DeepSparse hangs where it imposes sparsity in a process that has only one CPU; "
                "give it two cores, or leave its threads unbound (--thread-pinning none)"
            )
        arrays = [numpy.require(inputs[name], requirements="C") for name in self._input_names]
        if self._engine is not None:
            # About what an inference takes.
            self._call_s = max(1e-6, times_ns(self.bind(inputs), 0, warmup=1, least=1)[0] / 1e9)
            self._engine = None
        engine = _analysis(self._settings, seconds, self._call_s, imposed_sparsity)
        self._bind_caller()
        analysis = engine.analyze(arrays)
        return _read_layers(analysis, self.fraction_of_supported_ops or 0.0)

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """An engine with the same cores, streams and scheduler."""
        scheduler = _scheduler(options)
        single = scheduler == "single_stream"
        return _DEPLOYMENT.format(
            to_cores=int(options.pinning == "core"),
            to_sockets=int(options.pinning == "numa"),
            shapes=dict(options.shapes),
            batch_size=_batch_size(options),
            cores=_cores(options),
            streams=None if single else options.streams,
            scheduler=scheduler,
            bind_caller=_BIND_CALLER if single and options.pinning == "core" else "",
        )


def _cores(options: LoadOptions) -> int:
    return options.cores if options.streams > 1 else options.threads


def _scheduler(options: LoadOptions) -> str:
    """The scenario's scheduler for several streams; a stream that has its model to itself needs none.

    The other schedulers compute in threads of their own, which they always bind, to the first CPUs of the
    process: two processes that are not bound would share a core. They abort in a thread that is bound to
    fewer CPUs than its process.
    """
    return options.scheduler if options.streams > 1 else "single_stream"


def _batch_size(options: LoadOptions) -> Optional[int]:
    """What DeepSparse sets the first dimension of every input to; None where they are not all the same."""
    first = {shape[0] if shape else None for shape in options.shapes.values()}
    return options.batch_size if first == {options.batch_size} else None


def _bind_workers(options: LoadOptions, scheduler: str) -> bool:
    """Say how the engine binds its threads (it reads this when it is made); True if each has its own core."""
    os.environ["NM_BIND_THREADS_TO_CORES"] = "1" if options.pinning == "core" else "0"
    os.environ["NM_BIND_THREADS_TO_SOCKETS"] = "1" if options.pinning == "numa" else "0"
    return options.pinning == "core" or scheduler != "single_stream"


def _bind_caller(options: LoadOptions, scheduler: str) -> None:
    """Keep the calling thread, which computes too, away from the cores that its workers are bound to."""
    alone = scheduler == "single_stream" and options.streams == 1
    if alone and options.pinning == "core" and options.cpus:
        pin([min(options.cpus)])


def _fix_shapes(model: str, shapes: Dict[str, List[int]], batch_size: Optional[int]) -> bool:
    """Write the shapes into the model file, unless it has them already but for the batch; True if written."""
    import onnx

    graph = onnx.load(model, load_external_data=False)
    inputs = [port for port in graph.graph.input if port.name in shapes]
    first = 0 if batch_size is None else 1
    if all(_dims(port)[first:] == shapes[port.name][first:] for port in inputs):
        return False
    for port in inputs:
        dims = port.type.tensor_type.shape.dim
        if len(dims) != len(shapes[port.name]):
            raise ValueError("input {} has {} dimensions".format(port.name, len(dims)))
        for dim, size in zip(dims, shapes[port.name]):
            dim.dim_value = size
    del graph.graph.value_info[:]  # inferred from other shapes
    onnx.save(graph, model)
    return True


def _dims(value: Any) -> List[int]:
    """The sizes of an input's dimensions, 0 for those that are symbolic."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


# What each layer takes in DeepSparse, as it is or with imposed sparsity: its own analysis of a fresh engine.

_WARMUP = 3
_LEAST = 5
_NUMBER = re.compile(r"[_ ]\d+$")
_SPARSE = re.compile(r"-[\d.]+%")


def _analysis(settings: Dict[str, Any], seconds: float, call_s: float, imposed: Optional[float]) -> Any:
    """An engine that analyses as many inferences as fill the time: it cannot be stopped early."""
    from deepsparse.engine import DebugAnalysisEngine

    return DebugAnalysisEngine(
        num_iterations=max(_LEAST, int(seconds / call_s) - _WARMUP),
        num_warmup_iterations=_WARMUP,
        imposed_ks=imposed,
        **settings,
    )


def _read_layers(analysis: Dict[str, Any], supported: float) -> Dict[str, Any]:
    """The layers, with their mean times brought to the median inference.

    DeepSparse names a layer's main nodes by their outputs; activations and the like behind them belong to it. What
    it does not support runs in its embedded ONNX Runtime, in layers called naive; of these it also has some that
    only copy the inputs and outputs.
    """
    import statistics

    totals = analysis["iteration_times"]
    factor = statistics.median(totals) / statistics.mean(totals) if sum(totals) else 1.0
    layers = []
    for entry in analysis["layer_info"]:
        name, covers = entry["name"], entry["canonical_name"]
        layers.append(
            layer(
                name,
                _NUMBER.sub("", _SPARSE.sub("", name)),
                _NUMBER.sub("", name),
                [] if covers == "<none>" else [part for part in covers.split(",") if part],
                1e6 * entry["average_run_time_in_ms"] * factor,
                fallback=supported < 1.0 and ("Naive" in name or "ORT" in name),
            )
        )
    return {
        "layers": layers,
        "wall_ns": 1e6 * statistics.median(totals),
        "iterations": len(totals),
        "unnamed": "before",
    }
