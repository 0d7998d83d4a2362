"""The grid of a search for the best configuration, and its rules as pure functions of what was measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

from inferlab.records.recommendation import Candidate
from inferlab.units import plural

BATCH_SIZES = (1, 2, 4, 8, 16)
#: Differences up to this share do not matter: the simpler configuration is then the better one.
TIE = 0.03
# Until processes tell, equal ones are taken to differ so much (log scale): one alone is dropped from 25 % on.
_SPREAD, _SPREAD_FREEDOM = 0.068, 4
# So many standard errors are clear, although the best of many is always a lucky one.
_CLEAR = 3.0
# What a ratio found at one batch size may be off at another.
_OFF = 1.25
_RIDGE = 0.1
# Half as much again as the limit, in one process, clearly misses an objective; tails are noisier than rates.
_MISSED = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of a candidate: items a second of each process, and the objective's statistic as a share of the limit."""

    rates: tuple[float, ...]
    strain: float = 0.0

    @property
    def rate(self) -> float:
        """The typical process's items a second."""
        return math.exp(fmean(math.log(rate) for rate in self.rates))

    @property
    def keeps(self) -> bool:
        """Whether the objective is met; always, where there is none."""
        return self.strain <= 1

    @property
    def clearly_misses(self) -> bool:
        """Whether the objective is missed by more than noise explains."""
        return self.strain > 1 + _MISSED / len(self.rates)


Measurements = Mapping[Candidate, Evidence]


def label(candidate: Candidate) -> str:
    """A candidate in words."""
    return (
        f"{candidate.engine}, {plural(candidate.num_cores, 'core')}, "
        f"{plural(candidate.num_streams, 'stream')}, batch {candidate.batch_size}"
    )


def core_counts(most: int) -> tuple[int, ...]:
    """1, 2, 4, … and all."""
    return tuple(sorted({2**power for power in range(most.bit_length()) if 2**power < most} | {most}))


def grid(
    engines: Sequence[str], cores: Sequence[int], streams: Collection[int], batch_sizes: Sequence[int]
) -> tuple[Candidate, ...]:
    """Every engine with every number of cores, streams that divide them (or those given), and batch size."""
    return tuple(
        Candidate(engine, count, number, batch)
        for engine in engines
        for count in cores
        for number in range(1, count + 1)
        if (number in streams if streams else count % number == 0)
        for batch in batch_sizes
    )


def spread(measurements: Measurements) -> float:
    """How much processes of one candidate differ (standard deviation of logarithms), over all candidates."""
    squares, freedom = _SPREAD_FREEDOM * _SPREAD**2, _SPREAD_FREEDOM
    for evidence in measurements.values():
        if len(evidence.rates) > 1:
            squares += (len(evidence.rates) - 1) * variance(math.log(rate) for rate in evidence.rates)
            freedom += len(evidence.rates) - 1
    return math.sqrt(squares / freedom)


def clearly_worse(evidence: Evidence, best: Evidence, sigma: float) -> bool:
    """Whether one's throughput is below the best's by more than processes differ."""
    error = sigma * math.sqrt(1 / len(evidence.rates) + 1 / len(best.rates))
    return math.log(best.rate / evidence.rate) > _CLEAR * error


def ranked(measurements: Measurements) -> list[Candidate]:
    """The best first, by a throughput that each can be trusted with: a single process may have been lucky."""
    sigma = spread(measurements)
    return sorted(
        measurements,
        key=lambda candidate: (
            sigma / math.sqrt(len(measurements[candidate].rates)) - math.log(measurements[candidate].rate)
        ),
    )


def best_of(measurements: Measurements) -> Candidate | None:
    """The highest throughput that meets the objective."""
    return next((candidate for candidate in ranked(measurements) if measurements[candidate].keeps), None)


def still_in(measurements: Measurements) -> list[Candidate]:
    """The candidates that may yet be the best, the best first."""
    sigma, best = spread(measurements), best_of(measurements)
    return [
        candidate
        for candidate in ranked(measurements)
        if not measurements[candidate].clearly_misses
        and (best is None or not clearly_worse(measurements[candidate], measurements[best], sigma))
    ]


def contending(measurements: Measurements) -> list[Candidate]:
    """Those to look at again: the best, simpler ones that may be as fast (simplest first), the rest."""
    best, left, sigma = best_of(measurements), still_in(measurements), spread(measurements)
    if best is None:
        return left
    simpler = [
        candidate for candidate in left if measurements[candidate].keeps and candidate.simplicity < best.simplicity
    ]
    ties = [candidate for candidate in simpler if _may_tie(measurements[candidate], measurements[best], sigma)]
    first = [best, *sorted(ties, key=lambda tie: tie.simplicity)]
    return first + [candidate for candidate in left if candidate not in first]


def _may_tie(evidence: Evidence, best: Evidence, sigma: float) -> bool:
    """Whether what is missing is within the margin, as far as one standard error tells."""
    error = sigma * math.sqrt(1 / len(evidence.rates) + 1 / len(best.rates))
    return math.log(best.rate / evidence.rate) <= math.log1p(TIE) + error


def spared(waiting: Sequence[Candidate], measurements: Measurements) -> dict[Candidate, Candidate]:
    """Those that need not be measured, each with the measured one whose figures show it.

    A larger batch takes no less time than a smaller one. Fewer cores give no more than the same streams
    repeated on more cores, and about the same share of it as they gave at another batch size.
    """
    best = best_of(measurements)
    sparing = {
        candidate: _spared_by(candidate, measurements, measurements[best].rate if best else None)
        for candidate in waiting
    }
    return {candidate: other for candidate, other in sparing.items() if other is not None}


def _spared_by(candidate: Candidate, measurements: Measurements, best: float | None) -> Candidate | None:
    for other, evidence in measurements.items():
        smaller = differ_in_batch(candidate, other) and other.batch_size < candidate.batch_size
        if smaller and evidence.clearly_misses:
            return other
        if best is None:
            continue
        bound = None
        if smaller:
            bound = evidence.rate * candidate.batch_size / other.batch_size
        elif _repeats(candidate, other) and other.batch_size == candidate.batch_size:
            bound = evidence.rate * min(1.0, _OFF * _share(candidate, other, measurements))
        if bound is not None and clearly_worse(Evidence((bound,)), Evidence((best,)), _SPREAD):
            return other
    return None


def differ_in_batch(candidate: Candidate, other: Candidate) -> bool:
    """Whether two candidates differ in nothing but the batch size."""
    return _shape(candidate) == _shape(other) and candidate != other


def _repeats(candidate: Candidate, other: Candidate) -> bool:
    """Whether the other is one's streams, several times side by side."""
    return (
        candidate.engine == other.engine
        and candidate.num_cores < other.num_cores
        and candidate.num_cores * other.num_streams == candidate.num_streams * other.num_cores
    )


def _share(candidate: Candidate, other: Candidate, measurements: Measurements) -> float:
    """The largest share of the other's throughput that one had at any batch size; 1 where nothing tells."""
    rates = {(_shape(each), each.batch_size): evidence.rate for each, evidence in measurements.items()}
    shares = [
        rate / rates[_shape(other), batch]
        for (shape, batch), rate in rates.items()
        if shape == _shape(candidate) and (_shape(other), batch) in rates
    ]
    return max(shares, default=1.0)


def _shape(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.engine, candidate.num_cores, candidate.num_streams


def next_up(waiting: Sequence[Candidate], measurements: Measurements, failures: Mapping[str, int]) -> Candidate:
    """Whom to measure next: engines of which nothing is known, then whoever promises most.

    An engine begins with all cores divided among streams, and if that fails, with all cores for one request.
    """
    heard = {candidate.engine for candidate in measurements}
    new = [candidate for candidate in waiting if candidate.engine not in heard]
    if new:
        engine = new[0].engine
        sign = 1 if failures.get(engine) else -1
        return min(
            (candidate for candidate in new if candidate.engine == engine),
            key=lambda candidate: (-candidate.num_cores, sign * candidate.num_streams, candidate.batch_size),
        )
    promise = foreseen(waiting, measurements)
    return max(
        waiting,
        key=lambda candidate: (promise[candidate], -min(distance(candidate, other) for other in measurements)),
    )


def foreseen(waiting: Sequence[Candidate], measurements: Measurements) -> dict[Candidate, float]:
    """The figure of candidates of known engines if engine, cores, streams and batch had one effect each.

    Least squares on logarithms; it only orders what is measured, so that what is left out for want of time is
    the least promising.
    """
    engines = sorted({candidate.engine for candidate in measurements})

    def row(candidate: Candidate) -> list[float]:
        return [*(float(candidate.engine == name) for name in engines), *map(math.log2, candidate.simplicity)]

    x = np.array([row(candidate) for candidate in measurements])
    y = np.log([_score(evidence) for evidence in measurements.values()])
    # Held towards no effect where nothing tells of one.
    ridge = np.diag([1e-6] * len(engines) + [_RIDGE] * 3)
    weights = np.linalg.solve(x.T @ x + ridge, x.T @ y)
    return {candidate: math.exp(float(np.dot(row(candidate), weights))) for candidate in waiting}


def _score(evidence: Evidence) -> float:
    return evidence.rate / max(1.0, evidence.strain)


def distance(candidate: Candidate, other: Candidate) -> float:
    """In doublings of cores, streams and batch size."""
    pairs = zip(candidate.simplicity, other.simplicity, strict=True)
    return sum(abs(math.log2(a / b)) for a, b in pairs)


def prefers_simpler(ratio: float, verdict: str) -> bool:
    """Whether a comparison is a tie: the arms are the same, or nothing is known and the estimate is within 3 %."""
    return verdict == "same" or (verdict == "inconclusive" and abs(math.log(ratio)) <= math.log1p(TIE))


def simplest(tied: Sequence[Candidate]) -> Candidate:
    """The simplest of equals, the first of them where several are."""
    return min(tied, key=lambda candidate: candidate.simplicity)
