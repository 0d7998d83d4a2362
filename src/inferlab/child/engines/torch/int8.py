"""INT8 copies of Hugging Face models: weights in one byte with a scale for each row, run by torch's INT8 kernels.

A folder holds `model.int8.safetensors`, which transformers itself does not take for float weights: `NAME.weight`
in int8 beside `NAME.weight_scale` for every linear layer and embedding; biases, norms and buffers are as before.
Weights that are the same tensor are kept once; the header says which. Linear layers quantise their inputs as they
come (dynamic quantisation); nothing is calibrated.

Tried on four layers of BERT's size, AVX2, one thread, 32 and 128 words, relative to FP32: these kernels 0.53 and
0.56; torchao 0.18, which is made to be compiled, 17 and 30 without compiling.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

import torch

from ..base import BadOption

FILE = "model.int8.safetensors"
#: Version 1: the first.
FORMAT = 1
_SCALE = ".weight_scale"
# The packed weights of every linear layer: a compiled graph takes numbers, but no packed weights.
_PACKED: List[Any] = []


class Int8Linear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer with int8 weights; its inputs are quantised call by call."""

    def __init__(self, weight: Any, scale: Any, bias: Any) -> None:
        super().__init__()
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        rows = torch._make_per_channel_quantized_tensor(weight, scale, zeros, 0)
        self.packed = torch.ops.quantized.linear_prepack(rows, bias)
        self.number, self.width = len(_PACKED), len(scale)
        _PACKED.append(self.packed)

    def forward(self, x: Any) -> Any:
        """The layer's outputs in float32."""
        if torch.compiler.is_compiling():
            return torch.ops.inferlab.int8_linear(x, self.number, self.width)
        # Seven bits for the inputs: on CPUs without VNNI eight of them overflow.
        return torch.ops.quantized.linear_dynamic(x, self.packed, True)


class Int8Embedding(torch.nn.Module):  # type: ignore[misc]
    """A table with int8 rows, each with its scale."""

    def __init__(self, weight: Any, scale: Any, padding_idx: Any) -> None:
        super().__init__()
        self.register_buffer("table", weight, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.num_embeddings, self.padding_idx = len(weight), padding_idx

    def forward(self, ids: Any) -> Any:
        """The rows in float32."""
        return self.table[ids].float() * self.scale[ids].unsqueeze(-1)


def _run_packed(x: Any, number: int, width: int) -> Any:
    return torch.ops.quantized.linear_dynamic(x, _PACKED[number], True)


def _shape_of_packed(x: Any, number: int, width: int) -> Any:
    return x.new_empty((*x.shape[:-1], width))


_operator = torch.library.custom_op(
    "inferlab::int8_linear", _run_packed, mutates_args=(), schema="(Tensor x, int number, int width) -> Tensor"
)
_operator.register_fake(_shape_of_packed)


def write(module: Any, folder: str) -> int:
    """Write a module's INT8 file into a folder; gives the number of layers that became INT8."""
    from safetensors.torch import save_file

    if torch.backends.quantized.engine == "none":
        raise BadOption("this build of PyTorch has no INT8 kernels for this CPU")
    tensors: Dict[str, Any] = {}
    scales: Dict[str, Any] = {}
    tied: Dict[str, str] = {}
    seen: Dict[Tuple[Any, ...], str] = {}
    layers = {name + ".weight": layer for name, layer in module.named_modules() if _is_quantizable(layer)}
    values = dict(module.named_parameters(remove_duplicate=False))
    values.update(module.named_buffers(remove_duplicate=False))
    # Tables first: where a head shares one, the table keeps its name.
    for name in sorted(values, key=lambda name: not isinstance(layers.get(name), torch.nn.Embedding)):
        value = values[name].detach()
        same = (value.data_ptr(), tuple(value.shape), name in layers)
        if value.numel() and seen.setdefault(same, name) != name:
            tied[name] = seen[same]
        elif name in layers:
            turned = not isinstance(layers[name], (torch.nn.Linear, torch.nn.Embedding))
            tensors[name], scales[name + "_scale"] = _rows(value.T if turned else value)
        else:
            tensors[name] = value.float().contiguous() if value.is_floating_point() else value.contiguous()
    if not scales:
        raise BadOption("the model has no linear layer and no embedding that could become INT8")
    header = {"format": "pt", "inferlab": json.dumps({"format": FORMAT, "tied": tied})}
    save_file({**tensors, **scales}, os.path.join(folder, FILE), metadata=header)
    return len(scales) + sum(name in layers for name in tied)


def read(folder: str, kind: Any, config: Any) -> Any:
    """The module in a folder's INT8 file, of the class `kind`."""
    tensors, tied = _tensors(folder)
    for name, original in tied.items():
        for ending in ("", "_scale"):
            if original + ending in tensors:
                tensors[name + ending] = tensors[original + ending]
    # No memory for weights in float32, which are not needed.
    with torch.device("meta"):
        module = kind._from_config(config, dtype=torch.float32)
    for name in [name[: -len(_SCALE)] for name in tensors if name.endswith(_SCALE)]:
        weight, scale = tensors.pop(name + ".weight"), tensors.pop(name + _SCALE)
        layer = _part(module, name)
        if isinstance(layer, torch.nn.Embedding):
            new: Any = Int8Embedding(weight, scale, layer.padding_idx)
        else:
            new = Int8Linear(weight, scale, tensors.pop(name + ".bias", None))
        parent, _, last = name.rpartition(".")
        setattr(_part(module, parent), last, new)
    for name, value in tensors.items():
        _put(module, name, value)
    missing = [name for name, tensor in [*module.named_parameters(), *module.named_buffers()] if tensor.is_meta]
    if missing:
        raise BadOption("{} lacks {}".format(os.path.join(folder, FILE), ", ".join(missing[:3])))
    return module.eval()


def weights(folder: str) -> List[Any]:
    """The weights in a folder's INT8 file, without their scales."""
    return [value for name, value in _tensors(folder)[0].items() if not name.endswith(_SCALE)]


def _tensors(folder: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """All tensors of the file, and which names stand for another one's tensor."""
    from safetensors import safe_open

    path = os.path.join(folder, FILE)
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("inferlab", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
    except Exception as error:  # it has errors of its own, and those of files and of JSON
        raise BadOption("{} cannot be read: {}".format(path, error)) from error
    if header.get("format") != FORMAT:
        raise BadOption(
            "{} has format {}, and this version of inferlab reads {}".format(path, header.get("format"), FORMAT)
        )
    return tensors, header["tied"]


def _is_quantizable(layer: Any) -> bool:
    """Exactly these: what inherits from them may compute something else."""
    if type(layer) is torch.nn.Embedding:
        return layer.max_norm is None
    return type(layer) is torch.nn.Linear or type(layer).__name__ == "Conv1D"


def _rows(weight: Any) -> Tuple[Any, Any]:
    """A matrix in int8, and the scale of each row."""
    weight = weight.float()
    scale = (weight.abs().amax(1) / 127.0).clamp_min(1e-12)
    return (weight / scale.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8).contiguous(), scale.contiguous()


def _part(module: Any, name: str) -> Any:
    try:
        return module.get_submodule(name)
    except AttributeError:
        raise BadOption(
            "the INT8 file has '{}', which the model in config.json does not have".format(name)
        ) from None


def _put(module: Any, name: str, value: Any) -> None:
    parent, _, last = name.rpartition(".")
    owner = _part(module, parent)
    if last in owner._parameters:
        owner._parameters[last] = torch.nn.Parameter(value, requires_grad=False)
    elif last in owner._buffers:
        owner._buffers[last] = value
    else:
        raise BadOption("the INT8 file has '{}', which the model in config.json does not have".format(name))
