"""A table of layers with a switch and a slider each, of which the browser draws only the rows in sight."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nicegui import json
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.records.profile import LossLayer
from inferlab.units import scaled


class LayerEditor(Element, component="layer_editor.js"):
    """Layers by their weights; who made it hears what was moved, turned on or off, or chosen to look at."""

    def __init__(
        self,
        layers: Sequence[LossLayer],
        moved: Callable[[Mapping[str, float]], Any],
        turned: Callable[[Sequence[str], bool], Any],
        chosen: Callable[[str], Any],
    ) -> None:
        super().__init__()
        # A weight that several layers share is pruned once.
        self.weights = list(dict.fromkeys(one.weight for one in layers))
        self._moved, self._turned, self._chosen = moved, turned, chosen
        first = {one.weight: one for one in reversed(layers)}
        # One text each: NiceGUI wraps every item of a list to observe it.
        self._props["content"] = json.dumps([_row(first[one]) for one in self.weights])
        self._props["state"] = json.dumps({"levels": [0.0] * len(self.weights), "on": [False] * len(self.weights)})
        self._props["told"] = "{}"
        self._props["fixed"] = False
        self.on("moved", self._move)
        self.on("turn", self._turn)
        self.on("choose", self._choose)

    def fill(self, levels: Mapping[str, float], on: set[str], fixed: bool) -> None:
        """Show these shares of zeros; where they are fixed, only the switches can be moved."""
        self._props["state"] = json.dumps(
            {"levels": [levels.get(one, 0.0) for one in self.weights], "on": [one in on for one in self.weights]}
        )
        self._props["fixed"] = fixed
        self.update()

    def tell(self, ms: Mapping[str, float], losses: Mapping[str, float], unmeasured: Collection[str] = ()) -> None:
        """Show what is foretold of every layer; of some nobody measured the losses."""
        self._props["told"] = json.dumps(
            {
                "ms": [_number(ms.get(one)) for one in self.weights] if ms else None,
                "loss": [
                    "not measured" if one in unmeasured else _number(losses.get(one)) for one in self.weights
                ],
            }
        )
        self.update()

    def _move(self, event: GenericEventArguments) -> Any:
        return self._moved({self.weights[int(at)]: float(level) for at, level in event.args.items()})

    def _turn(self, event: GenericEventArguments) -> Any:
        return self._turned([self.weights[at] for at in event.args["places"]], bool(event.args["on"]))

    def _choose(self, event: GenericEventArguments) -> Any:
        return self._chosen(self.weights[int(event.args)])


def _row(layer: LossLayer) -> dict[str, Any]:
    return {
        "weight": layer.weight,
        "id": layer.id,
        "type": layer.type,
        "params": layer.params,
        "told": scaled(layer.params),
    }


def _number(value: float | None) -> float | None:
    """Three digits; none for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")
