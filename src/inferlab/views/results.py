"""Every kind of result in every format: what is shown of it, and its text as JSON, CSV, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from inferlab.records import (
    Benchmark,
    Capacity,
    Comparison,
    ComparisonSweep,
    FleetRecommendation,
    Outcome,
    Recommendation,
)
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import Profile
from inferlab.views import tables
from inferlab.views.tables import Block, Table

Result = (
    Benchmark
    | Comparison
    | ComparisonSweep
    | Capacity
    | Recommendation
    | FleetRecommendation
    | Profile
    | Optimization
    | Front
)

R = TypeVar("R", Capacity, Recommendation, FleetRecommendation, Front, Optimization)


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown and written."""

    title: str
    blocks: Callable[[], list[Block]]
    csv: Callable[[], str]
    #: Its own report; None: that of its blocks.
    html: Callable[[], str] | None = None


def render(record: Result, ending: str) -> str:
    """The text of a file with this ending; JSON where it is none of the others."""
    from inferlab.views import content

    text = render_view(view_of(record), ending, lambda: content.content_of(record))
    return text + _readable(record) if ending == ".md" else text


def render_view(view: View, ending: str, json_values: Callable[[], Any]) -> str:
    """The text of a file with this ending of whatever has a view."""
    if ending == ".csv":
        return view.csv()
    if ending == ".md":
        return tables.markdown(view.title, view.blocks())
    if ending == ".html":
        if view.html is not None:
            return view.html()
        from inferlab.views import report

        return report.of_blocks(view.title, view.blocks())
    from inferlab.views import content

    return content.dumps(json_values())


def lines(record: Result, baseline: Outcome | None = None) -> list[str]:
    """What the commands print, as plain text; of a table, speed-ups refer to the baseline."""
    if isinstance(record, Benchmark):
        from inferlab.views import benchmark

        return tables.text(benchmark.blocks(record, baseline))
    return tables.text(view_of(record).blocks())


def _readable(record: Result) -> str:
    """What Markdown holds, unseen, so that a benchmark can be read back from it."""
    if not isinstance(record, Benchmark):
        return ""
    from inferlab.views import flat

    return f"\n{flat.hidden(flat.rows(record))}\n"


def view_of(record: Result) -> View:
    """How a result is shown; only what its kind needs is imported."""
    if isinstance(record, Benchmark):
        return _benchmark(record)
    if isinstance(record, Comparison):
        return _comparisons(ComparisonSweep((record,)))
    if isinstance(record, ComparisonSweep):
        return _comparisons(record)
    if isinstance(record, Profile):
        return _profile(record)
    if isinstance(record, Capacity):
        from inferlab.views import capacity

        return _view("capacity", record, capacity.blocks, capacity.curve)
    if isinstance(record, Recommendation):
        from inferlab.views import recommendation

        return _view("recommendation", record, recommendation.blocks, recommendation.table)
    if isinstance(record, FleetRecommendation):
        from inferlab.views import recommendation

        return _view("recommendation", record, recommendation.fleet_blocks, recommendation.fleet_table)
    from inferlab.views import optimization

    if isinstance(record, Front):
        return _view("search", record, optimization.front_blocks, optimization.front_table)
    return _view("optimised", record, optimization.blocks, optimization.speeds)


def _benchmark(record: Benchmark) -> View:
    from inferlab.views import benchmark, flat

    def report() -> str:
        from inferlab.views import benchmark_report  # late: it draws charts

        return benchmark_report.report(record)

    return View(
        benchmark.heading(record),
        lambda: benchmark.table_blocks(record),
        lambda: flat.to_csv(flat.rows(record)),
        report,
    )


def _comparisons(record: ComparisonSweep) -> View:
    from inferlab.views import comparison

    title = " / ".join(record.results[0].labels if record.results else ("A", "B"))
    return View(
        title,
        lambda: comparison.sweep_blocks(record),
        lambda: tables.to_csv(comparison.table(record)),
        lambda: comparison.report(title, record),
    )


def _profile(record: Profile) -> View:
    from inferlab.views import profile, profile_tables

    def report() -> str:
        from inferlab.views import profile_report  # late: it draws charts

        return profile_report.report(record)

    return View(
        f"{_name(record)}: profile",
        lambda: profile.blocks(record),
        lambda: tables.csv_records(profile_tables.layer_rows(record)),
        report,
    )


def _view(what: str, record: R, blocks: Callable[[R], list[Block]], table: Callable[[R], Table]) -> View:
    return View(f"{_name(record)}: {what}", lambda: blocks(record), lambda: tables.to_csv(table(record)))


def _name(record: Capacity | Recommendation | FleetRecommendation | Front | Optimization | Profile) -> str:
    source = record.model if isinstance(record, Front) else record.model.source
    return PurePath(source).name or source
