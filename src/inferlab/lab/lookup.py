"""What was saved before, by its file or its id in the store, and a benchmark as it must be to go on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from inferlab.errors import BadInput, InferlabError
from inferlab.machine import host_name
from inferlab.model.reading import read_model
from inferlab.records import Benchmark, Listener, Model, Outcome
from inferlab.store.entries import BENCHMARK, Document, Stored

if TYPE_CHECKING:  # a benchmark looks nothing up, and loading these takes longer than all else
    from inferlab.measure.unpaired import SavedResult
    from inferlab.records.capacity import GenerationCapacity
    from inferlab.records.comparison import (
        ComparedMetric,
        Comparison,
        ComparisonSweep,
        GenerationComparison,
        MachineSpreads,
        Spreads,
    )
    from inferlab.records.generation import GenerationSweep
    from inferlab.records.optimization import Optimization
    from inferlab.records.profile import Profile
    from inferlab.records.recommendation import GenerationRecommendation
    from inferlab.store.store import Store

R = TypeVar("R")
# An id of the store, or the beginning of one, and the number of a cell.
_ID = re.compile(r"[a-z2-7]{4,10}(#\d+)?")
_LOOKED_THROUGH = 1000


#: The kinds of entries that hold comparisons.
EntryKind = Literal["comparison", "generation-comparison"]
# So many comparisons of so many pairs say how much pairs differ on a machine; a little more is expected than that.
_COMPARISONS_NEEDED, _PAIRS_NEEDED, _COMPARISONS_READ = 5, 5, 60
_MORE = 1.25


def choose_result(name: str, results: Sequence[R]) -> R:
    """The result whose number, counted from 1, follows a # in the name; without one there must be only one."""
    _, hash_sign, number = name.partition("#")
    if not hash_sign and len(results) > 1:
        raise BadInput(f"{name} has {len(results)} results. Name one of them: {name}#1 to {name}#{len(results)}.")
    index = 1 if not hash_sign else int(number) if number.isdigit() else 0
    if not 1 <= index <= len(results):
        raise BadInput(f"{name}: there is no result {number} among {len(results)}.")
    return results[index - 1]


class Lookup:
    """What a store holds, where there is one, and files that stand for the same."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        """Where results are saved; refused where they are not."""
        if self._store is None:
            raise BadInput(
                "Without a store nothing was saved that could be measured again. Name one with --store."
            )
        return self._store

    def has_entry(self, name: str) -> bool:
        """Whether a name means an entry of the store, or a cell of one, rather than a model."""
        entry_id = name.partition("#")[0]
        known = self._store is not None and _ID.fullmatch(name) is not None and self._store.has(entry_id)
        return known and not Path(entry_id).exists()

    def saved_benchmark(self, entry_id: str) -> Stored:
        """A benchmark of the store."""
        found = self.store.get(entry_id)
        if isinstance(found, Document):
            raise BadInput(f"{found.id} is a {found.kind}, not a benchmark. See it with: inferlab show {found.id}")
        return found

    def saved_results(self, name: str, metric: ComparedMetric = "tpot") -> list[SavedResult]:
        """All results of a benchmark or generation that was measured before, or the one whose number follows a #.

        `metric` is what is compared of a generation.
        """
        from inferlab.measure.unpaired import results_of

        measured = self._measured(name)
        if "#" in name or len(measured.outcomes) == 1:
            return [self.saved_result(name, metric)]
        return [result for result in results_of(name, measured, metric) if result is not None]

    def saved_result(self, name: str, metric: ComparedMetric = "tpot") -> SavedResult:
        """One result of a benchmark or generation: its only one, or that whose number, from 1, follows a #."""
        from inferlab.measure.unpaired import results_of

        measured = self._measured(name)
        statuses = [outcome.status for outcome in measured.outcomes]
        known = zip(statuses, results_of(name, measured, metric), strict=True)
        status, result = choose_result(name, list(known))
        if result is None:
            raise BadInput(f"{name} has no measurement: its status is {status}.")
        return result

    def _measured(self, name: str) -> Benchmark | GenerationSweep:
        """The benchmark or generation whose results are to be compared with others."""
        from inferlab.store.formats import GENERATION

        entry_id = name.partition("#")[0]
        if self.store.headings([entry_id])[0].kind == GENERATION:
            return self.saved_generation(entry_id)
        return self.saved_benchmark(entry_id).benchmark

    def is_profile(self, name: str) -> bool:
        """Whether a name means a saved profile rather than a model."""
        from inferlab.store.formats import is_file

        return is_file(name) or (self.has_entry(name) and self.store.headings([name])[0].kind != BENCHMARK)

    def saved_profile(self, name: str) -> Profile:
        """A profile that was made before, by its file or its id in the store."""
        from inferlab.records.profile import Profile
        from inferlab.store.formats import PROFILES, is_file

        return PROFILES.load(name) if is_file(name) else self._record(name, Profile, "a profile")

    def saved_optimization(self, name: str) -> Optimization:
        """A version that was made before, by its file or its id in the store."""
        from inferlab.records.optimization import Optimization
        from inferlab.store.formats import VERSIONS, is_file

        return VERSIONS.load(name) if is_file(name) else self._record(name, Optimization, "an optimised version")

    def saved_comparisons(self, entry_id: str) -> ComparisonSweep:
        """A comparison of the store."""
        from inferlab.records.comparison import ComparisonSweep

        return self._record(entry_id, ComparisonSweep, "a comparison")

    def saved_comparison(self, entry_id: str) -> Comparison:
        """The first comparison of an entry of the store."""
        return self.saved_comparisons(entry_id).results[0]

    def expected_spreads(self, kind: EntryKind = "comparison") -> Spreads:
        """How much pairs of processes differ on this machine, as far as comparisons of a kind showed it."""
        return self.machine_spreads(kind).get(host_name(), {})

    def machine_spreads(self, kind: EntryKind = "comparison") -> MachineSpreads:
        """How much pairs differed on each machine so far; nothing where little is known."""
        known: dict[str, dict[int, list[float]]] = {}
        with suppress(InferlabError):  # a store that cannot be read is no reason not to measure
            for node, brief in () if self._store is None else self._store.briefs(kind, _COMPARISONS_READ):
                for num_cores, pair_sd in _pair_sds(brief):
                    known.setdefault(node, {}).setdefault(num_cores, []).append(pair_sd)
        return {machine: _priors(by_cores) for machine, by_cores in known.items()}

    def saved_generation(self, entry_id: str | None) -> GenerationSweep:
        """A generation of the store; without an id the newest that is not finished."""
        from inferlab.records.generation import GenerationSweep
        from inferlab.store.formats import GENERATION

        if entry_id is not None:
            return self._record(entry_id, GenerationSweep, "a generation")
        for entry in self.store.history(_LOOKED_THROUGH):
            if entry.kind == GENERATION:
                sweep = self._record(entry.id, GenerationSweep, "a generation")
                if any(outcome.status in ("pending", "cancelled") for outcome in sweep.outcomes):
                    return sweep
        raise BadInput(f"No generation is unfinished in the store {self.store.name}. See: inferlab history")

    def is_made_of_generations(self, entry_id: str) -> bool:
        """Whether an entry is a comparison, capacity or recommendation of generation."""
        from inferlab.store.formats import MADE_OF_GENERATIONS

        return self.store.headings([entry_id])[0].kind in MADE_OF_GENERATIONS

    def saved_generation_result(
        self, entry_id: str
    ) -> GenerationComparison | GenerationCapacity | GenerationRecommendation:
        """A comparison, capacity or recommendation of generation."""
        from inferlab.records.capacity import GenerationCapacity
        from inferlab.records.comparison import GenerationComparison
        from inferlab.records.recommendation import GenerationRecommendation
        from inferlab.store.formats import record_of

        document = self.store.get(entry_id)
        record = record_of(document) if isinstance(document, Document) else None
        if not isinstance(record, GenerationComparison | GenerationCapacity | GenerationRecommendation):
            raise BadInput(f"{document.id} is not made of generations. List those with: inferlab history")
        return record

    def _record(self, entry_id: str, kind: type[R], called: str) -> R:
        from inferlab.store.formats import record_of

        document = self.store.get(entry_id)
        record = record_of(document) if isinstance(document, Document) else None
        if not isinstance(record, kind):
            raise BadInput(f"{document.id} is not {called}. List them with: inferlab history")
        return record


def _pair_sds(brief: Mapping[str, Any]) -> list[tuple[int, float]]:
    """On how many cores enough pairs differed by how much, as an entry keeps it; none where it is not ours."""
    try:
        return [
            (int(one["num_cores"]), float(one["pair_sd"]))
            for one in (brief["results"] if "results" in brief else [brief["spread"]])
            if one.get("pairs", 0) >= _PAIRS_NEEDED and 0 < one["pair_sd"] < 1
        ]
    except (AttributeError, LookupError, TypeError, ValueError):
        return []


def _priors(by_cores: Mapping[int, Sequence[float]]) -> Spreads:
    import statistics  # late: whoever only reads does not need it

    from inferlab.records.comparison import SpreadPrior

    return {
        num_cores: SpreadPrior(_MORE * statistics.median(pair_sds), comparisons=len(pair_sds))
        for num_cores, pair_sds in by_cores.items()
        if len(pair_sds) >= _COMPARISONS_NEEDED
    }


def read_unchanged_model(benchmark: Benchmark, listener: Listener) -> Model:
    """The benchmark's model as it is now; refused if it is another one."""
    model = read_model(benchmark.plan.model, listener)
    if model.digest != benchmark.model.digest:
        raise BadInput(
            f"The model {model.source} has changed since it was measured. Measure it as it is now: "
            f"inferlab benchmark {model.source}"
        )
    return model


def drop_cut_runs(outcome: Outcome) -> Outcome:
    """An outcome that can go on: without the runs that were cut short, or the failure of a lost machine."""
    lost = outcome.failure is not None and outcome.failure.code == "lost"
    if outcome.status != "cancelled" and not lost:
        return outcome
    runs = tuple(run for run in outcome.runs if not run.interrupted)
    return Outcome(outcome.cell, "pending", runs)
