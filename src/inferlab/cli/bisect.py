"""`inferlab bisect MODEL`: in which release of an engine did it become slower, larger or wrong?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from inferlab.cli.command import MODELS, Command, Work, declared_options, measures, show_blocks
from inferlab.errors import BadInput, InferlabError
from inferlab.options import Share
from inferlab.options.plan import PLAN, make_plan
from inferlab.records.series import Bisection, BisectionMetric

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.lab.bisection import BisectionRequest

_HELP = f"""Find the release of an engine in which MODEL became worse.

\b
  inferlab bisect model.onnx -e onnxruntime --good 1.17.3 --bad 1.31.1
  inferlab bisect model.onnx -e onnxruntime --good 1.22.1 --bad 1.24.4 --metric memory

The bad release is compared with the good one, interleaved, then one in the middle, and so on. Every
comparison is saved; --resume takes those that were made before.

{MODELS}"""
_METRIC = "What became worse: the time, the peak memory, the time of loading, or the outputs."
_RESUME = "Take comparisons of the same releases that are saved already."


@click.command("bisect", cls=Command, help=_HELP)
@click.argument("model")
@declared_options("bisect", PLAN)
@click.option("--good", required=True, metavar="VERSION", help="A release that is as it should be.")
@click.option("--bad", required=True, metavar="VERSION", help="A release that is worse, newer or older.")
@click.option("--metric", type=click.Choice(get_args(BisectionMetric)), default="latency", help=_METRIC)
@click.option("--margin", default="3%", show_default=True, metavar="SHARE", help="A change is more than this.")
@click.option("--no-layers", "layers", is_flag=True, flag_value=False, default=True, help="Profile no layers.")
@click.option("--resume", is_flag=True, help=_RESUME)
@measures
def command(
    model: str,
    good: str,
    bad: str,
    metric: BisectionMetric,
    margin: str,
    layers: bool,
    resume: bool,
    work: Work,
    **values: Any,
) -> int:
    """Parse, search, show."""
    from inferlab.lab.bisection import BisectionRequest, most_comparisons, versions_between
    from inferlab.views import trend as view

    kind = Share()
    try:
        share = kind.limited("The margin", kind.read(margin)[0])
    except ValueError as error:
        raise BadInput(f"--margin: {error}") from None
    plan = make_plan(model, values, timed=False)
    request = BisectionRequest(plan, good, bad, metric, share, values["time"], resume)
    versions = versions_between(request)
    work.agree_to_releases(request.engine, most_comparisons(versions) + 1, versions)
    with work.lab() as lab:
        bisection = lab.bisect(request, lambda name: work.need_engines([name]), work.log)
        show_blocks(view.bisection_blocks(bisection))
        work.write_view(view.bisection_view(bisection))
        if layers and metric == "latency":
            _show_layers(request, bisection, lab, work)
    return work.exit_code(0)


def _show_layers(request: BisectionRequest, bisection: Bisection, lab: Lab, work: Work) -> None:
    """The layers that differ between the last good and the first bad release."""
    from dataclasses import replace

    from inferlab.views.layer_diff import diff_blocks

    good, bad = (
        replace(request.plan, engines=(f"{request.engine}=={version}",))
        for version in (bisection.last_good, bisection.first_bad)
    )
    try:
        diff = lab.compare_layers(good, bad, request.time_s, work.log)
    except InferlabError as error:
        click.echo(f"Its layers are not known: {error}", err=True)
        return
    show_blocks(diff_blocks(diff), below=True)
