"""Profiles and versions read again from JSON, out of a file or out of the store, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from inferlab.codec import parse_json, read_text, restored
from inferlab.errors import BadInput
from inferlab.records import optimization
from inferlab.records import profile as profiles
from inferlab.records.optimization import Optimization
from inferlab.records.profile import LossMethod, LossMetric, Profile

R = TypeVar("R")


@dataclass(frozen=True)
class RecordFiles(Generic[R]):
    """How a kind of record is read again: its format, and the words for what is wrong with a file."""

    kind: type[R]
    format: str
    #: What it is called, after "is not a".
    noun: str
    #: The command that writes one.
    command: str
    #: Refuses what nothing could have made; a ValueError says why.
    check: Callable[[R], None]

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


def is_file(name: str) -> bool:
    """Whether a name means a file with a record in it, which need not be there, rather than a model."""
    return name.lower().endswith(".json")


def _check_profile(profile: Profile) -> None:
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


def _check_version(version: Optimization) -> None:
    """Refuse what no measurement gives, and what views divide by; a ValueError says why."""
    if not all(one.ms > 0 and one.original_ms > 0 and one.speedup > 0 for one in version.measured):
        raise ValueError("a time is not more than 0")


PROFILES = RecordFiles(
    Profile, profiles.FORMAT, "profile", "inferlab profile MODEL -x profile.json", _check_profile
)
VERSIONS = RecordFiles(
    Optimization,
    optimization.FORMAT,
    "report of an optimised version",
    "inferlab optimize MODEL -o out.onnx -x version.json",
    _check_version,
)
