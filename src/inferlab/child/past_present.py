"""Graphs that generate with their cache as inputs (past) and outputs (present): their files and ports.

Read by the parent, which tells what a model is, and by engines, which run it.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Union

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
        return [one for one in (self.encoder, self.decoder, self.with_past) if one]


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
    present = {one.input: one.output for one in past}
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
    for one in (with_past or decoder).past:
        if one.input not in decoder.present or not decoder.present[one.input]:
            raise BadGraph("{} gives no output for {}".format(file, one.input))
