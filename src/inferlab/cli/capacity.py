"""`inferlab capacity MODEL --slo "p99<20ms"`: the highest rate that meets an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import (
    MODELS_OF_BOTH_KINDS,
    Command,
    Work,
    declared_options,
    given_values,
    measures,
    strict_agreement,
    strict_code,
    strict_option,
)
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import PLAN, make_plan

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records import Capacity
    from inferlab.records.generation import GenerationPlan

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
    from inferlab.lab.generation_results import concerns_tokens
    from inferlab.measure.queueing import parse_objective

    given = given_values(click.get_current_context(), values)
    if concerns_tokens([model], given, slo):
        return _of_generation(model, slo, strict, work, given)
    objective = parse_objective(slo)
    with work.lab() as lab:
        capacity = lab.capacity(make_plan(model, values), objective, work.log, live=work.log.live)
    work.show(capacity)
    code = 130 if capacity.interrupted else strict_code(capacity.check) if strict else 0
    if code == 0:
        work.log.say(f"Next: {_suggestion(capacity)}")
    return work.exit_code(code)


def _of_generation(model: str, slo: str, strict: bool, work: Work, given: dict[str, Any]) -> int:
    from inferlab.options.generation import GENERATION, generation_values, make_generation_plan

    values = generation_values("capacity", {**given, "slo": GENERATION["slo"].check(slo)})
    with work.lab() as lab:
        return search_rate(make_generation_plan(model, values), values["attainment"], strict, lab, work)


def search_rate(plan: GenerationPlan, attainment: float, strict: bool, lab: Lab, work: Work) -> int:
    """Search the highest rate of requests of which enough meet the plan's objective, and show it."""
    capacity = lab.generation_capacity(plan, attainment, work.log)
    work.show(capacity)
    code = 130 if capacity.interrupted else strict_agreement([capacity.agreement]) if strict else 0
    return work.exit_code(code)


def _suggestion(capacity: Capacity) -> str:
    """What one would ask next: that rate for longer, or, where there is none, how long a request takes."""
    from inferlab.measure.capacity import max_rate

    base = f"inferlab benchmark {capacity.model.source} -e {capacity.cell.engine}"
    rate = max_rate(capacity).value
    return f"{base} -s server --rate {rate:.1f} -t 60" if rate else f"{base} -s sync"
