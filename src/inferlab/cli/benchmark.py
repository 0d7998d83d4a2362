"""`inferlab benchmark MODEL`: measure how fast a model runs, in one way or in many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.planfile import plan_option
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.records import Benchmark, Outcome, Plan

if TYPE_CHECKING:
    from inferlab.store.store import Store

_HELP = f"""Measure how fast MODEL runs.

\b
  inferlab benchmark model.onnx -s sync -ncores 1
  inferlab benchmark model.onnx -b 1,8,32 -ncores 1,max -e onnxruntime,openvino

Options that take a list (1,8,32 or 1-4 or 1-64*2) make a sweep: every combination is measured, in random order.

{MODELS}"""
_BASELINE = "The cell that speed-ups refer to.  [default: the first]  May be repeated."
_RESUME = "Go on with a sweep that was cut off: the newest, or that with this id."
# What may be said beside --resume: all else is fixed already.
_WITH_RESUME = ("resume", "quiet", "strict", "export_path", "store_url", "no_save", "baseline")


@click.command("benchmark", help=_HELP)
@click.argument("model", required=False)
@plan_options("cell", "server", "inputs", "cluster", "measuring")
@click.option("--baseline", multiple=True, metavar="OPTION=VALUE", help=_BASELINE)
@plan_option
@click.option("--dry-run", is_flag=True, help="Say what would be measured, and stop.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[ID]", help=_RESUME)
@click.option("--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5).")
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(
    model: str | None,
    baseline: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    strict: bool,
    store_url: str | None,
    no_save: bool,
    quiet: bool,
    export_path: Path | None,
    **given: Any,
) -> int:
    """Parse, measure, show."""
    from inferlab.views import files

    if export_path:
        files.check_writable(export_path)
    wanted = None if resume is not None else plan({**given, "model": _named(model)})
    if resume is not None:
        _refuse_beside_resume(click.get_current_context())
    with Log(quiet) as log:
        if dry_run and wanted is not None:
            return _tell_cells(wanted, baseline, log)
        with saving(store_url, no_save, log) as store:
            benchmark = _measure(wanted, resume or None, baseline, store, log)
    code = show(benchmark, strict, baseline)
    if export_path:
        log.export(export_path, lambda: views.write(benchmark, export_path))
    if benchmark.id and log.all_saved:
        log.say(f"Saved as {benchmark.id}: inferlab show {benchmark.id}")
    if (next_command := _suggestion(benchmark)) and code in (0, 130):
        log.say(f"Next: {next_command}")
    return log.exit_code(code)


def _named(model: str | None) -> str:
    if model is None:
        raise BadInput("No model was named. Try: inferlab benchmark demo:resnet50 -t 3")
    return model


def _refuse_beside_resume(ctx: click.Context) -> None:
    for name in ctx.params:
        if name not in _WITH_RESUME and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise BadInput(f"--resume goes on with what was planned, so {name} cannot be given beside it.")


def _tell_cells(wanted: Plan, baseline: tuple[str, ...], log: Log) -> int:
    """What would be measured, and how long that takes at least."""
    from inferlab.lab import Lab
    from inferlab.units import plural
    from inferlab.views import benchmark as view
    from inferlab.views import text

    cells = Lab().cells(wanted, log)
    view.check_baseline(cells, baseline)
    for number, cell in enumerate(cells, 1):
        click.echo(f"{number}. {text.cell_label(cell)}")
    minutes = len(cells) * wanted.time_s / 60
    click.echo(f"{plural(len(cells), 'cell')}, about {minutes:.1f} minutes and what loading and warming up take.")
    return 0


def _measure(
    wanted: Plan | None, resume: str | None, baseline: tuple[str, ...], store: Store | None, log: Log
) -> Benchmark:
    from inferlab.lab import Lab
    from inferlab.views import benchmark as view

    lab = Lab(store)
    if wanted is None:
        return lab.resume(resume, log, live=log.live)
    if baseline:
        view.check_baseline(lab.cells(wanted, log), baseline)
    return lab.benchmark(wanted, log, live=log.live)


def show(benchmark: Benchmark, strict: bool = False, baseline: tuple[str, ...] = ()) -> int:
    """Print the result and choose the exit code."""
    from inferlab.views import benchmark as view

    if len(benchmark.outcomes) == 1:
        (only,) = benchmark.outcomes
        show_blocks(view.cell_blocks(benchmark, only) if only.runs else ())
        return _exit_code_of_one(only, strict)
    show_blocks(view.blocks(benchmark, view.find_baseline(benchmark, baseline)))
    return _exit_code_of_many(benchmark, strict)


def _exit_code_of_one(outcome: Outcome, strict: bool) -> int:
    if outcome.failure:
        click.echo(f"inferlab: {outcome.failure.message}", err=True)
        return 2 if outcome.failure.code == "refused" else 3
    if not outcome.runs:
        click.echo("inferlab: interrupted before anything was measured", err=True)
        return 130
    if outcome.status == "cancelled":
        return 130
    return _strictly([outcome], strict)


def _exit_code_of_many(benchmark: Benchmark, strict: bool) -> int:
    states = [one.status for one in benchmark.outcomes]
    if "cancelled" in states or "pending" in states:
        done = states.count("done") + states.count("failed")
        click.echo(f"inferlab: interrupted after {done} of {len(states)} cells", err=True)
        return 130
    if "failed" in states:
        click.echo(f"inferlab: {states.count('failed')} of {len(states)} cells failed", err=True)
        return 3
    return _strictly(benchmark.outcomes, strict)


def _strictly(outcomes: tuple[Outcome, ...] | list[Outcome], strict: bool) -> int:
    from inferlab.measure.check import worst
    from inferlab.views import text

    check = worst([run.check for one in outcomes for run in one.runs])
    if strict and check.status != "match":
        click.echo(f"inferlab: strict: the output check is {text.output_check(check)}", err=True)
        return 5
    return 0


def _suggestion(benchmark: Benchmark) -> str:
    """What one would ask next: whether another engine is faster, or the other scenario; or to go on."""
    model, cell = benchmark.plan.model, benchmark.outcomes[0].cell
    if any(one.status in ("cancelled", "pending") for one in benchmark.outcomes):
        return f"inferlab benchmark --resume {benchmark.id}" if benchmark.id else ""
    if len(benchmark.outcomes) > 1:
        return f"inferlab recommend {model}"
    if cell.engine == "onnxruntime" and benchmark.model.kind == "onnx" and cell.rate is None:
        return f"inferlab compare {model} -e onnxruntime,openvino -s {cell.scenario} -ncores {cell.num_cores}"
    other = "async" if cell.scenario == "sync" else "sync"
    return f"inferlab benchmark {model} -e {cell.engine} -s {other}"
