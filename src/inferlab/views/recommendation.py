"""Recommendations: of this machine, of machine types side by side, and of models that generate tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from inferlab.codec import plain
from inferlab.lab.generation import value_ms
from inferlab.measure.exploration import label
from inferlab.measure.generation.stats import summarize_generation
from inferlab.measure.queueing import samples_needed
from inferlab.records.capacity import Objective
from inferlab.records.generation import GenerationCell
from inferlab.records.recommendation import (
    Contender,
    FleetRecommendation,
    GenerationRecommendation,
    MachineRecommendation,
    PairedRatio,
    Recommendation,
    Rejection,
)
from inferlab.units import count, duration, plural, share
from inferlab.views import fields, generation, tables
from inferlab.views.command import program
from inferlab.views.fields import (
    MS,
    Field,
    advice,
    between,
    estimate,
    in_brackets,
    interval_of,
    money,
    ratio_of,
    rounded,
    would_settle,
)
from inferlab.views.generation import slo_text
from inferlab.views.results import View, json_values, picked, short_name, without_progress
from inferlab.views.tables import Block, Code, Note, Pair, Table

RECOMMENDATION = "inferlab-recommendation/1"
FLEET_RECOMMENDATION = "inferlab-fleet-recommendation/1"
#: Of files; entries of the store have a format of their own.
GENERATION_RECOMMENDATION = "inferlab-generation-recommendation-file/1"
_OF_MODEL = ("source", "kind", "digest")
# So many of those that are out are shown, the best first; all of them are in the file.
_SHOWN = {"missed": 3, "dropped": 5, "wrong": 3, "failed": 3}
_LONGEST_PROBLEM = 90


def view_of(record: Recommendation | FleetRecommendation | GenerationRecommendation) -> View:
    """How a recommendation is shown and written."""
    title = f"{short_name(record.model.source)}: recommendation"
    if isinstance(record, GenerationRecommendation):
        return View(
            title,
            lambda: _generation_blocks(record),
            lambda: generation.table(record.sweep),
            lambda: json_values(_generation_content(record)),
        )
    if isinstance(record, FleetRecommendation):
        return View(
            title,
            lambda: fleet_blocks(record),
            lambda: fleet_table(record),
            lambda: json_values(_fleet_content(record)),
        )
    return View(title, lambda: blocks(record), lambda: table(record), lambda: json_values(_content(record)))


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
    rest = "" if pair.settle_s is None else f" {would_settle(pair.settle_s)}"
    return (
        f"In {pairs}: {pair.labels[1]} takes {value}{in_brackets(ratio.ends)} of the time per item of "
        f"{pair.labels[0]}: {_VERDICTS[pair.verdict]}.{rest}"
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


def _content(found: Recommendation) -> dict[str, Any]:
    """All candidates with what each process measured, the comparisons, and the code."""
    best, second, objective = found.recommended, found.runner_up, found.objective
    finalists = {label(best.candidate), label(second.candidate)} if best and second else None
    deciding = [comparison for comparison in found.comparisons if set(comparison.labels) == finalists]
    return {
        "format": RECOMMENDATION,
        "model": picked(found.model, *_OF_MODEL),
        "objective": objective and {**picked(objective, "text", "statistic"), "limit_ms": objective.limit_s * 1e3},
        "recommended": _settings(best) if best else None,
        "runner_up": _settings(second) if second else None,
        "simpler_of_equals": found.simpler,
        "comparison": _paired_ratio(deciding[0]) if deciding else None,
        "comparisons": [_paired_ratio(comparison) for comparison in found.comparisons],
        "candidates": [_candidate(contender) for contender in found.contenders],
        **picked(found, "troubles", "left_out", "seconds"),
        "seconds_allowed": found.time_s,
        "interrupted": found.interrupted,
        "code": code_of(found),
        "machine": found.machine,
        "versions": found.versions or {},
    }


def _settings(one: Contender) -> dict[str, Any]:
    return {**plain(one.candidate), "scenario": one.candidate.scenario, "stream_mode": one.stream_mode}


def _candidate(one: Contender) -> dict[str, Any]:
    about = {
        **_settings(one),
        "status": one.standing,
        "problem": one.problem or None,
        "spared_by": one.spared_by,
    }
    figures = one.figures
    if figures is None:
        return about
    return about | {
        "items_per_sec": figures.items_per_sec.value,
        "interval": figures.items_per_sec.ends,
        "median_ms": figures.median_s * 1e3,
        "objective_ms": None if figures.objective_s is None else figures.objective_s * 1e3,
        "output_check": figures.check.status,
        "rounds": [
            {
                "round": number,
                **picked(part, "started_at", "items_per_sec", "median_ms", "peak_memory_bytes"),
                "load_time_ms": part.load_s * 1e3,
            }
            for number, part in enumerate(one.rounds, 1)
        ],
    }


def _paired_ratio(found: PairedRatio) -> dict[str, Any]:
    ratio = found.ratio
    return {
        "a": found.labels[0],
        "b": found.labels[1],
        "ratio": ratio.value,
        "interval": ratio.ends,
        **picked(ratio, "level", "method"),
        **picked(found, "verdict", "margin", "metric", "pairs", "seconds"),
        "settle_seconds": found.settle_s,
    }


def _fleet_content(found: FleetRecommendation) -> dict[str, Any]:
    """All that was found, in the order in which one would take it."""
    return {
        "format": FLEET_RECOMMENDATION,
        "model": picked(found.model, *_OF_MODEL),
        "objective": found.objective and picked(found.objective, "text", "statistic"),
        "interrupted": found.interrupted,
        "machines": [_machine_content(machine) for machine in found.machines],
    }


def _machine_content(machine: MachineRecommendation) -> dict[str, Any]:
    cost = machine.cost_per_million
    return {
        **picked(machine, "machine_type", "price_per_hour"),
        "cost_per_million": cost.value if cost else None,
        "cost_per_million_interval": cost.ends if cost else None,
        "failure": machine.failure,
        "recommendation": machine.recommendation and _content(machine.recommendation),
    }


def _generation_blocks(found: GenerationRecommendation) -> list[Block]:
    """What to take and why, then all that was tried."""
    cells = {outcome.cell.id: outcome.cell for outcome in found.sweep.outcomes}
    shown: list[Block] = [Pair("Model", found.model.source)]
    if found.chosen_id:
        shown.append(Pair("Recommended", _options(cells[found.chosen_id]), True))
        shown.append(Pair("Because", _reason(found)))
    else:
        nothing = f"nothing: no configuration meets {slo_text(found.slo)}" if found.slo else "nothing"
        shown.append(Pair("Recommended", nothing, True))
    if found.final is not None:
        (a, b), said = found.final.labels, ratio_of(found.final.ratio, "A's time per generated token")
        shown.append(Pair("In pairs", f"A ({a}) and B ({b}): B takes {said}; B is {found.final.verdict}"))
    reasons = {rejection.cell_id: rejection for rejection in found.rejections}
    all_rows = generation.rows(found.sweep)
    rows = [(row, reasons.get(row.cell.id)) for row in all_rows]
    ordered = sorted(rows, key=lambda row: (row[1] is not None, -_rate_of(row[0])))
    shown_fields = [field for field in generation.FIELDS if (field.key or field.label) in _GENERATION_SHOWN]
    of_row = [field.of(lambda one: one[0]) for field in shown_fields]
    output = generation.OUTPUT.of(lambda one: one[0])
    why = Field("why_not", "why not", lambda one: _why_not(one[1]) if one[1] else "recommended", left=True)
    measured = f"{plural(len(rows), 'configuration')}, closed loop, in {duration(found.seconds)}"
    shown += ["", Table([*of_row, output, why], ordered), "", Pair("Measured", measured)]
    shown += generation.notes(all_rows)
    if found.final_failure:
        shown += [Note(f"the best two were not compared in pairs: {found.final_failure}", warning=True)]
    shown += tables.notes(f"left out: {refusal}" for refusal in found.refusals)
    if found.interrupted:
        shown += tables.notes(["it was interrupted; what was measured is kept."])
    return shown


_GENERATION_SHOWN = ("engine", "num_cores", "batch_size", "ttft_ms", "tpot_ms", "agreement", "status")


def _rate_of(row: generation.Row) -> float:
    return 0.0 if row.summary is None else row.summary.output_tokens_per_s.value


def _options(cell: GenerationCell) -> str:
    return f"-e {cell.engine} -ncores {cell.num_cores} -b {cell.batch_size}"


def _reason(found: GenerationRecommendation) -> str:
    outcome = next(one for one in found.sweep.outcomes if one.cell.id == found.chosen_id)
    summary = summarize_generation(outcome.runs)
    assert summary is not None, "only what was measured is recommended"
    output = summary.output_tokens_per_s
    parts = [f"the most output tokens per second, {rounded(output.value, output.ends, count)}"]
    if found.slo:
        met = [
            f"{limit.text} by {MS(value)} ms"
            for limit in found.slo
            if (value := value_ms(summary, limit)) is not None
        ]
        parts[0] += f", of those that meet {' and '.join(met) or slo_text(found.slo)}"
    missed = sum(rejection.reason == "misses" for rejection in found.rejections)
    wrong = sum(rejection.reason == "wrong-tokens" for rejection in found.rejections)
    parts += [f"{missed} miss a limit"] if missed else []
    parts += [f"{wrong} have wrong tokens"] if wrong else []
    ended = sum(rejection.reason == "ended-early" for rejection in found.rejections)
    parts += [f"{ended} ended early"] if ended else []
    return "; ".join(parts)


def _why_not(rejection: Rejection) -> str:
    if rejection.reason == "misses":
        return f"{share(rejection.share or 0.0)} of {rejection.limit}"
    if rejection.reason == "slower":
        return "slower" if rejection.share is None else f"{share(rejection.share)} of its throughput"
    return rejection.reason.replace("-", " ")


def _generation_content(found: GenerationRecommendation) -> dict[str, Any]:
    """The values of a file."""
    cells = {outcome.cell.id: outcome.cell for outcome in found.sweep.outcomes}
    chosen = cells.get(found.chosen_id)
    values = generation.content(found.sweep)
    return {
        "format": GENERATION_RECOMMENDATION,
        "slo": [limit.text for limit in found.slo],
        "recommended": chosen and picked(chosen, "engine", "num_cores", "batch_size"),
        "reason": _reason(found) if chosen else None,
        **picked(found, "rejections", "refusals", "final_failure", "seconds", "interrupted"),
        "final": found.final and without_progress(found.final),
        "model": values["model"],
        "results": values["results"],
    }
