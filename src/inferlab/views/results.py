"""Every kind of result, fresh or out of the store, in every format: text, JSON, CSV, Markdown and HTML."""

from __future__ import annotations

import importlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path, PurePath
from typing import Any

from inferlab.codec import plain
from inferlab.errors import BadInput, InferlabError, NotSaved
from inferlab.files import whole_file
from inferlab.records import Benchmark, Estimate, Machine, Outcome
from inferlab.records.benchmark import Finding
from inferlab.records.capacity import Capacity, GenerationCapacity
from inferlab.records.comparison import (
    Comparison,
    ComparisonSweep,
    GenerationComparison,
    GenerationComparisonSweep,
)
from inferlab.records.generation import GenerationSweep
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import Profile
from inferlab.records.recommendation import (
    FleetRecommendation,
    GenerationRecommendation,
    Recommendation,
)
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import Record, record_of
from inferlab.units import escape_controls, plural, size
from inferlab.views import tables
from inferlab.views.history import WRONG, clean, moment, status
from inferlab.views.reports import page
from inferlab.views.tables import Block, Table
from inferlab.views.text import finding

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
    | GenerationComparisonSweep
    | GenerationCapacity
    | GenerationRecommendation
)

#: Which module has the view of a kind of result.
_VIEWS: Mapping[type, str] = {
    Benchmark: "benchmark",
    **dict.fromkeys((Comparison, ComparisonSweep, GenerationComparison, GenerationComparisonSweep), "comparison"),
    **dict.fromkeys((Capacity, GenerationCapacity), "capacity"),
    **dict.fromkeys((Recommendation, FleetRecommendation, GenerationRecommendation), "recommendation"),
    Profile: "profile",
    **dict.fromkeys((Optimization, Front), "optimization"),
    GenerationSweep: "generation",
}
# What a record of a newer version, or one that was written by hand, raises wherever it is taken apart.
_UNKNOWN = (BadInput, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown and written."""

    title: str
    blocks: Callable[[], list[Block]]
    #: What a CSV file has.
    rows: Callable[[], Table | Sequence[Mapping[str, Any]]]
    #: All that is known, as JSON values.
    content: Callable[[], Any]
    #: Its own report; None: that of its blocks.
    html: Callable[[], str] | None = None
    #: What Markdown holds, unseen, so that it can be read back from it.
    hidden: Callable[[], str] | None = None


def view_of(record: Result) -> View:
    """How a result is shown; only what its kind needs is imported."""
    view: View = importlib.import_module(f"inferlab.views.{_VIEWS[type(record)]}").view_of(record)
    return view


def render(record: Result, ending: str) -> str:
    """The text of a file with this ending; JSON where it is none of the others."""
    return render_view(view_of(record), ending)


def render_view(view: View, ending: str) -> str:
    """The text of a file with this ending of whatever has a view."""
    if ending == ".csv":
        return tables.to_csv(view.rows())
    if ending == ".md":
        return tables.markdown(view.title, view.blocks()) + (view.hidden() if view.hidden else "")
    if ending != ".html":
        return dumps(view.content())
    if view.html is not None:
        return view.html()
    return page.of_blocks(view.title, view.blocks())


def short_name(source: str) -> str:
    """The name of a model without its folder, or its source where that is no path."""
    return PurePath(source).name or source


def lines(record: Result, baseline: Outcome | None = None) -> list[str]:
    """What the commands print, as plain text; of a table, speed-ups refer to the baseline."""
    if isinstance(record, Benchmark):
        from inferlab.views import benchmark

        return tables.text(benchmark.blocks(record, baseline))
    return tables.text(view_of(record).blocks())


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
    if ending not in ENDINGS[1:]:
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


#: What a result can be written as; any other ending gets JSON.
ENDINGS = (".json", ".csv", ".md", ".html")


def is_file(name: str) -> bool:
    """Whether a name on the command line means a saved result rather than a model."""
    return name.partition("#")[0].lower().endswith(ENDINGS[:3])


def check_writable(path: Path) -> None:
    """Refuse a path to which no file can be written, before anything is measured, not after."""
    if path.is_dir():
        raise BadInput(f"The export path {path} is a folder. Give a file in it, such as {path / 'result.json'}.")
    if not path.parent.is_dir():
        raise BadInput(
            f"The folder of the export path {path} does not exist. Make it first: mkdir -p {path.parent}"
        )
    if path.exists():
        if not os.access(path, os.W_OK):
            raise BadInput(
                f"The export path {path} cannot be written to. Choose another or change its permissions."
            )
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".inferlab-")
    except OSError as error:
        raise BadInput(
            f"The export path {path} cannot be written: {error.strerror}. Choose another folder."
        ) from error
    os.close(handle)
    Path(name).unlink()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; a pipe or a terminal is written to directly."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            path.write_text(text, encoding="utf-8")
            return
        with whole_file(path.resolve()) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotSaved(f"The result could not be written to {path}: {error.strerror}.") from error


def dumps(content: Any) -> str:
    """JSON values as the text of a file."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def content_of(record: Result) -> Content:
    """All that is known of a result, as JSON values."""
    values: Content = view_of(record).content()
    return values


def _plain(content: Any) -> Any:
    """Records as JSON values. JSON has no infinity: an infinite error becomes the word."""
    if is_dataclass(content):
        content = plain(content)
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return str(content) if isinstance(content, float) and math.isinf(content) else content


def json_values(content: Content) -> Content:
    """Values and records as JSON has them."""
    return {key: _plain(value) for key, value in content.items()}


def without_progress(record: GenerationComparison | GenerationCapacity) -> Content:
    """A result as JSON values, without what it goes on with where it was cut off: that is for the store alone."""
    return {name: value for name, value in plain(record).items() if name not in ("pairs", "progress")}


def picked(record: Any, *names: str) -> Content:
    """Fields of a record under their own names."""
    return {name: getattr(record, name) for name in names}


def with_intervals(estimates: Mapping[str, Estimate | None]) -> Content:
    """Estimates by name, each with both ends of its interval beside it."""
    values: Content = {}
    for name, estimate in estimates.items():
        values |= {name: estimate and estimate.value, f"{name}_interval": estimate and estimate.ends}
    return values


def finding_values(found: Sequence[Finding]) -> list[Content]:
    """Findings as objects, with their sentences."""
    return [json_values({"code": one.code, "data": one.data, "text": finding(one)}) for one in found]
