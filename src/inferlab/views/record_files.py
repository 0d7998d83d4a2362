"""Records of one kind as JSON files, and read again from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from inferlab.errors import BadInput
from inferlab.parsing import parse_json, read_text
from inferlab.store.serialize import plain, restored
from inferlab.views.files import finite

R = TypeVar("R")


@dataclass(frozen=True)
class RecordFiles(Generic[R]):
    """How a kind of record is written and read: its format, and the words for what is wrong with a file."""

    kind: type[R]
    format: str
    #: What it is called, after "is not a".
    noun: str
    #: The command that writes one.
    command: str
    #: Refuses what nothing could have made; a ValueError says why.
    check: Callable[[R], None]

    def content(self, record: R) -> dict[str, Any]:
        """The whole record as JSON values; what is not a number is null."""
        found: dict[str, Any] = finite(plain(record))
        return found

    def to_json(self, record: R) -> str:
        """The text that the command writes."""
        return json.dumps(self.content(record), indent=2, allow_nan=False) + "\n"

    def from_content(self, found: Any, name: str) -> R:
        """The record that was written so; refused where it is none, or where nothing could have made it."""
        if not isinstance(found, Mapping):
            raise BadInput(f"{name} is not a {self.noun}. {self._make}")
        if found.get("format") != self.format:
            told = found.get("format") or "no format"
            raise BadInput(f"{name} is not a {self.noun} that this version reads ({told}).")
        try:
            record = restored(self.kind, dict(found))
            self.check(record)
        except BadInput:
            raise
        except (ValueError, ArithmeticError) as error:
            raise BadInput(f"The {self.noun} {name} is damaged: {error}. Make it again.") from error
        return record

    def load(self, name: str) -> R:
        """Read a record from a file."""
        try:
            found = parse_json(read_text(Path(name)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadInput(f"{name} cannot be read as a {self.noun}: {reason}. {self._make}") from error
        return self.from_content(found, name)

    @property
    def _make(self) -> str:
        return f"Make one with: {self.command}"
