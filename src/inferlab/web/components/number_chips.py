"""Numbers to choose from as chips, one or several of them, with a field for any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from nicegui import html, ui
from nicegui.element import Element


class NumberChips:
    """Made within the element that shall show it; `changed` is called when something else is chosen."""

    def __init__(
        self,
        label: str,
        name: str,
        offered: Sequence[int],
        value: int,
        most: int | None,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._name, self._most, self._changed = name, most, changed
        self._offered = sorted({*offered, value})
        self._usual = (self._offered, [value])
        self.values = [value]
        self._enabled = True
        with html.div(role="group").classes("il-numbers").props(f'data-testid="{name}" aria-label="{label}"'):
            html.div(label).classes("il-numbers-label")
            self._row: Element = html.div().classes("il-numbers-row")
            with html.div().classes("il-numbers-more"):
                self._multiple = ui.checkbox("Enable Multiple", on_change=self._one_or_several).props(
                    f'dense data-testid="{name}-multiple"'
                )
            self._reason = ui.label("").classes("il-muted il-small")
        self._fill()

    def fix(self, values: Sequence[int], reason: str) -> None:
        """Show what cannot be chosen here, and why."""
        if self._enabled:
            self._usual = (self._offered, self.values)
        self._enabled, self.values, self._offered = False, list(values), sorted({*self._offered, *values})
        self._end(reason)

    def free(self) -> None:
        """Let the user choose again, from what was chosen before."""
        if not self._enabled:
            self._enabled = True
            self._offered, self.values = self._usual
            self._end("")

    def _end(self, reason: str) -> None:
        self._multiple.set_enabled(self._enabled)
        self._reason.set_text(reason)
        self._fill()

    def _fill(self) -> None:
        self._row.clear()
        with self._row:
            for number in self._offered:
                chosen = number in self.values
                chip = html.button(str(number), type="button").classes("il-choice")
                chip.classes("il-choice-on" if chosen else "")
                chip.props(f'aria-pressed="{str(chosen).lower()}" data-testid="{self._name}-{number}"')
                chip.props("" if self._enabled else "disabled")
                chip.on("click", partial(self._toggle, number), [])
            if self._enabled and (self._most is None or self._most > len(self._offered)):
                other = ui.input(placeholder="other").classes("il-choice-other")
                other.props(f'type=number min=1 data-testid="{self._name}-other"')
                other.on("keydown.enter", lambda: self._add(other.value), [])
                other.on("blur", lambda: self._add(other.value), [])

    async def _add(self, text: str | None) -> None:
        """Take a number that was typed in; what is none stays in the field."""
        if not (text or "").strip().isdigit():
            return
        number = int(str(text))
        if number < 1:
            return
        self._offered = sorted({*self._offered, number})
        if number not in self.values:
            await self._toggle(number)
        else:
            self._fill()

    async def _toggle(self, number: int) -> None:
        if not self._multiple.value:
            self.values = [number]
        elif number not in self.values:
            self.values = sorted([*self.values, number])
        elif len(self.values) > 1:
            self.values = [one for one in self.values if one != number]
        self._fill()
        await self._changed()

    async def _one_or_several(self) -> None:
        if not self._multiple.value and len(self.values) > 1:
            self.values = self.values[:1]
            self._fill()
            await self._changed()
