"""`inferlab optimize MODEL -o out.onnx`: make the optimised model, measure it, and say what it cost."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.parameters import Levelled, Listed
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.kinds import Word

if TYPE_CHECKING:
    from inferlab.optimizing.options import VersionOptions
    from inferlab.records.optimization import Front, Optimization

_WITHOUT = ("scenario", "num_streams", "instances", "stream_mode", "verify")
_HELP = f"""Make an optimised version of MODEL, measure it against the original, and say what it cost.

\b
  inferlab optimize model.onnx -o out.onnx --sparsity 0.8 -e deepsparse
  inferlab optimize model.onnx -o out.onnx --int8 static --data inputs.npz
  inferlab optimize model.onnx -o out.onnx --sparsity 0.8 --int8 static --measure deepsparse,openvino
  inferlab optimize model.onnx -o out.onnx --budget 0.05 -e deepsparse
  inferlab optimize model.onnx -o again.onnx --recipe out.recipe.yaml
  inferlab optimize model.onnx -o out.onnx --goal "2x faster" --max-loss 1% -e openvino

The result is an ordinary ONNX file; its recipe stands beside it (out.recipe.yaml) and in its metadata.
docs/optimize.md explains recipes, patterns and what the numbers mean.

{MODELS}"""
_SPARSITY = "Share of weights to make zero, the smallest first, such as 0.8."
_SCOPE = "The sparsity of each layer alike, or of all weights together with one threshold."
_PATTERN = "unstructured, block4, N:M such as 2:4, or channel: whole channels go, and tensors shrink."
_LAYER = "The sparsity of layers by the name of a weight or node, or a regular expression. May be repeated."
_INCLUDE = "Prune only these layers, by name or regular expression. May be repeated."
_EXCLUDE = "Leave these layers as they are, pruned and quantised neither. May be repeated."
_BUDGET = "The loss that pruning may cost; profiles of the model then choose each layer's sparsity."
_PROFILE = (
    "A profile made before (its file or id), to take the times and losses of a --budget and the estimate from."
)
_DATA = (
    "Your inputs by name, with 'labels' if there are any, for ranges, output distance, accuracy; or demo:digits."
)
_KEEP = "Leave this many layers that lose most by it in their precision; each is tried alone."
_MEASURE = "Engines to compare it with the original on, or none.  [default: the engine of -e]"
_TIME = "Seconds of measuring for each comparison and each profile; with loading up to three times as long."
_GOAL = 'Try recipes until one reaches this: "2x faster", "30% faster", "2x smaller", or several with commas.'
_MAX_LOSS = (
    "Loss that the goal may cost: of the accuracy where --data has labels, else of the outputs.  [default: 1%]"
)
_STRICT = "Outputs that are far from the original's, or wrong on an engine, are a failure (exit code 5)."
_NEAREST = "Where the goal is not reached, make what comes nearest to it within the loss."
_PLOT = "Draw what the search found, as .html or .png."
_FULL = click.FloatRange(0, 1)


@click.command("optimize", help=_HELP)
@click.argument("model")
@click.option("-o", "--output", "out", required=True, metavar="FILE", help="The ONNX file to write.")
@click.option("--name", help="What the version is called.  [default: the name of the file]")
@click.option("--sparsity", type=click.FloatRange(0, 1, min_open=True, max_open=True), help=_SPARSITY)
@click.option(
    "--scope", type=click.Choice(["uniform", "global"]), default="uniform", show_default=True, help=_SCOPE
)
@click.option("--pattern", default="unstructured", show_default=True, help=_PATTERN)
@click.option("--layer", "layers", type=Levelled(), multiple=True, metavar="NAME=LEVEL", help=_LAYER)
@click.option("--include", multiple=True, metavar="NAME", help=_INCLUDE)
@click.option("--exclude", multiple=True, metavar="NAME", help=_EXCLUDE)
@click.option("--min", "minimum", type=_FULL, default=0.0, show_default=True, help="Least sparsity of a layer.")
@click.option("--max", "maximum", type=_FULL, default=1.0, show_default=True, help="Highest sparsity of a layer.")
@click.option("--ends", is_flag=True, help="Prune the first and the last layer too.")
@click.option("--budget", type=float, help=_BUDGET)
@click.option("--profile", "profile_id", metavar="PROFILE", help=_PROFILE)
@click.option("--int8", type=click.Choice(["dynamic", "static"]), help="Compute in INT8.")
@click.option(
    "--weights-only", type=click.Choice([8, 4]), help="Store weights in so many bits, compute in floats."
)
@click.option("--float", type=click.Choice(["fp16", "bf16"]), help="Compute in half precision.")
@click.option("--keep-sensitive", type=click.IntRange(min=0), default=0, metavar="N", help=_KEEP)
@click.option("--per-tensor", is_flag=True, help="One scale a tensor in INT8, not one a channel.")
@click.option(
    "--no-cleanup",
    "cleanup",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not fold constants or remove dead nodes.",
)
@click.option("--data", "data_file", metavar="FILE.npz", help=_DATA)
@click.option("--recipe", metavar="FILE.yaml", help="Repeat a recipe, or do what you wrote in one.")
@click.option("--goal", metavar="TEXT", help=_GOAL)
@click.option("--max-loss", metavar="SHARE", help=_MAX_LOSS)
@click.option("--search-time", "search_s", type=float, help="Seconds that the search may take.  [default: 300]")
@click.option("--nearest", is_flag=True, help=_NEAREST)
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help=_PLOT)
@click.option("--measure", "engines", type=Listed(Word()), metavar="ENGINES", help=_MEASURE)
@plan_options("cell", "inputs", without=_WITHOUT)
@click.option("-t", "--time", "time_s", default=10.0, show_default=True, help=_TIME)
@click.option("--strict", is_flag=True, help=_STRICT)
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(
    model: str,
    store_url: str | None,
    no_save: bool,
    quiet: bool,
    export_path: Path | None,
    nearest: bool,
    plot_path: Path | None,
    strict: bool,
    **given: Any,
) -> int:
    """Parse, optimise, show."""
    from inferlab.lab import Lab
    from inferlab.views import files, tables
    from inferlab.views import optimization as render

    if export_path:
        files.check_writable(export_path)
    asked = _asked(given)
    _check_search(asked, nearest, plot_path)
    front: Front | None = None
    found: Optimization | None = None
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        if asked.goal is None:
            found = Lab(store).optimize(plan({"model": model, **given}), asked, log)
        else:
            front, found = Lab(store).reach(plan({"model": model, **given}), asked, log, nearest)
    shown = (render.front_blocks(front) if front else [], render.blocks(found) if found else [])
    show_blocks(tables.spaced(*shown))
    record = found or front
    if export_path and record:
        log.export(export_path, lambda: views.write(record, export_path))
    if front and plot_path:
        _draw(front, plot_path, log)
    if found:
        _suggest(found, log)
    return log.exit_code(_exit_code(front, found, strict))


def _check_search(asked: VersionOptions, nearest: bool, plot_path: Path | None) -> None:
    """Refuse what belongs to a search where there is none, and a chart that could not be written."""
    from inferlab.views import charts, files

    if asked.goal is None and (nearest or plot_path):
        raise BadInput(f"{'--nearest' if nearest else '--plot'} belongs to a search: give a --goal.")
    if plot_path:
        charts.check_ending(plot_path)
        files.check_place(plot_path)


def _draw(front: Front, path: Path, log: Log) -> None:
    from inferlab.views import charts
    from inferlab.views.charts import fronts

    if any(one.speedup is not None for one in front.candidates):
        charts.save(fronts.front(front), path)
        log.say(f"Chart written to {path}")
    else:
        log.say(f"{path} was not written: no recipe was measured.")


def _exit_code(front: Front | None, found: Optimization | None, strict: bool) -> int:
    """1 where the goal is missed by the second measurement, or by all that was tried; 4 where that is open."""
    from inferlab.optimizing.build import FAR_OFF
    from inferlab.optimizing.pareto import outcome

    if (front and front.interrupted) or (found and found.interrupted):
        return 130
    if front and outcome(front) == "missed":
        return 1
    if found and found.problems:
        return 3
    far_off = found is not None and any(one.code == FAR_OFF for one in found.findings)
    wrong = found is not None and any(one.output_check.status == "mismatch" for one in found.measured)
    if strict and (far_off or wrong):
        return 5
    return 4 if front and outcome(front) == "open" else 0


def _asked(given: dict[str, Any]) -> VersionOptions:
    """What these options ask for; those of a plan are left in `given`."""
    from inferlab.optimizing.options import VersionOptions
    from inferlab.optimizing.recipe import Options, recipe_of, search_of

    options = {one.name: given.pop(one.name) for one in fields(Options)}
    options["layers"] = dict(options["layers"])
    out, name, profile_id = given.pop("out"), given.pop("name"), given.pop("profile_id")
    engines = given.pop("engines") or given["engine"]
    # The first engine is the one that a profile is made on.
    given["engine"] = given["engine"][:1]
    return VersionOptions(
        recipe=recipe_of(Options(**options), given["seed"]),
        out=out,
        name=name or "",
        data_file=given.pop("data_file"),
        engines=() if engines == ("none",) else engines,
        time_s=given.pop("time_s"),
        performance_id=profile_id,
        loss_id=profile_id,
        **search_of(*(given.pop(name) for name in ("goal", "max_loss", "search_s"))),
    )


def _suggest(found: Optimization, log: Log) -> None:
    out = found.optimized.path
    if found.id and log.all_saved:
        log.say(f"Saved as {found.id}: inferlab show {found.id}")
    engine = found.measured[0].engine if found.measured else "onnxruntime"
    unsure = next((one for one in found.measured if one.verdict == "inconclusive"), None)
    if unsure is not None:
        log.say(f"Next: inferlab compare {found.model.source} {out} -e {unsure.engine} -s sync -t 60")
    else:
        log.say(f"Next: inferlab benchmark {out} -e {engine}")
