"""Graphs that generate with their cache as inputs (past) and outputs (present): their files, ports and runs.

Read by the parent, which tells what a model is, and run by engines.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from .base import CACHE_TYPES, BadOption, Engine, LoadOptions

ENDINGS = (".onnx", ".ort")
_ENCODERS = ("encoder_model", "encoder")
# One graph with both branches, or one that takes a cache of no tokens.
_WHOLE = ("decoder_model_merged", "decoder_merged", "model_merged")
_FIRST = ("decoder_model", "decoder")
_WITH_PAST = ("decoder_with_past_model", "decoder_with_past", "decoder_model_with_past")
_ALONE = ("model", "model_with_past")

_IDS = ("input_ids", "decoder_input_ids")
_LOGITS_TO_KEEP = ("num_logits_to_keep", "logits_to_keep")
_MASKS = ("attention_mask", "decoder_attention_mask")
_BRANCH, _POSITIONS, _HIDDEN, _ENCODER_MASK = (
    "use_cache_branch",
    "position_ids",
    "encoder_hidden_states",
    "encoder_attention_mask",
)
#: What encoders take: token ids, samples of sound, or frames of features.
TAKES = {
    "input_ids": "tokens",
    "input_values": "samples",
    "audio": "samples",
    "input_features": "features",
}


class BadGraph(Exception):
    """Files or a graph that cannot generate: a clause that says why."""


class Port(NamedTuple):
    """An input or output: its dims are sizes, or None where they are open."""

    name: str
    dtype: str
    dims: Sequence[Optional[Union[int, str]]]


class Parts(NamedTuple):
    """The files of a model: `decoder` alone or with one for later steps; an encoder if it has one."""

    decoder: str
    with_past: Optional[str]
    encoder: Optional[str]

    def files(self) -> List[str]:
        """All of them."""
        return [file for file in (self.encoder, self.decoder, self.with_past) if file]


class Past(NamedTuple):
    """A part of the cache: the input it comes in by, the output it leaves by, whether it is the encoder's."""

    input: str
    output: str
    cross: bool
    dtype: str
    heads: int
    size: int


class Decoder(NamedTuple):
    """What the ports of a decoder mean."""

    ids: Port
    logits: Port
    #: Of its inputs; empty for the first of two graphs.
    past: List[Past]
    #: Of its outputs: by the names of the inputs that they are for.
    present: Dict[str, str]
    mask: Optional[Port]
    positions: Optional[Port]
    branch: Optional[Port]
    hidden: Optional[Port]
    encoder_mask: Optional[Port]
    keep: Optional[Port]

    @property
    def one_by_one(self) -> bool:
        """Whether a call takes one token of each sequence at most."""
        return len(self.ids.dims) > 1 and self.ids.dims[1] == 1


class Encoder(NamedTuple):
    """What the ports of an encoder mean."""

    input: Port
    mask: Optional[Port]
    hidden: Port


def looks_generative(folder: str) -> bool:
    """Whether a folder has files of a decoder, or of an encoder whose decoder is missing."""
    stems = {os.path.splitext(name)[0] for name in _names(_home(folder))}
    return bool(stems.intersection((*_WHOLE, *_FIRST, *_WITH_PAST, *_ENCODERS)))


def find_parts(path: str) -> Parts:
    """The files of a model that is a file or a folder."""
    if not os.path.isdir(path):
        return Parts(path, None, None)
    folder = _home(path)
    names = _names(folder)

    def first(stems: Sequence[str]) -> Optional[str]:
        return next(
            (
                os.path.join(folder, stem + ending)
                for stem in stems
                for ending in ENDINGS
                if stem + ending in names
            ),
            None,
        )

    encoder, whole, with_past = first(_ENCODERS), first(_WHOLE), first(_WITH_PAST)
    if whole:
        return Parts(whole, None, encoder)
    start = first(_FIRST)
    if start and with_past:
        return Parts(start, with_past, encoder)
    if with_past:
        raise BadGraph(
            "the folder has {} without the decoder for the first token ({}.onnx)".format(
                os.path.basename(with_past), _FIRST[0]
            )
        )
    alone = start or first(_ALONE) or (os.path.join(folder, names[0]) if len(names) == 1 else None)
    if alone and alone != encoder:
        return Parts(alone, None, encoder)
    raise BadGraph(
        "the folder has no decoder: {}.onnx, or {}.onnx with {}.onnx".format(_WHOLE[0], _FIRST[0], _WITH_PAST[0])
    )


def _home(folder: str) -> str:
    """Where the graphs of a folder are: some keep them in a folder `onnx` beside the configuration."""
    inner = os.path.join(folder, "onnx")
    return inner if not _names(folder) and os.path.isdir(inner) else folder


def _names(folder: str) -> List[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.lower().endswith(ENDINGS))
    except OSError:
        return []


def read_decoder(inputs: Sequence[Port], outputs: Sequence[Port], file: str) -> Decoder:
    """What the ports of a decoder are; refuses a graph that does not generate, or inputs that nobody knows."""
    given = {port.name: port for port in inputs}
    left = {port.name: port for port in outputs}
    ids = next((given[name] for name in _IDS if name in given), None)
    if ids is None:
        raise BadGraph("{} has no input input_ids".format(file))
    logits = left.get("logits")
    if logits is None or len(logits.dims) != 3:
        raise BadGraph("{} has no output logits of three dimensions".format(file))
    past = [_past(port, left, file) for port in inputs if port.name.startswith("past")]
    present = {part.input: part.output for part in past}
    if not past:
        present = {_past_name(name): name for name in left if name.startswith(("present", "past"))}
    known = {ids.name, *present, _BRANCH, _POSITIONS, _HIDDEN, _ENCODER_MASK, *_LOGITS_TO_KEEP, *_MASKS}
    for name in given:
        if name not in known:
            raise BadGraph("{} has an input '{}' that inferlab does not know".format(file, name))
    if not present:
        raise BadGraph(
            "{} has no past inputs and no present outputs, so it has no cache to decode with".format(file)
        )
    return Decoder(
        ids,
        logits,
        past,
        present,
        next((given[name] for name in _MASKS if name in given), None),
        given.get(_POSITIONS),
        given.get(_BRANCH),
        given.get(_HIDDEN),
        given.get(_ENCODER_MASK),
        next((given[name] for name in _LOGITS_TO_KEEP if name in given), None),
    )


def with_head_size(ports: Sequence[Port], size: Optional[int]) -> List[Port]:
    """Ports whose caches have heads of this size where the graph leaves it open."""
    return [
        port._replace(dims=[*port.dims[:3], size])
        if port.name.startswith("past") and len(port.dims) == 4 and not isinstance(port.dims[3], int)
        else port
        for port in ports
    ]


def _past(port: Port, outputs: Dict[str, Port], file: str) -> Past:
    names = [
        port.name.replace("past_key_values", "present"),
        port.name.replace("past_key_values", "present_key_values"),
        port.name.replace("past", "present"),
    ]
    cross = ".encoder." in port.name or "cross" in port.name
    output = next((name for name in names if name in outputs), "")
    # The branch behind the first token may have no output for what does not change.
    if not output and not cross:
        raise BadGraph("{} has an input {} without its output {}".format(file, port.name, names[0]))
    heads, size = (port.dims[1], port.dims[3]) if len(port.dims) == 4 else (None, None)
    if not isinstance(heads, int) or not isinstance(size, int):
        raise BadGraph(
            "{} has an input {} of shape {}; it needs [batch, heads, past, size] with a fixed number and size of "
            "heads".format(file, port.name, list(port.dims))
        )
    return Past(port.name, output, cross, port.dtype, heads, size)


def _past_name(output: str) -> str:
    """The input that an output of the first graph is for."""
    return output.replace("present_key_values", "past_key_values").replace("present", "past_key_values", 1)


def read_encoder(inputs: Sequence[Port], outputs: Sequence[Port], file: str) -> Encoder:
    """What the ports of an encoder are."""
    main = next((port for port in inputs if port.name in TAKES), None)
    if main is None:
        raise BadGraph(
            "{} takes neither input_ids nor input_values nor input_features, but {}".format(
                file, ", ".join(port.name for port in inputs) or "nothing"
            )
        )
    mask = None
    for port in inputs:
        if port.name == "attention_mask":
            mask = port
        elif port is not main:
            raise BadGraph("{} has an input '{}' that inferlab does not know".format(file, port.name))
    if not outputs or len(outputs[0].dims) != 3:
        raise BadGraph("{} has no output of three dimensions for its decoder".format(file))
    return Encoder(main, mask, outputs[0])


def check_together(decoder: Decoder, with_past: Optional[Decoder], encoder: Optional[Encoder], file: str) -> None:
    """Refuse graphs that do not fit together: without an encoder, or with a cache that nobody fills."""
    if decoder.hidden is not None and encoder is None:
        raise BadGraph(
            "{} reads the output of an encoder, and there is none: give the folder with encoder_model.onnx".format(
                file
            )
        )
    if encoder is not None and decoder.hidden is None and with_past is not None and with_past.hidden is None:
        raise BadGraph("{} does not read what the encoder beside it gives".format(file))
    if not decoder.past and with_past is None:
        raise BadGraph(
            "{} gives its cache, but takes none: the decoder for the tokens behind the first "
            "(decoder_with_past_model.onnx) is missing".format(file)
        )
    for part in (with_past or decoder).past:
        if part.input not in decoder.present or not decoder.present[part.input]:
            raise BadGraph("{} gives no output for {}".format(file, part.input))


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

    #: What settings call it.
    form = "past and present"

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
        self.kv_dtype = CACHE_TYPES.get(self._later.past[0].dtype, "")
        #: Whether several tokens behind a cache are computed in one call; None where that was never needed.
        self.together: Optional[bool] = None if self._branched else True
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

    def _computes_together(self, tokens: Any) -> bool:
        """Whether the branch with a cache is right for several tokens at once, which many exports are not."""
        if self.together is None:
            self.together = not self._later.one_by_one and self._chunks_agree(tokens)
        return self.together

    def _chunks_agree(self, tokens: Any) -> bool:
        import numpy

        before = dict(self._cache), self._length
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
            self._cache, self._length = before

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
        for part in ports.past:
            if part.input in self._cache and not first:
                values[part.input] = self._cache[part.input]
            else:
                arrays[part.input] = self._nothing(part, rows)
        taken = [
            (name, output)
            for name, output in ports.present.items()
            if output and (first or not self._is_cross(name))
        ]
        returned = graph.run(arrays, values, [ports.logits.name, *(output for _, output in taken)], first)
        self._cache.update(zip((name for name, _ in taken), returned[1:]))
        self._length += count
        return graph.view(returned[0])[:, -1]

    def _is_cross(self, name: str) -> bool:
        return any(part.cross and part.input == name for part in self._later.past)

    @staticmethod
    def _nothing(part: Past, rows: int) -> Any:
        import numpy

        return numpy.zeros((rows, part.heads, 0, part.size), part.dtype)

    def cache_bytes(self) -> Optional[int]:
        """What the keys and values of the decoder's own tokens take; those of the encoder are not counted."""
        if not self._cache:
            return None
        own = [value for name, value in self._cache.items() if not self._is_cross(name)]
        return sum(int(self._decoder.view(value).nbytes) for value in own)


class PastPresentEngine(Engine):
    """The part of an engine that generates: greedy; with `cache=0` all is computed at each step."""

    capabilities = frozenset({"generation", "encoder"})
    _state: PastPresent
    _caches = True
    _logits: Any
    _settings: Dict[str, Any]

    def _open_graphs(
        self, model: str, options: LoadOptions, open_graph: Callable[[str, bool], Graph]
    ) -> PastPresent:
        """The graphs of a model; `open_graph` gets a file, and whether it runs token after token."""
        try:
            parts = find_parts(model)
        except BadGraph as error:
            raise BadOption("{}: {}".format(os.path.basename(model), error)) from None
        stepping = parts.with_past or parts.decoder
        graphs = {file: open_graph(file, file == stepping) for file in parts.files()}
        decoder, with_past = graphs[parts.decoder], graphs.get(parts.with_past or "")
        encoder = graphs.get(parts.encoder or "")
        files = [file for file in (parts.decoder, parts.with_past, parts.encoder) if file]
        state = PastPresent(decoder, with_past, encoder, files)
        if encoder is not None:
            self.take_start_tokens(options)
        return state

    def _generate_with(self, state: PastPresent, caches: bool, settings: Dict[str, Any]) -> Dict[str, Any]:
        """Generate with these graphs from now on; the settings in force."""
        self._state, self._caches = state, caches
        cache = {"kv_dtype": state.kv_dtype, "cache": state.form if caches else "none"}
        self._settings = {**settings, **cache}
        return self._settings

    def begin(self, context: Any) -> None:
        """Fill an empty cache."""
        self.refuse_context(context)
        self._state.clear()
        self._context = self._seen = context
        if context.shape[1] and self._caches:
            self._state.forward(context)
            self._state.keep()

    def rewind(self, depth: int) -> bool:
        """Go back to the context."""
        self._seen = self._context
        if depth == 0 or not self._caches:
            self._state.clear()
            return True
        return self._state.restore(depth)

    def encode(self, inputs: Any) -> None:
        """Run the encoder."""
        self._state.encode(inputs)

    def decode(self, tokens: Any) -> Any:
        """Run the decoder, or the step behind it."""
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
        if self._state.together is False:
            self._settings["prompt_behind_cache"] = "token by token"
        return self._state.cache_bytes() if self._caches else None
