"""Records as what an entry of the store or a file holds, and back; also those that earlier versions wrote.

Profiles, versions and searches are stored as they are. Runs of a comparison lie in cells of their own, beside it.

Version 1 of comparisons, capacities and recommendations was the file that the command writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from inferlab.codec import finite, parse_json, plain, read_text, restored
from inferlab.errors import BadInput
from inferlab.records import Outcome
from inferlab.records.capacity import Capacity, GenerationCapacity
from inferlab.records.comparison import Comparison, ComparisonFailure, ComparisonSweep, GenerationComparison, Pair
from inferlab.records.generation import GenerationSweep
from inferlab.records.optimization import FORMAT as OPTIMIZATION
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import FORMAT as PROFILE
from inferlab.records.profile import LossMethod, LossMetric, Profile
from inferlab.records.recommendation import FleetRecommendation, GenerationRecommendation, Recommendation
from inferlab.store.entries import Document

R = TypeVar("R")
Content = Mapping[str, Any]
Record = (
    ComparisonSweep
    | Capacity
    | Recommendation
    | FleetRecommendation
    | Profile
    | Optimization
    | Front
    | GenerationSweep
    | GenerationComparison
    | GenerationCapacity
    | GenerationRecommendation
)

COMPARISON = "inferlab-comparison/2"
CAPACITY = "inferlab-capacity/2"
RECOMMENDATION = "inferlab-recommendation/2"
FLEET_RECOMMENDATION = "inferlab-fleet-recommendation/2"
SEARCH = "inferlab-search/1"
GENERATION_RUNS = "inferlab-generation-runs/1"
#: The kind of an entry with a GenerationSweep.
GENERATION = "generation"
#: The kinds of entries that follow from measuring a model that generates.
MADE_OF_GENERATIONS = ("generation-comparison", "generation-capacity", "generation-recommendation")
# The kind of entry that a record is stored as, and its format.
_STORED: dict[type, tuple[str, str]] = {
    ComparisonSweep: ("comparison", COMPARISON),
    Capacity: ("capacity", CAPACITY),
    Recommendation: ("recommendation", RECOMMENDATION),
    FleetRecommendation: ("recommendation", FLEET_RECOMMENDATION),
    Front: ("search", SEARCH),
    GenerationSweep: (GENERATION, GENERATION_RUNS),
    GenerationComparison: ("generation-comparison", "inferlab-generation-comparison/1"),
    GenerationCapacity: ("generation-capacity", "inferlab-generation-capacity/1"),
    GenerationRecommendation: ("generation-recommendation", "inferlab-generation-recommendation/1"),
    Profile: ("profile", PROFILE),
    Optimization: ("version", OPTIMIZATION),
}
# Stored as the file that the command writes.
_FILES = (Profile, Optimization, Front)
# Of these formats some keys were called otherwise; stores are migrated, files and exports are read so.
_RENAMED_SINCE = {"inferlab-profile/1": PROFILE, "inferlab-optimization/1": OPTIMIZATION}
_RENAMED = {
    "unjoined_share": "unattributed_share",
    "foretold_speedup": "predicted_speedup",
    "foretold_error": "predicted_error",
}


def current(content: Content) -> Content:
    """A document under the keys that are written today."""
    if (since := _RENAMED_SINCE.get(str(content.get("format")))) is None:
        return content
    renamed = {key: _renamed(value) for key, value in content.items()}
    return {**renamed, "format": since}


def _renamed(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {_RENAMED.get(key, key): value for key, value in part.items()}
    return [_renamed(inner) for inner in part] if isinstance(part, list) else part


def kind_of(record: Record) -> str:
    """The kind of entry that a record is stored as."""
    return _STORED[type(record)][0]


def content_of(record: Record) -> dict[str, Any]:
    """A record as the JSON values that an entry holds."""
    if isinstance(record, ComparisonSweep):
        return {
            "format": COMPARISON,
            "results": [_stored_comparison(result) for result in record.results],
            "failures": [plain(failure) for failure in record.failures],
        }
    content = plain(record)
    # What is not a number is null: these are the files that the commands write.
    return {"format": _STORED[type(record)][1], **(finite(content) if isinstance(record, _FILES) else content)}


def _stored_comparison(comparison: Comparison) -> dict[str, Any]:
    log_ratios = [pair.log_ratio for pair in comparison.pairs]
    return {**plain(replace(comparison, pairs=())), "log_ratios": log_ratios}


def outcomes_of(comparison: Comparison) -> tuple[Outcome, ...]:
    """What was measured of A and of B; nothing where saved results were compared."""
    if comparison.cells is None:
        return ()
    runs = [pair.a for pair in comparison.pairs], [pair.b for pair in comparison.pairs]
    return tuple(Outcome(cell, "done", tuple(each)) for cell, each in zip(comparison.cells, runs, strict=True))


def cells_since(record: Record, saved: int) -> tuple[int, list[Outcome]]:
    """How many cells the first so many comparisons of a record have, and the cells of those that follow."""
    comparisons = record.results if isinstance(record, ComparisonSweep) else ()
    before, since = (
        [outcome for comparison in part for outcome in outcomes_of(comparison)]
        for part in (comparisons[:saved], comparisons[saved:])
    )
    return len(before), since


def record_of(document: Document) -> Record:
    """The record that an entry holds; BadInput where it is of a format that this version does not read."""
    name = str(current(document.content).get("format"))
    kind = next((kind for kind, (_, own) in _STORED.items() if own == name), None)
    files: RecordFiles[Any] | None = {PROFILE: PROFILES, OPTIMIZATION: VERSIONS}.get(name)  # type: ignore[assignment]
    read = _comparisons if name == COMPARISON else _OLDER_READERS.get(name)
    try:
        record: Any
        if read is not None:
            record = read(document)
        elif files is not None:
            record = files.from_content(document.content, document.id)
        elif kind is not None:
            record = restored(kind, document.content)
        else:
            raise BadInput(
                f"{document.id} is a {document.kind} in a format that this version does not read: {name}."
            )
        return record if isinstance(record, Front) else replace(record, id=document.id)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"The {document.kind} {document.id} is damaged: {error}.") from error


def _comparisons(document: Document) -> ComparisonSweep:
    outcomes = iter(document.outcomes)
    return ComparisonSweep(
        tuple(_comparison(content, outcomes) for content in document.content["results"]),
        tuple(restored(ComparisonFailure, content) for content in document.content["failures"]),
    )


def _comparison(content: Content, outcomes: Iterator[Outcome]) -> Comparison:
    comparison = restored(Comparison, {**content, "pairs": []})
    return replace(comparison, pairs=pairs_of(outcomes, content["log_ratios"])) if comparison.cells else comparison


def pairs_of(outcomes: Iterator[Outcome], log_ratios: Sequence[float]) -> tuple[Pair, ...]:
    """The pairs of a comparison out of its next two arms."""
    a, b = next(outcomes, None), next(outcomes, None)
    if a is None or b is None or not len(a.runs) == len(b.runs) == len(log_ratios):
        raise ValueError("its runs are not those of its pairs")
    return tuple(Pair(*pair) for pair in zip(a.runs, b.runs, log_ratios, strict=True))


@dataclass(frozen=True)
class RecordFiles(Generic[R]):
    """How a kind of record is read again: its format, and the words for what is wrong with a file."""

    kind: type[R]
    format: str
    #: What it is called, after "is not a".
    noun: str
    #: The command that writes one.
    command: str
    #: Refuses what nothing could have made; a ValueError says why.
    check: Callable[[R], None]

    def from_content(self, content: Any, name: str) -> R:
        """The record that was written so; refused where it is none, or where nothing could have made it."""
        if not isinstance(content, Mapping):
            raise BadInput(f"{name} is not a {self.noun}. {self._make}")
        content = current(content)
        if content.get("format") != self.format:
            other = content.get("format") or "no format"
            raise BadInput(f"{name} is not a {self.noun} that this version reads ({other}).")
        try:
            record = restored(self.kind, dict(content))
            self.check(record)
        except BadInput:
            raise
        except (ValueError, ArithmeticError) as error:
            raise BadInput(f"The {self.noun} {name} is damaged: {error}. Make it again.") from error
        return record

    def load(self, name: str) -> R:
        """Read a record from a file."""
        try:
            content = parse_json(read_text(Path(name)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadInput(f"{name} cannot be read as a {self.noun}: {reason}. {self._make}") from error
        return self.from_content(content, name)

    @property
    def _make(self) -> str:
        return f"Make one with: {self.command}"


def is_file(name: str) -> bool:
    """Whether a name means a file with a record in it, which need not be there, rather than a model."""
    return name.lower().endswith(".json")


def _check_profile(profile: Profile) -> None:
    """Refuse what no measurement gives, and what views divide by or look up; a ValueError says why."""
    performance, loss = profile.performance, profile.loss
    positive: list[float] = []
    levels: list[str] = []
    if performance:
        positive += [performance.batch_size, performance.ms_per_batch, *(performance.processes_ms or [0.0])]
        levels += [*performance.pruned, *(key for layer in performance.layers for key in layer.pruned)]
        if limits := performance.ceilings:
            positive += [limits.fp32_gflops, limits.bandwidth_gb_per_s]
    if loss:
        levels += [key for layer in loss.layers for key in layer.losses]
        levels += [key for group in loss.groups for key in group.losses]
        if not all(group.weights and group.channels > 0 for group in loss.groups):
            raise ValueError("a group of channels has none, or nothing that makes them")
        if loss.method not in get_args(LossMethod) or loss.metric not in get_args(LossMetric):
            raise ValueError(f"its losses are of an unknown kind, {loss.method} in {loss.metric}")
    if profile.estimate and profile.estimate.verified:
        positive.append(profile.estimate.verified.ms_per_batch)
    if not all(value > 0 for value in positive):
        raise ValueError("a time, a batch size or a ceiling is not more than 0")
    for key in levels:
        if not 0 <= float(key) <= 1:
            raise ValueError(f"{key} is not a sparsity level")


def _check_version(version: Optimization) -> None:
    """Refuse what no measurement gives, and what views divide by; a ValueError says why."""
    if not all(row.ms > 0 and row.original_ms > 0 and row.speedup > 0 for row in version.measured):
        raise ValueError("a time is not more than 0")


PROFILES = RecordFiles(Profile, PROFILE, "profile", "inferlab profile MODEL -x profile.json", _check_profile)
VERSIONS = RecordFiles(
    Optimization,
    OPTIMIZATION,
    "report of an optimised version",
    "inferlab optimize MODEL -o out.onnx -x version.json",
    _check_version,
)

# Version 1 of comparisons, capacities and recommendations was the file that the command writes.


def _comparisons_1(document: Document) -> ComparisonSweep:
    outcomes = list(document.outcomes)
    results = []
    for place, content in enumerate(document.content.get("results", [document.content])):
        arms = outcomes[2 * place : 2 * place + 2]
        if len(arms) != 2:
            raise ValueError("its runs were not stored")
        results.append(_comparison_1(content, arms))
    failures = tuple(restored(ComparisonFailure, content) for content in document.content.get("failures", ()))
    return ComparisonSweep(tuple(results), failures)


def _comparison_1(content: Content, arms: Sequence[Outcome]) -> Comparison:
    sides = content["a"], content["b"]
    values = {
        **_paired_1(content),
        "labels": [side["label"] for side in sides],
        "output_error": _error_1(content["output_error"]),
        "settle_s": content["settle_seconds"],
        "models": [_model_1(side["model"]) for side in sides],
        "times_ms": [side["times_ms"] for side in sides],
        "cells": None,
        "pairs": [],
    }
    pairs = pairs_of(iter(arms), content["log_ratios"])
    return replace(restored(Comparison, values), cells=(arms[0].cell, arms[1].cell), pairs=pairs)


def _paired_1(content: Content) -> Content:
    ratio = _estimate_1(content["ratio"], content["interval"])
    return {**content, "ratio": {**ratio, "level": content["level"], "method": content["method"]}}


def _estimate_1(value: float, ends: Sequence[float] | None) -> Content:
    low, high = ends or (None, None)
    return {"value": value, "low": low, "high": high, "level": 0.95, "method": "student"}


def _error_1(error: Any) -> float | None:
    """JSON had no infinity, so that one was stored as a word."""
    return None if error is None else float(error)


def _model_1(about: Content) -> Content:
    """A model of which version 1 had only a few words."""
    said = {name: about[name] for name in ("kind", "source", "digest", "precision") if name in about}
    return {"kind": "onnx", **said, "path": about["source"], "inputs": [], "outputs": [], "size_bytes": 0}


def _objective_1(content: Content, limit_ms: float) -> Content:
    return {**content, "limit_s": limit_ms / 1e3}


def _capacity_1(document: Document) -> Capacity:
    content = document.content
    objective, lone, check = content["slo"], content["lone_request"], content["output_check"]
    values = {
        **content,
        "cell": {**content["cell"], "rate": None, "scenario": "server", "precision": None, "warmup_s": 0.0},
        "model": _model_1(content["model"]),
        "objective": _objective_1(objective, objective["limit"]),
        "curve": [_rate_point_1(point) for point in content["curve"]],
        "check": {**check, "error": _error_1(check["error"])},
        "settings": content["engine_settings"],
        "lone": lone and {"seconds": lone["time"] / 1e3, "statistic": lone["statistic"]},
    }
    return restored(Capacity, values)


def _rate_point_1(content: Content) -> Content:
    seconds = {
        f"{name}s_s": {key: None if value is None else value / 1e3 for key, value in content[name].items()}
        for name in ("response", "service")
    }
    return {**content, **seconds, "load": content["share_of_saturation"]}


def _recommendation_1(document: Document) -> Recommendation:
    return restored(Recommendation, _recommended_1(document.content))


def _recommended_1(content: Content) -> Content:
    objective = content["objective"]
    return {
        **content,
        "model": _model_1(content["model"]),
        "objective": objective and _objective_1(objective, objective["limit_ms"]),
        "contenders": [_contender_1(contender) for contender in content["candidates"]],
        "comparisons": [{**_paired_1(pair), "labels": [pair["a"], pair["b"]]} for pair in content["comparisons"]],
        "simpler": content["simpler_of_equals"],
        "deployment": None,
        "time_s": content["seconds_allowed"],
        "machine": content["machine"] or None,
        "code": content["code"] or "",
    }


def _contender_1(content: Content) -> Content:
    figures = None
    if "items_per_sec" in content:
        objective_ms = content["objective_ms"]
        figures = {
            "items_per_sec": _estimate_1(content["items_per_sec"], content["interval"]),
            "median_s": content["median_ms"] / 1e3,
            "objective_s": None if objective_ms is None else objective_ms / 1e3,
            "batches": None,
            "check": {"status": content["output_check"]},
            "lost_share": 0.0,
        }
    return {
        "candidate": content,
        "standing": content["status"],
        "rounds": [{**part, "load_s": part["load_time_ms"] / 1e3} for part in content.get("rounds", ())],
        "figures": figures,
        "stream_mode": content["stream_mode"],
        "problem": content["problem"] or "",
        "spared_by": content["spared_by"] or None,
    }


def _fleet_recommendation_1(document: Document) -> FleetRecommendation:
    content = document.content
    machines = [_machine_recommendation_1(machine) for machine in content["machines"]]
    objectives = [machine["recommendation"]["objective"] for machine in machines if machine["recommendation"]]
    about = content["objective"]
    values = {
        "model": _model_1(content["model"]),
        "objective": about and (next(iter(objectives), None) or _objective_1(about, 0.0)),
        "machines": machines,
        "interrupted": content["interrupted"],
    }
    return restored(FleetRecommendation, values)


def _machine_recommendation_1(content: Content) -> Content:
    cost = content["cost_per_million"]
    return {
        **content,
        "recommendation": _recommended_1(content["recommendation"]) if content["recommendation"] else None,
        "failure": content["failure"] or None,
        "cost_per_million": None if cost is None else _estimate_1(cost, content["cost_per_million_interval"]),
    }


_OLDER_READERS: dict[str, Callable[[Document], Any]] = {
    "inferlab-comparison/1": _comparisons_1,
    "inferlab-comparisons/1": _comparisons_1,
    "inferlab-capacity/1": _capacity_1,
    "inferlab-recommendation/1": _recommendation_1,
    "inferlab-fleet-recommendation/1": _fleet_recommendation_1,
}
