"""OpenVINO GenAI: GGUF files, its own folders, and Hugging Face folders that are converted into such."""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import threading
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

from .base import BadOption, LoadOptions, Options, WholeSequences

# The CPU plug-in pages the cache in blocks of so many tokens.
_BLOCK_TOKENS = 32
_CACHE_TYPES = ("u8", "f16", "bf16", "f32")
_WEIGHTS = ("fp32", "fp16")
_READING = ("auto", "direct", "converted")
_MAX_ISA = "ONEDNN_MAX_CPU_ISA"
# OpenVINO begins every message with the line of its source that raised it.
_SOURCE = re.compile(r"^(Exception from |Check ).*:\d+:?\s*$", re.M)

Emit = Callable[[int], None]


class OpenVinoGenai(WholeSequences):
    """One pipeline that batches continuously; nothing of a sequence is kept when it is done."""

    kinds = frozenset({"openvino-genai", "transformers", "gguf"})
    packages = ("openvino-genai", "openvino")

    def prepare(self) -> None:
        """Import openvino_genai."""
        _import()

    def prepare_for(self, model: Optional[str], kind: str) -> None:
        """Copy a GGUF file: OpenVINO opens it for writing too, and a confined process may not write the user's."""
        if model is not None and kind == "gguf":
            shutil.copyfile(model, _copy_of(model))

    def convert(self, model: str, folder: str, options: Dict[str, str]) -> List[Dict[str, Any]]:
        """Convert a Hugging Face folder. Options: weights (fp32, fp16)."""
        given = Options(options)
        weights = given.text("weights", "fp32", _WEIGHTS)
        given.finish()
        _convert_folder(model, folder, half=weights == "fp16")
        return [{"file": _MODEL, "options": {"weights": weights}}]

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a GGUF file or a folder.

        Options: kv_cache (u8, f16, bf16, f32), precision (f32, bf16, f16), batched_tokens, max_cpu_isa; gguf and
        weights, which decide whether and how it is converted before; properties in capitals.
        """
        given = Options(options.options)
        passed_on = given.passed_on(str.isupper)
        cache_type = given.text("kv_cache", "u8", _CACHE_TYPES)
        precision = given.text("precision", "f32", ("f32", "bf16", "f16"))
        self._batch_size, capacity = options.shapes["tokens"]
        most = int(given.number("batched_tokens", self._batch_size * capacity))
        weights = given.text("weights", "", ("", *_WEIGHTS))
        given.text("gguf", "auto", _READING)
        limit = given.text("max_cpu_isa", "")
        given.finish()
        if limit:
            os.environ[_MAX_ISA] = limit  # oneDNN reads it once, before the first model
        self._openvino, self._module = _import()
        if os.path.isfile(_copy_of(model)):
            model = _copy_of(model)
        # Each sequence has one more block, or the scheduler would have to drop one that is not done.
        self._blocks = blocks = self._batch_size * (-(-capacity // _BLOCK_TOKENS) + 1)
        scheduling = self._module.SchedulerConfig()
        scheduling.enable_prefix_caching = False
        scheduling.num_kv_blocks = blocks
        scheduling.max_num_batched_tokens = most
        scheduling.max_num_seqs = max(self._batch_size, scheduling.max_num_seqs)
        properties: Dict[str, Any] = {
            "INFERENCE_NUM_THREADS": options.threads,
            "INFERENCE_PRECISION_HINT": precision,
            "KV_CACHE_PRECISION": cache_type,
            # Threads stay within the CPUs that the process is bound to; of these OpenVINO may choose.
            "ENABLE_CPU_PINNING": options.pinning == "core",
            **passed_on,
        }
        try:
            self._pipeline = self._module.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        except RuntimeError as error:
            raise BadOption("it cannot load this model: {}".format(_reason(error))) from None
        self._number = 0
        self._lock = threading.Lock()
        self._active: Dict[int, Tuple[Any, Emit]] = {}
        self._length = 0
        return {
            "num_threads": options.threads,
            "precision": precision,
            "kv_dtype": cache_type,
            "context": blocks * _BLOCK_TOKENS,
            "batched_tokens": most,
            "prefix_caching": 0,
            "attention": "paged",
            "cache": "pool",
            "read": "GGUF" if model.endswith(".gguf") else "OpenVINO IR",
            **({"weights": weights} if weights else {}),
            **({"max_cpu_isa": limit} if limit else {}),
            **{key.lower(): value for key, value in passed_on.items()},
        }

    def generate(self, prompts: Any, new_tokens: int, emit: Callable[[int, int], None]) -> None:
        """All sequences at once; after every step of the pipeline each of them tells its tokens."""
        for row, prompt in enumerate(prompts):
            self._add(self.behind_context(prompt, row), new_tokens, functools.partial(emit, row))
        while self._active:
            self._step()

    def complete(self, prompt: Any, new_tokens: int, emit: Emit) -> None:
        """One request of several threads: whichever has the lock steps for all of them."""
        with self._lock:
            number = self._add(self.behind_context(prompt, 0), new_tokens, emit)
        while number in self._active:
            with self._lock:
                if number in self._active:
                    self._step()

    def cache_bytes(self) -> Optional[int]:
        """What the blocks take for the tokens of the last generation."""
        slots = self._blocks * _BLOCK_TOKENS
        tokens = self._batch_size * (self._length - 1)
        return int(self._pipeline.get_metrics().kv_cache_size_in_bytes * tokens / slots) or None

    def close(self) -> None:
        """Let the pipeline go."""
        self._pipeline = None

    def _add(self, prompt: Any, new_tokens: int, emit: Emit) -> int:
        import numpy

        config = self._module.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        self._length = len(prompt) + new_tokens
        self._number += 1
        tensor = self._openvino.Tensor(numpy.ascontiguousarray(prompt[None], numpy.int64))
        self._active[self._number] = (self._pipeline.add_request(self._number, tensor, config), emit)
        return self._number

    def _step(self) -> None:
        """Let the pipeline compute once, and hand over what it has."""
        self._pipeline.step()
        running = self._module.GenerationStatus.RUNNING
        for number, (handle, emit) in list(self._active.items()):
            while handle.can_read():
                for output in handle.read().values():
                    for token in output.generated_ids:
                        emit(token)
            if handle.get_status() != running:
                del self._active[number]


def _import() -> Tuple[Any, Any]:
    import openvino
    import openvino_genai

    return openvino, openvino_genai


def _copy_of(model: str) -> str:
    return os.path.join(tempfile.gettempdir(), os.path.basename(model))


def _reason(error: Exception) -> str:
    text = _SOURCE.sub("", str(error))
    return " ".join(text.split()).rstrip(".") or "no reason given"


# Hugging Face folders of causal language models as OpenVINO models that keep their cache themselves: a graph with
# the inputs `input_ids`, `attention_mask`, `position_ids` and `beam_idx`, the output `logits`, and a state for the
# keys and the values of each layer.

_MODEL = "openvino_model.xml"
_COPIED = ("config.json", "generation_config.json")
_INPUTS = ("input_ids", "attention_mask", "position_ids")


def _convert_folder(model: str, folder: str, half: bool) -> None:
    """Write a Hugging Face folder as an OpenVINO GenAI folder, without a tokenizer: prompts are token ids."""
    import openvino
    import torch

    from .torch import folders

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
    openvino.save_model(graph, os.path.join(folder, _MODEL), compress_to_fp16=half)
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
