"""`inferlab compare A B`: is the difference between two models, engines or settings real?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from inferlab.cli.command import (
    MODELS_OF_BOTH_KINDS,
    Command,
    Work,
    declared_options,
    given_values,
    measures,
    show_blocks,
    strict_code,
)
from inferlab.errors import BadInput, EngineFailed
from inferlab.options import Option
from inferlab.options.generation import ONLY_GENERATION
from inferlab.options.plan import COMPARISON, PER_ARM
from inferlab.records import Plan
from inferlab.records.comparison import (
    ComparedMetric,
    Comparison,
    ComparisonSweep,
    GenerationComparison,
    GenerationComparisonSweep,
)

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.measure.unpaired import SavedResult

_Compared: TypeAlias = Comparison | ComparisonSweep | GenerationComparison | GenerationComparisonSweep
_SWEEPS = (ComparisonSweep, GenerationComparisonSweep)

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
    models: tuple[str, ...], layers: bool, strict: bool, fail_if: str | None, work: Work, **values: Any
) -> int:
    """Parse, compare, show."""
    from inferlab.lab.comparison import arm_plans
    from inferlab.lab.lab import concerns_tokens
    from inferlab.measure.unpaired import compare_sweeps
    from inferlab.views import results

    own = [_settings(values.pop(name)) for name in ("only_a", "only_b")]
    plans: tuple[Plan, ...] = ()
    with work.lab() as lab:
        if any(results.is_file(name) or lab.has_entry(name) for name in models):
            if layers:
                raise BadInput(
                    "Layers are those of models that are measured now: name the models, not saved results."
                )
            compared: _Compared = compare_sweeps(*_saved_results(models, lab, values["metric"]), values["margin"])
        elif concerns_tokens(models, chosen := given_values(values), own=own):
            if layers:
                raise BadInput("The layers of a model that generates tokens are not compared: leave out --layers.")
            compared = _compare_generations(models, chosen, own, lab, work)
        else:
            plans = arm_plans(models, values, own)
            work.need_engines(engine for plan in plans for engine in plan.engines)
            compared = _compare_calls(plans, layers, lab, work, values)
        if isinstance(compared, _SWEEPS) and compared.failures and not compared.results:
            raise EngineFailed(compared.failures[0].message)
        work.show(compared)
        for result in compared.results if isinstance(compared, GenerationComparisonSweep) else (compared,):
            if isinstance(result, GenerationComparison) and result.interrupted:
                work.say_resume(result.id)
        if layers and not compared.interrupted:
            from inferlab.views.layer_diff import diff_blocks

            diff = lab.compare_layers(plans[0], plans[1], values["time"] / 2, work.log)
            show_blocks(diff_blocks(diff), below=True)
    return work.exit_code(exit_code(compared, fail_if, strict))


def _compare_calls(
    plans: tuple[Plan, ...], layers: bool, lab: Lab, work: Work, values: Mapping[str, Any]
) -> Comparison | ComparisonSweep:
    """How long both arms take for a call, at each of their core counts and batch sizes."""
    from inferlab.lab.comparison import split

    a, b = plans
    several = len(split(a, b)) > 1
    if layers and several:
        raise BadInput(
            "The layers of one cell are compared: give one value of each option, or leave out --layers."
        )
    compare = lab.compare_all if several else lab.compare
    return compare(a, b, values["time"], values["margin"], work.log, fresh=values["fresh"])


def _saved_results(
    models: Sequence[str], lab: Lab, metric: ComparedMetric
) -> tuple[list[SavedResult], list[SavedResult]]:
    """What was measured before, of two files or entries of the store."""
    from inferlab.views import benchmark_file, results

    if len(models) != 2 or not all(results.is_file(name) or lab.has_entry(name) for name in models):
        raise BadInput("A saved result is compared with another one: inferlab compare a.json b.json")
    a, b = (
        benchmark_file.load_all(name, metric) if results.is_file(name) else lab.saved_results(name, metric)
        for name in models
    )
    return a, b


def _compare_generations(
    models: Sequence[str], chosen: dict[str, Any], own: Sequence[dict[str, Any]], lab: Lab, work: Work
) -> GenerationComparison | GenerationComparisonSweep:
    """How fast both arms generate the same tokens, in each of their cells."""
    from inferlab.lab.comparison import generation_arms, split
    from inferlab.options.generation import generation_values

    values = generation_values("compare", chosen)
    plans = generation_arms(models, values, own)
    work.need_engines(engine for plan in plans for engine in plan.engines)
    compare = lab.compare_all_generations if len(split(*plans)) > 1 else lab.compare_generations
    asked = values["metric"], values["time"], values["margin"]
    return compare(*plans, *asked, work.log, fresh=values["fresh"])


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


def _read(option: Option, value: str | list[str]) -> Any:
    try:
        return option.read(value)
    except ValueError as error:
        raise BadInput(f"{option.keyword}={value if isinstance(value, str) else value[-1]}: {error}") from None


def exit_code(compared: _Compared, fail_if: str | None, strict: bool) -> int:
    """What a comparison means for a pipeline."""
    if compared.interrupted:
        return 130
    results = compared.results if isinstance(compared, _SWEEPS) else (compared,)
    for result in results if strict else ():
        if isinstance(result, Comparison):
            code = 0 if result.outputs_match is True else 5
        else:
            code = strict_code(result.agreements)
        if code:
            return code
    verdicts = {result.verdict for result in results} if fail_if else set()
    code = 1 if "slower" in verdicts else 4 if "inconclusive" in verdicts else 0
    # Of saved sweeps, whose results have no pairs, it is cells that only one of them has.
    failed = isinstance(compared, _SWEEPS) and compared.failures and any(_is_measured(one) for one in results)
    return EngineFailed.exit_code if failed and code in (0, 4) else code


def _is_measured(result: Comparison | GenerationComparison) -> bool:
    return bool(result.pairs if isinstance(result, Comparison) else result.log_ratios)
