"""The fields of a form for profiles, the loss budget to go by, and the dialogs that add profiles to a project."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from inferlab import machine
from inferlab.errors import BadInput
from inferlab.options import field_values
from inferlab.options.optimization import PROFILE
from inferlab.options.plan import PLAN
from inferlab.records import Model
from inferlab.records.profile import BUDGET, LEVELS
from inferlab.store.entries import Entry, Project
from inferlab.web.components.forms import (
    EngineSelect,
    Foot,
    OptionForm,
    VersionSelect,
    dialog,
    help_icon,
    shapes_field,
)
from inferlab.web.components.uploads import HINT, DataField
from inferlab.web.desk import Desk
from inferlab.web.faults import LABELS
from inferlab.web.shell import div, p, span, tag
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.requests import USUAL_PROFILE, ProfileRequest

_OFF = {
    "performance": "Off: nothing is timed. The profile is approximated from the architecture as a FLOPS profile, "
    "a theoretical measure.",
    "loss": "Off: nothing is pruned and tried. The profile is approximated from the weights.",
}
#: Parts of a performance profile, by the option that asks for them.
_PARTS = {
    "levels": "Zeroes real weights, level by level, on engines that do not impose sparsity by themselves.",
    "int8": "Makes a copy that is really quantised, and times it.",
    "roofline": "Measures the ceilings of this machine, and says what limits each layer.",
}
_DATA = f"{HINT} For the loss profile and the INT8 copy; without one, inputs are generated."


class ProfileFields:
    """The entries for a performance profile, a loss profile or both; of both, each has a switch.

    Made within the element that shall show it; `filled` is what stands in it at first, `changed` is called when a
    switch is turned.
    """

    def __init__(
        self,
        desk: Desk,
        model: Model,
        performance: bool = True,
        loss: bool = True,
        filled: ProfileRequest = USUAL_PROFILE,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._desk, self._model, self._filled, self._changed = desk, model, filled, changed
        self._form = OptionForm("profile", declarations=PROFILE)
        self._names: dict[str, ui.input] = {}
        self._parts: dict[str, ui.checkbox] = {}
        self._switches: dict[str, ui.switch] = {}
        # Until the engines were asked, the one that stands in the form is taken at its word.
        self._looked = False
        self._offered = {"performance": performance, "loss": loss}
        with div("il-profile-form"):
            for part, fill in (("performance", self._performance), ("loss", lambda: self._name("loss"))):
                if self._offered[part]:
                    self._column(part, fill)
            with tag("section", "il-profile-inputs"):
                self._shapes = shapes_field(model, filled.plan.input_shapes or "")
                # It comes with data of its own.
                known = filled.wanted.data_file or ("demo:digits" if model.source == "demo:digits" else "")
                self._data = DataField(desk.workspace.sources, known, _DATA)

    @property
    def anything(self) -> bool:
        """Whether something is to be measured at all."""
        return self._wants("performance") or self._wants("loss")

    def form(self) -> ProfileRequest:
        """What was entered; refuses what is no number."""
        performance, loss = self._wants("performance"), self._wants("loss")
        engine = self._engine.value if performance and self._looked else self._filled.plan.engines[0]
        if not engine:
            raise BadInput("No engine here can profile this model. Switch Performance off, or install one.")
        plan = replace(USUAL_PROFILE.plan, input_shapes=self.input_shapes)
        names: dict[str, Any] = {
            f"{part}_name": field.value or "" for part, field in self._names.items() if self._wants(part)
        }
        wanted = replace(
            USUAL_PROFILE.wanted, performance=performance, loss=loss, data_file=self._data.source, **names
        )
        if performance:
            values = self._form.values()
            plan = replace(plan, engines=(engine,), **field_values(PLAN, plan, values | {"time": plan.time_s}))
            wanted = replace(
                wanted,
                levels=LEVELS if self._parts["levels"].value else None,
                int8=bool(self._parts["int8"].value),
                roofline=bool(self._parts["roofline"].value),
                time_s=values["time"],
            )
        return ProfileRequest(plan, wanted)

    @property
    def input_shapes(self) -> str:
        """The shapes that were entered; empty for guessed ones."""
        return (self._shapes.value or "").strip()

    def kept(self) -> ProfileRequest:
        """What was entered, as far as it fits another model too."""
        try:
            form = self.form()
            plan = replace(form.plan, batch_sizes=(None,), sequence_lengths=(None,), input_shapes=None)
            return replace(form, plan=plan)
        except BadInput:
            return self._filled

    def enable(self, on: bool) -> None:
        """Let the user change the entries, or show them greyed out."""
        engine = [self._engine] if self._offered["performance"] else []
        named = (self._names, self._parts, self._switches, self._form.fields)
        for field in (*engine, *(field for fields in named for field in fields.values())):
            field.set_enabled(on)
        for field in (self._shapes, self._data.field, self._data.upload):
            field.set_enabled(on)

    def _wants(self, part: str) -> bool:
        return bool(self._switches[part].value) if part in self._switches else self._offered[part]

    def _column(self, part: str, fill: Callable[[], None]) -> None:
        with tag("section", "il-profile-part"):
            if not all(self._offered.values()):
                fill()
                return
            with div("il-profile-head"):
                tag("h3", "", part.capitalize())
                switch = ui.switch(value=getattr(self._filled.wanted, part), on_change=lambda: self._changed())
                switch.props(f'data-testid="{part}-switch" aria-label="{part.capitalize()}"')
            self._switches[part] = switch
            with div("il-profile-fields") as fields:
                fill()
            fields.bind_visibility_from(switch, "value")
            p("il-muted", _OFF[part]).bind_visibility_from(switch, "value", backward=lambda value: not value)

    def _name(self, part: str) -> None:
        field = ui.input(f"{part.capitalize()} profile name", value=getattr(self._filled.wanted, f"{part}_name"))
        self._names[part] = field.props(f'data-testid="{part}-name"')

    def _performance(self) -> None:
        wanted = self._filled.wanted
        self._name("performance")
        with div("il-fields-row"):
            self._form.cell(self._model, self._filled.plan)
        self._engine = EngineSelect().props('data-testid="engine"')
        self._offer_engines()
        with div("il-checks"):
            for part, help in _PARTS.items():
                with div("il-row"):
                    box = ui.checkbox(LABELS[part], value=bool(getattr(wanted, part)))
                    self._parts[part] = box.props(f'dense data-testid="{part}"')
                    help_icon(help)
        with div("il-fields-row"):
            self._form.number("time", wanted.time_s, label="Time for each part (s)")
        sets = machine.describe().instruction_sets
        vnni = ", VNNI" if machine.has_vnni(sets) else ""
        div("il-muted il-small", f"Instruction sets: {machine.vector_width(sets).upper()}{vnni}")

    def _offer_engines(self) -> None:
        engines, select = self._desk.workspace.engines, self._engine

        def offer(choices: Sequence[EngineChoice]) -> None:
            select.offer(choices, self._filled.plan.engines[0])
            self._looked = True

        async def look() -> None:
            offer(await asyncio.to_thread(engines.choices, self._model, True))
            select.props(remove="loading hint")

        if engines.known is None:
            select.props('loading hint="Checking which engines are available…"')
            ui.timer(0.0, look, once=True)
        else:
            offer(engines.choices(self._model, profiling=True))


_TOLD = {
    "performance": "Measure where the time goes, at the batch size and core count that you will deploy with.",
    "loss": "Measure what pruning each layer alone costs, on your data or on generated inputs.",
}


async def open_profile(desk: Desk, project: Project, part: str) -> None:
    """Ask for another profile of a part: performance or loss."""
    # Not where the button is: the navigation is drawn again when profiles come and go.
    client = ui.context.client
    profiles = await asyncio.to_thread(desk.workspace.profiles, project.id)
    name = _free_name(profiles, part)
    filled = ProfileRequest(
        replace(USUAL_PROFILE.plan, input_shapes=project.input_shapes),
        replace(USUAL_PROFILE.wanted, performance_name=name, loss_name=name),
    )
    versions = await asyncio.to_thread(desk.workspace.versions.of_project, project.id)

    async def add() -> None:
        form = replace(fields.form(), version=select.chosen)
        await desk.change(desk.workspace.add_profile, project.id, form)

    with dialog(f"New {part} profile", client=client, name="profile-dialog") as opened:
        p("il-muted", _TOLD[part])
        select = VersionSelect(versions).props('data-testid="version"')
        select.set_visibility(bool(versions))
        fields = ProfileFields(desk, project.model, part == "performance", part == "loss", filled)
        Foot(opened, "Add", "add", add)


def _free_name(profiles: list[Entry], part: str) -> str:
    """A name that no profile of this kind has yet."""
    parts = [profile.brief[part] for profile in profiles if profile.brief.get(part)]
    # What is estimated from the weights is called Approximated, whatever name it was made under.
    taken = {str(entry["name"]) for entry in parts if entry.get("method") != "approximated"}
    if "baseline" not in taken:
        return "baseline"
    return next(name for number in range(2, len(taken) + 3) if (name := f"profile {number}") not in taken)


# Who drags a slider passes many values on the way.
_SETTLED_S = 0.25


class SliderNumber:
    """A slider and the number beside it, of which each follows the other; `changed` is called when one is settled.

    The slider has a lowest and a highest place and a step. It goes by what `to_place` makes of the number, and
    `from_place` makes a number of that again.
    """

    def __init__(
        self,
        label: str,
        name: str,
        help: str,
        changed: Callable[[], Awaitable[None]],
        value: float,
        scale: tuple[float, float, float],
        marks: Mapping[float, str],
        step: float,
        most: float | None = None,
        suffix: str = "",
        to_place: Callable[[float], float] = float,
        from_place: Callable[[float], float] = float,
    ) -> None:
        self._changed, self._to_place, self._from_place = changed, to_place, from_place
        self._turn, self._setting = 0, False
        with div("il-stat-label"):
            span("", label)
            help_icon(help)
        with div("il-budget-row"):
            labels = [{"value": place, "label": text} for place, text in marks.items()]
            low, high, slider_step = scale
            self._slider = ui.slider(min=low, max=high, step=slider_step, value=to_place(value)).props(
                f':marker-labels="{labels}" data-testid="{name}-slider" aria-label="{label}"'
            )
            self._number = ui.number(value=value, min=0, max=most, step=step, suffix=suffix or None).props(
                f'data-testid="{name}" aria-label="{label}"'
            )
        self._slider.on_value_change(self._slid)
        self._number.on_value_change(self._typed)

    @property
    def value(self) -> float:
        """What is chosen."""
        return max(0.0, float(self._number.value or 0.0))

    def show(self, value: float) -> None:
        """Show another value without an answer; nobody waits any more for what was chosen before."""
        self.drop_pending()
        self._set(lambda: (self._slider.set_value(self._to_place(value)), self._number.set_value(value)))

    def enable(self, on: bool) -> None:
        """Let the user choose, or not."""
        self._slider.set_enabled(on)
        self._number.set_enabled(on)

    def drop_pending(self) -> None:
        """What was chosen last is in force, but nobody waits for it to be told any more."""
        self._turn += 1

    async def settle(self) -> None:
        """Tell of a change, unless another follows it."""
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(_SETTLED_S)
        if turn == self._turn:
            await self._changed()

    # Not themselves asynchronous: such handlers run when what `_set` set is over.
    def _slid(self) -> Awaitable[None] | None:
        if self._setting:
            return None
        self._set(lambda: self._number.set_value(self._from_place(self._slider.value)))
        return self.settle()

    def _typed(self) -> Awaitable[None] | None:
        if self._setting or self._number.value is None:
            return None
        self._set(lambda: self._slider.set_value(self._to_place(self.value)))
        return self.settle()

    def _set(self, change: Callable[[], object]) -> None:
        """Let one field follow the other without an answer."""
        self._setting = True
        change()
        self._setting = False


# The slider goes by powers of ten, in steps that change what is chosen but little.
_LOW, _HIGH, _STEP = -3.0, 1.0, 0.05
_HELP = (
    "How much loss a change of the model may cost, before any retraining: INT8, removed channels and zeros alike. "
    "For zeros, the losses of single layers are added up. 0.1 leaves 90 % of the outputs' power, or is a rise of "
    "the cross-entropy by 0.1."
)


class BudgetControl:
    """The loss budget and, where there are several, the loss profiles to go by."""

    def __init__(
        self,
        changed: Callable[[], Awaitable[None]],
        budget: float = BUDGET,
        losses: Mapping[str, str] | None = None,
        chosen: str | None = None,
    ) -> None:
        with div("il-budget"):
            self._budget = SliderNumber(
                "Loss budget",
                "budget",
                _HELP,
                changed,
                budget,
                (_LOW, _HIGH, _STEP),
                {power: f"{10.0**power:g}" for power in range(-3, 2)},
                0.01,
                to_place=_place,
                from_place=lambda place: float(f"{10**place:.2g}"),
            )
            self._loss = ui.select(dict(losses or {}), label="Loss profile", value=chosen)
            self._loss.props('data-testid="budget-loss"').set_visibility(bool(losses))
        self._loss.on_value_change(self._budget.settle)
        self.drop_pending = self._budget.drop_pending

    @property
    def budget(self) -> float:
        """The loss that may be spent."""
        return self._budget.value

    @property
    def loss_id(self) -> str | None:
        """The entry whose losses are gone by; None for the profile's own."""
        return None if self._loss.value is None else str(self._loss.value)


def _place(budget: float) -> float:
    """Where a budget is on the slider, or the end that is nearest."""
    return min(_HIGH, max(_LOW, math.log10(budget))) if budget > 0 else _LOW
