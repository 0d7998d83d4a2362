"""How long a step of a command may take: what the user said with --timeout, wherever the step is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: What --timeout is where nobody gives it. Steps that are known to take long then have a longer one of their own.
DEFAULT_S = 300.0

_current: ContextVar[float | None] = ContextVar("timeout_s", default=None)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Let every step within take so long at most; None stands for each step's own."""
    token = _current.set(seconds)
    try:
        yield
    finally:
        _current.reset(token)


def timeout_s(default_s: float = DEFAULT_S) -> float:
    """How long a step may take: as the user said, or else as long as is usual for it."""
    current = _current.get()
    return default_s if current is None else current
