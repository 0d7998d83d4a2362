"""ONNX Runtime GenAI: its own folders, and what its model builder makes of Hugging Face folders."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Optional

from .base import CACHE_TYPES, BadOption, Engine, LoadOptions, Options
from .onnxruntime import GENAI_CONFIG, read_genai_config, worker_affinity

_WEIGHTS = ("fp32", "fp16", "bf16", "int8", "int4")
_GREEDY = {"num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}


class OnnxRuntimeGenai(Engine):
    """One model with one generator, which is rewound to the context after each generation."""

    kinds = frozenset({"onnxruntime-genai", "transformers", "gguf"})
    capabilities = frozenset({"generation"})
    packages = ("onnxruntime-genai", "onnxruntime")

    def prepare(self) -> None:
        """Import onnxruntime_genai, which tells nobody of it."""
        _import()

    def convert(self, model: str, folder: str, options: Dict[str, str]) -> List[Dict[str, Any]]:
        """Build a folder from a Hugging Face folder. Options: weights (fp32, fp16, bf16, int8, int4)."""
        given = Options(options)
        weights = given.text("weights", "fp32", _WEIGHTS)
        given.finish()
        module = _import()
        try:
            import torch  # noqa: F401
            import transformers  # noqa: F401
        except ImportError:
            raise BadOption("its model builder needs transformers: pip install 'inferlab[transformers]'") from None
        # The builder is a program whose modules import each other by their short names.
        sys.path.insert(0, os.path.join(os.path.dirname(module.__file__), "models"))
        import builder
        from builders import base

        # Prompts are token ids: no tokenizer is needed, and many folders have none.
        builder.AutoTokenizer = base.AutoTokenizer = _NoTokenizer
        cache = os.path.join(folder, "cache")
        try:
            # It prints what it does.
            with contextlib.redirect_stdout(io.StringIO()):
                extra = builder.parse_extra_options(
                    model, model, folder, weights, "cpu", cache, ["hf_token=false"]
                )
                builder.create_model(model, model, folder, weights, "cpu", cache, **extra)
        except NotImplementedError:
            raise BadOption(
                "its model builder does not know the architecture '{}' of this model".format(_architecture(model))
            ) from None
        finally:
            shutil.rmtree(cache, ignore_errors=True)
        return [{"file": GENAI_CONFIG, "options": {"weights": weights}}]

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a folder. Options: spinning; weights, which were decided when it was built."""
        given = Options(options.options)
        weights = given.text("weights", "", ("", *_WEIGHTS))
        spinning = given.flag("spinning", True)
        given.finish()
        module = _import()
        self._module = module
        self._batch_size, self._capacity = options.shapes["tokens"]
        config = read_genai_config(model)
        decoder = config["model"]["decoder"]
        vocabulary = int(config["model"]["vocab_size"])
        # A sequence must not end, nor may tokens of a prompt be taken for padding. The end must be a token of the
        # vocabulary: it is the last one, which is then never chosen.
        config["model"].update(eos_token_id=[vocabulary - 1], pad_token_id=-1)
        decoder.setdefault("session_options", {}).update(
            {
                "intra_op_num_threads": options.threads,
                "inter_op_num_threads": 1,
                "session.intra_op.allow_spinning": "1" if spinning else "0",
            }
        )
        affinity = worker_affinity(options)
        if affinity:
            decoder["session_options"]["session.intra_op_thread_affinities"] = affinity
        # What a folder says of choosing tokens would make them others than the most likely ones.
        config.setdefault("search", {}).update(_GREEDY)
        self._folder = _linked(model, config)
        try:
            self._model = module.Model(module.Config(self._folder))
            self._parameters = module.GeneratorParams(self._model)
            self._parameters.set_search_options(
                max_length=self._capacity, min_length=self._capacity, batch_size=self._batch_size, do_sample=False
            )
            self._generator = module.Generator(self._model, self._parameters)
        except RuntimeError as error:
            raise BadOption("it cannot load this model: {}".format(_sentence(error))) from None
        if affinity:
            from ..processes import pin

            pin(options.cpus[:1])  # the caller computes too, beside the workers that have the other CPUs
        self._context: Any = None
        self._given: List[Any] = []
        self._last: Any = None
        self._names = [
            decoder.get("outputs", {}).get(name) for name in ("present_key_names", "present_value_names")
        ]
        self._layers = int(decoder.get("num_hidden_layers", 0))
        shared = bool(config.get("search", {}).get("past_present_share_buffer"))
        return {
            "intra_op_num_threads": options.threads,
            "spinning": int(spinning),
            "kv_dtype": self._cache_type(),
            "context": self._capacity,
            "cache": "shared buffer" if shared else "grows",
            "masked_token": vocabulary - 1,
            **({"weights": weights} if weights else {}),
        }

    def begin(self, context: Any) -> Optional[int]:
        """Compute a context; of a batch it takes tokens only once, so there it is computed with the prompts."""
        self._generator.rewind_to(0)
        self._context = context
        if not context.shape[1]:
            return None
        if self._batch_size > 1:
            return 0
        self._generator.append_tokens(_ids(context))
        return None

    def rewind(self, depth: int) -> bool:
        """Forget what follows the context."""
        self._generator.rewind_to(depth if self._batch_size == 1 else 0)
        return True

    def prefill(self, prompts: Any) -> Any:
        """The most likely token behind each prompt."""
        self._given = [prompts]
        if self._batch_size > 1 and self._context.shape[1]:
            import numpy

            self._given = [self._context, prompts]
            prompts = numpy.concatenate(self._given, axis=1)
        self._generator.append_tokens(_ids(prompts))
        return self._choose()

    def step(self, tokens: Any) -> Any:
        """The most likely tokens behind these: its own, which it has already, or others in their place."""
        self._given.append(tokens[:, None])
        if tokens is not self._last:
            self._compute_again()
        return self._choose()

    def logits(self) -> Any:
        """Those that the last tokens were chosen by: there only before a token is chosen, so computed again."""
        self._compute_again()
        logits = self._generator.get_logits()[:, -1].copy()
        self._choose()
        return logits

    def _compute_again(self) -> None:
        """Compute all tokens behind the context, as if none had been chosen behind them."""
        import numpy

        self.rewind(self._context.shape[1])
        self._generator.append_tokens(_ids(numpy.concatenate(self._given, axis=1)))

    def cache_bytes(self) -> Optional[int]:
        """What the tensors of keys and values take for the tokens in them; there is room for the context."""
        if not all(self._names) or not self._layers:
            return None
        each = 0.0
        for name in self._names:
            tensor = self._generator.get_output(name % 0)
            # [sequence, head, position, value]
            each += tensor.nbytes / (tensor.shape[0] * tensor.shape[2])
        return int(each * self._layers * self._batch_size * (self._generator.token_count() - 1))

    def close(self) -> None:
        """Remove the folder of links."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _choose(self) -> Any:
        self._generator.generate_next_token()
        self._last = self._generator.get_next_tokens()
        return self._last

    def _cache_type(self) -> str:
        """The type of the cache, as the tensors behind a first token have it."""
        import numpy

        try:
            self._generator.append_tokens(numpy.zeros((self._batch_size, 1), numpy.int32))
            dtype = self._generator.get_output(self._names[0] % 0).dtype.name if self._names[0] else ""
        except RuntimeError as error:
            raise BadOption("it cannot run this model: {}".format(_sentence(error))) from None
        self._generator.rewind_to(0)
        return CACHE_TYPES.get(dtype, "")


class _NoTokenizer:
    """What the model builder takes for a tokenizer."""

    eos_token = None

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> "_NoTokenizer":
        """Whatever it is of."""
        return cls()

    def get_vocab(self) -> Dict[str, int]:
        """No words."""
        return {}

    def save_pretrained(self, *_: Any) -> None:
        """Write nothing."""


def _import() -> Any:
    import onnxruntime_genai

    onnxruntime_genai.disable_telemetry_events()
    return onnxruntime_genai


def _ids(tokens: Any) -> Any:
    import numpy

    return numpy.ascontiguousarray(tokens, numpy.int32)


def _architecture(folder: str) -> str:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    return str(next(iter(config.get("architectures") or [""]), "") or config.get("model_type", ""))


def _linked(folder: str, config: Dict[str, Any]) -> str:
    """A folder of links to a model's files, with another configuration: what is laid over it cannot end a list."""
    links = tempfile.mkdtemp(prefix="genai-")
    for name in os.listdir(folder):
        if name != GENAI_CONFIG:
            os.symlink(os.path.join(os.path.abspath(folder), name), os.path.join(links, name))
    with open(os.path.join(links, GENAI_CONFIG), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return links


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
