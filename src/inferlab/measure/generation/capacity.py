"""The highest rate of requests for tokens at which enough of them meet every limit, and the curve below it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure.cell import check_alike, measuring_alone
from inferlab.measure.generation.cells import serving_of
from inferlab.measure.generation.process import Process, prepare_generation
from inferlab.measure.generation.reference import GenerationJob
from inferlab.measure.generation.stats import (
    generation_findings,
    limit_share,
    percentiles_ms,
    value_s,
    worst_agreement,
)
from inferlab.measure.rate_search import (
    Probe,
    RateSearch,
    Reading,
    Trial,
    readings_by_rate,
    search_findings,
)
from inferlab.measure.stats import samples_needed
from inferlab.records import Listener
from inferlab.records.capacity import GenerationCapacity, GenerationTrial, LoadPoint, LoneRequests, Objective
from inferlab.records.generation import (
    Generation,
    GenerationCell,
    GenerationOutcome,
    GenerationRun,
    PromptSet,
    TokenLimit,
    TokenMetric,
)

_PROCESSES = 3
# So many requests wait at once when it is found out how many are served per second, for each that is computed.
_WAITING = 3
_FEWEST_WAITING = 6
_LONE_REQUESTS = 3
# What a process serves first: requests that come one by one.
_LONE = 0
# Where requests are computed together, the limit is rarely met beyond this share of what is served at most.
_FIRST_LOAD = 0.7
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
    before: GenerationCapacity | None = None,
    save: Callable[[GenerationCapacity], object] = lambda _: None,
) -> GenerationCapacity:
    """Search the highest rate in fresh processes, one after the other, within the cell's time.

    Ctrl-C keeps the processes that are complete. Raises BadInput where the time is too short. After every process
    what is known is given to `save`, as a search that was cut off there; such a one goes on as `before`.
    """
    cell, objective = job.cell, objective_of(slo, attainment)
    trials = _trials(before, slo) if before else []
    label = f"capacity of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), prepare_generation(job, listener) as prepared:

        @contextmanager
        def probe(number: int) -> Iterator[GenerationProbe]:
            with Process(prepared, number - 1) as process:
                yield GenerationProbe(process, cell, slo, objective, number, listener)

        def found(interrupted: bool) -> GenerationCapacity:
            return _capacity(job, slo, attainment, prompts, search, interrupted)

        def on_trial() -> None:
            check_alike([trial.run for trial in trials], search.trials[-1].run)
            save(found(interrupted=True))

        needed = samples_needed(100 * attainment)
        search = RateSearch(cell, objective, needed, _PROCESSES, probe, listener, on_trial)
        if before is not None and before.progress is not None:
            search.take(trials, before.progress)
        search.run()
    return found(search.interrupted)


def _capacity(
    job: GenerationJob,
    slo: Sequence[TokenLimit],
    attainment: float,
    prompts: PromptSet | None,
    search: RateSearch,
    interrupted: bool,
) -> GenerationCapacity:
    """What the processes of a search say together; while it can go on, with all that it takes to do so."""
    cell, trials = job.cell, search.trials
    runs: list[GenerationRun] = [trial.run for trial in trials]
    saturation = statistics.median(trial.saturation_rate for trial in trials)
    outcome = GenerationOutcome(cell, "done", tuple(runs))
    return GenerationCapacity(
        cell=replace(cell, rate=None),
        model=job.model,
        slo=tuple(slo),
        wanted_attainment=attainment,
        processes=tuple(trial.record for trial in trials),
        curve=tuple(
            _point(rate, readings, slo, rate / saturation) for rate, readings in readings_by_rate(trials).items()
        ),
        lone=_lone([request for run in runs for request in run.repetitions[_LONE].sequences], slo),
        serving=serving_of(cell),
        agreement=worst_agreement(runs),
        findings=(
            *(each for each in generation_findings(job.model, outcome) if each.code not in _NOT_OURS),
            *search_findings(cell, trials, None if interrupted else search.wanted_s, interrupted),
        ),
        machine=runs[0].machine,
        versions=runs[0].versions,
        settings=runs[0].settings,
        prompts=prompts,
        interrupted=interrupted,
        progress=search.progress([_saved(trial) for trial in trials]) if interrupted else None,
    )


def _saved(trial: Trial) -> GenerationTrial:
    readings = [reading for reading in trial.readings if isinstance(reading, TokenReading)]
    return GenerationTrial(
        trial.run, tuple((each.rate, len(each.responses_s), each.repetition) for each in readings)
    )


def _trials(before: GenerationCapacity, slo: Sequence[TokenLimit]) -> list[Trial]:
    """The processes that a search had measured when it was cut off."""
    known = before.progress.trials if before.progress else ()
    return [
        Trial(
            saved.run,
            tuple(
                token_reading(rate, requests, repetition, saved.run.repetitions[repetition].sequences, slo)
                for rate, requests, repetition in saved.readings
            ),
            process.saturation_rate,
            process.measured_rate,
            process.luck,
            process.reach,
        )
        for saved, process in zip(known, before.processes, strict=True)
    ]


def objective_of(slo: Sequence[TokenLimit], attainment: float) -> Objective:
    """The limits as one: of the largest share of a limit that a request takes, this percentile is 1 at most."""
    text = ",".join(limit.text for limit in slo)
    return Objective(f"p{100 * attainment:.10g}", 1.0, text)


@dataclass(frozen=True, slots=True)
class TokenReading(Reading):
    """The requests of one process at one rate, by the share of their limits; and those that were served."""

    sequences: tuple[Generation, ...]
    #: Which of the process's repetitions they are.
    repetition: int


def token_reading(
    rate: float, requests: int, repetition: int, sequences: Sequence[Generation], slo: Sequence[TokenLimit]
) -> TokenReading:
    """What became of so many requests, of which these were served, by the largest share of a limit of each."""
    shares = [limit_share(sequence, slo) for sequence in sequences]
    given_up = _GIVEN_UP * max([1.0, *shares])
    all_shares = np.array([*shares, *[given_up] * (requests - len(shares))])
    # Without the wait in the queue.
    alone = [limit_share(_without_wait(sequence), slo) for sequence in sequences]
    return TokenReading(rate, all_shares, np.array(alone or [_GIVEN_UP]), tuple(sequences), repetition)


class GenerationProbe(Probe):
    """A process that serves requests for tokens at one rate after another; Ctrl-C raises."""

    saturation_event = "token-saturation"
    must_end = False

    def __init__(
        self,
        process: Process,
        cell: GenerationCell,
        slo: Sequence[TokenLimit],
        objective: Objective,
        number: int,
        listener: Listener,
    ) -> None:
        patience_s = max(*(2 * limit.limit_s for limit in slo), 1.0)
        super().__init__(objective, cell.seed * 1000 + number, listener, number, patience_s)
        self._process, self._slo, self._at_once = process, slo, cell.batch_size
        #: Requests that came one by one.
        self._lone: tuple[Generation, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What is in force, for the log."""
        return self._process.settings()

    def saturate(self) -> None:
        """Let some requests come one by one, then many at once."""
        self._process.check(0)
        generation_s = self._process.warm_up()
        apart = np.arange(_LONE_REQUESTS) * int(1.5e9 * generation_s)
        patience_s = 4 * generation_s * _LONE_REQUESTS + 1.0
        self._lone = self._process.serve(apart.astype(np.int64), patience_s).sequences
        waiting = max(_FEWEST_WAITING, _WAITING * self._at_once)
        arrivals = np.zeros(waiting, np.int64)
        sequences = self._process.serve(arrivals, 4 * waiting * generation_s + 1.0).sequences
        if not sequences or not self._lone:
            raise BadInput("No request was served in time. Give fewer --new tokens, or more time with -t.")
        self.saturation_rate = len(sequences) * 1e9 / max(sequence.token_ns[-1] for sequence in sequences)

    def predict(self, afford: Callable[[float], object]) -> float | None:
        """A share of what is served at most, unless a typical request that comes alone misses a limit."""
        too_slow = statistics.median(limit_share(one, self._slo) for one in self._lone) > 1.0
        return None if too_slow else _FIRST_LOAD * self.saturation_rate

    def serve(self, rate: float, arrivals_ns: NDArray[np.int64], most_s: float) -> Reading:
        """Measure requests that arrive at these moments, by the largest share of a limit that each takes."""
        number = len(self._process.repetitions)
        sequences = self._process.serve(arrivals_ns, most_s).sequences
        return token_reading(rate, len(arrivals_ns), number, sequences, self._slo)

    def end(self) -> GenerationRun:
        """See whether prefixes are cached, compare the tokens once more; the record of all that was measured."""
        self._process.check_cached_prefix()
        self._process.check(1)
        return self._process.run()


def _without_wait(one: Generation) -> Generation:
    return replace(one, token_ns=tuple(moment - one.submitted_ns for moment in one.token_ns), submitted_ns=0)


def _lone(alone: Sequence[Generation], slo: Sequence[TokenLimit]) -> LoneRequests:
    decoded = [value for one in alone if (value := value_s(one, "tpot")) is not None]
    return LoneRequests(
        ttft_ms=1e3 * statistics.median(one.token_ns[0] / 1e9 for one in alone),
        tpot_ms=1e3 * statistics.median(decoded) if decoded else None,
        limit_share=statistics.median(limit_share(one, slo) for one in alone),
    )


def _point(rate: float, readings: Sequence[Reading], slo: Sequence[TokenLimit], load: float) -> LoadPoint:
    sequences = [
        sequence for reading in readings if isinstance(reading, TokenReading) for sequence in reading.sequences
    ]
    requests = sum(len(reading.responses_s) for reading in readings)
    good = sum(limit_share(sequence, slo) <= 1 for sequence in sequences)

    def percentiles(metric: TokenMetric) -> dict[float, float | None]:
        return percentiles_ms(sequences, requests - len(sequences), lambda one: value_s(one, metric))

    return LoadPoint(
        rate=rate,
        load=load,
        requests=requests,
        processes=len(readings),
        unserved_share=1 - len(sequences) / requests,
        attainment=good / requests,
        goodput_per_s=rate * good / requests,
        ttft_percentiles_ms=percentiles("ttft"),
        tpot_percentiles_ms=percentiles("tpot"),
        end_to_end_percentiles_ms=percentiles("e2e"),
    )
