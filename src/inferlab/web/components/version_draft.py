"""A version on its way: what the user has chosen so far, and the presets to begin from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inferlab.records.optimization import Scheme
from inferlab.workspace.version_forms import PATTERNS, SCHEMES, Basis, VersionForm

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

    @property
    def effective(self) -> dict[str, float]:
        """The share of zeros of every weight; 0 for those that are switched off."""
        if self.mode == "none":
            return dict.fromkeys(self.levels, 0.0)
        return {weight: level if weight in self.on else 0.0 for weight, level in self.levels.items()}

    def form(self, name: str, basis: Basis) -> VersionForm:
        """The form that asks for it."""
        return VersionForm(
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
