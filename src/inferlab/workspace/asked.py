"""What a job asks for: records that are kept in the queue as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferlab.codec import plain, restored
from inferlab.errors import InferlabError
from inferlab.optimizing.asked import Asked as Optimizing
from inferlab.profiling.asked import Wanted
from inferlab.records import Plan
from inferlab.store.entries import JobKind


@dataclass(frozen=True, slots=True)
class BenchmarkAsked:
    """Measure a plan; `against` is a benchmark that it shall be shown beside."""

    plan: Plan
    against: str | None = None


@dataclass(frozen=True, slots=True)
class ComparisonAsked:
    """Compare two plans in turns, at each of their core counts and batch sizes."""

    a: Plan
    b: Plan
    labels: tuple[str, str]
    #: For each comparison.
    time_s: float
    margin: float = 0.01


@dataclass(frozen=True, slots=True)
class ProfileAsked:
    """Profile a model."""

    plan: Plan
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class OptimizationAsked:
    """Make a version of a model and measure it."""

    plan: Plan
    asked: Optimizing


@dataclass(frozen=True, slots=True)
class InstallAsked:
    """Install an engine into its own environment."""

    engine: str


Asked = BenchmarkAsked | ComparisonAsked | ProfileAsked | OptimizationAsked | InstallAsked

_KINDS: dict[JobKind, type[Asked]] = {
    "benchmark": BenchmarkAsked,
    "comparison": ComparisonAsked,
    "profile": ProfileAsked,
    "optimization": OptimizationAsked,
    "install": InstallAsked,
}


def kind_of(asked: Asked) -> JobKind:
    """What a job with this is called."""
    return next(kind for kind, record in _KINDS.items() if isinstance(asked, record))


def to_content(asked: Asked) -> dict[str, Any]:
    """As JSON values."""
    found: dict[str, Any] = plain(asked)
    return found


def from_content(kind: JobKind, content: Mapping[str, Any]) -> Asked:
    """What `to_content` was given."""
    try:
        return restored(_KINDS[kind], dict(content))
    except (ValueError, KeyError) as error:
        raise InferlabError(f"What this job asks for cannot be read: {error}. Ask for it again.") from error
