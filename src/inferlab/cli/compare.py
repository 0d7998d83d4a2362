"""`inferlab compare A B`: is the difference between two models, engines or settings real?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.parameters import Listed, Share
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.kinds import Pairs
from inferlab.options import KEYWORDS, PLAN, keywords
from inferlab.records import Comparison, Plan

if TYPE_CHECKING:
    from inferlab.store.store import Store

_HELP = f"""Is B faster than A? Both are measured interleaved, in fresh processes.

\b
  inferlab compare old.onnx new.onnx                       two models
  inferlab compare model.onnx -e onnxruntime,openvino      two engines
  inferlab compare model.onnx --a num_cores=1 --b num_cores=2
  inferlab compare monday.json friday.json                 two saved results (files, or ids of inferlab history)

The verdict speaks of B against A: faster, slower, same (within the margin) or inconclusive.

{MODELS}"""
_ARM = "An option of arm {} alone, such as num_cores=2 or engine-option=spinning=0. May be repeated."
_GATE = "Be a gate: exit 1 if B is slower, 4 if that is inconclusive, 0 otherwise."
#: What an arm may have of its own, by every long way to write it.
_OF_AN_ARM = {
    name.lstrip("-").replace("-", "_"): option
    for option in PLAN
    if option.group == "cell"
    for name in (*option.flags, option.keyword)
    if len(name.lstrip("-")) > 1
}


@click.command("compare", help=_HELP)
@click.argument("models", nargs=-1, required=True, metavar="A [B]")
@plan_options("cell", "inputs", without=("engine",), single=True)
@click.option(
    "-e",
    "--engine",
    type=Listed(KEYWORDS["engine"].kind),
    default="onnxruntime",
    show_default=True,
    help="One engine, or two separated by a comma: A's and B's.",
)
@click.option("--a", "only_a", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("A"))
@click.option("--b", "only_b", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("B"))
@click.option("-t", "--time", "time_s", default=60.0, show_default=True, help="Seconds in all, loading included.")
@click.option(
    "--margin", type=Share(), default="1%", show_default=True, help="Differences up to this do not matter."
)
@click.option("--fail-if", type=click.Choice(["slower"]), help=_GATE)
@click.option("--strict", is_flag=True, help="Outputs that differ are a failure (exit code 5).")
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(
    models: tuple[str, ...],
    export_path: Path | None,
    quiet: bool,
    strict: bool,
    fail_if: str | None,
    store_url: str | None,
    no_save: bool,
    **given: Any,
) -> int:
    """Parse, compare, show."""
    from inferlab.views import comparison as render
    from inferlab.views import files

    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        comparison = _compare(models, given, store, log)
    show_blocks(render.blocks(comparison))
    if export_path:
        log.export(export_path, lambda: views.write(comparison, export_path))
    return log.exit_code(_exit_code(comparison, fail_if, strict))


def _compare(models: tuple[str, ...], given: dict[str, Any], store: Store | None, log: Log) -> Comparison:
    from inferlab.lab import Lab
    from inferlab.views import flat

    lab = Lab(store)
    time_s, margin = given.pop("time_s"), given.pop("margin")
    in_files = [flat.is_file(name) for name in models]
    are_saved = [in_file or lab.has_entry(name) for in_file, name in zip(in_files, models, strict=True)]
    if any(are_saved):
        if are_saved != [True, True]:
            raise BadInput("A saved result is compared with another one: inferlab compare a.json b.json")
        a, b = (
            flat.load(name) if in_file else lab.saved_result(name)
            for in_file, name in zip(in_files, models, strict=True)
        )
        return lab.compare_saved(a, b, margin)
    return lab.compare(*_plans(models, given), time_s, margin, log)


def _plans(models: tuple[str, ...], given: dict[str, Any]) -> tuple[Plan, Plan]:
    """Both plans: what is common to them, then what is each one's own."""
    from inferlab.lab.comparison import arm_plans

    a, b = (_settings(given.pop(name), given["engine_options"]) for name in ("only_a", "only_b"))
    return arm_plans(models, given.pop("engine"), given, (a, b), plan)


def _settings(pairs: tuple[str, ...], common: tuple[str, ...]) -> dict[str, Any]:
    """All that is one arm's own; engine options add to the common ones."""
    settings: dict[str, Any] = {"engine_options": common}
    for name, value in map(_setting, pairs):
        if name == "engine_option":
            settings["engine_options"] += value
        else:
            settings[name] = value
    return settings


def _setting(pair: str) -> tuple[str, Any]:
    """One OPTION=VALUE of an arm."""
    name, equals, value = pair.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    if not equals or not value:
        raise BadInput(f"'{pair}' is not of the form OPTION=VALUE, such as num_cores=2.")
    if name == "model":
        return name, value
    option = _OF_AN_ARM.get(name)
    if option is None:
        known = ", ".join(sorted(["model", *keywords("cell")]))
        raise BadInput(f"An arm has no option '{name}'; it takes {known}.")
    if isinstance(option.kind, Pairs):
        return option.keyword, (value,)
    if not option.is_list:
        return option.parameter, value
    try:
        return option.parameter, Listed(option.kind).parse([value])
    except ValueError as error:
        raise BadInput(f"{option.keyword}={value}: {error}") from None


def _exit_code(comparison: Comparison, fail_if: str | None, strict: bool) -> int:
    if comparison.interrupted:
        return 130
    if strict and comparison.outputs_match is not True:
        return 5
    if fail_if is None:
        return 0
    return {"slower": 1, "inconclusive": 4}.get(comparison.verdict, 0)
