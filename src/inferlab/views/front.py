"""What a search found, as text and as a file."""

from __future__ import annotations

from inferlab.optimizing.pareto import keeps_loss, may_reach, outcome, size_ratio
from inferlab.records.optimization import Candidate, Front, Goal
from inferlab.units import duration, plural, share, shortened, size
from inferlab.views import tables
from inferlab.views.fields import Field, interval_of
from inferlab.views.intervals import advice, interval_text, rounded
from inferlab.views.tables import Block, Table

_LONGEST_REASON = 100
_QUIETER = "Close other programs (inferlab doctor tells what disturbs), or search longer with --search-time."


def blocks(found: Front) -> list[Block]:
    """The goal, all that was tried as a table, and whether the goal was reached."""
    return tables.spaced([_head(found)], [table(found)], [*verdict(found), *_notes(found)])


def lines(found: Front) -> list[str]:
    """The same as text."""
    return tables.text(blocks(found))


def goal_text(goal: Goal) -> str:
    """The goal in words."""
    wanted = [f"{goal.speedup:.3g} times as fast"] if goal.speedup else []
    wanted += [f"{goal.size_ratio:.3g} times as small"] if goal.size_ratio else []
    return f"{' and '.join(wanted)} within a loss of {share(goal.max_loss)}"


def verdict(found: Front) -> list[str]:
    """Whether the goal was reached and by what, or how near it came and what stands in the way."""
    again = found.confirmed
    if again is not None and (found.chosen is not None or outcome(found) == "reached"):
        return _confirmed(found, again)
    if found.chosen is not None:
        return [f"Reached in the search, not confirmed by a second measurement: {_told(found, found.chosen)}."]
    how = "all that there was to try was tried" if found.complete else "not all was tried"
    words = [f"Not reached: no recipe is surely {goal_text(found.goal)}; {how}."]
    if found.nearest is not None:
        nearest = found.candidates[found.nearest]
        words.append(f"Nearest within the loss: {_told(found, found.nearest)}.")
        if may_reach(nearest, found.goal, found.original_bytes):
            why = "Its interval leaves" if nearest.speedup_interval else "Too few pairs for an interval leave"
            words.append(f"{why} open whether it reaches the goal: a longer search may tell.")
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
        words.append("The time was over: a longer search (--search-time) tries more.")
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
        words.append(f"That leaves open whether it is {goal_text(found.goal)}: a longer search may tell.")
    words.append(f"In the search it had been: {_told(found, place)}.")
    return words


def _beyond(found: Front) -> int | None:
    """The place of the least lossy one that would reach the goal if more loss were allowed."""
    goal = found.goal
    fitting = [
        place
        for place, one in enumerate(found.candidates)
        if one.loss is not None
        and not keeps_loss(one, goal)
        and (one.speedup or 0.0) >= (goal.speedup or 0.0)
        and size_ratio(one, found.original_bytes) >= (goal.size_ratio or 0.0)
    ]
    return min(fitting, key=lambda place: found.candidates[place].loss or 0.0, default=None)


def _head(found: Front) -> str:
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


def table(found: Front) -> Table:
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
    parts.append(f"{size_ratio(one, found.original_bytes):.2f} times as small")
    return f"#{place + 1}, {one.label}: {', '.join(parts)}"


def _notes(found: Front) -> list[str]:
    metric = {
        "accuracy": "the drop of the accuracy",
        "relative power": "the power of the outputs' change over that of the original's outputs",
    }[found.metric]
    kind = "generated items" if found.generated else "items of the data"
    notes = [f"A loss is {metric}, on {found.items} {kind}."]
    notes.append("Efficient: no other recipe is as fast, as small and loses as little; the original counts too.")
    measured = sum(one.speedup is not None for one in found.candidates)
    notes.append(
        f"{plural(len(found.candidates), 'recipe')}, {measured} measured interleaved with the original; "
        f"{duration(found.seconds)}."
    )
    if measured:
        notes.append(
            "Each interval is of its own row, not of the best of all rows: what is chosen is therefore measured "
            "again, by a comparison planned beforehand, and only that one decides."
        )
    return notes + advice([one.speedup_interval for one in found.candidates], _QUIETER)
