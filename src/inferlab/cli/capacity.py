"""`inferlab capacity MODEL --slo "p99<20ms"`: the highest rate that meets an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import (
    MODELS_OF_BOTH_KINDS,
    Command,
    Work,
    declared_options,
    measures,
    strict_code,
    strict_option,
    token_request,
)
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import PLAN, make_plan
from inferlab.records import Capacity

if TYPE_CHECKING:
    from inferlab.records.capacity import GenerationCapacity

_HELP = f"""Find the highest rate of requests at which MODEL meets a latency objective.

\b
  inferlab capacity model.onnx --slo "p99<20ms"
  inferlab capacity model.onnx --slo "mean<5ms" -e openvino
  inferlab capacity model.gguf --slo "ttft<500ms,tpot<50ms"    of a model that generates tokens

Requests arrive by a Poisson process, and their response time counts from then, the wait in the queue included.

{MODELS_OF_BOTH_KINDS}"""
_SLO = (
    "The objective: mean, median or a percentile of the response time, and its limit in us, ms or s; of a model "
    "that generates, limits of ttft, tpot or e2e that each request must meet."
)


@click.command("capacity", cls=Command, help=_HELP)
@click.argument("model")
@click.option("--slo", required=True, metavar='"p99<20ms"', help=_SLO)
@declared_options("capacity", PLAN)
@declared_options("capacity", ONLY_GENERATION)
@strict_option
@measures
def command(model: str, slo: str, strict: bool, work: Work, **values: Any) -> int:
    """Parse, search, show."""
    from inferlab.measure.queueing import parse_objective

    if request := token_request("capacity", model, slo, values):
        plan, of_generation = request
        with work.lab() as lab:
            return show_capacity(
                lab.generation_capacity(plan, of_generation["attainment"], work.log), strict, work
            )
    objective = parse_objective(slo)
    with work.lab() as lab:
        capacity = lab.capacity(make_plan(model, values), objective, work.log, live=work.log.live)
    return show_capacity(capacity, strict, work)


def show_capacity(capacity: Capacity | GenerationCapacity, strict: bool, work: Work) -> int:
    """Show the highest rate that was found; returns the exit code."""
    work.show(capacity)
    check = capacity.check if isinstance(capacity, Capacity) else capacity.agreement
    if capacity.interrupted and not isinstance(capacity, Capacity):
        work.say_resume(capacity.id)
    code = 130 if capacity.interrupted else strict_code([check]) if strict else 0
    if isinstance(capacity, Capacity) and code == 0:
        work.log.say(f"Next: {_suggestion(capacity)}")
    return work.exit_code(code)


def _suggestion(capacity: Capacity) -> str:
    """What one would ask next: that rate for longer, or, where there is none, how long a request takes."""
    from inferlab.measure.capacity import max_rate

    base = f"inferlab benchmark {capacity.model.source} -e {capacity.cell.engine}"
    rate = max_rate(capacity).value
    return f"{base} -s server --rate {rate:.1f} -t 60" if rate else f"{base} -s sync"
