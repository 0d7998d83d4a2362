"""Compare two arms: paired and interleaved, in fresh processes, until the verdict is clear or time is up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.measure import check, intervals
from inferlab.measure.cell import measuring_alone
from inferlab.measure.children import Children
from inferlab.measure.intervals import smallest_visible
from inferlab.measure.prepare import Job, PreparedCell, prepare_cell
from inferlab.measure.stats import service_ns
from inferlab.model.inputs import digest
from inferlab.records import Comparison, Estimate, Event, Fact, Listener, Pair, Plan, Run, Samples, Window

_SHORTEST_SLICE_S = 0.2
_CALLS_A_SLICE = 5
_WARMUP_S = 0.15
# So many pairs give a useful interval; what time is left beyond them makes turns longer, up to a point.
_PAIRS_WANTED = 10
_MOST_BLOCKS = 8
# Measuring may take so many times as long as loading.
_MEASURE_OVER_LOAD = 5.0


@dataclass(frozen=True, slots=True)
class ComparisonJob:
    """Two jobs to compare, and how."""

    a: Job
    b: Job
    #: What is compared, in the user's words.
    labels: tuple[str, str]
    #: Total seconds, including loading.
    time_s: float
    #: Differences up to this share do not matter.
    margin: float
    #: A ratio of B's time over A's that must be told apart before it may end early.
    goal: float | None = None


def compare(job: ComparisonJob, listener: Listener) -> Comparison:
    """Compare B with A; raises what an engine did wrong.

    Ctrl-C ends it early: pairs that are complete are kept.
    """
    with ExitStack() as stack:
        label = f"comparison of {job.labels[0]} with {job.labels[1]}"
        stack.enter_context(measuring_alone(label, listener))
        began = time.monotonic()
        arms = [stack.enter_context(prepare_cell(arm, listener)) for arm in (job.a, job.b)]
        comparison = PairedComparison(job, arms, began, listener)
        interrupted = False
        try:
            comparison.run()
        except KeyboardInterrupt:
            interrupted = True
            if not comparison.pairs:
                raise
    return comparison.result(interrupted)


class PairedComparison:
    """The pairs of a comparison so far, and the looks that were taken at them."""

    def __init__(self, job: ComparisonJob, arms: Sequence[PreparedCell], began: float, listener: Listener) -> None:
        self._job, self.arms = job, arms
        self.metric: Metric = "median" if all(arm.job.cell.scenario == "sync" for arm in arms) else "throughput"
        self.pairs: list[Pair] = []
        #: The worst of all checks so far, made in every pair before and after its timing.
        self.outputs: Outputs | None = None
        self.estimate: Estimate | None = None
        self.pair_s = 0.0
        self._began, self._listener = began, listener
        self._random = random.Random()  # noqa: S311  an order that favours no arm, no secret
        self._first = 0
        self._looks = list(intervals.LOOKS)
        self._spent = 0.0

    @property
    def seconds(self) -> float:
        """Since the comparison began."""
        return time.monotonic() - self._began

    def run(self) -> None:
        """Measure pairs until an early look is clear or the next pair would not fit into the time."""
        self._listener(Event("comparing", {"seconds": self._job.time_s}))
        while not self.pairs or self.seconds + self.pair_s <= self._job.time_s:
            pair_began = time.monotonic()
            self.pairs.append(self._pair())
            self.pair_s = max(self.pair_s * 0.8, time.monotonic() - pair_began)
            ratio = math.exp(intervals.hodges_lehmann(self._log_ratios()))
            self._listener(Event("pair", {"number": len(self.pairs), "ratio": ratio}))
            if self._look_early():
                return

    def _look_early(self) -> bool:
        """Whether a look that is due is clear; it is taken only if so many pairs can reach its level."""
        due = [one for one in self._looks[:-1] if one[0] <= self.seconds / self._job.time_s]
        if not due:
            return False
        level = intervals.look_level(due[-1][1], self._spent)
        if not intervals.possible(len(self.pairs), level):
            return False
        self._looks = self._looks[len(due) :]
        self._spent = due[-1][1]
        estimate = intervals.paired(self._log_ratios(), level)
        goal = self._job.goal
        if intervals.clear(estimate, self._job.margin) and not (goal and intervals.covers(estimate, goal)):
            self.estimate = estimate
        return self.estimate is not None

    def last_look(self) -> Estimate:
        """The estimate of the early look that was clear, or one with all that is left to spend."""
        level = intervals.look_level(intervals.ALPHA, self._spent)
        return self.estimate or intervals.paired(self._log_ratios(), level)

    def result(self, interrupted: bool) -> Comparison:
        """What all pairs together say."""
        assert self.outputs is not None
        difference = self.outputs.difference
        margin, estimate = self._job.margin, self.last_look()
        verdict = intervals.verdict(estimate, margin)
        a, b = self.arms
        times = [self._times_ms(pair.a, pair.b) for pair in self.pairs]
        return Comparison(
            labels=self._job.labels,
            ratio=estimate,
            verdict=verdict,
            margin=margin,
            metric=self.metric,
            seconds=self.seconds,
            outputs_match=self.outputs.match,
            output_error=difference.error if difference else None,
            output_metric=difference.metric if difference else "max",
            output_detail=self.outputs.detail,
            settle_s=self._settle_s(estimate) if verdict == "inconclusive" else None,
            cells=(a.job.cell, b.job.cell),
            models=(a.job.model, b.job.model),
            pairs=tuple(self.pairs),
            times_ms=(tuple(one for one, _ in times), tuple(one for _, one in times)),
            interrupted=interrupted,
        )

    def _settle_s(self, estimate: Estimate) -> float:
        """What all pairs that are needed would take; without an interval, so many that there is one."""
        count = intervals.pairs_to_settle(estimate, self._job.margin, len(self.pairs)) or _PAIRS_WANTED
        return self.seconds + (count - len(self.pairs)) * self.pair_s

    def _pair(self) -> Pair:
        """Both arms in fresh processes, made in random order, measured alternately while the other is stopped."""
        began = time.monotonic()
        with ExitStack() as stack:
            processes: dict[int, Children] = {}
            outputs: dict[int, list[check.Arrays]] = {}
            # In random order, but equally often within two pairs: who is made first may have an advantage.
            self._first = 1 - self._first if len(self.pairs) % 2 else self._random.randrange(2)
            for index in (self._first, 1 - self._first):
                processes[index] = one = stack.enter_context(Children(self.arms[index]))
                outputs[index] = one.check_outputs()
                one.warm_up(_WARMUP_S)
                one.pause()
            self._check(processes, outputs)
            overhead_s = time.monotonic() - began
            slice_s = max(_slice_s(one) for one in processes.values())
            for turn in self._turns(overhead_s, slice_s):
                processes[turn].resume()
                processes[turn].measure(slice_s, canary=True)
                processes[turn].pause()
                if processes[turn].interrupted:
                    raise KeyboardInterrupt
            for index, one in processes.items():
                one.resume()
                outputs[index] = one.check_outputs()
                one.pause()
            self._check(processes, outputs)
            a, b = processes[0].run(), processes[1].run()
        times = self._times_ms(a, b)
        return Pair(a, b, math.log(times[1] / times[0]))

    def _check(self, processes: Mapping[int, Children], outputs: Mapping[int, Sequence[check.Arrays]]) -> None:
        found = compare_outputs(processes[0], processes[1], outputs[0], outputs[1])
        self.outputs = found if self.outputs is None else max(self.outputs, found, key=_severity)

    def _times_ms(self, a: Run, b: Run) -> tuple[float, float]:
        """Both arms' time per item in one pair."""
        times = times_ms(a, b, self.metric)
        batches = [arm.job.cell.batch_size for arm in self.arms]
        return times[0] / batches[0], times[1] / batches[1]

    def _log_ratios(self) -> list[float]:
        return [pair.log_ratio for pair in self.pairs]

    def _turns(self, overhead_s: float, slice_s: float) -> list[int]:
        """A B B A and B A A B interleaved, the first at random, for as long as loading took or the time allows."""
        block_s = 4 * slice_s
        affordable_s = self._job.time_s / _PAIRS_WANTED - overhead_s
        blocks = max(1, min(_MOST_BLOCKS, int(min(_MEASURE_OVER_LOAD * overhead_s, affordable_s) / block_s)))
        one = self._random.randrange(2)
        turns: list[int] = []
        for _ in range(blocks):
            turns += [one, 1 - one, 1 - one, one]
            one = 1 - one
        return turns


def _slice_s(process: Children) -> float:
    """A turn holds several calls, and what is dropped at its beginning."""
    call_s = process.call_s or 0.0
    return max(_SHORTEST_SLICE_S, _CALLS_A_SLICE * call_s) + max(SETTLE_NS / 1e9, call_s)


@dataclass(frozen=True, slots=True)
class Outputs:
    """By how much the outputs of two arms differ, and where; or why that is unknown."""

    difference: check.Difference | None
    detail: str

    @property
    def match(self) -> bool | None:
        """Whether both compute the same."""
        return None if self.difference is None else self.difference.matches


def _severity(outputs: Outputs) -> tuple[int, float]:
    """What says most against the outputs is largest: a mismatch, then what is unknown, then the largest error."""
    difference = outputs.difference
    if difference is None:
        return 1, 0.0
    return 0 if difference.matches else 2, difference.error / difference.tolerance


def compare_outputs(
    a: Children, b: Children, of_a: Sequence[check.Arrays], of_b: Sequence[check.Arrays]
) -> Outputs:
    """Compare what both arms made of the same inputs."""
    jobs = [one.prepared.job for one in (a, b)]
    if any(job.model.random for job in jobs):
        return Outputs(None, "the model has random operators")
    if any(digest(x) != digest(y) for x, y in zip(jobs[0].inputs, jobs[1].inputs, strict=True)):
        return Outputs(None, "the arms have different inputs")
    precisions = [str(one.loaded["settings"].get("precision", "")) for one in (a, b)]
    standard = check.standard_for(*(job.model.precision for job in jobs), *precisions)
    worst = check.worst_difference(
        check.difference(_named_as(outputs, expected), expected, standard)
        for outputs, expected in zip(of_b, of_a, strict=True)
    )
    if worst is None:
        return Outputs(None, "the arms have no outputs in common")
    return Outputs(worst, worst.output)


def _named_as(outputs: check.Arrays, expected: check.Arrays) -> check.Arrays:
    """Outputs under the other model's names where these differ but their number does not."""
    if set(outputs) & set(expected) or len(outputs) != len(expected):
        return outputs
    return dict(zip(expected, outputs.values(), strict=True))


Metric = Literal["median", "throughput"]

# After a pause threads wake up and caches fill: what began in this time is dropped.
SETTLE_NS = 50_000_000
# Moments of one pair are sorted by their canaries into so many levels of noise, with as many calls in each.
_LEVELS = 8
_FEWEST = 2
# No level is so steady that it decides alone: a tenth of a per cent, squared.
_LEAST_VARIANCE = 1e-6
# The distance between the quartiles of a normal distribution, in standard deviations.
_QUARTILES = 1.349


@dataclass(frozen=True, slots=True)
class Calls:
    """What one arm did in a pair: how long each call took, and the canary beside it."""

    times_ns: NDArray[np.int64]
    canaries_ns: NDArray[np.int64]
    streams: int


def times_ms(a: Run, b: Run, metric: Metric) -> tuple[float, float]:
    """The time of a batch of both arms: the median call, or what a batch takes with all streams at work.

    A neighbour on the same core makes calls a third slower, for a tenth of a second at a time, and whoever
    met it more often looks slower. So arms are compared level by level of noise, told by the canary, and
    levels count by how much their calls agree. Of identical arms on a shared virtual machine the ratios then
    spread by 0.5 to 2 % a pair, where those of plain medians spread by 1.4 to 12 %.
    """
    arms = calls(a), calls(b)
    levels = np.quantile(np.concatenate([arm.canaries_ns for arm in arms]), np.linspace(0, 1, _LEVELS + 1)[1:-1])
    sums, weights = np.zeros(2), 0.0
    for level in range(_LEVELS):
        logs = [np.log(arm.times_ns[np.searchsorted(levels, arm.canaries_ns) == level]) for arm in arms]
        if min(map(len, logs)) >= _FEWEST:
            weight = _weight(*logs)
            sums += weight * np.array([_centre(one, metric) for one in logs])
            weights += weight
    if not weights:  # so few calls that no level has some of both arms
        sums, weights = np.array([_centre(np.log(arm.times_ns), metric) for arm in arms]), 1.0
    times = np.exp(sums / weights) / 1e6
    shared = [1 if metric == "median" else arm.streams for arm in arms]
    return float(times[0]) / shared[0], float(times[1]) / shared[1]


def _centre(logs: NDArray[np.float64], metric: Metric) -> float:
    """Of one arm's calls at one level: throughput goes by the mean, however unlike the calls are."""
    return float(np.median(logs)) if metric == "median" else math.log(float(np.mean(np.exp(logs))))


def _weight(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The inverse of the variance of the difference of two medians, by the spread between quartiles."""
    low, high = np.percentile(np.concatenate([a - np.median(a), b - np.median(b)]), (25, 75))
    variance = ((high - low) / _QUARTILES) ** 2 + _LEAST_VARIANCE
    return float(len(a) * len(b) / (len(a) + len(b)) / variance)


def calls(run: Run) -> Calls:
    """All calls of a run, but for those that began while the process woke up."""
    streams = [stream for window in run.windows for stream in settled(window).streams if len(stream)]
    return Calls(
        np.concatenate([service_ns(stream) for stream in streams]),
        np.concatenate([_canaries(stream) for stream in streams]),
        len(run.windows[0].streams),
    )


def _canaries(stream: Samples) -> NDArray[np.int64]:
    """The canary beside each call; where none sang, all moments are alike."""
    if stream.canaries_ns is None:
        return np.zeros(len(stream), np.int64)
    return np.frombuffer(stream.canaries_ns, np.int64)


def settled(window: Window) -> Window:
    """The window without the calls that began while the process woke up; the last call always stays."""
    return replace(window, streams=tuple(map(_settled, window.streams)))


def _settled(stream: Samples) -> Samples:
    if not len(stream):
        return stream
    starts = np.frombuffer(stream.starts_ns, np.int64)
    first = min(int(np.searchsorted(starts, starts[0] + SETTLE_NS)), len(starts) - 1)
    canaries = None if stream.canaries_ns is None else stream.canaries_ns[first:]
    return Samples(stream.starts_ns[first:], stream.ends_ns[first:], canaries_ns=canaries)


# Its calls take some milliseconds, as those of many models do.
_MODEL = "demo:mobilenet_v2"
#: Both arms of the trial.
TRIAL = Plan(_MODEL, scenarios=("sync",), num_cores=(1,), verify=False)
# Machines that cannot see this in a minute make small improvements invisible.
_FINE = 0.03


def visible_in_a_minute(trial: Comparison) -> Fact:
    """The smallest difference that a comparison of one minute would show here."""
    pair_s = trial.seconds / len(trial.pairs)
    visible = smallest_visible(trial.ratio, len(trial.pairs), 60.0 / pair_s)
    data = {"visible": visible, "pairs": len(trial.pairs), "seconds": trial.seconds, "model": _MODEL}
    if visible is None:
        return Fact("smallest-difference", "unknown", data)
    return Fact("smallest-difference", "good" if visible <= _FINE else "warn", data)
