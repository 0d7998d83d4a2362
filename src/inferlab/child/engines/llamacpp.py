"""llama.cpp: GGUF models, through the C functions of the library in the package xllamacpp."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import struct
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..counters import memory_bytes
from .base import BadOption, Engine, LoadOptions, Options

# Larger than any version's structures: what a function returns or takes by value lies at their beginning.
_STRUCTURE_BYTES = 1024
# Where llama_context_params has n_ctx, n_batch, n_ubatch and n_seq_max, and the defaults that prove it.
_CONTEXT_FIELDS = struct.Struct("<4I")
_CONTEXT_DEFAULTS = (512, 2048, 512, 1)
_CACHE_LINE = re.compile(r"size = +([\d.]+) MiB \( *(\d+) cells.*K \((\w+)\).*V \((\w+)\)")
_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']*)'")
_FLASH = re.compile(r"flash_attn += (\w+)|Flash Attention was auto, set to (\w+)")
_MOST_LINES = 2000
_STEP_TOKENS = 256
_FEW_TOKENS = 16
# By so much the caches differ whose sizes are compared: pages and what else a context takes are small beside it.
_GROWTH_BYTES = 32_000_000
_NO_VOCABULARY = 0
_ERROR = 4
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Parameters(ctypes.Structure):
    """Parameters of a model or a context, of which only the beginning is known."""

    _fields_ = [("content", ctypes.c_uint8 * _STRUCTURE_BYTES)]


class _Batch(ctypes.Structure):
    """llama_batch: tokens with their positions and sequences, and of which of them logits are wanted."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.c_void_p),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.c_void_p),
        ("n_seq_id", ctypes.c_void_p),
        ("seq_id", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
    ]


class LlamaCpp(Engine):
    """One model with one context, whose cache holds all sequences of a batch."""

    kinds = frozenset({"gguf"})
    capabilities = frozenset({"generation", "continuous_batching"})
    packages = ("xllamacpp",)

    def prepare(self) -> None:
        """Load the library."""
        self._library()

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load a GGUF file and make room for all tokens. Options: ubatch."""
        given = Options(options.options)
        ubatch = int(given.number("ubatch", 512))
        given.finish()
        lib = self._library()
        self._lines: List[str] = []
        self._batch_size, capacity = options.shapes["tokens"]
        self._listener, self._model = _load_model(lib, model, self._listen)
        if not self._model:
            raise self._refusal(model)
        self._vocabulary: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self._ubatch = ubatch
        # The cache is laid out in steps of 256 tokens for each sequence.
        each = -(-capacity // _STEP_TOKENS) * _STEP_TOKENS
        self._context = self._make_context(each * self._batch_size, self._batch_size)
        if not self._context:
            raise self._refusal(model)
        lib.llama_set_n_threads(self._context, options.threads, options.threads)
        self._memory = lib.llama_get_memory(self._context)
        self._most: int = lib.llama_n_batch(self._context)
        self._lengths = [0] * self._batch_size
        facts = self._cache_facts()
        facts["kv_allocated_tokens"] = int(lib.llama_n_ctx(self._context))
        return {
            "cache": "allocated",
            "num_threads": int(lib.llama_n_threads(self._context)),
            "n_batch": self._most,
            "n_ubatch": int(lib.llama_n_ubatch(self._context)),
            "system": lib.llama_print_system_info().decode("utf-8", "replace").strip(" |"),
            **facts,
        }

    def _make_context(self, tokens: int, sequences: int) -> Any:
        parameters = self._lib.llama_context_default_params()
        if _CONTEXT_FIELDS.unpack_from(parameters.content) != _CONTEXT_DEFAULTS:
            raise BadOption("this version of xllamacpp is not known; pip install 'inferlab[llamacpp]'")
        fields = (tokens, max(_CONTEXT_DEFAULTS[1], self._ubatch), self._ubatch, sequences)
        _CONTEXT_FIELDS.pack_into(parameters.content, 0, *fields)
        return self._lib.llama_init_from_model(self._model, parameters)

    def begin(self, context: Any) -> None:
        """Empty the cache, then fill it."""
        self._lib.llama_memory_clear(self._memory, False)
        self._lengths = [0] * self._batch_size
        if context.shape[1]:
            self.advance(list(enumerate(context)), logits=False)
            self._lib.llama_synchronize(self._context)

    def rewind(self, depth: int) -> bool:
        """Forget what follows the first tokens; a recurrent model cannot."""
        removed = [
            bool(self._lib.llama_memory_seq_rm(self._memory, number, depth, -1))
            for number in range(self._batch_size)
        ]
        self._lengths = [depth] * self._batch_size
        return all(removed)

    def decode(self, tokens: Any) -> Any:
        """Compute tokens of all sequences, and the most likely next ones."""
        return self.advance(list(enumerate(tokens)))

    def logits(self) -> Any:
        """Those of the last call."""
        import numpy

        return numpy.stack(self._logits)

    def cache_bytes(self) -> Optional[int]:
        """What the state of all sequences takes, as llama.cpp would save it."""
        sizes = [self._lib.llama_state_seq_get_size(self._context, number) for number in range(self._batch_size)]
        return int(sum(sizes))

    def cache_growth(self) -> Optional[float]:
        """What a context of more tokens takes beyond one of fewer: both have the same buffers for computing."""
        import numpy

        # A few tokens tell about how many are so many bytes.
        self.begin(numpy.zeros((self._batch_size, _FEW_TOKENS), numpy.int64))
        each = max(1.0, (self.cache_bytes() or 0) / (self._batch_size * _FEW_TOKENS))
        more = -(-int(_GROWTH_BYTES / each) // _STEP_TOKENS) * _STEP_TOKENS
        contexts, grown = [], []
        for tokens in (_STEP_TOKENS, _STEP_TOKENS + more):
            before = memory_bytes()["now"]
            contexts.append(self._make_context(tokens, 1))
            after = memory_bytes()["now"]
            if contexts[-1] and before is not None and after is not None:
                grown.append(after - before)
        for context in contexts:
            if context:
                self._lib.llama_free(context)
        return (grown[1] - grown[0]) / more if len(grown) == 2 else None

    def close(self) -> None:
        """Let go of the context and the model."""
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def forget(self, sequence: int, depth: int) -> None:
        """Remove what follows the first tokens of a sequence."""
        if not self._lib.llama_memory_seq_rm(self._memory, sequence, depth, -1):
            raise BadOption("this model cannot forget part of a sequence, so requests cannot be batched")
        self._lengths[sequence] = depth

    def advance(self, pieces: Sequence[Tuple[int, Any]], logits: bool = True) -> Any:
        """Compute tokens [position] of some sequences in one batch, behind what each has."""
        import numpy

        lengths = [len(tokens) for _, tokens in pieces]
        flat = numpy.concatenate([tokens for _, tokens in pieces]).astype(numpy.int32)
        positions = numpy.concatenate(
            [
                numpy.arange(self._lengths[number], self._lengths[number] + length, dtype=numpy.int32)
                for (number, _), length in zip(pieces, lengths)
            ]
        )
        sequences = numpy.repeat(numpy.array([number for number, _ in pieces], numpy.int32), lengths)
        last_of_each = numpy.cumsum(lengths) - 1
        with_logits = numpy.zeros(len(flat), numpy.int8)
        with_logits[last_of_each] = logits
        ones = numpy.ones(len(flat), numpy.int32)
        pointers = sequences.ctypes.data + 4 * numpy.arange(len(flat), dtype=numpy.uint64)
        pointers = pointers.astype(numpy.uint64)
        chosen: List[int] = []
        self._logits = []
        for first in range(0, len(flat), self._most):
            last = min(first + self._most, len(flat))
            batch = _Batch(
                last - first,
                flat.ctypes.data + 4 * first,
                None,
                positions.ctypes.data + 4 * first,
                ones.ctypes.data + 4 * first,
                pointers.ctypes.data + 8 * first,
                with_logits.ctypes.data + first,
            )
            code = self._lib.llama_decode(self._context, batch)
            if code:
                raise RuntimeError("llama_decode failed with code {}: {}".format(code, self._last_error()))
            for index in numpy.flatnonzero(with_logits[first:last]):
                row = self._lib.llama_get_logits_ith(self._context, int(index))
                values = numpy.ctypeslib.as_array(row, (self._vocabulary,))
                self._logits.append(values)
                chosen.append(int(values.argmax()))
        for (number, _), length in zip(pieces, lengths):
            self._lengths[number] += length
        return numpy.array(chosen, numpy.int32)

    def _library(self) -> Any:
        """The library, with the types of what is called."""
        if getattr(self, "_lib", None) is None:
            self._lib = _open_library()
        return self._lib

    def _listen(self, level: int, text: bytes, _: Any) -> None:
        if len(self._lines) < _MOST_LINES:
            line = text.decode("utf-8", "replace")
            self._lines.append("E " + line if level == _ERROR else line)

    def _last_error(self) -> str:
        return next(
            (line[2:].strip() for line in reversed(self._lines) if line.startswith("E ")), "no reason given"
        )

    def _refusal(self, model: str) -> BadOption:
        text = "".join(self._lines)
        unknown = _ARCHITECTURE.search(text)
        if unknown:
            return BadOption("it does not know the architecture '{}' of this model".format(unknown.group(1)))
        errors = [line[2:].strip() for line in self._lines if line.startswith("E ")]
        return BadOption(
            "it cannot load {}: {}".format(os.path.basename(model), (errors or ["no reason given"])[0])
        )

    def _cache_facts(self) -> Dict[str, Any]:
        """The types of the cache and whether attention is fused, as the log tells."""
        text = "".join(self._lines)
        facts: Dict[str, Any] = {}
        cache = _CACHE_LINE.search(text)
        if cache:
            facts["kv_dtype"] = cache.group(3)
        flash = _FLASH.findall(text)
        if flash:
            facts["flash_attention"] = next(word for word in reversed(flash[-1]) if word)
        return facts


class Vocabulary:
    """The tokenizer that a GGUF file has within."""

    def __init__(self, model: str) -> None:
        self._lib = lib = _open_library()
        self._listener, self._model = _load_model(lib, model, lambda level, text, _: None)
        if not self._model:
            raise BadOption("llama.cpp cannot load {}".format(os.path.basename(model)))
        self._vocabulary = lib.llama_model_get_vocab(self._model)
        if lib.llama_vocab_type(self._vocabulary) == _NO_VOCABULARY:
            raise BadOption("{} has no tokenizer".format(os.path.basename(model)))

    def tokenize(self, text: str) -> List[int]:
        """The ids of a text, with those that the model wants at its beginning."""
        content = text.encode("utf-8")
        most = len(content) + 16
        ids = (ctypes.c_int32 * most)()
        count = self._lib.llama_tokenize(self._vocabulary, content, len(content), ids, most, True, False)
        if count < 0:
            raise BadOption("llama.cpp cannot tokenise a text of {} bytes".format(len(content)))
        return list(ids[:count])


def _load_model(lib: Any, model: str, listen: Callable[[int, bytes, Any], None]) -> Tuple[Any, Any]:
    """What hears the library from now on, and a model, or nothing where it cannot be loaded."""
    listener = _LOG(listen)
    lib.llama_log_set(listener, None)
    lib.llama_backend_init()
    return listener, lib.llama_model_load_from_file(os.fsencode(model), lib.llama_model_default_params())


def _open_library() -> Any:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise ImportError("xllamacpp is not installed")
    folder = os.path.dirname(spec.origin)
    names = [name for name in sorted(os.listdir(folder)) if name.startswith("xllamacpp.") and ".so" in name]
    if not names:
        raise ImportError("xllamacpp has no library in {}".format(folder))
    lib = ctypes.CDLL(os.path.join(folder, names[0]))
    pointer, integer, number = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
    functions = {
        "llama_log_set": (None, [_LOG, pointer]),
        "llama_backend_init": (None, []),
        "llama_model_default_params": (_Parameters, []),
        "llama_context_default_params": (_Parameters, []),
        "llama_model_load_from_file": (pointer, [ctypes.c_char_p, _Parameters]),
        "llama_init_from_model": (pointer, [pointer, _Parameters]),
        "llama_model_get_vocab": (pointer, [pointer]),
        "llama_vocab_n_tokens": (integer, [pointer]),
        "llama_vocab_type": (integer, [pointer]),
        "llama_tokenize": (
            integer,
            [pointer, ctypes.c_char_p, integer, pointer, integer, ctypes.c_bool, ctypes.c_bool],
        ),
        "llama_set_n_threads": (None, [pointer, integer, integer]),
        "llama_n_threads": (integer, [pointer]),
        "llama_n_batch": (number, [pointer]),
        "llama_n_ubatch": (number, [pointer]),
        "llama_n_ctx": (number, [pointer]),
        "llama_get_memory": (pointer, [pointer]),
        "llama_memory_clear": (None, [pointer, ctypes.c_bool]),
        "llama_memory_seq_rm": (ctypes.c_bool, [pointer, integer, integer, integer]),
        "llama_decode": (integer, [pointer, _Batch]),
        "llama_synchronize": (None, [pointer]),
        "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [pointer, integer]),
        "llama_state_seq_get_size": (ctypes.c_size_t, [pointer, integer]),
        "llama_print_system_info": (ctypes.c_char_p, []),
        "llama_free": (None, [pointer]),
        "llama_model_free": (None, [pointer]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
