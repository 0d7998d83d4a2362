"""`inferlab recommend MODEL`: find the best engine, cores, streams and batch size."""

from __future__ import annotations

from typing import Any

import click

from inferlab.cli.command import MODELS, Command, Work, declared_options, measures
from inferlab.options.plan import PLAN, make_plan
from inferlab.records import FleetRecommendation, Recommendation

_SLO = (
    'A latency objective, such as "p99<20ms" or "median<3ms", for the time of a batch when all streams are busy.'
)
_HELP = f"""Find the best engine, cores, streams and batch size for MODEL.

What is not given is searched over; what is given limits the search.

{MODELS}"""


@click.command("recommend", cls=Command, help=_HELP)
@click.argument("model")
@click.option("--slo", metavar="OBJECTIVE", help=_SLO)
@declared_options("recommend", PLAN)
@measures
def command(model: str, slo: str | None, work: Work, **values: Any) -> int:
    """Parse, search, show."""
    from inferlab.measure.queueing import parse_objective

    objective = parse_objective(slo) if slo else None
    with work.lab() as lab:
        found = lab.recommend(make_plan(model, values, timed=False), objective, values["time"], work.log)
    work.show(found)
    return 130 if found.interrupted else work.exit_code(0 if _measured(found) else 3)


def _measured(found: Recommendation | FleetRecommendation) -> bool:
    """Whether any configuration could be measured."""
    if isinstance(found, FleetRecommendation):
        return not all(machine.failure for machine in found.machines)
    return any(contender.rounds for contender in found.contenders)
