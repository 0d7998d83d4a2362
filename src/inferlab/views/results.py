"""Every kind of result in every format: what is shown of it, and its text as JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from inferlab.records import (
    Benchmark,
    Capacity,
    Comparison,
    ComparisonSweep,
    FleetRecommendation,
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

R = TypeVar("R", Capacity, Recommendation, FleetRecommendation)


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown and written."""

    title: str
    blocks: Callable[[], list[Block]]
    json: Callable[[], str]
    csv: Callable[[], str]
    #: Its own report; None: that of its blocks.
    html: Callable[[], str] | None = None


def render(record: Result, ending: str) -> str:
    """The text of a file with this ending; JSON where it is none of the others."""
    view = view_of(record)
    if ending == ".csv":
        return view.csv()
    if ending == ".md":
        return tables.markdown(view.title, view.blocks()) + _readable(record)
    if ending == ".html":
        if view.html is not None:
            return view.html()
        from inferlab.views import report

        return report.of_blocks(view.title, view.blocks())
    return view.json()


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
    return _deployment(record) or _optimization(record)


def _benchmark(record: Benchmark) -> View:
    from inferlab.views import benchmark, files, flat

    def report() -> str:
        from inferlab.views import benchmark_report  # late: it draws charts

        return benchmark_report.report(record)

    return View(
        benchmark.heading(record),
        lambda: benchmark.table_blocks(record),
        lambda: files.to_json(record),
        lambda: flat.to_csv(flat.rows(record)),
        report,
    )


def _comparisons(record: ComparisonSweep) -> View:
    from inferlab.views import comparison

    labels = record.results[0].labels if record.results else ("A", "B")
    title = f"{labels[0]} / {labels[1]}"

    def report() -> str:
        from inferlab.views import comparison_report  # late: it draws charts

        return comparison_report.report(title, record)

    return View(
        title,
        lambda: comparison.sweep_blocks(record),
        lambda: _dumped(comparison.sweep_content(record)),
        lambda: tables.to_csv(comparison.table(record)),
        report,
    )


def _profile(record: Profile) -> View:
    from inferlab.store.formats import content_of
    from inferlab.views import profile, profile_tables

    def report() -> str:
        from inferlab.views import profile_report  # late: it draws charts

        return profile_report.report(record)

    return View(
        f"{_name(record.model.source)}: profile",
        lambda: profile.blocks(record),
        lambda: _dumped(content_of(record)),
        lambda: tables.csv_records(profile_tables.layer_rows(record)),
        report,
    )


def _deployment(record: Result) -> View | None:
    """How the answers to questions about a deployment are shown."""
    if isinstance(record, Capacity):
        from inferlab.views import capacity

        return _view("capacity", record, capacity.blocks, capacity.to_json, capacity.curve)
    if isinstance(record, Recommendation):
        from inferlab.views import recommend

        def whole(found: Recommendation) -> Table:
            return recommend.table(found, found.contenders)

        return _view("recommendation", record, recommend.blocks, recommend.to_json, whole)
    if isinstance(record, FleetRecommendation):
        from inferlab.views import fleet_recommend

        return _view(
            "recommendation", record, fleet_recommend.blocks, fleet_recommend.to_json, fleet_recommend.table
        )
    return None


def _optimization(record: Result) -> View:
    from inferlab.store.formats import content_of
    from inferlab.views import front, optimization

    if isinstance(record, Front):
        return View(
            f"{_name(record.model)}: search",
            lambda: front.blocks(record),
            lambda: _dumped(content_of(record)),
            lambda: tables.to_csv(front.table(record)),
        )
    assert isinstance(record, Optimization), "all other kinds are above"
    return View(
        f"{_name(record.model.source)}: optimised",
        lambda: optimization.blocks(record),
        lambda: _dumped(content_of(record)),
        lambda: tables.to_csv(optimization.speeds(record)),
    )


def _view(
    what: str,
    record: R,
    blocks: Callable[[R], list[Block]],
    to_json: Callable[[R], str],
    table: Callable[[R], Table],
) -> View:
    title = f"{_name(record.model.source)}: {what}"
    return View(title, lambda: blocks(record), lambda: to_json(record), lambda: tables.to_csv(table(record)))


def _name(source: str) -> str:
    return PurePath(source).name or source


def _dumped(content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
