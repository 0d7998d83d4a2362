"""`inferlab benchmark MODEL`: measure how fast a model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inferlab.cli.options import MODELS, cell_options, plan
from inferlab.cli.parameters import Share
from inferlab.cli.progress import Log
from inferlab.records import Benchmark, Outcome

_PROCESSES = "Fresh processes that share the time; 1 gives no interval.  [default: 5, fewer where loading is long]"
_PRECISION = "Go on until the 95 % interval is ±1% (or so) narrow; --time is then the most."


@click.command("benchmark", help=f"Measure how fast MODEL runs.\n\n{MODELS}")
@click.argument("model")
@cell_options()
@click.option("-t", "--time", "time_s", default=10.0, show_default=True, help="Seconds to measure.")
@click.option("-w", "--warmup_time", "warmup_s", default=2.0, show_default=True, help="Seconds to warm up, or 0.")
@click.option("--processes", type=int, help=_PROCESSES)
@click.option("--precision", type=Share(), metavar="1%", help=_PRECISION)
@click.option("--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5).")
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help="Store the result in a JSON file.")
def command(export_path: Path | None, quiet: bool, strict: bool, **given: Any) -> int:
    """Parse, measure, show."""
    from inferlab.lab import Lab
    from inferlab.render import files

    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log:
        benchmark = Lab().benchmark(plan(given), log, live=log.live)
    code = _show(benchmark, benchmark.outcomes[0], strict)
    if export_path:
        files.write(export_path, files.to_json(benchmark))
        log.say(f"Saved to {export_path}")
    if code == 0:
        log.say(f"Next: {_suggestion(benchmark)}")
    return code


def _suggestion(benchmark: Benchmark) -> str:
    """What one would ask next: whether another engine is faster, or the other scenario."""
    model, cell = benchmark.plan.model, benchmark.outcomes[0].cell
    if cell.engine == "onnxruntime" and benchmark.model.kind == "onnx" and cell.rate is None:
        return f"inferlab compare {model} -e onnxruntime,openvino -s {cell.scenario} -ncores {cell.num_cores}"
    other = "async" if cell.scenario == "sync" else "sync"
    return f"inferlab benchmark {model} -e {cell.engine} -s {other}"


def _show(benchmark: Benchmark, outcome: Outcome, strict: bool) -> int:
    """Print the result and choose the exit code."""
    from inferlab.measure.check import worst
    from inferlab.render import text

    if outcome.runs:
        for line in text.result_lines(benchmark, outcome):
            click.echo(line)
    if outcome.failure:
        click.echo(f"inferlab: {outcome.failure.message}", err=True)
        return 2 if outcome.failure.code == "refused" else 3
    if not outcome.runs:
        click.echo("inferlab: interrupted before anything was measured", err=True)
        return 130
    if outcome.status == "cancelled":
        return 130
    check = worst([run.check for run in outcome.runs])
    if strict and check.status != "match":
        click.echo(f"inferlab: strict: the output check is {text.output_check(check)}", err=True)
        return 5
    return 0
