"""The control of the loss budget: how much of it, and by which loss profile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from nicegui import html, ui

from inferlab.profiling.estimate import BUDGET
from inferlab.web.components.fields import help_icon

# The slider goes by powers of ten, in steps that change what is chosen but little.
_LOW, _HIGH, _STEP = -3.0, 1.0, 0.05
_MARKS = [{"value": power, "label": f"{10.0**power:g}"} for power in range(-3, 2)]
# Who drags a slider passes many values on the way.
_SETTLED_S = 0.25
_HELP = (
    "How much loss the pruning of all layers together may cost, before any retraining. The losses of single "
    "layers are added up: 0.1 leaves 90 % of the outputs' power, or is a rise of the cross-entropy by 0.1."
)


class BudgetControl:
    """A slider, a number and, where there are several, the loss profiles to go by."""

    def __init__(
        self,
        changed: Callable[[], Awaitable[None]],
        budget: float = BUDGET,
        losses: Mapping[str, str] | None = None,
        chosen: str | None = None,
    ) -> None:
        self._changed, self._turn = changed, 0
        self._setting = False
        with html.div().classes("il-budget"):
            with html.div().classes("il-stat-label"):
                html.span("Loss Budget")
                help_icon(_HELP)
            with html.div().classes("il-budget-row"):
                self._slider = ui.slider(min=_LOW, max=_HIGH, step=_STEP, value=_place(budget))
                self._slider.props(
                    f':marker-labels="{_MARKS}" data-testid="budget-slider" aria-label="Loss Budget"'
                )
                self._number = ui.number(value=budget, min=0, step=0.01).props('data-testid="budget"')
            self._loss = ui.select(dict(losses or {}), label="Loss Profile", value=chosen)
            self._loss.props('data-testid="budget-loss"').set_visibility(bool(losses))
        self._slider.on_value_change(self._slid)
        self._number.on_value_change(self._typed)
        self._loss.on_value_change(self._settle)

    @property
    def budget(self) -> float:
        """The loss that may be spent."""
        return max(0.0, float(self._number.value or 0.0))

    @property
    def loss_id(self) -> str | None:
        """The entry whose losses are gone by; None for the profile's own."""
        return None if self._loss.value is None else str(self._loss.value)

    # Not themselves asynchronous: such handlers run when what `_set` set is over.
    def _slid(self) -> Awaitable[None] | None:
        if self._setting:
            return None
        self._set(lambda: self._number.set_value(float(f"{10**self._slider.value:.2g}")))
        return self._settle()

    def _typed(self) -> Awaitable[None] | None:
        if self._setting or self._number.value is None:
            return None
        self._set(lambda: self._slider.set_value(_place(self.budget)))
        return self._settle()

    def _set(self, change: Callable[[], object]) -> None:
        """Let one field follow the other without an answer."""
        self._setting = True
        change()
        self._setting = False

    async def _settle(self) -> None:
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(_SETTLED_S)
        if turn == self._turn:
            await self._changed()


def _place(budget: float) -> float:
    """Where a budget is on the slider, or the end that is nearest."""
    return min(_HIGH, max(_LOW, math.log10(budget))) if budget > 0 else _LOW
