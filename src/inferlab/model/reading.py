"""A model by its source: found, and read for what it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model import source
from inferlab.records import Listener, Model, ignore

# Weights that inferlab quantised; transformers, and so an export, does not load them.
_INT8_WEIGHTS = "model.int8.safetensors"
_NOT_FOR_FOLDERS = frozenset({"onnxruntime", "openvino", "deepsparse", "executor"})


def read_model(name: str, listener: Listener = ignore, engines: Sequence[str] = ()) -> Model:
    """Find a model by its source and read what it is, unless none of the engines could run it."""
    located = source.locate(name, listener)
    if located.kind == "transformers" and engines and _NOT_FOR_FOLDERS.issuperset(engines):
        if (Path(located.path) / _INT8_WEIGHTS).is_file():
            raise BadInput(
                f"{name} is a Hugging Face folder in INT8, which only the engine torch runs (-e torch). For other "
                "engines export the folder that it was made from, and quantise the ONNX file: inferlab optimize "
                "model.onnx -o int8.onnx --int8 dynamic"
            )
        raise BadInput(
            f"{name} is a Hugging Face folder, which the engine torch runs (-e torch). "
            f"Export it first for other engines: inferlab export {name} -o model.onnx"
        )
    if located.kind == "onnx":
        from inferlab.model.fitting import with_fitted_shapes
        from inferlab.model.graph import read_onnx

        return with_fitted_shapes(read_onnx(located.path, name))
    from inferlab.model.inspect import inspect_foreign

    return inspect_foreign(located.path, located.kind, name)
