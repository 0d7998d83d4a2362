"""Compare two arms: paired and interleaved, in fresh processes, until the verdict is clear or time is up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import EngineFailed
from inferlab.measure import check, intervals
from inferlab.measure.cell import PreparedCell, measuring_alone, prepare_cell
from inferlab.measure.cells import Job
from inferlab.measure.children import Children
from inferlab.measure.intervals import smallest_visible
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.stats import latencies_ns, service_ns
from inferlab.model.inputs import digest
from inferlab.records import Estimate, Event, Fact, Listener, Plan, Run, Samples, Window
from inferlab.records.comparison import Comparison, Pair, Spread, SpreadPrior, Spreads, TimeMetric
from inferlab.warm import kept_warm, never_forked

# Noise comes in bursts, many of some milliseconds only: the shorter turns are, the more often both arms meet one.
_SHORTEST_TURN_S = 0.01
# Processes that begin together, each with a stream, need a while to get ready.
_SHORTEST_COMMON_TURN_S = 0.1
# Of requests that arrive by themselves so many are one turn at least, in this share of the time or so long; what
# waits somewhat longer is given up.
_REQUESTS_A_TURN = 20
_SERVED_SHARE, _SERVED_S = 0.025, 1.0
_OVERTIME = 1.5
# Fewer requests have no 99th percentile.
_REQUESTS_OF_A_TAIL = 100
_WARMUP_S = 0.15
# Double turns of the first pairs, before their variances are known, and of any pair.
_FIRST_TURNS = 8
_FEWEST_TURNS, _MOST_TURNS = 2, 64
_PAIRS_TO_LEARN_FROM = 3
# However slow a model is, so many pairs are to fit into the time.
_PAIRS_WANTED = 8
# Forks of one process share its layout of memory, which matters: after so many pairs there is another.
_PAIRS_A_PARENT = 6
# On a machine without history: pairs differ by 1 % where it is quiet.
BUILT_IN_PRIOR = SpreadPrior(0.02)


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
    #: How much pairs are expected to differ; on other numbers of cores BUILT_IN_PRIOR.
    spreads: Spreads = field(default_factory=dict)
    #: Start every process from nothing.
    fresh: bool = False

    @property
    def prior(self) -> SpreadPrior:
        """How much its pairs are expected to differ."""
        return self.spreads.get(self.a.cell.num_cores, BUILT_IN_PRIOR)


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
        self._looks = intervals.Looks(job.margin, job.prior, job.goal)
        self.metric = _metric([arm.job.cell.scenario for arm in arms])
        self.pairs: list[Pair] = []
        #: The worst of all checks so far, made in every pair before and after its timing.
        self.outputs: Outputs | None = None
        self.pair_s = 0.0
        self._began, self._listener = began, listener
        self._random = random.Random()  # noqa: S311  an order that favours no arm, no secret
        self._first = 0
        #: Of each pair: its double turns, and what making it and one double turn took.
        self._turns: list[NDArray[np.float64]] = []
        self._costs_s: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        """Since the comparison began."""
        return time.monotonic() - self._began

    def run(self) -> None:
        """Measure pairs until a look is clear or the next pair would not fit into the time."""
        self._listener(Event("comparing", {"seconds": self._job.time_s}))
        kinds = [arm.job.model.kind for arm in self.arms]
        while not self.pairs or self.seconds + self.pair_s <= self._job.time_s:
            # Forked where an engine allows it: pairs are cheaper.
            with never_forked() if self._job.fresh else kept_warm(kinds, copies=2):
                for _ in range(_PAIRS_A_PARENT):
                    if self._add_pair():
                        return
                    if self.seconds + self.pair_s > self._job.time_s:
                        break

    def _add_pair(self) -> bool:
        """Measure one more pair; whether a look at all of them is clear."""
        began = time.monotonic()
        self.pairs.append(self._pair())
        self.pair_s = max(self.pair_s * 0.8, time.monotonic() - began)
        evidence = self._evidence()
        ratio = self._looks.estimate(*evidence).value
        self._listener(Event("pair", {"number": len(self.pairs), "ratio": ratio}))
        return self._looks.look(*evidence)

    def result(self, interrupted: bool) -> Comparison:
        """What all pairs together say."""
        assert self.outputs is not None
        difference = self.outputs.difference
        margin, estimate = self._job.margin, self._looks.estimate(*self._evidence())
        verdict = intervals.verdict(estimate, margin)
        a, b = self.arms
        times = [self._times_ms(turns) for turns in self._turns[: len(self.pairs)]]
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
            spread=self._spread(),
            tail_ratio=tail_ratio(self.pairs) if self.metric == "response" else None,
        )

    def _spread(self) -> Spread:
        within, between = self._variances()
        turns = fmean(map(len, self._turns))
        return Spread(math.sqrt(between), math.sqrt(within), turns, self._job.prior)

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
            made_s, turns_began = time.monotonic() - began, time.monotonic()
            turn_s = max(shortest_turn_s(process, self._job.time_s) for process in processes.values())
            order = self._order(made_s, turn_s)
            for number, arm in enumerate(order):
                processes[arm].resume()
                if self.metric == "response":
                    # The same requests for both arms of a double turn.
                    _serve(processes[arm], turn_s, seed=1000 * len(self.pairs) + number // 2)
                else:
                    processes[arm].measure(turn_s, watched=arm not in order[number + 1 :])
                processes[arm].pause()
                if processes[arm].interrupted:
                    raise KeyboardInterrupt
            self._costs_s.append((made_s, 2 * (time.monotonic() - turns_began) / len(order)))
            for index, one in processes.items():
                one.resume()
                outputs[index] = one.check_outputs()
                one.pause()
            self._check(processes, outputs)
            a, b = processes[0].run(), processes[1].run()
        self._turns.append(double_turns(a, b, self.metric))
        times = self._times_ms(self._turns[-1])
        return Pair(a, b, math.log(times[1] / times[0]))

    def _check(self, processes: Mapping[int, Children], outputs: Mapping[int, Sequence[check.Arrays]]) -> None:
        found = compare_outputs(processes[0], processes[1], outputs[0], outputs[1])
        self.outputs = found if self.outputs is None else max(self.outputs, found, key=_severity)

    def _times_ms(self, turns: NDArray[np.float64]) -> tuple[float, float]:
        """Both arms' time per item in the double turns of one pair."""
        times = times_ms(turns)
        if self.metric == "response":
            return times
        batches = [arm.job.cell.batch_size for arm in self.arms]
        return times[0] / batches[0], times[1] / batches[1]

    def _log_ratios(self) -> list[float]:
        return [pair.log_ratio for pair in self.pairs]

    def _order(self, made_s: float, turn_s: float) -> list[int]:
        """Whose turn it is: A B B A and B A A B alternately, the first at random."""
        arm = self._random.randrange(2)
        order: list[int] = []
        for number in range(self._turns_a_pair(made_s, turn_s)):
            order += [arm, 1 - arm]
            arm = arm if number % 2 else 1 - arm
        return order

    def _turns_a_pair(self, made_s: float, turn_s: float) -> int:
        """How many double turns the next pair gets, of what its arms take to be made and one of their turns."""
        affordable = int((self._job.time_s / _PAIRS_WANTED - made_s) / (2 * turn_s))
        wanted = _FIRST_TURNS
        if len(self.pairs) >= _PAIRS_TO_LEARN_FROM:
            made, turn = (fmean(costs) for costs in zip(*self._costs_s, strict=True))
            wanted = best_number_of_turns(*self._variances(), made, turn)
        return max(_FEWEST_TURNS, min(_MOST_TURNS, wanted, affordable))

    def _evidence(self) -> tuple[list[float], list[float], float]:
        """The pairs' log ratios and weights, and by how much their turns alone make them differ."""
        counts = [len(turns) for turns in self._turns[: len(self.pairs)]]
        within, between = self._variances()
        return self._log_ratios(), weights(counts, within, between), turns_sd(counts, within)

    def _variances(self) -> tuple[float, float]:
        """Of one double turn within its pair, and of pairs beyond what their turns explain."""
        within = fmean(map(turn_variance, self._turns))
        if len(self.pairs) < 2:
            return within, 0.0
        explained = fmean(_MEDIAN_OVER_MEAN * turn_variance(turns) / len(turns) for turns in self._turns)
        return within, max(0.0, float(np.var(self._log_ratios(), ddof=1)) - explained)


def weights(turns: Sequence[int], within: float, between: float) -> list[float]:
    """How precise pairs of so many turns are beside each other, 1 on average: the first pairs have fewer."""
    variances = [between + _MEDIAN_OVER_MEAN * within / count for count in turns]
    precisions = [1 / variance if all(variances) else 1.0 for variance in variances]
    return [precision / fmean(precisions) for precision in precisions]


def turns_sd(turns: Sequence[int], within: float) -> float:
    """The standard deviation of pairs that their turns explain: two that agree by chance differ no less."""
    return math.sqrt(_MEDIAN_OVER_MEAN * within * fmean(1 / count for count in turns))


def best_number_of_turns(within: float, between: float, made_s: float, turn_s: float) -> int:
    """How many turns make the most of the time: more where pairs are dear or alike, fewer where turns are alike.

    The variance of the mean of all pairs that fit into a time is least there (Kalibera and Jones 2013).
    """
    if between <= 0:
        return _MOST_TURNS
    return round(min(_MOST_TURNS, math.sqrt(made_s / turn_s * _MEDIAN_OVER_MEAN * within / between)))


def shortest_turn_s(process: Children, time_s: float) -> float:
    """A turn holds one call at least, and what is dropped at its beginning.

    It ends with the call that is under way: half a call less, and there is rarely one too many.
    """
    call_s = process.call_s or 0.0
    if (rate := process.prepared.job.cell.rate) is not None:
        return max(_REQUESTS_A_TURN / rate, min(_SERVED_S, _SERVED_SHARE * time_s))
    shortest_s = _SHORTEST_TURN_S if process.alone else _SHORTEST_COMMON_TURN_S
    return max(shortest_s, call_s) + max(SETTLE_NS / 1e9, call_s) - call_s / 2


def _serve(process: Children, turn_s: float, seed: int) -> None:
    """A turn of requests that arrive by themselves, one at least."""
    rate = process.prepared.job.cell.rate
    assert rate is not None
    arrivals = poisson_arrivals(rate, turn_s, seed)
    process.serve(arrivals if len(arrivals) else np.zeros(1, np.int64), _OVERTIME * turn_s)


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


# After a pause threads wake up and caches fill: the first call, and what began in this time, is dropped.
SETTLE_NS = 2_000_000
# The distance between the quartiles of a normal distribution, in standard deviations.
_QUARTILES = 1.349
# The variance of a median over that of a mean, of many normal values.
_MEDIAN_OVER_MEAN = math.pi / 2


def times_ms(turns: NDArray[np.float64]) -> tuple[float, float]:
    """The typical time of a batch of both arms in one pair, whose ratio is the median of that of its double turns.

    Turns of A and B that follow each other meet the same noise, which comes in bursts, and the median drops those
    that did not.
    """
    level, ratio = float(np.median(turns.mean(axis=1))), float(np.median(_log_ratios(turns)))
    return math.exp(level - ratio / 2) / 1e6, math.exp(level + ratio / 2) / 1e6


def double_turns(a: Run, b: Run, metric: TimeMetric) -> NDArray[np.float64]:
    """The logarithm of the time of a batch, in nanoseconds, of A and of B in each double turn, in their order."""
    turns = sorted((start, arm, log) for arm, run in enumerate((a, b)) for start, log in _turns(run, metric))
    doubles = [sorted(double, key=itemgetter(1)) for double in zip(turns[::2], turns[1::2], strict=False)]
    logs = [[of_a[2], of_b[2]] for of_a, of_b in doubles if of_a[1] != of_b[1]]
    if not logs:
        raise EngineFailed("No request was served in any turn. Try a lower --rate.")
    return np.array(logs)


def _metric(scenarios: Sequence[str]) -> TimeMetric:
    if "server" in scenarios:
        return "response"
    return "median" if set(scenarios) == {"sync"} else "throughput"


def tail_ratio(pairs: Sequence[Pair]) -> Estimate | None:
    """B's 99th percentile of the response times over A's, of all requests of each pair."""
    ratios: list[float] = []
    for pair in pairs:
        of_a, of_b = (np.concatenate([responses_ns(window) for window in run.windows]) for run in (pair.a, pair.b))
        if min(len(of_a), len(of_b)) < _REQUESTS_OF_A_TAIL:
            return None
        ratios.append(float(np.percentile(of_b, 99) / np.percentile(of_a, 99)))
    return intervals.student(ratios, 1 - intervals.ALPHA)


def responses_ns(window: Window) -> NDArray[np.int64]:
    """How long each request took; one that was given up at least as long as the longest that was not."""
    served = np.concatenate([latencies_ns(stream) for stream in window.streams])
    given_up = (window.arrivals or 0) - len(served)
    if given_up <= 0 or not len(served):
        return served
    return np.concatenate([served, np.full(given_up, served.max())])


def _turns(run: Run, metric: TimeMetric) -> Iterator[tuple[int, float]]:
    """When each turn of a run began, and the logarithm of its median call, or of what a batch took in it."""
    for window in run.windows:
        if metric == "response":
            responses = responses_ns(window)
            if len(responses):
                yield (
                    min(stream.starts_ns[0] for stream in window.streams if len(stream)),
                    math.log(np.median(responses)),
                )
            continue
        streams = [stream for stream in settled(window).streams if len(stream)]
        if streams:
            times_ns = np.concatenate([service_ns(stream) for stream in streams])
            time_ns = np.median(times_ns) if metric == "median" else np.mean(times_ns) / len(window.streams)
            yield streams[0].starts_ns[0], math.log(time_ns)


def _log_ratios(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    ratios: NDArray[np.float64] = turns[:, 1] - turns[:, 0]
    return ratios


def turn_variance(turns: NDArray[np.float64]) -> float:
    """Of the log ratios of double turns, by the quartiles: some turns meet a burst that others do not."""
    low, high = np.percentile(_log_ratios(turns), (25, 75))
    return float((high - low) / _QUARTILES) ** 2


def settled(window: Window) -> Window:
    """The window without the calls that began while the process woke up; the last call always stays."""
    return replace(window, streams=tuple(map(_settled, window.streams)))


def _settled(stream: Samples) -> Samples:
    if not len(stream):
        return stream
    starts = np.frombuffer(stream.starts_ns, np.int64)
    first = min(int(np.searchsorted(starts, starts[0] + SETTLE_NS)), len(starts) - 1)
    return Samples(stream.starts_ns[first:], stream.ends_ns[first:])


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
