"""PyTorch generates with transformers, from Hugging Face folders and from GGUF files that it dequantises."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..base import CACHE_TYPES, BadOption, Engine, LoadOptions, Options

_DTYPES = {"auto": "auto", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class TorchGenerator(Engine):
    """A language model or an encoder–decoder with transformers' own cache, called token by token."""

    kinds = frozenset({"transformers", "gguf"})
    capabilities = frozenset({"generation", "encoder"})
    packages = ("torch", "transformers")
    _encoder: Any = None

    def prepare(self) -> None:
        """Import torch and transformers."""
        from . import folders

        folders.prepare(None)
        import torch  # noqa: F401

    def convert(self, model: str, folder: str, options: Dict[str, str]) -> List[Dict[str, Any]]:
        """Write the weights of a GGUF file in 32 bits, as a Hugging Face folder."""
        from . import folders

        transformers = folders.need_transformers()
        import torch

        try:
            import gguf
            from transformers import modeling_gguf_pytorch_utils as files
        except ImportError:
            raise BadOption("a GGUF file needs the package gguf: pip install 'inferlab[transformers]'") from None
        # Read once, and without the tokenizer, which would take most of the time.
        reader = _without_tokenizer(gguf.GGUFReader(model))
        gguf.GGUFReader = lambda path: reader
        try:
            config = transformers.AutoConfig.for_model(**files.load_gguf_checkpoint(model)["config"])
            with torch.device("meta"):
                module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            tensors = files.load_gguf_checkpoint(model, return_tensors=True, model_to_load=module)["tensors"]
        except (ValueError, KeyError, NotImplementedError) as error:
            text = str(error).rstrip(".")
            raise BadOption("transformers does not read this GGUF file: {}".format(text)) from error
        missing = module.load_state_dict(tensors, strict=False, assign=True).missing_keys
        module.tie_weights()
        if missing and not (config.tie_word_embeddings and all("lm_head" in name for name in missing)):
            raise BadOption("transformers finds no weights for {} in this file".format(", ".join(missing[:3])))
        module.save_pretrained(folder)
        return [{"file": "config.json", "options": {}}]

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a folder. Options: dtype (auto, fp32, bf16, fp16)."""
        settings = Options(options.options)
        dtype = settings.text("dtype", "auto", tuple(_DTYPES))
        settings.finish()
        import torch

        from . import files, folders

        self._torch = torch
        files.set_threads(options.threads)
        self._module = folders.read_folder(model, dtype=_DTYPES[dtype])
        if not self._module.can_generate():
            raise BadOption("{} does not generate tokens".format(type(self._module).__name__))
        self._encoder = self._module.get_encoder() if self._module.config.is_encoder_decoder else None
        if self._encoder is not None:
            self.take_start_tokens(options)
        self._inference = torch.inference_mode()
        self._inference.__enter__()
        dtype_name = str(next(self._module.parameters()).dtype).replace("torch.", "")
        return {
            "dtype": dtype_name,
            "kv_dtype": CACHE_TYPES.get(dtype_name, ""),
            "attention": str(getattr(self._module.config, "_attn_implementation", "")),
            "cache": "dynamic",
            "intra_op_num_threads": torch.get_num_threads(),
        }

    def begin(self, context: Any) -> None:
        """A new cache, filled."""
        self.refuse_context(context)
        self._cache = self._new_cache()
        if context.shape[1]:
            self.decode(context)

    def _new_cache(self) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        config = self._module.config
        if self._encoder is None:
            return DynamicCache(config=config)
        return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))

    def rewind(self, depth: int) -> bool:
        """Cut the cache."""
        surplus = int(self._cache.get_seq_length()) - depth
        if depth == 0:
            return False  # a new cache is as good
        if surplus:
            self._cache.crop(-surplus)
        return True

    def encode(self, inputs: Any) -> None:
        """Run the encoder."""
        features = self._torch.from_numpy(inputs)
        if features.is_floating_point():
            features = features.to(self._module.dtype)
        self._encoded = self._encoder(features, return_dict=True)

    def decode(self, tokens: Any) -> Any:
        """Run the module, or its decoder."""
        ids = self._torch.from_numpy(tokens)
        if self._encoder is None:
            answer = self._module(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        else:
            answer = self._module(
                encoder_outputs=self._encoded, decoder_input_ids=ids, past_key_values=self._cache, use_cache=True
            )
        self._logits = answer.logits[:, -1]
        return self._logits.argmax(-1).numpy()

    def logits(self) -> Any:
        """Those of the last call."""
        return self._logits.float().numpy()

    def cache_bytes(self) -> Optional[int]:
        """What its tensors of keys and values take; those of an encoder's output are not counted."""
        cache = self._cache if self._encoder is None else self._cache.self_attention_cache
        layers = getattr(cache, "layers", ())
        return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers) or None


def _without_tokenizer(reader: Any) -> Any:
    """A reader of a file without its tokenizer, but for the number of tokens where nothing else tells it."""
    has_vocabulary = any(name.endswith(".vocab_size") for name in reader.fields)
    needed = () if has_vocabulary else ("tokenizer.ggml.tokens",)
    for name in [name for name in reader.fields if name.startswith("tokenizer.") and name not in needed]:
        del reader.fields[name]
    return reader
