"""Compare two arms: paired and interleaved, in fresh processes, until the verdict is clear or time is up.

What the arms are, `Arms` knows: cells here, models that generate in `generation.comparison`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import itemgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import EngineFailed
from inferlab.measure import check, intervals
from inferlab.measure.cell import PreparedCell, measuring_alone, prepare_cell
from inferlab.measure.cells import Job, with_inputs_of
from inferlab.measure.children import Children
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.stats import latencies_ns, samples_needed, service_ns
from inferlab.model.inputs import digest
from inferlab.records import Estimate, Event, Fact, Listener, Plan, Run, Samples, Window, is_release
from inferlab.records.comparison import Comparison, Pair, Spread, SpreadPrior, Spreads, TimeMetric
from inferlab.warm import kept_warm, never_forked

if TYPE_CHECKING:
    from inferlab.measure.generation.reference import GenerationJob

# Noise comes in bursts, many of some milliseconds only: the shorter turns are, the more often both arms meet one.
SHORTEST_TURN_S = 0.01
# Processes that begin together, each with a stream, need a while to get ready.
_SHORTEST_COMMON_TURN_S = 0.1
# Of requests that arrive by themselves so many are one turn at least, in this share of the time or so long; what
# waits somewhat longer is given up.
_REQUESTS_A_TURN = 20
_SERVED_SHARE, _SERVED_S = 0.025, 1.0
_OVERTIME = 1.5
#: Of requests that arrive by themselves the tail is compared as well.
TAIL = 99.0
_WARMUP_S = 0.15
# Double turns of the first pairs, before their variances are known, and of any pair.
_FIRST_TURNS = 8
_FEWEST_TURNS, _MOST_TURNS = 2, 64
_PAIRS_TO_LEARN_FROM = 3
# However slow a model is, so many pairs are to fit into the time.
_PAIRS_WANTED = 8
# Forks of one process share its layout of memory, which matters: after so many pairs there is another.
_PAIRS_A_PARENT = 6
# After a pause threads wake up and caches fill: the first call, and what began in this time, is dropped.
SETTLE_NS = 2_000_000
# The distance between the quartiles of a normal distribution, in standard deviations.
_QUARTILES = 1.349
# The variance of a median over that of a mean, of many normal values.
_MEDIAN_OVER_MEAN = math.pi / 2
# On a machine without history: pairs differ by 1 % where it is quiet.
BUILT_IN_PRIOR = SpreadPrior(0.02)

J = TypeVar("J", bound="Job | GenerationJob")


@dataclass(frozen=True, slots=True)
class PairedJob(Generic[J]):
    """Two jobs to compare, and how."""

    a: J
    b: J
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
    def forks(self) -> bool:
        """Whether processes may be forked from one: they share its layout of memory, which releases do not."""
        return not self.fresh and not any(is_release(arm.cell.engine) for arm in (self.a, self.b))

    @property
    def prior(self) -> SpreadPrior:
        """How much its pairs are expected to differ."""
        return self.spreads.get(self.a.cell.num_cores, BUILT_IN_PRIOR)

    @property
    def title(self) -> str:
        """What is measured, for those who wait for it."""
        return f"comparison of {self.labels[0]} with {self.labels[1]}"


class ComparisonJob(PairedJob[Job]):
    """Two cells to compare, and how."""

    __slots__ = ()


class Arms(Protocol):
    """Both arms of a comparison, A being 0 and B 1: how each pair of fresh processes is made and measured."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of both models: engines that run them are kept warm for forks."""

    def begin(self, order: Sequence[int], pair: int, stack: ExitStack) -> float:
        """Make both processes of a pair in this order, ready and stopped; gives how long one turn takes."""

    def take_turn(self, arm: int, turn: int, last: bool) -> None:
        """Measure one arm while the other is stopped, in a double turn of this number; its `last` in this pair."""

    def end(self) -> NDArray[np.float64]:
        """The logarithms of A's and B's times per item, in nanoseconds, in each double turn of the pair."""


class PairedComparison:
    """The pairs of a comparison so far, and the looks that were taken at them."""

    def __init__(
        self,
        job: PairedJob[Any],
        arms: Arms,
        began: float,
        listener: Listener,
        on_pair: Callable[[], None] | None = None,
    ) -> None:
        """`on_pair` is called whenever one more pair is complete."""
        self._job, self._arms, self._began, self._listener = job, arms, began, listener
        self._on_pair = on_pair
        self._clear = False
        self._looks = intervals.Looks(job.margin, job.prior, job.goal)
        self._random = random.Random()  # noqa: S311  an order that favours no arm, no secret
        self._first = 0
        self._pair_s = 0.0
        #: Of each pair: its double turns, both arms' typical times, and what making it and one double turn took.
        self._turns: list[NDArray[np.float64]] = []
        self._times_ms: list[tuple[float, float]] = []
        self._costs_s: list[tuple[float, float]] = []

    def run(self) -> dict[str, Any]:
        """Measure pairs until a look is clear or the next one would not fit into the time.

        Gives what all pairs together say, by the fields that the records of all comparisons have in common. Ctrl-C
        ends it early: pairs that are complete are kept.
        """
        if self._job.labels[0] == self._job.labels[1]:
            self._listener(Event("same-arms"))
        self._listener(Event("comparing", {"seconds": self._job.time_s}))
        interrupted = False
        try:
            self._measure()
        except KeyboardInterrupt:
            if not self._times_ms:
                raise
            interrupted = True
        return self.fields(interrupted)

    def take(self, turns: Sequence[NDArray[np.float64]], seconds: float) -> None:
        """Go on with pairs that were measured before, in so many seconds; each look at them is taken again.

        What a look spends and says follows from the pairs up to it, so that nothing is spent twice.
        """
        for each in turns:
            self._add(each)
        self._began -= seconds
        self._pair_s = seconds / max(1, len(turns))

    @property
    def log_ratios(self) -> list[float]:
        """Of B's time over A's, of each pair."""
        return [math.log(of_b / of_a) for of_a, of_b in self._times_ms]

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _has_time(self) -> bool:
        return not self._times_ms or self._seconds + self._pair_s <= self._job.time_s

    def _measure(self) -> None:
        while not self._clear and self._has_time():
            # Forked where an engine allows it: pairs are cheaper.
            with kept_warm(self._arms.kinds, copies=2) if self._job.forks else never_forked():
                for _ in range(_PAIRS_A_PARENT):
                    self._add_pair()
                    if self._clear or not self._has_time():
                        break

    def _add_pair(self) -> None:
        """Measure one more pair, and look at all of them."""
        began = time.monotonic()
        ratio = self._add(self._pair())
        self._pair_s = max(self._pair_s * 0.8, time.monotonic() - began)
        self._listener(Event("pair", {"number": len(self._times_ms), "ratio": ratio}))
        if self._on_pair is not None:
            self._on_pair()

    def _add(self, turns: NDArray[np.float64]) -> float:
        """Take a pair, with the look that is due then; gives the ratio of all so far."""
        self._turns.append(turns)
        self._times_ms.append(times_ms(turns))
        evidence = self._evidence()
        ratio = self._looks.estimate(*evidence).value
        self._clear = self._looks.look(*evidence)
        return ratio

    def _pair(self) -> NDArray[np.float64]:
        """Both arms in fresh processes, made in random order, measured alternately while the other is stopped."""
        began, number = time.monotonic(), len(self._times_ms)
        # In random order, but equally often within two pairs: who is made first may have an advantage.
        self._first = 1 - self._first if number % 2 else self._random.randrange(2)
        with ExitStack() as stack:
            turn_s = self._arms.begin((self._first, 1 - self._first), number, stack)
            made_s, turns_began = time.monotonic() - began, time.monotonic()
            order = self._order(made_s, turn_s)
            for place, arm in enumerate(order):
                self._arms.take_turn(arm, place // 2, last=arm not in order[place + 1 :])
            self._costs_s.append((made_s, 2 * (time.monotonic() - turns_began) / len(order)))
            return self._arms.end()

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
        if self._costs_s and len(self._times_ms) >= _PAIRS_TO_LEARN_FROM:
            made, turn = (fmean(costs) for costs in zip(*self._costs_s, strict=True))
            wanted = best_number_of_turns(*self._variances(), made, turn)
        return max(_FEWEST_TURNS, min(_MOST_TURNS, wanted, affordable))

    def _evidence(self) -> tuple[list[float], list[float], float]:
        """The pairs' log ratios and weights, and by how much their turns alone make them differ."""
        counts = list(map(len, self._turns))
        within, between = self._variances()
        return self.log_ratios, weights(counts, within, between), turns_sd(counts, within)

    def _variances(self) -> tuple[float, float]:
        """Of one double turn within its pair, and of pairs beyond what their turns explain."""
        within = fmean(map(turn_variance, self._turns))
        if len(self._times_ms) < 2:
            return within, 0.0
        explained = fmean(_MEDIAN_OVER_MEAN * turn_variance(turns) / len(turns) for turns in self._turns)
        return within, max(0.0, float(np.var(self.log_ratios, ddof=1)) - explained)

    def fields(self, interrupted: bool) -> dict[str, Any]:
        """What all pairs so far say together."""
        margin, estimate = self._job.margin, self._looks.estimate(*self._evidence())
        verdict = intervals.verdict(estimate, margin)
        within, between = self._variances()
        turns = fmean(map(len, self._turns))
        return {
            "labels": self._job.labels,
            "ratio": estimate,
            "verdict": verdict,
            "margin": margin,
            "seconds": self._seconds,
            "settle_s": self._settle_s(estimate) if verdict == "inconclusive" else None,
            "times_ms": tuple(zip(*self._times_ms, strict=True)),
            "spread": Spread(math.sqrt(between), math.sqrt(within), turns, self._job.prior),
            "interrupted": interrupted,
        }

    def _settle_s(self, estimate: Estimate) -> float:
        """What all pairs that are needed would take; without an interval, so many that there is one."""
        pairs = len(self._times_ms)
        count = intervals.pairs_to_settle(estimate, self._job.margin, pairs) or _PAIRS_WANTED
        return self._seconds + (count - pairs) * self._pair_s


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


def times_ms(turns: NDArray[np.float64]) -> tuple[float, float]:
    """The typical time of both arms in one pair, whose ratio is the median of that of its double turns.

    Turns of A and B that follow each other meet the same noise, which comes in bursts, and the median drops those
    that did not.
    """
    level, ratio = float(np.median(turns.mean(axis=1))), float(np.median(_log_ratios(turns)))
    return math.exp(level - ratio / 2) / 1e6, math.exp(level + ratio / 2) / 1e6


def turn_variance(turns: NDArray[np.float64]) -> float:
    """Of the log ratios of double turns, by the quartiles: some turns meet a burst that others do not."""
    low, high = np.percentile(_log_ratios(turns), (25, 75))
    return float((high - low) / _QUARTILES) ** 2


def _log_ratios(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    ratios: NDArray[np.float64] = turns[:, 1] - turns[:, 0]
    return ratios


def compare(job: ComparisonJob, listener: Listener) -> Comparison:
    """Compare cell B with cell A, on the same inputs where both models take them; raises what an engine did wrong.

    Ctrl-C ends it early: pairs that are complete are kept.
    """
    a, b = job.a, with_inputs_of(job.b, job.a)
    with ExitStack() as stack:
        stack.enter_context(measuring_alone(job.title, listener))
        began = time.monotonic()
        prepared = [stack.enter_context(prepare_cell(arm, listener)) for arm in (a, b)]
        arms = CellArms(prepared, job.time_s)
        comparison = PairedComparison(job, arms, began, listener)
        fields = comparison.run()
    assert arms.outputs is not None, "outputs are compared in every pair"
    difference = arms.outputs.difference
    pairs = tuple(Pair(*runs, log) for runs, log in zip(arms.runs, comparison.log_ratios, strict=False))
    return Comparison(
        metric=arms.metric,
        outputs_match=arms.outputs.match,
        output_error=difference.error if difference else None,
        output_metric=difference.metric if difference else "max",
        output_detail=arms.outputs.detail,
        cells=(a.cell, b.cell),
        models=(a.model, b.model),
        pairs=pairs,
        tail_ratio=tail_ratio(pairs, job.prior) if arms.metric == "response" else None,
        **fields,
    )


class CellArms:
    """Two cells as arms: turns of calls, or of requests that arrive at the same moments for both."""

    def __init__(self, prepared: Sequence[PreparedCell], time_s: float) -> None:
        self._prepared, self._time_s = prepared, time_s
        self.kinds = [arm.job.model.kind for arm in prepared]
        self.metric = _metric([arm.job.cell.scenario for arm in prepared])
        #: Of both arms, of each pair.
        self.runs: list[tuple[Run, Run]] = []
        #: The worst of all checks so far, made in every pair before and after its timing.
        self.outputs: Outputs | None = None
        self._pair, self._turn_s = 0, 0.0
        self._processes: dict[int, Children] = {}

    def begin(self, order: Sequence[int], pair: int, stack: ExitStack) -> float:
        """Make both processes in this order, checked against each other, warmed up and stopped."""
        self._pair, self._processes = pair, {}
        outputs: dict[int, list[check.Arrays]] = {}
        for arm in order:
            self._processes[arm] = process = stack.enter_context(Children(self._prepared[arm]))
            outputs[arm] = process.check_outputs()
            process.warm_up(_WARMUP_S)
            process.pause()
        self._compare_outputs(outputs[0], outputs[1])
        self._turn_s = max(shortest_turn_s(process, self._time_s) for process in self._processes.values())
        return self._turn_s

    def take_turn(self, arm: int, turn: int, last: bool) -> None:
        """Call, or serve: the same requests for both arms of a double turn."""
        process = self._processes[arm]
        process.resume()
        if self.metric == "response":
            _serve(process, self._turn_s, seed=1000 * self._pair + turn)
        else:
            process.measure(self._turn_s, watched=last)
        process.pause()
        if process.interrupted:
            raise KeyboardInterrupt

    def end(self) -> NDArray[np.float64]:
        """The double turns; a response is not of items but of a request."""
        outputs: dict[int, list[check.Arrays]] = {}
        for arm, process in self._processes.items():
            process.resume()
            outputs[arm] = process.check_outputs()
            process.pause()
        self._compare_outputs(outputs[0], outputs[1])
        a, b = self._processes[0].run(), self._processes[1].run()
        self.runs.append((a, b))
        turns = double_turns(a, b, self.metric)
        items = [1 if self.metric == "response" else arm.job.cell.batch_size for arm in self._prepared]
        return turns - np.log(items)

    def _compare_outputs(self, of_a: Sequence[check.Arrays], of_b: Sequence[check.Arrays]) -> None:
        outputs = compare_outputs(self._processes[0], self._processes[1], of_a, of_b)
        self.outputs = outputs if self.outputs is None else max(self.outputs, outputs, key=_severity)


def shortest_turn_s(process: Children, time_s: float) -> float:
    """A turn holds one call at least, and what is dropped at its beginning.

    It ends with the call that is under way: half a call less, and there is rarely one too many.
    """
    call_s = process.call_s or 0.0
    if (rate := process.prepared.job.cell.rate) is not None:
        return max(_REQUESTS_A_TURN / rate, min(_SERVED_S, _SERVED_SHARE * time_s))
    shortest_s = SHORTEST_TURN_S if process.alone else _SHORTEST_COMMON_TURN_S
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


def tail_ratio(pairs: Sequence[Pair], prior: SpreadPrior) -> Estimate | None:
    """B's 99th percentile of the response times over A's; None where too few requests carry one.

    Pairs that follow each other are pooled until both arms have enough. The interval is of these groups, moderated
    as that of the medians: they are expected to differ at least by what chance makes of the tail of so many.
    """
    groups: list[list[NDArray[np.int64]]] = []
    is_open = False
    for pair in pairs:
        responses = [np.concatenate([responses_ns(window) for window in run.windows]) for run in (pair.a, pair.b)]
        if is_open:
            responses = [np.concatenate(both) for both in zip(groups.pop(), responses, strict=True)]
        groups.append(responses)
        is_open = min(map(len, responses)) < samples_needed(TAIL)
    if is_open and len(groups) > 1:
        left = groups.pop()
        groups[-1] = [np.concatenate(both) for both in zip(groups[-1], left, strict=True)]
    elif is_open:
        return None
    logs = [math.log(np.percentile(of_b, TAIL) / np.percentile(of_a, TAIL)) for of_a, of_b in groups]
    least_sd = math.sqrt(fmean(_tail_variance(of_a) + _tail_variance(of_b) for of_a, of_b in groups))
    return intervals.moderated(logs, 1 - intervals.ALPHA, intervals.at_least(prior, least_sd))


def _tail_variance(responses: NDArray[np.int64]) -> float:
    """Of the logarithm of the tail, by chance alone: between the order statistics one standard error around it."""
    error = math.sqrt(TAIL * (100 - TAIL) / len(responses))
    low, high = np.percentile(responses, (TAIL - error, min(100.0, TAIL + error)))
    return (math.log(high / low) / 2) ** 2


def requests_of(pairs: Sequence[Pair]) -> int:
    """How many requests arrived for each arm, the fewer of both."""
    arrived = [[window.arrivals or 0 for window in run.windows] for pair in pairs for run in (pair.a, pair.b)]
    counts = list(map(sum, arrived))
    return min(sum(counts[::2]), sum(counts[1::2]))


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
    visible = intervals.smallest_visible(trial.ratio, len(trial.pairs), 60.0 / pair_s)
    data = {"visible": visible, "pairs": len(trial.pairs), "seconds": trial.seconds, "model": _MODEL}
    if visible is None:
        return Fact("smallest-difference", "unknown", data)
    return Fact("smallest-difference", "good" if visible <= _FINE else "warn", data)
