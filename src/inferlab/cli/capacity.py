"""`inferlab capacity MODEL --slo "p99<20ms"`: the highest rate that meets a latency objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import MODELS, Command, Work, declared_options, measures, strict_code, strict_option
from inferlab.options.plan import PLAN, make_plan

if TYPE_CHECKING:
    from inferlab.records import Capacity

_HELP = f"""Find the highest rate of requests at which MODEL meets a latency objective.

\b
  inferlab capacity model.onnx --slo "p99<20ms"
  inferlab capacity model.onnx --slo "mean<5ms" -e openvino

Requests arrive by a Poisson process, and their response time counts from then, the wait in the queue included.

{MODELS}"""
_SLO = "The objective: mean, median or a percentile of the response time, and its limit in us, ms or s."


@click.command("capacity", cls=Command, help=_HELP)
@click.argument("model")
@click.option("--slo", required=True, metavar='"p99<20ms"', help=_SLO)
@declared_options("capacity", PLAN)
@strict_option
@measures
def command(model: str, slo: str, strict: bool, work: Work, **values: Any) -> int:
    """Parse, search, show."""
    from inferlab.measure.queueing import parse_objective

    objective = parse_objective(slo)
    with work.lab() as lab:
        capacity = lab.capacity(make_plan(model, values), objective, work.log, live=work.log.live)
    work.show(capacity)
    code = 130 if capacity.interrupted else strict_code(capacity.check) if strict else 0
    if code == 0:
        work.log.say(f"Next: {_suggestion(capacity)}")
    return work.exit_code(code)


def _suggestion(capacity: Capacity) -> str:
    """What one would ask next: that rate for longer, or, where there is none, how long a request takes."""
    from inferlab.measure.capacity import max_rate

    base = f"inferlab benchmark {capacity.model.source} -e {capacity.cell.engine}"
    rate = max_rate(capacity).value
    return f"{base} -s server --rate {rate:.1f} -t 60" if rate else f"{base} -s sync"
