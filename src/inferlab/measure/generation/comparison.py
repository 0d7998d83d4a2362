"""Compare two arms that generate behind the same prompts: paired and interleaved, in fresh processes."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.errors import EngineFailed
from inferlab.measure import intervals
from inferlab.measure.cell import measuring_alone
from inferlab.measure.generation.process import PreparedGeneration, Process, prepare_generation
from inferlab.measure.generation.prompts import batch_of_prompts
from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.measure.generation.stats import generation_findings
from inferlab.measure.paired import (
    BUILT_IN_PRIOR,
    best_number_of_turns,
    times_ms,
    turn_variance,
    turns_sd,
    weights,
)
from inferlab.records import Event, Finding, Listener
from inferlab.records.benchmark import Estimate
from inferlab.records.comparison import Spread, SpreadPrior
from inferlab.records.generation import Agreement, Generation, GenerationOutcome, GenerationRun, Repetition
from inferlab.records.generation_results import ComparedMetric, GenerationComparison, TokenAgreement
from inferlab.warm import kept_warm, never_forked

# Noise comes in bursts, many of some milliseconds only: the shorter turns are, the more often both arms meet one.
_SHORTEST_TURN_S = 0.01
_MOST_GENERATIONS_A_TURN = 50
# Double turns of the first pairs, before their variances are known, and of any pair.
_FIRST_TURNS = 8
_FEWEST_TURNS, _MOST_TURNS = 2, 64
_PAIRS_TO_LEARN_FROM = 3
# However slow a model is, so many pairs are to fit into the time.
_PAIRS_WANTED = 8
# Forks of one process share its layout of memory, which matters: after so many pairs there is another.
_PAIRS_A_PARENT = 6
# What is found about single cells, but not about arms.
_NOT_OF_ARMS = ("one-process", "prefix-cached")


@dataclass(frozen=True, slots=True)
class GenerationComparisonJob:
    """Two jobs to compare, and how."""

    a: GenerationJob
    b: GenerationJob
    #: What is compared, in the user's words.
    labels: tuple[str, str]
    metric: ComparedMetric
    #: Total seconds, including loading.
    time_s: float
    #: Differences up to this share do not matter.
    margin: float
    prior: SpreadPrior = BUILT_IN_PRIOR
    #: Start every process from nothing.
    fresh: bool = False


def compare_generations(job: GenerationComparisonJob, listener: Listener) -> GenerationComparison:
    """Compare B with A; raises what an engine did wrong. Ctrl-C ends it early: complete pairs are kept."""
    with ExitStack() as stack:
        label = f"comparison of {job.labels[0]} with {job.labels[1]}"
        stack.enter_context(measuring_alone(label, listener))
        arms = [stack.enter_context(prepare_generation(arm, listener)) for arm in (job.a, job.b)]
        # The reference and copies in an engine's own format, which are made once, come on top.
        began = time.monotonic()
        pairs = _Pairs(job, arms, began, listener)
        interrupted = False
        try:
            pairs.run()
        except KeyboardInterrupt:
            interrupted = True
            if not pairs.log_ratios:
                raise
    return pairs.result(interrupted)


class _Pairs:
    """The pairs of a comparison so far, and the looks that were taken at them."""

    def __init__(
        self,
        job: GenerationComparisonJob,
        arms: Sequence[PreparedGeneration],
        began: float,
        listener: Listener,
    ) -> None:
        self._job, self._arms, self._began, self._listener = job, arms, began, listener
        self._looks = intervals.Looks(job.margin, job.prior)
        self._random = random.Random()  # noqa: S311  an order that favours no arm, no secret
        self.log_ratios: list[float] = []
        #: Of each pair: the logarithms of both arms' times in each double turn, and what making it and one double
        #: turn took.
        self._turns: list[NDArray[np.float64]] = []
        self._costs_s: list[tuple[float, float]] = []
        self._runs: tuple[list[GenerationRun], list[GenerationRun]] = ([], [])
        self._agreements: list[Agreement] = []
        self._tokens = TokenAgreement(0, 0, 0, 0)
        self._first = 0
        self._pair_s = 0.0

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _has_time(self) -> bool:
        return not self.log_ratios or self._seconds + self._pair_s <= self._job.time_s

    def run(self) -> None:
        """Measure pairs until a look is clear or the next pair would not fit into the time."""
        self._listener(Event("comparing", {"seconds": self._job.time_s}))
        kinds = [arm.kind for arm in self._arms]
        while self._has_time():
            # Forked where an engine allows it: pairs are cheaper.
            with never_forked() if self._job.fresh else kept_warm(kinds, copies=2):
                for _ in range(_PAIRS_A_PARENT):
                    if self._add_pair():
                        return
                    if not self._has_time():
                        break

    def _add_pair(self) -> bool:
        """Measure one more pair; whether a look at all of them is clear."""
        began = time.monotonic()
        turns = self._pair()
        self._turns.append(turns)
        a_ms, b_ms = times_ms(turns)
        self.log_ratios.append(math.log(b_ms / a_ms))
        self._pair_s = max(self._pair_s * 0.8, time.monotonic() - began)
        evidence = self._evidence()
        ratio = self._looks.estimate(*evidence).value
        self._listener(Event("pair", {"number": len(self.log_ratios), "ratio": ratio}))
        return self._looks.look(*evidence)

    def _pair(self) -> NDArray[np.float64]:
        """Both arms in fresh processes, made in random order; each generates while the other is stopped."""
        began, number = time.monotonic(), len(self.log_ratios)
        with ExitStack() as stack:
            processes: dict[int, Process] = {}
            taken_s: dict[int, float] = {}
            # In random order, but equally often within two pairs: who is made first may have an advantage.
            self._first = 1 - self._first if number % 2 else self._random.randrange(2)
            for index in (self._first, 1 - self._first):
                processes[index] = one = stack.enter_context(Process(self._arms[index], number))
                # The arms are compared with each other in every generation, with the reference in the first pair.
                if number == 0:
                    one.check(0)
                one.warm_up()
                taken_s[index] = _generation_s(one.generate_once(self._prompts(index, number, 1)))
                one.pause()
            made_s, turns_began = time.monotonic() - began, time.monotonic()
            generations = math.ceil(_SHORTEST_TURN_S / max(taken_s.values()))
            generations = max(1, min(_MOST_GENERATIONS_A_TURN, generations))
            turns = self._take_turns(processes, generations, generations * max(taken_s.values()), made_s)
            self._costs_s.append((made_s, (time.monotonic() - turns_began) / len(turns)))
            for index in (0, 1):
                processes[index].resume()
                if number == 0:
                    processes[index].check(1)
                run = processes[index].run()
                self._agreements += [run.agreement] if number == 0 else []
                self._runs[index].append(replace(run, agreement=self._agreements[index]))
        return turns

    def _take_turns(
        self, processes: Mapping[int, Process], generations: int, turn_s: float, made_s: float
    ) -> NDArray[np.float64]:
        """The logarithms of A's and B's times in each double turn: A B B A and B A A B, the first at random."""
        count, number = self._turns_a_pair(made_s, turn_s), len(self.log_ratios)
        first = self._random.randrange(2)
        logs = np.empty((count, 2))
        for turn in range(count):
            generated: dict[int, list[Repetition]] = {}
            for arm in (first, 1 - first):
                processes[arm].resume()
                processes[arm].wake()
                # The same prompts for both arms of a double turn, other ones for the next.
                prompts = [
                    self._prompts(arm, number, 2 + turn * generations + each) for each in range(generations)
                ]
                generated[arm] = [processes[arm].generate_once(prompt) for prompt in prompts]
                processes[arm].pause()
                times_ns = [metric_ns(one, self._job.metric) for one in generated[arm]]
                logs[turn, arm] = math.log(statistics.median(times_ns))
            self._compare_tokens(generated)
            first = first if turn % 2 else 1 - first
        return logs

    def _prompts(self, arm: int, pair: int, number: int) -> Tokens:
        """Prompts of ids that both models have."""
        job = self._arms[arm].job
        vocabulary = min(one.job.model.vocabulary for one in self._arms)
        return batch_of_prompts(replace(job, model=replace(job.model, vocabulary=vocabulary)), pair, number)

    def _compare_tokens(self, generated: Mapping[int, Sequence[Repetition]]) -> None:
        """Count the tokens that both arms chose alike; none where they generate other numbers of sequences."""
        for one, other in zip(generated[0], generated[1], strict=True):
            if len(one.sequences) == len(other.sequences):
                self._tokens = add_agreement(self._tokens, one.sequences, other.sequences)

    def _turns_a_pair(self, made_s: float, turn_s: float) -> int:
        """How many double turns the next pair gets, of what its arms take to be made and one of their turns."""
        affordable = int((self._job.time_s / _PAIRS_WANTED - made_s) / (2 * turn_s))
        wanted = _FIRST_TURNS
        if len(self.log_ratios) >= _PAIRS_TO_LEARN_FROM:
            made, turn = (fmean(costs) for costs in zip(*self._costs_s, strict=True))
            wanted = best_number_of_turns(*self._variances(), made, turn)
        return max(_FEWEST_TURNS, min(_MOST_TURNS, wanted, affordable))

    def _evidence(self) -> tuple[list[float], list[float], float]:
        """The pairs' log ratios and weights, and by how much their turns alone make them differ."""
        counts = [len(turns) for turns in self._turns[: len(self.log_ratios)]]
        within, between = self._variances()
        return self.log_ratios, weights(counts, within, between), turns_sd(counts, within)

    def _variances(self) -> tuple[float, float]:
        """Of one double turn within its pair, and of pairs beyond what their turns explain."""
        within = fmean(map(turn_variance, self._turns))
        if len(self.log_ratios) < 2:
            return within, 0.0
        explained = fmean(math.pi / 2 * turn_variance(turns) / len(turns) for turns in self._turns)
        return within, max(0.0, float(np.var(self.log_ratios, ddof=1)) - explained)

    def result(self, interrupted: bool) -> GenerationComparison:
        """What all pairs together say."""
        job = self._job
        estimate = self._looks.estimate(*self._evidence())
        verdict = intervals.verdict(estimate, job.margin)
        within, between = self._variances()
        times = [times_ms(turns) for turns in self._turns[: len(self.log_ratios)]]
        return GenerationComparison(
            labels=job.labels,
            metric=job.metric,
            ratio=estimate,
            verdict=verdict,
            margin=job.margin,
            seconds=self._seconds,
            settle_s=self._settle_s(estimate) if verdict == "inconclusive" else None,
            arms=(job.a.cell, job.b.cell),
            models=(job.a.model, job.b.model),
            log_ratios=tuple(self.log_ratios),
            times_ms=(tuple(one for one, _ in times), tuple(one for _, one in times)),
            spread=Spread(math.sqrt(between), math.sqrt(within), fmean(map(len, self._turns)), job.prior),
            agreements=(self._agreements[0], self._agreements[1]),
            tokens=self._tokens,
            versions=(self._runs[0][0].versions, self._runs[1][0].versions),
            machine=machine.describe(),
            findings=(self._findings(0), self._findings(1)),
            interrupted=interrupted,
        )

    def _findings(self, arm: int) -> tuple[Finding, ...]:
        job = (self._job.a, self._job.b)[arm]
        found = generation_findings(job.model, GenerationOutcome(job.cell, "done", tuple(self._runs[arm])))
        return tuple(one for one in found if one.code not in _NOT_OF_ARMS)

    def _settle_s(self, estimate: Estimate) -> float:
        """What all pairs that are needed would take; without an interval, so many that there is one."""
        pairs = len(self.log_ratios)
        count = intervals.pairs_to_settle(estimate, self._job.margin, pairs) or _PAIRS_WANTED
        return self._seconds + (count - pairs) * self._pair_s


def _generation_s(repetition: Repetition) -> float:
    return max(sequence.token_ns[-1] for sequence in repetition.sequences) / 1e9


def metric_ns(repetition: Repetition, metric: ComparedMetric) -> float:
    """What is compared of one batch: a time in nanoseconds, that of a token where the metric is a rate."""
    sequences = repetition.sequences
    if metric == "ttft":
        return statistics.median(sequence.token_ns[0] for sequence in sequences)
    if metric == "prefill":
        return max(sequence.token_ns[0] for sequence in sequences) / sum(
            sequence.prompt_tokens for sequence in sequences
        )
    if metric == "output":
        return max(sequence.token_ns[-1] for sequence in sequences) / sum(
            len(sequence.token_ns) for sequence in sequences
        )
    decoded = [sequence for sequence in sequences if len(sequence.token_ns) > 1]
    if not decoded:
        raise EngineFailed("No sequence has a second token, so there is no time per output token. Give --new 2.")
    if metric == "tpot":
        return statistics.median((one.token_ns[-1] - one.token_ns[0]) / (len(one.token_ns) - 1) for one in decoded)
    span_ns = max(one.token_ns[-1] for one in decoded) - min(one.token_ns[0] for one in decoded)
    return span_ns / sum(len(one.token_ns) - 1 for one in decoded)


def add_agreement(before: TokenAgreement, a: Sequence[Generation], b: Sequence[Generation]) -> TokenAgreement:
    """The counts with those of some more sequences of both arms."""
    agreeing, tokens, alike = before.agreeing, before.tokens, before.alike
    for one, other in zip(a, b, strict=True):
        length = max(len(one.token_ids), len(other.token_ids))
        pairs = zip(one.token_ids, other.token_ids, strict=False)
        prefix = next((number for number, (x, y) in enumerate(pairs) if x != y), None)
        if prefix is None:
            prefix = min(len(one.token_ids), len(other.token_ids))
        agreeing, tokens, alike = agreeing + prefix, tokens + length, alike + (prefix == length)
    return TokenAgreement(agreeing, tokens, alike, before.generations + len(a))
