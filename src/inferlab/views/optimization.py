"""An optimised version as blocks, and what is said of it in sentences, there and on its pages alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlab.optimizing.build import FAR_OFF
from inferlab.records import Finding, Model
from inferlab.records.optimization import (
    ChangedLayer,
    Distance,
    Measured,
    Optimization,
    Pruning,
    Quantization,
    Recipe,
)
from inferlab.units import decimal, plural, scaled, share, size
from inferlab.views import tables
from inferlab.views.fields import Field
from inferlab.views.intervals import between, between_at, rounded
from inferlab.views.tables import Block, Note, Pair, Table
from inferlab.views.text import finding

# So many layers are shown; all of them are in the file.
SHOWN = 15
_WIDTH = 36


def blocks(found: Optimization, shown: int = SHOWN) -> list[Block]:
    """Both models, the recipe, what it cost, what it gained, the layers, and what is to be known."""
    serious = warnings(found)
    return tables.spaced(
        facts(found),
        [Note(one, warning=True) for one in serious],
        [speeds(found)] if found.measured else [],
        _layers(found.layers, shown),
        tables.notes(one for one in notes(found) if one not in serious),
    )


def lines(found: Optimization, shown: int = SHOWN) -> list[str]:
    """The same as text."""
    return tables.text(blocks(found, shown))


def summary(found: Optimization) -> list[Block]:
    """What both models are, what it cost and, by engine, what it gained, without the layers."""
    gained = [Pair(f"Speed on {one.engine}", speedup(one), strong=True) for one in found.measured]
    return [*facts(found), *gained, *notes(found)]


def facts(found: Optimization) -> list[Pair]:
    """Both models, the recipe, and what it cost."""
    told = [
        Pair("Model", _model(found.model)),
        Pair("Optimised", _model(found.optimized)),
        Pair("Size", f"{share(found.optimized.size_bytes / found.model.size_bytes)} of the original's"),
        Pair("Recipe", recipe(found.recipe)),
    ]
    moved = found.distance
    if moved is not None:
        told.append(Pair("Output Distance", distance(moved)))
        if moved.accuracy is not None and moved.original_accuracy is not None:
            of_both = f"{share(moved.accuracy)}, of the original {share(moved.original_accuracy)}"
            told.append(Pair("Accuracy", of_both))
        if moved.loss_rise is not None:
            told.append(Pair("Cross-Entropy", f"{moved.loss_rise:+.3g} over the original's"))
    return told


def _model(model: Model) -> str:
    facts = [] if model.parameters is None else [f"{scaled(model.parameters)} parameters"]
    facts += [size(model.size_bytes), model.precision]
    if model.zero_fraction and round(model.zero_fraction, 3):
        facts.append(f"{share(round(model.zero_fraction, 3))} zeros")
    return f"{model.source} ({', '.join(facts)})"


def _interval(one: Measured) -> str | None:
    return None if one.speedup_interval is None else between_at(one.speedup_interval, one.level)


def speeds(found: Optimization) -> Table:
    """How fast it is on each engine, beside the original."""
    shown = [
        Field(
            "engine", "Engine", lambda one: f"{one.engine} {one.versions.get(one.engine, '')}".rstrip(), left=True
        ),
        Field("num_cores", "Cores", lambda one: one.num_cores),
        Field("batch_size", "Batch", lambda one: one.batch_size),
        Field("original_ms", "Original (ms)", lambda one: one.original_ms, decimal),
        Field("ms", "Optimised (ms)", lambda one: one.ms, decimal),
        Field(
            "speed_up",
            "Speed-up",
            lambda one: one.speedup,
            "{:.3g}".format,
            ends=lambda one: one.speedup_interval,
            suffix="x",
        ),
        Field("", "Interval", _interval, left=True),
        Field("verdict", "Verdict", lambda one: one.verdict, left=True),
    ]
    if any(one.foretold_speedup is not None for one in found.measured):
        shown += [
            Field("predicted_speed_up", "Predicted", lambda one: one.foretold_speedup, "{:.3g}x".format),
            Field("predicted_error", "Off by", lambda one: one.foretold_error, share),
        ]
    return Table(shown, found.measured, "Speed, measured interleaved with the original")


def _layers(found: Sequence[ChangedLayer], shown: int) -> list[Block]:
    """The layers that changed, in the order in which they run."""
    changed = [one for one in found if _changed(one)]
    if not changed or not shown:
        return []
    left = f" ({len(changed) - shown} more)" if len(changed) > shown else ""
    return [layers(changed[:shown], f"Changed Layers{left}")]


def layers(changed: Sequence[ChangedLayer], title: str = "") -> Table:
    """What became of each layer."""
    shown = [
        Field("type", "Type", lambda one: one.type, left=True),
        Field("weight", "Weight", lambda one: one.weight, left=True, longest=_WIDTH),
        Field("params", "Parameters", lambda one: one.params, scaled),
        Field("params_after", "Left", lambda one: one.params_after, scaled),
        Field("wanted", "Wanted", lambda one: one.wanted, "{:.3g}".format),
        Field("zeros_after", "Zeros", lambda one: one.zeros_after, share),
        Field("zeros_before", "Before", lambda one: one.zeros_before, share),
        Field("precision", "Precision", lambda one: one.precision, left=True),
    ]
    return Table(shown, changed, title)


def _changed(one: ChangedLayer) -> bool:
    return one.wanted is not None or one.params != one.params_after or one.precision != "FP32"


_SCHEMES = {"static": "INT8, static", "dynamic": "INT8, dynamic", "fp16": "FP16"}
_SCOPES = {
    "uniform": "{target} of every layer",
    "global": "{target} of all weights together, one threshold for all",
    "layers": "each layer by a level of its own",
}
# So many layers or operators are named.
_NAMED = 5


def recipe(found: Recipe) -> str:
    """A recipe in a few words."""
    parts = [] if found.pruning is None else [_pruning(found.pruning)]
    parts += [] if found.quantization is None else [_quantization(found.quantization)]
    return "; ".join([*parts, "graph cleaned up" if found.cleanup else "graph as it was"])


def _pruning(found: Pruning) -> str:
    layers = plural(len(found.layers), "layer")
    if found.budget is not None:
        how = f"levels from the estimate within a loss of {found.budget:g}"
    elif found.sparsity is None:
        how = _SCOPES["layers"] if ":" not in found.pattern else "every layer alike"
    else:
        how = _SCOPES[found.scope].format(target=share(found.sparsity))
    pattern = {"unstructured": "", "block4": ", in blocks of 4", "channel": ", whole channels"}
    return f"pruned by magnitude, {how} ({layers}{pattern.get(found.pattern, f', {found.pattern}')})"


def _quantization(found: Quantization) -> str:
    named = _SCHEMES.get(found.scheme, f"weights in INT{found.bits}, computed in floats")
    words = [named]
    if found.scheme in ("static", "dynamic"):
        words.append("by channel" if found.per_channel else "by tensor")
    if found.scheme == "static" and found.calibration_items:
        words.append(f"ranges from {plural(found.calibration_items, 'item')}")
    if found.exclude:
        words.append(f"{plural(len(found.exclude), 'layer or operator', 'layers or operators')} left out")
    return ", ".join(words)


def distance(found: Distance) -> str:
    """How far the outputs moved, in a line."""
    data = "generated inputs" if found.generated else "your data"
    on = f"on {plural(found.items, 'item')} of {data}"
    if found.relative_power is None:
        return f"unknown ({on})"
    return f"{found.relative_power:.3g} (the power of the change over that of the outputs, {on})"


def speedup(one: Measured) -> str:
    """How much faster it is on an engine, how sure that is, and the verdict."""
    ends = one.speedup_interval
    return f"{rounded(one.speedup, ends, '{:.3g}'.format)}x ({between(ends)}), {one.verdict}"


def notes(found: Optimization) -> list[str]:
    """All that qualifies the numbers: findings, what stayed as it was, what failed, that it was cut off."""
    told = [*warnings(found), *(told_of(one) for one in found.findings)]
    for one in found.measured:
        told += [_of_engine(one.engine, each) for each in one.findings]
    shrunk = {one.weight for one in found.layers if one.params_after < one.params}
    told += _named("left alone", {name: why for name, why in found.left_alone.items() if name not in shrunk})
    told += _named(
        "only inputs went, with the channels of layers before, and all outputs stay",
        {name: why for name, why in found.left_alone.items() if name in shrunk},
    )
    told += found.problems
    if found.interrupted:
        told.append("it was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(told))


def warnings(found: Optimization) -> list[str]:
    """What makes the version unfit for use; the first of the notes."""
    return [told_of(one) for one in found.findings if one.code == FAR_OFF]


def _named(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A sentence with the first few names and their reasons; none where there are no names."""
    named = [f"{name} ({reason})" for name, reason in reasons.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return [f"{what}: {', '.join(named[:_NAMED])}{more}."] if named else []


def told_of(one: Finding) -> str:
    """A finding as a sentence."""
    known = _FINDINGS.get(one.code)
    try:
        return known(one.data) if known else finding(one)
    except (KeyError, TypeError, ValueError):
        return finding(one)


def _of_engine(engine: str, one: Finding) -> str:
    return told_of(one) if one.code in _FINDINGS else f"{engine}: {finding(one)}"


def _far_off(data: Mapping[str, Any]) -> str:
    if "accuracy" in data:
        return (
            f"the accuracy fell from {share(data['original_accuracy'])} to {share(data['accuracy'])}, by more "
            f"than {share(data['limit'])}: the model does not do its work any more. {_LESS}"
        )
    generated = " These were generated inputs: look at it on your own data." if data["generated"] else ""
    return (
        f"the outputs are far from the original's: the output distance of {data['distance']:.3g} is above "
        f"{data['limit']:g}, so the model does not do its work any more. {_LESS}{generated}"
    )


def _no_faster(data: Mapping[str, Any]) -> str:
    return {
        "same": "as fast as the original",
        "slower": "slower than the original",
    }.get(data["verdict"], "at most a little faster than the original")


_LESS = "Prune less, leave layers out, or train it again."
_GAIN = " deepsparse gains from zeros; the pattern 'channel' takes them out, so that every engine gains."
_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    FAR_OFF: _far_off,
    "generated-inputs": lambda d: (
        f"ranges were found on {plural(d['items'], 'generated input')}, which are unlike real data: expect a "
        "worse model than with your own inputs (--data file.npz)."
    ),
    "other-model": lambda d: f"the recipe was made for another model ({d['model'] or 'unknown'}).",
    "other-data": lambda d: (
        f"the recipe found its ranges on other data ({d['data']}), so the model differs from the one that it "
        "gave then."
    ),
    "target-not-reached": lambda d: (
        f"{share(d['wanted'])} zeros were wanted, {share(d['reached'])} is how far the limits let it go"
        + (f" (at most {share(d['maximum'])} a layer)." if d["maximum"] < 1 else ".")
    ),
    "pattern-fell-short": lambda d: (
        f"{share(d['wanted'])} of what was chosen was to go, {share(d['reached'])} did: "
        "the others cannot be taken out by this pattern."
    ),
    "zeros-gain-nothing": lambda d: (
        f"{d['engine']} gained nothing from zeros in the profile, so levels were chosen by the parameters that "
        "become zero."
    ),
    "kept-sensitive": lambda d: (
        f"left in their precision, because they lose most: {', '.join(d['layers'])} (of {d['tried']} layers tried "
        "alone"
        + (f"; {d['of'] - d['tried']} could not be tried or time was up)." if d["tried"] < d["of"] else ").")
    ),
    "zeros-no-faster": lambda d: (
        f"{d['engine']} gained nothing from zeros: with {share(d['zeros'] or 0.0)} of the weights zero the model "
        f"is {_no_faster(d)} there." + ("" if d["engine"] == "deepsparse" else _GAIN)
    ),
    "unsettled": lambda d: (
        f"on {d['engine']} it is not settled whether the optimised model is faster ({d['speedup']:.3g}x in "
        f"{plural(d['pairs'], 'pair')} of processes). Give more time."
    ),
    "no-faster": lambda d: f"on {d['engine']} the optimised model is {_no_faster(d)}.",
}
