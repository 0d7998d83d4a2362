"""MNN: runs models in its own format, which its converter makes of ONNX, dense or with sparse weights."""

from __future__ import annotations

import functools
import mmap
import os
import re
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import processes
from .base import MOST_RUNS, WARMUP, BadOption, Engine, LoadOptions, Options, layer, middle_half

_DEPLOYMENT = '''import os
import tempfile

import numpy

# The types that MNN computes its inputs in: it has no 64-bit integers.
TYPES = {{"dtype.float": "float32", "dtype.int": "int32", "dtype.uint8": "uint8", "dtype.int8": "int8"}}


def load(cpus):
    """A module on these CPUs, and what it needs while it lives."""
    if cpus:
        os.sched_setaffinity(0, cpus)  # first of all: MNN's threads inherit it
    import _tools  # MNN's converter; MNN.tools.mnnconvert would install packages and report to a server
    import MNN

    with tempfile.TemporaryDirectory() as folder:
        converted = os.path.join(folder, "model.mnn"){note}
        _tools.mnnconvert([
            "mnnconvert", "-f", "ONNX", "--modelFile", MODEL, "--MNNModel", converted,
            {flags},
        ])
        runtime = MNN.nn.create_runtime_manager(({config},))
        runtime.set_hint({hint}, {winograd})  # how large the tiles of Winograd's convolution may be
        return MNN, MNN.nn.load_module_from_file(converted, [], [], runtime_manager=runtime), runtime


def stream(loaded):
    """One stream: inputs are copied into variables of MNN's, outputs are copies."""
    mnn, module, _ = loaded
    info = module.get_info()
    expr, names, types = mnn.expr, info["inputNames"], [TYPES[str(one.dtype)] for one in info["inputs"]]

    def run(inputs):
        arrays = [numpy.require(inputs[name], kind, "C") for name, kind in zip(names, types)]
        variables = [
            expr.const(array, list(array.shape), expr.NCHW, one.dtype)
            for array, one in zip(arrays, info["inputs"])
        ]
        return [numpy.array(expr.convert(one, expr.NCHW).read()) for one in module.onForward(variables)]

    return run
'''

_UNDECIDED = """
        # Dense: sparse weights ("--detectSparseSpeedUp", "1") were not measured; inferlab benchmark does that."""

#: What the option `sparse` may be once it is decided; "auto:…" where both ways were measured, "on:none" where no
#: layer has zeros enough for sparse kernels.
_DECIDED = {"on": True, "on:none": True, "off": False, "auto:on": True, "auto:off": False, "auto": False}
_WEIGHTS = {"fp32": (), "fp16": ("--fp16",), "int8": ("--weightQuantBits", "8")}
_MODES = ("high", "normal", "low")
# Whether an LSTM or GRU becomes a loop of other operators or stays one.
_LSTM = {"loop": (), "whole": ("--useOriginRNNImpl",)}
# The number of its hint that says how many sizes of tiles Winograd's convolution may choose from.
_WINOGRAD = 3
# The types that its inputs may have, by the names of its own.
_TYPES = {
    "float": "float32",
    "int": "int32",
    "uint8": "uint8",
    "int8": "int8",
    "int64": "int64",
    "double": "float64",
}
_UNSUPPORTED = re.compile(r"Not Support: *(.*)")
_LONGEST_REASON = 200
_PROBE_BYTES = 1 << 16


class Mnn(Engine):
    """One module; each bound set of inputs has variables of its own, outputs are new variables at every run."""

    # Its pool of threads serves all models of a process, and stays on the CPUs of the first.
    capabilities = frozenset({"layer_times", "process_streams", "sparse_weights"})
    kinds = frozenset({"onnx"})
    packages = ("mnn",)

    #: The CPUs of the first model of this process that was loaded with several threads.
    _pool_cpus: Optional[List[int]] = None

    def prepare(self) -> None:
        """Import MNN."""
        import MNN  # noqa: F401

    @classmethod
    def check_options(cls, options: Dict[str, str]) -> None:
        """Read them."""
        _Given(options)

    def convert(self, model: str, folder: str, options: Dict[str, str]) -> List[Dict[str, Any]]:
        """Convert an ONNX file; with sparse=auto both ways, unless no layer has zeros enough."""
        given = _Given(options)
        # With sparse=on, too: only beside the dense file it shows whether any layer became sparse.
        ways = {"auto": ("auto:off", "auto:on"), "on": ("off", "on")}.get(given.sparse, (given.sparse,))
        files: List[Dict[str, Any]] = []
        for sparse in ways:
            file = "sparse.mnn" if _DECIDED[sparse] else "dense.mnn"
            lstm = _convert(model, os.path.join(folder, file), given.flags(sparse), given.lstm)
            files.append({"file": file, "options": {"sparse": sparse, "lstm": lstm}})
        paths = [os.path.join(folder, entry["file"]) for entry in files]
        # Files of one model differ in a random id; that of a model with a sparse layer is smaller.
        alike = len({os.path.getsize(path) for path in paths}) < len(paths)
        if given.sparse == "on":
            os.remove(paths[0])
            return [{**files[1], "options": {**files[1]["options"], "sparse": "on:none"}}] if alike else files[1:]
        if alike:
            os.remove(paths[1])
            files.pop()
        return files

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a converted file. Options: sparse, weights, precision, gelu, winograd, lstm, memory."""
        given = _Given(options.options)
        if options.threads > 1:
            if Mnn._pool_cpus not in (None, options.cpus):
                raise BadOption(
                    "its threads serve all models of a process and stay on the CPUs of the first; "
                    "give --stream-mode processes"
                )
            Mnn._pool_cpus = options.cpus
        import MNN

        self._mnn, self._file = MNN, model
        self._config = given.config(options.threads)
        self._winograd = given.winograd
        self._runtime: Any = MNN.nn.create_runtime_manager((self._config,))
        self._runtime.set_hint(_WINOGRAD, given.winograd)
        self._module: Any = MNN.nn.load_module_from_file(model, [], [], runtime_manager=self._runtime)
        info = self._module.get_info()
        self._input_names: List[str] = list(info["inputNames"])
        self._output_names: List[str] = list(info["outputNames"])
        self._input_types = [port.dtype for port in info["inputs"]]
        return {
            "sparse": given.sparse,
            "weights": given.weights,
            "precision": given.arithmetic,
            "precision_mode": given.precision,
            "gelu": given.gelu,
            "winograd": given.winograd,
            "lstm": given.lstm,
            "memory": given.memory,
            "num_threads": options.threads,
            "file_bytes": os.path.getsize(model),
        }

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """module.onForward on variables that hold copies of the arrays, in the types that MNN computes in."""
        expr = self._mnn.expr
        variables = []
        for name, kind in zip(self._input_names, self._input_types):
            array = _converted(inputs, name, kind)
            variables.append(expr.const(array, list(array.shape), expr.NCHW, kind))
        return functools.partial(self._module.onForward, variables)

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Copies of the outputs, by name; MNN returns none where it fails."""
        import numpy

        if len(returned) != len(self._output_names):
            raise RuntimeError("it converts the model and computes none of its outputs for these inputs")
        expr = self._mnn.expr
        arrays = [expr.convert(variable, expr.NCHW) for variable in returned]
        return {
            name: numpy.array(array.read()).reshape(array.shape) for name, array in zip(self._output_names, arrays)
        }

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each operator takes, by callbacks before and after it in a session of MNN's older interface."""
        self._module = self._runtime = None
        arrays = {name: _converted(inputs, name, kind) for name, kind in zip(self._input_names, self._input_types)}
        interpreter = self._mnn.Interpreter(self._file)
        interpreter.setSessionHint(_WINOGRAD, self._winograd)
        return _measure_layers(self._mnn, interpreter, self._config, arrays, seconds)

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """A module that is converted and loaded in the same way."""
        given = _Given(options.options)
        return _DEPLOYMENT.format(
            note=_UNDECIDED if given.sparse == "auto" else "",
            flags=", ".join(
                '"{}"'.format(flag) for flag in [*given.flags(given.sparse), *_LSTM.get(given.lstm, ())]
            ),
            config=given.config(options.threads),
            hint=_WINOGRAD,
            winograd=given.winograd,
        )


class _Given:
    """The user's options, read once."""

    def __init__(self, given: Dict[str, str]) -> None:
        options = Options(given)
        self.sparse = options.text("sparse", "auto")
        if self.sparse not in _DECIDED:
            raise BadOption("sparse={} is not possible; sparse takes auto, on, off".format(self.sparse))
        self.weights = options.text("weights", "fp32", tuple(_WEIGHTS))
        self.precision = options.text("precision", "high", _MODES)
        self.memory = options.text("memory", "normal", ("high", "normal", "low"))
        self.gelu = options.text("gelu", "exact", ("exact", "approximate"))
        self.lstm = options.text("lstm", "auto", ("auto", *_LSTM))
        # Its largest tiles are about 100 times less exact: two foreign networks missed the tolerance of FP32.
        tiles = "2" if self.precision == "high" else "3"
        self.winograd = int(options.text("winograd", tiles, ("0", "1", "2", "3")))
        options.finish()
        if self.weights != "fp32":
            if self.sparse == "on":
                raise BadOption("sparse=on needs weights=fp32; its sparse kernels have no others on this CPU")
            self.sparse = "off"

    @property
    def arithmetic(self) -> str:
        """The narrowest numbers at work, by which outputs are judged."""
        if self.weights == "int8":
            return "INT8"
        return "FP16" if self.weights == "fp16" or self.precision == "low" else "FP32"

    def flags(self, sparse: str) -> List[str]:
        """What its converter is told."""
        return [
            *("--bizCode", "inferlab"),
            # Left to itself it computes GELU by tanh: faster, and not what the model says.
            *("--useGeluApproximation", str(int(self.gelu == "approximate"))),
            *_WEIGHTS[self.weights],
            *(("--detectSparseSpeedUp", "1") if _DECIDED[sparse] else ()),
        ]

    def config(self, threads: int) -> Dict[str, Any]:
        """What its runtime is told."""
        return {"backend": 0, "numThread": threads, "precision": self.precision, "memory": self.memory}


def _converted(inputs: Dict[str, Any], name: str, kind: Any) -> Any:
    """An input in the type that MNN computes it in: 64-bit integers become 32-bit ones."""
    import numpy

    own = str(kind).rpartition(".")[2]
    if own not in _TYPES:
        raise BadOption("it takes no input of its type {}, which {} has".format(own, name))
    return numpy.require(inputs[name], _TYPES[own], "C")


# The converter, which crashes on some models: it runs in a fork, and what it says tells why it failed.


def _convert(model: str, target: str, flags: Sequence[str], lstm: str) -> str:
    """Convert a model; with lstm="auto" LSTMs stay whole where it fails to take them apart. What they became."""
    arguments = ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", target, *flags]
    for way in tuple(_LSTM) if lstm == "auto" else (lstm,):
        status, text = _in_fork([*arguments, *_LSTM[way]], target)
        if status == 0 and "Converted Success" in text and os.path.isfile(target):
            return way
        _refuse_full_disk(target)
        os.remove(target)
        if "LSTM" not in text and "GRU" not in text:
            break
    sys.stderr.write(text)
    advice = "; give it the FP32 model, and weights=int8 for weights in INT8" if _is_quantised(model) else ""
    raise BadOption(_reason(text, status) + advice)


def _in_fork(arguments: List[str], target: str) -> Tuple[int, str]:
    """Run the converter in a fork, and load what it wrote; gives how it ended, and what it said.

    Not by way of MNN.tools.mnnconvert: importing that installs a package and reports every conversion to a server.
    """
    parent = os.getpid()
    with tempfile.TemporaryFile() as log:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                processes.die_with_parent()
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                if os.getppid() == parent:
                    import _tools
                    import MNN

                    _tools.mnnconvert(arguments)
                    # It says "Converted Success" even where the disk was full.
                    MNN.nn.load_module_from_file(target, [], [])
                    code = 0
            finally:
                os._exit(code)
        status = os.waitpid(process, 0)[1]
        log.seek(0)
        return status, log.read().decode("utf-8", "replace")


def _refuse_full_disk(target: str) -> None:
    """Raise where nothing more can be written to a file: then its end is missing, whatever its converter says."""
    try:
        with open(target, "ab", buffering=0) as file:
            for _ in range(2):  # the first may be written in part
                file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise BadOption(
            "the converted model cannot be written: {}; INFERLAB_CACHE names another folder".format(error.strerror)
        ) from None


def _is_quantised(model: str) -> bool:
    """Whether an ONNX file names operators that quantise."""
    with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"QuantizeLinear") >= 0 or data.find(b"DequantizeLinear") >= 0


def _reason(text: str, status: int) -> str:
    """Why a model cannot be converted, in a sentence."""
    unsupported = _UNSUPPORTED.search(text)
    if unsupported:
        operators = sorted(set(re.findall(r"ONNX::(\w+)", unsupported.group(1))))
        return "its converter does not support {} of this model".format(", ".join(operators))
    if os.WIFSIGNALED(status):
        return "its converter crashes on this model (signal {})".format(os.WTERMSIG(status))
    telling = [
        line for line in text.splitlines() if re.search(r"error|fail|not support|can't|invalid", line, re.I)
    ]
    said = " ".join(" ".join(telling).split())[:_LONGEST_REASON]
    return "its converter cannot convert this model" + (": " + said if said else "")


# What each operator takes in MNN: a session calls back before and after it.

# What its converter and its geometry computation add to the name of the ONNX output that an operator computes.
_ADDED = re.compile(r"(_raster_\d+|__matmul_converted|__before_tr)+$")
_COPY = "Raster"
_HALIDE = {"float32": "Halide_Type_Float", "int32": "Halide_Type_Int", "int64": "Halide_Type_Int64",
           "uint8": "Halide_Type_Uint8", "float64": "Halide_Type_Double"}  # fmt: skip


def _measure_layers(
    mnn: Any, interpreter: Any, config: Dict[str, Any], arrays: Dict[str, Any], seconds: float
) -> Dict[str, Any]:
    """Run a session for a while; of its runs the middle half by their time is averaged."""
    import statistics

    session = interpreter.createSession({**config, "backend": "CPU"})
    copies = _feed(mnn, interpreter, session, arrays)
    clock = time.perf_counter_ns
    runs: List[Tuple[int, List[int]]] = []
    operators: List[Tuple[str, str]] = []
    stamps: List[int] = []

    def before(tensors: Any, operator: Any) -> bool:
        stamps.append(clock())
        return True

    def after(tensors: Any, operator: Any) -> bool:
        stamps.append(clock())
        return True

    def note(tensors: Any, operator: Any) -> bool:
        operators.append((str(operator.getName()), str(operator.getType())))
        return True

    interpreter.runSessionWithCallBackInfo(session, before, note)
    if not operators:
        raise BadOption("it does not tell the times of layers of models with branches or loops")
    end = clock() + int(seconds * 1e9)
    while len(runs) < 2 * WARMUP or (clock() < end and len(runs) < MOST_RUNS):
        # The memory of the inputs is used for other tensors during a run.
        for tensor, copy in copies:
            tensor.copyFrom(copy)
        del stamps[:]
        started = clock()
        interpreter.runSessionWithCallBackInfo(session, before, after)
        wall_ns = clock() - started
        runs.append((wall_ns, [ended - begun for begun, ended in zip(stamps[::2], stamps[1::2])]))
    measured = [run for run in runs[WARMUP:] if len(run[1]) == len(operators)]
    if not measured:
        raise BadOption("it runs other operators at every inference of this model, so their times cannot be told")
    middle = middle_half(measured, lambda run: run[0])
    ns = [statistics.mean(run[1][number] for run in middle) for number in range(len(operators))]
    return {
        "layers": _name_layers(operators, ns),
        "wall_ns": float(statistics.median(run[0] for run in measured)),
        "iterations": len(measured),
        "unnamed": "activation",
    }


def _feed(mnn: Any, interpreter: Any, session: Any, arrays: Dict[str, Any]) -> List[Tuple[Any, Any]]:
    """Give a session its shapes; its inputs, each with what is to be copied into it before every run."""
    tensors = {name: interpreter.getSessionInput(session, name) for name in arrays}
    for name, array in arrays.items():
        interpreter.resizeTensor(tensors[name], tuple(array.shape))
    interpreter.resizeSession(session)
    copies = []
    for name, array in arrays.items():
        kind = getattr(mnn, _HALIDE.get(str(array.dtype), ""), None)
        if kind is None:
            raise BadOption(
                "it does not tell the times of layers of models with inputs of type " + str(array.dtype)
            )
        copies.append((tensors[name], mnn.Tensor(tuple(array.shape), kind, array, mnn.Tensor_DimensionType_Caffe)))
    return copies


def _name_layers(operators: Sequence[Tuple[str, str]], ns: Sequence[float]) -> List[Dict[str, Any]]:
    """Operators are called after the ONNX output that they compute, the copies that serve them too."""
    computed = {_ADDED.sub("", name) for name, kind in operators if kind != _COPY}
    layers = []
    for (name, kind), each_ns in zip(operators, ns):
        output = _ADDED.sub("", name)
        serves = kind == _COPY and output in computed
        layers.append(layer(name, kind, "", [] if serves else [output], each_ns))
    return layers
