"""`inferlab benchmark MODEL`: measure how fast a model runs, in one way or in many."""

from __future__ import annotations

from typing import Any

import click

from inferlab.cli.command import (
    MODELS,
    Command,
    Work,
    baseline_option,
    declared_options,
    measures,
    plan_option,
    resumed,
    show_plan,
    strict_code,
    strict_option,
    sweep_code,
)
from inferlab.options.plan import BENCHMARK, make_plan
from inferlab.records import Benchmark

_HELP = f"""Measure how fast MODEL runs.

\b
  inferlab benchmark model.onnx -s sync -ncores 1
  inferlab benchmark model.onnx -b 1,8,32 -ncores 1,max -e onnxruntime,openvino

Options that take a list (1,8,32 or 1-4 or 1-64*2) make a sweep: every combination is measured, in random order.

{MODELS}"""
_RESUME = "Resume an interrupted sweep: the newest, or the one with this id."


@click.command("benchmark", cls=Command, help=_HELP)
@click.argument("model", required=False)
@declared_options("benchmark", BENCHMARK)
@baseline_option
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
    from inferlab.lab import Lab
    from inferlab.views import benchmark as view
    from inferlab.views import text

    ctx = click.get_current_context()
    resumes = resumed(ctx, model, resume, "benchmark demo:resnet50 -t 3", "baseline", "yes")
    plan = make_plan(model or "", values)
    if dry_run and not resumes:
        with work.log:
            cells = Lab().cells(plan, work.log)
        view.check_baseline(cells, baseline)
        return show_plan([text.cell_label(cell) for cell in cells], plan.time_s, "loading and warm-up")
    with work.lab() as lab:
        if resumes:
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


def show(benchmark: Benchmark, work: Work, strict: bool = False, baseline: tuple[str, ...] = ()) -> int:
    """Print the result, write its file and choose the exit code."""
    from inferlab.measure.check import worst
    from inferlab.views import benchmark as view

    outcomes = benchmark.outcomes
    if len(outcomes) == 1:
        work.show(benchmark, view.cell_blocks(benchmark, outcomes[0]) if outcomes[0].runs else ())
    else:
        work.show(benchmark, view.blocks(benchmark, view.find_baseline(benchmark, baseline)))
    code = sweep_code(outcomes)
    return (
        strict_code([worst([run.check for outcome in outcomes for run in outcome.runs])])
        if strict and not code
        else code
    )


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
