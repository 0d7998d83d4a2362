"""`inferlab generate MODEL`: how fast a language model generates tokens, and whether they are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.capacity import search_rate
from inferlab.cli.command import (
    Command,
    Work,
    declared_options,
    given_options,
    measures,
    plan_option,
    strict_option,
)
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.options.generation import GENERATION, make_generation_plan
from inferlab.options.plan import LABELS

if TYPE_CHECKING:
    from inferlab.records.generation import GenerationSweep

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
_RESUME = "Resume an interrupted generation: the newest, or the one with this id."
# What may be said beside --resume: all else is fixed already.
_WITH_RESUME = ("resume", "quiet", "strict", "export_path", "store_url", "no_save")


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
    for name in given_options(click.get_current_context(), _WITH_RESUME) if resume is not None else ():
        raise BadInput(f"--resume continues what was planned, so {name} cannot be given with it.")
    if model is None and resume is None:
        raise BadInput("No model was named. Try: inferlab generate demo:llama")
    plan = make_generation_plan(model or "", values)
    searches = plan.scenario == "server" and bool(plan.slo) and plan.rates == (None,)
    if dry_run and resume is None:
        if searches:
            raise BadInput("--dry-run shows cells, and a search for the highest rate has none: give a --rate.")
        return _tell_cells(model or "", values, work)
    with work.lab() as lab:
        if resume is not None:
            sweep = lab.resume_generation(resume or None, work.log)
        elif searches:
            return search_rate(plan, values["attainment"], strict, lab, work)
        else:
            sweep = lab.generate(plan, work.log)
    return show_generation(sweep, strict, work)


def show_generation(sweep: GenerationSweep, strict: bool, work: Work) -> int:
    """Show what was measured, and say where it is saved; returns the exit code."""
    work.show(sweep)
    code, problem = _exit_code(sweep, strict)
    if problem:
        click.echo(f"inferlab: {problem}", err=True)
    work.say_saved(sweep.id)
    if code == 130 and sweep.id:
        work.log.say(f"Next: inferlab generate --resume {sweep.id}")
    return work.exit_code(code)


def _tell_cells(model: str, values: dict[str, Any], work: Work) -> int:
    """What the model is, what would be measured, and how long that takes at least."""
    from inferlab.lab import Lab
    from inferlab.units import plural
    from inferlab.views.generation import model_blocks
    from inferlab.views.text import generation_label

    with work.log:
        sweep = Lab().planned_generation(make_generation_plan(model, values), work.log)
    show_blocks(model_blocks(sweep.model))
    for number, outcome in enumerate(sweep.outcomes, 1):
        click.echo(f"{number}. {generation_label(outcome.cell)}")
    minutes = len(sweep.outcomes) * sweep.plan.time_s / 60
    click.echo(
        f"{plural(len(sweep.outcomes), 'cell')}, about {minutes:.1f} minutes, plus loading, warm-up and checks."
    )
    return 0


def _exit_code(sweep: GenerationSweep, strict: bool) -> tuple[int, str]:
    """The exit code, and why it is not 0."""
    from inferlab.measure.generation.stats import worst_agreement
    from inferlab.views.generation import agreement_text

    states = [outcome.status for outcome in sweep.outcomes]
    first = sweep.outcomes[0]
    if len(states) == 1 and first.failure:
        return 2 if first.failure.code == "refused" else 3, first.failure.message
    if "cancelled" in states or "pending" in states:
        done = states.count("done") + states.count("failed")
        return 130, f"interrupted after {done} of {len(states)} cells" if len(states) > 1 else ""
    if "failed" in states:
        return 3, f"{states.count('failed')} of {len(states)} cells failed"
    worst = worst_agreement([run for outcome in sweep.outcomes for run in outcome.runs])
    if strict and worst.status != "match":
        return 5, f"strict: the agreement is {agreement_text(worst)}"
    return 0, ""
