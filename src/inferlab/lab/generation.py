"""A generation plan on its way: each run saved when it ends, no cell touches another."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.errors import BadInput, EngineFailed, EngineHung
from inferlab.lab.executor import WORTH_TELLING
from inferlab.measure.generation.cells import generation_cells, validate_generation
from inferlab.measure.generation.process import measure_generation
from inferlab.measure.generation.prompt_files import read_prompts
from inferlab.measure.generation.reference import Prompt, make_generation_job
from inferlab.model.audio import read_clip
from inferlab.model.generative import read_generative
from inferlab.records import Event, Failure, Listener, Status
from inferlab.records.generation import (
    GenerationOutcome,
    GenerationPlan,
    GenerationSweep,
    GenerativeModel,
    PromptSet,
)
from inferlab.store import Saver


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
            with_whole_paths(plan), model, tuple(GenerationOutcome(cell, "pending") for cell in cells), told
        ),
        prompts,
    )


def with_whole_paths(plan: GenerationPlan) -> GenerationPlan:
    """The plan as it can be measured again from another folder."""

    def whole(path: str) -> str:
        return str(Path(path).resolve()) if Path(path).exists() else path

    file = None if plan.prompts_file is None else whole(plan.prompts_file)
    audio = None if plan.audio is None else whole(plan.audio)
    return replace(plan, model=whole(plan.model), prompts_file=file, audio=audio)


def resumed(saved: GenerationSweep, listener: Listener) -> PlannedGeneration:
    """A saved sweep that can go on: its model and prompts are as they were, and this machine has its cells."""
    now = plan_generation(saved.plan, listener)
    if now.sweep.model.digest != saved.model.digest:
        raise BadInput(f"The model {saved.model.source} has changed since it was measured. Measure it again.")
    if (now.sweep.prompts and now.sweep.prompts.digest) != (saved.prompts and saved.prompts.digest):
        raise BadInput(f"The prompts {saved.plan.prompts_file} have changed since then. Measure it again.")
    if {outcome.cell.id for outcome in now.sweep.outcomes} != {outcome.cell.id for outcome in saved.outcomes}:
        raise BadInput(f"{saved.id} was begun on a machine with other cores. Measure it again.")
    return replace(now, sweep=saved)


def run_generation(planned: PlannedGeneration, saver: Saver, listener: Listener) -> GenerationSweep:
    """Measure what is not done or failed yet, in random order; Ctrl-C leaves the rest pending."""
    sweep = planned.sweep
    outcomes = {outcome.cell.id: outcome for outcome in sweep.outcomes}
    waiting = [outcome.cell for outcome in sweep.outcomes if outcome.status in ("pending", "cancelled")]
    # In random order, so that a machine that slows down with time does not slow down one end of the table.
    random.Random(sweep.plan.seed).shuffle(waiting)  # noqa: S311  for fairness, no secret
    done = len(outcomes) - len(waiting)

    def saved() -> GenerationSweep:
        record = replace(sweep, outcomes=tuple(outcomes.values()))
        saver.record(record, sweep.model.source)
        return replace(record, id=saver.id)

    saved()
    several = len(outcomes) > 1
    tell = _worth_telling(listener) if several else listener
    for number, cell in enumerate(waiting, done + 1):
        if several:
            tell(Event("generation-cell", {"cell": cell, "number": number, "of": len(outcomes)}))
        runs = list(outcomes[cell.id].runs)
        status: Status = "done"
        failure: Failure | None = None
        try:
            job = make_generation_job(sweep.plan, sweep.model, cell, planned.prompts)
            for run in measure_generation(job, runs, tell):
                runs.append(run)
                outcomes[cell.id] = GenerationOutcome(cell, "pending", tuple(runs))
                saved()
        except KeyboardInterrupt:
            status = "cancelled"
        except (BadInput, EngineFailed) as error:
            failure, status = _failure(error), "failed"
        outcomes[cell.id] = GenerationOutcome(cell, status, tuple(runs), failure)
        saved()
        if several:
            tell(Event("generated", {"outcome": outcomes[cell.id]}))
        if status == "cancelled":
            break
    return saved()


def _failure(error: BadInput | EngineFailed) -> Failure:
    if isinstance(error, BadInput):
        return Failure("refused", str(error))
    return Failure("hung" if isinstance(error, EngineHung) else "died", str(error))


def _worth_telling(listener: Listener) -> Listener:
    """A listener that hears of several cells only what is worth telling, or the log would be a book."""
    codes = (*WORTH_TELLING, "converting", "generation-cell", "generated")
    return lambda event: listener(event) if event.code in codes else None
