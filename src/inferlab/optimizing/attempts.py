"""What a search tries, cheapest first; what comes next depends on what became of those before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inferlab.optimizing.pareto import keeps_loss
from inferlab.records.optimization import CHANNEL, Candidate, Goal, Pruning, Quantization, Recipe, Scheme

#: Shares of zeros of the whole model, one threshold for all layers.
_SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95)
#: Budgets of the estimate in multiples of the loss that is allowed: what layers lose alone does not simply add up.
_BUDGETS = (1.0, 3.0)
_CHANNELS = (0.1, 0.25, 0.5)
#: So many sensitive layers stay as they are, until the loss is kept.
_SENSITIVE = (1, 2, 4, 8)
# What keeps the loss alone may lose too much together with INT8: then so many weaker ones are tried.
_COMBINATIONS = 2
#: What is known to make an engine abort.
_REFUSED: dict[tuple[str, Scheme], str] = {("deepsparse", "dynamic"): "DeepSparse aborts on dynamic INT8"}
_LABELS: dict[Scheme, str] = {
    "fp16": "FP16",
    "weights": "INT8 weights",
    "dynamic": "INT8 dynamic",
    "static": "INT8 static",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recipe to try, or the reason why it is left out."""

    label: str
    recipe: Recipe
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What the attempts depend on."""

    engine: str
    goal: Goal
    #: What all recipes have in common.
    base: Recipe
    #: The engine computes faster where weights are zero.
    gains_from_zeros: bool


T = TypeVar("T")
#: Yields attempts and is sent what became of each.
Attempts = Generator[Attempt, Candidate, T]


def attempts_in(space: SearchSpace) -> Attempts[None]:
    """All attempts in their order."""
    yield _quantized(space, "fp16")
    yield _quantized(space, "weights")
    if space.goal.size_ratio is not None:
        yield _quantized(space, "weights", bits=4)
    yield _quantized(space, "dynamic")
    static = yield from _static(space)
    pruned = yield from _pruned(space)
    yield from _both(space, pruned, static)
    channels = yield from _channels(space)
    yield from _both(space, channels, static)


def _quantized(space: SearchSpace, scheme: Scheme, bits: int = 8) -> Attempt:
    recipe = replace(space.base, quantization=Quantization(scheme, bits=bits))
    label = "4-bit weights" if bits == 4 else _LABELS[scheme]
    return Attempt(label, recipe, _REFUSED.get((space.engine, scheme), ""))


def _static(space: SearchSpace) -> Attempts[Quantization | None]:
    """Static INT8 of all layers, or of all but a few sensitive ones: what keeps the loss, if anything does."""
    attempt = _quantized(space, "static")
    outcome = yield attempt
    if keeps_loss(outcome, space.goal):
        return attempt.recipe.quantization
    for count in _SENSITIVE if outcome.loss is not None else ():
        kept = Quantization("static", keep_sensitive=count)
        outcome = yield Attempt(f"INT8 static, {count} sensitive kept", replace(space.base, quantization=kept))
        if keeps_loss(outcome, space.goal):
            return kept
    return None


def _pruned(space: SearchSpace) -> Attempts[list[Attempt]]:
    """Zeros of rising shares, then as the estimate chooses them: those that keep the loss, the strongest first."""
    levels = [(f"{share:.0%} pruned", Pruning(share, "global")) for share in _SPARSITIES]
    budgets = [factor * space.goal.max_loss for factor in _BUDGETS]
    chosen = [
        (f"pruned within {budget:.2g} by layer", Pruning(scope="layers", budget=budget)) for budget in budgets
    ]
    if not space.gains_from_zeros:
        reason = f"{space.engine} computes no faster where weights are zero"
        yield Attempt("pruned", replace(space.base, pruning=levels[0][1]), reason)
        return []
    kept = yield from _rising(space, levels)
    return [*(yield from _rising(space, chosen)), *kept]


def _channels(space: SearchSpace) -> Attempts[list[Attempt]]:
    levels = [(f"{share:.0%} of the channels cut", Pruning(share, pattern=CHANNEL)) for share in _CHANNELS]
    return (yield from _rising(space, levels))


def _rising(space: SearchSpace, levels: Sequence[tuple[str, Pruning]]) -> Attempts[list[Attempt]]:
    """Prune more and more while the loss is kept: what kept it, the strongest first."""
    kept: list[Attempt] = []
    for label, pruning in levels:
        outcome = yield Attempt(label, replace(space.base, pruning=pruning))
        if not keeps_loss(outcome, space.goal):
            break
        kept.insert(0, Attempt(label, outcome.recipe))
    return kept


def _both(space: SearchSpace, pruned: Sequence[Attempt], static: Quantization | None) -> Attempts[None]:
    """Pruned and quantised, where each alone keeps the loss."""
    for attempt in pruned[:_COMBINATIONS] if static is not None else ():
        assert attempt.recipe.pruning is not None
        # Its levels as they are: they came from the whole model, or from profiles.
        pruning = replace(attempt.recipe.pruning, scope="layers", sparsity=None, budget=None)
        recipe = replace(space.base, pruning=pruning, quantization=static)
        outcome = yield Attempt(f"{attempt.label}, INT8 static", recipe)
        if keeps_loss(outcome, space.goal):
            return
