"""Which parameter of a PyTorch module is which weight of the ONNX model that was exported from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.confined import confined
from inferlab.errors import BadInput
from inferlab.model.graph import parse_onnx
from inferlab.model.sparsity import values, weights
from inferlab.records import Shape
from inferlab.units import plural

Array = np.ndarray[Any, Any]

_MOST_NAMED = 5


def match(
    shapes: Mapping[str, Shape],
    values_of: Callable[[str], Array],
    wanted: Sequence[str],
    names: Mapping[str, str],
    stored: Mapping[str, Array],
) -> dict[str, str]:
    """The module's name of each wanted weight, or one error that lists all that have none.

    `shapes` are those of the module's parameters, by name. A weight is the parameter that `names` gives it, the
    one of the same name, the only one whose name ends alike, or, where it is among the `stored` values of the
    exported model, the one of its shape and values, as it is or transposed.
    """
    found: dict[str, str] = {}
    for name in wanted:
        called = names.get(name, name)
        alike = [one for one in shapes if one.endswith(f".{called}") or called.endswith(f".{one}")]
        if called in shapes:
            found[name] = called
        elif len(alike) == 1:
            found[name] = alike[0]
        elif name in stored and (same := _same(shapes, values_of, stored[name])) is not None:
            found[name] = same
    missing = [name for name in wanted if name not in found]
    if missing:
        listed = ", ".join(missing[:_MOST_NAMED]) + (", …" if len(missing) > _MOST_NAMED else "")
        raise BadInput(
            f"The module has no parameter for {plural(len(missing), 'weight')} of the recipe: {listed}. Give the "
            "ONNX file that was exported from it (model='model.onnx'), or say what the module calls them: "
            "names={'name in the recipe': 'name in the module'}."
        )
    return found


@confined(reads=["path"])
def stored(path: Path, wanted: Collection[str]) -> dict[str, Array]:
    """The values of these weights in an ONNX file, as floats."""
    found = {one.name: one for one in weights(parse_onnx(path)) if one.name in wanted}
    return {name: _floats(values(one.stored, path.parent)).reshape(one.dims) for name, one in found.items()}


def _same(shapes: Mapping[str, Shape], values_of: Callable[[str], Array], held: Array) -> str | None:
    """The only parameter of this shape, or the one of them that has these values; transposed ones too."""
    fitting = [name for name, shape in shapes.items() if shape in (held.shape, held.shape[::-1])]
    if len(fitting) == 1:
        return fitting[0]
    for name in fitting:
        own = values_of(name)
        if any(np.array_equal(one, held) for one in (own, own.T) if one.shape == held.shape):
            return name
    return None


def _floats(held: Array) -> Array:
    """Floats in single precision; 16-bit integers are the bits of bfloat16."""
    return (held.astype(np.uint32) << 16).view(np.float32) if held.dtype.kind == "u" else held.astype(np.float32)
