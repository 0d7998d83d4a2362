"""A list of engines to choose from, in which those that cannot be chosen say why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from inferlab.workspace.engines import EngineChoice

_OPTION = """
<q-item v-bind="props.itemProps" :data-testid="'engine-' + props.opt.engine">
  <q-item-section>
    <q-item-label>{{ props.opt.label }}</q-item-label>
    <q-item-label v-if="props.opt.reason" caption>{{ props.opt.reason }}</q-item-label>
  </q-item-section>
</q-item>
"""


class EngineSelect(ui.select):
    """Engines by their titles; its value is the name of one that can be chosen, or None where none can."""

    def __init__(
        self, choices: Sequence[EngineChoice] = (), label: str = "Engine", value: str | None = None
    ) -> None:
        self._choices = tuple(choices)
        super().__init__(_titles(choices), label=label, value=_chosen(choices, value))
        self.props('popup-content-class="il-options"').add_slot("option", _OPTION)

    def offer(self, choices: Sequence[EngineChoice], value: str | None = None) -> None:
        """Show other choices; the value stays where it can, else it is `value`, else the first that can be."""
        self._choices = tuple(choices)
        kept = self.value if self.value in _possible(choices) else _chosen(choices, value)
        self.set_options(_titles(choices), value=kept)

    def _update_options(self) -> None:
        super()._update_options()
        shown: list[dict[str, Any]] = self._props["options"]
        for option, choice in zip(shown, self._choices, strict=True):
            option |= {"engine": choice.name, "reason": choice.reason, "disable": bool(choice.reason)}


def _titles(choices: Sequence[EngineChoice]) -> dict[str, str]:
    return {one.name: one.title for one in choices}


def _possible(choices: Sequence[EngineChoice]) -> list[str]:
    return [one.name for one in choices if not one.reason]


def _chosen(choices: Sequence[EngineChoice], wanted: str | None) -> str | None:
    possible = _possible(choices)
    return wanted if wanted in possible else next(iter(possible), None)
