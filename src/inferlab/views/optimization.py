"""Optimised versions, and the searches for them, as blocks and in sentences, there and on their pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inferlab.optimizing.build import FAR_OFF
from inferlab.optimizing.pareto import keeps_loss, may_reach, outcome, size_ratio
from inferlab.records.optimization import (
    CHANNEL,
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
from inferlab.store import formats
from inferlab.units import decimal, duration, plural, scaled, share, shortened, size
from inferlab.views import fields, tables
from inferlab.views.fields import Field, advice, between, between_at, interval_of, interval_text, rounded
from inferlab.views.results import View, short_name
from inferlab.views.tables import Block, Note, Pair, Table
from inferlab.views.text import finding, model_line

_LONGEST_REASON = 100
_QUIETER = "Close other programs (inferlab doctor shows what disturbs), or search longer with --search-time."


# So many layers are shown; all of them are in the file.
SHOWN = 15
_WIDTH = 36


def view_of(record: Optimization | Front) -> View:
    """How a version or a search for one is shown and written."""
    if isinstance(record, Front):
        return View(
            f"{short_name(record.model)}: search",
            lambda: front_blocks(record),
            lambda: front_table(record),
            lambda: formats.content_of(record),
        )
    return View(
        f"{short_name(record.model.source)}: optimised",
        lambda: blocks(record),
        lambda: speeds(record),
        lambda: formats.content_of(record),
    )


def blocks(version: Optimization, shown: int = SHOWN) -> list[Block]:
    """Both models, the recipe, what it cost, what it gained, the layers, and what is to be known."""
    serious = warnings(version)
    return tables.spaced(
        facts(version),
        [Note(warning, warning=True) for warning in serious],
        [speeds(version)] if version.measured else [],
        _layers(version.layers, shown),
        tables.notes(note for note in notes(version) if note not in serious),
    )


def summary(version: Optimization) -> list[Block]:
    """What both models are, what it cost and, by engine, what it gained, without the layers."""
    gained = [Pair(f"Speed on {measured.engine}", speedup(measured), strong=True) for measured in version.measured]
    return [*facts(version), *gained, *notes(version)]


def facts(version: Optimization) -> list[Pair]:
    """Both models, the recipe, and what it cost."""
    pairs = [
        Pair("Model", model_line(version.model)),
        Pair("Optimised", model_line(version.optimized)),
        Pair("Size", f"{share(version.optimized.size_bytes / version.model.size_bytes)} of the original's"),
        Pair("Recipe", recipe(version.recipe)),
    ]
    moved = version.distance
    if moved is not None:
        pairs.append(Pair("Output distance", distance(moved)))
        if moved.accuracy is not None and moved.original_accuracy is not None:
            of_both = f"{share(moved.accuracy)}, of the original {share(moved.original_accuracy)}"
            pairs.append(Pair("Accuracy", of_both + _expected(moved.expected_accuracy, version.recipe)))
        if moved.loss_rise is not None:
            pairs.append(Pair("Cross-Entropy", f"{moved.loss_rise:+.3g} over the original's"))
    return pairs


def _expected(accuracy: float | None, recipe: Recipe) -> str:
    if accuracy is None:
        return ""
    # Profiles tried zeros anywhere, which cost less.
    patterned = recipe.pruning is not None and recipe.pruning.pattern not in ("unstructured", CHANNEL)
    return f", expected {'at most ' if patterned else ''}{share(accuracy)}"


def _interval(measured: Measured) -> str | None:
    return None if measured.speedup_interval is None else between_at(measured.speedup_interval, measured.level)


def speeds(version: Optimization) -> Table:
    """How fast it is on each engine, beside the original."""
    columns = [
        Field(
            "engine",
            "Engine",
            lambda measured: f"{measured.engine} {measured.versions.get(measured.engine, '')}".rstrip(),
            left=True,
        ),
        *(fields.NUM_CORES.capitalized, fields.BATCH_SIZE.capitalized),
        Field("original_ms", "Original (ms)", lambda measured: measured.original_ms, decimal),
        Field("ms", "Optimised (ms)", lambda measured: measured.ms, decimal),
        Field(
            "speed_up",
            "Speed-up",
            lambda measured: measured.speedup,
            "{:.3g}".format,
            ends=lambda measured: measured.speedup_interval,
            suffix="x",
        ),
        Field("", "Interval", _interval, left=True),
        Field("verdict", "Verdict", lambda measured: measured.verdict, left=True),
    ]
    if any(measured.predicted_speedup is not None for measured in version.measured):
        columns += [
            Field(
                "predicted_speed_up", "Predicted", lambda measured: measured.predicted_speedup, "{:.3g}x".format
            ),
            Field("predicted_error", "Off by", lambda measured: measured.predicted_error, share),
        ]
    return Table(columns, version.measured, "Speed, measured interleaved with the original")


def _layers(all_layers: Sequence[ChangedLayer], most: int) -> list[Block]:
    """The layers that changed, in the order in which they run."""
    changed = [layer for layer in all_layers if _changed(layer)]
    if not changed or not most:
        return []
    left = f" ({len(changed) - most} more)" if len(changed) > most else ""
    return [layers(changed[:most], f"Changed layers{left}")]


def layers(changed: Sequence[ChangedLayer], title: str = "") -> Table:
    """What became of each layer."""
    columns = [
        Field("type", "Type", lambda layer: layer.type, left=True),
        Field("weight", "Weight", lambda layer: layer.weight, left=True, longest=_WIDTH),
        Field("params", "Parameters", lambda layer: layer.params, scaled),
        Field("params_after", "Left", lambda layer: layer.params_after, scaled),
        Field("wanted", "Wanted", lambda layer: layer.wanted, "{:.3g}".format),
        Field("zeros_after", "Zeros", lambda layer: layer.zeros_after, share),
        Field("zeros_before", "Before", lambda layer: layer.zeros_before, share),
        Field("precision", "Precision", lambda layer: layer.precision, left=True),
    ]
    return Table(columns, changed, title)


def _changed(layer: ChangedLayer) -> bool:
    return layer.wanted is not None or layer.params != layer.params_after or layer.precision != "FP32"


_SCHEMES = {"static": "INT8, static", "dynamic": "INT8, dynamic", "fp16": "FP16"}
_SCOPES = {
    "uniform": "{target} of every layer",
    "global": "{target} of all weights together, one threshold for all",
    "layers": "each layer by a level of its own",
}
# So many layers or operators are named.
_NAMED = 5


def recipe(chosen: Recipe) -> str:
    """A recipe in a few words."""
    parts = [] if chosen.pruning is None else [_pruning(chosen.pruning)]
    parts += [] if chosen.quantization is None else [_quantization(chosen.quantization)]
    return "; ".join([*parts, "graph cleaned up" if chosen.cleanup else "graph as it was"])


def _pruning(pruning: Pruning) -> str:
    layers = plural(len(pruning.layers), "layer")
    if pruning.budget is not None:
        how = f"levels from the estimate within a loss of {pruning.budget:g}"
    elif pruning.sparsity is None:
        how = _SCOPES["layers"] if ":" not in pruning.pattern else "every layer alike"
    else:
        how = _SCOPES[pruning.scope].format(target=share(pruning.sparsity))
    pattern = {"unstructured": "", "block4": ", in blocks of 4", "channel": ", whole channels"}
    return f"pruned by magnitude, {how} ({layers}{pattern.get(pruning.pattern, f', {pruning.pattern}')})"


def _quantization(quantization: Quantization) -> str:
    named = _SCHEMES.get(quantization.scheme, f"weights in INT{quantization.bits}, computed in floats")
    words = [named]
    if quantization.scheme in ("static", "dynamic"):
        words.append("by channel" if quantization.per_channel else "by tensor")
    if quantization.scheme == "static" and quantization.calibration_items:
        words.append(f"ranges from {plural(quantization.calibration_items, 'item')}")
    if quantization.exclude:
        words.append(f"{plural(len(quantization.exclude), 'layer or operator', 'layers or operators')} left out")
    return ", ".join(words)


def distance(moved: Distance) -> str:
    """How far the outputs moved, in a line."""
    data = "generated inputs" if moved.generated else "your data"
    on = f"on {plural(moved.items, 'item')} of {data}"
    if moved.relative_power is None:
        return f"unknown ({on})"
    return f"{moved.relative_power:.3g} (mean square change over mean square output, {on})"


def speedup(measured: Measured) -> str:
    """How much faster it is on an engine, how sure that is, and the verdict."""
    ends = measured.speedup_interval
    return f"{rounded(measured.speedup, ends, '{:.3g}'.format)}x ({between(ends)}), {measured.verdict}"


def notes(version: Optimization) -> list[str]:
    """All that qualifies the numbers: findings, what stayed as it was, what failed, that it was cut off."""
    sentences = [*warnings(version), *(finding(warning) for warning in version.findings)]
    for measured in version.measured:
        # Some name their engine themselves.
        sentences += [
            ("" if "engine" in each.data else f"{measured.engine}: ") + finding(each) for each in measured.findings
        ]
    shrunk = {layer.weight for layer in version.layers if layer.params_after < layer.params}
    sentences += _named(
        "left alone", {name: why for name, why in version.left_alone.items() if name not in shrunk}
    )
    sentences += _named(
        "only inputs were removed, with the channels of earlier layers, and all outputs stay",
        {name: why for name, why in version.left_alone.items() if name in shrunk},
    )
    sentences += version.problems
    if version.interrupted:
        sentences.append("it was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(sentences))


def warnings(version: Optimization) -> list[str]:
    """What makes the version unfit for use; the first of the notes."""
    return [finding(warning) for warning in version.findings if warning.code == FAR_OFF]


def _named(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A sentence with the first few names and their reasons; none where there are no names."""
    named = [f"{name} ({reason})" for name, reason in reasons.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return [f"{what}: {', '.join(named[:_NAMED])}{more}."] if named else []


def front_blocks(front: Front) -> list[Block]:
    """The goal, all that was tried as a table, and whether the goal was reached."""
    return tables.spaced([_front_head(front)], [front_table(front)], [*goal_verdict(front), *_front_notes(front)])


def goal_text(goal: Goal) -> str:
    """The goal in words."""
    goals = [f"{goal.speedup:.3g} times as fast"] if goal.speedup else []
    goals += [f"{goal.size_ratio:.3g} times smaller"] if goal.size_ratio else []
    return f"{' and '.join(goals)} within a loss of {share(goal.max_loss)}"


def goal_verdict(front: Front) -> list[str]:
    """Whether the goal was reached and by what, or how near it came and what stands in the way."""
    again = front.confirmed
    if again is not None and (front.chosen is not None or outcome(front) == "reached"):
        return _confirmed(front, again)
    if front.chosen is not None:
        return [
            "Reached in the search, not confirmed by a second measurement: "
            f"{_candidate_text(front, front.chosen)}."
        ]
    how = "all candidates were tried" if front.complete else "not all candidates were tried"
    words = [f"Not reached: no recipe is certainly {goal_text(front.goal)}; {how}."]
    if front.nearest is not None:
        nearest = front.candidates[front.nearest]
        words.append(f"Nearest within the loss: {_candidate_text(front, front.nearest)}.")
        if may_reach(nearest, front.goal, front.original_bytes):
            why = "Its interval leaves" if nearest.speedup_interval else "Too few pairs for an interval leave"
            words.append(f"{why} open whether it reaches the goal: a longer search may show it.")
        if again is not None:
            words.append(f"Measured again: {_described(front, again, front.nearest)}.")
    else:
        words.append("Nothing that was tried is nearer to it within the loss than the original is.")
    beyond = _beyond(front)
    if beyond is not None:
        words.append(f"With more loss: {_candidate_text(front, beyond)}.")
    if front.interrupted:
        words.append("It was interrupted; what was known by then is kept.")
    elif not front.complete:
        words.append("Time ran out: a longer search (--search-time) tries more.")
    return words


def _confirmed(front: Front, candidate: Candidate) -> list[str]:
    """What the second measurement says of the goal, beside what the search had measured."""
    place = front.chosen if front.chosen is not None else front.nearest
    assert place is not None, "what was confirmed was chosen before"
    description = _described(front, candidate, place)
    result = outcome(front)
    if result == "reached":
        return [f"Reached: measured again, {description}."]
    words = [f"{'Missed' if result == 'missed' else 'Not confirmed'}: measured again, {description}."]
    if candidate.reason:
        words.append(f"{candidate.reason[0].upper()}{candidate.reason[1:].rstrip('.')}.")
    elif result == "open":
        words.append(f"That leaves open whether it is {goal_text(front.goal)}: a longer search may show it.")
    words.append(f"In the search it had been: {_candidate_text(front, place)}.")
    return words


def _beyond(front: Front) -> int | None:
    """The place of the least lossy one that would reach the goal if more loss were allowed."""
    goal = front.goal
    fitting = [
        place
        for place, candidate in enumerate(front.candidates)
        if candidate.loss is not None
        and not keeps_loss(candidate, goal)
        and (candidate.speedup or 0.0) >= (goal.speedup or 0.0)
        and size_ratio(candidate, front.original_bytes) >= (goal.size_ratio or 0.0)
    ]
    return min(fitting, key=lambda place: front.candidates[place].loss or 0.0, default=None)


def _front_head(front: Front) -> str:
    engine = " ".join(
        (front.engine, *(front.versions[name] for name in (front.engine,) if name in front.versions))
    )
    where = f"{engine}, {plural(front.num_cores, 'core')}, batch size {front.batch_size}"
    return f"{front.model} ({size(front.original_bytes)}) on {where}: to be {goal_text(front.goal)}"


_SPEED_UP = Field(
    "speed_up",
    "speed-up",
    lambda row: row[1].speedup,
    "{:.2f}".format,
    ends=lambda row: row[1].speedup_interval,
)


def front_table(front: Front) -> Table:
    """A row for each recipe that was tried."""

    def smaller(row: tuple[int, Candidate]) -> float | None:
        return size_ratio(row[1], front.original_bytes) or None

    columns = [
        Field("number", "#", lambda row: row[0] + 1),
        Field("recipe", "recipe", lambda row: row[1].label, left=True),
        *(_SPEED_UP, interval_of(_SPEED_UP, "interval")),
        Field("loss", "loss", lambda row: row[1].loss, lambda loss: _loss_text(front, loss)),
        Field("size_bytes", "size", lambda row: row[1].size_bytes, size),
        Field("size_ratio", "smaller", smaller, "{:.2f}".format),
        Field("remark", "", lambda row: _remark(front, row[0]), left=True),
    ]
    chosen = {front.chosen} if front.chosen is not None else set()
    return Table(columns, list(enumerate(front.candidates)), strong=chosen)


def _loss_text(front: Front, loss: float | None) -> str:
    if loss is None:
        return "-"
    return f"{100 * loss:.2f} %" if front.metric == "accuracy" else f"{loss:.2g}"


def _remark(front: Front, place: int) -> str:
    candidate = front.candidates[place]
    words = ["chosen"] if place == front.chosen else ["nearest"] if place == front.nearest else []
    words += ["efficient"] if candidate.efficient else []
    words += [shortened(" ".join(candidate.reason.split()), _LONGEST_REASON)] if candidate.reason else []
    return ", ".join(words)


def _candidate_text(front: Front, place: int) -> str:
    return _described(front, front.candidates[place], place)


def _described(front: Front, candidate: Candidate, place: int) -> str:
    parts = []
    if candidate.speedup is not None:
        ends = candidate.speedup_interval
        sure = "no interval" if ends is None else interval_text(ends, candidate.level or 0.0, "{:.2f}".format)
        parts.append(f"{rounded(candidate.speedup, ends, '{:.2f}'.format)} times as fast ({sure})")
    parts.append(f"loss {_loss_text(front, candidate.loss)}")
    if candidate.accuracy is not None and front.original_accuracy is not None:
        parts[-1] += f" (accuracy {share(candidate.accuracy)}, of the original {share(front.original_accuracy)})"
    parts.append(f"{size_ratio(candidate, front.original_bytes):.2f} times smaller")
    return f"#{place + 1}, {candidate.label}: {', '.join(parts)}"


def _front_notes(front: Front) -> list[str]:
    metric = {
        "accuracy": "the drop of the accuracy",
        "relative power": "the mean square change of the outputs over the mean square of the original's",
    }[front.metric]
    kind = "generated items" if front.generated else "items of the data"
    notes = [f"A loss is {metric}, on {front.items} {kind}."]
    notes.append("Efficient: no other recipe is as fast, as small and loses as little; the original counts too.")
    measured = sum(candidate.speedup is not None for candidate in front.candidates)
    notes.append(
        f"{plural(len(front.candidates), 'recipe')}, {measured} measured interleaved with the original; "
        f"{duration(front.seconds)}."
    )
    if measured:
        notes.append(
            "Each interval is of its own row, not of the best of all rows: what is chosen is therefore measured "
            "again, by a comparison planned beforehand, and only that one decides."
        )
    return notes + advice([candidate.speedup_interval for candidate in front.candidates], _QUIETER)
