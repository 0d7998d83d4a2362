"""A candidate against a baseline: interleaved where that can be measured again, else against its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.lab.bundles import open_bundle
from inferlab.lab.lab import Lab
from inferlab.lab.lookup import Lookup, read_unchanged_model
from inferlab.measure.unpaired import SavedResult, saved_result
from inferlab.records import Listener, Plan, ignore
from inferlab.records.comparison import ComparisonSweep
from inferlab.store.store import Store

#: What the arms are called.
LABELS = ("baseline", "candidate")
# A baseline has one of each; core counts and batch sizes may be several.
_ONE_OF_EACH = ("engines", "scenarios", "num_streams", "instances", "rates", "sequence_lengths")


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a candidate is held against."""

    #: The conditions of the baseline, with its model where that can be measured again.
    plan: Plan
    #: As it was measured.
    results: Sequence[SavedResult]
    #: Why the baseline cannot be measured again; empty where it can.
    only_saved: str = ""


def baseline_of_bundle(store: Store, path: Path, listener: Listener = ignore) -> Baseline:
    """The baseline that a bundle holds, with its model."""
    bundle, plan = open_bundle(store, path, listener=listener)
    return Baseline(_single(plan, str(path)), Lookup(store).results(bundle.entry))


def baseline_of_entry(store: Store, entry_id: str, listener: Listener = ignore) -> Baseline:
    """A benchmark of the store; its model may be another one by now."""
    benchmark = Lookup(store).benchmark(entry_id).benchmark
    only_saved = ""
    try:
        read_unchanged_model(benchmark, listener)
    except BadInput as error:
        only_saved = str(error)
    return Baseline(_single(benchmark.plan, entry_id), Lookup(store).results(entry_id), only_saved)


def baseline_of_results(results: Sequence[SavedResult], name: str) -> Baseline:
    """Numbers of a file, which holds no model."""
    conditions = [one.conditions for one in results]
    if any(one.get("rate") for one in conditions):
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
    return Baseline(_single(plan, name), results, f"{name} holds numbers, not the model.")


def _values(conditions: Sequence[Mapping[str, Any]], name: str, default: Any = None) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(one.get(name) or default for one in conditions))


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
    candidate = replace(baseline.plan, model=model, engines=(engine,) if engine else baseline.plan.engines)
    if not baseline.only_saved:
        return lab.compare_all(baseline.plan, candidate, time_s, margin, listener, LABELS)
    benchmark = lab.benchmark(replace(candidate, time_s=time_s, precision=None), listener)
    measured = [saved_result(LABELS[1], benchmark, outcome) for outcome in benchmark.outcomes]
    failures = [outcome.failure.message for outcome in benchmark.outcomes if outcome.failure]
    if failures:
        raise EngineFailed(failures[0])
    sweep = lab.compare_saved(baseline.results, [one for one in measured if one is not None], margin)
    return replace(sweep, interrupted=any(one.status != "done" for one in benchmark.outcomes), id=benchmark.id)
