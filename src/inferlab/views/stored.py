"""What the store kept of one entry, as the command that made it printed it, with when, where and by what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput, InferlabError
from inferlab.escaping import escape_controls
from inferlab.records import Benchmark, Outcome
from inferlab.store.entries import Document, Stored
from inferlab.units import plural, size
from inferlab.views.history import WRONG, clean, moment, status


def lines(found: Stored | Document, baseline: Sequence[str] = ()) -> list[str]:
    """The whole entry; of a table, speed-ups refer to the first cell that fits the baseline."""
    if isinstance(found, Document):
        from inferlab.views import documents

        content = found.content
        try:
            head = _head(found, found.kind, documents.machines(content), documents.versions(content))
        except (TypeError, ValueError, AttributeError, ArithmeticError):
            # Written by another version, or by hand.
            head = _head(found, found.kind, [], [])
        told = [*head, "", *documents.lines(found)]
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


def _benchmark(found: Stored, baseline: Sequence[str]) -> list[str]:
    outcomes = found.benchmark.outcomes
    runs = [run for outcome in outcomes for run in outcome.runs]
    machines = [{name: getattr(run.machine, name) for name in run.machine.__slots__} for run in runs]
    head = _head(found, "benchmark", machines, [run.versions for run in runs])
    state = status([_status(one) for one in outcomes])
    return [*head, f"Status: {state}", "", *_result(found.benchmark, baseline)]


def _head(
    found: Stored | Document,
    kind: str,
    machines: Sequence[Mapping[str, Any]],
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


def _machine(one: Mapping[str, Any]) -> str:
    """A machine in a line; what is not known of it is left out."""
    words = [one.get("node"), one.get("cpu")]
    if one.get("physical_cores"):
        words.append(plural(one["physical_cores"], "core"))
    if one.get("cpu_quota"):
        words.append(f"of which {one['cpu_quota']:g} CPUs may be used")
    if one.get("memory_bytes"):
        words.append(size(one["memory_bytes"]))
    return clean(", ".join(str(word) for word in (*words, one.get("system")) if word))


def _versions(found: Iterable[Mapping[str, str]]) -> str:
    """Every package once, with all versions of it that took part."""
    known: dict[str, dict[str, None]] = {}
    for one in found:
        for name, version in one.items():
            known.setdefault(name, {})[version] = None
    return clean(", ".join(f"{name} {' and '.join(versions)}" for name, versions in known.items()))


def _result(benchmark: Benchmark, baseline: Sequence[str]) -> list[str]:
    from inferlab.views import table, text

    if baseline:
        table.check_baseline([one.cell for one in benchmark.outcomes], baseline)
    if len(benchmark.outcomes) != 1:
        return table.lines(benchmark, table.find_baseline(benchmark, baseline))
    (only,) = benchmark.outcomes
    found = text.result_lines(benchmark, only) if only.runs else [f"Original Model Path: {benchmark.model.source}"]
    return [*found, f"Failure: {only.failure.message}"] if only.failure else found


def to_json(found: Document) -> str:
    """A document as the command wrote it that made it."""
    return json.dumps(found.content, indent=2) + "\n"
