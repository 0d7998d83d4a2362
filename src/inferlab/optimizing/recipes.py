"""Recipes and goals as users write them, as options or as YAML: read strictly, refused where they contradict."""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput
from inferlab.profiling.gains import check_budget
from inferlab.records.optimization import (
    CHANNEL,
    RECIPE_FORMAT,
    Goal,
    Pruning,
    Quantization,
    Recipe,
    RecipeOptions,
    Schedule,
    Scheme,
    Scope,
    VersionOptions,
)
from inferlab.transform.patterns import parse_groups
from inferlab.units import shortened

_NOTHING = RecipeOptions()
_OF_PRUNING = ("pattern", "scope", "include", "minimum", "maximum", "ends")
_OF_QUANTIZATION = ("keep_sensitive", "per_tensor")
_NO_BF16 = (
    "No ONNX file can be written in BF16 that ONNX Runtime would run: it has no such kernels for a CPU. "
    "OpenVINO computes the FP32 file in BF16 where the CPU can: give it the engine option precision=bf16."
)
_HEAD = "# A recipe of inferlab; repeat it with: inferlab optimize MODEL --recipe FILE.yaml -o out.onnx\n"
_LIKE = "See docs/optimize.md for what a recipe looks like."


def recipe_of(options: RecipeOptions, seed: int = 0) -> Recipe:
    """The recipe that the options describe, or the one in their file; refuses those that contradict each other."""
    if options.recipe is not None:
        for field in fields(options):
            if getattr(replace(options, recipe=None), field.name) != getattr(_NOTHING, field.name):
                raise BadInput(
                    f"The option {field.name} and a recipe contradict each other: write it into the recipe."
                )
        return load(options.recipe)
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
_GOALS = 'Write it as "2x faster", "30% faster", "2x smaller", or several with commas between them.'


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
        raise BadInput(f"The goal '{text}' cannot be read. {_GOALS}")
    number = float(match["number"])
    if match["unit"] != "%":
        ratio = number
    elif name == "speedup":
        ratio = 1 + number / 100
    else:
        ratio = 1 / (1 - number / 100) if number < 100 else math.inf
    if not 1 < ratio < math.inf:
        raise BadInput(f"The goal '{text}' asks for no change, or for more than there is. {_GOALS}")
    return name, ratio


def validate_version(asked: VersionOptions) -> None:
    """Refuse what cannot be made before anything is read."""
    check_recipe(asked.recipe)
    if asked.recipe.pruning is None and asked.recipe.quantization is None and asked.goal is None:
        raise BadInput(
            "Nothing was asked for that would change the model. Give --sparsity, --budget, --layer, --pattern, "
            "--int8, --weights-only, --float, --recipe or --goal."
        )
    if not 0 < asked.time_s < math.inf:
        raise BadInput(f"The measuring time must be more than 0 seconds and finite, not {asked.time_s:g}.")
    if not 0 < asked.search_s < math.inf:
        raise BadInput(f"The time of a search must be more than 0 seconds and finite, not {asked.search_s:g}.")
    if asked.goal is not None and (asked.recipe.pruning is not None or asked.recipe.quantization is not None):
        raise BadInput("A goal is searched for among all recipes: leave out what says how to prune or quantise.")


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that says what cannot be done, or contradicts itself."""
    if recipe.pruning is not None:
        _check_pruning(recipe.pruning)
    if recipe.quantization is not None:
        _check_quantization(recipe.quantization)
    if recipe.schedule is not None:
        _check_schedule(recipe.schedule)
    if recipe.seed < 0:
        raise BadInput(f"seed is a whole number of 0 or more, not {recipe.seed}.")
    for name, shape in recipe.shapes.items():
        if any(size < 1 for size in shape):
            raise BadInput(f"shapes.{name} has whole numbers of 1 or more, not {list(shape)}.")


def _check_pruning(pruning: Pruning) -> None:
    _one_of("pruning.scope", pruning.scope, get_args(Scope))
    groups = None if pruning.pattern == CHANNEL else parse_groups(pruning.pattern)
    sparsity = pruning.sparsity
    if sparsity is not None and not 0 < sparsity < 1:
        raise BadInput(f"pruning.sparsity is a share between 0 and 1, such as 0.8, not {sparsity:g}.")
    for name, level in pruning.layers.items():
        if not 0 <= level < 1:
            raise BadInput(f"pruning.layers.{name} is a sparsity from 0 to below 1, not {level:g}.")
    for name, value in (("minimum", pruning.minimum), ("maximum", pruning.maximum)):
        if not 0 <= value <= 1:
            raise BadInput(f"pruning.{name} is a sparsity from 0 to 1, not {value:g}.")
    if pruning.minimum > pruning.maximum:
        raise BadInput(
            f"pruning.minimum ({pruning.minimum:g}) is above pruning.maximum ({pruning.maximum:g}): "
            "no layer could meet both."
        )
    if pruning.budget is not None:
        check_budget(pruning.budget)
        if sparsity is not None:
            raise BadInput(
                "A sparsity and a loss budget contradict each other: the budget sets the sparsity of every layer."
            )
    if groups is not None:
        _check_groups(pruning, groups[0] / groups[1])
    elif sparsity is None and pruning.budget is None and not pruning.layers:
        raise BadInput("Pruning needs a sparsity, a loss budget, or levels of layers.")


def _check_groups(pruning: Pruning, share: float) -> None:
    """N:M leaves nothing to choose but the layers."""
    given = [one for one in (pruning.sparsity, *pruning.layers.values()) if one not in (None, 0.0)]
    if any(abs((one or 0.0) - share) > 1e-6 for one in given):
        raise BadInput(
            f"The pattern {pruning.pattern} makes {share:g} of every layer zero. Leave the sparsity out, or "
            "choose another pattern."
        )
    if pruning.budget is not None or pruning.scope == "global":
        raise BadInput(
            f"The pattern {pruning.pattern} prunes every layer alike, so it takes no loss budget and no scope "
            "global. Choose the layers by name, or another pattern."
        )


def _check_quantization(quantization: Quantization) -> None:
    _one_of("quantization.scheme", quantization.scheme, get_args(Scheme))
    if quantization.bits not in (4, 8):
        raise BadInput(f"quantization.bits is 8 or 4, not {quantization.bits}.")
    if quantization.bits == 4 and quantization.scheme != "weights":
        raise BadInput(f"4 bits are for the scheme weights only, not for {quantization.scheme}.")
    for name, value in (
        ("keep_sensitive", quantization.keep_sensitive),
        ("calibration_items", quantization.calibration_items),
    ):
        if value < 0:
            raise BadInput(f"quantization.{name} is a whole number of 0 or more, not {value}.")


def _check_schedule(schedule: Schedule) -> None:
    if not 0 <= schedule.start_epoch <= schedule.end_epoch <= schedule.epochs:
        raise BadInput("schedule: start_epoch, end_epoch and epochs must be in this order, from 0.")
    if schedule.update_frequency <= 0:
        raise BadInput(f"schedule.update_frequency is more than 0 epochs, not {schedule.update_frequency:g}.")
    if not 0 <= schedule.initial_sparsity < 1:
        raise BadInput(
            f"schedule.initial_sparsity is a share from 0 to below 1, not {schedule.initial_sparsity:g}."
        )
    for epoch, rate in schedule.learning_rates:
        if epoch < 0 or rate <= 0:
            raise BadInput("schedule.learning_rates are pairs of an epoch of 0 or more and a rate above 0.")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadInput(f"{name} is one of {', '.join(known)}, not '{value}'.")


def dump(recipe: Recipe) -> str:
    """The recipe as text; what is empty is left out, all else is told, defaults too."""
    import yaml

    return _HEAD + yaml.safe_dump(_plain(recipe), sort_keys=False, allow_unicode=True, width=1000)


def load(path: str | Path) -> Recipe:
    """Read a recipe; what is odd in it is refused in a sentence with the file, the key and what is allowed."""
    try:
        text = read_text(Path(path), MOST_YAML_BYTES)
    except OSError as error:
        raise BadInput(f"The recipe {path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise BadInput(f"The recipe {path} cannot be read: {error}. {_LIKE}") from error
    return loads(text, str(path))


def loads(text: str, name: str) -> Recipe:
    """Read a recipe from its text; `name` is what messages call it."""
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise BadInput(f"The recipe {name} cannot be read: {error}. {_LIKE}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{name} is not a recipe: it must hold keys with values. {_LIKE}")
    if content.get("format") != RECIPE_FORMAT:
        raise BadInput(
            f"{name} is not a recipe that this version reads: its format is {content.get('format')!r:.60}, not "
            f"'{RECIPE_FORMAT}'. {_LIKE}"
        )
    try:
        recipe: Recipe = _record(Recipe, content, "")
        check_recipe(recipe)
    except BadInput as error:
        raise BadInput(f"The recipe {name}: {error}") from error
    if recipe.digest and not recipe.inferlab:
        raise BadInput(f"The recipe {name} is cut off: its last line, the version of inferlab, is missing.")
    return recipe


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        found = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {name: one for name, one in found.items() if not _empty(one)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _record(kind: Any, content: Any, place: str) -> Any:
    """A record out of keys and values, each of them known and of its type."""
    if not isinstance(content, dict):
        raise BadInput(f"{place.rstrip('.')} takes keys with values, not {_shown(content)}.")
    hints = _hints(kind)
    for key in content:
        if key not in hints:
            key = shortened(str(key), 60)
            near = difflib.get_close_matches(key, hints, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Allowed are {', '.join(hints)}."
            raise BadInput(f"there is no key '{place}{key}'. {hint}")
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in content:
            raise BadInput(f"{place}{field.name} is missing.")
    return kind(**{key: _value(hints[key], value, f"{place}{key}") for key, value in content.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _value(inner, value, place)
    if is_dataclass(hint):
        return _record(hint, value, f"{place}.")
    if origin is tuple:
        return _listed(arguments, value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise BadInput(f"{place} takes names with values, not {_shown(value)}.")
        return {key: _value(arguments[1], one, f"{place}.{key}") for key, one in value.items()}
    return _scalar(hint, value, place)


def _listed(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{place} is a list, not {_shown(value)}.")
    if arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], one, f"{place}[{at}]") for at, one in enumerate(value))
    if len(value) != len(arguments):
        raise BadInput(f"{place} has {len(arguments)} values, not {len(value)}.")
    return tuple(
        _value(hint, one, f"{place}[{at}]") for at, (hint, one) in enumerate(zip(arguments, value, strict=True))
    )


def _scalar(hint: Any, value: Any, place: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise BadInput(f"{place} is one of {', '.join(get_args(hint))}, not {_shown(value)}.")
        return value
    words = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if not fits or (hint is float and not math.isfinite(value)):
        raise BadInput(f"{place} is {words[hint]}, not {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
