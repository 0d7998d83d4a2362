"""Hugging Face folders of causal language models as OpenVINO models that keep their cache themselves.

What OpenVINO GenAI loads is a graph with the inputs `input_ids`, `attention_mask`, `position_ids` and `beam_idx`,
the output `logits`, and a state for the keys and the values of each layer.
"""

from __future__ import annotations

import os
import shutil
import warnings
from typing import Any, Dict, List

from ..base import BadOption
from ..torch import folders

MODEL = "openvino_model.xml"
_COPIED = ("config.json", "generation_config.json")
_INPUTS = ("input_ids", "attention_mask", "position_ids")


def convert(model: str, folder: str, half: bool) -> None:
    """Write a Hugging Face folder as an OpenVINO GenAI folder, without a tokenizer: prompts are token ids."""
    import openvino
    import torch

    module = folders.read_folder(model, dtype="float32")
    if not module.can_generate() or module.config.is_encoder_decoder:
        raise BadOption("{} is not a decoder that generates tokens".format(type(module).__name__))
    module.set_attn_implementation("sdpa")  # what OpenVINO turns into paged attention
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracing: each is told below, where it matters
            shapes = _cache_shapes(module)
            graph = openvino.convert_model(_wrapped(module), example_input=_example(shapes))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[-200:].rstrip(".")
        raise BadOption(
            "its architecture '{}' cannot be converted: {}".format(type(module).__name__, reason)
        ) from error
    _name_ports(graph, len(shapes))
    _keep_cache(graph, shapes)
    openvino.save_model(graph, os.path.join(folder, MODEL), compress_to_fp16=half)
    for name in _COPIED:
        if os.path.isfile(os.path.join(model, name)):
            shutil.copy(os.path.join(model, name), folder)


def _cache_shapes(module: Any) -> List[Any]:
    """Heads and size of the keys and of the values of each layer, seen in a cache behind two tokens."""
    import torch

    cache = module(input_ids=torch.zeros((1, 2), dtype=torch.long), use_cache=True).past_key_values
    layers = getattr(cache, "layers", [])
    if not layers or not all(getattr(layer, "keys", None) is not None for layer in layers):
        raise BadOption("{} has no cache of keys and values".format(type(module).__name__))
    return [(tensor.shape[1], tensor.shape[3]) for layer in layers for tensor in (layer.keys, layer.values)]


def _wrapped(module: Any) -> Any:
    """The module with its cache as plain tensors."""
    import torch
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    class WithCache(torch.nn.Module):  # type: ignore[misc]  # nothing is known of its types
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> Any:
            cache = DynamicCache()
            for keys, values in zip(past[::2], past[1::2]):
                layer = DynamicLayer()
                layer.lazy_initialization(keys, values)
                layer.keys, layer.values = keys, values
                cache.layers.append(layer)
            answer = self.module(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
            )
            present = [tensor for layer in answer.past_key_values.layers for tensor in (layer.keys, layer.values)]
            return (answer.logits, *present)

    return WithCache().eval()


def _example(shapes: List[Any]) -> Any:
    """Inputs to trace with: several sequences, tokens before and tokens now, so that no size is taken for one."""
    import torch

    rows, before, now = 2, 5, 3
    positions = torch.arange(before, before + now)[None].repeat(rows, 1)
    mask = torch.ones((rows, before + now), dtype=torch.long)
    past = [torch.zeros((rows, heads, before, size)) for heads, size in shapes]
    return (torch.zeros((rows, now), dtype=torch.long), mask, positions, *past)


def _names(count: int) -> Dict[str, str]:
    """The names of the cache's inputs and outputs."""
    parts = [(layer, part) for layer in range(count // 2) for part in ("key", "value")]
    return {"past_key_values.{}.{}".format(*part): "present.{}.{}".format(*part) for part in parts}


def _name_ports(graph: Any, count: int) -> None:
    names = _names(count)
    for port, name in zip(graph.inputs, (*_INPUTS, *names)):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    for port, name in zip(graph.outputs, ("logits", *names.values())):
        port.get_tensor().set_names({name})


def _keep_cache(graph: Any, shapes: List[Any]) -> None:
    """Turn the cache's inputs and outputs into states, whose sequences `beam_idx` reorders."""
    import numpy
    import openvino
    from openvino import opset13 as operations
    from openvino._offline_transformations import apply_make_stateful_transformation

    names = _names(len(shapes))
    sizes = dict(zip(names, shapes))
    beams = operations.parameter([-1], numpy.int32, name="beam_idx")
    beams.output(0).get_tensor().set_names({"beam_idx"})
    graph.add_parameters([beams])
    for parameter in graph.get_parameters():
        name = parameter.get_friendly_name()
        if name in _INPUTS:
            parameter.set_partial_shape(openvino.PartialShape([-1, -1]))
            parameter.set_element_type(openvino.Type.i64)
        if name not in sizes:
            continue
        heads, size = sizes[name]
        parameter.set_partial_shape(openvino.PartialShape([-1, heads, -1, size]))
        readers = list(parameter.output(0).get_target_inputs())
        ordered = operations.gather(parameter, beams, operations.constant(numpy.int64(0)))
        for reader in readers:
            reader.replace_source_output(ordered.output(0))
    graph.validate_nodes_and_infer_types()
    apply_make_stateful_transformation(graph, names)
    # A state begins empty, with as many sequences as there are prompts.
    shape = operations.shape_of(graph.input("input_ids"), output_type="i64")
    rows = operations.gather(shape, operations.constant([0]), operations.constant(0))
    for node in graph.get_ops():
        if node.get_type_name() != "ReadValue":
            continue
        heads, size = (node.get_output_partial_shape(0)[axis].get_length() for axis in (1, 3))
        begin = operations.concat([rows, operations.constant(numpy.array([heads, 0, size], numpy.int64))], axis=0)
        node.set_arguments([operations.broadcast(operations.constant(numpy.float32(0)), begin)])
    graph.validate_nodes_and_infer_types()
