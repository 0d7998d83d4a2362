"""`inferlab benchmark MODEL`: measure how fast a model runs, in one way or in many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from inferlab.cli.command import (
    BASELINE,
    MODELS,
    Command,
    Work,
    declared_options,
    given_options,
    measures,
    plan_option,
    strict_code,
    strict_option,
)
from inferlab.cli.terminal import Log
from inferlab.errors import BadInput
from inferlab.options.plan import BENCHMARK, make_plan
from inferlab.records import Benchmark, Outcome, Plan

_HELP = f"""Measure how fast MODEL runs.

\b
  inferlab benchmark model.onnx -s sync -ncores 1
  inferlab benchmark model.onnx -b 1,8,32 -ncores 1,max -e onnxruntime,openvino

Options that take a list (1,8,32 or 1-4 or 1-64*2) make a sweep: every combination is measured, in random order.

{MODELS}"""
_RESUME = "Resume an interrupted sweep: the newest, or the one with this id."
# What may be said beside --resume: all else is fixed already.
_WITH_RESUME = ("resume", "quiet", "strict", "export_path", "store_url", "no_save", "baseline", "yes")


@click.command("benchmark", cls=Command, help=_HELP)
@click.argument("model", required=False)
@declared_options("benchmark", BENCHMARK)
@click.option("--baseline", multiple=True, metavar="OPTION=VALUE", help=BASELINE)
@plan_option
@click.option("--dry-run", is_flag=True, help="Show what would be measured, and exit.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[ID]", help=_RESUME)
@strict_option
@measures
def command(
    model: str | None,
    baseline: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    strict: bool,
    work: Work,
    **values: Any,
) -> int:
    """Parse, measure, show."""
    from inferlab.views import benchmark as view

    for name in given_options(click.get_current_context(), _WITH_RESUME) if resume is not None else ():
        raise BadInput(f"--resume continues what was planned, so {name} cannot be given with it.")
    if model is None and resume is None:
        raise BadInput("No model was named. Try: inferlab benchmark demo:resnet50 -t 3")
    plan = make_plan(model or "", values)
    if dry_run and resume is None:
        with work.log:
            return _tell_cells(plan, baseline, work.log)
    with work.lab() as lab:
        if resume is not None:
            benchmark = lab.resume(resume or None, work.log, live=work.log.live)
        else:
            if baseline:
                view.check_baseline(lab.cells(plan, work.log), baseline)
            benchmark = lab.benchmark(plan, work.log, live=work.log.live)
    code = show(benchmark, work, strict, baseline)
    work.say_saved(benchmark.id)
    if (next_command := _suggestion(benchmark)) and code in (0, 130):
        work.log.say(f"Next: {next_command}")
    return work.exit_code(code)


def _tell_cells(plan: Plan, baseline: tuple[str, ...], log: Log) -> int:
    """What would be measured, and how long that takes at least."""
    from inferlab.lab import Lab
    from inferlab.units import plural
    from inferlab.views import benchmark as view
    from inferlab.views import text

    cells = Lab().cells(plan, log)
    view.check_baseline(cells, baseline)
    for number, cell in enumerate(cells, 1):
        click.echo(f"{number}. {text.cell_label(cell)}")
    minutes = len(cells) * plan.time_s / 60
    click.echo(f"{plural(len(cells), 'cell')}, about {minutes:.1f} minutes, plus loading and warm-up.")
    return 0


def show(benchmark: Benchmark, work: Work, strict: bool = False, baseline: tuple[str, ...] = ()) -> int:
    """Print the result, write its file and choose the exit code."""
    from inferlab.measure.check import worst
    from inferlab.views import benchmark as view

    outcomes = benchmark.outcomes
    if len(outcomes) == 1:
        work.show(benchmark, view.cell_blocks(benchmark, outcomes[0]) if outcomes[0].runs else ())
    else:
        work.show(benchmark, view.blocks(benchmark, view.find_baseline(benchmark, baseline)))
    code, problem = _exit_code(outcomes)
    if problem:
        click.echo(f"inferlab: {problem}", err=True)
    if code or not strict:
        return code
    return strict_code(worst([run.check for outcome in outcomes for run in outcome.runs]))


def _exit_code(outcomes: Sequence[Outcome]) -> tuple[int, str]:
    """The exit code, and why it is not 0."""
    states = [outcome.status for outcome in outcomes]
    first = outcomes[0]
    if len(outcomes) == 1 and first.failure:
        return 2 if first.failure.code == "refused" else 3, first.failure.message
    if "cancelled" in states or "pending" in states:
        done = states.count("done") + states.count("failed")
        if len(outcomes) > 1:
            return 130, f"interrupted after {done} of {len(states)} cells"
        return 130, "" if first.runs else "interrupted before anything was measured"
    if "failed" in states:
        return 3, f"{states.count('failed')} of {len(states)} cells failed"
    return 0, ""


def _suggestion(benchmark: Benchmark) -> str:
    """What one would ask next: whether another engine is faster, or the other scenario; or to go on."""
    model, cell = benchmark.plan.model, benchmark.outcomes[0].cell
    if any(outcome.status in ("cancelled", "pending") for outcome in benchmark.outcomes):
        return f"inferlab benchmark --resume {benchmark.id}" if benchmark.id else ""
    if len(benchmark.outcomes) > 1:
        return f"inferlab recommend {model}"
    if cell.engine == "onnxruntime" and benchmark.model.kind == "onnx" and cell.rate is None:
        return f"inferlab compare {model} -e onnxruntime,openvino -s {cell.scenario} -ncores {cell.num_cores}"
    other = "async" if cell.scenario == "sync" else "sync"
    return f"inferlab benchmark {model} -e {cell.engine} -s {other}"
