"""Where a Cell is measured: nothing but an executor knows it."""

from __future__ import annotations

from typing import Protocol

from inferlab.measure import cell
from inferlab.records import Listener, Run


class Executor(Protocol):
    """Measures jobs somewhere."""

    def measure(self, job: cell.Job, listener: Listener) -> Run:
        """Measure one job and return its Run, or raise what went wrong."""


class Local:
    """Measures on this machine."""

    def measure(self, job: cell.Job, listener: Listener) -> Run:
        """Measure one job in children of this process."""
        return cell.measure(job, listener)
