"""Every kind of result, fresh or out of the store, in every format: text, JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, TypeVar

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Benchmark, Machine, Outcome
from inferlab.records.capacity import Capacity
from inferlab.records.comparison import Comparison, ComparisonSweep
from inferlab.records.generation import GenerationSweep
from inferlab.records.generation_results import (
    GenerationCapacity,
    GenerationComparison,
    GenerationRecommendation,
)
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import Profile
from inferlab.records.recommendation import FleetRecommendation, Recommendation
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import Record, record_of
from inferlab.units import escape_controls, plural, size
from inferlab.views import files, tables
from inferlab.views.history import WRONG, clean, moment, status
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
    | GenerationSweep
    | GenerationComparison
    | GenerationCapacity
    | GenerationRecommendation
)

# What a record of a newer version, or one that was written by hand, raises wherever it is taken apart.
_UNKNOWN = (BadInput, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
R = TypeVar(
    "R",
    Capacity,
    Recommendation,
    FleetRecommendation,
    Front,
    Optimization,
    GenerationSweep,
    GenerationCapacity,
    GenerationRecommendation,
)


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
    if isinstance(record, GenerationSweep):
        return _generation(record)
    if isinstance(record, GenerationComparison | GenerationCapacity | GenerationRecommendation):
        return _of_generations(record)
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


def _of_generations(record: GenerationComparison | GenerationCapacity | GenerationRecommendation) -> View:
    from inferlab.views import generation_results as shown

    if isinstance(record, GenerationComparison):
        title, found = " / ".join(record.labels), record
        return View(
            title, lambda: shown.comparison_blocks(found), lambda: tables.to_csv(shown.comparison_table(found))
        )
    if isinstance(record, GenerationCapacity):
        return _view("capacity", record, shown.capacity_blocks, shown.curve)
    return _view("recommendation", record, shown.recommendation_blocks, shown.recommendation_table)


def _generation(record: GenerationSweep) -> View:
    from inferlab.views import generation

    def report() -> str:
        from inferlab.views import generation_report  # late: it draws charts

        return generation_report.report(record)

    return replace(_view("generation", record, generation.blocks, generation.table), html=report)


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


def _name(
    record: Capacity
    | Recommendation
    | FleetRecommendation
    | Front
    | Optimization
    | Profile
    | GenerationSweep
    | GenerationCapacity
    | GenerationRecommendation,
) -> str:
    source = record.model if isinstance(record, Front) else record.model.source
    return PurePath(source).name or source


def entry_lines(found: Stored | Document, baseline: Sequence[str] = ()) -> list[str]:
    """The whole entry; of a table, speed-ups refer to the first cell that fits the baseline."""
    if isinstance(found, Document):
        told = _document(found)
    else:
        try:
            told = _stored_benchmark(found, baseline)
        except InferlabError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            # Of the right types, but nothing that was ever measured: written by hand, or damaged.
            raise BadInput(
                f"The entry {found.id} holds values that no measurement gives ({type(error).__name__}: {error}). "
                "It cannot be shown: remove it, or take it from a copy of the store."
            ) from error
    return [escape_controls(part) for line in told for part in line.split("\n")]


def _document(found: Document) -> list[str]:
    try:
        record = record_of(found)
        return [*_head(found, found.kind, *_origins(record)), "", *lines(record)]
    except _UNKNOWN:
        # Written by a newer version, or by hand: what is there is shown all the same.
        return [*_head(found, found.kind, [], []), "", *_anything(found)]


def entry_blocks(found: Document) -> list[Block]:
    """What a document shows, without when and where it was made; nothing where this version cannot read it."""
    try:
        return list(view_of(record_of(found)).blocks())
    except _UNKNOWN:
        return []


def _anything(document: Document) -> list[str]:
    plain = {name: value for name, value in document.content.items() if isinstance(value, str | int | float)}
    told = [clean(f"{name}: {value}") for name, value in plain.items()]
    return [clean(document.title), *told, f"All of it as JSON: inferlab show {document.id} -x result.json"]


def _origins(record: Record) -> tuple[list[Machine], list[Mapping[str, str]]]:
    """The machines that measured a record, and the versions of packages that took part."""
    parts: list[Any] = []
    if isinstance(record, ComparisonSweep):
        parts = [run for result in record.results for pair in result.pairs[:1] for run in (pair.a, pair.b)]
    elif isinstance(record, Profile):
        parts = [record.performance]
    elif isinstance(record, Optimization):
        parts = list(record.measured)
    elif isinstance(record, GenerationSweep):
        parts = [run for outcome in record.outcomes for run in outcome.runs]
    elif isinstance(record, GenerationRecommendation):
        parts = [run for outcome in record.sweep.outcomes for run in outcome.runs]
    elif isinstance(record, GenerationComparison):
        return [record.machine], list(record.versions)
    elif isinstance(record, FleetRecommendation):
        parts = [machine.recommendation for machine in record.machines]
    else:
        parts = [record]
    known = [part for part in parts if part is not None and part.machine is not None]
    return [part.machine for part in known], [part.versions or {} for part in known]


def _stored_benchmark(found: Stored, baseline: Sequence[str]) -> list[str]:
    outcomes = found.benchmark.outcomes
    runs = [run for outcome in outcomes for run in outcome.runs]
    machines = [run.machine for run in runs]
    head = _head(found, "benchmark", machines, [run.versions for run in runs])
    state = status([_status(outcome) for outcome in outcomes])
    return [*head, f"Status: {state}", "", *_result(found.benchmark, baseline)]


def _head(
    found: Stored | Document,
    kind: str,
    machines: Sequence[Machine],
    versions: Sequence[Mapping[str, str]],
) -> list[str]:
    named = versions or [{"inferlab": found.inferlab_version}]
    head = [
        f"Entry: {found.id} ({clean(kind)})",
        f"Saved: {moment(found.created_at)}",
        *(f"Machine: {one}" for one in dict.fromkeys(map(_machine, machines)) or [clean(found.node)]),
        f"Versions: {_versions(named)}",
    ]
    labels = ", ".join(f"{name}={clean(text)}" for name, text in found.labels.items())
    head += [f"Labels: {labels}"] if labels else []
    return [*head, f"Your note: {clean(found.note)}"] if found.note else head


def _status(outcome: Outcome) -> str:
    from inferlab.measure.check import worst

    wrong = outcome.runs and worst([run.check for run in outcome.runs]).status == "mismatch"
    return WRONG if wrong and outcome.status == "done" else outcome.status


def _machine(one: Machine) -> str:
    """A machine in a line; what is not known of it is left out."""
    words = [
        one.node,
        one.cpu,
        plural(one.physical_cores, "core") if one.physical_cores else "",
        f"of which {one.cpu_quota:g} CPUs may be used" if one.cpu_quota else "",
        size(one.memory_bytes) if one.memory_bytes else "",
        one.system,
    ]
    return clean(", ".join(filter(None, words)))


def _versions(found: Iterable[Mapping[str, str]]) -> str:
    """Every package once, with all versions of it that took part."""
    known: dict[str, dict[str, None]] = {}
    for one in found:
        for name, version in one.items():
            known.setdefault(name, {})[version] = None
    return clean(", ".join(f"{name} {' and '.join(versions)}" for name, versions in known.items()))


def _result(benchmark: Benchmark, baseline: Sequence[str]) -> list[str]:
    from inferlab.views import benchmark as view

    if baseline:
        view.check_baseline([outcome.cell for outcome in benchmark.outcomes], baseline)
    return lines(benchmark, view.find_baseline(benchmark, baseline))


def render_entry(found: Stored | Document, ending: str) -> str:
    """The text of a file with this ending; what this version does not know is written as JSON alone."""
    if isinstance(found, Stored):
        return render(found.benchmark, ending)
    if ending not in files.ENDINGS[1:]:
        return entry_json(found)
    try:
        return render(record_of(found), ending)
    except _UNKNOWN as error:
        raise BadInput(
            f"This is exported as JSON, not as {ending}: {error} Give a name that ends in .json."
        ) from error


def entry_json(found: Document) -> str:
    """An entry as the command that made it writes it; of a format that is not known here, what the store holds."""
    try:
        return render(record_of(found), ".json")
    except _UNKNOWN:
        return json.dumps(found.content, indent=2) + "\n"
