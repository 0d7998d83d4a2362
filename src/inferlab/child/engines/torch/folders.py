"""Hugging Face folders: loaded through transformers, and what they take and hold; in floats or in INT8.

Only code that is part of transformers runs (never code from a folder), weights are safetensors or are read with
weights_only, and nothing is fetched.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from ..base import BadOption
from . import files

# What families call their table of positions.
_POSITIONS = ("position_embeddings", "wpe")
_SIZES = ((2, 6), (3, 7))


def need_transformers() -> Any:
    """The package transformers, kept from reaching for the network; a sentence where it is not installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import transformers
    except ImportError:
        raise BadOption("a Hugging Face folder needs transformers: pip install 'inferlab[transformers]'") from None
    return transformers


def prepare(folder: Optional[str]) -> None:
    """Import what the folder's model needs, so that it does not count as the model's memory."""
    transformers = need_transformers()
    if folder is None:
        transformers.PreTrainedModel  # noqa: B018  imports most of what any model needs
        return
    architecture(transformers, read_config(transformers, folder))


def is_int8(folder: str) -> bool:
    """Whether a folder is an INT8 copy that inferlab wrote."""
    return os.path.isfile(os.path.join(folder, _INT8_FILE))


def read_config(transformers: Any, folder: str) -> Any:
    """The configuration in a folder."""
    _check_folder(folder)
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise BadOption("{} cannot be loaded: {}".format(folder, error)) from error


def _check_folder(folder: str) -> None:
    """Refuse a folder that makes transformers read files beyond it, or kernels from a hub."""
    if os.path.exists(os.path.join(folder, "adapter_config.json")):
        raise BadOption("{} is an adapter of another model; merge it into that model and save both".format(folder))
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".index.json") and name != "config.json":
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                content = json.load(file)
            files = set(content["weight_map"].values()) if name != "config.json" else set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadOption("{} cannot be loaded: {} is damaged ({})".format(folder, name, error)) from error
        for shard in files:
            if not isinstance(shard, str) or os.path.basename(shard) != shard or shard in ("", ".", ".."):
                raise BadOption("{} cannot be loaded: {} names the file {!r}".format(folder, name, shard))
        for kernel in _kernels(content) if name == "config.json" else ():
            raise BadOption("{} cannot be loaded: it names the kernel {!r} of a hub".format(folder, kernel))


def _kernels(config: Any) -> Iterator[str]:
    """What a configuration names instead of one of transformers' own implementations."""
    if not isinstance(config, dict):
        raise BadOption("config.json is not a configuration")
    for key, value in config.items():
        named = value if isinstance(value, dict) else {"": value}
        if "attn_implementation" in key or "experts_implementation" in key or key == "use_kernels":
            yield from (
                str(kernel) for kernel in named.values() if not re.fullmatch(r"\w+|None|False", str(kernel))
            )
        elif isinstance(value, dict):
            yield from _kernels(value)


def architecture(transformers: Any, config: Any) -> Any:
    """The class that a configuration names, if it is a model of transformers; else the base of its family."""
    kind = getattr(transformers, (config.architectures or [""])[0], None)
    if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
        return kind
    if type(config) not in transformers.MODEL_MAPPING:
        raise BadOption("transformers has no model for {}".format(type(config).__name__))
    kind = transformers.MODEL_MAPPING[type(config)]
    return kind[0] if isinstance(kind, (list, tuple)) else kind


def read_folder(folder: str, head: bool = True, **settings: Any) -> Any:
    """The model in a folder, in evaluation mode; without its head the base that all heads of its family share."""
    transformers = need_transformers()
    config = read_config(transformers, folder)
    kind = architecture(transformers, config)
    # Weights that the file lacks are made up: alike in every process.
    torch.manual_seed(0)
    try:
        if is_int8(folder):
            module = read_int8(folder, kind, config)
        else:
            local = {"local_files_only": True, "trust_remote_code": False, "weights_only": True}
            module = kind.from_pretrained(folder, **{"dtype": "auto", **settings, **local}).eval()
    except BadOption:
        raise
    except Exception as error:
        raise BadOption("{} cannot be loaded: {}".format(folder, _reason(error))) from error
    # A cache of keys and values is for generating text word by word.
    config.use_cache = module.config.use_cache = False
    return module if head else module.base_model


def describe_inputs(module: Any) -> List[Dict[str, Any]]:
    """What a transformers model takes: the texts or images that its family has, in the order of its arguments."""
    config = module.config
    if getattr(config, "is_encoder_decoder", None) or module.main_input_name not in ("input_ids", "pixel_values"):
        raise BadOption(
            "{} is neither a text model with input_ids nor an image model with pixel_values; export it as a "
            "module: inferlab.export_to_onnx(module, path, inputs)".format(type(module).__name__)
        )
    if module.main_input_name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        dims = ["batch", getattr(config, "num_channels", 3), height, width]
        return [{"name": "pixel_values", "dtype": "float32", "dims": dims, "below": None}]
    below = {
        "input_ids": config.get_text_config().vocab_size,
        "attention_mask": None,
        "token_type_ids": getattr(config, "type_vocab_size", None) or 0,
    }
    taken = inspect.signature(module.forward).parameters
    return [
        {"name": name, "dtype": "int64", "dims": ["batch", "sequence"], "below": below[name]}
        for name in taken
        if below.get(name, 0) != 0
    ]


def make_inputs(described: Sequence[Dict[str, Any]], batch: int, length: int) -> Dict[str, Any]:
    """Random inputs of these sizes; masks hide nothing."""
    sizes = {"batch": batch, "sequence": length}
    inputs = {}
    for spec in described:
        shape = [sizes.get(dim, dim) for dim in spec["dims"]]
        if spec["dtype"] != "int64":
            inputs[spec["name"]] = torch.randn(shape)
        elif spec["below"] is None:
            inputs[spec["name"]] = torch.ones(shape, dtype=torch.int64)
        else:
            inputs[spec["name"]] = torch.randint(0, spec["below"], shape)
    return inputs


def longest_sequence(module: Any) -> Optional[int]:
    """The longest text that fits into the model's table of positions; None where it has no such table."""
    for name, table in module.named_modules():
        if name.rpartition(".")[2] in _POSITIONS and hasattr(table, "num_embeddings"):
            # Some families begin their positions after the padding index.
            return int(table.num_embeddings) - (0 if table.padding_idx is None else int(table.padding_idx) + 1)
    return None


def check_shapes(module: Any, shapes: Dict[str, List[int]]) -> None:
    """Refuse a text that is too long: torch would stop with an index that is out of range."""
    most, shape = longest_sequence(module), shapes.get("input_ids")
    if most is not None and shape and shape[1] > most:
        raise BadOption("a sequence of {} does not fit; the model takes at most {}".format(shape[1], most))


def trace(module: Any, shapes: Dict[str, List[int]]) -> Tuple[Any, List[str]]:
    """The module as TorchScript, its inputs in this order and of these shapes, and the names of its outputs."""
    taken = list(shapes)
    names: List[str] = []

    class Flat(torch.nn.Module):  # type: ignore[misc]
        """TorchScript does not know transformers' classes of outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *values: Any) -> Any:
            outputs = tensors(self.module(**dict(zip(taken, values))))
            names[:] = list(outputs)
            return tuple(outputs.values())

    described = {describe_input["name"]: describe_input for describe_input in describe_inputs(module)}
    examples = make_inputs([{**described[name], "dims": shapes[name]} for name in taken], 0, 0)
    try:
        with torch.no_grad():
            traced = torch.jit.trace(Flat().eval(), tuple(examples.values()), check_trace=False)
    except Exception as error:
        raise BadOption("TorchScript cannot trace it: {}".format(_reason(error))) from error
    return traced, names


def describe_folder(folder: str) -> Dict[str, Any]:
    """Inputs, outputs and weights of the model in a folder."""
    module = read_folder(folder)
    inputs = describe_inputs(module)
    most = longest_sequence(module) or _SIZES[-1][1]
    sizes = [(batch, min(length, most)) for batch, length in _SIZES]
    with torch.inference_mode():
        try:
            small, large = [tensors(module(**make_inputs(inputs, *size))) for size in sizes]
        except Exception as error:
            raise BadOption("{} cannot be run: {}".format(folder, _reason(error))) from error
    labels = {pair: name for name, pair in zip(("batch", "sequence"), zip(*sizes))}
    outputs = []
    for name, value in small.items():
        dims = [
            dim if dim == other else labels.get((dim, other)) for dim, other in zip(value.shape, large[name].shape)
        ]
        outputs.append({"name": name, "dtype": str(value.dtype).replace("torch.", ""), "dims": dims})
    weights, how = list(module.parameters()), ""
    if is_int8(folder):
        weights, how = _int8_weights(folder), "integer operators"
    return {"inputs": inputs, "outputs": outputs, "quantization": how, **files.describe_weights(weights)}


def write_config(folder: str, out: str, **changes: Any) -> None:
    """Copy a folder's config.json, with these keys added."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, **changes}, file, indent=2)


def tensors(outputs: Any) -> Dict[str, Any]:
    """The tensors among a model's outputs, by name."""
    return {name: value for name, value in files.flatten(outputs).items() if hasattr(value, "detach")}


def _reason(error: BaseException) -> str:
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split())[:400])


# INT8 copies: weights in one byte with a scale for each row, run by torch's INT8 kernels.
#
# A folder holds `model.int8.safetensors`, which transformers itself does not take for float weights: `NAME.weight`
# in int8 beside `NAME.weight_scale` for every linear layer and embedding; biases, norms and buffers are as before.
# Weights that are the same tensor are kept once; the header says which. Linear layers quantise their inputs as
# they come (dynamic quantisation); nothing is calibrated.
#
# Tried on four layers of BERT's size, AVX2, one thread, 32 and 128 words, relative to FP32: these kernels 0.53 and
# 0.56; torchao 0.18, which is made to be compiled, 17 and 30 without compiling.

_INT8_FILE = "model.int8.safetensors"
#: Version 1: the first.
INT8_FORMAT = 1
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


def write_int8(module: Any, folder: str) -> int:
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
    header = {"format": "pt", "inferlab": json.dumps({"format": INT8_FORMAT, "tied": tied})}
    save_file({**tensors, **scales}, os.path.join(folder, _INT8_FILE), metadata=header)
    return len(scales) + sum(name in layers for name in tied)


def read_int8(folder: str, kind: Any, config: Any) -> Any:
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
        raise BadOption("{} lacks {}".format(os.path.join(folder, _INT8_FILE), ", ".join(missing[:3])))
    return module.eval()


def _int8_weights(folder: str) -> List[Any]:
    """The weights in a folder's INT8 file, without their scales."""
    return [value for name, value in _tensors(folder)[0].items() if not name.endswith(_SCALE)]


def _tensors(folder: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """All tensors of the file, and which names stand for another one's tensor."""
    from safetensors import safe_open

    path = os.path.join(folder, _INT8_FILE)
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("inferlab", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
    except Exception as error:  # it has errors of its own, and those of files and of JSON
        raise BadOption("{} cannot be read: {}".format(path, error)) from error
    if header.get("format") != INT8_FORMAT:
        raise BadOption(
            "{} has format {}, and this version of inferlab reads {}".format(
                path, header.get("format"), INT8_FORMAT
            )
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
