"""What is made of generations: comparisons of two arms, capacities and recommendations; each is saved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed
from inferlab.lab.comparison import arm_labels
from inferlab.lab.generation import PlannedGeneration, plan_generation, run_generation, with_whole_paths
from inferlab.measure.generation.capacity import find_generation_capacity
from inferlab.measure.generation.comparison import GenerationComparisonJob, compare_generations
from inferlab.measure.generation.recommendation import choose
from inferlab.measure.generation.reference import GenerationJob, make_generation_job
from inferlab.model.generative import names_generative, read_generative
from inferlab.options.generation import (
    GENERATION,
    ONLY_GENERATION,
    generation_values,
    make_generation_plan,
    names_tokens,
)
from inferlab.options.plan import COMPARISON
from inferlab.records import Event, Listener
from inferlab.records.generation import GenerationCell, GenerationOutcome, GenerationPlan, GenerationSweep
from inferlab.records.generation_results import (
    ComparedMetric,
    GenerationCapacity,
    GenerationComparison,
    GenerationRecommendation,
)

if TYPE_CHECKING:
    from inferlab.lab.lab import Lab

# A search spends this share of its time on the grid, and what is left on the best two where they are close.
_GRID_SHARE = 0.6
_LEAST_CELL_S = 0.5
_BATCHES = (1, 2, 4, 8)
_PROCESSES = 2
# How far apart the best two may be to be compared in pairs.
_CLOSE = 1.1
_LEAST_FINAL_S = 5.0


def concerns_tokens(models: Sequence[str], given: Mapping[str, Any], slo: str = "") -> bool:
    """Whether a request is about generating tokens: by its models, or by the engines, options or objective given.

    Refuses options and objectives of generation for a model that does not generate.
    """
    if any(map(names_generative, models)) or any(map(registry.only_generates, given.get("engine", ()))):
        return True
    named = [f"The option {name}" for name in given if name in ONLY_GENERATION]
    named += [f"The objective '{slo}'"] if names_tokens(slo) else []
    for model in models if named else ():
        try:
            read_generative(model)
        except BadInput as error:
            raise BadInput(f"{named[0]} is for models that generate tokens. {error}") from error
    return bool(named)


def generation_arms(
    models: Sequence[str], values: Mapping[str, Any], own: Sequence[Mapping[str, Any]]
) -> tuple[GenerationPlan, GenerationPlan]:
    """Both plans: of the values that are common to them, by keyword, and those of each arm alone."""
    engines = values.get("engine", ())
    if len(models) > 2:
        raise BadInput(f"Two models are compared, not {len(models)}: {', '.join(models)}.")
    if len(engines) > 2:
        raise BadInput(f"Two engines are compared, not {len(engines)}: {', '.join(engines)}.")
    plans = []
    for index, settings in enumerate(own):
        generation_values("compare", {name: value for name, value in settings.items() if name != "model"})
        arm = {**values, **({"engine": (engines[min(index, len(engines) - 1)],)} if engines else {})}
        for name, value in settings.items():
            arm[name] = value
        # Engine options of an arm add to the common ones.
        pairs = (*values.get("engine_option", ()), *settings.get("engine_option", ()))
        if pairs:
            arm["engine_option"] = GENERATION["engine_option"].kind.collect(pairs)
        model = arm.pop("model", models[min(index, len(models) - 1)])
        plans.append(make_generation_plan(model, arm))
    return plans[0], plans[1]


def compare_plans(
    lab: Lab,
    plans: tuple[GenerationPlan, GenerationPlan],
    metric: ComparedMetric,
    time_s: float,
    margin: float,
    listener: Listener,
    labels: tuple[str, str] | None = None,
    fresh: bool = False,
) -> GenerationComparison:
    """Compare plan B with plan A, each of one cell, generating interleaved behind the same prompts."""
    COMPARISON["margin"].validate(margin)
    ONLY_GENERATION["metric"].validate(metric)
    GENERATION["time"].validate(time_s)
    if labels is None and plans[0] == plans[1]:
        listener(Event("same-arms"))
    labels = labels or arm_labels(*plans)
    jobs = [only_generation_job(plan_generation(plan, listener), plan) for plan in plans]
    job = GenerationComparisonJob(jobs[0], jobs[1], labels, time_s, margin, fresh=fresh)
    found = compare_generations(job, metric, listener)
    whole = (with_whole_paths(plans[0]), with_whole_paths(plans[1]))
    found = replace(found, plans=whole, time_s=time_s, fresh=fresh)
    saver = lab.new_saver(listener)
    about = "" if plans[0].model in labels else f"{plans[0].model}: "
    saver.record(found, f"{about}{labels[0]} / {labels[1]}")
    return replace(found, id=saver.id)


def rerun(
    lab: Lab, saved: GenerationComparison | GenerationCapacity | GenerationRecommendation, listener: Listener
) -> GenerationComparison | GenerationCapacity | GenerationRecommendation:
    """Measure what was compared or searched once more, under the same conditions, as a new entry."""
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
            a, b, saved.metric, saved.time_s, saved.margin, listener, saved.labels, saved.fresh
        )
    if isinstance(saved, GenerationCapacity):
        return lab.generation_capacity(plans[0], saved.wanted_attainment, listener)
    return lab.recommend_generation(plans[0], saved.time_s, listener)


def only_generation_job(planned: PlannedGeneration, plan: GenerationPlan) -> GenerationJob:
    """The only cell of a plan; refuses a sweep."""
    outcomes = planned.sweep.outcomes
    if len(outcomes) != 1:
        raise BadInput(f"This takes one cell, and these options make {len(outcomes)}. Give one value of each.")
    return make_generation_job(plan, planned.sweep.model, outcomes[0].cell, planned.prompts)


def search_capacity(lab: Lab, plan: GenerationPlan, attainment: float, listener: Listener) -> GenerationCapacity:
    """Find the highest rate of requests of which enough meet the plan's objective, in a plan of one cell."""
    if not plan.slo:
        raise BadInput('The highest rate is that which meets an objective: give --slo "ttft<500ms,tpot<50ms".')
    GENERATION["attainment"].validate(attainment)
    # Which rate, the search says; one makes it a cell whose requests arrive by themselves.
    planned = plan_generation(replace(plan, scenario="server", rates=(1.0,)), listener)
    job = only_generation_job(planned, plan)
    found = find_generation_capacity(job, plan.slo, attainment, planned.sweep.prompts, listener)
    found = replace(found, plan=with_whole_paths(plan))
    saver = lab.new_saver(listener)
    saver.record(found, f"{plan.model} {','.join(limit.text for limit in plan.slo)}")
    return replace(found, id=saver.id)


def recommend_generation(
    lab: Lab, plan: GenerationPlan, time_s: float, listener: Listener
) -> GenerationRecommendation:
    """Measure engines, cores and batch sizes, and take what generates most tokens per second within the limits.

    What the plan names limits the search. The grid is saved as a generation of its own, cell by cell.
    """
    GENERATION["time"].validate(time_s)
    began, wanted = time.monotonic(), with_whole_paths(plan)
    slo, plan = plan.slo, replace(plan, slo=())
    planned = _grid(plan, time_s, listener)
    sweep = run_generation(planned, lab.new_saver(listener), listener)
    interrupted = any(outcome.status in ("pending", "cancelled") for outcome in sweep.outcomes)
    found = choose(sweep, slo)
    final: GenerationComparison | None = None
    left_s = time_s - (time.monotonic() - began)
    if not interrupted and found.rival is not None and found.rival_ratio < _CLOSE and left_s >= _LEAST_FINAL_S:
        final = _final(planned, found.chosen, found.rival, left_s, listener)
        if final is not None and final.verdict == "faster":
            found = found.swapped()
    record = GenerationRecommendation(
        sweep.model,
        slo,
        sweep,
        found.chosen.id if found.chosen else "",
        found.rejections,
        final,
        time.monotonic() - began,
        interrupted,
        wanted,
        time_s,
    )
    saver = lab.new_saver(listener)
    saver.record(record, plan.model)
    return replace(record, id=saver.id)


def _grid(plan: GenerationPlan, time_s: float, listener: Listener) -> PlannedGeneration:
    """All configurations that the plan leaves open and that can run here."""
    open_cores = plan.num_cores == (None,)
    cores: tuple[int | None, ...] = plan.num_cores
    if open_cores:
        most = len(plan.cpu_list) or machine.usable_cores()
        cores = tuple(sorted({most, *(2**step for step in range(10) if 2**step <= most)}))
        cores = (most,) if plan.cpu_list else cores
    batches: tuple[int | None, ...] = _BATCHES if plan.batch_sizes == (None,) else plan.batch_sizes
    engines = plan.engines or tuple(registry.generators())
    model = read_generative(plan.model, listener)
    cells: dict[str, GenerationCell] = {}
    refusals: list[str] = []
    first: PlannedGeneration | None = None
    for engine in engines:
        for num_cores in cores:
            for batch in batches:
                one = replace(plan, engines=(engine,), num_cores=(num_cores,), batch_sizes=(batch,))
                one = replace(one, processes=plan.processes or _PROCESSES)
                try:
                    planned = plan_generation(one, listener, model)
                except BadInput as error:
                    refusals.append(str(error))
                    continue
                first = first or planned
                for outcome in planned.sweep.outcomes:
                    cells[outcome.cell.id] = outcome.cell
    if first is None:
        raise BadInput(refusals[0])
    each_s = max(_LEAST_CELL_S, _GRID_SHARE * time_s / len(cells))
    outcomes = tuple(GenerationOutcome(replace(cell, time_s=each_s), "pending") for cell in cells.values())
    whole = replace(
        first.sweep.plan,
        engines=tuple(dict.fromkeys(one.cell.engine for one in outcomes)),
        num_cores=cores,
        batch_sizes=batches,
        time_s=each_s,
    )
    return replace(first, sweep=replace(first.sweep, plan=whole, outcomes=outcomes))


def _final(
    planned: PlannedGeneration,
    chosen: GenerationCell | None,
    rival: GenerationCell,
    time_s: float,
    listener: Listener,
) -> GenerationComparison | None:
    """The best two in pairs; None where an engine failed in it."""
    assert chosen is not None, "there is a rival only where something is recommended"
    sweep: GenerationSweep = planned.sweep
    jobs = [make_generation_job(sweep.plan, sweep.model, cell, planned.prompts) for cell in (chosen, rival)]
    labels = tuple(f"{one.engine}, {one.num_cores} cores, batch {one.batch_size}" for one in (chosen, rival))
    try:
        job = GenerationComparisonJob(jobs[0], jobs[1], (labels[0], labels[1]), time_s, 0.01)
        return compare_generations(job, "output", listener)
    except EngineFailed:
        return None
