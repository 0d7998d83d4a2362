"""ONNX Runtime generates with graphs that take their cache as inputs; it stays in the engine's memory."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Optional, Sequence

from ..past_present import Port, with_head_size
from .base import BadOption, LoadOptions, Options
from .onnxruntime import OnnxRuntime
from .onnxruntime_genai import read_config
from .past_present import Graph, PastPresent, PastPresentEngine, find_files

_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
# Of this session only: its workers spin on the CPUs that the other sessions of the model compute on.
_STOP_SPINNING = "session.force_spinning_stop"


class OnnxRuntimeGenerator(PastPresentEngine, OnnxRuntime):
    """Sessions for the decoder, and the encoder if there is one; bound outputs are the next call's inputs."""

    kinds = frozenset({"onnx", "ort", "onnxruntime-genai"})
    capabilities = frozenset({"generation", "encoder"})

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: cache, and those of onnxruntime but io_binding."""
        given = Options({"cache": options.options.get("cache", "1")})
        caches = given.flag("cache", True)
        others = {key: value for key, value in options.options.items() if key != "cache"}
        if "io_binding" in others:
            raise BadOption("a cache is always bound when tokens are generated; leave io_binding out")
        options = options._replace(options=others)
        head_size = None
        if options.kind == "onnxruntime-genai":
            decoder_config = read_config(model)["model"]["decoder"]
            model, head_size = os.path.join(model, decoder_config["filename"]), decoder_config.get("head_size")
        parts = find_files(model)
        graphs = {}
        for file in parts.files():
            # The session that runs token after token, the last one, keeps its workers awake.
            alone = file == (parts.with_past or parts.decoder)
            told = OnnxRuntime.load(self, file, options if alone else _without_spinning(options))
            graphs[file] = _Session(self._module, self._session, head_size)
        decoder, with_past = graphs[parts.decoder], graphs.get(parts.with_past or "")
        encoder = graphs.get(parts.encoder or "")
        files = [one for one in (parts.decoder, parts.with_past, parts.encoder) if one]
        state = PastPresent(decoder, with_past, encoder, files)
        told.pop("io_binding")
        self._settings = {
            **told,
            **self._set_up(state, encoder is not None, options.start_tokens, options.batch_size, caches),
        }
        return self._settings

    def close(self) -> None:
        """Let the sessions go."""


def _without_spinning(options: LoadOptions) -> LoadOptions:
    return options._replace(options={_STOP_SPINNING: "1", **options.options})


class _Session(Graph):
    def __init__(self, module: Any, session: Any, head_size: Optional[int]) -> None:
        self._module, self._session = module, session
        self.inputs = with_head_size([_port(one) for one in session.get_inputs()], head_size)
        self.outputs = [_port(output) for output in session.get_outputs()]

    def run(self, arrays: Dict[str, Any], values: Dict[str, Any], wanted: Sequence[str], first: bool) -> List[Any]:
        """Bind, run, and take the outputs as they lie in the session's memory."""
        binding = self._session.io_binding()
        make = self._module.OrtValue.ortvalue_from_numpy
        # An OrtValue refers to its array, which must live until the call is done.
        kept = {name: make(array) for name, array in arrays.items()}
        for name, value in kept.items():
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

        dtype, shape = numpy.dtype(_TYPES[value.data_type()]), value.shape()
        size = dtype.itemsize
        for dim in shape:
            size *= dim
        if not size:
            return numpy.zeros(shape, dtype)
        memory: Any = (ctypes.c_char * size).from_address(value.data_ptr())
        memory.kept = value
        return numpy.frombuffer(memory, dtype).reshape(shape)


def _port(one: Any) -> Port:
    return Port(one.name, _TYPES.get(one.type, one.type), list(one.shape))
