"""Warnings, facts about the machine and progress as data; only a view turns them into prose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: `warn` disturbs measurements; `unknown` cannot be read here; `info` is worth knowing and no fault.
FactState = Literal["good", "warn", "unknown", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning as data; only a view turns it into prose."""

    code: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about the machine as data; only a view turns it into prose."""

    code: str
    state: FactState
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on the way, for logs and progress; `fraction` is None where unknown."""

    code: str
    data: Mapping[str, Any] = field(default_factory=dict)
    fraction: float | None = None


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener of those who do not listen."""
