"""Find the best engine, cores, streams and batch size: rounds that drop the clearly worse, then pairs."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from inferlab.engines import registry
from inferlab.errors import BadInput, InferlabError
from inferlab.machine import host_name
from inferlab.measure import exploration, paired
from inferlab.measure.cell import measuring_alone, remembered_options
from inferlab.measure.cells import Job, Layout, cpus_of, jobs, lay_out, usable_cores
from inferlab.measure.check import worst
from inferlab.measure.children import load_request
from inferlab.measure.exploration import TIE, Explorer, Record, Search, label, latencies_s
from inferlab.measure.findings import disturbances
from inferlab.measure.intervals import student
from inferlab.measure.paired import ComparisonJob
from inferlab.measure.queueing import value_s
from inferlab.measure.stats import items_per_sec, median_ms
from inferlab.model.shapes import batch_axis, fixed_batch
from inferlab.records import EngineInfo, Estimate, Event, Listener, Run
from inferlab.records.capacity import Objective
from inferlab.records.comparison import Comparison
from inferlab.records.recommendation import (
    Candidate,
    Contender,
    Deployment,
    Figures,
    PairedRatio,
    Recommendation,
    Round,
    Standing,
)
from inferlab.worker import Worker

# As many pairs as give an interval: by ranks where arms are close, Student's where they are clearly apart.
_PAIRS, _PAIRS_APART = 10, 5
_FEWEST_PAIRS = 3
BATCH_SIZES = (1, 2, 4, 8, 16)


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


class Finals:
    """The best few in pairs: the leader against each of the others."""

    def __init__(self, explorer: Explorer, listener: Listener) -> None:
        self._explorer, self._listener = explorer, listener
        self.comparisons: list[Comparison] = []
        self.troubles: list[str] = []
        self.simpler = False
        self._winner: Candidate | None = None

    @property
    def winner(self) -> Candidate | None:
        """By pairs where there were some, else by what was measured alone."""
        sound = self._winner is not None and not self._explorer.records[self._winner].wrong
        return self._winner if sound else exploration.best_of(self._explorer.measurements)

    def run(self) -> None:
        """Compare until the leader is known; the simplest of those that are as fast as the leader wins."""
        finalists = self._explorer.finalists()
        if not finalists:
            return
        leader, *others = finalists
        tied = [leader]
        for position, other in enumerate(others):
            comparison = self._compare(leader, other, len(others) - position)
            if comparison is None:
                continue
            self.comparisons.append(comparison)
            wrong = self._find_wrong((leader, other), comparison)
            if leader in wrong:
                leader, tied = other, [other]
            elif other in wrong or comparison.ratio.low is None:
                pass  # without an interval a pair or two say nothing: the leader stays
            elif prefers_simpler(comparison.ratio.value, comparison.verdict):
                tied.append(other)
            elif comparison.verdict == "faster":
                # An estimate alone does not unseat the leader, however far it is from 1.
                leader, tied = other, [other]
            self._winner = simplest(tied)
            self.simpler = self._winner != leader
            if comparison.interrupted:
                raise KeyboardInterrupt
        self._winner = self._winner or leader

    def _find_wrong(self, arms: tuple[Candidate, Candidate], comparison: Comparison) -> list[Candidate]:
        """Whoever computed something wrong in a pair is out, however fast it was."""
        for pair in comparison.pairs:
            for arm, run in zip(arms, (pair.a, pair.b), strict=True):
                if run.check.status == "mismatch":
                    self._explorer.records[arm].wrong = run.check
        return [arm for arm in arms if self._explorer.records[arm].wrong]

    def _compare(self, leader: Candidate, other: Candidate, left: int) -> Comparison | None:
        """Compare two, in a fair share of the time that is left and no more than it takes."""
        explorer = self._explorer
        measurements = explorer.measurements
        pair_s = explorer.records[leader].cost_s + explorer.records[other].cost_s
        apart = exploration.clearly_worse(
            measurements[other], measurements[leader], exploration.spread(measurements)
        )
        left_s = explorer.search.time_s * (1 - explorer.spent)
        fair_s = max(left_s / left, min(left_s, _FEWEST_PAIRS * pair_s))
        time_s = min(fair_s, pair_s * (_PAIRS_APART if apart else _PAIRS))
        labels = (label(leader), label(other))
        if time_s < _FEWEST_PAIRS * pair_s:
            self.troubles.append(f"no time was left to compare {labels[0]} with {labels[1]} in pairs")
            return None
        self._listener(Event("finals", {"a": labels[0], "b": labels[1]}))
        a, b = explorer.job(leader), explorer.job(other)
        try:
            spreads = explorer.search.spreads.get(host_name(), {})
            job = ComparisonJob(a, b, labels, time_s, TIE, spreads=spreads)
            return paired.compare(job, explorer.quietly)
        except InferlabError as error:
            self.troubles.append(f"comparing {labels[0]} with {labels[1]} failed: {error}")
            return None


def prefers_simpler(ratio: float, verdict: str) -> bool:
    """Whether a comparison is a tie: the arms are the same, or nothing is known and the estimate is within 3 %."""
    return verdict == "same" or (verdict == "inconclusive" and abs(math.log(ratio)) <= math.log1p(TIE))


def simplest(tied: Sequence[Candidate]) -> Candidate:
    """The simplest of equals, the first of them where several are."""
    return min(tied, key=lambda candidate: candidate.simplicity)


def deployment(job: Job, layout: Layout | None = None, decided: Mapping[str, str] | None = None) -> Deployment:
    """How to deploy it, as laid out; by default one request at a time on the cell's cores.

    The part that is the engine's own is asked of the engine; `decided` are its options that were left to us, by
    default as they were decided when the job was measured here before.
    """
    cell = job.cell
    if layout is None:
        layout = lay_out("auto", "sync", cpus_of(cell), cell.num_cores, 1, ())
    launch = registry.launch(cell.engine)
    groups = [list(group) for group in layout.children[0]]
    if decided is None:
        decided = remembered_options(job, layout.threads)
    request = load_request(job, layout, decided)
    try:
        with Worker(launch, patience_s=job.patience_s) as worker:
            code = str(worker.ask("deployment", groups=groups, **request).data["code"])
    except InferlabError:  # an engine of the user's own that cannot say it is no reason to lose the result
        code = ""
    return Deployment(
        model_path=job.model.path,
        children=tuple(layout.children),
        mode=layout.mode,
        inputs=tuple((name, str(value.dtype), value.shape) for name, value in job.inputs[0].items()),
        engine_code=code,
        fixed_batch=job.rewrite_batch[0] if job.rewrite_batch else None,
    )


__all__ = ["Search", "recommend"]


def recommend(search: Search, listener: Listener) -> Recommendation:
    """Search on this machine; Ctrl-C keeps what is known, and raises where that is nothing."""
    search = replace(search, plan=replace(search.plan, batch_sizes=_batch_sizes(search)))
    engines, left_out = _engines(search)
    bases = _base_jobs(search)
    cores = tuple(filter(None, search.plan.num_cores)) or core_counts(usable_cores(search.plan))
    candidates = grid(engines, cores, tuple(filter(None, search.plan.num_streams)), tuple(bases))
    if not candidates:
        raise BadInput("No configuration is left to try: there are more streams than cores. Give -nstreams fewer.")
    explorer = Explorer(search, candidates, bases, listener)
    finals = Finals(explorer, listener)
    interrupted = False
    try:
        with measuring_alone(f"search for the best configuration of {search.model.source}", listener):
            explorer.explore()
            finals.run()
    except KeyboardInterrupt:
        interrupted = True
        if not explorer.measurements:
            raise
    return _result(explorer, finals, left_out, interrupted)


def _base_jobs(search: Search) -> dict[int, Job]:
    """One job for each batch size, with the inputs for all candidates of that size."""
    plan = search.plan
    if len(plan.sequence_lengths) > 1:
        raise BadInput("A configuration is recommended for one sequence length. Give one.")
    base = replace(
        plan,
        engines=("",),
        scenarios=("sync",),
        num_cores=(1,),
        num_streams=(1,),
        instances=(1,),
        rates=(None,),
        batch_sizes=plan.batch_sizes or (None,),
        stream_mode="auto",
    )
    return {job.cell.batch_size: job for job in jobs(base, search.model)}


def _engines(search: Search) -> tuple[list[str], dict[str, str]]:
    """The engines that run this model here; of those that were named, also why not."""
    named = search.plan.engines
    engines = [registry.describe(name) for name in named] if named else _installed()
    kind = search.model.kind
    reasons = {engine.name: _cannot(engine, kind) for engine in engines}
    ready = [name for name, reason in reasons.items() if not reason]
    left_out = {name: reason for name, reason in reasons.items() if reason and named}
    if not ready:
        details = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise BadInput(f"No engine here runs {search.model.source}: {details}. See: inferlab engines")
    return ready, left_out


def _installed() -> list[EngineInfo]:
    return [engine for engine in registry.list_engines() if engine.name != "fake"]


def _cannot(engine: EngineInfo, kind: str) -> str:
    if engine.state != "ready":
        return f"is {engine.state} ({engine.problem})"
    return "" if kind in engine.kinds else f"does not run models of kind {kind}"


def _batch_sizes(search: Search) -> tuple[int | None, ...]:
    """Those given, else the usual ones where the model and the inputs leave the batch open."""
    plan, inputs = search.plan, search.model.inputs
    batch_sizes = tuple(filter(None, plan.batch_sizes))
    fixed = plan.input_file or plan.input_shapes or fixed_batch(inputs) is not None
    if batch_sizes or fixed or all(batch_axis(spec, inputs) is None for spec in inputs):
        return batch_sizes or (None,)
    return BATCH_SIZES


def _result(explorer: Explorer, finals: Finals, left_out: Mapping[str, str], interrupted: bool) -> Recommendation:
    search, winner = explorer.search, finals.winner
    standings = _standings(explorer, finals)
    measurements = explorer.measurements
    contenders = [
        contender(candidate, standings[candidate], record, search.objective)
        for candidate, record in explorer.records.items()
    ]
    order = get_args(Standing)
    contenders.sort(
        key=lambda entry: (
            order.index(entry.standing),
            -measurements[entry.candidate].rate if entry.candidate in measurements else 0.0,
            entry.candidate.simplicity,
        )
    )
    return Recommendation(
        model=search.model,
        objective=search.objective,
        contenders=tuple(contenders),
        comparisons=tuple(map(paired_ratio, finals.comparisons)),
        troubles=tuple(finals.troubles),
        simpler=finals.simpler,
        deployment=_deployment(explorer, winner) if winner else None,
        left_out=left_out,
        time_s=search.time_s,
        seconds=time.monotonic() - explorer.began,
        interrupted=interrupted,
        machine=next((run.machine for record in explorer.records.values() for run in record.runs), None),
        versions={
            name: version
            for record in explorer.records.values()
            for run in record.runs[:1]
            for name, version in run.versions.items()
        },
    )


def _deployment(explorer: Explorer, winner: Candidate) -> Deployment:
    record = explorer.records[winner]
    return deployment(explorer.job(winner), record.layout, record.decided)


def contender(candidate: Candidate, standing: Standing, record: Record, objective: Objective | None) -> Contender:
    """A candidate with all that its rounds say."""
    runs = record.runs
    return Contender(
        candidate,
        standing,
        tuple(
            Round(
                run.started_at,
                items_per_sec(run, candidate.batch_size),
                median_ms(run),
                run.peak_memory_bytes,
                run.load_s,
            )
            for run in runs
        ),
        _figures(candidate, runs, objective) if runs else None,
        record.layout.mode if record.layout else "",
        record.problem or (record.wrong.detail if record.wrong else ""),
        record.spared_by,
    )


def _figures(candidate: Candidate, runs: Sequence[Run], objective: Objective | None) -> Figures:
    times_s = latencies_s(runs)
    return Figures(
        items_per_sec=_rate(candidate, runs),
        median_s=float(np.median(times_s)),
        objective_s=value_s(objective, times_s) if objective else None,
        batches=len(times_s),
        check=worst([run.check for run in runs]),
        lost_share=sum(disturbance.share for disturbance in disturbances(runs, candidate.num_cores)),
    )


def _rate(candidate: Candidate, runs: Sequence[Run]) -> Estimate:
    """Items per second of the typical process, with Student's interval from three on: two say next to nothing."""
    estimate = student([items_per_sec(run, candidate.batch_size) for run in runs])
    return estimate if len(runs) > 2 else replace(estimate, low=None, high=None)


def paired_ratio(comparison: Comparison) -> PairedRatio:
    """A comparison without its runs."""
    return PairedRatio(
        comparison.labels,
        comparison.ratio,
        comparison.verdict,
        comparison.margin,
        comparison.metric,
        len(comparison.pairs),
        comparison.seconds,
        comparison.settle_s,
    )


def _standings(explorer: Explorer, finals: Finals) -> dict[Candidate, Standing]:
    measurements, winner = explorer.measurements, finals.winner
    standings: dict[Candidate, Standing] = {}
    finalists = explorer.finalists()
    for candidate, record in explorer.records.items():
        if candidate == winner:
            standings[candidate] = "recommended"
        elif record.wrong:
            standings[candidate] = "wrong"
        elif record.problem:
            standings[candidate] = "failed"
        elif candidate in measurements:
            standing: Standing = "finalist" if candidate in finalists else "dropped"
            standings[candidate] = standing if measurements[candidate].keeps else "missed"
        else:
            standings[candidate] = "spared" if record.spared_by else "untried"
    rest = [finalist for finalist in finalists if finalist != winner]
    if winner and rest:
        standings[_next_best(rest, winner, finals.comparisons)] = "runner-up"
    return standings


def _next_best(rest: Sequence[Candidate], winner: Candidate, comparisons: Sequence[Comparison]) -> Candidate:
    """The other finalist that came nearest to the winner in pairs, else the best measured alone."""
    met = {
        candidate: comparison
        for candidate in rest
        for comparison in comparisons
        if set(comparison.labels) == {label(candidate), label(winner)}
    }
    if not met:
        return rest[0]
    return min(met, key=lambda candidate: _time_over(met[candidate], label(candidate)))


def _time_over(comparison: Comparison, name: str) -> float:
    """The named one's time over the other's."""
    return comparison.ratio.value if comparison.labels[1] == name else 1 / comparison.ratio.value
