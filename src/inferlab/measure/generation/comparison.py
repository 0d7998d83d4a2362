"""Compare two arms that generate behind the same prompts: paired and interleaved, in fresh processes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.errors import BadInput, EngineFailed
from inferlab.measure.cell import check_alike, measuring_alone
from inferlab.measure.generation.process import PreparedGeneration, Process, prepare_generation
from inferlab.measure.generation.prompts import batch_of_prompts
from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.measure.generation.stats import generation_findings, worst_agreement
from inferlab.measure.paired import SHORTEST_TURN_S, PairedComparison, PairedJob
from inferlab.records import Finding, Listener
from inferlab.records.comparison import ComparedMetric, GenerationComparison, GenerationPair, TokenAgreement
from inferlab.records.generation import (
    Agreement,
    Generation,
    GenerationCell,
    GenerationOutcome,
    GenerationRun,
    Repetition,
)

_MOST_GENERATIONS_A_TURN = 50
# Each so-manieth pair has its tokens compared with the reference, the first among them.
_PAIRS_A_CHECK = 6
# What is found about single cells, but not about arms.
_NOT_OF_ARMS = ("one-process",)


class GenerationComparisonJob(PairedJob[GenerationJob]):
    """Two cells that generate to compare, and how."""

    __slots__ = ()


def compare_generations(
    job: GenerationComparisonJob,
    metric: ComparedMetric,
    listener: Listener,
    before: GenerationComparison | None = None,
    save: Callable[[GenerationComparison], object] = lambda _: None,
) -> GenerationComparison:
    """Compare B with A; raises what an engine did wrong. Ctrl-C ends it early: complete pairs are kept.

    After every pair it is given to `save`, as one that was cut off there; such a one goes on as `before`.
    """
    if before is not None:
        # What the looks at its pairs expected.
        job = replace(job, spreads={job.a.cell.num_cores: before.spread.prior})
    with ExitStack() as stack:
        stack.enter_context(measuring_alone(job.title, listener))
        prepared = [stack.enter_context(prepare_generation(arm, listener)) for arm in (job.a, job.b)]
        arms = GenerationArms(prepared, metric, before)

        def on_pair() -> None:
            save(_compared(job, metric, arms, comparison, comparison.fields(interrupted=True)))

        # The reference and copies in an engine's own format, which are made once, come on top of the time.
        comparison = PairedComparison(job, arms, time.monotonic(), listener, on_pair)
        if before is not None:
            comparison.take(arms.turns, before.seconds)
        return _compared(job, metric, arms, comparison, comparison.run())


def _compared(
    job: GenerationComparisonJob,
    metric: ComparedMetric,
    arms: GenerationArms,
    comparison: PairedComparison,
    fields: dict[str, Any],
) -> GenerationComparison:
    """The comparison as it is now; while it can go on, with all that it takes to do so."""
    # Of a pair that was cut off there may be one arm.
    pairs = zip(*arms.runs, arms.turns, strict=False) if fields["interrupted"] else ()
    return GenerationComparison(
        metric=metric,
        arms=(job.a.cell, job.b.cell),
        models=(job.a.model, job.b.model),
        log_ratios=tuple(comparison.log_ratios),
        agreements=(arms.agreements[0], arms.agreements[1]),
        tokens=arms.tokens,
        versions=(arms.runs[0][0].versions, arms.runs[1][0].versions),
        machine=machine.describe(),
        findings=(arm_findings(job.a, arms.runs[0]), arm_findings(job.b, arms.runs[1])),
        pairs=tuple(
            GenerationPair(a, b, tuple((of_a, of_b) for of_a, of_b in turns.tolist())) for a, b, turns in pairs
        ),
        **fields,
    )


def arm_findings(job: GenerationJob, runs: Sequence[GenerationRun]) -> tuple[Finding, ...]:
    """What was found about one arm, over all its processes."""
    findings = generation_findings(job.model, GenerationOutcome(job.cell, "done", tuple(runs)))
    return tuple(finding for finding in findings if finding.code not in _NOT_OF_ARMS)


class GenerationArms:
    """Two arms that generate: the same prompts for both in a double turn, other ones in the next."""

    def __init__(
        self,
        prepared: Sequence[PreparedGeneration],
        metric: ComparedMetric,
        before: GenerationComparison | None = None,
    ) -> None:
        self._metric: ComparedMetric = metric
        self._prepared = prepared
        self.kinds = [arm.kind for arm in prepared]
        # Prompts are of ids that both models have.
        vocabulary = min(arm.job.model.vocabulary for arm in prepared)
        self._jobs = [replace(arm.job, model=replace(arm.job.model, vocabulary=vocabulary)) for arm in prepared]
        pairs = before.pairs if before else ()
        #: Of each pair, those that were measured before among them.
        self.runs: tuple[list[GenerationRun], list[GenerationRun]] = (
            [pair.a for pair in pairs],
            [pair.b for pair in pairs],
        )
        self.turns = [np.array(pair.turns) for pair in pairs]
        self._before = tuple(map(tuple, self.runs))
        #: With the reference, the worst so far; with each other the arms are compared in every generation.
        self.agreements: list[Agreement] = list(before.agreements) if before else []
        self.tokens = before.tokens if before else TokenAgreement(0, 0, 0, 0)
        self._pair, self._generations = 0, 1
        self._processes: dict[int, Process] = {}
        #: Of both arms, turn by turn.
        self._generated: tuple[list[list[Repetition]], list[list[Repetition]]] = ([], [])

    def begin(self, order: Sequence[int], pair: int, stack: ExitStack) -> float:
        """Make both processes in this order, warmed up and stopped; a turn has as many generations as it needs."""
        self._pair, self._generated = pair, ([], [])
        slowest_s = 0.0
        for arm in order:
            self._processes[arm] = process = stack.enter_context(Process(self._prepared[arm], pair))
            if self._is_checked:
                process.check(0)
            process.warm_up()
            slowest_s = max(slowest_s, _generation_s(process.generate_once(self._prompts(arm, 1))))
            process.pause()
        self._generations = max(1, min(_MOST_GENERATIONS_A_TURN, math.ceil(SHORTEST_TURN_S / slowest_s)))
        return self._generations * slowest_s

    @property
    def _is_checked(self) -> bool:
        return self._pair % _PAIRS_A_CHECK == 0

    def take_turn(self, arm: int, turn: int, last: bool) -> None:
        """Generate behind the prompts of this double turn."""
        process = self._processes[arm]
        process.resume()
        process.wake()
        first = 2 + turn * self._generations
        prompts = [self._prompts(arm, first + number) for number in range(self._generations)]
        self._generated[arm].append([process.generate_once(prompt) for prompt in prompts])
        process.pause()

    def end(self) -> NDArray[np.float64]:
        """The double turns: of each turn the median of what is compared."""
        for arm, process in sorted(self._processes.items()):
            process.resume()
            if self._is_checked:
                process.wake()
                process.check_cached_prefix()
                process.check(1)
            run = process.run()
            check_alike(self._before[arm], run)
            if self._is_checked:
                self.agreements[arm : arm + 1] = [worst_agreement([*self.runs[arm], run])]
            self.runs[arm].append(replace(run, agreement=self.agreements[arm]))
        for of_a, of_b in zip(*self._generated, strict=True):
            for one, other in zip(of_a, of_b, strict=True):
                # None where they generate other numbers of sequences.
                if len(one.sequences) == len(other.sequences):
                    self.tokens = add_agreement(self.tokens, one.sequences, other.sequences)
        doubles = zip(*self._generated, strict=True)
        self.turns.append(np.array([[self._log_ns(turn) for turn in double] for double in doubles]))
        return self.turns[-1]

    def _log_ns(self, generated: Sequence[Repetition]) -> float:
        return math.log(statistics.median(metric_ns(repetition, self._metric) for repetition in generated))

    def _prompts(self, arm: int, number: int) -> Tokens:
        return batch_of_prompts(self._jobs[arm], self._pair, number)


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


def process_times_ms(
    cell: GenerationCell, runs: Sequence[GenerationRun], metric: ComparedMetric
) -> tuple[float, ...]:
    """What each process took of what is compared, by the median of its batches; refused where that is unknown."""
    if cell.rate is not None and metric not in ("ttft", "tpot"):
        raise BadInput(
            f"Requests that arrive by themselves overlap and have no {metric} time of their own. Compare them by "
            "--metric ttft or tpot."
        )
    try:
        return tuple(
            statistics.median(metric_ns(each, metric) for each in run.repetitions if each.sequences) / 1e6
            for run in runs
            if any(each.sequences for each in run.repetitions)
        )
    except EngineFailed as error:
        raise BadInput(str(error)) from error


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
