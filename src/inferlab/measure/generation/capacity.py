"""The highest rate of requests for tokens at which enough of them meet every limit, and the curve below it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import rate_search
from inferlab.measure.cell import measuring_alone
from inferlab.measure.generation.cells import serving_of
from inferlab.measure.generation.load import limit_share, value_s
from inferlab.measure.generation.process import PreparedGeneration, Process, prepare_generation
from inferlab.measure.generation.reference import GenerationJob
from inferlab.measure.generation.stats import generation_findings, worst_agreement
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.rate_search import RateLadder, Reading
from inferlab.measure.stats import PERCENTILES, percentile, samples_needed
from inferlab.records import Event, Finding, Listener
from inferlab.records.capacity import CapacityProcess, Objective, Reach
from inferlab.records.generation import (
    Generation,
    GenerationCell,
    GenerationOutcome,
    GenerationRun,
    PromptSet,
    TokenLimit,
    TokenMetric,
)
from inferlab.records.generation_results import GenerationCapacity, LoadPoint, LoneRequests
from inferlab.units import duration

_PROCESSES = 3
# So many requests wait at once when it is found out how many are served per second, for each that is computed.
_WAITING = 3
_FEWEST_WAITING = 6
_LONE_REQUESTS = 3
# Where requests are computed together, the limit is rarely met beyond this share of what is served at most.
_FIRST_LOAD = 0.7
# So much longer than asked it may take to end a search that has begun.
_LATE = 1.1
# A rung gets at least this much longer than its requests take to arrive; what still waits then is given up.
_OVERTIME = 0.25
# A request that was given up misses its limits at least by this.
_GIVEN_UP = 2.0
# What findings say of one fixed rate; a search has words of its own.
_NOT_OURS = ("overloaded", "one-process", "no-requests")


def find_generation_capacity(
    job: GenerationJob,
    slo: Sequence[TokenLimit],
    attainment: float,
    prompts: PromptSet | None,
    listener: Listener,
) -> GenerationCapacity:
    """Search the highest rate in fresh processes, one after the other, within the cell's time.

    Ctrl-C keeps the processes that are complete. Raises BadInput where the time is too short.
    """
    label = f"capacity of {job.model.source} on {job.cell.engine}"
    with measuring_alone(label, listener), prepare_generation(job, listener) as prepared:
        return replace(_Finder(prepared, slo, attainment, listener).find(), prompts=prompts)


def objective_of(slo: Sequence[TokenLimit], attainment: float) -> Objective:
    """The limits as one: of the largest share of a limit that a request takes, this percentile is 1 at most."""
    text = ",".join(limit.text for limit in slo)
    return Objective(f"p{100 * attainment:.10g}", 1.0, text)


@dataclass(frozen=True, slots=True)
class _Served:
    """The requests of one process at one rate: those that were served, and how many there were."""

    rate: float
    requests: int
    sequences: tuple[Generation, ...]


class _Prober(RateLadder):
    """A process that serves requests for tokens at one rate after another; Ctrl-C raises."""

    def __init__(
        self,
        process: Process,
        slo: Sequence[TokenLimit],
        objective: Objective,
        seed: int,
        tell: Callable[[float], None],
    ) -> None:
        super().__init__(objective)
        self._process, self._slo, self._seed, self._tell = process, slo, seed, tell
        self.served: list[_Served] = []
        self.lone: tuple[Generation, ...] = ()

    def saturate(self, at_once: int, generation_s: float) -> None:
        """Let some requests come one by one, then many at once."""
        apart = np.arange(_LONE_REQUESTS) * int(1.5e9 * generation_s)
        patience_s = 4 * generation_s * _LONE_REQUESTS + 1.0
        self.lone = self._process.serve(apart.astype(np.int64), patience_s).sequences
        waiting = max(_FEWEST_WAITING, _WAITING * at_once)
        arrivals = np.zeros(waiting, np.int64)
        sequences = self._process.serve(arrivals, 4 * waiting * generation_s + 1.0).sequences
        if not sequences or not self.lone:
            raise BadInput("No request was served in time. Give fewer --new tokens, or more time with -t.")
        self.saturation_rate = len(sequences) * 1e9 / max(sequence.token_ns[-1] for sequence in sequences)

    def lone_share(self) -> float:
        """The largest share of a limit that a typical request takes which comes alone."""
        return statistics.median(limit_share(one, self._slo) for one in self.lone)

    def _read(self, rate: float, requests: int) -> Reading:
        """Every rung replays the same arrivals, faster or slower: only the rate differs, not the luck."""
        self._tell(rate)
        arrivals_ns = poisson_arrivals(rate, (2 * requests + 10) / rate, self._seed)[:requests]
        last_s = float(arrivals_ns[-1]) / 1e9
        most_s = last_s + max(_OVERTIME * last_s, *(2 * limit.limit_s for limit in self._slo), 1.0)
        sequences = self._process.serve(arrivals_ns, most_s).sequences
        self.served.append(_Served(rate, len(arrivals_ns), sequences))
        shares = [limit_share(sequence, self._slo) for sequence in sequences]
        given_up = _GIVEN_UP * max([1.0, *shares])
        all_shares = np.array([*shares, *[given_up] * (len(arrivals_ns) - len(shares))])
        return Reading(rate, all_shares, self._alone(sequences))

    def _alone(self, sequences: Sequence[Generation]) -> NDArray[np.float64]:
        """The shares of the limits without the wait in the queue."""
        shares = [limit_share(_without_wait(sequence), self._slo) for sequence in sequences]
        return np.array(shares or [_GIVEN_UP])


def _without_wait(one: Generation) -> Generation:
    return replace(one, token_ns=tuple(moment - one.submitted_ns for moment in one.token_ns), submitted_ns=0)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one process found."""

    run: GenerationRun
    served: tuple[_Served, ...]
    lone: tuple[Generation, ...]
    saturation_rate: float
    measured_rate: float
    reach: Reach

    @property
    def record(self) -> CapacityProcess:
        rate = min(self.measured_rate, rate_search.CEILING * self.saturation_rate)
        return CapacityProcess(
            self.run.started_at, self.saturation_rate, self.measured_rate, 1.0, self.reach, rate
        )


class _Finder:
    """The search, process after process; the first one finds out where to begin and what the time allows."""

    def __init__(
        self, prepared: PreparedGeneration, slo: Sequence[TokenLimit], attainment: float, listener: Listener
    ) -> None:
        self._prepared, self._slo, self._attainment, self._listener = prepared, tuple(slo), attainment, listener
        self._cell = prepared.job.cell
        self._objective = objective_of(slo, attainment)
        self._needed = samples_needed(100 * attainment)
        self._wanted = self._cell.processes or _PROCESSES
        self._began = time.monotonic()
        self._budget = rate_search.Budget(1, 0, 0.0)
        self._overhead_s = 0.0
        self._start = 0.0
        self._rungs: tuple[int, ...] = (0,)
        self._out_of_reach = False
        self._trials: list[_Trial] = []

    def find(self) -> GenerationCapacity:
        """Measure as many processes as the time allows."""
        interrupted = False
        try:
            while not self._trials or self._another():
                self._trials.append(self._try(len(self._trials)))
        except KeyboardInterrupt:
            if not self._trials:
                raise
            interrupted = True
        return self._result(interrupted)

    def _another(self) -> bool:
        """Whether one more process is wanted and has time; what is left is divided again."""
        left, left_s = self._wanted - len(self._trials), self._began + self._cell.time_s - time.monotonic()
        if self._out_of_reach or left <= 0:
            return False
        rate = rate_search.rate_of(self._start, self._rungs[0])
        budget = rate_search.budget(left_s, left, 1, self._overhead_s, rate, self._needed)
        self._budget = budget or self._budget
        return budget is not None

    def _try(self, number: int) -> _Trial:
        began = time.monotonic()
        self._listener(Event("loading", {"engine": self._cell.engine, "process": number + 1}))
        with Process(self._prepared, number) as process:
            if number == 0:
                self._listener(Event("engine", process.settings()))
            process.check(0)
            generation_s = process.warm_up()
            seed = self._cell.seed * 1000 + number
            prober = _Prober(process, self._slo, self._objective, seed, self._tell)
            prober.saturate(self._cell.batch_size, generation_s)
            if number == 0:
                self._overhead_s = time.monotonic() - began
                self._plan(prober)
            if not self._out_of_reach:
                self._search(prober)
            process.check(1)
            run = process.run()
        reach: Reach = "none" if self._out_of_reach else prober.reach
        rate = 0.0 if self._out_of_reach else prober.measured_rate
        return _Trial(run, tuple(prober.served), prober.lone, prober.saturation_rate, rate, reach)

    def _plan(self, prober: _Prober) -> None:
        """Where to begin, and with how many requests and processes; or that no rate will do."""
        self._out_of_reach = prober.lone_share() > 1.0
        saturation = prober.saturation_rate
        self._start = _FIRST_LOAD * saturation
        predicted = 0.0 if self._out_of_reach else self._start
        told = {"rate": saturation, "predicted": predicted, "slo": self._objective.text}
        self._listener(Event("token-saturation", told))
        if self._out_of_reach:
            return
        fewest = self._cell.processes or 1
        budget = rate_search.budget(
            self._cell.time_s, self._wanted, fewest, self._overhead_s, self._start, self._needed
        )
        if budget is None:
            needed_s = rate_search.time_needed_s(fewest, self._overhead_s, self._start, self._needed)
            all_s = rate_search.time_needed_s(self._wanted, self._overhead_s, self._start, self._needed)
            raise BadInput(
                f"{duration(self._cell.time_s)} is too short for {self._objective.text}: that takes "
                f"{self._needed} requests at each of several rates, and they come at about {self._start:.3g} per "
                f"second. Give -t {needed_s:g}, or -t {all_s:g} for {self._wanted} processes and an interval."
            )
        self._budget = budget

    def _search(self, prober: _Prober) -> None:
        """Search around the rungs where the first process found its rate, then trace the curve below."""
        prober.start = self._start
        prober.search(self._rungs, self._budget.requests, self._began + _LATE * self._cell.time_s)
        if not self._trials:
            self._rungs = prober.near or self._rungs
        prober.trace([self._rungs[0] + below for below in rate_search.CURVE], self._budget.curve_s)

    def _tell(self, rate: float) -> None:
        self._listener(Event("rung", {"rate": rate, "process": len(self._trials) + 1}))

    def _result(self, interrupted: bool) -> GenerationCapacity:
        runs, job = [trial.run for trial in self._trials], self._prepared.job
        saturation = statistics.median(trial.saturation_rate for trial in self._trials)
        outcome = GenerationOutcome(self._cell, "done", tuple(runs))
        found = [
            generation_finding
            for generation_finding in generation_findings(job.model, outcome)
            if generation_finding.code not in _NOT_OURS
        ]
        return GenerationCapacity(
            cell=replace(self._cell, rate=None),
            model=job.model,
            slo=self._slo,
            wanted_attainment=self._attainment,
            processes=tuple(trial.record for trial in self._trials),
            curve=_curve(self._trials, self._slo, saturation),
            lone=_lone(self._trials, self._slo),
            serving=serving_of(self._cell),
            agreement=worst_agreement(runs),
            findings=(*found, *self._search_findings(interrupted)),
            machine=runs[0].machine,
            versions=runs[0].versions,
            settings=runs[0].settings,
            interrupted=interrupted,
        )

    def _search_findings(self, interrupted: bool) -> list[Finding]:
        """What the reader must know of the search."""
        reaches, count = [trial.reach for trial in self._trials], len(self._trials)
        found = []
        if "saturation" in reaches:
            found.append(Finding("kept-to-saturation", {"processes": reaches.count("saturation"), "of": count}))
        if "bound" in reaches:
            found.append(Finding("search-cut", {"processes": reaches.count("bound"), "of": count}))
        if not self._out_of_reach and not interrupted and count < self._wanted:
            seconds = math.ceil(self._cell.time_s * self._wanted / count)
            found.append(Finding("few-processes", {"processes": count, "seconds": seconds}))
        if self._cell.processes == 1:
            found.append(Finding("one-process-asked"))
        if interrupted:
            found.append(Finding("search-interrupted", {"processes": count}))
        return found


def _lone(trials: Sequence[_Trial], slo: Sequence[TokenLimit]) -> LoneRequests:
    alone = [one for trial in trials for one in trial.lone]
    decoded = [value for one in alone if (value := value_s(one, "tpot")) is not None]
    return LoneRequests(
        ttft_ms=1e3 * statistics.median(one.token_ns[0] / 1e9 for one in alone),
        tpot_ms=1e3 * statistics.median(decoded) if decoded else None,
        limit_share=statistics.median(limit_share(one, slo) for one in alone),
    )


def _curve(trials: Sequence[_Trial], slo: Sequence[TokenLimit], saturation: float) -> tuple[LoadPoint, ...]:
    """What requests met at each rate, from the lowest up."""
    by_rate: dict[float, list[_Served]] = {}
    for trial in trials:
        for served in trial.served:
            by_rate.setdefault(served.rate, []).append(served)
    return tuple(_point(rate, by_rate[rate], slo, rate / saturation) for rate in sorted(by_rate))


def _point(rate: float, parts: Sequence[_Served], slo: Sequence[TokenLimit], load: float) -> LoadPoint:
    sequences = [sequence for part in parts for sequence in part.sequences]
    requests = sum(part.requests for part in parts)
    good = sum(limit_share(sequence, slo) <= 1 for sequence in sequences)

    def percentiles(metric: TokenMetric) -> dict[float, float | None]:
        known = [value for sequence in sequences if (value := value_s(sequence, metric)) is not None]
        times_ms = np.array([*(1e3 * value for value in known), *[math.inf] * (requests - len(sequences))])
        return {p: percentile(times_ms, p) if len(times_ms) else None for p in PERCENTILES}

    return LoadPoint(
        rate=rate,
        load=load,
        requests=requests,
        processes=len(parts),
        unserved_share=1 - len(sequences) / requests,
        attainment=good / requests,
        goodput_per_s=rate * good / requests,
        ttft_percentiles_ms=percentiles("ttft"),
        tpot_percentiles_ms=percentiles("tpot"),
        end_to_end_percentiles_ms=percentiles("e2e"),
    )


def capacity_cell(cell: GenerationCell) -> GenerationCell:
    """A cell without a rate as one whose requests arrive by themselves: which rate, the search says."""
    return replace(cell, rate=1.0)
