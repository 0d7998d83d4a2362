"""`inferlab profile MODEL`: where its time goes, what pruning would gain, what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import (
    MODELS,
    Command,
    Work,
    WritableFile,
    declared_options,
    given_flags,
    measures,
    show_blocks,
)
from inferlab.errors import BadInput
from inferlab.options.optimization import PROFILE, make_profile
from inferlab.options.plan import make_plan
from inferlab.records import Plan
from inferlab.records.profile import BUDGET

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records.profile import Profile

_SHOWN_AGAIN = "A profile that was made before (its file, or its id of inferlab history) is shown again."
_HELP = f"""Where the time of MODEL goes layer by layer, what pruning would gain and what it would cost.

\b
  inferlab profile model.onnx -e deepsparse                with times at every sparsity level
  inferlab profile model.onnx --data inputs.npz --html report.html
  inferlab profile model.onnx --no-performance --no-loss   only what the architecture says
  inferlab profile old.json --budget 0.3                   a profile made before, for another budget
  inferlab profile new.json --against old.json             layer by layer

{MODELS} {_SHOWN_AGAIN}"""
_AGAINST = "Compare the layers with those of another profile: a file, or an id of inferlab history."
_SUMMARY = (
    "What the tables of layers have beside their times: 0.9 (a level), int8, channels-0.25, int8-channels-0.25, "
    "groups-1, estimated or speedup, as far as the profile has it."
)
#: What may be asked of a profile that was made before.
_OF_SAVED = (
    "model",
    "budget",
    "against",
    "summary_type",
    "store_url",
    "no_save",
    "quiet",
    "export_path",
    "html_path",
    "yes",
)


@click.command("profile", cls=Command, help=_HELP)
@click.argument("model")
@declared_options("profile", PROFILE)
# How --verify-estimate and --no-verify were written before.
@click.option("--verify", "verify_estimate_once", is_flag=True, hidden=True)
@click.option("--no-check", "check", is_flag=True, flag_value=False, default=True, hidden=True)
@click.option("--against", metavar="PROFILE", help=_AGAINST)
@click.option("--summary", "summary_type", metavar="TYPE", default="", help=_SUMMARY)
@measures
@click.option("--html", "html_path", type=WritableFile(), help="Write a report that opens offline.")
def command(
    model: str, against: str | None, summary_type: str, html_path: Path | None, work: Work, **values: Any
) -> int:
    """Parse, profile, show."""
    values["verify_estimate"] |= values.pop("verify_estimate_once")
    values["verify"] &= values.pop("check")
    with work.lab() as lab:
        other = lab.saved_profile(against) if against else None
        if lab.is_profile(model):
            profile, plan = _read(lab, model), None
        else:
            plan = make_plan(model, values, timed=False)
            profile = lab.profile(plan, make_profile(values), work.log)
        if summary_type:
            from inferlab.views.profile import blocks

            work.show(profile, blocks(profile, summary_type=summary_type))
        else:
            work.show(profile)
        if other is not None:
            from inferlab.profiling.diff import diff
            from inferlab.views.layer_diff import diff_blocks

            show_blocks(diff_blocks(diff(other, profile)), below=True)
    if html_path:
        work.write(html_path, profile, ".html", "Report written to")
    name = model if plan is None else profile.id if work.log.all_saved else ""
    if name and (suggestion := _suggestion(profile, plan, name, values["data"])):
        work.log.say(f"Next: {suggestion}")
    missing = profile.problems or (profile.performance and profile.performance.problems)
    return work.exit_code(130 if profile.interrupted else 3 if missing else 0)


def _suggestion(profile: Profile, plan: Plan | None, name: str, data: str | None) -> str:
    """The command that makes what was estimated; empty where nothing gains, or where no command can say it."""
    from inferlab.profiling.gains import estimated_recipe
    from inferlab.views import command as lines

    performance = profile.performance
    if profile.interrupted or performance is None:
        return ""
    if plan is None:
        plan = Plan(
            profile.model.source,
            engines=(performance.engine,),
            num_cores=(performance.num_cores,),
            batch_sizes=(performance.batch_size,),
        )
    budget = next((gain.budget for gain in profile.gains), BUDGET)
    try:
        estimated_recipe(profile)
        return lines.estimated(plan, name, None if budget == BUDGET else budget, data)
    except BadInput:
        return ""


def _read(lab: Lab, name: str) -> Profile:
    """A profile that was made before, with the estimate for the budget that is asked for now."""
    from inferlab.profiling.gains import with_estimate

    flags = given_flags(click.get_current_context())
    for option in (option for option in flags if option not in _OF_SAVED):
        raise BadInput(
            f"{name} is a profile that was made before; {flags[option]} would need a new one. "
            "Name the model to make it."
        )
    profile = lab.saved_profile(name)
    return with_estimate(profile, click.get_current_context().params["budget"]) if "budget" in flags else profile
