"""The state of one child: an engine, its loaded streams, their bound inputs, and the requests it answers."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

from . import confinement, counters, generation, loop, processes, protocol, scenarios
from .engines import find, find_name
from .engines.base import BadOption, Engine, LoadOptions
from .model_files import files_of
from .processes import pin
from .protocol import Answer

Call = Callable[[], Any]
#: Arrays of nanoseconds, stream by stream, and whether one of them was full.
Measured = Tuple[List[Any], bool]

# Long enough for the streams' threads to wait for the first request.
_SERVER_LEAD_NS = 3_000_000

# Requests that concern no model: what they import is ours.
_WITHOUT_MODEL = ("prepare", "open", "describe", "deployment", "check_options")
# Arguments of tasks that name files or folders.
_READ = ("model", "copy", "original", "dense", "changed", "source")
_WRITTEN = ("out", "folder")
# Tasks that measure, for as long as they are told to.
_MEASURING = ("ceilings", "train")
# A copy in another format or precision, and what an engine tells of its layers.
_LEAST_FILE_BYTES = 2 << 30
_TIMES_THE_MODEL = 4


class Stream(NamedTuple):
    """One stream: the engine that serves it, its number within that engine, the CPUs it is bound to."""

    engine: Engine
    number: int
    cpus: List[int]


class Session:
    """Answers requests; each method whose name begins with `do_` is one kind of request."""

    def __init__(self) -> None:
        self._reference: Dict[str, Any] = {}
        self._cpus: List[int] = []
        self._streams: List[Stream] = []
        self._output_names: List[str] = []
        self._settings: Dict[str, Any] = {}
        self._inputs: List[Dict[str, Any]] = []
        self._calls: Dict[Tuple[int, int], Call] = {}
        # When a slice ends, and whether it was cut short, perhaps before it began.
        self._deadline = [0, 0]
        #: How to confine this process before it reads the first model; None where that is done or not wanted.
        self._policy: Optional[Dict[str, Any]] = None
        self._cpu_s: Optional[float] = None
        #: The noise counters and the time before the first window that was not watched; seconds of such windows.
        self._before: Optional[Tuple[Dict[str, float], float]] = None
        self._unwatched_s = 0.0

    def cut_short(self) -> None:
        """Let the slice that is running, or that was asked for just now, end with its next inference."""
        self._deadline[:] = [0, 1]

    def close(self) -> None:
        """Let every engine go."""
        for engine in {id(stream.engine): stream.engine for stream in self._streams}.values():
            engine.close()

    def handle(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Answer one request."""
        do = message["do"]
        if self._policy is not None and do not in _WITHOUT_MODEL:
            self._confine(message)
        measures = message.get("task") in _MEASURING
        confinement.limit_cpu_for_now(
            self._cpu_s if do in ("inspect", "convert", "task") and not measures else None
        )
        try:
            answer: Answer = getattr(self, "do_" + do)(message, blocks)
            return answer
        finally:
            self._deadline[1] = 0

    def _confine(self, message: Dict[str, Any]) -> None:
        """Give up all that this and later requests do not need, before the engine's package is imported."""
        policy, self._policy = self._policy, None
        assert policy is not None
        named = {**message.get("arguments", {}), **message}
        models = [str(named[key]) for key in _READ if key in named]
        read = [file for model in (*policy["read"], *models) for file in files_of(model)]
        written = [str(named[key]) for key in _WRITTEN if key in named]
        write = [path if os.path.isdir(path) else os.path.dirname(path) for path in written]
        if policy["writes_model"]:
            write += [os.path.dirname(model) for model in models]
        size = sum(_size(file) for file in read)
        if "file" in self._reference:
            read.append(self._reference["file"])
        confinement.confine(
            {
                "read": read if policy["files"] else None,
                "write": [*policy["write"], *write],
                "network": not policy["files"],
                "memory_bytes": policy["memory_bytes"],
                "file_bytes": max(_LEAST_FILE_BYTES, _TIMES_THE_MODEL * size),
                "processes": policy["processes"],
            }
        )

    def do_prepare(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Import what models of these kinds need, on the CPUs of the sessions that will be forked from here."""
        pin(message["cpus"])
        kind = find(message["engine"])
        kind().prepare()
        for model_kind in message["kinds"]:
            kind().prepare_for(None, model_kind)
        for module in message["modules"]:
            importlib.import_module(module)
        return {"forkable": processes.forkable()}, []

    def do_open(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Bind the process to its CPUs, before any engine is imported, and remember which engine is meant."""
        os.environ.update(message.get("environment", {}))
        self._cpus = message["cpus"]
        pinned = pin(self._cpus)
        self._reference = message["engine"]
        self._policy = message.get("policy")
        self._cpu_s = None if self._policy is None else self._policy["cpu_s"]
        return {"pinned": pinned, "harness_ns": loop.harness_cost_ns()}, []

    def do_describe(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """What the engine is, without loading its packages, unless one of them must be shown to work."""
        engine = find(self._reference)
        if "proof" in message:
            find_name(*message["proof"])
        versions = _versions(engine)
        return {
            "versions": versions,
            "missing": [package for package in engine.packages if package not in versions],
            "kinds": sorted(engine.kinds),
            "capabilities": sorted(engine.capabilities),
        }, []

    def do_inspect(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Inputs, outputs and weights of a model that only its engine can read."""
        return {"model": find(self._reference)().inspect(message["model"], message["kind"])}, []

    def do_deployment(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """The engine's part of a program that runs the model as asked; empty where the engine has none."""
        groups = message["groups"]
        options = _load_options(message, groups[0], len(groups) if message["layout"] == "one" else 1)
        return {"code": find(self._reference).deployment(options)}, []

    def do_check_options(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Refuse options that the engine does not have."""
        find(self._reference).check_options(message["options"])
        return {}, []

    def do_convert(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Write the model into a folder in the engine's own format."""
        return {"files": find(self._reference)().convert(message["model"], message["out"], message["options"])}, []

    def do_load(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Load the model, once for each group of CPUs or once for all streams; the first load is timed."""
        import numpy

        kind = find(self._reference)
        kind().prepare()
        kind().prepare_for(message["model"], message["kind"])
        groups = message["groups"]
        baseline = counters.memory_bytes()["now"]
        shared = message["layout"] == "one"
        self._output_names = message["outputs"]
        load_s = 0.0
        for cpus in groups[:1] if shared else groups:
            engine = kind()
            options = _load_options(message, cpus, len(groups) if shared else 1)
            load = functools.partial(engine.load, message["model"], options)
            started = time.perf_counter()
            # The threads that an engine starts are bound as the one that loads the model.
            alone = shared or len(groups) == 1
            settings = load() if alone else scenarios.side_by_side([load], [cpus], [0])[0]
            load_s = load_s or time.perf_counter() - started
            # Not a copy: what an engine changes in it later is told with each slice.
            self._settings = settings if isinstance(settings, dict) else {}
            streams = range(len(groups)) if shared else range(1)
            self._streams.extend(Stream(engine, number, [] if shared else cpus) for number in streams)
        # Garbage is collected before each window: what was imported and loaded stays, and need not be looked at.
        gc.collect()
        gc.freeze()
        return {
            "load_s": load_s,
            "baseline_memory_bytes": None if "remote" in kind.capabilities else baseline,
            "settings": self._settings,
            "versions": {**self._streams[0].engine.versions(), **_versions(kind), "numpy": numpy.__version__},
        }, []

    def do_inputs(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Keep one more set of inputs; sets are numbered in the order of their arrival."""
        self._inputs.append(protocol.unpack_arrays(message["arrays"], blocks))
        return {}, []

    def do_infer(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Run one set of inputs along the measured path and return the outputs."""
        stream, number = message["stream"], message["set"]
        started = time.perf_counter()
        call = self._call(stream, number)
        returned = call()
        seconds = time.perf_counter() - started
        engine = self._streams[stream].engine
        arrays, unreadable = _as_arrays(engine.outputs(call, returned), self._output_names)
        self._calls[stream, number] = engine.after_first_run(call)
        return _with_arrays(arrays, unreadable=unreadable, seconds=seconds)

    def do_slice(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Measure all streams for a while, as fast as they can; inputs are those of set 0."""

        def measure(calls: List[Call], groups: List[List[int]]) -> Measured:
            taken = scenarios.closed_loop(
                calls,
                groups,
                message["start_ns"],
                message["seconds"],
                message["expected"] or [0] * len(calls),
                self._deadline,
                message["most"],
            )
            return [array for recording in taken for array in (recording.starts, recording.ends)], any(
                recording.full for recording in taken
            )

        return self._stamped(measure, message["watch"], message.get("watched", True))

    def do_serve(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Serve requests that arrive at set moments, from a queue of our own or shared with other processes."""
        own = protocol.numbers(blocks[0]) if blocks else None
        take = scenarios.from_descriptor(message["queue"]) if own is None else scenarios.from_memory(own)

        def measure(calls: List[Call], groups: List[List[int]]) -> Measured:
            # Processes that share a queue keep their common beginning, even if one of them comes late.
            start_ns = message["start_ns"] or time.perf_counter_ns() + _SERVER_LEAD_NS
            loop.set_deadline(self._deadline, start_ns + int(message["seconds"] * 1e9))
            served = scenarios.serve_all(calls, groups, take, start_ns, self._deadline, message["expected"])
            return [block for stream in served for block in stream], False

        return self._stamped(measure, message["watch"])

    def _stamped(
        self,
        measure: Callable[[List[Call], List[List[int]]], Measured],
        watch: List[int],
        watched: bool = True,
    ) -> Answer:
        """Measure between two readings of the noise counters.

        Windows that are not watched follow each other closely: the next one that is tells of them too.
        """
        calls = [self._call(index, 0) for index in range(len(self._streams))]
        memory_before = counters.memory_bytes()["peak"] if watched else None
        began = time.perf_counter()
        before, since = self._before or (counters.read(watch), began)
        blocks, full = measure(calls, [stream.cpus for stream in self._streams])
        ended = time.perf_counter()
        measured_s = self._unwatched_s + ended - began
        if not watched:
            self._before, self._unwatched_s = (before, since), measured_s
            return {"full": full}, blocks
        self._before, self._unwatched_s = None, 0.0
        # Between windows that are not watched another process may be measured.
        noise = counters.difference(before, counters.read(watch), measured_s / (ended - since))
        memory = counters.memory_bytes()
        return {
            "counters": noise,
            "canary_ns": counters.canary_ns(),
            "peak_memory_bytes": _without(blocks, memory["peak"], memory_before),
            "steady_memory_bytes": _without(blocks, memory["now"], 0),
            "full": full,
            "settings": self._settings,
            "supported": self._streams[0].engine.fraction_of_supported_ops,
        }, blocks

    def do_layers(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """Let the engine time its layers on the first set of inputs, and hand over its own graph if it has one.

        The loaded model may be gone afterwards: a second one beside it would take its memory and its CPUs.
        """
        self._calls.clear()
        # An engine may have bound this thread to one of them, and binds its new threads within what it finds.
        pin(self._cpus)
        engine, sparsity = self._streams[0].engine, message["imposed_sparsity"]
        if sparsity is not None and "imposed_sparsity" not in engine.capabilities:
            name = self._reference.get("builtin", "it")
            raise BadOption("{} cannot impose sparsity; prune a copy of the model".format(name))
        layer_times = dict(engine.layer_times(self._inputs[0], message["seconds"], sparsity))
        graph = layer_times.pop("graph", None)
        return layer_times, [] if graph is None else [graph]

    def do_context(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Fill the cache of a model that generates with tokens; they stay for all generations that follow."""
        context = protocol.unpack_arrays(message["arrays"], blocks)["context"]
        self._generator = generation.Generator(self._streams[0].engine, context)
        return {"memory_bytes": generation.memory_bytes(self._streams[0].engine)}, []

    def do_generate(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Generate tokens behind new prompts, each token timed."""
        prompts = protocol.unpack_arrays(message["arrays"], blocks)["prompts"]
        figures, arrays = self._generator.generate(
            prompts, message["new_tokens"], message["watch"], message["memory"]
        )
        return _with_arrays(arrays, settings=self._settings, **figures)

    def do_answer(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Generate behind prompts that arrive at set moments."""
        arrays_in = protocol.unpack_arrays(message["arrays"], blocks)
        different = generation.split_prompts(arrays_in["prompts"], arrays_in["lengths"])
        prompts = [different[number] for number in arrays_in["numbers"]]
        requests = generation.Requests(prompts, arrays_in["arrivals_ns"].tolist(), message["new_tokens"])
        before, cpu_ns = counters.read(message["watch"]), time.process_time_ns()
        self._generator.serve(requests, message["sequences"], message["seconds"], self._deadline)
        cpu_ns = time.process_time_ns() - cpu_ns
        noise = counters.difference(before, counters.read(message["watch"]))
        return _with_arrays(requests.arrays(), counters=noise, canary_ns=counters.canary_ns(), cpu_ns=cpu_ns)

    def do_force(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """What the engine would choose in place of each token that follows prompts, given those before it."""
        arrays_in = protocol.unpack_arrays(message["arrays"], blocks)
        given = arrays_in["prompts"], arrays_in["tokens"]
        if message.get("batched"):
            return _with_arrays(self._generator.force_batched(*given))
        return _with_arrays(self._generator.force(*given, arrays_in["candidates"]))

    def do_sample(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Tokens drawn by their probabilities behind prompts, and the most likely one in place of each."""
        arrays_in = protocol.unpack_arrays(message["arrays"], blocks)
        return _with_arrays(self._generator.sample(arrays_in["prompts"], message["positions"], message["seed"]))

    def do_cache_growth(self, message: Dict[str, Any], _: List[bytes]) -> Answer:
        """What the process grows with each token of room in a cache, by caches made for this question."""
        return {"bytes": self._generator.cache_growth()}, []

    def do_task(self, message: Dict[str, Any], blocks: List[bytes]) -> Answer:
        """Do a job that needs an engine's package but measures nothing (exporting, …)."""
        module, _, function = message["task"].partition(".")
        tasks = importlib.import_module("." + module, __package__ + ".tasks")
        answer: Answer = getattr(tasks, function or "run")(message["arguments"], blocks)
        return answer

    def _call(self, stream: int, number: int) -> Call:
        key = (stream, number)
        if key not in self._calls:
            slot = self._streams[stream]
            self._calls[key] = slot.engine.bind(self._inputs[number], slot.number)
        return self._calls[key]


def _size(path: str) -> int:
    """The bytes of a file, or of the files in a folder."""
    try:
        if os.path.isdir(path):
            return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
        return os.path.getsize(path)
    except OSError:
        return 0


def _load_options(message: Dict[str, Any], cpus: List[int], streams: int) -> LoadOptions:
    given = {name: message[name] for name in LoadOptions._fields if name in message}
    return LoadOptions(**{**given, "cpus": cpus, "streams": streams})


def _with_arrays(arrays: Dict[str, Any], **data: Any) -> Answer:
    """An answer that brings arrays by name."""
    heads, blocks = protocol.pack_arrays(arrays)
    return {"arrays": heads, **data}, blocks


def _without(blocks: Sequence[Any], resident: Any, at_least: Any) -> Any:
    """Resident memory without the arrays of our own samples."""
    if resident is None:
        return None
    return max(at_least, resident - sum(memoryview(block).nbytes for block in blocks))


def _as_arrays(outputs: Any, names: Sequence[str]) -> Tuple[Dict[str, Any], List[str]]:
    """Outputs by name, and the names of those that are no tensors."""
    import numpy

    if outputs is None:
        return {}, list(names)
    if not isinstance(outputs, dict):
        values = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        if names and len(values) != len(names):
            raise BadOption("it returned {} outputs where the model has {}".format(len(values), len(names)))
        outputs = dict(zip(names or map(str, range(len(values))), values))
    arrays, unreadable = {}, []
    for name, value in outputs.items():
        array = numpy.asarray(value) if not isinstance(value, (list, dict)) else None
        if array is not None and array.dtype == object:
            array = array.astype(str)
        if array is None or array.dtype.kind not in "biufcSU":
            unreadable.append(name)
        else:
            arrays[name] = numpy.ascontiguousarray(array).reshape(array.shape)
    return arrays, unreadable


def _versions(engine: Type[Engine]) -> Dict[str, str]:
    from importlib import metadata

    versions = {}
    for package in (*engine.packages, *engine.extras):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
