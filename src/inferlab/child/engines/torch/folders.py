"""Hugging Face folders: loaded through transformers, and what they take and hold.

Only code that is part of transformers runs (never code from a folder), weights are safetensors or are read with
weights_only, and nothing is fetched.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ..base import BadOption
from . import files

# What families call their table of positions.
_POSITIONS = ("position_embeddings", "wpe")
# As int8 names it, which is imported only where it is needed.
_INT8_FILE = "model.int8.safetensors"
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
    if is_int8(folder):
        from . import int8  # noqa: F401


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
    import torch

    transformers = need_transformers()
    config = read_config(transformers, folder)
    kind = architecture(transformers, config)
    # Weights that the file lacks are made up: alike in every process.
    torch.manual_seed(0)
    try:
        if is_int8(folder):
            from . import int8

            module = int8.read(folder, kind, config)
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
    import torch

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
    import torch

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
    import torch

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
        from . import int8

        weights, how = int8.weights(folder), "integer operators"
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
