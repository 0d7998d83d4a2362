"""Make token ids of texts with the tokenizer that comes with a model; timed apart from generating."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Tuple

from .. import protocol
from ..engines.base import BadOption
from ..protocol import Answer

_FAST = "tokenizer.json"
_OTHERS = ("tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """The ids of all texts one behind the other, how many each has, and how long it took without loading."""
    import numpy

    texts = json.loads(blocks[0])
    label, tokenize = (
        _of_gguf(arguments["model"]) if arguments["kind"] == "gguf" else _of_folder(arguments["model"])
    )
    tokenize(texts[0])
    started = time.perf_counter()
    ids = [tokenize(text) for text in texts]
    seconds = time.perf_counter() - started
    arrays = {
        "tokens": numpy.array([token for each in ids for token in each], numpy.int64),
        "lengths": numpy.array([len(each) for each in ids], numpy.int64),
    }
    heads, out = protocol.pack_arrays(arrays)
    return {"arrays": heads, "seconds": seconds, "tokenizer": label}, out


def _of_gguf(model: str) -> Tuple[str, Callable[[str], List[int]]]:
    """The vocabulary of a GGUF file, by llama.cpp."""
    from ..engines.llamacpp import Vocabulary

    return "llama.cpp", Vocabulary(model).tokenize


def _of_folder(folder: str) -> Tuple[str, Callable[[str], List[int]]]:
    """The tokenizer of a folder, by tokenizers, or by transformers where it is of an older kind."""
    if os.path.isfile(os.path.join(folder, _FAST)):
        try:
            import tokenizers
        except ImportError:
            raise BadOption(
                "the folder's tokenizer needs the package tokenizers: pip install 'inferlab[transformers]'"
            ) from None
        try:
            fast = tokenizers.Tokenizer.from_file(os.path.join(folder, _FAST))
        except Exception as error:
            raise BadOption("{} cannot be read: {}".format(_FAST, error)) from error
        fast.no_padding()
        fast.no_truncation()
        return "tokenizers {}".format(tokenizers.__version__), lambda text: list(fast.encode(text).ids)
    if not any(os.path.isfile(os.path.join(folder, name)) for name in _OTHERS):
        raise BadOption("the folder has no tokenizer ({} or another)".format(_FAST))
    from ..engines.torch import folders

    transformers = folders.need_transformers()
    try:
        slow = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise BadOption("its tokenizer cannot be loaded: {}".format(error)) from error
    return "transformers {}".format(transformers.__version__), lambda text: list(slow(text)["input_ids"])
