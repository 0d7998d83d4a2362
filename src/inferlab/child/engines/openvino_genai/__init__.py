"""OpenVINO GenAI: GGUF files, its own folders, and Hugging Face folders that are converted into such."""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..base import BadOption, Engine, LoadOptions, Options

# The CPU plug-in pages the cache in blocks of so many tokens.
_BLOCK_TOKENS = 32
_CACHE_TYPES = ("u8", "f16", "bf16", "f32")
_WEIGHTS = ("fp32", "fp16")
_READING = ("auto", "direct", "converted")
_MAX_ISA = "ONEDNN_MAX_CPU_ISA"
# OpenVINO begins every message with the line of its source that raised it.
_SOURCE = re.compile(r"^(Exception from |Check ).*:\d+:?\s*$", re.M)

Emit = Callable[[int], None]


class OpenVinoGenai(Engine):
    """One pipeline that batches continuously; nothing of a sequence is kept when it is done."""

    kinds = frozenset({"openvino-genai", "transformers", "gguf"})
    capabilities = frozenset({"generation", "whole_sequences", "concurrent_requests"})
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
        from . import conversion

        conversion.convert(model, folder, half=weights == "fp16")
        return [{"file": conversion.MODEL, "options": {"weights": weights}}]

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a GGUF file or a folder.

        Options: kv_cache (u8, f16, bf16, f32), precision (f32, bf16, f16), batched_tokens, max_cpu_isa; gguf and
        weights, which decide whether and how it is converted before; properties in capitals.
        """
        given = Options({key: value for key, value in options.options.items() if not key.isupper()})
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
            **{key: value for key, value in options.options.items() if key.isupper()},
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
            **{key.lower(): value for key, value in options.options.items() if key.isupper()},
        }

    def begin(self, context: Any) -> Optional[int]:
        """Remember a context: without a cache of prefixes it is computed with every prompt."""
        self._context = context
        return 0

    def rewind(self, depth: int) -> bool:
        """Nothing is kept of what was generated."""
        return True

    def generate(self, prompts: Any, new_tokens: int, emit: Callable[[int, int], None]) -> None:
        """All sequences at once; after every step of the pipeline each of them tells its tokens."""
        for row, prompt in enumerate(prompts):
            self._add(self._behind_context(prompt, row), new_tokens, functools.partial(emit, row))
        while self._active:
            self._step()

    def complete(self, prompt: Any, new_tokens: int, emit: Emit) -> None:
        """One request of several threads: whichever has the lock steps for all of them."""
        with self._lock:
            number = self._add(self._behind_context(prompt, 0), new_tokens, emit)
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

    def _behind_context(self, prompt: Any, row: int) -> Any:
        import numpy

        return numpy.concatenate([self._context[row], prompt]) if self._context.shape[1] else prompt

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
