"""Where a Cell is measured: nothing but an executor knows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from inferlab.measure import capacity, cell, paired, recommend
from inferlab.measure.paired import Contest
from inferlab.measure.prepare import Job
from inferlab.measure.recommend import Search
from inferlab.profiling.asked import Request
from inferlab.records import Capacity, Comparison, Listener, Objective, Recommendation, Run
from inferlab.records.profile import Profile


class Executor(Protocol):
    """Measures jobs somewhere."""

    def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
        """Measure one job, each Run as soon as it is there, or raise what went wrong.

        `before` are the runs that it has already, where a benchmark that was cut off goes on.
        """

    def compare(self, contest: Contest, listener: Listener) -> Comparison:
        """Compare two jobs on one machine, or raise what went wrong."""

    def capacity(self, job: Job, objective: Objective, listener: Listener) -> Capacity:
        """Find the highest rate at which a job keeps an objective, or raise what went wrong."""

    def recommend(self, search: Search, listener: Listener) -> Recommendation:
        """Find the best configuration on one machine, or raise what went wrong."""

    def profile(self, request: Request, listener: Listener) -> Iterator[Profile]:
        """Profile a model on one machine: the profile as it grows, part by part."""


class Local:
    """Measures on this machine."""

    def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
        """Measure one job in children of this process."""
        return cell.measure(job, before, listener)

    def compare(self, contest: Contest, listener: Listener) -> Comparison:
        """Compare two jobs in children of this process."""
        return paired.compare(contest, listener)

    def capacity(self, job: Job, objective: Objective, listener: Listener) -> Capacity:
        """Search in children of this process."""
        return capacity.find_capacity(job, objective, listener)

    def recommend(self, search: Search, listener: Listener) -> Recommendation:
        """Search in children of this process."""
        return recommend.recommend(search, listener)

    def profile(self, request: Request, listener: Listener) -> Iterator[Profile]:
        """Profile in children of this process."""
        from inferlab.profiling.build import build_profile

        return build_profile(request, listener)
