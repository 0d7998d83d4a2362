"""`inferlab recommend MODEL`: find the best engine, cores, streams and batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import click

from inferlab.cli.command import MODELS_OF_BOTH_KINDS, Command, Work, declared_options, measures, token_request
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import PLAN, make_plan
from inferlab.records import FleetRecommendation, Recommendation

if TYPE_CHECKING:
    from inferlab.records.recommendation import GenerationRecommendation

    _Result: TypeAlias = Recommendation | FleetRecommendation | GenerationRecommendation

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
    from inferlab.measure.queueing import parse_objective

    if request := token_request("recommend", model, slo, values):
        plan, of_generation = request
        with work.lab() as lab:
            return _show(lab.recommend_generation(plan, of_generation["time"], work.log), work)
    objective = parse_objective(slo) if slo else None
    with work.lab() as lab:
        return _show(
            lab.recommend(make_plan(model, values, timed=False), objective, values["time"], work.log), work
        )


def _show(result: _Result, work: Work) -> int:
    work.show(result)
    if result.interrupted and not isinstance(result, Recommendation | FleetRecommendation):
        work.say_resume(result.id)
    return 130 if result.interrupted else work.exit_code(0 if _measured(result) else 3)


def _measured(result: _Result) -> bool:
    """Whether any configuration could be measured."""
    if isinstance(result, FleetRecommendation):
        return not all(machine.failure for machine in result.machines)
    if isinstance(result, Recommendation):
        return any(contender.rounds for contender in result.contenders)
    return any(outcome.runs for outcome in result.sweep.outcomes)
