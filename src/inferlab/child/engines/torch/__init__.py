"""PyTorch: torch.export programs, TorchScript and Hugging Face folders, eager or compiled."""

from __future__ import annotations

import copy
import functools
import os
import time
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ...confinement import compilers
from ..base import WARMUP, BadOption, Engine, LoadOptions, Options, layer
from . import files

_DEPLOYMENT = '''import os

import numpy
import torch

INPUTS = {inputs}


def load(cpus):
    """The program on these CPUs."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # first of all: torch's threads inherit it
    torch.set_num_threads({threads})
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    return {load}


def stream(model):
    """One stream."""
    module = {module}

    def infer(inputs):
        tensors = [torch.from_numpy(inputs[name]) for name in INPUTS]
        with torch.inference_mode():
            {call}
        return [one.numpy() for one in torch.utils._pytree.tree_leaves(outputs)]

    return infer
'''
_PROGRAM = {
    "load": "torch.export.load(MODEL)",
    "module": "model.module()",
    "call": """given, named = torch.utils._pytree.tree_unflatten(tensors, model.call_spec.in_spec)
            outputs = module(*given, **named)""",
}
_SCRIPT = {"load": "torch.jit.load(MODEL).eval()", "module": "model", "call": "outputs = module(*tensors)"}


class Argument(NamedTuple):
    """One argument of what is called: an input by its name, or a value that stays."""

    name: str
    value: Any = None
    #: Given by the caller of the module, not by the module itself.
    given: bool = True


class Torch(Engine):
    """One module; the weights are bound with the inputs where a program is nothing but its graph."""

    # Every calling thread has an OpenMP team of its own, of as many threads as set_num_threads said last.
    capabilities = frozenset({"shared_streams", "layer_times"})
    kinds = frozenset({"torch-export", "torchscript", "transformers"})
    packages = ("torch",)
    extras = ("transformers",)
    #: The inputs are given by their names.
    _by_name = False
    #: The graph that runs, where the model is a program.
    _graph: Any = None
    #: The structure of a program's arguments, where it is called with it.
    _spec: Any = None
    #: Names of outputs that do not tell their own.
    _names: Sequence[str] = ()

    def prepare(self) -> None:
        """Import torch."""
        # Its profiler tells of every start and stop otherwise.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        import torch  # noqa: F401

    def prepare_for(self, model: Optional[str], kind: str) -> None:
        """Import transformers, or what torch imports only when it reads a program or trains."""
        if kind == "transformers":
            from . import folders

            folders.prepare(model)
        elif kind == "training":
            import torch._dynamo  # noqa: F401  an optimiser imports it
        elif kind == "torch-export":
            import torch.export.pt2_archive._package  # noqa: F401

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: mode (eager, compile; for folders script), and for one kind each plain_call, freeze, head."""
        settings = Options(options.options)
        mode = settings.text("mode", "eager", ("eager", "compile", "script"))
        freeze = settings.flag("freeze", False)
        plain_call = settings.flag("plain_call", False)
        head = settings.flag("head", True)
        settings.finish()
        folder = options.kind == "transformers"
        if freeze and options.kind != "torchscript":
            raise BadOption("freeze is for TorchScript; other models have mode=compile")
        if plain_call and options.kind != "torch-export":
            raise BadOption("plain_call is for torch.export programs; other models have no other call")
        if not folder and (mode == "script" or not head):
            raise BadOption(
                "mode=script and head=0 are for Hugging Face folders; other models are run as they are"
            )
        if mode == "compile":
            _check_compiler(options.kind)

        import torch

        self._torch = torch
        self._mode, self._frozen = mode, freeze
        files.set_threads(options.threads)
        if options.kind == "torchscript":
            self._load_script(files.read_torchscript(model), freeze)
        elif folder:
            self._load_folder(model, head, options.shapes, mode)
        else:
            self._load_program(files.read_exported(model), options.shapes, mode, plain_call)
        return {
            "mode": mode,
            "freeze": int(freeze),
            "plain_call": int(plain_call),
            **({"head": int(head)} if folder else {}),
            "intra_op_num_threads": torch.get_num_threads(),
            "inter_op_num_threads": torch.get_num_interop_threads(),
            "mkldnn": int(torch.backends.mkldnn.is_available()),
        }

    def _load_folder(self, model: str, head: bool, shapes: Dict[str, List[int]], mode: str) -> None:
        from . import folders

        module = folders.read_folder(model, head)
        folders.check_shapes(module, shapes)
        self._arguments = [Argument(name) for name in shapes]
        self._by_name = mode != "script"
        if mode == "script":
            module, self._names = folders.trace(module, shapes)
        self._module = module
        self._run = self._torch.compile(module) if mode == "compile" else module

    def _load_script(self, module: Any, freeze: bool) -> None:
        self._arguments = [Argument(name) for name in files.script_inputs(module)]
        if freeze:
            # A module that was saved frozen has lost this attribute and cannot be frozen again.
            module = self._torch.jit.freeze(module) if hasattr(module, "training") else module
            module = self._torch.jit.optimize_for_inference(module)
        self._module = module
        self._run = module.forward

    def _load_program(self, program: Any, shapes: Dict[str, List[int]], mode: str, plain: bool) -> None:
        _check_shapes(program, shapes)
        self._names = files.output_names(program)
        self._arguments = program_arguments(program)
        # program.module() matches the structure of its arguments on every call (four to six times the time of
        # this on small models, compiled too); the graph itself takes weights and inputs in a row.
        self._graph = program.graph_module
        self._module = program
        changes = len(program.graph_signature.output_specs) != len(program.graph_signature.user_outputs)
        if plain or changes:
            # Where it changes buffers, the graph returns their new values, which only program.module() puts in
            # their place.
            self._arguments = [argument for argument in self._arguments if argument.given]
            self._spec, self._graph = program.call_spec.in_spec, program.module(check_guards=False)
        run = self._graph.forward
        self._run = self._torch.compile(run) if mode == "compile" else run

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """A call of the module with tensors that share the arrays' memory."""
        return self._bound(self._run, inputs)

    def _values(self, inputs: Dict[str, Any]) -> List[Any]:
        """The arguments in a row, inputs as tensors that share the arrays' memory."""
        values = []
        for argument in self._arguments:
            if argument.name and argument.name not in inputs:
                raise BadOption("the model's input {} was not given".format(argument.name))
            values.append(self._torch.from_numpy(inputs[argument.name]) if argument.name else argument.value)
        return values

    def _bound(self, run: Callable[..., Any], inputs: Dict[str, Any]) -> Callable[[], Any]:
        torch, values = self._torch, self._values(inputs)
        if self._spec is not None:
            values, named = torch.utils._pytree.tree_unflatten(values, self._spec)
            run = functools.partial(run, **named) if named else run
        elif self._by_name:
            run, values = (
                functools.partial(run, **{argument.name: v for argument, v in zip(self._arguments, values)}),
                [],
            )
        enabled, enter = torch.is_inference_mode_enabled, torch._C._InferenceMode
        entered: List[Any] = []

        def call() -> Any:
            # Inference mode belongs to a thread: the thread's first call enters it and none leaves it, because
            # entering it every time costs microseconds.
            if not enabled():
                entered.append(enter(True))
            return run(*values)

        return call

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Arrays by the keys of a dict, or by number."""
        named = files.flatten(returned)
        if self._names:
            named = dict(zip(self._names, named.values()))
        return {name: _array(value) for name, value in named.items() if hasattr(value, "detach")}

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each operator takes: nodes of a program's graph, else what the model calls of torch."""
        if self._mode == "compile":
            raise BadOption(
                "mode=compile runs kernels that each fuse several operators and cannot be timed one by one; "
                "profile the model with mode=eager"
            )
        if self._frozen:
            raise BadOption(
                "freeze=1 hands convolutions to oneDNN, where torch's profiler does not see them; profile the "
                "model without it"
            )
        if self._graph is not None:
            return program_times(self._graph, lambda run: self._bound(run, inputs), seconds)
        return called_times(self.bind(inputs), lambda: self.walk(inputs), seconds)

    def walk(self, inputs: Dict[str, Any]) -> List[Dict[str, Any]]:
        """What each operator costs in one inference, in their order; the ids are those of layer_times."""
        from . import operators

        named_inputs = {
            argument.name: value for argument, value in zip(self._arguments, self._values(inputs)) if argument.name
        }
        recorder = operators.Recorder(operators.named_weights(self._module), named_inputs)
        if self._graph is not None:
            operators.walk_program(self._graph, self._values(inputs), recorder)
        else:
            operators.walk_called(self._module, self.bind(inputs), recorder)
        return recorder.nodes

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """The program, called eagerly with the same threads."""
        if options.kind == "transformers":
            return ""  # transformers' own documentation says it better
        words = _SCRIPT if options.kind == "torchscript" else _PROGRAM
        return _DEPLOYMENT.format(inputs=list(options.shapes), threads=options.threads, **words)

    def inspect(self, model: str, kind: str) -> Dict[str, Any]:
        """Inputs, outputs and weights, as plain data."""
        if kind == "torchscript":
            return files.describe_script(files.read_torchscript(model))
        if kind == "transformers":
            from . import folders

            return folders.describe_folder(model)
        return files.describe_exported(files.read_exported(model))


def program_arguments(program: Any) -> List[Argument]:
    """What the program's graph takes, in its order: weights, constants and inputs."""
    arguments = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            fixed = not hasattr(spec.arg, "name") or hasattr(spec.arg, "value")
            arguments.append(Argument("", spec.arg.value) if fixed else Argument(spec.arg.name))
        elif spec.target in program.state_dict:
            arguments.append(Argument("", program.state_dict[spec.target].detach(), given=False))
        else:
            arguments.append(Argument("", program.constants[spec.target], given=False))
    return arguments


def _check_shapes(program: Any, shapes: Dict[str, List[int]]) -> None:
    """Refuse shapes that the program was not exported for: the bare graph would not notice."""
    limits = program.range_constraints
    for program_input in files.program_inputs(program):
        for axis, (size, dim) in enumerate(
            zip(shapes.get(program_input.name, []), program_input.meta["val"].shape)
        ):
            fixed: Optional[int] = dim if isinstance(dim, int) else None
            limit = None if fixed is not None else limits.get(dim.node.expr)
            if (fixed is not None and size != fixed) or (
                limit is not None and not limit.lower <= size <= limit.upper
            ):
                raise BadOption(
                    "the program was exported with {} in dimension {} of '{}', so {} is not possible; export it "
                    "again with dynamic_shapes".format(
                        fixed if fixed is not None else "{} to {}".format(limit.lower, limit.upper),  # type: ignore[union-attr]
                        axis,
                        program_input.name,
                        size,
                    )
                )


def _check_compiler(kind: str) -> None:
    if kind == "torchscript":
        raise BadOption("mode=compile is for torch.export programs and folders; TorchScript has freeze=1")
    if not compilers():
        raise BadOption("mode=compile needs a C++ compiler, and none was found; install g++ or set CXX")
    # Compile here and now: a pool of compiling processes would idle beside what is measured.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def _array(tensor: Any) -> Any:
    tensor = tensor.detach()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy().copy()


Call = Callable[[], Any]
_LEAST = 3
_TURNS = 16
# The profiler keeps about half a kilobyte of each event until it is stopped.
_MOST_EVENTS = 100_000
_HOST = "between operators"


def program_times(graph: Any, bind: Callable[[Callable[..., Any]], Call], seconds: float) -> Dict[str, Any]:
    """The times of a graph's nodes that compute tensors; `bind` makes a call of what stands in for the graph."""
    import numpy
    import torch

    from .operators import is_layer, node_path, node_type

    stamps: List[int] = []
    keep, clock = stamps.append, time.perf_counter_ns

    def inferlab_stamp() -> None:
        keep(clock())

    with warnings.catch_warnings():
        # torch warns of itself where a graph knows the structure of its arguments.
        warnings.simplefilter("ignore")
        stamped = copy.deepcopy(graph.graph)
    nodes = [node for node in stamped.nodes if is_layer(node)]
    for node in nodes:
        with stamped.inserting_after(node):
            stamped.call_function(inferlab_stamp)
    call = bind(torch.fx.GraphModule(graph, stamped).forward)
    for _ in range(WARMUP):
        call()
    del stamps[:]
    totals, iterations = numpy.zeros(len(nodes) + 1, numpy.int64), 0

    def added_up() -> Any:
        taken = numpy.diff(numpy.array(stamps).reshape(-1, len(nodes) + 2), axis=1).sum(0)
        del stamps[:]
        return taken

    end = time.perf_counter() + seconds
    while iterations < _LEAST or time.perf_counter() < end:
        inferlab_stamp()
        call()
        inferlab_stamp()
        iterations += 1
        # Seldom: adding up after every call would leave its caches cold.
        if len(stamps) > _MOST_EVENTS:
            totals += added_up()
    totals += added_up()
    layers = [
        layer(node_path(node) or node.name, node_type(node), str(node.target), [node.name], total / iterations)
        for node, total in zip(nodes, totals.tolist())
    ]
    return {"layers": layers, "wall_ns": int(totals.sum()) / iterations, "iterations": iterations}


def called_times(call: Call, walk: Callable[[], List[Dict[str, Any]]], seconds: float) -> Dict[str, Any]:
    """The times of the operators that a module calls; `walk` tells which they are."""
    import numpy
    import torch

    walked = walk()
    with torch.inference_mode():
        for _ in range(WARMUP):
            call()
        first = _profiled(call, 1)
        names = [name for name, _ in first.operators]
        most = max(1, _MOST_EVENTS // max(1, first.events))
        block = int(min(most, max(1, seconds * 1e9 / _TURNS / max(1, first.wall_ns))))
        totals, wall_ns, clean_ns, iterations = numpy.zeros(len(names)), 0, 0, 0
        end = time.perf_counter() + seconds
        while iterations < _LEAST or time.perf_counter() < end:
            # In turn with plain calls, so that both see the same machine.
            profile = _profiled(call, block)
            if [name for name, _ in profile.operators] != names * block:
                raise BadOption("its operators vary from call to call, so they cannot be timed one by one")
            totals += numpy.array([ns for _, ns in profile.operators]).reshape(block, -1).sum(0)
            wall_ns += profile.wall_ns
            clean_ns += _timed(call, block)
            iterations += block
    joined = _join(names, walked)
    layers = []
    for name, total, node in zip(names, totals.tolist(), joined):
        kind = name.split("::")[-1].rstrip("_") if node is None else node["type"]
        where = name if node is None else node["name"] or node["id"]
        layers.append(layer(where, kind, name, [node["id"]] if node else [], total / iterations))
    host_ns = (clean_ns - float(totals.sum())) / iterations
    if host_ns > 0:
        layers.append(layer(_HOST, "host", "", [], host_ns))
    return {"layers": layers, "wall_ns": wall_ns / iterations, "iterations": iterations}


class _Profiled(NamedTuple):
    """What the profiler saw of some calls."""

    operators: List[Tuple[str, int]]
    events: int
    wall_ns: int


def _profiled(call: Call, count: int) -> _Profiled:
    """The operators that are called by no other one, with their times, over some calls."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        wall_ns = _timed(call, count)
    events = [event for event in profile.profiler.kineto_results.events() if "::" in event.name()]
    operators: List[Tuple[str, int]] = []
    end = 0
    # Threads of an operator's own run within it.
    for operation in sorted(events, key=lambda event: (event.start_ns(), -event.duration_ns())):
        if operation.start_ns() >= end:
            operators.append((operation.name(), operation.duration_ns()))
            end = operation.start_ns() + operation.duration_ns()
    return _Profiled(operators, len(events), wall_ns)


def _timed(call: Call, count: int) -> int:
    started = time.perf_counter_ns()
    for _ in range(count):
        call()
    return time.perf_counter_ns() - started


def _join(names: Sequence[str], walked: List[Dict[str, Any]]) -> List[Any]:
    """For each operator that was timed the one that was recorded, None where there is none."""
    import difflib

    recorded = [node["kernel"].replace(".", "::", 1).split(".")[0] for node in walked]
    if recorded == list(names):
        return list(walked)
    joined: List[Any] = [None] * len(names)
    # What an optimised module runs in a form of its own is not seen while it is recorded.
    for block in difflib.SequenceMatcher(None, names, recorded, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            joined[block.a + offset] = walked[block.b + offset]
    return joined
