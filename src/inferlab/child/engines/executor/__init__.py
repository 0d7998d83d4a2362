"""Intel's Neural Engine (intel-extension-for-transformers 1.4), for BERTs; in an environment of its own."""

from __future__ import annotations

import functools
import os
import tempfile
from typing import Any, Callable, Dict, List

from ...processes import in_fork
from ..base import BadOption, Engine, LoadOptions, Options
from .graph import rewrite

# Variables of the user's that would make it share weights, lay out memory otherwise, or write profiles into the
# working directory.
_VARIABLES = (
    "ENGINE_PROFILING",
    "ENGINE_ACTIVATION_MEM_COMPRESSION",
    "ENGINE_PRIMITIVE_CACHE_OFF",
    "INST_NUM",
    "WEIGHT_SHARING",
)
_PACKAGE = "intel_extension_for_transformers"
# What its compiler makes of a BERT that it understands. Anything else is a part that it did not recognise, and
# raises, aborts or goes wrong when it runs.
_FUSED = frozenset({
    "Gather", "InnerProduct", "Input", "LayerNorm", "Matmul", "Output", "PaddingSequence", "Quantize", "Reshape",
    "Softmax", "StridedSlice",
})  # fmt: skip


class Executor(Engine):
    """One model of the Neural Engine; its inputs are 32-bit integers in its own order."""

    capabilities = frozenset({"process_streams"})
    kinds = frozenset({"onnx"})
    packages = ("intel-extension-for-transformers",)

    _loaded = False

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Compile a rewritten copy of the model into a folder beside it, and load it from there; no options.

        The model is a copy, in a folder that is removed even if the engine aborts. The native library is
        imported here, not in `prepare`: it counts its threads when it is imported.
        """
        Options(options.options).finish()
        if Executor._loaded or options.streams > 1:
            raise BadOption("it serves one stream in each process; give --stream-mode processes")
        for name in _VARIABLES:
            os.environ.pop(name, None)
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        self._folder = tempfile.TemporaryDirectory(prefix="compiled-", dir=os.path.dirname(model))
        try:
            compile_here = functools.partial(compile_model, model, options.shapes, self._folder.name)
            compiled = in_fork(compile_here, "its compiler cannot compile the model")
            from intel_extension_for_transformers import neural_engine_py

            paths = [os.path.join(self._folder.name, name) for name in ("conf.yaml", "model.bin")]
            self._model = neural_engine_py.Model(*paths)
        except BaseException:
            self.close()
            raise
        Executor._loaded = True
        self._inputs: List[str] = compiled["inputs"]
        self._output: str = compiled["output"]
        self._tokens: List[int] = compiled["tokens"]
        return {
            "onnx_file": model,
            "num_threads": options.threads,
            "graph_rewritten": 1,
            "input_order": ", ".join(self._inputs),
            "gelu": compiled["gelu"],
            "operators": compiled["operators"],
        }

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """The native call, on arrays in the order that it takes them; it converts wider integers at every call."""
        import numpy

        arrays = [numpy.require(inputs[name], numpy.int32, "C") for name in self._inputs]
        return functools.partial(self._model.forward, arrays)

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """A copy of the output, in the model's shape: what the call returned is the engine's own buffer."""
        import numpy

        array = numpy.array(returned[0], copy=True)
        return {self._output: array.reshape(*self._tokens, -1) if self._tokens else array}

    def close(self) -> None:
        """Remove the compiled model."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def compile_model(model: str, shapes: Dict[str, List[int]], folder: str) -> Dict[str, Any]:
    """Compile a model file into a folder, without the native library, and say what was made of it."""
    import onnx

    graph = onnx.load(model)
    bert = rewrite(graph)
    length = shapes[bert.inputs[0]][1]
    if bert.positions is not None and length > bert.positions:
        raise BadOption(
            "a sequence of {} does not fit into the model's table of {} positions".format(length, bert.positions)
        )
    compiled = _compiler().compile(graph)
    strange = sorted({node.op_type for node in compiled.nodes} - _FUSED)
    if strange:
        raise BadOption("its compiler does not understand the model: {} is left over".format(", ".join(strange)))
    names = [input_tensor.name.split(":")[0] for input_tensor in compiled.nodes[-1].input_tensors]
    if names != [bert.output]:
        raise BadOption(
            "its compiler makes the output {} of the model's {}".format(", ".join(names) or "none", bert.output)
        )
    compiled.save(folder)
    return {
        "inputs": bert.inputs,
        "output": bert.output,
        "tokens": shapes[bert.inputs[0]] if bert.per_token else [],
        "gelu": "tanh" if bert.gelu else "none",
        "operators": len(compiled.nodes) - 2,
    }


def _compiler() -> Any:
    """Its compiler, without the rest of the package, which needs PyTorch and much else."""
    import importlib
    import sys
    import types

    os.environ["LOGLEVEL"] = "ERROR"
    package = importlib.import_module(_PACKAGE)
    bare = types.ModuleType(_PACKAGE + ".transformers")
    bare.__path__ = [os.path.join(package.__path__[0], "transformers")]
    sys.modules[bare.__name__] = bare
    return importlib.import_module(bare.__name__ + ".runtime.compile")
