"""Models and arrays that a caller has in memory, written to files for as long as a call needs them."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.errors import BadInput
from inferlab.options import WORD, check_each, model_name
from inferlab.options.kinds import shapes as read_shapes
from inferlab.records import engine_name

_NEEDS = (
    "A module needs example inputs: give input_shapes, such as [[1, 3, 224, 224]] (floats), or arrays by the "
    "names of its arguments as input."
)


class InMemory:
    """Writes what is given as objects into a folder that goes when the `stack` closes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """Made when it is needed first."""
        if self._folder is None:
            made = tempfile.TemporaryDirectory(prefix="inferlab-model-", ignore_cleanup_errors=True)
            self._folder = Path(self._stack.enter_context(made))
        return self._folder

    def model(self, value: Any, given: Mapping[str, Any]) -> str:
        """The name of a model; an onnx.ModelProto or an nn.Module is written first."""
        onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
        if onnx is not None and isinstance(value, onnx.ModelProto):
            from inferlab.transform.copies import LARGE_BYTES  # late: it imports onnx

            path = self._free(value.graph.name or "model", ".onnx")
            onnx.save(value, str(path), save_as_external_data=value.ByteSize() > LARGE_BYTES)
            return str(path)
        if torch is not None and isinstance(value, torch.nn.Module):
            return self._module(value, given)
        return model_name(value)

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The same options; arrays by name are written as a file."""
        value = given.get("input")
        if not isinstance(value, Mapping):
            return dict(given)
        path = self._free("inputs", ".npz")
        with zipfile.ZipFile(path, "w") as file:
            for name, array in _arrays(value).items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, array, allow_pickle=False)
        return {**given, "input": str(path)}

    def _module(self, module: Any, given: Mapping[str, Any]) -> str:
        """As a torch.export program for the engine torch, as ONNX for others; never as a pickle."""
        from inferlab.model.export import export_to_onnx, save_module

        engines = check_each(WORD, "engine", given.get("engine") or "onnxruntime")
        inputs = _examples(given)
        name = type(module).__name__
        if set(map(engine_name, engines)) == {"torch"}:
            path = self._free(name, ".pt2")
            try:
                save_module(module, path, inputs, dynamic=True)
            except BadInput:
                # Sizes that the module fixes cannot be left free.
                save_module(module, path, inputs, dynamic=False)
        else:
            path = self._free(name, ".onnx")
            try:
                export_to_onnx(module, path, inputs)
            except BadInput:
                export_to_onnx(module, path, inputs, dynamic=False)
        return str(path)

    def _free(self, name: str, ending: str) -> Path:
        """A file that is not there yet, its name made harmless."""
        safe = "".join(one if one.isalnum() or one in "-_" else "_" for one in name)[:60] or "model"
        path = self.folder / f"{safe}{ending}"
        number = 1
        while path.exists():
            number += 1
            path = self.folder / f"{safe}-{number}{ending}"
        return path


def _arrays(given: Mapping[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    found = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise BadInput(f"input is a dictionary of arrays by the names of inputs; {name!r} is not a name.")
        try:
            array = np.ascontiguousarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"input[{name!r}] is not an array: {error}.") from error
        if array.dtype.hasobject:
            raise BadInput(f"input[{name!r}] is not an array of numbers or text but a {type(value).__name__}.")
        # An array without axes stays one: ascontiguousarray adds one.
        found[name] = array if np.ndim(value) else array.reshape(())
    return found


def _examples(given: Mapping[str, Any]) -> Mapping[str, Any] | Sequence[Any]:
    """What a module is traced with: the arrays that are given, or floats of the shapes that are."""
    value, shapes = given.get("input"), given.get("input_shapes")
    if isinstance(value, Mapping):
        return _arrays(value)
    if value is not None:
        raise BadInput(f"{_NEEDS} The file {value} cannot say in which order a module takes them.")
    if shapes is None:
        raise BadInput(_NEEDS)
    if isinstance(shapes, str):
        raise BadInput(f"{_NEEDS} For a module, give shapes as lists rather than text.")
    found = read_shapes("input_shapes", shapes)
    random = np.random.default_rng(0)
    if isinstance(found, Mapping):
        return {name: random.random(shape, np.float32) for name, shape in found.items()}
    return [random.random(shape, np.float32) for shape in found]
