"""The versions of a model to choose from, the original first; those whose file is gone say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from inferlab.workspace.versions import Version

_OPTION = """
<q-item v-bind="props.itemProps" :data-testid="'version-option-' + (props.opt.id || 'original')">
  <q-item-section>
    <q-item-label>{{ props.opt.label }}</q-item-label>
    <q-item-label v-if="props.opt.reason" caption>{{ props.opt.reason }}</q-item-label>
  </q-item-section>
</q-item>
"""
_REASONS = {"there": "", "gone": "its file is gone", "changed": "its file has changed"}


class VersionSelect(ui.select):
    """Versions by their names; `chosen` is the id of one, or None for the model as it is."""

    def __init__(self, versions: Sequence[Version], value: str | None = None) -> None:
        self._versions = tuple(versions)
        names = {"": "Original", **{one.id: one.name for one in versions}}
        super().__init__(names, label="Optimization Version", value=value if value in names else "")
        self.add_slot("option", _OPTION)

    @property
    def chosen(self) -> str | None:
        """The id of the version that is chosen."""
        return str(self.value) if self.value else None

    def _update_options(self) -> None:
        super()._update_options()
        shown: list[dict[str, Any]] = self._props["options"]
        shown[0] |= {"id": ""}
        for option, one in zip(shown[1:], self._versions, strict=True):
            reason = _REASONS[one.file]
            option |= {"id": one.id, "reason": reason, "disable": bool(reason)}
