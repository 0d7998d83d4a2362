"""An optimised version as a JSON file, and read again from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.optimizing.records import FORMAT, Optimization
from inferlab.render.files import finite
from inferlab.store.serialize import plain, restored

_MAKE = "Make one with: inferlab optimize MODEL -o out.onnx -x version.json"


def content(found: Optimization) -> dict[str, Any]:
    """The whole version as JSON values; what is not a number is null."""
    told: dict[str, Any] = finite(plain(found))
    return told


def to_json(found: Optimization) -> str:
    """The text that `inferlab optimize -x version.json` writes."""
    return json.dumps(content(found), indent=2, allow_nan=False) + "\n"


def from_content(found: Any, name: str) -> Optimization:
    """The version that was written so; refused where it is none, or where nothing could have made it."""
    if not isinstance(found, Mapping):
        raise BadInput(f"{name} is not an optimised version. {_MAKE}")
    if found.get("format") != FORMAT:
        raise BadInput(
            f"{name} is not an optimised version that this inferlab reads ({found.get('format') or 'no format'})."
        )
    try:
        version = restored(Optimization, dict(found))
        if not all(one.ms > 0 and one.original_ms > 0 and one.speedup > 0 for one in version.measured):
            raise ValueError("a time is not more than 0")
    except ValueError as error:
        raise BadInput(f"The optimised version {name} is damaged: {error}. Make it again.") from error
    return version


def load(name: str) -> Optimization:
    """Read a version from a file."""
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{name} cannot be read as an optimised version: {reason}. {_MAKE}") from error
    return from_content(found, name)
