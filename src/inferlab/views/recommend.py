"""A recommendation as text and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from inferlab.measure.candidates import label
from inferlab.measure.queueing import samples_needed
from inferlab.records import Contender, PairedRatio, Recommendation
from inferlab.units import duration, plural, share, size
from inferlab.views import tables
from inferlab.views.deployment import program
from inferlab.views.fields import Field, interval_of
from inferlab.views.intervals import between, in_brackets, rounded
from inferlab.views.tables import Block, Code, Note, Pair, Table

# Version 1: the first.
FORMAT = "inferlab-recommendation/1"

# So many of those that are out are shown, the best first; all of them are in the file.
_SHOWN = {"missed": 3, "dropped": 5, "wrong": 3, "failed": 3}
_LONGEST_PROBLEM = 90


def blocks(found: Recommendation) -> list[Block]:
    """The headline, the table, the evidence, and the code."""
    code = _program(found)
    parts: list[Sequence[Block]] = [[_headline(found)], [table(found, _shown(found))], _evidence(found)]
    if code:
        parts += [["The code that sets it:"], [Code(code)]]
    return tables.spaced(*parts)


def lines(found: Recommendation) -> list[str]:
    """The same as text."""
    return tables.text(blocks(found))


def _headline(found: Recommendation) -> Block:
    best = found.recommended
    if best is None or best.figures is None:
        return _none(found)
    words = [f"{label(best.candidate)}: {_throughput(best)}"]
    words.append(f"median {duration(best.figures.median_s)} a batch")
    if found.objective and found.objective.statistic != "median":
        words.append(f"{found.objective.statistic} {duration(_statistic_s(best))}")
    return Pair("Recommended", ", ".join(words), strong=True)


def _none(found: Recommendation) -> str:
    measured = [one for one in found.contenders if one.standing == "missed"]
    if not measured or found.objective is None:
        return "Nothing can be recommended: no configuration could be measured."
    nearest = min(measured, key=_statistic_s)
    return (
        f"No configuration keeps {found.objective.text}. The nearest is {label(nearest.candidate)}: "
        f"{found.objective.statistic} {duration(_statistic_s(nearest))}, {_throughput(nearest)}"
    )


def _throughput(one: Contender) -> str:
    assert one.figures is not None
    estimate = one.figures.items_per_sec
    sure = "" if estimate.ends is None else f"{between(estimate.ends, _number)}, "
    processes = plural(len(one.rounds), "process", "processes")
    return f"{rounded(estimate.value, estimate.ends, _number)} items/s ({sure}{processes})"


def _statistic_s(one: Contender) -> float:
    """The objective's statistic; beyond all others where it is not known."""
    known = one.figures.objective_s if one.figures else None
    return math.inf if known is None else known


_RATE = Field(
    "items_per_sec",
    "Items/s",
    lambda one: one.figures.items_per_sec.value if one.figures else None,
    lambda value: _number(value),
    ends=lambda one: one.figures.items_per_sec.ends if one.figures else None,
)


def _seconds(name: str) -> Callable[[Contender], float | None]:
    return lambda one: getattr(one.figures, name) if one.figures else None


def _peak(one: Contender) -> int | None:
    return max((part.peak_memory_bytes for part in one.rounds if part.peak_memory_bytes is not None), default=None)


def table(found: Recommendation, contenders: Sequence[Contender]) -> Table:
    """A row for each configuration, the recommended first."""
    objective = found.objective
    shown = [
        Field("engine", "Engine", lambda one: one.candidate.engine, left=True),
        Field("num_cores", "Cores", lambda one: one.candidate.num_cores),
        Field("num_streams", "Streams", lambda one: one.candidate.num_streams),
        Field("batch_size", "Batch", lambda one: one.candidate.batch_size),
        *(_RATE, interval_of(_RATE)),
        Field("median_s", "Median", _seconds("median_s"), duration),
    ]
    if objective and objective.statistic != "median":
        shown.append(Field("objective_s", objective.statistic, _seconds("objective_s"), duration))
    shown += [
        Field("peak_memory_bytes", "Memory", _peak, size),
        Field("status", "Status", lambda one: _status(found, one), left=True),
    ]
    return Table(shown, contenders)


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


def _status(found: Recommendation, one: Contender) -> str:
    if one.standing == "dropped":
        return f"dropped in round {len(one.rounds)}"
    if one.standing == "missed" and found.objective:
        return f"misses {found.objective.text}"
    if one.standing == "wrong":
        return "wrong outputs"
    if one.standing == "failed":
        problem = " ".join(one.problem.split())
        return f"failed: {problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + '…'}"
    return one.standing


def _evidence(found: Recommendation) -> list[Block]:
    said: list[Block] = [comparison_line(one) for one in found.comparisons]
    if found.simpler:
        said.append("Of those that are as fast (within 3 %), the simplest is recommended: cores, batch, streams.")
    said += [Note(f"{one}.") for one in found.troubles]
    said += [Note(f"{name} {reason}.") for name, reason in found.left_out.items()]
    said += _doubts(found)
    counts: Counter[str] = Counter(one.standing for one in found.contenders)
    measured = sum(bool(one.rounds) for one in found.contenders)
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


def _doubts(found: Recommendation) -> list[Note]:
    """What the reader must know of the recommended one."""
    best = found.recommended
    notes: list[Note] = []
    if found.interrupted:
        notes.append(Note("interrupted; this is what was known by then."))
    if any(one.standing == "untried" for one in found.contenders) and not found.interrupted:
        notes.append(Note("the time was up before all were tried, the least promising last. Give more with -t."))
    if best is None or best.figures is None:
        return notes
    figures, check = best.figures, best.figures.check
    if check.status == "unchecked":
        notes.append(Note(f"its outputs were not checked: {check.detail}."))
    if figures.lost_share:
        notes.append(
            Note(
                f"others took {share(min(1.0, figures.lost_share))} of its CPUs' time. The order makes up for "
                "that, the figures do not: stop other programs and repeat."
            )
        )
    needed = samples_needed(found.objective) if found.objective else 0
    if figures.batches is not None and figures.batches < needed and found.objective:
        notes.append(
            Note(
                f"{found.objective.statistic} is of {figures.batches} batches; {needed} are needed to be sure. "
                "Give more with -t."
            )
        )
    return notes


_VERDICTS = {
    "faster": "the second is faster",
    "slower": "the first is faster",
    "same": "they are the same within 3 %",
    "inconclusive": "inconclusive",
}


def comparison_line(found: PairedRatio) -> str:
    """A paired comparison in one sentence."""
    ratio = found.ratio
    pairs = plural(found.pairs, "pair")
    value = rounded(ratio.value, ratio.ends, "{:.3f}".format)
    return (
        f"In {pairs}: {found.labels[1]} takes {value}{in_brackets(ratio.ends)} of the time per item of "
        f"{found.labels[0]}: {_VERDICTS[found.verdict]}."
    )


def to_json(found: Recommendation) -> str:
    """The text that `inferlab recommend -x result.json` writes."""
    return json.dumps(content(found), indent=2, allow_nan=False) + "\n"


def content(found: Recommendation) -> dict[str, Any]:
    """All candidates with what each process measured, the comparisons, and the code, as JSON values."""
    best, second = found.recommended, found.runner_up
    objective = found.objective
    return {
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
        "candidates": [_candidate(one) for one in found.contenders],
        "troubles": list(found.troubles),
        "left_out": dict(found.left_out),
        "seconds": found.seconds,
        "seconds_allowed": found.time_s,
        "interrupted": found.interrupted,
        "code": _program(found),
        "machine": asdict(found.machine) if found.machine else None,
        "versions": dict(found.versions or {}),
    }


def _program(found: Recommendation) -> str | None:
    best = found.recommended
    return program(best.candidate, found.deployment) if best and found.deployment else found.code or None


def _settings(one: Contender) -> dict[str, Any]:
    return {**asdict(one.candidate), "scenario": one.candidate.scenario, "stream_mode": one.stream_mode}


def _candidate(one: Contender) -> dict[str, Any]:
    about: dict[str, Any] = {**_settings(one), "status": one.standing, "problem": one.problem or None}
    about["spared_by"] = asdict(one.spared_by) if one.spared_by else None
    if one.figures is None:
        return about
    figures = one.figures
    estimate = figures.items_per_sec
    return about | {
        "items_per_sec": estimate.value,
        "interval": None if estimate.low is None else [estimate.low, estimate.high],
        "median_ms": figures.median_s * 1e3,
        "objective_ms": None if figures.objective_s is None else figures.objective_s * 1e3,
        "output_check": figures.check.status,
        "rounds": [
            {
                "round": number,
                "started_at": part.started_at,
                "items_per_sec": part.items_per_sec,
                "median_ms": part.median_ms,
                "peak_memory_bytes": part.peak_memory_bytes,
                "load_time_ms": part.load_s * 1e3,
            }
            for number, part in enumerate(one.rounds, 1)
        ],
    }


def _of_winner(found: Recommendation) -> Sequence[dict[str, Any]]:
    """The comparisons of the recommended one with the runner-up."""
    if not found.recommended or not found.runner_up:
        return []
    pair = {label(found.recommended.candidate), label(found.runner_up.candidate)}
    return [_comparison(one) for one in found.comparisons if set(one.labels) == pair]


def _comparison(found: PairedRatio) -> dict[str, Any]:
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
        "pairs": found.pairs,
        "seconds": found.seconds,
    }


def _number(value: float) -> str:
    """Four digits that count, the thousands apart."""
    return f"{float(f'{value:.4g}'):,.10g}"
