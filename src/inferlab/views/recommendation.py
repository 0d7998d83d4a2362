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


def blocks(found: Recommendation) -> list[Block]:
    """The headline, the table, the evidence, and the code."""
    code = code_of(found)
    parts: list[Sequence[Block]] = [[_headline(found)], [table(found, _shown(found))], _evidence(found)]
    if code:
        parts += [["The code that sets it:"], [Code(code)]]
    return tables.spaced(*parts)


def _headline(found: Recommendation) -> Block:
    best = found.recommended
    if best is None or best.figures is None:
        return _none(found)
    words = [f"{label(best.candidate)}: {_throughput(best)}"]
    words.append(f"median {duration(best.figures.median_s)} per batch")
    if found.objective and found.objective.statistic != "median":
        words.append(f"{found.objective.statistic} {duration(_statistic_s(best))}")
    return Pair("Recommended", ", ".join(words), strong=True)


def _none(found: Recommendation) -> str:
    measured = [contender for contender in found.contenders if contender.standing == "missed"]
    if not measured or found.objective is None:
        return "Nothing can be recommended: no configuration could be measured."
    nearest = min(measured, key=_statistic_s)
    return (
        f"No configuration meets {found.objective.text}. The nearest is {label(nearest.candidate)}: "
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


def _peak(one: Contender) -> int | None:
    return max((part.peak_memory_bytes for part in one.rounds if part.peak_memory_bytes is not None), default=None)


def table(found: Recommendation, contenders: Sequence[Contender] | None = None) -> Table:
    """A row for each configuration, the recommended first."""
    shown = [
        *_configuration(found.objective),
        Field("peak_memory_bytes", "Memory", _peak, fields.PEAK_MEMORY.form),
        Field("status", "Status", lambda one: _status(found, one), left=True),
    ]
    return Table(shown, found.contenders if contenders is None else contenders)


def _configuration(objective: Objective | None, processes: bool = False) -> list[Field]:
    """What is shown of a configuration and of what it reaches."""
    candidate = (fields.ENGINE, fields.NUM_CORES, fields.NUM_STREAMS, fields.BATCH_SIZE)
    rate = estimate(
        "items_per_sec", "Items/s", lambda one: one.figures and one.figures.items_per_sec, form=_number
    )
    rounds: Callable[[Contender], int | None] = lambda one: len(one.rounds) if processes else None  # noqa: E731
    shown = [
        *(field.of(lambda one: one.candidate).capitalized for field in candidate),
        *(rate, interval_of(rate, processes=rounds)),
        _time("median_s", "Median"),
    ]
    named = objective and objective.statistic != "median"
    return [*shown, _time("objective_s", objective.statistic)] if objective and named else shown


def _time(name: str, heading: str) -> Field:
    return Field(name, heading, lambda one: one.figures and getattr(one.figures, name), duration)


def _shown(found: Recommendation) -> list[Contender]:
    left = Counter(_SHOWN)
    shown = []
    for contender in found.contenders:
        if contender.standing in ("recommended", "runner-up", "finalist"):
            shown.append(contender)
        elif left[contender.standing] > 0:
            left[contender.standing] -= 1
            shown.append(contender)
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
    said: list[Block] = [comparison_line(comparison) for comparison in found.comparisons]
    if found.simpler:
        said.append("Of those that are as fast (within 3 %), the simplest is recommended: cores, batch, streams.")
    said += [Note(f"{trouble}.") for trouble in found.troubles]
    said += [Note(f"{name} {reason}.") for name, reason in found.left_out.items()]
    said += _doubts(found)
    counts: Counter[str] = Counter(contender.standing for contender in found.contenders)
    measured = sum(bool(contender.rounds) for contender in found.contenders)
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
    if any(contender.standing == "untried" for contender in found.contenders) and not found.interrupted:
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


def code_of(found: Recommendation) -> str | None:
    """The program that runs the model as recommended, where that is known."""
    best = found.recommended
    return program(best.candidate, found.deployment) if best and found.deployment else found.code or None


def _number(value: float) -> str:
    """Four digits that count, the thousands apart."""
    return f"{float(f'{value:.4g}'):,.10g}"


def fleet_blocks(found: FleetRecommendation) -> list[Block]:
    """The headline, a table with a line for each machine type, and what to know of it."""
    head: list[Block] = [Pair("Original Model Path", found.model.source), _fleet_headline(found)]
    return tables.spaced(head, [fleet_table(found)], _fleet_notes(found))


def _best(machine: MachineRecommendation) -> Contender | None:
    """The configuration that is recommended on a machine type."""
    best = machine.recommendation.recommended if machine.recommendation else None
    return best if best is not None and best.figures is not None else None


def _fleet_headline(found: FleetRecommendation) -> Block:
    first = found.machines[0]
    best = _best(first)
    if best is None or best.figures is None:
        wanted = f" meets {found.objective.text}" if found.objective else " could be measured"
        return f"Nothing can be recommended: no configuration on any machine type{wanted}."
    rate, objective_s = best.figures.items_per_sec, best.figures.objective_s
    words = [f"{first.machine_type}: {label(best.candidate)}: {rounded(rate.value, rate.ends, _number)} items/s"]
    if objective_s is not None and found.objective:
        words.append(f"{found.objective.statistic} {duration(objective_s)}")
    if first.cost_per_million is not None:
        words.append(f"{money(first.cost_per_million.value)} per million inferences")
    return Pair("Recommended", ", ".join(words), strong=True)


def fleet_table(found: FleetRecommendation) -> Table:
    """A row for each machine type, the cheapest first."""
    cost = fields.cost(lambda machine: machine.cost_per_million).capitalized

    def processes(machine: MachineRecommendation) -> int | None:
        best = _best(machine)
        return len(best.rounds) if best else None

    shown = [
        Field("machine_type", "Machine", lambda machine: machine.machine_type, left=True),
        *(field.of(_best) for field in _configuration(found.objective, processes=True)),
        *(cost, interval_of(cost, processes=processes)),
        Field("status", "Status", _why_none, left=True),
    ]
    return Table(shown, found.machines)


def _why_none(machine: MachineRecommendation) -> str:
    if _best(machine) is not None:
        return ""
    if machine.failure:
        return f"failed: {machine.failure.message}"
    objective = machine.recommendation.objective if machine.recommendation else None
    return f"nothing meets {objective.text}" if objective else "nothing could be measured"


def _fleet_notes(found: FleetRecommendation) -> list[Block]:
    notes: list[Block] = []
    first, *others = found.machines
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
    if found.interrupted:
        notes.append(Note("interrupted; this is what was known by then."))
    chosen = [best.figures for machine in found.machines if (best := _best(machine)) and best.figures]
    return [*notes, *advice([figures.items_per_sec.ends for figures in chosen])]


def _may_be_as_cheap(machine: MachineRecommendation, first: MachineRecommendation) -> bool:
    if machine.cost_per_million is None or first.cost_per_million is None:
        return False
    low = (machine.cost_per_million.ends or (0.0, math.inf))[0]
    high = (first.cost_per_million.ends or (0.0, math.inf))[1]
    return low <= high
