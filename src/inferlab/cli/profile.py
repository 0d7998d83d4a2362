"""`inferlab profile MODEL`: where its time goes, what pruning would buy, what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.parameters import Listed
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.kinds import Levels

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.profiling.options import ProfileOptions
    from inferlab.records.profile import Profile

_WITHOUT = ("scenario", "num_streams", "instances", "stream_mode")
_SHOWN_AGAIN = "A profile that was made before (its file, or its id of inferlab history) is shown again."
_HELP = f"""Where the time of MODEL goes layer by layer, what pruning would buy, what it would cost.

\b
  inferlab profile model.onnx -e deepsparse                with times at every level of pruning
  inferlab profile model.onnx --data inputs.npz --html report.html
  inferlab profile model.onnx --no-performance --no-loss   only what the architecture says
  inferlab profile old.json --budget 0.3                   a profile made before, for another budget
  inferlab profile new.json --against old.json             layer by layer

{MODELS} {_SHOWN_AGAIN}"""
_LEVELS = "Shares of zeros to measure times at: 0.6,0.9, all or none.  [default: all where the engine imposes it]"
_DATA = "Your inputs by name, with 'labels' if there are any, for the loss profile and --int8; or demo:digits."
_BUDGET = "The loss that the estimated pruning may cost; docs/profiles.md says what a loss is."
_AGAINST = "Compare the layers with those of another profile: a file, or an id of inferlab history."
_VERIFY = "Make the estimated model, measure it, and show both side by side."
_TIME = "Seconds of measuring times for each part, at most."


@click.command("profile", help=_HELP)
@click.argument("model")
@click.option("--performance/--no-performance", default=True, help="Measure the layers' times.  [default: on]")
@click.option("--loss/--no-loss", default=True, help="Measure what pruning each layer costs.  [default: on]")
@click.option("--performance-name", default="baseline", show_default=True, help="Of the performance profile.")
@click.option("--loss-name", default="baseline", show_default=True, help="Of the loss profile.")
@click.option("--levels", type=Listed(Levels()), metavar="LEVELS", help=_LEVELS)
@click.option("--int8", is_flag=True, help="Measure a copy in INT8 too, really quantised.")
@click.option("--roofline", is_flag=True, help="Measure this machine's ceilings, and what limits each layer.")
@click.option("--data", "data_file", metavar="FILE.npz", help=_DATA)
@click.option("--budget", type=float, default=0.1, show_default=True, help=_BUDGET)
@click.option("--verify-estimate", "verify_estimate", is_flag=True, help=_VERIFY)
@click.option("--verify", "verify_estimate_once", is_flag=True, hidden=True)
@click.option("--against", metavar="PROFILE", help=_AGAINST)
@plan_options("cell", "inputs", without=_WITHOUT, single=True)
@click.option("--no-check", "check", is_flag=True, flag_value=False, default=True, hidden=True)
@click.option("-t", "--time", "time_s", default=10.0, show_default=True, help=_TIME)
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a report that opens offline.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    against: str | None,
    store_url: str | None,
    no_save: bool,
    quiet: bool,
    export_path: Path | None,
    html_path: Path | None,
    **given: Any,
) -> int:
    """Parse, profile, show."""
    from inferlab.lab import Lab
    from inferlab.views import files, results
    from inferlab.views import profile as render

    if export_path:
        files.check_writable(export_path)
    if html_path:
        files.check_place(html_path)
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        lab = Lab(store)
        other = lab.saved_profile(against) if against else None
        found = _read(lab, model, ctx) if lab.is_profile(model) else _made(lab, model, given, log)
        show_blocks(render.blocks(found))
        if other is not None:
            from inferlab.views.profile_tables import diff_blocks

            click.echo()
            show_blocks(diff_blocks(lab.layer_diff(other, found)))
    if export_path:
        log.export(export_path, lambda: views.write(found, export_path))
    if html_path:
        log.export(html_path, lambda: files.write(html_path, results.render(found, ".html")), "Report written to")
    missing = found.problems or (found.performance and found.performance.problems)
    return log.exit_code(130 if found.interrupted else 3 if missing else 0)


def _made(lab: Lab, model: str, given: dict[str, Any], log: Log) -> Profile:
    wanted = _wanted(given)
    # --no-check is how --no-verify was written before.
    verify = given.pop("check") and given.pop("verify")
    return lab.profile(plan({"model": model, **given, "verify": verify}), wanted, log)


def _wanted(given: dict[str, Any]) -> ProfileOptions:
    from inferlab.profiling.options import ProfileOptions

    own = {name: given.pop(name) for name in ProfileOptions.__slots__ if name not in ("verify", "approximate")}
    # --verify is how --verify-estimate was written before.
    verify = [given.pop(name) for name in ("verify_estimate", "verify_estimate_once")]
    return ProfileOptions(**own, verify=any(verify), approximate=own["loss"])


def _read(lab: Lab, name: str, ctx: click.Context) -> Profile:
    """A profile that was made before, with the estimate for the budget that is asked for now."""
    from inferlab.profiling.estimate import with_estimate

    allowed = ("model", "budget", "against", "store_url", "no_save", "quiet", "export_path", "html_path")
    for one in ctx.command.params:
        asked = ctx.get_parameter_source(one.name or "")
        if one.name not in allowed and asked is not None and asked.name == "COMMANDLINE":
            raise BadInput(
                f"{name} is a profile that was made before; {max(one.opts, key=len)} would need a new one. "
                "Name the model to make it."
            )
    found = lab.saved_profile(name)
    source = ctx.get_parameter_source("budget")
    return with_estimate(found, ctx.params["budget"]) if source and source.name == "COMMANDLINE" else found
