"""Recommendations as blocks: of this machine, and of several machine types side by side, the cheapest first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from inferlab.measure.candidates import label
from inferlab.measure.queueing import samples_needed
from inferlab.records.capacity import Objective
from inferlab.records.recommendation import (
    Contender,
    FleetRecommendation,
    MachineRecommendation,
    PairedRatio,
    Recommendation,
)
from inferlab.units import duration, plural, share
from inferlab.views import fields, tables
from inferlab.views.deployment import program
from inferlab.views.fields import Field, estimate, interval_of, money
from inferlab.views.intervals import advice, between, in_brackets, rounded
from inferlab.views.tables import Block, Code, Note, Pair, Table

# So many of those that are out are shown, the best first; all of them are in the file.
_SHOWN = {"missed": 3, "dropped": 5, "wrong": 3, "failed": 3}
_LONGEST_PROBLEM = 90


def blocks(recommendation: Recommendation) -> list[Block]:
    """The headline, the table, the evidence, and the code."""
    code = code_of(recommendation)
    parts: list[Sequence[Block]] = [
        [_headline(recommendation)],
        [table(recommendation, _rows(recommendation))],
        _evidence(recommendation),
    ]
    if code:
        parts += [["The code that sets it:"], [Code(code)]]
    return tables.spaced(*parts)


def _headline(recommendation: Recommendation) -> Block:
    best = recommendation.recommended
    if best is None or best.figures is None:
        return _none(recommendation)
    words = [f"{label(best.candidate)}: {_throughput(best)}"]
    words.append(f"median {duration(best.figures.median_s)} per batch")
    if recommendation.objective and recommendation.objective.statistic != "median":
        words.append(f"{recommendation.objective.statistic} {duration(_statistic_s(best))}")
    return Pair("Recommended", ", ".join(words), strong=True)


def _none(recommendation: Recommendation) -> str:
    measured = [contender for contender in recommendation.contenders if contender.standing == "missed"]
    if not measured or recommendation.objective is None:
        return "Nothing can be recommended: no configuration could be measured."
    nearest = min(measured, key=_statistic_s)
    return (
        f"No configuration meets {recommendation.objective.text}. The nearest is {label(nearest.candidate)}: "
        f"{recommendation.objective.statistic} {duration(_statistic_s(nearest))}, {_throughput(nearest)}"
    )


def _throughput(contender: Contender) -> str:
    assert contender.figures is not None
    estimate = contender.figures.items_per_sec
    sure = "" if estimate.ends is None else f"{between(estimate.ends, _number)}, "
    processes = plural(len(contender.rounds), "process", "processes")
    return f"{rounded(estimate.value, estimate.ends, _number)} items/s ({sure}{processes})"


def _statistic_s(contender: Contender) -> float:
    """The objective's statistic; beyond all others where it is not known."""
    objective_s = contender.figures.objective_s if contender.figures else None
    return math.inf if objective_s is None else objective_s


def _peak(contender: Contender) -> int | None:
    return max(
        (part.peak_memory_bytes for part in contender.rounds if part.peak_memory_bytes is not None), default=None
    )


def table(recommendation: Recommendation, contenders: Sequence[Contender] | None = None) -> Table:
    """A row for each configuration, the recommended first."""
    columns = [
        *_configuration(recommendation.objective),
        Field("peak_memory_bytes", "Memory", _peak, fields.PEAK_MEMORY.form),
        Field("status", "Status", lambda contender: _status(recommendation, contender), left=True),
    ]
    return Table(columns, recommendation.contenders if contenders is None else contenders)


def _configuration(objective: Objective | None, processes: bool = False) -> list[Field]:
    """What is shown of a configuration and of what it reaches."""
    candidate = (fields.ENGINE, fields.NUM_CORES, fields.NUM_STREAMS, fields.BATCH_SIZE)
    rate = estimate(
        "items_per_sec",
        "Items/s",
        lambda contender: contender.figures and contender.figures.items_per_sec,
        form=_number,
    )
    rounds: Callable[[Contender], int | None] = lambda contender: len(contender.rounds) if processes else None  # noqa: E731
    columns = [
        *(field.of(lambda contender: contender.candidate).capitalized for field in candidate),
        *(rate, interval_of(rate, processes=rounds)),
        _time("median_s", "Median"),
    ]
    named = objective and objective.statistic != "median"
    return [*columns, _time("objective_s", objective.statistic)] if objective and named else columns


def _time(name: str, heading: str) -> Field:
    return Field(name, heading, lambda contender: contender.figures and getattr(contender.figures, name), duration)


def _rows(recommendation: Recommendation) -> list[Contender]:
    left = Counter(_SHOWN)
    rows = []
    for contender in recommendation.contenders:
        if contender.standing in ("recommended", "runner-up", "finalist"):
            rows.append(contender)
        elif left[contender.standing] > 0:
            left[contender.standing] -= 1
            rows.append(contender)
    return rows


def _status(recommendation: Recommendation, contender: Contender) -> str:
    if contender.standing == "dropped":
        return f"dropped in round {len(contender.rounds)}"
    if contender.standing == "missed" and recommendation.objective:
        return f"misses {recommendation.objective.text}"
    if contender.standing == "wrong":
        return "wrong outputs"
    if contender.standing == "failed":
        problem = " ".join(contender.problem.split())
        return f"failed: {problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + '…'}"
    return contender.standing


def _evidence(recommendation: Recommendation) -> list[Block]:
    lines: list[Block] = [comparison_line(comparison) for comparison in recommendation.comparisons]
    if recommendation.simpler:
        lines.append("Of those that are as fast (within 3 %), the simplest is recommended: cores, batch, streams.")
    lines += [Note(f"{trouble}.") for trouble in recommendation.troubles]
    lines += [Note(f"{name} {reason}.") for name, reason in recommendation.left_out.items()]
    lines += _doubts(recommendation)
    counts: Counter[str] = Counter(contender.standing for contender in recommendation.contenders)
    measured = sum(bool(contender.rounds) for contender in recommendation.contenders)
    words = [f"{len(recommendation.contenders)} configurations", f"{measured} measured"]
    words += [f"{counts[standing]} {text}" for standing, text in _COUNTED.items() if counts[standing]]
    lines.append(f"{', '.join(words)}; {duration(recommendation.seconds)} of {duration(recommendation.time_s)}.")
    return lines


_COUNTED = {
    "spared": "not measured because others show that they are worse",
    "untried": "not tried",
    "wrong": "with wrong outputs",
    "failed": "failed",
}


def _doubts(recommendation: Recommendation) -> list[Note]:
    """What the reader must know of the recommended one."""
    best = recommendation.recommended
    notes: list[Note] = []
    if recommendation.interrupted:
        notes.append(Note("interrupted; this is what was known by then."))
    if (
        any(contender.standing == "untried" for contender in recommendation.contenders)
        and not recommendation.interrupted
    ):
        notes.append(Note("the time was up before all were tried, the least promising last. Give more with -t."))
    if best is None or best.figures is None:
        return notes
    figures, check = best.figures, best.figures.check
    if check.status == "unchecked":
        notes.append(Note(f"its outputs were not checked: {check.detail}."))
    if figures.lost_share:
        notes.append(
            Note(
                f"others took {share(min(1.0, figures.lost_share))} of its CPUs' time. The ranking "
                "accounts for that, the figures do not: stop other programs and repeat."
            )
        )
    needed = samples_needed(recommendation.objective) if recommendation.objective else 0
    if figures.batches is not None and figures.batches < needed and recommendation.objective:
        notes.append(
            Note(
                f"{recommendation.objective.statistic} is of {figures.batches} batches; {needed} are needed to be "
                "sure. Give more with -t."
            )
        )
    return notes


_VERDICTS = {
    "faster": "the second is faster",
    "slower": "the first is faster",
    "same": "they are the same within 3 %",
    "inconclusive": "inconclusive",
}


def comparison_line(pair: PairedRatio) -> str:
    """A paired comparison in one sentence."""
    ratio = pair.ratio
    pairs = plural(pair.pairs, "pair")
    value = rounded(ratio.value, ratio.ends, "{:.3f}".format)
    return (
        f"In {pairs}: {pair.labels[1]} takes {value}{in_brackets(ratio.ends)} of the time per item of "
        f"{pair.labels[0]}: {_VERDICTS[pair.verdict]}."
    )


def code_of(recommendation: Recommendation) -> str | None:
    """The program that runs the model as recommended, where that is known."""
    best = recommendation.recommended
    return (
        program(best.candidate, recommendation.deployment)
        if best and recommendation.deployment
        else recommendation.code or None
    )


def _number(value: float) -> str:
    """Four digits that count, the thousands apart."""
    return f"{float(f'{value:.4g}'):,.10g}"


def fleet_blocks(recommendation: FleetRecommendation) -> list[Block]:
    """The headline, a table with a line for each machine type, and what to know of it."""
    head: list[Block] = [Pair("Original Model Path", recommendation.model.source), _fleet_headline(recommendation)]
    return tables.spaced(head, [fleet_table(recommendation)], _fleet_notes(recommendation))


def _best(machine: MachineRecommendation) -> Contender | None:
    """The configuration that is recommended on a machine type."""
    best = machine.recommendation.recommended if machine.recommendation else None
    return best if best is not None and best.figures is not None else None


def _fleet_headline(recommendation: FleetRecommendation) -> Block:
    first = recommendation.machines[0]
    best = _best(first)
    if best is None or best.figures is None:
        goal = f" meets {recommendation.objective.text}" if recommendation.objective else " could be measured"
        return f"Nothing can be recommended: no configuration on any machine type{goal}."
    rate, objective_s = best.figures.items_per_sec, best.figures.objective_s
    words = [f"{first.machine_type}: {label(best.candidate)}: {rounded(rate.value, rate.ends, _number)} items/s"]
    if objective_s is not None and recommendation.objective:
        words.append(f"{recommendation.objective.statistic} {duration(objective_s)}")
    if first.cost_per_million is not None:
        words.append(f"{money(first.cost_per_million.value)} per million inferences")
    return Pair("Recommended", ", ".join(words), strong=True)


def fleet_table(recommendation: FleetRecommendation) -> Table:
    """A row for each machine type, the cheapest first."""
    cost = fields.cost(lambda machine: machine.cost_per_million).capitalized

    def processes(machine: MachineRecommendation) -> int | None:
        best = _best(machine)
        return len(best.rounds) if best else None

    columns = [
        Field("machine_type", "Machine", lambda machine: machine.machine_type, left=True),
        *(field.of(_best) for field in _configuration(recommendation.objective, processes=True)),
        *(cost, interval_of(cost, processes=processes)),
        Field("status", "Status", _why_none, left=True),
    ]
    return Table(columns, recommendation.machines)


def _why_none(machine: MachineRecommendation) -> str:
    if _best(machine) is not None:
        return ""
    if machine.failure:
        return f"failed: {machine.failure.message}"
    objective = machine.recommendation.objective if machine.recommendation else None
    return f"nothing meets {objective.text}" if objective else "nothing could be measured"


def _fleet_notes(recommendation: FleetRecommendation) -> list[Block]:
    notes: list[Block] = []
    first, *others = recommendation.machines
    rivals = [machine.machine_type for machine in others if _may_be_as_cheap(machine, first)]
    if rivals:
        notes.append(Note(f"{', '.join(rivals)} may cost as little: the intervals overlap, or there is none."))
    if others:
        notes.append(
            Note(
                "one machine of each type was searched, and machines cannot be measured interleaved: another one "
                "of the same type may differ. How much: inferlab benchmark --cluster … --nodes N"
            )
        )
    if recommendation.interrupted:
        notes.append(Note("interrupted; this is what was known by then."))
    chosen = [best.figures for machine in recommendation.machines if (best := _best(machine)) and best.figures]
    return [*notes, *advice([figures.items_per_sec.ends for figures in chosen])]


def _may_be_as_cheap(machine: MachineRecommendation, first: MachineRecommendation) -> bool:
    if machine.cost_per_million is None or first.cost_per_million is None:
        return False
    low = (machine.cost_per_million.ends or (0.0, math.inf))[0]
    high = (first.cost_per_million.ends or (0.0, math.inf))[1]
    return low <= high
