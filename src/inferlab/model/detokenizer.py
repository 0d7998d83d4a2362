"""What token ids say: by the tokenizer that lies beside a model, where there is one that can be read here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model.confined import confined

# A list of the tokens' bytes, each behind its length, as Moonshine's packages have it.
_LIST = "tokenizer.bin"
_JSON = "tokenizer.json"
_SPACE = "▁".encode()
_LARGEST = 200 << 20


def text_of(folder: Path, tokens: Sequence[int]) -> str:
    """The text of token ids; empty where the folder has no tokenizer, or none that can be read."""
    for name in (_LIST, _JSON):
        if (folder / name).is_file():
            return _decoded(folder / name, list(tokens)).strip()
    return ""


@confined(reads=["file"])
def _decoded(file: Path, tokens: list[int]) -> str:
    if file.name == _JSON:
        return _by_library(file, tokens)
    pieces = list(_pieces(file))
    texts = (pieces[token] for token in tokens if 0 <= token < len(pieces))
    joined = b"".join(piece for piece in texts if not _is_special(piece))
    return joined.replace(_SPACE, b" ").decode("utf-8", "replace")


def _by_library(file: Path, tokens: list[int]) -> str:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return ""
    try:
        return str(Tokenizer.from_file(str(file)).decode(tokens))
    except Exception as error:  # the library has no class of its own for what it cannot read
        raise BadInput(f"{file} cannot be read: {error}.") from error


@confined(reads=["folder"])
def special_tokens(folder: Path) -> dict[str, int]:
    """The ids of tokens that are no text, such as `<s>`, by name; none where there is no tokenizer."""
    if (folder / _LIST).is_file():
        pieces = enumerate(_pieces(folder / _LIST))
        return {piece.decode("utf-8", "replace"): number for number, piece in pieces if _is_special(piece)}
    if not (folder / _JSON).is_file():
        return {}
    try:
        added = json.loads((folder / _JSON).read_text(encoding="utf-8"))["added_tokens"]
        return {str(token["content"]): int(token["id"]) for token in added}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{folder / _JSON} cannot be read: it is cut off or damaged ({error}).") from error


def _is_special(piece: bytes) -> bool:
    return len(piece) > 2 and piece.startswith(b"<") and piece.endswith(b">")


def _pieces(file: Path) -> Iterator[bytes]:
    """The tokens of a list: one byte of length, or two from 128 on, the lower seven bits first."""
    if file.stat().st_size > _LARGEST:
        raise BadInput(f"{file} is too large for a tokenizer.")
    content = file.read_bytes()
    place = 0
    while place < len(content):
        length = content[place]
        place += 1
        if length >= 128:
            if place >= len(content):
                raise BadInput(f"{file} cannot be read: it is cut off or damaged.")
            length += 128 * content[place] - 128
            place += 1
        if place + length > len(content):
            raise BadInput(f"{file} cannot be read: it is cut off or damaged.")
        yield content[place : place + length]
        place += length
