"""Which of the recipes that were tried are worth a look: pure functions of speed, loss and size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from inferlab.records.optimization import Candidate, Front, Goal, Optimization

Outcome = Literal["reached", "missed", "open"]
#: Why a speed counts for nothing.
WRONG_OUTPUTS = "its outputs on this engine are wrong"

# Even a single pair, which has no interval, does not miss by more than this.
_FAR = 0.7
#: Speed, negative loss, negative size: more is better.
_Merits = tuple[float, float, float]


def mark_candidates(candidates: Sequence[Candidate], goal: Goal, original_bytes: int) -> tuple[Candidate, ...]:
    """The candidates, with who is efficient and who reaches the goal.

    The original counts as one of them: what is no faster, no smaller and loses something is not efficient.
    """
    merits = [_merits(candidate) for candidate in candidates]
    known = [(1.0, 0.0, -float(original_bytes)), *(merit for merit in merits if merit is not None)]
    return tuple(
        replace(
            candidate,
            efficient=own is not None and not any(_beats(other, own) for other in known),
            reaches=reaches(candidate, goal, original_bytes),
        )
        for candidate, own in zip(candidates, merits, strict=True)
    )


def reaches(candidate: Candidate, goal: Goal, original_bytes: int) -> bool:
    """Whether it surely reaches the goal, with the whole interval of its speed; what did not run does not."""
    surely = candidate.speedup_interval[0] if candidate.speedup_interval is not None else 0.0
    return (
        candidate.speedup is not None
        and _fits(candidate, goal, original_bytes)
        and surely >= (goal.speedup or 0.0)
    )


def may_reach(candidate: Candidate, goal: Goal, original_bytes: int) -> bool:
    """Whether it may reach the goal, as far as its speed is known."""
    at_best = math.inf if candidate.speedup is None else candidate.speedup / _FAR
    at_best = at_best if candidate.speedup_interval is None else candidate.speedup_interval[1]
    return _fits(candidate, goal, original_bytes) and at_best >= (goal.speedup or 0.0)


def keeps_loss(candidate: Candidate, goal: Goal) -> bool:
    """Whether it loses no more than allowed; where that is unknown it does not."""
    return candidate.loss is not None and candidate.loss <= goal.max_loss


def size_ratio(candidate: Candidate, original_bytes: int) -> float:
    """How many times smaller than the original its files are; 0 where that is unknown."""
    return original_bytes / candidate.size_bytes if candidate.size_bytes else 0.0


def chosen(candidates: Sequence[Candidate]) -> int | None:
    """The place of the fastest that reaches the goal, of equally fast ones the first; None where none does."""
    reaching = [place for place, candidate in enumerate(candidates) if candidate.reaches]
    return max(reaching, key=lambda place: candidates[place].speedup or 0.0, default=None)


def nearest(candidates: Sequence[Candidate], goal: Goal, original_bytes: int) -> int | None:
    """The place of the one that comes nearest to the goal within the loss; None where none is nearer than none."""
    start = _progress(1.0, 1.0, goal)
    reached = {
        place: _progress(_speed(candidate), size_ratio(candidate, original_bytes), goal)
        for place, candidate in enumerate(candidates)
        if keeps_loss(candidate, goal) and candidate.speedup is not None
    }
    nearer = [place for place, progress in reached.items() if progress > start]
    return max(nearer, key=lambda place: reached[place], default=None)


def outcome(front: Front) -> Outcome:
    """Whether the goal is reached, by the second measurement where there is one.

    The best of many looks better than it is, so what the search measured only chooses. That nothing reaches the
    goal needs no second measurement: it is sure where all was tried and no interval leaves it open.
    """
    if front.confirmed is not None:
        if reaches(front.confirmed, front.goal, front.original_bytes):
            return "reached"
        may = may_reach(front.confirmed, front.goal, front.original_bytes)
        return "open" if may and front.confirmed.reason != WRONG_OUTPUTS else "missed"
    measured = [candidate for candidate in front.candidates if candidate.speedup is not None]
    if front.complete and not any(
        may_reach(candidate, front.goal, front.original_bytes) for candidate in measured
    ):
        return "missed"
    return "open"


def confirmed(chosen: Candidate, version: Optimization, engine: str, loss: float | None) -> Candidate:
    """The chosen recipe as its version was measured again; without a speed where that failed or outputs are wrong.

    Where that engine was not measured again, the search's own speed stays: then no speed is the goal.
    """
    candidate = replace(chosen, size_bytes=version.optimized.size_bytes, loss=loss, reason="", efficient=False)
    if version.distance is not None:
        candidate = replace(candidate, accuracy=version.distance.accuracy)
    unknown = replace(candidate, speedup=None, speedup_interval=None, level=None)
    again = next((measurement for measurement in version.measured if measurement.engine == engine), None)
    if again is None:
        problem = next((problem for problem in version.problems if problem.startswith(f"{engine}: ")), "")
        return replace(unknown, reason=problem) if problem else candidate
    if again.output_check.status == "mismatch":
        return replace(unknown, reason=WRONG_OUTPUTS)
    return replace(candidate, speedup=again.speedup, speedup_interval=again.speedup_interval, level=again.level)


def _fits(candidate: Candidate, goal: Goal, original_bytes: int) -> bool:
    """Whether it keeps the loss and is as small as it shall be."""
    return keeps_loss(candidate, goal) and size_ratio(candidate, original_bytes) >= (goal.size_ratio or 0.0)


def _progress(speed: float, smaller: float, goal: Goal) -> tuple[float, float]:
    """The share of the goal that is reached where least of it is, then the product of all shares."""
    shares = [speed / goal.speedup] if goal.speedup is not None else []
    shares += [smaller / goal.size_ratio] if goal.size_ratio is not None else []
    return min((1.0, *shares)), math.prod(shares)


def _speed(candidate: Candidate) -> float:
    """Its speed-up; a difference from the original that the interval does not show is none."""
    if candidate.speedup is None or candidate.speedup_interval is None:
        return candidate.speedup or 0.0
    return 1.0 if candidate.speedup_interval[0] <= 1 <= candidate.speedup_interval[1] else candidate.speedup


def _merits(candidate: Candidate) -> _Merits | None:
    """What counts for a candidate; None where not all of it is known."""
    if candidate.speedup is None or candidate.loss is None or candidate.size_bytes is None:
        return None
    return _speed(candidate), -candidate.loss, -float(candidate.size_bytes)


def _beats(own: _Merits, other: _Merits) -> bool:
    """Whether it is as good in everything and better in something."""
    return own != other and all(mine >= theirs for mine, theirs in zip(own, other, strict=True))
