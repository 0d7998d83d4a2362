"""`inferlab capacity MODEL --slo "p99<20ms"`: the highest rate that keeps a latency objective."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks

if TYPE_CHECKING:
    from inferlab.records import Capacity

_HELP = f"""Find the highest rate of requests at which MODEL keeps a latency objective.

\b
  inferlab capacity model.onnx --slo "p99<20ms"
  inferlab capacity model.onnx --slo "mean<5ms" -e openvino

Requests arrive by a Poisson process, and their response time counts from then, the wait in the queue included.

{MODELS}"""
_SLO = "The objective: mean, median or a percentile of the response time, and its limit in us, ms or s."
_PROCESSES = "Fresh processes that share the time; 1 gives no interval.  [default: 5, fewer where time is short]"


@click.command("capacity", help=_HELP)
@click.argument("model")
@click.option("--slo", required=True, metavar='"p99<20ms"', help=_SLO)
@plan_options("cell", "inputs", without=("scenario",), single=True)
@click.option("-t", "--time", "time_s", default=60.0, show_default=True, help="Seconds in all, loading included.")
@click.option("--processes", type=int, help=_PROCESSES)
@click.option("--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5).")
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(
    slo: str,
    export_path: Path | None,
    quiet: bool,
    strict: bool,
    store_url: str | None,
    no_save: bool,
    **given: Any,
) -> int:
    """Parse, search, show."""
    from inferlab.lab import Lab
    from inferlab.measure.queueing import parse_objective
    from inferlab.views import capacity as render
    from inferlab.views import files

    objective = parse_objective(slo)
    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        capacity = Lab(store).capacity(plan(given), objective, log, live=log.live)
    show_blocks(render.blocks(capacity))
    if export_path:
        log.export(export_path, lambda: views.write(capacity, export_path))
    code = _exit_code(capacity, strict)
    if code == 0:
        log.say(f"Next: {_suggestion(capacity)}")
    return log.exit_code(code)


def _exit_code(capacity: Capacity, strict: bool) -> int:
    from inferlab.views.text import output_check

    if capacity.interrupted:
        return 130
    check = capacity.check
    if strict and check.status != "match":
        click.echo(f"inferlab: strict: the output check is {output_check(check)}", err=True)
        return 5
    return 0


def _suggestion(capacity: Capacity) -> str:
    """What one would ask next: that rate for longer, or, where there is none, how long a request takes."""
    from inferlab.measure.capacity import max_rate

    base = f"inferlab benchmark {capacity.model.source} -e {capacity.cell.engine}"
    rate = max_rate(capacity).value
    return f"{base} -s server --rate {rate:.1f} -t 60" if rate else f"{base} -s sync"
