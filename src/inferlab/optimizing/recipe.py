"""The recipe that options describe, and the goal that a text such as "2x faster" means."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from inferlab.errors import BadInput
from inferlab.optimizing import recipe_yaml
from inferlab.records.optimization import (
    CHANNEL,
    Goal,
    Pruning,
    Quantization,
    Recipe,
    RecipeOptions,
    Schedule,
    Scheme,
    VersionOptions,
)
from inferlab.transform.patterns import parse_groups

_NOTHING = RecipeOptions()
_OF_PRUNING = ("pattern", "scope", "include", "minimum", "maximum", "ends")
_OF_QUANTIZATION = ("keep_sensitive", "per_tensor")
_NO_BF16 = (
    "No ONNX file can be written in BF16 that ONNX Runtime would run: it has no such kernels for a CPU. "
    "OpenVINO computes the FP32 file in BF16 where the CPU can: give it the engine option precision=bf16."
)


def recipe_of(options: RecipeOptions, seed: int = 0) -> Recipe:
    """The recipe that the options describe, or the one in their file; refuses those that contradict each other."""
    if options.recipe is not None:
        for field in fields(options):
            if getattr(replace(options, recipe=None), field.name) != getattr(_NOTHING, field.name):
                raise BadInput(
                    f"The option {field.name} and a recipe contradict each other: write it into the recipe."
                )
        return recipe_yaml.load(options.recipe)
    pruning, quantization = _pruning(options), _quantization(options)
    if options.exclude and pruning is None and quantization is None:
        raise BadInput("The option exclude says what stays as it is, but nothing is asked for that would change.")
    # Whoever trains the pruned model back to its accuracy may follow it, or change it in the file.
    schedule = Schedule() if pruning is not None and pruning.pattern != CHANNEL else None
    return Recipe(
        cleanup=options.cleanup, pruning=pruning, quantization=quantization, seed=seed, schedule=schedule
    )


def version_options(values: Mapping[str, Any], out: str) -> VersionOptions:
    """The version that these options ask for, by keyword; refuses those that contradict each other."""
    recipe = RecipeOptions(**{field.name: values[field.name] for field in fields(RecipeOptions)})
    as_estimated, budget = values["as_estimated"], values["budget"]
    if as_estimated:
        _check_as_estimated(recipe, values)
        recipe = RecipeOptions()
    engines = values["measure"] or values["engine"]
    goal, search_s = values["goal"], values["search_time"]
    search: dict[str, Any] = {}
    if goal is not None:
        max_loss = values["max_loss"]
        search["goal"] = parse_goal(str(goal)) if max_loss is None else parse_goal(str(goal), max_loss)
        search |= {} if search_s is None else {"search_s": search_s}
    for name in ("max_loss", "search_time", "nearest") if goal is None else ():
        if values[name] not in (None, False):
            raise BadInput(f"The option {name} belongs to a search: give a goal.")
    return VersionOptions(
        recipe=recipe_of(recipe, values["seed"]),
        out=out,
        name=values["name"],
        data_file=values["data"],
        engines=() if engines == ("none",) else engines,
        time_s=values["time"],
        performance_id=values["profile"],
        loss_id=values["profile"],
        as_estimated=as_estimated,
        estimate_budget=budget if as_estimated else None,
        **search,
    )


def _check_as_estimated(options: RecipeOptions, values: Mapping[str, Any]) -> None:
    """What is made is what a profile estimates, for another budget perhaps, and nothing else."""
    if values["profile"] is None:
        raise BadInput(
            "The option as_estimated makes what a profile estimates: name the profile, its file or its id."
        )
    given = [
        field.name
        for field in fields(options)
        if field.name != "budget" and getattr(options, field.name) != getattr(_NOTHING, field.name)
    ]
    for name in (*given, *(["goal"] if values["goal"] is not None else [])):
        raise BadInput(f"The option {name} and as_estimated contradict each other: the profile says what is done.")


def _pruning(options: RecipeOptions) -> Pruning | None:
    wanted = options.sparsity is not None or options.budget is not None or bool(options.layers)
    if not wanted and (options.pattern == "channel" or parse_groups(options.pattern) is None):
        for name in _OF_PRUNING:
            if getattr(options, name) != getattr(_NOTHING, name):
                raise BadInput(
                    f"The option {name} says how to prune, but not how much: give a sparsity, a budget, or the "
                    "levels of layers."
                )
        return None
    if options.sparsity is None:
        _refuse_what_spreads(options)
    pruning = Pruning(**{field.name: getattr(options, field.name) for field in fields(Pruning)})
    return pruning if options.sparsity is not None else replace(pruning, scope="layers")


def _refuse_what_spreads(options: RecipeOptions) -> None:
    """Levels by name, and those of a pattern of groups, are as they are; those of a budget have limits only."""
    if options.scope == "global":
        raise BadInput("The option scope says how a sparsity is spread over the layers, and none is given.")
    for name in ("minimum", "maximum") if options.budget is None else ():
        if getattr(options, name) != getattr(_NOTHING, name):
            raise BadInput(f"The option {name} limits what a sparsity or budget gives a layer, and none is given.")


def _quantization(options: RecipeOptions) -> Quantization | None:
    if options.float == "bf16":
        raise BadInput(_NO_BF16)
    given: list[Scheme] = [scheme for scheme in (options.int8, options.float) if scheme is not None]
    given += ["weights"] if options.weights_only is not None else []
    if len(given) > 1:
        raise BadInput("int8, weights_only and float contradict each other: choose one of them.")
    if not given:
        for name in _OF_QUANTIZATION:
            if getattr(options, name) != getattr(_NOTHING, name):
                raise BadInput(f"The option {name} belongs to int8, weights_only or float, and none is given.")
        return None
    return Quantization(
        scheme=given[0],
        per_channel=not options.per_tensor,
        bits=options.weights_only or 8,
        exclude=options.exclude,
        keep_sensitive=options.keep_sensitive,
    )


_PART = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>x|×|times|%)\s*(?:as\s+)?(?P<what>\w+)", re.IGNORECASE
)
_WORDS = {"faster": "speedup", "fast": "speedup", "smaller": "size_ratio", "small": "size_ratio"}
_LIKE = 'Write it as "2x faster", "30% faster", "2x smaller", or several with commas between them.'


def parse_goal(text: str, max_loss: str | float = 0.01) -> Goal:
    """The goal that a text such as "2x faster, 50% smaller" means, within this loss.

    30% faster is 1.3 times as many items a second; 50% smaller is half the bytes.
    """
    ratios: dict[str, float] = {}
    for part in re.split(r"\s*(?:,|;|\band\b|&)\s*", text.strip()):
        name, ratio = _part(part, text)
        if name in ratios:
            how = "fast" if name == "speedup" else "small"
            raise BadInput(f"The goal '{text}' says twice how {how} the model is to be.")
        ratios[name] = ratio
    return Goal(ratios.get("speedup"), ratios.get("size_ratio"), parse_loss(max_loss))


def parse_loss(value: str | float) -> float:
    """The largest loss as a fraction, of "1%" or 0.01."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise BadInput(f"The largest loss is a share such as 1% or 0.01, not '{value}'.") from None
    if not 0 <= number < 1:
        raise BadInput(
            f"The largest loss lies between 0 and 100 %, and '{value}' does not. 1 % is written as 1% or 0.01."
        )
    return number


def _part(part: str, text: str) -> tuple[str, float]:
    match = _PART.fullmatch(part.strip())
    name = _WORDS.get(match["what"].lower()) if match else None
    if match is None or name is None:
        raise BadInput(f"The goal '{text}' cannot be read. {_LIKE}")
    number = float(match["number"])
    if match["unit"] != "%":
        ratio = number
    elif name == "speedup":
        ratio = 1 + number / 100
    else:
        ratio = 1 / (1 - number / 100) if number < 100 else math.inf
    if not 1 < ratio < math.inf:
        raise BadInput(f"The goal '{text}' asks for no change, or for more than there is. {_LIKE}")
    return name, ratio
