"""How small a difference could be seen on this machine, told by a model that was compared with itself."""

from __future__ import annotations

from inferlab.machine_state import Fact
from inferlab.measure.intervals import smallest_visible
from inferlab.records import Comparison, Plan

# Its calls take some milliseconds, as those of many models do.
_MODEL = "demo:mobilenet_v2"
#: Both arms of the trial.
TRIAL = Plan(_MODEL, scenarios=("sync",), num_cores=(1,), verify=False)
# Machines that cannot see this in a minute make small improvements invisible.
_FINE = 0.03


def visible_in_a_minute(trial: Comparison) -> Fact:
    """The smallest difference that a comparison of one minute would show here."""
    pair_s = trial.seconds / len(trial.pairs)
    visible = smallest_visible(trial.ratio, len(trial.pairs), 60.0 / pair_s)
    data = {"visible": visible, "pairs": len(trial.pairs), "seconds": trial.seconds, "model": _MODEL}
    if visible is None:
        return Fact("smallest-difference", "unknown", data)
    return Fact("smallest-difference", "good" if visible <= _FINE else "warn", data)
