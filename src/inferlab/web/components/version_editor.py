"""What a new version shall be: presets, sliders and a table of layers, with estimates that follow."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from nicegui import json, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.profiling.zeros import gains_from_zeros, layer_times, loss_at, weight_shares
from inferlab.records.optimization import CHANNEL, Scheme
from inferlab.records.profile import BUDGET, Gain, LossLayer, RecipeEstimate
from inferlab.units import scaled, shortened
from inferlab.views.charts.losses import layer_curves
from inferlab.web import shell
from inferlab.web.components.charts import Chart
from inferlab.web.components.profile_form import BudgetControl, SliderNumber
from inferlab.web.components.profile_summary import show_estimate
from inferlab.web.shell import div, refilled, span, tag
from inferlab.workspace.versions import PATTERNS, SCHEMES, Basis, VersionRequest, group_share


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
        self.weights = list(dict.fromkeys(layer.weight for layer in layers))
        self._moved, self._turned, self._chosen = moved, turned, chosen
        first = {layer.weight: layer for layer in reversed(layers)}
        # One text each: NiceGUI wraps every item of a list to observe it.
        self._props["content"] = json.dumps([_editor_row(first[weight]) for weight in self.weights])
        self._props["state"] = json.dumps({"levels": [0.0] * len(self.weights), "on": [False] * len(self.weights)})
        self._props["told"] = "{}"
        self._props["fixed"] = False
        self.on("moved", self._move)
        self.on("turn", self._turn)
        self.on("choose", self._choose)

    def fill(self, levels: Mapping[str, float], on: set[str], fixed: bool) -> None:
        """Show these shares of zeros; where they are fixed, only the switches can be moved."""
        self._props["state"] = json.dumps(
            {
                "levels": [levels.get(weight, 0.0) for weight in self.weights],
                "on": [weight in on for weight in self.weights],
            }
        )
        self._props["fixed"] = fixed
        self.update()

    def tell(self, ms: Mapping[str, float], losses: Mapping[str, float], unmeasured: Collection[str] = ()) -> None:
        """Show what is predicted of every layer; of some nobody measured the losses."""
        self._props["told"] = json.dumps(
            {
                "ms": [_number(ms.get(weight)) for weight in self.weights] if ms else None,
                "loss": [
                    "not measured" if weight in unmeasured else _number(losses.get(weight))
                    for weight in self.weights
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


def _editor_row(layer: LossLayer) -> dict[str, Any]:
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


#: Where the shares of zeros come from: nowhere, one slider, the loss budget, or each layer's own slider.
Mode = Literal["none", "alike", "budget", "hand"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A place to begin from."""

    label: str
    mode: Mode
    scheme: Scheme | None


PRESETS = {
    "int8": Preset("INT8 only", "none", "static"),
    "pruned": Preset("Pruned 80 %", "alike", None),
    "best": Preset("Best within the loss budget", "budget", None),
    "estimated": Preset("As estimated", "budget", None),
    "both": Preset("Pruned + INT8", "alike", "static"),
}


@dataclass(slots=True)
class Draft:
    """What the user has chosen so far."""

    mode: Mode
    levels: dict[str, float]
    on: set[str]
    pattern: str = "unstructured"
    scheme: Scheme | None = None
    #: What the profile estimates, as long as nothing of it was changed.
    gain: Gain | None = None

    @property
    def effective(self) -> dict[str, float]:
        """The sparsity of every weight; 0 for those that are switched off."""
        if self.mode == "none":
            return dict.fromkeys(self.levels, 0.0)
        return {weight: level if weight in self.on else 0.0 for weight, level in self.levels.items()}

    def form(self, name: str, basis: Basis) -> VersionRequest:
        """What asks for it."""
        if self.gain is not None:
            return VersionRequest(
                name=name,
                as_estimated=True,
                budget=self.gain.budget,
                performance=basis.performance_id,
                loss=basis.loss_id,
            )
        return VersionRequest(
            name=name,
            levels={weight: level for weight, level in self.effective.items() if level > 0},
            performance=basis.performance_id,
            loss=basis.loss_id,
            pattern=self.pattern if self.mode != "none" else "unstructured",
            quantization=self.scheme,
        )

    def suggested(self) -> str:
        """What such a version may be called."""
        pruned = [level for level in self.effective.values() if level > 0]
        words = []
        if pruned:
            mean = f"{100 * sum(pruned) / len(pruned):.0f} %"
            words.append("Pruned by budget" if self.mode == "budget" else f"Pruned {mean}")
            words += [PATTERNS.get(self.pattern, self.pattern).lower()] if self.pattern != "unstructured" else []
        if self.scheme:
            words.append(SCHEMES[self.scheme].replace(", ", " "))
        return " + ".join(words) or "Version"


_USUAL = 0.8
_KEPT = "FP32, as it is"
_PATTERN_HELP = {
    "unstructured": "Any weights may become zero.",
    "block4": "Four weights in a row become zero together.",
    "2:4": "Two of every four weights become zero: half of each layer.",
    "channel": "Whole channels go, and the tensors really shrink.",
}
_TOLD = {
    "none": "No layer is pruned.",
    "alike": "Every layer that is switched on is pruned alike.",
    "budget": "Shares of zeros are those that gain most within the loss budget.",
    "hand": "Shares of zeros are set by hand.",
}


class VersionEditor:
    """Made within the page; `rebase` reads another basis where another profile is chosen."""

    def __init__(
        self,
        basis: Basis,
        rebase: Callable[[str | None, str | None], Awaitable[Basis]],
        performances: Mapping[str, str],
        losses: Mapping[str, str],
        budget: float = BUDGET,
    ) -> None:
        self.basis, self._rebase = basis, rebase
        weights = dict.fromkeys(layer.weight for layer in basis.loss.layers)
        self.draft = Draft("alike", dict.fromkeys(weights, 0.0), set(basis.usual()))
        self._turn = 0
        #: How often levels were asked for: an answer that comes after the next question is dropped.
        self._questions = 0
        self._chosen = next(iter(weights))
        self._settings(performances, losses, budget)
        self._layers()

    async def begin(self, preset: str = "") -> None:
        """Show what a version is of a preset, or that is pruned as usual."""
        await self._preset(preset if preset in PRESETS else "pruned")

    # The controls.

    def _settings(self, performances: Mapping[str, str], losses: Mapping[str, str], budget: float) -> None:
        with shell.card("il-version-new"):
            with div("il-version-presets"):
                span("il-muted il-small", "Start from")
                self._chips = {name: self._chip(name, preset.label) for name, preset in PRESETS.items()}
            with div("il-version-grid"):
                with div("il-column"):
                    self._sparsity_control()
                    self._budget = BudgetControl(self._budgeted, budget, losses, self.basis.loss_id)
                    self._choices(performances)
                self._estimate = div("il-version-estimate il-estimated")

    def _chip(self, name: str, text: str) -> Element:
        chip = tag("button", "il-choice", text, type="button")
        chip.props(f'data-testid="preset-{name}"').on("click", partial(self._preset, name), [])
        return chip

    def _sparsity_control(self) -> None:
        with div("il-budget il-version-first"):
            self._sparsity = SliderNumber(
                "Sparsity",
                "sparsity",
                "The sparsity of every layer that is switched on below.",
                partial(self._apply, "alike"),
                100 * _USUAL,
                (0, 99, 1),
                {percent: f"{percent} %" for percent in (0, 25, 50, 75, 99)},
                1,
                most=99,
                suffix="%",
            )

    def _choices(self, performances: Mapping[str, str]) -> None:
        self._timed = ui.select(dict(performances), label="Performance profile", value=self.basis.performance_id)
        self._timed.props('data-testid="performance"').on_value_change(self._based)
        self._timed.set_visibility(bool(performances))
        with div("il-fields-2"):
            schemes: dict[str, str] = {"": _KEPT} | {str(scheme): text for scheme, text in SCHEMES.items()}
            self._scheme = ui.select(schemes, label="Precision", value="").props('data-testid="scheme"')
            self._scheme.on_value_change(self._schemed)
            self._pattern = ui.select(PATTERNS, label="Pattern of zeros", value="unstructured")
            self._pattern.props('data-testid="pattern"').on_value_change(self._patterned)

    def _layers(self) -> None:
        with shell.section("Layers"):
            self._told = ui.label().classes("il-muted il-small").props('data-testid="levels-told"')
        with shell.card("il-card-flush il-version-layers"):
            self._editor = LayerEditor(self.basis.loss.layers, self._moved, self._turned, self._choose)
            with div("il-version-curves", name="curves"):
                self._title = ui.label().classes("il-version-curves-title il-cut")
                self._chart = Chart("curves-chart", ())

    # What the user does.

    async def _preset(self, name: str) -> None:
        preset = PRESETS[name]
        self.draft.gain = None
        self._budget.drop_pending()
        self._sparsity.drop_pending()
        if name == "estimated" and (gain := await asyncio.to_thread(self.basis.best_gain, self._budget.budget)):
            await self._as_estimated(gain)
            return
        self.draft.scheme = preset.scheme
        if self.draft.mode == "none" or preset.mode != "budget":
            self.draft.pattern = "unstructured"
        self._show_choices()
        if preset.mode == "alike":
            self._sparsity.show(100 * _USUAL)
        await self._apply(preset.mode, name)

    async def _as_estimated(self, gain: Gain) -> None:
        """Choose what the profile estimates: of zeros those within the budget, of channels one share or many."""
        draft = self.draft
        draft.gain = gain
        draft.scheme = "static" if gain.int8 else None
        draft.pattern = CHANNEL if gain.channels else "unstructured"
        self._show_choices()
        self._sparsity.show(100 * (gain.channels or _USUAL))
        draft.on = set(self.basis.usual())
        if gain.shares:
            draft.levels = dict.fromkeys(draft.levels, 0.0) | dict(gain.shares)
            await self._apply("hand", "estimated")
            return
        await self._apply("alike" if gain.channels else "budget" if gain.zeros else "none", "estimated")

    def _show_choices(self) -> None:
        """Let the lists show what the draft has already, which is then no choice of the user's."""
        self._scheme.set_value(self.draft.scheme or "")
        self._pattern.set_value(self.draft.pattern)

    async def _budgeted(self) -> None:
        if self._budget.loss_id != self.basis.loss_id:
            await self._based()
        else:
            await self._apply("budget")

    async def _schemed(self) -> None:
        scheme: Scheme | None = self._scheme.value or None
        if scheme != self.draft.scheme:
            self.draft.scheme = scheme
            self._light("")
            await self._recompute()

    async def _patterned(self) -> None:
        if self._pattern.value == self.draft.pattern:
            return
        self.draft.pattern = self._pattern.value
        mode = "alike" if self.draft.mode == "none" or group_share(self.draft.pattern) else self.draft.mode
        await self._apply(mode)

    async def _based(self) -> None:
        self.basis = await self._rebase(self._timed.value, self._budget.loss_id)
        await self._apply(self.draft.mode)
        await self._choose(self._chosen)

    async def _moved(self, levels: Mapping[str, float]) -> None:
        if self.draft.mode == "none":
            self.draft.levels = dict.fromkeys(self.draft.levels, 0.0)
        self.draft.mode = "hand"
        self.draft.levels.update(levels)
        self._light("")
        self._follow()
        await self._recompute()
        if self._chosen in levels:
            await self._choose(self._chosen)

    async def _turned(self, weights: Sequence[str], on: bool) -> None:
        self.draft.on = self.draft.on | set(weights) if on else self.draft.on - set(weights)
        self._light("")
        await self._apply(self.draft.mode, keep=self.draft.mode in ("hand", "none"))

    async def _choose(self, weight: str) -> None:
        self._chosen = weight
        self._title.set_text(shortened(weight, 60))
        profile, level = self.basis.profile, self.draft.effective[weight]
        await self._chart.show(lambda: layer_curves(profile, weight, level))

    # What follows.

    async def _apply(self, mode: Mode, preset: str = "", keep: bool = False) -> None:
        """Set the levels as a mode says, and show all that follows; `keep` leaves them as they are."""
        draft = self.draft
        self._questions += 1
        question = self._questions
        fixed = group_share(draft.pattern)
        # Groups leave a budget nothing to choose.
        draft.mode = mode = "alike" if fixed is not None and mode == "budget" else mode
        self._light(preset)
        if not keep:
            zeros = dict.fromkeys(draft.levels, 0.0)
            if fixed is not None:
                draft.levels = dict.fromkeys(zeros, fixed)
            elif mode == "alike":
                draft.levels = dict.fromkeys(zeros, self._sparsity.value / 100)
            elif mode == "budget":
                budget, on = self._budget.budget, list(draft.on)
                levels = await asyncio.to_thread(self.basis.within, budget, on, draft.pattern)
                if question != self._questions:
                    return
                draft.levels = zeros | levels
            elif mode == "none":
                draft.levels = zeros
        self._follow()
        self._sparsity.enable(fixed is None)
        self._editor.fill(draft.levels, draft.on, fixed is not None)
        await self._recompute()
        if not keep:
            await self._choose(self._chosen)

    def _follow(self) -> None:
        """Let the sparsity be what the layers that are switched on come to, where it was not set by itself."""
        draft, levels = self.draft, self.draft.effective
        params = {layer.weight: layer.params for layer in self.basis.loss.layers if layer.weight in draft.on}
        zeros = sum(params[weight] * levels[weight] for weight in params)
        mean = round(100 * zeros / total) if (total := sum(params.values())) else 0
        if draft.mode != "alike" or group_share(draft.pattern) is not None:
            self._sparsity.show(mean)

    async def _recompute(self) -> None:
        """Show what is predicted of the draft, unless it has changed meanwhile."""
        self._turn += 1
        turn, basis = self._turn, self.basis
        draft = replace(self.draft, levels=dict(self.draft.levels), on=set(self.draft.on))
        estimate, ms, losses = await asyncio.to_thread(_predicted, basis, draft)
        if turn != self._turn or self._estimate.is_deleted:
            return
        self._editor.tell(ms, losses, set(basis.unmeasured()))
        pattern = _PATTERN_HELP.get(draft.pattern, "") if draft.mode != "none" else ""
        self._told.set_text(f"{_TOLD[draft.mode]} {pattern}".strip())
        with refilled(self._estimate):
            show_estimate(basis, estimate, draft.scheme, draft.pattern)

    def _light(self, preset: str) -> None:
        """Mark the preset that was chosen last; whatever else was chosen is not what was estimated."""
        if preset != "estimated":
            self.draft.gain = None
        for name, chip in self._chips.items():
            chip.classes(**{"add" if name == preset else "remove": "il-choice-on"})


def _predicted(basis: Basis, draft: Draft) -> tuple[RecipeEstimate, dict[str, float], dict[str, float]]:
    """The estimate, and by weight the time and the loss that its layers come to."""
    levels = draft.effective
    estimate = basis.predicted(levels, draft.pattern, draft.scheme)
    losses: dict[str, float] = {}
    for layer in basis.loss.layers:
        if layer.losses:
            losses[layer.weight] = losses.get(layer.weight, 0.0) + loss_at(layer, levels[layer.weight])
    performance = basis.profile.performance
    ms: dict[str, float] = {}
    if performance is not None:
        times = layer_times(performance, basis.loss, levels if gains_from_zeros(performance) else {})
        for timed in performance.layers:
            for weight, part in weight_shares(timed, basis.profile).items():
                ms[weight] = ms.get(weight, 0.0) + part * times[timed.index]
    return estimate, ms, losses
