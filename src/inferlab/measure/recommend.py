"""Find the best engine, cores, streams and batch size: rounds that drop the clearly worse, then pairs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import candidates
from inferlab.measure.candidates import Candidate, label
from inferlab.measure.deploy import Deployment, deployment
from inferlab.measure.explore import Explorer, Search
from inferlab.measure.finals import Finals
from inferlab.measure.jobs import jobs
from inferlab.measure.lock import measuring_alone
from inferlab.measure.objective import Objective
from inferlab.measure.setup import Job
from inferlab.model.shapes import batch_axis, fixed_batch
from inferlab.records import Comparison, EngineInfo, Listener, Model, Run

__all__ = ["Contender", "Recommendation", "Search", "recommend"]

Standing = Literal[
    "recommended", "runner-up", "finalist", "dropped", "missed", "wrong", "failed", "spared", "untried"
]


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate and what became of it."""

    candidate: Candidate
    standing: Standing
    #: One for each round that measured it.
    runs: tuple[Run, ...] = ()
    #: How its streams run: "single", "threads", "processes" or "native".
    stream_mode: str = ""
    #: Why it has no figures that count.
    problem: str = ""
    #: The measured candidate that shows that it need not be measured.
    spared_by: Candidate | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The best configuration, the evidence for it, and what became of the others."""

    model: Model
    objective: Objective | None
    #: The recommended one first, then by standing and throughput.
    contenders: tuple[Contender, ...]
    #: Of the recommended one (A) with others (B), or of the former leader with it.
    comparisons: tuple[Comparison, ...]
    #: What the comparisons could not do, in words.
    troubles: tuple[str, ...]
    #: The recommended one was taken because it is simpler than others that are as fast.
    simpler: bool
    deployment: Deployment | None
    #: Engines that were named but cannot run the model here, and why.
    left_out: Mapping[str, str]
    time_s: float
    seconds: float
    interrupted: bool

    @property
    def recommended(self) -> Contender | None:
        """The configuration to take; None where none keeps the objective or nothing could be measured."""
        return next((one for one in self.contenders if one.standing == "recommended"), None)

    @property
    def runner_up(self) -> Contender | None:
        """The next best."""
        return next((one for one in self.contenders if one.standing == "runner-up"), None)


def recommend(search: Search, listener: Listener) -> Recommendation:
    """Search on this machine; Ctrl-C keeps what is known, and raises where that is nothing."""
    search = replace(search, plan=replace(search.plan, batch_sizes=_batch_sizes(search)))
    engines, left_out = _engines(search)
    bases = _base_jobs(search)
    cores = tuple(filter(None, search.plan.num_cores)) or candidates.core_counts(machine.usable_cores())
    grid = candidates.grid(engines, cores, tuple(filter(None, search.plan.num_streams)), tuple(bases))
    if not grid:
        raise BadInput("No configuration is left to try: there are more streams than cores. Give -nstreams fewer.")
    explorer = Explorer(search, grid, bases, listener)
    finals = Finals(explorer, listener)
    interrupted = False
    try:
        with measuring_alone(f"search for the best configuration of {search.model.source}", listener):
            explorer.explore()
            finals.play()
    except KeyboardInterrupt:
        interrupted = True
        if not explorer.known:
            raise
    return _result(explorer, finals, left_out, interrupted)


def _base_jobs(search: Search) -> dict[int, Job]:
    """One job for each batch size, with the inputs for all candidates of that size."""
    plan = search.plan
    if len(plan.sequence_lengths) > 1:
        raise BadInput("A configuration is recommended for one sequence length. Give one.")
    wanted = replace(
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
    return {job.cell.batch_size: job for job in jobs(wanted, search.model)}


def _engines(search: Search) -> tuple[list[str], dict[str, str]]:
    """The engines that run this model here; of those that were named, also why not."""
    named = search.plan.engines
    found = [registry.describe(name) for name in named] if named else _installed()
    kind = search.model.kind
    reasons = {one.name: _cannot(one, kind) for one in found}
    ready = [name for name, reason in reasons.items() if not reason]
    left_out = {name: reason for name, reason in reasons.items() if reason and named}
    if not ready:
        said = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise BadInput(f"No engine here runs {search.model.source}: {said}. See: inferlab engines")
    return ready, left_out


def _installed() -> list[EngineInfo]:
    return [one for one in registry.list_engines() if one.name != "fake"]


def _cannot(engine: EngineInfo, kind: str) -> str:
    if engine.state != "ready":
        return f"is {engine.state} ({engine.problem})"
    return "" if kind in engine.kinds else f"does not run models of kind {kind}"


def _batch_sizes(search: Search) -> tuple[int | None, ...]:
    """Those given, else the usual ones where the model and the inputs leave the batch open."""
    plan, inputs = search.plan, search.model.inputs
    given = tuple(filter(None, plan.batch_sizes))
    fixed = plan.input_file or plan.input_shapes or fixed_batch(inputs) is not None
    if given or fixed or all(batch_axis(spec, inputs) is None for spec in inputs):
        return given or (None,)
    return candidates.BATCH_SIZES


def _result(explorer: Explorer, finals: Finals, left_out: Mapping[str, str], interrupted: bool) -> Recommendation:
    search, winner = explorer.search, finals.winner
    standings = _standings(explorer, finals)
    known = explorer.known
    contenders = [
        Contender(
            candidate,
            standings[candidate],
            tuple(record.runs),
            record.layout.mode if record.layout else "",
            record.problem or (record.wrong.detail if record.wrong else ""),
            record.spared_by,
        )
        for candidate, record in explorer.records.items()
    ]
    order = list(Standing.__args__)  # type: ignore[attr-defined]
    contenders.sort(
        key=lambda one: (
            order.index(one.standing),
            -known[one.candidate].rate if one.candidate in known else 0.0,
            one.candidate.simplicity,
        )
    )
    return Recommendation(
        model=search.model,
        objective=search.objective,
        contenders=tuple(contenders),
        comparisons=tuple(finals.comparisons),
        troubles=tuple(finals.troubles),
        simpler=finals.simpler,
        deployment=deployment(explorer.job(winner), explorer.records[winner].layout) if winner else None,
        left_out=left_out,
        time_s=search.time_s,
        seconds=time.monotonic() - explorer.began,
        interrupted=interrupted,
    )


def _standings(explorer: Explorer, finals: Finals) -> dict[Candidate, Standing]:
    known, winner = explorer.known, finals.winner
    standings: dict[Candidate, Standing] = {}
    finalists = explorer.finalists()
    for one, record in explorer.records.items():
        if one == winner:
            standings[one] = "recommended"
        elif record.wrong:
            standings[one] = "wrong"
        elif record.problem:
            standings[one] = "failed"
        elif one in known:
            kept: Standing = "finalist" if one in finalists else "dropped"
            standings[one] = kept if known[one].keeps else "missed"
        else:
            standings[one] = "spared" if record.spared_by else "untried"
    rest = [one for one in finalists if one != winner]
    if winner and rest:
        standings[_next_best(rest, winner, finals.comparisons)] = "runner-up"
    return standings


def _next_best(rest: Sequence[Candidate], winner: Candidate, comparisons: Sequence[Comparison]) -> Candidate:
    """The other finalist that came nearest to the winner in pairs, else the best measured alone."""
    met = {
        one: comparison
        for one in rest
        for comparison in comparisons
        if set(comparison.labels) == {label(one), label(winner)}
    }
    if not met:
        return rest[0]
    return min(met, key=lambda one: _time_over(met[one], label(one)))


def _time_over(comparison: Comparison, name: str) -> float:
    """The named one's time over the other's."""
    return comparison.ratio.value if comparison.labels[1] == name else 1 / comparison.ratio.value
