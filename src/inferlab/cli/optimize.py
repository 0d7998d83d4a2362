"""`inferlab optimize MODEL -o out.onnx`: make the optimised model, measure it, and say what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import MODELS, Command, Log, Work, WritableFile, declared_options, measures
from inferlab.errors import BadInput
from inferlab.options.optimization import VERSION
from inferlab.options.plan import make_plan

if TYPE_CHECKING:
    from inferlab.records.optimization import Front, Optimization

_HELP = f"""Make an optimised version of MODEL, measure it against the original, and say what it cost.

\b
  inferlab optimize model.onnx -o out.onnx --sparsity 0.8 -e deepsparse
  inferlab optimize model.onnx -o out.onnx --int8 static --data inputs.npz
  inferlab optimize model.onnx -o out.onnx --sparsity 0.8 --int8 static --measure deepsparse,openvino
  inferlab optimize model.onnx -o out.onnx --budget 0.05 -e deepsparse
  inferlab optimize model.onnx -o out.onnx --profile ID --as-estimated
  inferlab optimize model.onnx -o again.onnx --recipe out.recipe.yaml
  inferlab optimize model.onnx -o out.onnx --goal "2x faster" --max-loss 1% -e openvino

The result is an ordinary ONNX file; its recipe stands beside it (out.recipe.yaml) and in its metadata.
docs/optimize.md explains recipes, patterns and what the numbers mean.

{MODELS}"""
_STRICT = "Outputs that are far from the original's, or wrong on an engine, are a failure (exit code 5)."
_PLOT = "Draw what the search found, as .html or .png."


@click.command("optimize", cls=Command, help=_HELP)
@click.argument("model")
@click.option("-o", "--output", "out", required=True, metavar="FILE", help="The ONNX file to write.")
@declared_options("optimize", VERSION)
@click.option("--plot", "plot_path", type=WritableFile(), help=_PLOT)
@click.option("--strict", is_flag=True, help=_STRICT)
@measures
def command(model: str, out: str, plot_path: Path | None, strict: bool, work: Work, **values: Any) -> int:
    """Parse, optimise, show."""
    from inferlab.optimizing.recipes import version_options
    from inferlab.views import results, tables
    from inferlab.views.charts import frame

    version = version_options(values, out)
    if plot_path:
        if version.goal is None:
            raise BadInput("--plot belongs to a search: give a --goal.")
        frame.check_ending(plot_path)
    # The first engine is the one that a profile is made on.
    plan = make_plan(model, {**values, "engine": values["engine"][:1]}, timed=False)
    front: Front | None = None
    optimization: Optimization | None = None
    with work.lab() as lab:
        if version.goal is None:
            optimization = lab.optimize(plan, version, work.log)
        else:
            front, optimization = lab.reach(plan, version, work.log, values["nearest"])
    record = optimization or front
    if record:
        work.show(
            record,
            tables.spaced(*(results.view_of(result).blocks() for result in (front, optimization) if result)),
        )
    if front and plot_path:
        _draw(front, plot_path, work.log)
    if optimization:
        work.say_saved(optimization.id)
        work.log.say(f"Next: {_suggestion(optimization)}")
    return work.exit_code(_exit_code(front, optimization, strict))


def _draw(front: Front, path: Path, log: Log) -> None:
    from inferlab.views.charts import frame, fronts

    if any(candidate.speedup is not None for candidate in front.candidates):
        frame.save(fronts.front(front), path)
        log.say(f"Chart written to {path}")
    else:
        log.say(f"{path} was not written: no recipe was measured.")


def _exit_code(front: Front | None, optimization: Optimization | None, strict: bool) -> int:
    """1 where the goal is missed by the second measurement, or by all that was tried; 4 where that is open."""
    from inferlab.optimizing.build import FAR_OFF
    from inferlab.optimizing.pareto import outcome

    if (front and front.interrupted) or (optimization and optimization.interrupted):
        return 130
    if front and outcome(front) == "missed":
        return 1
    if optimization and optimization.problems:
        return 3
    far_off = optimization is not None and any(finding.code == FAR_OFF for finding in optimization.findings)
    wrong = optimization is not None and any(
        measured.output_check.status == "mismatch" for measured in optimization.measured
    )
    if strict and (far_off or wrong):
        return 5
    return 4 if front and outcome(front) == "open" else 0


def _suggestion(optimization: Optimization) -> str:
    out = optimization.optimized.path
    unsure = next((measured for measured in optimization.measured if measured.verdict == "inconclusive"), None)
    if unsure is not None:
        return f"inferlab compare {optimization.model.source} {out} -e {unsure.engine} -s sync -t 60"
    engine = optimization.measured[0].engine if optimization.measured else "onnxruntime"
    return f"inferlab benchmark {out} -e {engine}"
