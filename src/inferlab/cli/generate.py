"""`inferlab generate MODEL`: how fast a language model generates tokens, and whether they are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.capacity import show_capacity
from inferlab.cli.command import (
    Command,
    Work,
    declared_options,
    measures,
    plan_option,
    resumed,
    show_blocks,
    show_plan,
    strict_code,
    strict_option,
    sweep_code,
)
from inferlab.errors import BadInput
from inferlab.options.generation import GENERATION, make_generation_plan
from inferlab.options.plan import LABELS

if TYPE_CHECKING:
    from inferlab.lab.generation import MadeOfGenerations
    from inferlab.records.generation import GenerationPlan, GenerationSweep

_HELP = """Measure how fast MODEL generates tokens.

\b
  inferlab generate model.gguf --prompt 32,512 --new 128
  inferlab generate model.gguf -e llamacpp,torch --depth 0,1024 -ncores 1,2
  inferlab generate model.gguf -s server --rate 0.5,1,2 --slo "ttft<500ms,tpot<50ms"
  inferlab generate moonshine-folder --audio clip.wav --new 40

Options that take a list (32,512 or 1-4 or 1-64*2) make a sweep: every combination is measured, in random order.
Prompts are random token ids; tokens are chosen greedily, and checked against FP32 torch on the same weights.

MODEL is a GGUF file or an https:// URL of one, a Hugging Face folder of a language model or an encoder–decoder,
ONNX with past and present (a file or a folder), a folder of ONNX Runtime GenAI or of OpenVINO GenAI, or a built-in
demo:llama, demo:llama_tiny, demo:bart or demo:bart_tiny."""
_RESUME = (
    "Resume an interrupted generation: the newest, or the one with this id; also a comparison, capacity or "
    "recommendation of such a model, by its id."
)


@click.command("generate", cls=Command, help=_HELP)
@click.argument("model", required=False)
@declared_options("generate", GENERATION)
@declared_options("generate", LABELS)
@plan_option
@click.option("--dry-run", is_flag=True, help="Show what the model is and what would be measured, and exit.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[ID]", help=_RESUME)
@strict_option
@measures
def command(model: str | None, dry_run: bool, resume: str | None, strict: bool, work: Work, **values: Any) -> int:
    """Parse, measure, show."""
    resumes = resumed(click.get_current_context(), model, resume, "generate demo:llama")
    plan = make_generation_plan(model or "", values)
    searches = plan.scenario == "server" and bool(plan.slo) and plan.rates == (None,)
    if dry_run and not resumes:
        if searches:
            raise BadInput("--dry-run shows cells, and a search for the highest rate has none: give a --rate.")
        return _show_plan(plan, work)
    with work.lab() as lab:
        if searches and not resumes:
            return show_capacity(lab.generation_capacity(plan, values["attainment"], work.log), strict, work)
        if resume and lab.is_made_of_generations(resume):
            return show_made(lab.resume_generation_result(resume, work.log), strict, work)
        sweep = lab.resume_generation(resume or None, work.log) if resumes else lab.generate(plan, work.log)
    return show_generation(sweep, strict, work)


def show_made(result: MadeOfGenerations, strict: bool, work: Work) -> int:
    """Show a comparison, a capacity or a recommendation, and say where it is saved; returns the exit code."""
    from inferlab.records.capacity import GenerationCapacity
    from inferlab.records.recommendation import GenerationRecommendation

    work.show(result)
    work.say_saved(result.id)
    if result.interrupted:
        work.say_resume(result.id)
        return 130
    if not strict or isinstance(result, GenerationRecommendation):
        return work.exit_code(0)
    agreements = [result.agreement] if isinstance(result, GenerationCapacity) else result.agreements
    return work.exit_code(strict_code(agreements))


def show_generation(sweep: GenerationSweep, strict: bool, work: Work) -> int:
    """Show what was measured, and say where it is saved; returns the exit code."""
    from inferlab.measure.generation.stats import worst_agreement

    work.show(sweep)
    code = sweep_code(sweep.outcomes)
    if strict and not code:
        code = strict_code([worst_agreement([run for outcome in sweep.outcomes for run in outcome.runs])])
    work.say_saved(sweep.id)
    if code == 130:
        work.say_resume(sweep.id)
    return work.exit_code(code)


def _show_plan(plan: GenerationPlan, work: Work) -> int:
    """What the model is, what would be measured, and how long that takes at least."""
    from inferlab.lab import Lab
    from inferlab.views.generation import model_blocks
    from inferlab.views.text import generation_label

    with work.log:
        sweep = Lab().planned_generation(plan, work.log)
    show_blocks(model_blocks(sweep.model))
    labels = [generation_label(outcome.cell) for outcome in sweep.outcomes]
    return show_plan(labels, sweep.plan.time_s, "loading, warm-up and checks")
