"""What pruning would give, in the words of the pages."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.profiling.foretell import gains_from_zeros
from inferlab.records.profile import Profile
from inferlab.units import decimal, plural, share
from inferlab.workspace.engines import title

UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Foretold:
    """The estimate of a profile: numbers, or why there are none."""

    ms_per_batch: str
    speedup: str
    reduction: str
    reduction_share: str
    recovery: str
    #: How much of the budget it takes.
    spent: str
    note: str


def foretold(profile: Profile) -> Foretold:
    """The estimate that a profile has."""
    found = profile.estimate
    if found is None:
        return Foretold(UNKNOWN, UNKNOWN, UNKNOWN, "", UNKNOWN, "", _why_none(profile))
    ms, speedup = found.estimated_ms_per_batch, found.estimated_speedup
    left = 1 - found.parameter_reduction
    return Foretold(
        ms_per_batch=UNKNOWN if ms is None else decimal(ms, 3),
        speedup=UNKNOWN if speedup is None else f"{speedup:.2f} ×",
        reduction=f"{1 / left:.2f} ×" if left > 0 else UNKNOWN,
        reduction_share=f"{share(found.parameter_reduction)} of the parameters become zero",
        recovery=UNKNOWN if found.recovery is None else share(found.recovery),
        spent=f"loss {found.loss:.3g} of {found.budget:g}",
        note=_note(profile),
    )


def _why_none(profile: Profile) -> str:
    if profile.loss is None:
        return "There is no loss profile of this model, so nothing can be foretold of pruning."
    return "No layer of this model can be pruned: nothing can be foretold."


def _note(profile: Profile) -> str:
    found, performance = profile.estimate, profile.performance
    assert found is not None
    if performance is not None and found.gained == "parameters":
        return (
            "No times at levels of pruning were measured, so no speed-up can be told. Add a performance profile "
            "with “Times of pruned copies”, or on an engine that imposes sparsity."
        )
    if performance is not None and not gains_from_zeros(performance):
        return (
            f"Zeros in the weights gain nothing on {title(performance.engine)}: pruning would not make this model "
            "faster here."
        )
    if not found.levels:
        return "Nothing is pruned: no layer gains enough for what it would cost. Allow more loss."
    levels = sorted(found.levels.values())
    span = f"{levels[0]:g}" if levels[0] == levels[-1] else f"{levels[0]:g} to {levels[-1]:g}"
    return f"{plural(len(levels), 'weight')} pruned, to {span} zeros."
