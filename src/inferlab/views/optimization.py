"""An optimised version as text."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.records import Model
from inferlab.records.optimization import ChangedLayer, Measured, Optimization
from inferlab.units import decimal, scaled, share, size
from inferlab.views import columns
from inferlab.views import optimization_words as words
from inferlab.views.intervals import between_at, rounded

# So many layers are shown; all of them are in the file.
SHOWN = 15
_WIDTH = 36
#: What a line begins with that is to be shown in red.
WARNING = "Warning: "


def lines(found: Optimization, shown: int = SHOWN) -> list[str]:
    """Both models, the recipe, what it cost, what it gained, the layers, and what is to be known."""
    warnings = words.warnings(found)
    parts = [_head(found), [f"{WARNING}{one}" for one in warnings]]
    parts += [_speeds(found.measured), _layers(found.layers, shown)]
    parts.append([f"Note: {one}" for one in words.notes(found) if one not in warnings])
    return [line for index, part in enumerate(filter(None, parts)) for line in ([""] if index else []) + part]


def pairs(found: Optimization) -> list[tuple[str, str]]:
    """What both models are, what it cost and, by engine, what it gained."""
    told = [tuple(line.split(": ", 1)) for line in _head(found)]
    speeds = [(f"Speed on {one.engine}", words.speedup(one)) for one in found.measured]
    return [*((name, value) for name, value in told), *speeds]


def _head(found: Optimization) -> list[str]:
    told = [
        f"Model: {_model(found.model)}",
        f"Optimised: {_model(found.optimized)}",
        f"Size: {share(found.optimized.size_bytes / found.model.size_bytes)} of the original's",
        f"Recipe: {words.recipe(found.recipe)}",
    ]
    distance = found.distance
    if distance is not None:
        told.append(f"Output Distance: {words.distance(distance)}")
        if distance.accuracy is not None and distance.original_accuracy is not None:
            told.append(
                f"Accuracy: {share(distance.accuracy)}, of the original {share(distance.original_accuracy)}"
            )
        if distance.loss_rise is not None:
            told.append(f"Cross-Entropy: {distance.loss_rise:+.3g} over the original's")
    return told


def _model(model: Model) -> str:
    facts = [] if model.parameters is None else [f"{scaled(model.parameters)} parameters"]
    facts += [size(model.size_bytes), model.precision]
    if model.zero_fraction and round(model.zero_fraction, 3):
        facts.append(f"{share(round(model.zero_fraction, 3))} zeros")
    return f"{model.source} ({', '.join(facts)})"


def _speeds(found: Sequence[Measured]) -> list[str]:
    if not found:
        return []
    foretold = any(one.foretold_speedup is not None for one in found)
    head = ["Engine", "Cores", "Batch", "Original (ms)", "Optimised (ms)", "Speed-up", "Interval", "Verdict"]
    rows = [[*head, "Foretold", "Off by"] if foretold else head]
    for one in found:
        ends = one.speedup_interval
        row = [
            f"{one.engine} {one.versions.get(one.engine, '')}".rstrip(),
            str(one.num_cores),
            str(one.batch_size),
            decimal(one.original_ms),
            decimal(one.ms),
            f"{rounded(one.speedup, ends, '{:.3g}'.format)}x",
            "-" if ends is None else between_at(ends, one.level),
            one.verdict,
        ]
        if foretold:
            known = one.foretold_speedup is not None and one.foretold_error is not None
            row += [f"{one.foretold_speedup:.3g}x", share(one.foretold_error or 0.0)] if known else ["-", "-"]
        rows.append(row)
    head_line = "Speed, measured in turns with the original:"
    return [head_line, *columns.aligned(rows, left=(0, 6, 7))]


def _layers(found: Sequence[ChangedLayer], shown: int) -> list[str]:
    """The layers that changed, in the order in which they run."""
    changed = [one for one in found if _changed(one)]
    if not changed or not shown:
        return []
    rows = [["Type", "Weight", "Parameters", "Left", "Wanted", "Zeros", "Before", "Precision"]]
    rows += [
        [
            one.type,
            columns.shortened(one.weight, _WIDTH),
            scaled(one.params),
            scaled(one.params_after),
            "-" if one.wanted is None else f"{one.wanted:.3g}",
            share(one.zeros_after),
            share(one.zeros_before),
            one.precision,
        ]
        for one in changed[:shown]
    ]
    left = f" ({len(changed) - shown} more)" if len(changed) > shown else ""
    return [f"Changed Layers{left}:", *columns.aligned(rows, left=(0, 1, 7))]


def _changed(one: ChangedLayer) -> bool:
    return one.wanted is not None or one.params != one.params_after or one.precision != "FP32"
