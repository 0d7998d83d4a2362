"""`inferlab compare A B`: is the difference between two models, engines or settings real?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.command import (
    MODELS_OF_BOTH_KINDS,
    Command,
    Work,
    declared_options,
    given_values,
    measures,
    strict_agreement,
)
from inferlab.cli.terminal import show_blocks
from inferlab.errors import BadInput
from inferlab.options import Option
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import COMPARISON, PER_ARM
from inferlab.records import Plan
from inferlab.records.comparison import Comparison, ComparisonSweep

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records.generation_results import GenerationComparison

_HELP = f"""Is B faster than A? Both are measured interleaved, in fresh processes.

\b
  inferlab compare old.onnx new.onnx                       two models
  inferlab compare model.onnx -e onnxruntime,openvino      two engines
  inferlab compare model.onnx -e onnxruntime==1.22.1,onnxruntime==1.31.1 --layers
                                                           two releases, and which layers changed
  inferlab compare model.onnx --a num_cores=1 --b num_cores=2
  inferlab compare old.onnx new.onnx -s server --rate 50   response times to the same requests
  inferlab compare model.gguf -e llamacpp,openvino-genai --metric tpot
                                                           how fast two engines generate tokens
  inferlab compare monday.json friday.json                 two saved results (files, or ids of inferlab history),
                                                           of sweeps all cells that both have

The verdict speaks of B against A: faster, slower, same (within the margin) or inconclusive.

{MODELS_OF_BOTH_KINDS}"""
_ARM = "An option of arm {} alone, such as num_cores=2 or engine-option=spinning=0. May be repeated."
_LAYERS = "Profile both as well, and end with the layers that differ, for half as long again."
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
@declared_options("compare", ONLY_GENERATION)
@click.option("--a", "only_a", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("A"))
@click.option("--b", "only_b", multiple=True, metavar="OPTION=VALUE", help=_ARM.format("B"))
@click.option("--layers", is_flag=True, help=_LAYERS)
@click.option("--fail-if", type=click.Choice(["slower"]), help=_GATE)
@click.option("--strict", is_flag=True, help="Outputs that differ are a failure (exit code 5).")
@measures
def command(
    models: tuple[str, ...], layers: bool, strict: bool, fail_if: str | None, work: Work, **given: Any
) -> int:
    """Parse, compare, show."""
    own = [_settings(given.pop(name)) for name in ("only_a", "only_b")]
    chosen = given_values(click.get_current_context(), given)
    with work.lab() as lab:
        if not _are_saved(models, lab) and _concerns_tokens(models, chosen, own):
            if layers:
                raise BadInput("The layers of a model that generates tokens are not compared: leave out --layers.")
            compared = _compare_generations(models, chosen, own, lab, work)
            work.show(compared)
            return work.exit_code(generation_exit_code(compared, fail_if, strict))
        plans, comparison = _compare(models, given, own, layers, lab, work)
        work.show(comparison)
        if layers and not comparison.interrupted:
            _show_layers(plans, given["time"], lab, work)
    return work.exit_code(exit_code(comparison, fail_if, strict))


def _show_layers(plans: Sequence[Plan], time_s: float, lab: Lab, work: Work) -> None:
    """The layers that differ, of profiles of both arms."""
    from inferlab.views.profile_tables import diff_blocks

    diff = lab.compare_layers(plans[0], plans[1], time_s / 2, work.log)
    click.echo()
    show_blocks(diff_blocks(diff))


def _are_saved(models: Sequence[str], lab: Lab) -> bool:
    """Whether any of them is a saved result rather than a model."""
    from inferlab.views import flat

    return any(flat.is_file(name) or lab.has_entry(name) for name in models)


def _concerns_tokens(models: Sequence[str], chosen: dict[str, Any], own: Sequence[dict[str, Any]]) -> bool:
    """Whether the arms generate tokens."""
    from inferlab.lab.generation_results import concerns_tokens

    engines = tuple(engine for values in (chosen, *own) for engine in values.get("engine", ()))
    named = [str(settings["model"]) for settings in own if "model" in settings]
    return concerns_tokens((*models, *named), {**chosen, "engine": engines})


def _compare_generations(
    models: Sequence[str], chosen: dict[str, Any], own: Sequence[dict[str, Any]], lab: Lab, work: Work
) -> GenerationComparison:
    """How fast both arms generate the same tokens."""
    from inferlab.lab.generation_results import generation_arms
    from inferlab.options.generation import generation_values

    values = generation_values("compare", chosen)
    plans = generation_arms(models, values, own)
    work.need_engines(engine for plan in plans for engine in plan.engines)
    return lab.compare_generations(
        *plans, values["metric"], values["time"], values["margin"], work.log, fresh=values["fresh"]
    )


def _compare(
    models: tuple[str, ...],
    given: dict[str, Any],
    own: Sequence[dict[str, Any]],
    layers: bool,
    lab: Lab,
    work: Work,
) -> tuple[Sequence[Plan], Comparison | ComparisonSweep]:
    """The plans of both arms, none where saved results are compared, and what came out."""
    from inferlab.lab.comparison import arm_plans
    from inferlab.views import flat

    in_files = [flat.is_file(name) for name in models]
    are_saved = [in_file or lab.has_entry(name) for in_file, name in zip(in_files, models, strict=True)]
    if any(are_saved):
        if layers:
            raise BadInput("Layers are those of models that are measured now: name the models, not saved results.")
        if are_saved != [True, True]:
            raise BadInput("A saved result is compared with another one: inferlab compare a.json b.json")
        a, b = (
            flat.load_all(name) if in_file else lab.saved_results(name)
            for in_file, name in zip(in_files, models, strict=True)
        )
        return (), lab.compare_saved(a, b, given["margin"])
    plans = arm_plans(models, given, own)
    work.need_engines(engine for plan in plans for engine in plan.engines)
    return plans, lab.compare(*plans, given["time"], given["margin"], work.log, fresh=given["fresh"])


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


def exit_code(compared: Comparison | ComparisonSweep, fail_if: str | None, strict: bool) -> int:
    """What a comparison means for a pipeline."""
    results = [compared] if isinstance(compared, Comparison) else compared.results
    if compared.interrupted:
        return 130
    if strict and any(result.outputs_match is not True for result in results):
        return 5
    verdicts = {result.verdict for result in results} if fail_if else set()
    return 1 if "slower" in verdicts else 4 if "inconclusive" in verdicts else 0


def generation_exit_code(compared: GenerationComparison, fail_if: str | None, strict: bool) -> int:
    """What a comparison of generations means for a pipeline."""
    if compared.interrupted:
        return 130
    if strict and (code := strict_agreement(compared.agreements)):
        return code
    return {"slower": 1, "inconclusive": 4}.get(compared.verdict, 0) if fail_if else 0
