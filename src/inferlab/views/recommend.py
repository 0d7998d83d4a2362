"""A recommendation as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from inferlab.measure.candidates import label
from inferlab.measure.check import worst
from inferlab.measure.explore import latencies_s
from inferlab.measure.findings import disturbances
from inferlab.measure.intervals import student
from inferlab.measure.recommend import Contender, Recommendation
from inferlab.measure.stats import items_per_sec, median_ms, peak_memory_bytes
from inferlab.records import Comparison, Estimate
from inferlab.units import duration, plural, share, size
from inferlab.views.columns import aligned
from inferlab.views.deployment import program
from inferlab.views.intervals import between, in_brackets, rounded

# Version 1: the first.
FORMAT = "inferlab-recommendation/1"

# So many of those that are out are shown, the best first; all of them are in the file.
_SHOWN = {"missed": 3, "dropped": 5, "wrong": 3, "failed": 3}
_LONGEST_PROBLEM = 90


def lines(found: Recommendation) -> list[str]:
    """The headline, the table, the evidence, and the code."""
    code = _program(found)
    return [
        _headline(found),
        "",
        *_table(found),
        "",
        *_evidence(found),
        *(["", "The code that sets it:", "", *code.splitlines()] if code else []),
    ]


def _headline(found: Recommendation) -> str:
    best = found.recommended
    if best is None:
        return _none(found)
    words = [f"Recommended: {label(best.candidate)}: {_throughput(best)}"]
    words.append(f"median {duration(float(np.median(latencies_s(best.runs))))} a batch")
    if found.objective and found.objective.statistic != "median":
        words.append(f"{found.objective.statistic} {duration(_statistic_s(found, best))}")
    return ", ".join(words)


def _none(found: Recommendation) -> str:
    measured = [one for one in found.contenders if one.standing == "missed"]
    if not measured or found.objective is None:
        return "Nothing can be recommended: no configuration could be measured."
    nearest = min(measured, key=lambda one: _statistic_s(found, one))
    return (
        f"No configuration keeps {found.objective.text}. The nearest is {label(nearest.candidate)}: "
        f"{found.objective.statistic} {duration(_statistic_s(found, nearest))}, {_throughput(nearest)}"
    )


def _throughput(one: Contender) -> str:
    estimate = rate(one)
    sure = "" if estimate.ends is None else f"{between(estimate.ends, _number)}, "
    processes = plural(len(one.runs), "process", "processes")
    return f"{rounded(estimate.value, estimate.ends, _number)} items/s ({sure}{processes})"


def rate(one: Contender) -> Estimate:
    """Items a second of the typical process, with Student's interval from three on: two say next to nothing."""
    estimate = student([items_per_sec(run, one.candidate.batch_size) for run in one.runs])
    return estimate if len(one.runs) > 2 else replace(estimate, low=None, high=None)


def _statistic_s(found: Recommendation, one: Contender) -> float:
    assert found.objective is not None
    return found.objective.value_s(latencies_s(one.runs))


def _table(found: Recommendation) -> list[str]:
    objective = found.objective
    extra = [objective.statistic] if objective and objective.statistic != "median" else []
    heads = [
        "Engine",
        "Cores",
        "Streams",
        "Batch",
        "Items/s",
        "95 % interval",
        "Median",
        *extra,
        "Memory",
        "Status",
    ]
    rows = [heads, *(_row(found, one, bool(extra)) for one in _shown(found))]
    return aligned(rows, left=range(len(heads)))


def _shown(found: Recommendation) -> list[Contender]:
    left = Counter(_SHOWN)
    shown = []
    for one in found.contenders:
        if one.standing in ("recommended", "runner-up", "finalist"):
            shown.append(one)
        elif left[one.standing] > 0:
            left[one.standing] -= 1
            shown.append(one)
    return shown


def _row(found: Recommendation, one: Contender, extra: bool) -> list[str]:
    choice = one.candidate
    head = [choice.engine, str(choice.num_cores), str(choice.num_streams), str(choice.batch_size)]
    if not one.runs:
        return [*head, *["-"] * (5 if extra else 4), _status(found, one)]
    estimate = rate(one)
    interval = "-" if estimate.ends is None else between(estimate.ends, _number)
    peak = peak_memory_bytes(one.runs)
    return [
        *head,
        rounded(estimate.value, estimate.ends, _number),
        interval,
        duration(float(np.median(latencies_s(one.runs)))),
        *([duration(_statistic_s(found, one))] if extra else []),
        "-" if peak is None else size(peak),
        _status(found, one),
    ]


def _status(found: Recommendation, one: Contender) -> str:
    if one.standing == "dropped":
        return f"dropped in round {len(one.runs)}"
    if one.standing == "missed" and found.objective:
        return f"misses {found.objective.text}"
    if one.standing == "wrong":
        return "wrong outputs"
    if one.standing == "failed":
        problem = " ".join(one.problem.split())
        return f"failed: {problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + '…'}"
    return one.standing


def _evidence(found: Recommendation) -> list[str]:
    said = [comparison_line(one) for one in found.comparisons]
    if found.simpler:
        said.append("Of those that are as fast (within 3 %), the simplest is recommended: cores, batch, streams.")
    said += [f"Note: {one}." for one in found.troubles]
    said += [f"Note: {name} {reason}." for name, reason in found.left_out.items()]
    said += _doubts(found)
    counts: Counter[str] = Counter(one.standing for one in found.contenders)
    measured = sum(bool(one.runs) for one in found.contenders)
    words = [f"{len(found.contenders)} configurations", f"{measured} measured"]
    words += [f"{counts[standing]} {text}" for standing, text in _COUNTED.items() if counts[standing]]
    said.append(f"{', '.join(words)}; {duration(found.seconds)} of {duration(found.time_s)}.")
    return said


_COUNTED = {
    "spared": "not measured because others show that they are worse",
    "untried": "not tried",
    "wrong": "with wrong outputs",
    "failed": "failed",
}


def _doubts(found: Recommendation) -> list[str]:
    """What the reader must know of the recommended one."""
    best, notes = found.recommended, []
    if found.interrupted:
        notes.append("Note: interrupted; this is what was known by then.")
    if any(one.standing == "untried" for one in found.contenders) and not found.interrupted:
        notes.append("Note: the time was up before all were tried, the least promising last. Give more with -t.")
    if best is None:
        return notes
    check = worst([run.check for run in best.runs])
    if check.status == "unchecked":
        notes.append(f"Note: its outputs were not checked: {check.detail}.")
    lost = sum(one.share for one in disturbances(best.runs, best.candidate.num_cores))
    if lost:
        notes.append(
            f"Note: others took {share(min(1.0, lost))} of its CPUs' time. The order makes up for that, the "
            "figures do not: stop other programs and repeat."
        )
    needed = found.objective.samples_needed if found.objective else 0
    samples = len(latencies_s(best.runs))
    if samples < needed and found.objective:
        notes.append(
            f"Note: {found.objective.statistic} is of {samples} batches; {needed} are needed to be sure. "
            "Give more with -t."
        )
    return notes


_VERDICTS = {
    "faster": "the second is faster",
    "slower": "the first is faster",
    "same": "they are the same within 3 %",
    "inconclusive": "inconclusive",
}


def comparison_line(found: Comparison) -> str:
    """A paired comparison in one sentence."""
    ratio = found.ratio
    pairs = f"{len(found.pairs)} pair{'' if len(found.pairs) == 1 else 's'}"
    value = rounded(ratio.value, ratio.ends, "{:.3f}".format)
    return (
        f"In {pairs}: {found.labels[1]} takes {value}{in_brackets(ratio.ends)} of the time an item of "
        f"{found.labels[0]}: {_VERDICTS[found.verdict]}."
    )


def to_json(found: Recommendation) -> str:
    """All candidates with what each process measured, the comparisons, and the code."""
    best, second = found.recommended, found.runner_up
    some = next((run for one in found.contenders for run in one.runs), None)
    versions: dict[str, str] = {}
    for one in found.contenders:
        for run in one.runs[:1]:
            versions.update(run.versions)
    objective = found.objective
    content = {
        "format": FORMAT,
        "model": {"source": found.model.source, "kind": found.model.kind, "digest": found.model.digest},
        "objective": {
            "text": objective.text,
            "statistic": objective.statistic,
            "limit_ms": objective.limit_s * 1e3,
        }
        if objective
        else None,
        "recommended": _settings(best) if best else None,
        "runner_up": _settings(second) if second else None,
        "simpler_of_equals": found.simpler,
        "comparison": next(iter(_of_winner(found)), None),
        "comparisons": [_comparison(one) for one in found.comparisons],
        "candidates": [_candidate(found, one) for one in found.contenders],
        "troubles": list(found.troubles),
        "left_out": dict(found.left_out),
        "seconds": found.seconds,
        "seconds_allowed": found.time_s,
        "interrupted": found.interrupted,
        "code": _program(found),
        "machine": asdict(some.machine) if some else None,
        "versions": versions,
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _program(found: Recommendation) -> str | None:
    best = found.recommended
    return program(best.candidate, found.deployment) if best and found.deployment else None


def _settings(one: Contender) -> dict[str, Any]:
    return {**asdict(one.candidate), "scenario": one.candidate.scenario, "stream_mode": one.stream_mode}


def _candidate(found: Recommendation, one: Contender) -> dict[str, Any]:
    content: dict[str, Any] = {**_settings(one), "status": one.standing, "problem": one.problem or None}
    content["spared_by"] = asdict(one.spared_by) if one.spared_by else None
    if not one.runs:
        return content
    estimate = rate(one)
    return content | {
        "items_per_sec": estimate.value,
        "interval": None if estimate.low is None else [estimate.low, estimate.high],
        "median_ms": float(np.median(latencies_s(one.runs))) * 1e3,
        "objective_ms": _statistic_s(found, one) * 1e3 if found.objective else None,
        "output_check": worst([run.check for run in one.runs]).status,
        "rounds": [
            {
                "round": number,
                "started_at": run.started_at,
                "items_per_sec": items_per_sec(run, one.candidate.batch_size),
                "median_ms": median_ms(run),
                "peak_memory_bytes": run.peak_memory_bytes,
                "load_time_ms": run.load_s * 1e3,
            }
            for number, run in enumerate(one.runs, 1)
        ],
    }


def _of_winner(found: Recommendation) -> Sequence[dict[str, Any]]:
    """The comparisons of the recommended one with the runner-up."""
    if not found.recommended or not found.runner_up:
        return []
    pair = {label(found.recommended.candidate), label(found.runner_up.candidate)}
    return [_comparison(one) for one in found.comparisons if set(one.labels) == pair]


def _comparison(found: Comparison) -> dict[str, Any]:
    ratio = found.ratio
    return {
        "a": found.labels[0],
        "b": found.labels[1],
        "ratio": ratio.value,
        "interval": None if ratio.low is None else [ratio.low, ratio.high],
        "level": ratio.level,
        "method": ratio.method,
        "verdict": found.verdict,
        "margin": found.margin,
        "metric": found.metric,
        "pairs": len(found.pairs),
        "seconds": found.seconds,
    }


def _number(value: float) -> str:
    """Four digits that count, the thousands apart."""
    return f"{float(f'{value:.4g}'):,.10g}"
