"""A profile as a JSON file, and read again from one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.profiling.records import FORMAT, Profile
from inferlab.store.serialize import plain, restored


def content(profile: Profile) -> dict[str, Any]:
    """The whole profile as JSON values; what is not a number is null."""
    found: dict[str, Any] = _finite(plain(profile))
    return found


def to_json(profile: Profile) -> str:
    """The text that `inferlab profile -x profile.json` writes."""
    return json.dumps(content(profile), indent=2, allow_nan=False) + "\n"


def from_content(found: Mapping[str, Any], name: str) -> Profile:
    """The profile that was written so."""
    if found.get("format") != FORMAT:
        raise BadInput(f"{name} is not a profile that this version reads ({found.get('format') or 'no format'}).")
    try:
        return restored(Profile, dict(found))
    except ValueError as error:
        raise BadInput(f"The profile {name} is damaged: {error}. Make it again.") from error


def is_file(name: str) -> bool:
    """Whether a name means a file with a profile in it rather than a model."""
    return name.endswith(".json") and Path(name).is_file()


def load(name: str) -> Profile:
    """Read a profile from a file."""
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{name} cannot be read as a profile: {error}. Make it with: inferlab profile -x"
        ) from error
    if not isinstance(found, dict):
        raise BadInput(f"{name} is not a profile. Make one with: inferlab profile MODEL -x profile.json")
    return from_content(found, name)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value
