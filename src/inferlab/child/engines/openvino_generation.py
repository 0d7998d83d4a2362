"""OpenVINO generates with graphs that take their cache as inputs: what another request gave as outputs."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence

from ..past_present import Port
from .base import BadOption, LoadOptions, Options
from .openvino import OpenVino
from .past_present import Graph, PastPresent, PastPresentEngine, find_files

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
    capabilities = frozenset({"generation", "encoder"})

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: cache, and those of openvino but dynamic."""
        given = Options({key: value for key, value in options.options.items() if not key.isupper()})
        caches = given.flag("cache", True)
        wanted, limit = self._properties(given, options)
        given.finish()
        self._start_up(wanted, limit)
        core, module = self._module.Core(), self._module
        if options.kind == "openvino-genai":
            compiled = core.compile_model(os.path.join(model, _STATEFUL), "CPU", wanted)
            self._settings = {
                **self._in_force(compiled, wanted, limit),
                **self._set_up(_Stateful(compiled), False, (), options.batch_size, caches),  # type: ignore[arg-type]
                **({"cache": "state"} if caches else {}),
            }
            return self._settings
        parts = find_files(model)
        graphs = {file: _Compiled(module, core.compile_model(file, "CPU", wanted)) for file in parts.files()}
        decoder, with_past = graphs[parts.decoder], graphs.get(parts.with_past or "")
        encoder = graphs.get(parts.encoder or "")
        files = [one for one in (parts.decoder, parts.with_past, parts.encoder) if one]
        state = PastPresent(decoder, with_past, encoder, files)
        self._settings = {
            **self._in_force(decoder.compiled, wanted, limit),
            **self._set_up(state, encoder is not None, options.start_tokens, options.batch_size, caches),
        }
        return self._settings


class _Stateful:
    """A graph that keeps the cache of one batch of sequences itself; does what `PastPresent` does."""

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
        self.inputs = [_port(one) for one in compiled.inputs]
        self.outputs = [_port(output) for output in compiled.outputs]
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
        kept = {name: self._tensor(array) for name, array in arrays.items()}
        for name, tensor in kept.items():
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


def _port(port: Any) -> Port:
    dims = [int(dim.get_length()) if dim.is_static else None for dim in port.partial_shape]
    kind = port.element_type.get_type_name()
    return Port(port.get_any_name(), _TYPES.get(kind, kind), dims)
