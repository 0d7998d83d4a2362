"""What an OpenVINO IR says of its weights and of the states that it keeps; read without OpenVINO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from inferlab.errors import BadInput
from inferlab.model.confined import confined

# Constants of these types are shapes, axes and switches.
_NO_WEIGHTS = frozenset({"i64", "i32", "u64", "u32", "boolean", "string"})
_STATE_RANK = 4


@dataclass(frozen=True, slots=True)
class Ir:
    """The weights of a graph, and its states of keys or values."""

    #: The type, the parameters and the bytes of every tensor.
    tensors: tuple[tuple[str, int, int], ...]
    #: Of each state of keys or of values: its heads and the size of a head.
    states: tuple[tuple[int, int], ...]


@confined(reads=["path"])
def read_ir(path: Path) -> Ir:
    """Read an IR's XML; each constant must lie within the file of weights beside it."""
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise BadInput(f"{path} lacks its weights: there is no {weights.name} beside it.")
    whole = weights.stat().st_size
    tensors, states = [], []
    try:
        for _, layer in ElementTree.iterparse(path):  # noqa: S314  # confined, and expat limits entities
            if layer.tag != "layer":
                continue
            data = layer.find("data")
            if data is not None and layer.get("type") == "Const":
                size_bytes = int(data.attrib["size"])
                if not 0 <= int(data.attrib["offset"]) <= whole - size_bytes <= whole:
                    raise BadInput(
                        f"{weights} is cut off: it has {whole} bytes, and {path.name} names more. Copy it again."
                    )
                dims, kind = _dims(data.attrib["shape"]), data.attrib["element_type"]
                if dims and kind not in _NO_WEIGHTS:
                    tensors.append((kind.upper(), math.prod(dims), size_bytes))
            if data is not None and layer.get("type") == "ReadValue":
                dims = _dims(data.attrib.get("variable_shape", ""))
                if len(dims) == _STATE_RANK and dims[1] > 0 and dims[3] > 0:
                    states.append((dims[1], dims[3]))
            layer.clear()
    except BadInput:
        raise
    except (ElementTree.ParseError, OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} cannot be read: it is cut off or damaged ({error}).") from error
    return Ir(tuple(tensors), tuple(states))


def _dims(text: str) -> list[int]:
    """Sizes; those that are open, also within bounds, are -1."""
    return [int(part) if part.strip().isdecimal() else -1 for part in text.split(",") if part.strip()]
