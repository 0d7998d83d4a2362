"""Optimised versions, and the searches for them, as blocks and in sentences, there and on their pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inferlab.optimizing.build import FAR_OFF
from inferlab.optimizing.pareto import keeps_loss, may_reach, outcome, size_ratio
from inferlab.records.optimization import (
    Candidate,
    ChangedLayer,
    Distance,
    Front,
    Goal,
    Measured,
    Optimization,
    Pruning,
    Quantization,
    Recipe,
)
from inferlab.units import decimal, duration, plural, scaled, share, shortened, size
from inferlab.views import fields, tables
from inferlab.views.fields import Field, interval_of
from inferlab.views.intervals import advice, between, between_at, interval_text, rounded
from inferlab.views.tables import Block, Note, Pair, Table
from inferlab.views.text import finding, model_line

_LONGEST_REASON = 100
_QUIETER = "Close other programs (inferlab doctor shows what disturbs), or search longer with --search-time."


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
        tables.notes(note for note in notes(found) if note not in serious),
    )


def summary(found: Optimization) -> list[Block]:
    """What both models are, what it cost and, by engine, what it gained, without the layers."""
    gained = [Pair(f"Speed on {one.engine}", speedup(one), strong=True) for one in found.measured]
    return [*facts(found), *gained, *notes(found)]


def facts(found: Optimization) -> list[Pair]:
    """Both models, the recipe, and what it cost."""
    told = [
        Pair("Model", model_line(found.model)),
        Pair("Optimised", model_line(found.optimized)),
        Pair("Size", f"{share(found.optimized.size_bytes / found.model.size_bytes)} of the original's"),
        Pair("Recipe", recipe(found.recipe)),
    ]
    moved = found.distance
    if moved is not None:
        told.append(Pair("Output distance", distance(moved)))
        if moved.accuracy is not None and moved.original_accuracy is not None:
            of_both = f"{share(moved.accuracy)}, of the original {share(moved.original_accuracy)}"
            expected = moved.expected_accuracy
            told.append(Pair("Accuracy", of_both + ("" if expected is None else f", expected {share(expected)}")))
        if moved.loss_rise is not None:
            told.append(Pair("Cross-Entropy", f"{moved.loss_rise:+.3g} over the original's"))
    return told


def _interval(one: Measured) -> str | None:
    return None if one.speedup_interval is None else between_at(one.speedup_interval, one.level)


def speeds(found: Optimization) -> Table:
    """How fast it is on each engine, beside the original."""
    shown = [
        Field(
            "engine", "Engine", lambda one: f"{one.engine} {one.versions.get(one.engine, '')}".rstrip(), left=True
        ),
        *(fields.NUM_CORES.capitalized, fields.BATCH_SIZE.capitalized),
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
    return [layers(changed[:shown], f"Changed layers{left}")]


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
    return f"{found.relative_power:.3g} (mean square change over mean square output, {on})"


def speedup(one: Measured) -> str:
    """How much faster it is on an engine, how sure that is, and the verdict."""
    ends = one.speedup_interval
    return f"{rounded(one.speedup, ends, '{:.3g}'.format)}x ({between(ends)}), {one.verdict}"


def notes(found: Optimization) -> list[str]:
    """All that qualifies the numbers: findings, what stayed as it was, what failed, that it was cut off."""
    told = [*warnings(found), *(finding(one) for one in found.findings)]
    for one in found.measured:
        # Some name their engine themselves.
        told += [("" if "engine" in each.data else f"{one.engine}: ") + finding(each) for each in one.findings]
    shrunk = {layer.weight for layer in found.layers if layer.params_after < layer.params}
    told += _named("left alone", {name: why for name, why in found.left_alone.items() if name not in shrunk})
    told += _named(
        "only inputs were removed, with the channels of earlier layers, and all outputs stay",
        {name: why for name, why in found.left_alone.items() if name in shrunk},
    )
    told += found.problems
    if found.interrupted:
        told.append("it was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(told))


def warnings(found: Optimization) -> list[str]:
    """What makes the version unfit for use; the first of the notes."""
    return [finding(one) for one in found.findings if one.code == FAR_OFF]


def _named(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A sentence with the first few names and their reasons; none where there are no names."""
    named = [f"{name} ({reason})" for name, reason in reasons.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return [f"{what}: {', '.join(named[:_NAMED])}{more}."] if named else []


def front_blocks(found: Front) -> list[Block]:
    """The goal, all that was tried as a table, and whether the goal was reached."""
    return tables.spaced([_front_head(found)], [front_table(found)], [*goal_verdict(found), *_front_notes(found)])


def goal_text(goal: Goal) -> str:
    """The goal in words."""
    wanted = [f"{goal.speedup:.3g} times as fast"] if goal.speedup else []
    wanted += [f"{goal.size_ratio:.3g} times smaller"] if goal.size_ratio else []
    return f"{' and '.join(wanted)} within a loss of {share(goal.max_loss)}"


def goal_verdict(found: Front) -> list[str]:
    """Whether the goal was reached and by what, or how near it came and what stands in the way."""
    again = found.confirmed
    if again is not None and (found.chosen is not None or outcome(found) == "reached"):
        return _confirmed(found, again)
    if found.chosen is not None:
        return [f"Reached in the search, not confirmed by a second measurement: {_told(found, found.chosen)}."]
    how = "all candidates were tried" if found.complete else "not all candidates were tried"
    words = [f"Not reached: no recipe is certainly {goal_text(found.goal)}; {how}."]
    if found.nearest is not None:
        nearest = found.candidates[found.nearest]
        words.append(f"Nearest within the loss: {_told(found, found.nearest)}.")
        if may_reach(nearest, found.goal, found.original_bytes):
            why = "Its interval leaves" if nearest.speedup_interval else "Too few pairs for an interval leave"
            words.append(f"{why} open whether it reaches the goal: a longer search may show it.")
        if again is not None:
            words.append(f"Measured again: {_described(found, again, found.nearest)}.")
    else:
        words.append("Nothing that was tried is nearer to it within the loss than the original is.")
    beyond = _beyond(found)
    if beyond is not None:
        words.append(f"With more loss: {_told(found, beyond)}.")
    if found.interrupted:
        words.append("It was interrupted; what was known by then is kept.")
    elif not found.complete:
        words.append("Time ran out: a longer search (--search-time) tries more.")
    return words


def _confirmed(found: Front, one: Candidate) -> list[str]:
    """What the second measurement says of the goal, beside what the search had measured."""
    place = found.chosen if found.chosen is not None else found.nearest
    assert place is not None, "what was confirmed was chosen before"
    told = _described(found, one, place)
    result = outcome(found)
    if result == "reached":
        return [f"Reached: measured again, {told}."]
    words = [f"{'Missed' if result == 'missed' else 'Not confirmed'}: measured again, {told}."]
    if one.reason:
        words.append(f"{one.reason[0].upper()}{one.reason[1:].rstrip('.')}.")
    elif result == "open":
        words.append(f"That leaves open whether it is {goal_text(found.goal)}: a longer search may show it.")
    words.append(f"In the search it had been: {_told(found, place)}.")
    return words


def _beyond(found: Front) -> int | None:
    """The place of the least lossy one that would reach the goal if more loss were allowed."""
    goal = found.goal
    fitting = [
        place
        for place, candidate in enumerate(found.candidates)
        if candidate.loss is not None
        and not keeps_loss(candidate, goal)
        and (candidate.speedup or 0.0) >= (goal.speedup or 0.0)
        and size_ratio(candidate, found.original_bytes) >= (goal.size_ratio or 0.0)
    ]
    return min(fitting, key=lambda place: found.candidates[place].loss or 0.0, default=None)


def _front_head(found: Front) -> str:
    engine = " ".join(
        (found.engine, *(found.versions[name] for name in (found.engine,) if name in found.versions))
    )
    where = f"{engine}, {plural(found.num_cores, 'core')}, batch size {found.batch_size}"
    return f"{found.model} ({size(found.original_bytes)}) on {where}: to be {goal_text(found.goal)}"


_SPEED_UP = Field(
    "speed_up",
    "speed-up",
    lambda row: row[1].speedup,
    "{:.2f}".format,
    ends=lambda row: row[1].speedup_interval,
)


def front_table(found: Front) -> Table:
    """A row for each recipe that was tried."""

    def smaller(row: tuple[int, Candidate]) -> float | None:
        return size_ratio(row[1], found.original_bytes) or None

    shown = [
        Field("number", "#", lambda row: row[0] + 1),
        Field("recipe", "recipe", lambda row: row[1].label, left=True),
        *(_SPEED_UP, interval_of(_SPEED_UP, "interval")),
        Field("loss", "loss", lambda row: row[1].loss, lambda loss: _loss_text(found, loss)),
        Field("size_bytes", "size", lambda row: row[1].size_bytes, size),
        Field("size_ratio", "smaller", smaller, "{:.2f}".format),
        Field("remark", "", lambda row: _remark(found, row[0]), left=True),
    ]
    chosen = {found.chosen} if found.chosen is not None else set()
    return Table(shown, list(enumerate(found.candidates)), strong=chosen)


def _loss_text(found: Front, loss: float | None) -> str:
    if loss is None:
        return "-"
    return f"{100 * loss:.2f} %" if found.metric == "accuracy" else f"{loss:.2g}"


def _remark(found: Front, place: int) -> str:
    one = found.candidates[place]
    words = ["chosen"] if place == found.chosen else ["nearest"] if place == found.nearest else []
    words += ["efficient"] if one.efficient else []
    words += [shortened(" ".join(one.reason.split()), _LONGEST_REASON)] if one.reason else []
    return ", ".join(words)


def _told(found: Front, place: int) -> str:
    return _described(found, found.candidates[place], place)


def _described(found: Front, one: Candidate, place: int) -> str:
    parts = []
    if one.speedup is not None:
        ends = one.speedup_interval
        sure = "no interval" if ends is None else interval_text(ends, one.level or 0.0, "{:.2f}".format)
        parts.append(f"{rounded(one.speedup, ends, '{:.2f}'.format)} times as fast ({sure})")
    parts.append(f"loss {_loss_text(found, one.loss)}")
    if one.accuracy is not None and found.original_accuracy is not None:
        parts[-1] += f" (accuracy {share(one.accuracy)}, of the original {share(found.original_accuracy)})"
    parts.append(f"{size_ratio(one, found.original_bytes):.2f} times smaller")
    return f"#{place + 1}, {one.label}: {', '.join(parts)}"


def _front_notes(found: Front) -> list[str]:
    metric = {
        "accuracy": "the drop of the accuracy",
        "relative power": "the mean square change of the outputs over the mean square of the original's",
    }[found.metric]
    kind = "generated items" if found.generated else "items of the data"
    notes = [f"A loss is {metric}, on {found.items} {kind}."]
    notes.append("Efficient: no other recipe is as fast, as small and loses as little; the original counts too.")
    measured = sum(candidate.speedup is not None for candidate in found.candidates)
    notes.append(
        f"{plural(len(found.candidates), 'recipe')}, {measured} measured interleaved with the original; "
        f"{duration(found.seconds)}."
    )
    if measured:
        notes.append(
            "Each interval is of its own row, not of the best of all rows: what is chosen is therefore measured "
            "again, by a comparison planned beforehand, and only that one decides."
        )
    return notes + advice([candidate.speedup_interval for candidate in found.candidates], _QUIETER)
