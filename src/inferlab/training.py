"""Follow a recipe while training in PyTorch: prune on schedule, and keep what is zero at zero.

    pruner = Pruner(network, "small.recipe.yaml", optimizer, steps_per_epoch=len(loader))
    with pruner:
        while pruner.epoch < pruner.epochs:
            for images, labels in loader:
                optimizer.zero_grad()
                loss(network(images), labels).backward()
                optimizer.step()
                pruner.step()

It is for the user's own training process: torch is imported where a Pruner is made, never by `import inferlab`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.onnx_graph import list_weights, stored_values
from inferlab.optimizing import recipes
from inferlab.records import Shape
from inferlab.records.optimization import CHANNEL, Recipe, Schedule
from inferlab.transform.patterns import as_floats, mask, parse_groups
from inferlab.units import plural


@dataclass(slots=True)
class _Pruned:
    """A parameter that is pruned, how far it shall be in the end, and where it is zero now."""

    name: str
    parameter: Any
    final: float
    #: The places of its elements, a row for each sum that gives an output, as patterns go.
    places: Any
    #: Of the last raise; masks are found again only where it changes.
    level: float = 0.0
    zeros: Any = None


class Pruner:
    """Prunes a module's weights while it is trained, as a recipe's layers, pattern and schedule say."""

    def __init__(
        self,
        module: Any,
        recipe: Recipe | str | os.PathLike[str],
        optimizer: Any = None,
        *,
        steps_per_epoch: int,
        names: Mapping[str, str] | None = None,
        model: str | os.PathLike[str] | None = None,
    ) -> None:
        """Find the parameters that the recipe means, and begin with its first epoch.

        With an optimiser its learning rates follow the schedule, and its momentum of what is pruned is cleared.
        Exporters rename weights, such as those of a Linear whose product is a MatMul: `names` gives the module's
        name of each, or `model` is the exported ONNX file, whose weights are recognised by shape and values.
        """
        if steps_per_epoch < 1:
            raise BadInput(f"An epoch has at least one step, not {steps_per_epoch}.")
        recipe = recipe if isinstance(recipe, Recipe) else recipes.load(Path(recipe))
        recipes.check_recipe(recipe)
        self._schedule = recipe.schedule or Schedule()
        self._pattern, levels = _levels_of(recipe)
        parameters = dict(module.named_parameters(remove_duplicate=False))
        names_in_module = match_weights(
            {name: tuple(parameter.shape) for name, parameter in parameters.items()},
            lambda name: parameters[name].detach().float().cpu().numpy(),
            tuple(levels),
            names or {},
            {} if model is None else read_stored(Path(model), list(levels)),
        )
        owners = _owners(module)
        self._weights = []
        for name, level in levels.items():
            parameter = parameters[names_in_module[name]]
            places = _places(name, self._pattern, owners[names_in_module[name]], parameter)
            self._weights.append(_Pruned(name, parameter, level, places))
        self._optimizer = optimizer
        self._steps, self._steps_per_epoch = 0, steps_per_epoch
        self._hooks = [weight.parameter.register_hook(_Silence(weight)) for weight in self._weights]
        self._follow()

    @property
    def epoch(self) -> float:
        """How many epochs were trained, with the part of this one."""
        return self._steps / self._steps_per_epoch

    @property
    def epochs(self) -> float:
        """How many epochs the recipe trains in all."""
        return self._schedule.epochs

    @property
    def sparsities(self) -> dict[str, float]:
        """The sparsity that each weight has now, counted."""
        return {weight.name: float((weight.parameter == 0).float().mean()) for weight in self._weights}

    def step(self) -> None:
        """Call it after each step of the optimiser: raise the sparsity where it is due, keep zeros at zero."""
        self._steps += 1
        self._follow()

    def finalize(self) -> dict[str, float]:
        """Prune to the recipe's last levels, whatever the epoch, and let go of the module; what share is zero.

        Training that followed the schedule to its end is there already, and nothing changes.
        """
        for weight in self._weights:
            self._raise(weight, weight.final)
        self._apply()
        self._let_go()
        return self.sparsities

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finalise, unless training broke off."""
        if kind is None:
            self.finalize()
        else:
            self._let_go()

    def _follow(self) -> None:
        """Do what the schedule says of this epoch."""
        for weight in self._weights:
            self._raise(weight, sparsity_at(self._schedule, weight.final, self.epoch))
        self._apply()
        rate = learning_rate_at(self._schedule, self.epoch)
        if rate is not None and self._optimizer is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = rate

    def _raise(self, weight: _Pruned, level: float) -> None:
        """Find the mask of a higher level; what is zero by now is smallest, so it stays in it."""
        if level <= weight.level:
            return
        import torch

        weight.level = level
        pattern = _pattern_at(self._pattern, level, weight.final)
        if pattern is None:
            return
        values = weight.parameter.detach().float().cpu().numpy()
        flat = np.zeros(values.size, bool)
        flat[weight.places.reshape(-1)] = mask(values.reshape(-1)[weight.places], level, pattern)
        weight.zeros = torch.from_numpy(flat.reshape(values.shape)).to(weight.parameter.device)

    def _apply(self) -> None:
        for weight in self._weights:
            if weight.zeros is None:
                continue
            weight.parameter.data.masked_fill_(weight.zeros, 0)
            # A momentum from before would go on moving what is pruned.
            for state in (
                () if self._optimizer is None else self._optimizer.state.get(weight.parameter, {}).values()
            ):
                if getattr(state, "shape", None) == weight.parameter.shape:
                    state.masked_fill_(weight.zeros, 0)

    def _let_go(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


@dataclass(slots=True)
class _Silence:
    """A hook: what is pruned has no gradient, so that clipping by norm and the like do not count it."""

    weight: _Pruned

    def __call__(self, gradient: Any) -> Any:
        zeros = self.weight.zeros
        return gradient if zeros is None else gradient.masked_fill(zeros, 0)


def _levels_of(recipe: Recipe) -> tuple[str, dict[str, float]]:
    """The pattern and the level of every weight that is pruned."""
    pruning = recipe.pruning
    if pruning is None or not any(pruning.layers.values()):
        raise BadInput(
            "This recipe prunes no weight by its name. Make the model that it speaks of (inferlab optimize MODEL "
            "-o small.onnx) and give the recipe that is written beside it."
        )
    if pruning.pattern == CHANNEL:
        raise BadInput(
            "Channels are not zero but gone from the optimised model, so that no mask can follow. Train a module "
            "of the smaller shapes instead, or prune by another pattern."
        )
    parse_groups(pruning.pattern)
    return pruning.pattern, {name: level for name, level in pruning.layers.items() if level > 0}


def _owners(module: Any) -> dict[str, Any]:
    """The module that each parameter is an attribute of."""
    return {
        f"{path}.{own}".removeprefix("."): child
        for path, child in module.named_modules(remove_duplicate=False)
        for own, _ in child.named_parameters(recurse=False, remove_duplicate=False)
    }


def _places(name: str, pattern: str, owner: Any, parameter: Any) -> Any:
    """Where the elements lie in the product that the parameter's own module computes."""
    from onnx import helper

    from inferlab.transform.prune import ProductRows

    if pattern == "unstructured":
        return np.arange(parameter.numel())
    if parameter.ndim > 2:
        kind = "ConvTranspose" if type(owner).__name__.startswith("ConvTranspose") else "Conv"
        node = helper.make_node(kind, ["x", name], ["y"], group=getattr(owner, "groups", 1))
    else:
        node = helper.make_node("Gemm", ["x", name], ["y"], transB=1)
    product = helper.make_model(helper.make_graph([node], "product", [], []))
    return ProductRows(product).rows(name, tuple(parameter.shape))


def _pattern_at(pattern: str, level: float, final: float) -> str | None:
    """The pattern on the way to the last level: of N:M fewer than N at first, and none while there is none."""
    groups = parse_groups(pattern)
    if groups is None:
        return pattern
    zeros = math.floor(groups[0] * level / final + 1e-9)
    return f"{zeros}:{groups[1]}" if zeros else None


# An epoch is a count of steps over the steps of an epoch: 3 × 0.1 shall not come before 0.3.
_SLACK = 1e-9


def sparsity_at(schedule: Schedule, final: float, epoch: float) -> float:
    """The sparsity that a layer shall have at an epoch whose last share is `final`.

    Nothing before the start; from then on a cubic ramp, steep at first while there is much to spare, in steps of
    the update frequency; `final` from the end on.
    """
    if epoch < schedule.start_epoch - _SLACK:
        return 0.0
    if epoch >= schedule.end_epoch - _SLACK:
        return final
    first = min(schedule.initial_sparsity, final)
    updates = math.floor((epoch - schedule.start_epoch) / schedule.update_frequency + _SLACK)
    progress = updates * schedule.update_frequency / (schedule.end_epoch - schedule.start_epoch)
    return final + (first - final) * (1 - progress) ** 3


def learning_rate_at(schedule: Schedule, epoch: float) -> float | None:
    """The learning rate at an epoch; None where the schedule leaves it to the training code."""
    begun = [(start, rate) for start, rate in schedule.learning_rates if start <= epoch + _SLACK]
    return max(begun)[1] if begun else None


Array = np.ndarray[Any, Any]

_MOST_NAMED = 5


def match_weights(
    shapes: Mapping[str, Shape],
    values_of: Callable[[str], Array],
    weights: Sequence[str],
    names: Mapping[str, str],
    stored: Mapping[str, Array],
) -> dict[str, str]:
    """The module's name of each wanted weight, or one error that lists all that have none.

    `shapes` are those of the module's parameters, by name. A weight is the parameter that `names` gives it, the
    one of the same name, the only one whose name ends alike, or, where it is among the `stored` values of the
    exported model, the one of its shape and values, as it is or transposed.
    """
    matches: dict[str, str] = {}
    for name in weights:
        called = names.get(name, name)
        alike = [own for own in shapes if own.endswith(f".{called}") or called.endswith(f".{own}")]
        if called in shapes:
            matches[name] = called
        elif len(alike) == 1:
            matches[name] = alike[0]
        elif name in stored and (same := _same_parameter(shapes, values_of, stored[name])) is not None:
            matches[name] = same
    missing = [name for name in weights if name not in matches]
    if missing:
        listed = ", ".join(missing[:_MOST_NAMED]) + (", …" if len(missing) > _MOST_NAMED else "")
        raise BadInput(
            f"The module has no parameter for {plural(len(missing), 'weight')} of the recipe: {listed}. Give the "
            "ONNX file that was exported from it (model='model.onnx'), or say what the module calls them: "
            "names={'name in the recipe': 'name in the module'}."
        )
    return matches


@confined(reads=["path"])
def read_stored(path: Path, names: Collection[str]) -> dict[str, Array]:
    """The values of these weights in an ONNX file, as floats."""
    weights = {weight.name: weight for weight in list_weights(parse_onnx(path)) if weight.name in names}
    return {
        name: as_floats(stored_values(weight.stored, path.parent)).astype(np.float32).reshape(weight.dims)
        for name, weight in weights.items()
    }


def _same_parameter(shapes: Mapping[str, Shape], values_of: Callable[[str], Array], held: Array) -> str | None:
    """The only parameter of this shape, or the one of them that has these values; transposed ones too."""
    fitting = [name for name, shape in shapes.items() if shape in (held.shape, held.shape[::-1])]
    if len(fitting) == 1:
        return fitting[0]
    for name in fitting:
        own = values_of(name)
        if any(np.array_equal(values, held) for values in (own, own.T) if values.shape == held.shape):
            return name
    return None
