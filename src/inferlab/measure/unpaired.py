"""Compare two results that were saved at other times or places: unpaired, and so less sure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import geometric_mean
from typing import Any

import numpy as np

from inferlab.errors import BadInput
from inferlab.measure import intervals
from inferlab.measure.check import worst
from inferlab.measure.intervals import inflation
from inferlab.measure.stats import engine_version, items_per_sec, median_ms, seconds, statistic, with_samples
from inferlab.options.plan import COLUMNS, COMPARISON, cell_texts
from inferlab.records import Benchmark, Estimate, Outcome
from inferlab.records.comparison import (
    ComparedMetric,
    Comparison,
    ComparisonFailure,
    ComparisonSweep,
    TimeMetric,
)
from inferlab.records.generation import GenerationCell, GenerationOutcome, GenerationSweep

#: What two results may differ in beside their model and machine, and what it is called.
CONDITIONS = {
    "machine_type": "machine type",
    "engine": "engine",
    "version": "engine version",
    "batch_size": "batch size",
    "num_cores": "cores",
    "scenario": "scenario",
    "num_streams": "streams",
    "instances": "instances",
    "rate": "rate",
    "stream_mode": "stream mode",
    "thread_pinning": "pinning",
    "engine_options": "engine options",
    "inputs": "input shapes",
    **dict(zip(COLUMNS, map(attrgetter("label"), COLUMNS.values()), strict=True)),
    # Of generations alone.
    "prompt_tokens": "prompt length",
    "new_tokens": "new tokens",
    "depth": "depth",
    "prompts_digest": "prompts",
    "audio_digest": "sound",
    "ended_early": "sequences that ended early",
}
# An engine may have been updated between the two: its streams may then be served in another way, or it ends early.
_NEVER_PAIRED = ("version", "stream_mode", "ended_early")
# Responses to other requests are not compared.
_ALWAYS_PAIRED = ("rate",)
#: What two machines may differ in.
_MACHINE = {
    "node": "machine",
    "instance_type": "instance type",
    "cpu": "CPU",
    "system": "system",
    "cpu_quota": "CPU quota",
}


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result of one cell that was measured before, as far as a comparison needs it."""

    label: str
    #: Per item, process by process.
    medians_ms: tuple[float, ...]
    throughput_ms: tuple[float, ...]
    seconds: float
    model_digest: str
    model_source: str
    #: By the names in `CONDITIONS`.
    conditions: Mapping[str, Any]
    machine: Mapping[str, Any]
    check_status: str = ""
    check_detail: str = ""
    #: Of a generation, what of it is compared, which both times of a process are.
    metric: ComparedMetric | None = None


def saved_result(label: str, benchmark: Benchmark, outcome: Outcome) -> SavedResult | None:
    """A measured cell as what is compared; None where nothing was measured of it."""
    cell, runs = outcome.cell, with_samples(outcome.runs)
    if not runs:
        return None
    first, check = outcome.runs[0], worst([run.check for run in outcome.runs])
    conditions = {
        **{name: getattr(cell, name, None) for name in CONDITIONS},
        "version": engine_version(first),
        "stream_mode": first.stream_mode,
        "engine_options": dict(cell.engine_options),
        "inputs": {name: list(shape) for name, shape in cell.shapes},
        **cell_texts(cell),
    }
    return SavedResult(
        label=label,
        medians_ms=tuple(median_ms(run) / cell.batch_size for run in runs),
        throughput_ms=tuple(1e3 / items_per_sec(run, cell.batch_size, cell.rate) for run in runs),
        seconds=sum(seconds(window) for run in runs for window in run.windows),
        model_digest=benchmark.model.digest,
        model_source=benchmark.model.source,
        conditions=conditions,
        machine={name: getattr(first.machine, name) for name in _MACHINE},
        check_status=check.status,
        check_detail=check.detail,
    )


def results_of(
    label: str, measured: Benchmark | GenerationSweep, metric: ComparedMetric = "tpot"
) -> list[SavedResult | None]:
    """Every cell as what is compared; `metric` is that of generations."""
    if isinstance(measured, Benchmark):
        return [saved_result(label, measured, outcome) for outcome in measured.outcomes]
    return [_saved_generation(label, measured, outcome, metric) for outcome in measured.outcomes]


def _saved_generation(
    label: str, sweep: GenerationSweep, outcome: GenerationOutcome, metric: ComparedMetric
) -> SavedResult | None:
    # Late: a comparison of calls needs nothing of them.
    from inferlab.measure.generation.comparison import process_times_ms
    from inferlab.measure.generation.stats import worst_agreement

    times_ms = process_times_ms(outcome.cell, outcome.runs, metric)
    if not times_ms:
        return None
    first = outcome.runs[0]
    sequences = [one for run in outcome.runs for each in run.repetitions for one in each.sequences]
    return generation_result(
        *(label, outcome.cell, times_ms, metric),
        seconds=sum(seconds(window) for run in outcome.runs for window in run.windows),
        model_source=sweep.model.source,
        version=engine_version(first),
        ended_early=sum(one.finish_reason == "stop" for one in sequences),
        machine={name: getattr(first.machine, name) for name in _MACHINE},
        agreement=worst_agreement(outcome.runs).status,
    )


def generation_result(
    label: str,
    cell: GenerationCell,
    times_ms: tuple[float, ...],
    metric: ComparedMetric,
    *,
    seconds: float,
    model_source: str,
    version: str | None,
    ended_early: int,
    machine: Mapping[str, Any],
    agreement: str,
) -> SavedResult:
    """A measured cell of a generation as what is compared."""
    conditions = {
        **{name: getattr(cell, name, None) for name in CONDITIONS},
        "version": version,
        "scenario": "sync" if cell.rate is None else "server",
        "engine_options": dict(cell.engine_options),
        "ended_early": ended_early,
        **cell_texts(cell),
    }
    return SavedResult(
        label=label,
        medians_ms=times_ms,
        throughput_ms=times_ms,
        seconds=seconds,
        model_digest=cell.model_digest,
        model_source=model_source,
        conditions=conditions,
        machine=machine,
        check_status=agreement,
        check_detail=label,
        metric=metric,
    )


def compare_sweeps(a: Sequence[SavedResult], b: Sequence[SavedResult], margin: float = 0.01) -> ComparisonSweep:
    """Compare the cells of two saved sweeps that have the same conditions, whatever all of one sweep differ in.

    Their intervals hold for all of them together (Bonferroni): of many equal cells at most 2 % have one that is
    called faster or slower.
    """
    COMPARISON["margin"].validate(margin)
    if not a or not b:
        raise BadInput("One of the two has no cell that was measured. See: inferlab history")
    _refuse_other_kind(a[0], b[0])
    if len(a) == len(b) == 1:
        return ComparisonSweep((compare_saved(a[0], b[0], margin),))
    names = [name for name in CONDITIONS if name not in _NEVER_PAIRED and not _is_what_differs(name, a, b)]
    of_a, of_b = (_by_conditions(results, names) for results in (a, b))
    common = [key for key in of_a if key in of_b]
    if not common:
        if not {*map(_rate, a)} & {*map(_rate, b)}:
            raise _other_requests(a[0], b[0])
        raise BadInput(f"{a[0].label} and {b[0].label} have no cell in common. Name one of each: {a[0].label}#1")
    varying = _telling({*of_a, *of_b}, len(names))
    places = {key: ", ".join(f"{CONDITIONS[names[one]]} {key[one]}" for one in varying) for key in (*of_a, *of_b)}
    alpha = intervals.ALPHA / len(common)
    return ComparisonSweep(
        tuple(replace(compare_saved(of_a[key], of_b[key], margin, alpha), place=places[key]) for key in common),
        tuple(
            ComparisonFailure(
                one.conditions.get("num_cores"),
                one.conditions.get("batch_size"),
                f"only {one.label} has {places[key]}",
            )
            for mine, others in ((of_a, of_b), (of_b, of_a))
            for key, one in mine.items()
            if key not in others
        ),
    )


def _telling(keys: Collection[tuple[str, ...]], length: int) -> list[int]:
    """Where keys differ, without what follows from the rest: shapes of inputs, say, from the batch size."""
    telling = list(range(length))
    for index in reversed(range(length)):
        others = [one for one in telling if one != index]
        if len({tuple(key[other] for other in others) for key in keys}) == len(keys):
            telling = others
    return telling


def _is_what_differs(name: str, a: Sequence[SavedResult], b: Sequence[SavedResult]) -> bool:
    """Whether each sweep has one value of a condition, and they differ: that is then what is compared."""
    if name in _ALWAYS_PAIRED:
        return False
    values = [{str(result.conditions.get(name)) for result in results} for results in (a, b)]
    return len(values[0]) == len(values[1]) == 1 and values[0] != values[1]


def _by_conditions(results: Sequence[SavedResult], names: Sequence[str]) -> dict[tuple[str, ...], SavedResult]:
    found = {tuple(str(result.conditions.get(name)) for name in names): result for result in results}
    if len(found) < len(results):
        name = results[0].label
        raise BadInput(f"{name} has several cells of the same conditions. Name one of them: {name}#1")
    return found


def compare_saved(a: SavedResult, b: SavedResult, margin: float, alpha: float = intervals.ALPHA) -> Comparison:
    """Compare two saved results by what their processes measured."""
    _refuse_other_kind(a, b)
    if not same_requests(a, b):
        raise _other_requests(a, b)
    metric = _metric(a, b)
    times = _times_ms(a, metric), _times_ms(b, metric)
    ratio = intervals.welch(*times, level=1 - alpha)
    verdict = intervals.verdict(ratio, margin)
    total_s = a.seconds + b.seconds
    match, detail = _outputs(a, b)
    return Comparison(
        labels=(a.label, b.label),
        ratio=ratio,
        verdict=verdict,
        margin=margin,
        metric=metric,
        seconds=total_s,
        outputs_match=match,
        output_error=None,
        output_detail=detail,
        settle_s=_settle_s(ratio, margin, times, total_s) if verdict == "inconclusive" else None,
        times_ms=times,
        differences=tuple(_differences(a, b)),
    )


def same_requests(a: SavedResult, b: SavedResult) -> bool:
    """Whether requests arrived by themselves at the same rate for both, or for neither."""
    return _rate(a) == _rate(b)


def _rate(result: SavedResult) -> float | None:
    return result.conditions.get("rate") or None


def _other_requests(a: SavedResult, b: SavedResult) -> BadInput:
    a_rate, b_rate = (f"{rate:g} per second" if (rate := _rate(one)) else "no rate" for one in (a, b))
    return BadInput(
        f"{a.label} and {b.label} were measured with other requests: {a_rate} and {b_rate}. Response times of the "
        "scenario server are compared at the same --rate; what each can serve: inferlab capacity."
    )


def _metric(a: SavedResult, b: SavedResult) -> TimeMetric:
    if a.metric is not None:
        return a.metric
    if _rate(a) is not None:
        return "response"
    statistics = [statistic(str(result.conditions["scenario"])) for result in (a, b)]
    return "throughput" if "mean" in statistics else "median"


def _times_ms(result: SavedResult, metric: TimeMetric) -> tuple[float, ...]:
    """By process; a response is not of items but of a request."""
    if metric == "throughput":
        return result.throughput_ms
    items = int(result.conditions["batch_size"]) if metric == "response" else 1
    return tuple(items * median_ms for median_ms in result.medians_ms)


def _refuse_other_kind(a: SavedResult, b: SavedResult) -> None:
    if a.metric != b.metric:
        tokens, calls = (a, b) if a.metric else (b, a)
        raise BadInput(
            f"{tokens.label} is of a model that generates tokens, {calls.label} is of calls. They are not "
            "compared with each other."
        )


def compare_with_series(
    label: str, values: Sequence[float], result: SavedResult, margin: float, alpha: float = intervals.ALPHA
) -> Comparison:
    """Compare a result with the entries of a series, in milliseconds per item, by how much those differ.

    Student's interval for one more value of the series: entries of a machine differ by more than the processes of
    one entry tell.
    """
    is_mean = statistic(str(result.conditions["scenario"])) == "mean"
    times = tuple(values), result.throughput_ms if is_mean else result.medians_ms
    widened = inflation(np.log(np.array(times[0])), [0, len(values)])
    ratio = intervals.next_over_series(times[0], geometric_mean(times[1]), 1 - alpha, widened)
    match: bool | None = {"match": True, "mismatch": False}.get(result.check_status)
    detail = "the candidate's were not checked" if match is None else result.check_detail
    return Comparison(
        labels=(label, result.label),
        ratio=ratio,
        verdict=intervals.verdict(ratio, margin),
        margin=margin,
        metric="throughput" if is_mean else "median",
        seconds=result.seconds,
        outputs_match=match,
        output_error=None,
        output_detail=detail,
        settle_s=None,
        times_ms=times,
        entries=len(values),
    )


def _outputs(a: SavedResult, b: SavedResult) -> tuple[bool | None, str]:
    """Both match the reference of the same model, one is wrong, or nothing is known."""
    for result in (a, b):
        if result.check_status == "mismatch":
            return False, result.check_detail
    # Tokens are held against the reference on the weights of their own model.
    if a.check_status == b.check_status == "match" and (a.metric or a.model_digest == b.model_digest):
        return True, ""
    return None, "saved results have no outputs to compare"


def _differences(a: SavedResult, b: SavedResult) -> list[str]:
    differences = [
        f"{name}: {a.conditions.get(key)} and {b.conditions.get(key)}"
        for key, name in CONDITIONS.items()
        if (a.conditions.get(key) or None) != (b.conditions.get(key) or None)
    ]
    if a.model_digest != b.model_digest:
        differences.append(f"model: {a.model_source} and {b.model_source}")
    for key, name in _MACHINE.items():
        if a.machine.get(key) != b.machine.get(key):
            differences.append(f"{name}: {a.machine.get(key)} and {b.machine.get(key)}")
    return differences


def _settle_s(
    ratio: Estimate, margin: float, times: tuple[tuple[float, ...], tuple[float, ...]], total_s: float
) -> float | None:
    """What both measurements would take if each had as many processes as are needed."""
    fewest = min(map(len, times))
    count = intervals.pairs_to_settle(ratio, margin, fewest)
    return None if count is None else total_s * count / fewest
