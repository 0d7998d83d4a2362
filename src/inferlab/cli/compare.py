"""`inferlab compare A B`: is the difference between two models, engines or settings real?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inferlab.cli.options import MODELS, cell_options, plan
from inferlab.cli.parameters import Share
from inferlab.cli.progress import Log
from inferlab.errors import BadInput
from inferlab.records import Comparison, Plan

_HELP = f"""Is B faster than A? Both are measured in turns, in fresh processes.

\b
  inferlab compare old.onnx new.onnx                       two models
  inferlab compare model.onnx -e onnxruntime,openvino      two engines
  inferlab compare model.onnx --a num_cores=1 --b num_cores=2
  inferlab compare monday.json friday.json                 two saved results

The verdict speaks of B against A: faster, slower, same (within the margin) or inconclusive.

{MODELS}"""
_ARM = "An option of arm {} alone, such as num_cores=2 or engine-option=spinning=0. May be repeated."
_GATE = "Be a gate: exit 1 if B is slower, 4 if that is inconclusive, 0 otherwise."
_WHOLE = ("model", "engine", "input_shapes", "scenario", "thread_pinning", "stream_mode")
_NUMBERS = ("batch_size", "sequence_length", "num_cores", "num_streams", "instances")
_SHORT = {"ncores": "num_cores", "nstreams": "num_streams", "shapes": "input_shapes", "pin": "thread_pinning"}


@click.command("compare", help=_HELP)
@click.argument("models", nargs=-1, required=True, metavar="A [B]")
@cell_options(without=("engine", "rate"))
@click.option(
    "-e",
    "--engine",
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
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help="Store the comparison in a JSON file.")
def command(
    models: tuple[str, ...], export_path: Path | None, quiet: bool, strict: bool, fail_if: str | None, **given: Any
) -> int:
    """Parse, compare, show."""
    from inferlab.render import comparison as render
    from inferlab.render import files

    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log:
        comparison = _compare(models, given, log)
    for line in render.lines(comparison):
        click.echo(line)
    if export_path:
        files.write(export_path, render.to_json(comparison))
        log.say(f"Saved to {export_path}")
    return _exit_code(comparison, fail_if, strict)


def _compare(models: tuple[str, ...], given: dict[str, Any], log: Log) -> Comparison:
    from inferlab.lab import Lab
    from inferlab.measure.saved import compare_saved, is_saved, load

    time_s, margin = given.pop("time_s"), given.pop("margin")
    saved = [is_saved(name) for name in models]
    if any(saved):
        if len(models) != 2 or not all(saved):
            raise BadInput("A saved result is compared with another one: inferlab compare a.json b.json")
        return compare_saved(load(models[0]), load(models[1]), margin)
    a, b = _arms(models, given)
    if a == b:
        log.say("Both arms are the same: this measures how small a difference can be seen here.")
    return Lab().compare(a, b, _labels(a, b), time_s, margin, log)


def _arms(models: tuple[str, ...], given: dict[str, Any]) -> tuple[Plan, Plan]:
    """Both plans: what is common to them, then what is each one's own."""
    if len(models) > 2:
        raise BadInput(f"Two models are compared, not {len(models)}: {', '.join(models)}.")
    own = [_settings(given.pop(name)) for name in ("only_a", "only_b")]
    engines = given.pop("engine").split(",")
    if len(engines) > 2:
        raise BadInput(f"Two engines are compared, not {len(engines)}: {', '.join(engines)}.")
    arms = []
    for index, settings in enumerate(own):
        arm = {
            **given,
            "model": models[min(index, len(models) - 1)],
            "engine": engines[min(index, len(engines) - 1)],
        }
        arm["engine_options"] = (*given["engine_options"], *settings.pop("engine_option", ()))
        arms.append(plan({**arm, **settings}))
    return arms[0], arms[1]


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """All that is one arm's own; engine options add up."""
    settings: dict[str, Any] = {}
    for name, value in map(_setting, pairs):
        settings[name] = (*settings.get(name, ()), *value) if name == "engine_option" else value
    return settings


def _setting(pair: str) -> tuple[str, Any]:
    """One OPTION=VALUE of an arm."""
    name, equals, value = pair.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    name = _SHORT.get(name, name)
    if not equals or not value:
        raise BadInput(f"'{pair}' is not of the form OPTION=VALUE, such as num_cores=2.")
    if name == "engine_option":
        return name, (value,)
    if name in _WHOLE:
        return name, value
    if name not in _NUMBERS:
        known = ", ".join(sorted([*_WHOLE, *_NUMBERS, "engine_option"]))
        raise BadInput(f"An arm has no option '{name}'; it takes {known}.")
    try:
        return name, int(value)
    except ValueError:
        raise BadInput(f"{name}={value}: '{value}' is not a whole number.") from None


def _labels(a: Plan, b: Plan) -> tuple[str, str]:
    """What tells the arms apart, or the model where nothing does."""
    told = []
    for one, other in ((a, b), (b, a)):
        differing = [
            _value(getattr(one, name)) if name in ("model", "engines") else f"{name}={_value(getattr(one, name))}"
            for name in Plan.__slots__
            if getattr(one, name) != getattr(other, name)
        ]
        told.append(", ".join(differing) or one.model)
    return told[0], told[1]


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_value(one) if not isinstance(one, tuple) else "=".join(one) for one in value)
    return "default" if value is None else str(value)


def _exit_code(comparison: Comparison, fail_if: str | None, strict: bool) -> int:
    if comparison.interrupted:
        return 130
    if strict and comparison.outputs_match is not True:
        return 5
    if fail_if is None:
        return 0
    return {"slower": 1, "inconclusive": 4}.get(comparison.verdict, 0)
