"""A profile as a JSON file, and read again from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from inferlab.errors import BadInput
from inferlab.profiling.records import FORMAT, LossMethod, LossMetric, Profile
from inferlab.render.files import finite
from inferlab.store.serialize import plain, restored

_MAKE = "Make one with: inferlab profile MODEL -x profile.json"


def content(profile: Profile) -> dict[str, Any]:
    """The whole profile as JSON values; what is not a number is null."""
    found: dict[str, Any] = finite(plain(profile))
    return found


def to_json(profile: Profile) -> str:
    """The text that `inferlab profile -x profile.json` writes."""
    return json.dumps(content(profile), indent=2, allow_nan=False) + "\n"


def from_content(found: Any, name: str) -> Profile:
    """The profile that was written so; refused where it is none, or where no measurement could have made it."""
    if not isinstance(found, Mapping):
        raise BadInput(f"{name} is not a profile. {_MAKE}")
    if found.get("format") != FORMAT:
        raise BadInput(f"{name} is not a profile that this version reads ({found.get('format') or 'no format'}).")
    try:
        profile = restored(Profile, dict(found))
        _check(profile)
    except ValueError as error:
        raise BadInput(f"The profile {name} is damaged: {error}. Make it again.") from error
    return profile


def _check(profile: Profile) -> None:
    """Refuse what no measurement gives, and what views divide by or look up; a ValueError says why."""
    performance, loss = profile.performance, profile.loss
    positive: list[float] = []
    levels: list[str] = []
    if performance:
        positive += [performance.batch_size, performance.ms_per_batch, *(performance.processes_ms or [0.0])]
        levels += [*performance.pruned, *(key for layer in performance.layers for key in layer.pruned)]
        if limits := performance.ceilings:
            positive += [limits.fp32_gflops, limits.bandwidth_gb_per_s]
    if loss:
        levels += [key for layer in loss.layers for key in layer.losses]
        if loss.method not in get_args(LossMethod) or loss.metric not in get_args(LossMetric):
            raise ValueError(f"its losses are of an unknown kind, {loss.method} in {loss.metric}")
    if profile.estimate and profile.estimate.verified:
        positive.append(profile.estimate.verified.ms_per_batch)
    if not all(value > 0 for value in positive):
        raise ValueError("a time, a batch size or a ceiling is not more than 0")
    for key in levels:
        if not 0 <= float(key) <= 1:
            raise ValueError(f"{key} is no level of pruning")


def is_file(name: str) -> bool:
    """Whether a name means a file with a profile in it, which need not be there, rather than a model."""
    return name.lower().endswith(".json")


def load(name: str) -> Profile:
    """Read a profile from a file."""
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{name} cannot be read as a profile: {reason}. {_MAKE}") from error
    return from_content(found, name)
