"""Generations, and what is made of them: comparisons, capacities and recommendations; saved as they grow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed
from inferlab.lab.comparison import arm_labels
from inferlab.lab.executor import WORTH_TELLING, cell_status, with_absolute_paths
from inferlab.measure.cells import in_random_order
from inferlab.measure.generation.capacity import find_generation_capacity
from inferlab.measure.generation.cells import generation_cells, validate_generation
from inferlab.measure.generation.comparison import GenerationComparisonJob, compare_generations
from inferlab.measure.generation.process import measure_generation
from inferlab.measure.generation.prompts import read_clip, read_prompts
from inferlab.measure.generation.reference import GenerationJob, Prompt, make_generation_job
from inferlab.measure.generation.stats import generation_findings, summarize_generation, worst_agreement
from inferlab.measure.recommend import core_counts
from inferlab.model.generative import read_generative
from inferlab.options.generation import (
    GENERATION,
    ONLY_GENERATION,
)
from inferlab.options.plan import COMPARISON
from inferlab.records import Event, Listener
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import ComparedMetric, GenerationComparison
from inferlab.records.generation import (
    GenerationCell,
    GenerationOutcome,
    GenerationPlan,
    GenerationSummary,
    GenerationSweep,
    GenerativeModel,
    PromptSet,
    TokenLimit,
)
from inferlab.records.recommendation import GenerationRecommendation, Rejection

if TYPE_CHECKING:
    from inferlab.lab.lab import Lab


R = TypeVar("R")
#: Saves a result as it is now, always as the same entry; gives it with the id of that.
Save = Callable[[R], R]
MadeOfGenerations = GenerationComparison | GenerationCapacity | GenerationRecommendation
# A search spends this share of its time on the grid, and what is left on the best two where they are close.
_GRID_SHARE = 0.6
_LEAST_CELL_S = 0.5
_BATCHES = (1, 2, 4, 8)
_PROCESSES = 2
# How far apart the best two may be to be compared in pairs.
_CLOSE = 1.1
_LEAST_FINAL_S = 5.0


@dataclass(frozen=True, slots=True)
class PlannedGeneration:
    """A sweep that is about to be measured, or to go on, and the prompts of the user's own, if any."""

    sweep: GenerationSweep
    prompts: tuple[Prompt, ...] = ()


def plan_generation(
    plan: GenerationPlan, listener: Listener, known: GenerativeModel | None = None
) -> PlannedGeneration:
    """The plan with its model, which may be known, its prompts and its cells, none of them measured."""
    validate_generation(plan)
    model = known or read_generative(plan.model, listener)
    told: PromptSet | None = None
    prompts: tuple[Prompt, ...] = ()
    if plan.prompts_file is not None:
        told, prompts = read_prompts(plan.prompts_file, model, listener)
    clip = None
    if plan.audio is not None:
        clip = read_clip(Path(plan.audio), model.encoder, model.source)
        prompts = (clip.input,)
    cells = generation_cells(plan, model, told, clip)
    return PlannedGeneration(
        GenerationSweep(
            with_absolute_paths(plan), model, tuple(GenerationOutcome(cell, "pending") for cell in cells), told
        ),
        prompts,
    )


def resume_sweep(saved: GenerationSweep, listener: Listener) -> PlannedGeneration:
    """A saved sweep that can go on: its model and prompts are as they were, and this machine has its cells."""
    return _with_outcomes_of(plan_generation(saved.plan, listener), saved)


def _with_outcomes_of(now: PlannedGeneration, saved: GenerationSweep) -> PlannedGeneration:
    """What was planned now, with the outcomes that are saved; refused where it is not the same any more."""
    if now.sweep.model.digest != saved.model.digest:
        raise BadInput(f"The model {saved.model.source} has changed since it was measured. Measure it again.")
    if (now.sweep.prompts and now.sweep.prompts.digest) != (saved.prompts and saved.prompts.digest):
        raise BadInput(f"The prompts {saved.plan.prompts_file} have changed since then. Measure it again.")
    if {outcome.cell.id for outcome in now.sweep.outcomes} != {outcome.cell.id for outcome in saved.outcomes}:
        raise BadInput(f"{saved.id} was begun on a machine with other cores. Measure it again.")
    return replace(now, sweep=saved)


def run_generation(planned: PlannedGeneration, save: Save[GenerationSweep], listener: Listener) -> GenerationSweep:
    """Measure what is not done or failed yet, in random order; Ctrl-C leaves the rest pending.

    It is given to `save` before the first run and whenever one is complete.
    """
    sweep = planned.sweep
    outcomes = {outcome.cell.id: outcome for outcome in sweep.outcomes}
    unfinished = [outcome.cell for outcome in sweep.outcomes if outcome.status in ("pending", "cancelled")]
    waiting = in_random_order(unfinished, sweep.plan.seed)
    done = len(outcomes) - len(waiting)

    def saved() -> GenerationSweep:
        return save(replace(sweep, outcomes=tuple(outcomes.values())))

    saved()
    several = len(outcomes) > 1
    tell = _worth_telling(listener) if several else listener
    for number, cell in enumerate(waiting, done + 1):
        if several:
            tell(Event("generation-cell", {"cell": cell, "number": number, "of": len(outcomes)}))
        runs = list(outcomes[cell.id].runs)
        with cell_status() as end:
            job = make_generation_job(sweep.plan, sweep.model, cell, planned.prompts)
            for run in measure_generation(job, runs, tell):
                runs.append(run)
                outcomes[cell.id] = GenerationOutcome(cell, "pending", tuple(runs))
                saved()
        outcomes[cell.id] = GenerationOutcome(cell, end.status, tuple(runs), end.failure)
        saved()
        if several:
            tell(Event("generated", {"outcome": outcomes[cell.id]}))
        if end.status == "cancelled":
            break
    return saved()


def _worth_telling(listener: Listener) -> Listener:
    """A listener that hears of several cells only what is worth telling, or the log would be a book."""
    codes = (*WORTH_TELLING, "converting", "generation-cell", "generated")
    return lambda event: listener(event) if event.code in codes else None


def compare_plans(
    lab: Lab,
    plans: tuple[GenerationPlan, GenerationPlan],
    metric: ComparedMetric,
    time_s: float,
    margin: float,
    listener: Listener,
    labels: tuple[str, str] | None = None,
    fresh: bool = False,
    entry_id: str = "",
) -> GenerationComparison:
    """Compare plan B with plan A, each of one cell, generating interleaved behind the same prompts.

    `entry_id` is that of one which was cut off and goes on.
    """
    COMPARISON["margin"].validate(margin)
    ONLY_GENERATION["metric"].validate(metric)
    GENERATION["time"].validate(time_s)
    labels = labels or arm_labels(*plans)
    jobs = [only_generation_job(plan_generation(plan, listener), plan) for plan in plans]
    spreads = lab.expected_spreads("generation-comparison")
    job = GenerationComparisonJob(jobs[0], jobs[1], labels, time_s, margin, None, spreads, fresh)
    before = _cut_off(lab, entry_id, GenerationComparison)
    if before is not None:
        if not before.interrupted:
            return before
        _refuse_other_cells(before.id, before.arms, [each.cell for each in jobs])
    about = "" if plans[0].model in labels else f"{plans[0].model}: "
    save = lab.saving(f"{about}{labels[0]} / {labels[1]}", listener, entry_id)
    whole = (with_absolute_paths(plans[0]), with_absolute_paths(plans[1]))

    def saved(found: GenerationComparison) -> GenerationComparison:
        return save(replace(found, plans=whole, time_s=time_s, fresh=fresh))

    return saved(compare_generations(job, metric, listener, before if before and before.pairs else None, saved))


def _cut_off(lab: Lab, entry_id: str, kind: type[R]) -> R | None:
    """What is saved of a result that goes on; None where a new one begins."""
    if not entry_id:
        return None
    saved = lab.saved_generation_result(entry_id)
    if not isinstance(saved, kind):
        raise BadInput(f"{entry_id} is of another kind. List what is saved with: inferlab history")
    return saved


def _refuse_other_cells(name: str, before: Sequence[GenerationCell], now: Sequence[GenerationCell]) -> None:
    """Refuse to go on with what was begun under other conditions."""
    if [cell.id for cell in before] != [cell.id for cell in now]:
        raise BadInput(
            f"{name} was begun on a machine with other cores, or its model or prompts changed since. "
            f"Measure it again: inferlab rerun {name}"
        )


def rerun(lab: Lab, saved: MadeOfGenerations, listener: Listener, entry_id: str = "") -> MadeOfGenerations:
    """Measure what was compared or searched once more, under the same conditions, as a new entry.

    With the id of its own entry, it goes on where it was cut off.
    """
    plans = saved.plans if isinstance(saved, GenerationComparison) else saved.plan and (saved.plan,)
    if not plans:
        raise BadInput(
            f"{saved.id} does not say what was asked for, so it cannot be measured again. Start a new one."
        )
    models = saved.models if isinstance(saved, GenerationComparison) else (saved.model,)
    for plan, model in zip(plans, models, strict=True):
        if read_generative(plan.model, listener).digest != model.digest:
            raise BadInput(f"The model {plan.model} has changed since {saved.id} was measured. Start a new one.")
    if isinstance(saved, GenerationComparison):
        a, b = plans[0], plans[-1]
        return lab.compare_generations(
            a, b, saved.metric, saved.time_s, saved.margin, listener, saved.labels, saved.fresh, entry_id
        )
    if isinstance(saved, GenerationCapacity):
        return lab.generation_capacity(plans[0], saved.wanted_attainment, listener, entry_id)
    return lab.recommend_generation(plans[0], saved.time_s, listener, entry_id)


def only_generation_job(planned: PlannedGeneration, plan: GenerationPlan) -> GenerationJob:
    """The only cell of a plan; refuses a sweep."""
    outcomes = planned.sweep.outcomes
    if len(outcomes) != 1:
        raise BadInput(f"This takes one cell, and these options make {len(outcomes)}. Give one value of each.")
    return make_generation_job(plan, planned.sweep.model, outcomes[0].cell, planned.prompts)


def search_capacity(
    lab: Lab, plan: GenerationPlan, attainment: float, listener: Listener, entry_id: str = ""
) -> GenerationCapacity:
    """Find the highest rate of requests of which enough meet the plan's objective, in a plan of one cell.

    `entry_id` is that of a search which was cut off and goes on.
    """
    if not plan.slo:
        raise BadInput('The highest rate is that which meets an objective: give --slo "ttft<500ms,tpot<50ms".')
    GENERATION["attainment"].validate(attainment)
    # Which rate, the search says; one makes it a cell whose requests arrive by themselves.
    planned = plan_generation(replace(plan, scenario="server", rates=(1.0,)), listener)
    job = only_generation_job(planned, plan)
    before = _cut_off(lab, entry_id, GenerationCapacity)
    if before is not None:
        if not before.interrupted:
            return before
        _refuse_other_cells(before.id, [before.cell], [replace(job.cell, rate=None)])
    save = lab.saving(f"{plan.model} {','.join(limit.text for limit in plan.slo)}", listener, entry_id)

    def saved(found: GenerationCapacity) -> GenerationCapacity:
        return save(replace(found, plan=with_absolute_paths(plan)))

    begun = before if before and before.progress else None
    prompts = planned.sweep.prompts
    return saved(find_generation_capacity(job, plan.slo, attainment, prompts, listener, begun, saved))


def recommend_generation(
    lab: Lab, plan: GenerationPlan, time_s: float, listener: Listener, entry_id: str = ""
) -> GenerationRecommendation:
    """Measure engines, cores and batch sizes, and take what generates most tokens per second within the limits.

    What the plan names limits the search. The grid is saved as a generation of its own, cell by cell. `entry_id`
    is that of a search which was cut off and goes on.
    """
    GENERATION["time"].validate(time_s)
    before = _cut_off(lab, entry_id, GenerationRecommendation)
    if before is not None and not before.interrupted:
        return before
    began, wanted = time.monotonic() - (before.seconds if before else 0.0), with_absolute_paths(plan)
    slo, plan = plan.slo, replace(plan, slo=())
    planned, refusals = _grid(plan, time_s, listener)
    grid_id, final, final_failure = "", before.final if before else None, ""
    if before is not None:
        planned = _with_outcomes_of(planned, before.sweep)
        grid_id = before.sweep.id if lab.store.has(before.sweep.id) else ""
    save = lab.saving(plan.model, listener, entry_id)
    save_grid = lab.saving(planned.sweep.model.source, listener, grid_id)

    def found(
        sweep: GenerationSweep, final: GenerationComparison | None, complete: bool
    ) -> GenerationRecommendation:
        agreements = () if final is None else zip(final.arms, final.agreements, strict=True)
        wrong = [cell.id for cell, agreement in agreements if agreement.status == "mismatch"]
        choice = choose(sweep, slo, wrong)
        if final is not None and final.verdict == "faster" and not wrong:
            choice = choice.swapped()
        return GenerationRecommendation(
            sweep.model,
            slo,
            sweep,
            choice.chosen.id if choice.chosen else "",
            choice.rejections,
            final,
            time.monotonic() - began,
            not complete,
            wanted,
            time_s,
            refusals,
            final_failure,
        )

    def save_both(sweep: GenerationSweep) -> GenerationSweep:
        sweep = save_grid(sweep)
        save(found(sweep, final, complete=False))
        return sweep

    sweep = run_generation(planned, save_both, listener)
    complete = all(outcome.status in ("done", "failed") for outcome in sweep.outcomes)
    choice, spent_s = choose(sweep, slo), final.seconds if final else 0.0
    final_s = time_s - (time.monotonic() - began) + spent_s
    if complete and choice.rival is not None and choice.rival_ratio < _CLOSE and final_s >= _LEAST_FINAL_S:
        begun = final if final and final.pairs else None
        try:
            final = _final(
                *(lab, planned, choice, final_s, listener, begun),
                lambda compared: save(found(sweep, compared, complete=False)),
            )
            complete = not final.interrupted
        except EngineFailed as error:
            final, final_failure = None, str(error)
    return save(found(sweep, final, complete))


def _grid(plan: GenerationPlan, time_s: float, listener: Listener) -> tuple[PlannedGeneration, tuple[str, ...]]:
    """All configurations that the plan leaves open and that can run here, and why others cannot."""
    cores: tuple[int | None, ...] = plan.num_cores
    if cores == (None,):
        cores = (len(plan.cpu_list),) if plan.cpu_list else core_counts(machine.usable_cores())
    batches: tuple[int | None, ...] = _BATCHES if plan.batch_sizes == (None,) else plan.batch_sizes
    engines = plan.engines or tuple(registry.generators())
    model = read_generative(plan.model, listener)
    cells: dict[str, GenerationCell] = {}
    #: The first of each engine: its smallest configuration that cannot run.
    refusals: dict[str, str] = {}
    first: PlannedGeneration | None = None
    plan = replace(plan, processes=plan.processes or _PROCESSES)
    for engine, num_cores, batch in itertools.product(engines, cores, batches):
        choice = replace(plan, engines=(engine,), num_cores=(num_cores,), batch_sizes=(batch,))
        try:
            planned = plan_generation(choice, listener, model)
        except BadInput as error:
            refusals.setdefault(engine, str(error))
            continue
        first = first or planned
        for outcome in planned.sweep.outcomes:
            cells[outcome.cell.id] = outcome.cell
    if first is None:
        raise BadInput(next(iter(refusals.values())))
    each_s = max(_LEAST_CELL_S, _GRID_SHARE * time_s / len(cells))
    outcomes = tuple(GenerationOutcome(replace(cell, time_s=each_s), "pending") for cell in cells.values())
    whole = replace(
        first.sweep.plan,
        engines=tuple(dict.fromkeys(one.cell.engine for one in outcomes)),
        num_cores=cores,
        batch_sizes=batches,
        time_s=each_s,
    )
    planned = replace(first, sweep=replace(first.sweep, plan=whole, outcomes=outcomes))
    return planned, tuple(dict.fromkeys(refusals.values()))


def _final(
    lab: Lab,
    planned: PlannedGeneration,
    choice: Choice,
    time_s: float,
    listener: Listener,
    before: GenerationComparison | None,
    save: Callable[[GenerationComparison], object],
) -> GenerationComparison:
    """The best two in pairs, which may have begun before; raises what an engine did wrong."""
    assert choice.chosen is not None and choice.rival is not None, "two are compared"
    sweep, cells = planned.sweep, (choice.chosen, choice.rival)
    jobs = [make_generation_job(sweep.plan, sweep.model, cell, planned.prompts) for cell in cells]
    labels = tuple(f"{one.engine}, {one.num_cores} cores, batch {one.batch_size}" for one in cells)
    spreads = lab.expected_spreads("generation-comparison")
    job = GenerationComparisonJob(jobs[0], jobs[1], (labels[0], labels[1]), time_s, 0.01, spreads=spreads)
    return compare_generations(job, "output", listener, before, save)


@dataclass(frozen=True, slots=True)
class Choice:
    """The cell of highest throughput that meets every limit, the next best, and why the others are not taken."""

    chosen: GenerationCell | None
    rival: GenerationCell | None
    #: The chosen cell's throughput over the rival's.
    rival_ratio: float
    rejections: tuple[Rejection, ...]

    def swapped(self) -> Choice:
        """The rival in place of the chosen, which pairs showed to be slower."""
        assert self.chosen is not None and self.rival is not None
        slower = Rejection(self.chosen.id, "slower", share=None)
        others = tuple(rejection for rejection in self.rejections if rejection.cell_id != self.rival.id)
        return Choice(self.rival, self.chosen, 1 / self.rival_ratio, (slower, *others))


def choose(sweep: GenerationSweep, slo: Sequence[TokenLimit], wrong: Collection[str] = ()) -> Choice:
    """Take the most output tokens per second of the cells whose tokens are right and that meet every limit.

    `wrong` are the ids of cells whose tokens were found wrong elsewhere.
    """
    rejections: list[Rejection] = []
    fitting: list[tuple[float, GenerationCell]] = []
    for outcome in sweep.outcomes:
        summary = summarize_generation(outcome.runs)
        rejection = _rejection(sweep.model, outcome, summary, slo, wrong)
        if rejection is not None:
            rejections.append(rejection)
        elif summary is not None:
            fitting.append((summary.output_tokens_per_s.value, outcome.cell))
    fitting.sort(key=lambda one: -one[0])
    if not fitting:
        return Choice(None, None, 1.0, tuple(rejections))
    best = fitting[0][0]
    rejections += [Rejection(cell.id, "slower", share=rate / best) for rate, cell in fitting[1:]]
    rival = fitting[1] if len(fitting) > 1 else None
    return Choice(
        fitting[0][1],
        None if rival is None else rival[1],
        1.0 if rival is None else best / rival[0],
        tuple(rejections),
    )


def _rejection(
    model: GenerativeModel,
    outcome: GenerationOutcome,
    summary: GenerationSummary | None,
    slo: Sequence[TokenLimit],
    wrong: Collection[str],
) -> Rejection | None:
    cell_id = outcome.cell.id
    if outcome.status in ("pending", "cancelled"):
        return Rejection(cell_id, "not-measured")
    if summary is None or outcome.status != "done":
        return Rejection(cell_id, "failed")
    if cell_id in wrong or worst_agreement(outcome.runs).status == "mismatch":
        return Rejection(cell_id, "wrong-tokens")
    if any(finding.code == "ended-early" for finding in generation_findings(model, outcome)):
        return Rejection(cell_id, "ended-early")
    shares = {limit.text: (value_ms(summary, limit) or 0.0) / 1e3 / limit.limit_s for limit in slo}
    worst = max(shares, key=lambda text: shares[text], default=None)
    if worst is not None and shares[worst] > 1:
        return Rejection(cell_id, "misses", worst, shares[worst])
    return None


def value_ms(summary: GenerationSummary, limit: TokenLimit) -> float | None:
    """What was measured of what is limited; None for a time that a single token does not have."""
    found = {"ttft": summary.ttft_ms, "tpot": summary.tpot_ms, "e2e": summary.end_to_end_ms}[limit.metric]
    return None if found is None else found.value
