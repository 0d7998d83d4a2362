"""A candidate against a baseline: interleaved where that can be measured again, else against its series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.lab.bundles import open_bundle, release_of
from inferlab.lab.lab import Lab
from inferlab.lab.lookup import Lookup, read_unchanged_model
from inferlab.lab.tracking import branch_entries, cell_key, segments_around
from inferlab.measure import intervals
from inferlab.measure.intervals import LEAST_POINTS
from inferlab.measure.unpaired import SavedResult, compare_sweeps, compare_with_series, saved_result
from inferlab.records import Benchmark, Event, Listener, Plan, ignore
from inferlab.records.comparison import Comparison, ComparisonSweep
from inferlab.store.entries import Entry
from inferlab.store.store import Store

#: What the arms are called.
LABELS = ("baseline", "candidate")
_TITLES_SHOWN = 5
# A baseline has one of each; core counts and batch sizes may be several.
_ONE_OF_EACH = ("engines", "scenarios", "num_streams", "instances", "rates", "sequence_lengths")


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a candidate is held against."""

    #: The conditions of the baseline, with its model where that can be measured again, and with the release of its
    #: engine where another one is installed here.
    plan: Plan
    #: Its engine as it was named, which the candidate gets as well.
    engine: str
    #: As it was measured.
    results: Sequence[SavedResult]
    #: Why the baseline cannot be measured again; empty where it can.
    only_saved: str = ""
    #: Its entry in the store, where its series may be; None where it came as a file.
    entry: Entry | None = None


def baseline_of_bundle(store: Store, path: Path, listener: Listener = ignore) -> Baseline:
    """The baseline that a bundle holds, with its model."""
    bundle, plan = open_bundle(store, path, listener=listener)
    results = Lookup(store).saved_results(bundle.entry)
    return _measurable(Baseline(_single(plan, str(path)), plan.engines[0], results))


def baseline_of_entry(store: Store, entry_id: str, listener: Listener = ignore) -> Baseline:
    """A benchmark of the store; its model may be another one by now."""
    lookup = Lookup(store)
    benchmark = lookup.saved_benchmark(entry_id).benchmark
    plan = _single(benchmark.plan, entry_id)
    held = Baseline(plan, plan.engines[0], lookup.saved_results(entry_id), entry=store.entry(entry_id))
    try:
        read_unchanged_model(benchmark, listener)
    except BadInput as error:
        return replace(held, only_saved=str(error))
    return _measurable(held)


def baseline_of_branch(store: Store, branch: str, model: str, listener: Listener = ignore) -> Baseline | None:
    """The newest benchmark of a model that is labelled with a branch; None where the branch has no benchmarks."""
    entries = branch_entries(store, branch)
    if not entries:
        return None
    path = Path(model)
    whole = str(path.resolve()) if path.exists() else model
    entry = next((entry for entry in entries if entry.title in (model, whole)), None) or next(
        (entry for entry in entries if path.name and Path(entry.title).name == path.name), None
    )
    if entry is None:
        titles = ", ".join(dict.fromkeys(entry.title for entry in entries[:_TITLES_SHOWN]))
        raise BadInput(
            f"The branch {branch} has no finished benchmark of {model}; it has those of {titles}. Name one by its "
            "id: --baseline ID"
        )
    listener(Event("baseline", {"branch": branch, "entry": entry.id}))
    return baseline_of_entry(store, entry.id, listener)


def _measurable(held: Baseline) -> Baseline:
    """The baseline with the release of its engine that it was measured with; as it is where that cannot be had."""
    version = str(held.results[0].conditions.get("version") or "") if held.results else ""
    try:
        return replace(held, plan=replace(held.plan, engines=(release_of(held.engine, version),)))
    except BadInput as error:
        return replace(held, only_saved=f"it was measured with {held.engine} {version}. {error}")


def baseline_of_results(results: Sequence[SavedResult], name: str) -> Baseline:
    """Numbers of a file, which holds no model."""
    conditions = [result.conditions for result in results]
    if any(condition.get("rate") for condition in conditions):
        raise BadInput(f"{name} has response times of the scenario server. Name a bundle of it (inferlab export).")
    plan = Plan(
        results[0].model_source,
        engines=_values(conditions, "engine"),
        scenarios=_values(conditions, "scenario"),
        num_cores=_values(conditions, "num_cores"),
        num_streams=_values(conditions, "num_streams"),
        instances=_values(conditions, "instances", 1),
        batch_sizes=_values(conditions, "batch_size"),
    )
    return Baseline(_single(plan, name), plan.engines[0], results, f"{name} holds numbers, not the model.")


def _values(conditions: Sequence[Mapping[str, Any]], name: str, default: Any = None) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(condition.get(name) or default for condition in conditions))


def _single(plan: Plan, name: str) -> Plan:
    for field in _ONE_OF_EACH:
        if len(getattr(plan, field)) > 1:
            what = field.replace("_", " ")
            raise BadInput(
                f"The baseline {name} has several {what}; a gate compares at several core counts and batch sizes, "
                "and one of all else. Measure one as a baseline of its own."
            )
    return plan


def against_baseline(
    lab: Lab,
    model: str,
    engine: str | None,
    baseline: Baseline,
    time_s: float = 60.0,
    margin: float = 0.03,
    listener: Listener = ignore,
) -> ComparisonSweep:
    """The candidate against the baseline, at each of its core counts and batch sizes."""
    candidate = replace(baseline.plan, model=model, engines=(engine or baseline.engine,))
    if not baseline.only_saved:
        return lab.compare_all(baseline.plan, candidate, time_s, margin, listener, LABELS)
    # Only the same cell belongs to a series: with its own time, which -t limits.
    series: Mapping[tuple[str, ...], tuple[float, ...]] = {}
    if baseline.entry is not None and candidate.time_s <= time_s:
        series = segments_around(lab.store, baseline.entry)
    benchmark = lab.benchmark(candidate if series else replace(candidate, time_s=time_s, precision=None), listener)
    if series and (compared := _with_series(benchmark, series, margin, listener)) is not None:
        return replace(compared, id=benchmark.id)
    measured = [saved_result(LABELS[1], benchmark, outcome) for outcome in benchmark.outcomes]
    failures = [outcome.failure.message for outcome in benchmark.outcomes if outcome.failure]
    if failures:
        raise EngineFailed(failures[0])
    sweep = compare_sweeps(baseline.results, [one for one in measured if one is not None], margin)
    return replace(
        sweep, interrupted=any(outcome.status != "done" for outcome in benchmark.outcomes), id=benchmark.id
    )


def _with_series(
    benchmark: Benchmark, series: Mapping[tuple[str, ...], tuple[float, ...]], margin: float, listener: Listener
) -> ComparisonSweep | None:
    """Every cell against its series; None where one has too few entries, or was not measured."""
    measured = [(outcome, saved_result(LABELS[1], benchmark, outcome)) for outcome in benchmark.outcomes]
    alpha = intervals.ALPHA / max(1, len(measured))
    compared: list[Comparison] = []
    for outcome, result in measured:
        if result is None or outcome.status != "done":
            return None
        points = series.get(cell_key(outcome.cell, outcome.runs[0]), ())
        if len(points) < LEAST_POINTS:
            listener(Event("short-series", {"entries": len(points), "needed": LEAST_POINTS}))
            return None
        comparison = compare_with_series(LABELS[0], points, result, margin, alpha)
        compared.append(replace(comparison, cells=(outcome.cell, outcome.cell)))
    return ComparisonSweep(tuple(compared))
