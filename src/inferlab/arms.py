"""The two arms of a comparison: what they share, what is each one's own, and how they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import Comparison, Event, Listener, Plan


def plans(
    models: Sequence[str],
    engines: Sequence[str],
    common: Mapping[str, Any],
    own: tuple[Mapping[str, Any], Mapping[str, Any]],
    make: Callable[[dict[str, Any]], Plan],
) -> tuple[Plan, Plan]:
    """Both plans; `make` turns the options of one arm, its model among them, into a plan."""
    if len(models) > 2:
        raise BadInput(f"Two models are compared, not {len(models)}: {', '.join(models)}.")
    if len(engines) > 2:
        raise BadInput(f"Two engines are compared, not {len(engines)}: {', '.join(engines)}.")
    arms = [
        make({**common, "model": models[min(index, len(models) - 1)],
              "engine": (engines[min(index, len(engines) - 1)],), **settings})
        for index, settings in enumerate(own)
    ]  # fmt: skip
    return arms[0], arms[1]


def compare(lab: Lab, a: Plan, b: Plan, time_s: float, margin: float, listener: Listener) -> Comparison:
    """Compare both in turns, named by what tells them apart."""
    if a == b:
        listener(Event("same-arms"))
    return lab.compare(a, b, labels(a, b), time_s, margin, listener)


def labels(a: Plan, b: Plan) -> tuple[str, str]:
    """What tells the arms apart, or the model where nothing does."""
    told = []
    for one, other in ((a, b), (b, a)):
        differing = [
            _value(getattr(one, name)) if name in ("model", "engines") else f"{name}={_value(getattr(one, name))}"
            for name in Plan.__slots__
            if getattr(one, name) != getattr(other, name)
        ]
        told.append(", ".join(differing) or one.model)
    return told[0], told[1]


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_value(one) if not isinstance(one, tuple) else "=".join(one) for one in value)
    return "default" if value is None else str(value)
