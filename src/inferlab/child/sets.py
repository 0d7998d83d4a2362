"""Several sets of inputs, with or without labels, as one message's arrays."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import protocol

Arrays = Dict[str, Any]


def pack(sets: Sequence[Mapping[str, Any]], labels: Optional[Sequence[Any]]) -> Tuple[Dict[str, Any], List[Any]]:
    """A message's arguments, and the bytes that go with it."""
    arrays: Arrays = {}
    for number, one in enumerate(sets):
        arrays.update({"{}/{}".format(number, name): value for name, value in one.items()})
        if labels is not None:
            arrays[str(number)] = labels[number]
    heads, blocks = protocol.pack_arrays(arrays)
    return {"sets": len(sets), "labelled": labels is not None, "arrays": heads}, blocks


def unpack(arguments: Mapping[str, Any], blocks: Sequence[bytes]) -> Tuple[List[Arrays], Optional[List[Any]]]:
    """The sets and labels that `pack` took."""
    sets: List[Arrays] = [{} for _ in range(arguments["sets"])]
    labels: List[Any] = [None] * arguments["sets"]
    for key, value in protocol.unpack_arrays(arguments["arrays"], blocks).items():
        number, _, name = key.partition("/")
        if name:
            sets[int(number)][name] = value
        else:
            labels[int(number)] = value
    return sets, labels if arguments["labelled"] else None
