"""`inferlab compare A B`: is the difference between two models, engines or settings real?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.options import MODELS, Command, declared_options
from inferlab.cli.work import Work, measures
from inferlab.errors import BadInput
from inferlab.options.option import Option
from inferlab.options.plan import COMPARISON, PER_ARM
from inferlab.records import Comparison, ComparisonSweep

if TYPE_CHECKING:
    from inferlab.lab import Lab

_HELP = f"""Is B faster than A? Both are measured interleaved, in fresh processes.

\b
  inferlab compare old.onnx new.onnx                       two models
  inferlab compare model.onnx -e onnxruntime,openvino      two engines
  inferlab compare model.onnx --a num_cores=1 --b num_cores=2
  inferlab compare monday.json friday.json                 two saved results (files, or ids of inferlab history),
                                                           of sweeps all cells that both have

The verdict speaks of B against A: faster, slower, same (within the margin) or inconclusive.

{MODELS}"""
_ARM = "An option of arm {} alone, such as num_cores=2 or engine-option=spinning=0. May be repeated."
_GATE = "Act as a gate: exit 1 if B is slower, 4 if that is inconclusive, 0 otherwise."
#: What an arm may have of its own, by every long way to write it.
_OF_AN_ARM = {
    name.lstrip("-").replace("-", "_"): option
    for option in PER_ARM.values()
    for name in (*option.flags, option.keyword)
    if len(name.lstrip("-")) > 1
}


@click.command("compare", cls=Command, help=_HELP)
@click.argument("models", nargs=-1, required=True, metavar="A [B]")
@declared_options("compare", COMPARISON)
@click.option("--a", "only_a", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("A"))
@click.option("--b", "only_b", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("B"))
@click.option("--fail-if", type=click.Choice(["slower"]), help=_GATE)
@click.option("--strict", is_flag=True, help="Outputs that differ are a failure (exit code 5).")
@measures
def command(models: tuple[str, ...], strict: bool, fail_if: str | None, work: Work, **given: Any) -> int:
    """Parse, compare, show."""
    with work.lab() as lab:
        comparison = _compare(models, given, lab, work)
    work.show(comparison)
    return work.exit_code(_exit_code(comparison, fail_if, strict))


def _compare(models: tuple[str, ...], given: dict[str, Any], lab: Lab, work: Work) -> Comparison | ComparisonSweep:
    from inferlab.lab.comparison import arm_plans
    from inferlab.views import flat

    own = [_settings(given.pop(name)) for name in ("only_a", "only_b")]
    in_files = [flat.is_file(name) for name in models]
    are_saved = [in_file or lab.has_entry(name) for in_file, name in zip(in_files, models, strict=True)]
    if any(are_saved):
        if are_saved != [True, True]:
            raise BadInput("A saved result is compared with another one: inferlab compare a.json b.json")
        a, b = (
            flat.load_all(name) if in_file else lab.saved_results(name)
            for in_file, name in zip(in_files, models, strict=True)
        )
        return lab.compare_saved(a, b, given["margin"])
    return lab.compare(*arm_plans(models, given, own), given["time"], given["margin"], work.log)


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """All that is one arm's own, by keyword."""
    settings: dict[str, Any] = {}
    repeated: dict[str, list[str]] = {}
    for pair in pairs:
        name, value = _pair(pair)
        option = _OF_AN_ARM.get(name)
        if name == "model":
            settings[name] = value
        elif option is None:
            known = ", ".join(sorted(["model", *PER_ARM]))
            raise BadInput(f"An arm has no option '{name}'; it takes {known}.")
        else:
            texts = repeated.setdefault(option.keyword, [])
            texts.append(value)
            settings[option.keyword] = _read(option, texts if option.many == "repeated" else value)
    return settings


def _pair(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not value:
        raise BadInput(f"'{pair}' is not of the form OPTION=VALUE, such as num_cores=2.")
    return name.strip().lstrip("-").replace("-", "_"), value


def _read(option: Option, given: str | list[str]) -> Any:
    try:
        return option.read(given)
    except ValueError as error:
        raise BadInput(f"{option.keyword}={given if isinstance(given, str) else given[-1]}: {error}") from None


def _exit_code(compared: Comparison | ComparisonSweep, fail_if: str | None, strict: bool) -> int:
    results = [compared] if isinstance(compared, Comparison) else compared.results
    if compared.interrupted:
        return 130
    if strict and any(one.outputs_match is not True for one in results):
        return 5
    verdicts = {one.verdict for one in results} if fail_if else set()
    return 1 if "slower" in verdicts else 4 if "inconclusive" in verdicts else 0
