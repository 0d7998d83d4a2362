"""Generating with graphs that take their cache as inputs and give it back as outputs, on any engine."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Sequence

from ..past_present import (
    BadGraph,
    Decoder,
    Encoder,
    Past,
    Port,
    check_together,
    find_parts,
    read_decoder,
    read_encoder,
)
from .base import BadOption

_CACHE_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
# How far logits of the same tokens may differ that were computed in another order, in standard deviations.
_SAME = 0.05


class Graph:
    """A graph that an engine has loaded. A value is what the engine hands from one call to the next."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]

    def run(self, arrays: Dict[str, Any], values: Dict[str, Any], wanted: Sequence[str], first: bool) -> List[Any]:
        """The wanted outputs as values; those of the last call must outlive this one, of a first call the next."""
        raise NotImplementedError

    def view(self, value: Any) -> Any:
        """A value as an array, without a copy where that is possible."""
        raise NotImplementedError

    def lasting(self, value: Any) -> Any:
        """A value that outlives all calls."""
        return value


class PastPresent:
    """The cache of one batch of sequences: what the decoder gave is what it takes next, and nothing is copied."""

    def __init__(
        self, decoder: Graph, with_past: Optional[Graph], encoder: Optional[Graph], files: Sequence[str]
    ) -> None:
        names = [os.path.basename(file) for file in files]
        self._decoder, self._with_past, self._encoder = decoder, with_past or decoder, encoder
        self._first = read_decoder(decoder.inputs, decoder.outputs, names[0])
        later = read_decoder(with_past.inputs, with_past.outputs, names[1]) if with_past else None
        self._later: Decoder = later or self._first
        self._encoder_ports: Optional[Encoder] = None
        if encoder is not None:
            self._encoder_ports = read_encoder(encoder.inputs, encoder.outputs, names[-1])
        check_together(self._first, later, self._encoder_ports, names[0])
        #: The step behind the first is a graph or a branch of its own.
        self._branched = with_past is not None or self._first.branch is not None
        self.kv_dtype = _CACHE_TYPES.get(self._later.past[0].dtype, "")
        #: How a prompt behind a cache that is not empty is computed; known once there was one.
        self._together: Optional[bool] = None if self._branched else True
        self._hidden: Any = None
        self._encoder_mask: Any = None
        self._kept: Optional[Dict[str, Any]] = None
        self._kept_length = 0
        self.clear()

    def clear(self) -> None:
        """Forget all tokens, and what the encoder gave."""
        self._cache: Dict[str, Any] = {}
        self._length = 0

    def keep(self) -> None:
        """Remember the cache as it is."""
        self._kept = {name: self._decoder.lasting(value) for name, value in self._cache.items()}
        self._kept_length = self._length
        self._cache = dict(self._kept)

    def restore(self, depth: int) -> bool:
        """Go back to the cache that was remembered, if it has so many tokens."""
        if self._kept is None or self._kept_length != depth:
            return False
        self._cache, self._length = dict(self._kept), depth
        return True

    def encode(self, inputs: Any) -> None:
        """Run the encoder; the decoder begins again behind it."""
        import numpy

        assert self._encoder is not None and self._encoder_ports is not None
        ports = self._encoder_ports
        if len(ports.input.dims) != inputs.ndim:
            raise BadOption(
                "its encoder takes an input of {} dimensions, not {}".format(len(ports.input.dims), inputs.ndim)
            )
        arrays = {ports.input.name: numpy.ascontiguousarray(inputs, ports.input.dtype)}
        # Of sound as long as its samples, though the encoder gives fewer frames: the decoder counts them.
        ones = numpy.ones((inputs.shape[0], inputs.shape[-1]), numpy.int64)
        if ports.mask is not None:
            arrays[ports.mask.name] = ones.astype(ports.mask.dtype, copy=False)
        (self._hidden,) = self._encoder.run(arrays, {}, [ports.hidden.name], True)
        self._encoder_mask = ones
        if ports.input.name == "input_features":
            self._encoder_mask = numpy.ones(self._encoder.view(self._hidden).shape[:2], numpy.int64)
        self.clear()

    def forward(self, tokens: Any) -> Any:
        """Compute tokens [sequence, position] behind those in the cache; the logits of the last [sequence, id]."""
        if self._length and tokens.shape[1] > 1 and not self._computes_together(tokens):
            for place in range(tokens.shape[1]):
                logits = self._call(tokens[:, place : place + 1])
            return logits
        return self._call(tokens)

    @property
    def together(self) -> Optional[bool]:
        """Whether several tokens behind a cache are computed in one call; None where that was never needed."""
        return self._together

    def _computes_together(self, tokens: Any) -> bool:
        """Whether the branch with a cache is right for several tokens at once, which many exports are not."""
        if self._together is None:
            self._together = not self._later.one_by_one and self._chunks_agree(tokens)
        return self._together

    def _chunks_agree(self, tokens: Any) -> bool:
        import numpy

        kept = dict(self._cache), self._length
        sample = numpy.tile(tokens, (1, 4))[:, :5]
        try:
            self.clear()
            whole = numpy.array(self._call(sample))
            self.clear()
            self._call(sample[:, :2])
            parts = numpy.array(self._call(sample[:, 2:]))
            return bool(numpy.abs(whole - parts).max() < _SAME * whole.std())
        except Exception:  # whatever the engine raises where the graph has no such shape
            return False
        finally:
            self._cache, self._length = kept

    def _call(self, tokens: Any) -> Any:
        import numpy

        first = self._length == 0
        graph, ports = (self._decoder, self._first) if first else (self._with_past, self._later)
        rows, count = tokens.shape
        arrays = {ports.ids.name: numpy.ascontiguousarray(tokens, ports.ids.dtype)}
        if ports.mask is not None:
            arrays[ports.mask.name] = numpy.ones((rows, self._length + count), ports.mask.dtype)
        if ports.positions is not None:
            places = numpy.arange(self._length, self._length + count, dtype=ports.positions.dtype)
            arrays[ports.positions.name] = numpy.tile(places, (rows, 1))
        if ports.branch is not None:
            shape = [size if isinstance(size, int) else 1 for size in ports.branch.dims]
            arrays[ports.branch.name] = numpy.full(shape, not first, numpy.bool_)
        if ports.keep is not None:
            arrays[ports.keep.name] = numpy.full([1] * len(ports.keep.dims), 1, ports.keep.dtype)
        if ports.encoder_mask is not None:
            arrays[ports.encoder_mask.name] = self._encoder_mask.astype(ports.encoder_mask.dtype, copy=False)
        values: Dict[str, Any] = {}
        if ports.hidden is not None:
            values[ports.hidden.name] = self._hidden
        for one in ports.past:
            if one.input in self._cache and not first:
                values[one.input] = self._cache[one.input]
            else:
                arrays[one.input] = self._nothing(one, rows)
        taken = [
            (name, output)
            for name, output in ports.present.items()
            if output and (first or not self._is_cross(name))
        ]
        found = graph.run(arrays, values, [ports.logits.name, *(output for _, output in taken)], first)
        self._cache.update(zip((name for name, _ in taken), found[1:]))
        self._length += count
        return graph.view(found[0])[:, -1]

    def _is_cross(self, name: str) -> bool:
        return any(one.cross and one.input == name for one in self._later.past)

    @staticmethod
    def _nothing(one: Past, rows: int) -> Any:
        import numpy

        return numpy.zeros((rows, one.heads, 0, one.size), one.dtype)

    def cache_bytes(self) -> Optional[int]:
        """What the keys and values of the decoder's own tokens take; those of the encoder are not counted."""
        if not self._cache:
            return None
        own = [value for name, value in self._cache.items() if not self._is_cross(name)]
        return sum(int(self._decoder.view(value).nbytes) for value in own)


class PastPresentEngine:
    """The part of an engine that generates: greedy; with `cache=0` all is computed at each step."""

    _state: PastPresent
    _caches = True
    _start: Any
    _encoded_ns: Optional[int] = None
    _has_encoder = False
    _logits: Any
    _settings: Dict[str, Any]

    def _set_up(
        self, state: PastPresent, has_encoder: bool, start_tokens: Sequence[int], rows: int, caches: bool
    ) -> Dict[str, Any]:
        import numpy

        self._state, self._has_encoder, self._caches = state, has_encoder, caches
        if has_encoder and not start_tokens:
            raise BadOption("an encoder–decoder needs the tokens that its decoder begins with")
        self._start = numpy.tile(numpy.array(start_tokens, numpy.int64), (rows, 1))
        return {"kv_dtype": state.kv_dtype, "cache": "past and present" if caches else "none"}

    def begin(self, context: Any) -> None:
        """Fill an empty cache."""
        self._state.clear()
        self._context = self._seen = context
        if self._has_encoder:
            if context.shape[1]:
                raise BadOption("an encoder–decoder has no tokens before its prompt")
            return
        if context.shape[1] and self._caches:
            self._state.forward(context)
            self._state.keep()

    def rewind(self, depth: int) -> bool:
        """Go back to the context."""
        self._seen = self._context
        if depth == 0 or self._has_encoder or not self._caches:
            self._state.clear()
            return True
        return self._state.restore(depth)

    def prefill(self, prompts: Any) -> Any:
        """The most likely token behind each prompt; of an encoder's prompt the first one."""
        if not self._has_encoder:
            return self._chosen(prompts)
        self._state.encode(prompts)
        self._encoded_ns = time.perf_counter_ns()
        return self._chosen(self._start)

    def encoded_ns(self) -> Optional[int]:
        """When the encoder was done."""
        return self._encoded_ns

    def step(self, tokens: Any) -> Any:
        """The most likely tokens behind these."""
        return self._chosen(tokens[:, None])

    def _chosen(self, tokens: Any) -> Any:
        import numpy

        if not self._caches:
            self._seen = tokens = numpy.concatenate([self._seen, tokens], axis=1)
            self._state.clear()
        self._logits = self._state.forward(tokens)
        return self._logits.argmax(-1)

    def logits(self) -> Any:
        """Those of the last call."""
        return self._logits.astype("float32")

    def cache_bytes(self) -> Optional[int]:
        """What the tensors of keys and values take."""
        if self._state.together is not None and self._state.together is False:
            self._settings["prompt_behind_cache"] = "token by token"
        return self._state.cache_bytes() if self._caches else None


def find_files(model: str) -> Any:
    """The files of a model; a sentence where one is missing."""
    try:
        return find_parts(model)
    except BadGraph as error:
        raise BadOption("{}: {}".format(os.path.basename(model), error)) from None
