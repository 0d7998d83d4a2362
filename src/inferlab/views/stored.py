"""What the store kept of one entry, as the command that made it printed it, with when, where and by what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput, InferlabError
from inferlab.records import (
    Benchmark,
    ComparisonSweep,
    FleetRecommendation,
    Machine,
    Outcome,
)
from inferlab.records.optimization import Optimization
from inferlab.records.profile import Profile
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import Record, record_of
from inferlab.units import escape_controls, plural, size
from inferlab.views import files, results, tables
from inferlab.views.history import WRONG, clean, moment, status

# What a record of a newer version, or one that was written by hand, raises wherever it is taken apart.
_UNKNOWN = (BadInput, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def lines(found: Stored | Document, baseline: Sequence[str] = ()) -> list[str]:
    """The whole entry; of a table, speed-ups refer to the first cell that fits the baseline."""
    if isinstance(found, Document):
        told = _document(found)
    else:
        try:
            told = _benchmark(found, baseline)
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
        return [*_head(found, found.kind, *_origins(record)), "", *tables.text(results.view_of(record).blocks())]
    except _UNKNOWN:
        # Written by a newer version, or by hand: what is there is shown all the same.
        return [*_head(found, found.kind, [], []), "", *_anything(found)]


def _anything(document: Document) -> list[str]:
    plain = {name: value for name, value in document.content.items() if isinstance(value, str | int | float)}
    told = [clean(f"{name}: {value}") for name, value in plain.items()]
    return [clean(document.title), *told, f"All of it as JSON: inferlab show {document.id} -x result.json"]


def _origins(record: Record) -> tuple[list[Machine], list[Mapping[str, str]]]:
    """The machines that measured a record, and the versions of packages that took part."""
    parts: list[Any] = []
    if isinstance(record, ComparisonSweep):
        parts = [run for one in record.results for pair in one.pairs[:1] for run in (pair.a, pair.b)]
    elif isinstance(record, Profile):
        parts = [record.performance]
    elif isinstance(record, Optimization):
        parts = list(record.measured)
    elif isinstance(record, FleetRecommendation):
        parts = [machine.recommendation for machine in record.machines]
    else:
        parts = [record]
    known = [part for part in parts if part is not None and part.machine is not None]
    return [part.machine for part in known], [part.versions or {} for part in known]


def _benchmark(found: Stored, baseline: Sequence[str]) -> list[str]:
    outcomes = found.benchmark.outcomes
    runs = [run for outcome in outcomes for run in outcome.runs]
    machines = [run.machine for run in runs]
    head = _head(found, "benchmark", machines, [run.versions for run in runs])
    state = status([_status(one) for one in outcomes])
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
        view.check_baseline([one.cell for one in benchmark.outcomes], baseline)
    return results.lines(benchmark, view.find_baseline(benchmark, baseline))


def render(found: Stored | Document, ending: str) -> str:
    """The text of a file with this ending; what this version does not know is written as JSON alone."""
    if isinstance(found, Stored):
        return results.render(found.benchmark, ending)
    if ending not in files.ENDINGS[1:]:
        return to_json(found)
    try:
        return results.render(record_of(found), ending)
    except _UNKNOWN as error:
        raise BadInput(
            f"This is exported as JSON, not as {ending}: {error} Give a name that ends in .json."
        ) from error


def to_json(found: Document) -> str:
    """An entry as the command that made it writes it; of a format that is not known here, what the store holds."""
    try:
        return results.render(record_of(found), ".json")
    except _UNKNOWN:
        return json.dumps(found.content, indent=2) + "\n"
