"""`inferlab recommend MODEL`: find the best engine, cores, streams and batch size."""

from __future__ import annotations

from typing import Any

import click

from inferlab.cli.command import MODELS_OF_BOTH_KINDS, Command, Work, declared_options, given_values, measures
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import PLAN, make_plan
from inferlab.records import FleetRecommendation, Recommendation

_SLO = (
    'A latency objective, such as "p99<20ms" or "median<3ms", for the time of a batch when all streams are busy; '
    'of a model that generates, limits such as "ttft<500ms,tpot<50ms".'
)
_HELP = f"""Find the best engine, cores, streams and batch size for MODEL.

What is not given is searched over; what is given limits the search. Of a model that generates tokens it is the
engine, cores and batch size that generate most tokens per second.

{MODELS_OF_BOTH_KINDS}"""


@click.command("recommend", cls=Command, help=_HELP)
@click.argument("model")
@click.option("--slo", metavar="OBJECTIVE", help=_SLO)
@declared_options("recommend", PLAN)
@declared_options("recommend", ONLY_GENERATION)
@measures
def command(model: str, slo: str | None, work: Work, **values: Any) -> int:
    """Parse, search, show."""
    from inferlab.lab.generation_results import concerns_tokens
    from inferlab.measure.queueing import parse_objective

    given = given_values(click.get_current_context(), values)
    if concerns_tokens([model], given, slo or ""):
        return _of_generation(model, slo, work, given)
    objective = parse_objective(slo) if slo else None
    with work.lab() as lab:
        found = lab.recommend(make_plan(model, values, timed=False), objective, values["time"], work.log)
    work.show(found)
    return 130 if found.interrupted else work.exit_code(0 if _measured(found) else 3)


def _of_generation(model: str, slo: str | None, work: Work, given: dict[str, Any]) -> int:
    from inferlab.options.generation import GENERATION, generation_values, make_generation_plan

    values = generation_values("recommend", {**given, "slo": GENERATION["slo"].check(slo)})
    with work.lab() as lab:
        found = lab.recommend_generation(make_generation_plan(model, values), values["time"], work.log)
    work.show(found)
    if found.interrupted:
        return 130
    return work.exit_code(0 if any(outcome.runs for outcome in found.sweep.outcomes) else 3)


def _measured(found: Recommendation | FleetRecommendation) -> bool:
    """Whether any configuration could be measured."""
    if isinstance(found, FleetRecommendation):
        return not all(machine.failure for machine in found.machines)
    return any(contender.rounds for contender in found.contenders)
