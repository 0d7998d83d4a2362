"""What is to be made of a model, and whether that can be."""

from __future__ import annotations

import math
from typing import get_args

from inferlab.errors import BadInput
from inferlab.profiling.gains import check_budget
from inferlab.records.optimization import (
    CHANNEL,
    Pruning,
    Quantization,
    Recipe,
    Schedule,
    Scheme,
    Scope,
    VersionOptions,
)
from inferlab.transform.patterns import parse_groups


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
