"""Write a PyTorch module, a Hugging Face folder or a saved program as ONNX, checked against eager PyTorch."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from inferlab.child import protocol
from inferlab.errors import BadInput, InferlabError
from inferlab.model.reading import need_torch
from inferlab.records import Event, Listener, TensorSpec, ignore
from inferlab.worker import record_of, run_task, timeout_s

Exporter = Literal["auto", "dynamo", "torchscript"]
Inputs = Mapping[str, Any] | Sequence[Any]

_PATIENCE_S = 3600.0
_SCRIPT_ENDINGS = (".pt", ".pth", ".ts", ".torchscript", ".jit")


class WrongExport(InferlabError):
    """The ONNX file gives other outputs than eager PyTorch."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class Exported:
    """An ONNX file that was written and checked."""

    path: str
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: Largest |output − expected| / (|expected| + RMS of expected) against eager PyTorch, over two sets of inputs.
    error: float
    precision: str
    exporter: str
    #: The file and its external data.
    size_bytes: int


def export_to_onnx(
    model: Any,
    path: str | os.PathLike[str],
    inputs: Inputs | None = None,
    *,
    opset: int | None = None,
    dynamic: bool = True,
    dynamic_shapes: Any = None,
    exporter: Exporter = "auto",
    batch_size: int = 2,
    sequence_length: int = 16,
    tolerance: float = 1e-3,
    timeout: float | None = None,
    listener: Listener = ignore,
) -> Exported:
    """Write `model` to `path` as ONNX and check the file against eager PyTorch.

    `model` is an `nn.Module`, or the path of a Hugging Face folder, a torch.export program (.pt2) or a
    TorchScript file. A module needs `inputs`: tensors or arrays, by name or in order. With `dynamic`, the first
    axis of every input and the second of whole numbers in two dimensions stay free; `dynamic_shapes` says it in
    torch.export's way instead. The opset is 17, or 18 where only torch's newer exporter can write the model.
    An export that takes more than `timeout` seconds is stopped; by default an hour.
    """
    out = _writable(Path(path))
    if exporter not in ("auto", "dynamo", "torchscript"):
        raise BadInput(f"There is no exporter '{exporter}'. Use auto, dynamo or torchscript.")
    if batch_size < 1 or sequence_length < 1:
        raise BadInput("The batch size and the sequence length to trace with must be at least 1.")
    if timeout is not None and not timeout > 0:
        raise BadInput(f"The timeout must be more than 0 seconds, not {timeout:g}.")
    launch = need_torch()
    with ExitStack() as stack:
        # In the same folder, so that the last step is a rename and a half-written file is never seen.
        folder = Path(tempfile.mkdtemp(prefix=".inferlab-export-", dir=out.parent))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        arrays: dict[str, Any] = {}
        if isinstance(model, (str, os.PathLike)):
            source, kind = _located(Path(model))
            arrays = _named_arrays(inputs)
        else:
            source, kind = folder / "module.pt2", "torch-export"
            save_module(model, source, inputs, dynamic, dynamic_shapes)
        listener(Event("exporting", {"source": str(source), "kind": kind, "path": str(out)}))
        (folder / "out").mkdir()
        target = folder / "out" / out.name
        heads, blocks = protocol.pack_arrays(arrays)
        arguments = {
            "source": str(source), "kind": kind, "out": str(target), "opset": opset, "exporter": exporter,
            "dynamic": dynamic, "tolerance": tolerance, "batch_size": batch_size,
            "sequence_length": sequence_length, "arrays": heads,
        }  # fmt: skip
        answer = run_task(launch, "export", arguments, blocks, timeout or timeout_s(_PATIENCE_S))
        if not answer["error"] <= tolerance:
            raise WrongExport(
                f"The exported model gives other outputs than eager PyTorch: the largest relative error is "
                f"{answer['error']:.3g}, the tolerance {tolerance:.3g}. Nothing was written to {out}."
            )
        size_bytes = sum(file.stat().st_size for file in target.parent.iterdir())
        # External data first: a model file that is there is whole.
        for file in sorted(target.parent.iterdir(), key=lambda file: file.name == target.name):
            file.replace(out.parent / file.name)
    return record_of(Exported, answer, path=str(out), size_bytes=size_bytes)


def _writable(out: Path) -> Path:
    if not out.parent.is_dir():
        raise BadInput(f"The folder {out.parent} does not exist. Make it first, or choose another output file.")
    if out.is_dir():
        raise BadInput(f"{out} is a folder. Give the name of a file, such as {out / 'model.onnx'}.")
    if out.suffix != ".onnx":
        raise BadInput(f"The output file must end in .onnx, not '{out.name}'.")
    if not os.access(out.parent, os.W_OK) or (out.exists() and not os.access(out, os.W_OK)):
        raise BadInput(f"{out} cannot be written. Choose another folder, or change its permissions.")
    return out


def _located(path: Path) -> tuple[Path, str]:
    """The file or folder to export, and its kind."""
    if not path.exists():
        raise BadInput(f"{path} does not exist. Give a Hugging Face folder, a .pt2 or a TorchScript file.")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"{path} has no config.json, so it is not a Hugging Face folder.")
        return path.resolve(), "transformers"
    if path.suffix == ".pt2":
        return path.resolve(), "torch-export"
    if path.suffix in _SCRIPT_ENDINGS:
        return path.resolve(), "torchscript"
    if path.suffix == ".onnx":
        raise BadInput(f"{path} is ONNX already. Measure it with: inferlab benchmark {path}")
    raise BadInput(f"{path} is not a model to export: give a Hugging Face folder, a .pt2 or a TorchScript file.")


def _named_arrays(inputs: Inputs | None) -> dict[str, Any]:
    import numpy

    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise BadInput("Inputs for a saved model are given by name: inputs={'x': array}.")
    return {name: numpy.ascontiguousarray(value) for name, value in inputs.items()}


def save_module(
    model: Any,
    path: Path,
    inputs: Inputs | None,
    dynamic: bool,
    dynamic_shapes: Any = None,
    training: bool = False,
) -> None:
    """Save a module of the caller's as a torch.export program: it travels as a graph, never as a pickle."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise BadInput(f"A {type(model).__name__} cannot be exported: give an nn.Module, a folder or a file.")
    if inputs is None:
        raise BadInput("A module needs example inputs: export_to_onnx(module, path, inputs={'x': tensor}).")
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    ordered = () if named else tuple(inputs)
    args = tuple(_example(torch, value, dynamic) for value in ordered)
    kwargs = {name: _example(torch, value, dynamic) for name, value in named.items()}
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        program = _trace(torch, model, args, kwargs, dynamic, dynamic_shapes)
        torch.export.save(program, str(path))
    except Exception as error:
        raise BadInput(f"torch.export cannot export this {type(model).__name__}: {error}") from error
    finally:
        for module, was in before.items():
            module.training = was


def _trace(torch: Any, model: Any, args: Any, kwargs: dict[str, Any], dynamic: bool, dynamic_shapes: Any) -> Any:
    if dynamic_shapes is not None or not dynamic:
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    names = ("batch", "sequence")
    limits: dict[str, dict[str, int]] = {}
    # Torch may suggest limits. Where the model relates sizes in its own way, torch is left to find out how, but
    # then it takes for granted that no size is 1.
    for auto in (False, False, True):
        dims = [
            torch.export.Dim.AUTO if auto else torch.export.Dim(name, **limits.get(name, {})) for name in names
        ]
        shapes = torch.utils._pytree.tree_map(
            lambda value, dims=dims: {axis: dims[axis] for axis in _free_axes(torch, value)}, (args, kwargs)
        )
        input_shapes = shapes[1] if kwargs else shapes[0]
        try:
            return torch.export.export(model, args, kwargs, dynamic_shapes=input_shapes)
        except Exception as error:
            if auto:
                raise
            limits = _suggested(str(error))
    raise AssertionError


def _suggested(message: str) -> dict[str, dict[str, int]]:
    """The limits of sizes that torch.export suggests where it cannot leave them free."""
    limits = re.findall(r"(\w+) = Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)", message)
    return {
        name: {key: int(value) for key, value in (("min", low), ("max", high)) if value}
        for name, low, high in limits
    }


def _free_axes(torch: Any, value: Any) -> range:
    if not isinstance(value, torch.Tensor):
        return range(0)
    return range(2 if value.dim() == 2 and not value.is_floating_point() else min(1, value.dim()))


def _example(torch: Any, value: Any, dynamic: bool) -> Any:
    """A tensor to trace with; torch.export takes an axis of size 1 for a fixed one, so a free one is doubled."""
    import numpy

    if isinstance(value, numpy.ndarray):
        value = torch.from_numpy(numpy.ascontiguousarray(value))
    if dynamic and isinstance(value, torch.Tensor):
        for axis in _free_axes(torch, value):
            value = torch.cat([value, value], axis) if value.shape[axis] == 1 else value
    return value
