"""A search for the release in which a model became worse, as blocks and as a file."""

from __future__ import annotations

from inferlab.codec import plain
from inferlab.records.series import Bisection, BisectionStep
from inferlab.units import decimal, plural, share
from inferlab.views.fields import Field, interval_text, rounded
from inferlab.views.results import View
from inferlab.views.tables import Block, Note, Pair, Table

#: Version 1: the first.
FORMAT = "inferlab-bisection/1"
_METRICS = {"latency": "time", "memory": "peak memory", "load": "load time", "outputs": "outputs"}


def view_of(bisection: Bisection) -> View:
    """How it is shown and written."""
    return View(
        _title(bisection), lambda: blocks(bisection), lambda: _table(bisection), lambda: content(bisection)
    )


def content(bisection: Bisection) -> dict[str, object]:
    """All of it as JSON values."""
    return {"format": FORMAT, **plain(bisection)}


def _title(bisection: Bisection) -> str:
    return f"{bisection.model} on {bisection.engine}: {_METRICS[bisection.metric]}"


def blocks(bisection: Bisection) -> list[Block]:
    """The release in which it changed, then every comparison."""
    engine, first = bisection.engine, bisection.first_bad
    compared = [step for step in bisection.steps if step.verdict != "skipped"]
    shown: list[Block] = [
        Pair("First bad release", f"{engine}=={first} ({_change(bisection)})", strong=True),
        Pair("Last good release", f"{engine}=={bisection.last_good}"),
        Pair(
            "Compared",
            f"{plural(len(compared), 'release')} with {engine}=={bisection.versions[0]}, of "
            f"{len(bisection.versions) - 1} after it; margin {share(bisection.margin)}",
        ),
    ]
    if doubtful := [step.version for step in bisection.steps[1:] if not step.sure]:
        shown.append(
            Note(
                f"it is not sure which side {' and '.join(doubtful)} belongs to, so that the change may lie in a "
                "release nearby. Give more time with -t."
            )
        )
    if bisection.untried:
        names = ", ".join(bisection.untried)
        shown.append(Note(f"these could not be compared, and any of them may be the first: {names}."))
    return [*shown, _table(bisection)]


def _change(bisection: Bisection) -> str:
    step = next(step for step in bisection.steps if step.version == bisection.first_bad)
    if step.ratio is None:
        return step.detail
    told = f"it takes {rounded(step.ratio.value, step.ratio.ends)} of the {_METRICS[bisection.metric]} of "
    return f"{told}{bisection.versions[0]}, {interval_text(step.ratio.ends, step.ratio.level)}"


def _table(bisection: Bisection) -> Table:
    shown = [
        Field("version", "Release", lambda step: step.version, left=True),
        Field("verdict", "It is", lambda step: step.verdict, left=True),
        Field("ratio", "Over the good one", lambda step: step.ratio.value if step.ratio else None, decimal),
        Field("interval", "Interval", _interval),
        Field("detail", "Remark", _remark, left=True, longest=80),
    ]
    return Table(shown, bisection.steps)


def _interval(step: BisectionStep) -> str:
    return interval_text(step.ratio.ends, step.ratio.level) if step.ratio else ""


def _remark(step: BisectionStep) -> str:
    return step.detail or ("compared before" if step.saved else "")
