"""Entries of the store are shown as the commands printed them that made them, also those of earlier versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from inferlab.codec import dumps, parse_json
from inferlab.errors import BadInput
from inferlab.fleet.executor import fleet_recommendation
from inferlab.measure.queueing import parse_objective
from inferlab.measure.rate_search import Trial
from inferlab.records import (
    Comparison,
    ComparisonSweep,
    Failure,
    LoneRequest,
    Outcome,
    OutputCheck,
    Recommendation,
)
from inferlab.store import Document
from inferlab.store.formats import Record, content_of, kind_of, outcomes_of, record_of
from inferlab.views import results
from tests.helpers.answers import a_capacity, a_recommendation
from tests.helpers.comparisons import COMPARISON, MODEL, RATIO, RUN
from tests.helpers.stored import a_document


def shown(document: Document) -> list[str]:
    """What is shown of an entry, its head left out."""
    lines = results.entry_lines(document)
    return lines[lines.index("") + 1 :]


def comparison_document(comparison: Comparison, version: int = 2) -> Document:
    """A comparison as this version stores it, or as version 1 did: as the file that the command writes."""
    outcomes = outcomes_of(comparison)
    if version == 1:
        return a_document("comparison", results.content_of(comparison), outcomes)
    return as_stored(ComparisonSweep((comparison,)), outcomes)


def as_stored(record: Record, outcomes: Sequence[Outcome] = ()) -> Document:
    content = parse_json(dumps(content_of(record)))
    return a_document(kind_of(record), content, outcomes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"outputs_match": False, "output_error": float("inf")},
        {"output_error": 0.17, "output_metric": "rms"},
        {"outputs_match": None, "output_error": None, "output_detail": "no outputs in common"},
        {"verdict": "inconclusive", "ratio": replace(RATIO, low=None, high=None), "settle_s": 90.0},
        {"differences": ("machine: one and two",), "interrupted": True},
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_comparison_is_shown_as_it_was_printed(changes: dict[str, Any], version: int) -> None:
    comparison = replace(COMPARISON, **changes)
    document = comparison_document(comparison, version)
    assert shown(document) == results.lines(comparison)
    assert results.entry_json(document) == results.render(comparison, ".json")


def test_a_comparison_is_read_as_it_was_stored() -> None:
    stored_one = record_of(comparison_document(COMPARISON))
    assert stored_one == ComparisonSweep((COMPARISON,), id="abcdefghij")
    saved = replace(COMPARISON, pairs=(), cells=None)
    assert record_of(comparison_document(saved)) == ComparisonSweep((saved,), id="abcdefghij")
    cut = comparison_document(COMPARISON)
    with pytest.raises(BadInput, match="its runs are not those of its pairs"):
        record_of(replace(cut, outcomes=cut.outcomes[:1]))


@pytest.mark.parametrize("changes", [{}, {"lone": LoneRequest(0.03, "p95"), "predicted_rate": 0.0}])
def test_a_capacity_is_shown_as_it_was_printed(changes: dict[str, Any]) -> None:
    capacity = a_capacity(**changes)
    document = as_stored(capacity)
    assert record_of(document) == replace(capacity, id="abcdefghij")
    older = a_document("capacity", results.content_of(capacity))
    for entry in (document, older):
        assert shown(entry) == results.lines(capacity)
        assert json.loads(results.entry_json(entry)) == results.content_of(capacity)


def test_a_recommendation_is_shown_as_it_was_printed() -> None:
    found = a_recommendation()
    document = as_stored(found)
    assert record_of(document) == replace(found, id="abcdefghij")
    assert shown(document) == results.lines(found)
    assert results.entry_json(document) == results.render(found, ".json")


def test_a_recommendation_of_version_1_is_shown_with_its_evidence_and_code() -> None:
    found = a_recommendation()
    document = a_document("recommendation", results.content_of(found))
    printed = results.lines(found)
    # How many batches a statistic rests on was not stored.
    assert shown(document) == [line for line in printed if "are needed to be sure" not in line]
    assert json.loads(results.entry_json(document)) == results.content_of(found)


@pytest.mark.parametrize("version", [1, 2])
def test_recommendations_of_machine_types_are_shown_as_they_were_printed(version: int) -> None:
    answers: dict[str, Recommendation | Failure] = {"c7i": a_recommendation(), "c7g": Failure("lost", "It went.")}
    found = fleet_recommendation(MODEL, parse_objective("p95<20ms"), {"c7i": 0.5}, answers, False)
    older = a_document("recommendation", results.content_of(found))
    document = older if version == 1 else as_stored(found)
    assert shown(document) == results.lines(found)
    assert json.loads(results.entry_json(document)) == results.content_of(found)


def test_the_head_names_machines_and_versions_once() -> None:
    newer = replace(RUN, versions={**RUN.versions, "onnxruntime": "1.21"})
    comparison = replace(COMPARISON, pairs=tuple(replace(pair, b=newer) for pair in COMPARISON.pairs))
    lines = results.entry_lines(replace(comparison_document(comparison), note="mine\x1b"))
    head = lines[: lines.index("")]
    assert head[0] == "Entry: abcdefghij (comparison)"
    assert head[1].startswith("Saved: 2026-01-0")
    assert len([line for line in head if line.startswith("Machine: ")]) == 1
    assert RUN.machine.cpu in head[2]
    assert head[3:] == ["Versions: inferlab 0.1.0, onnxruntime 1.20 and 1.21", "Your note: mine\\x1b"]


@pytest.mark.parametrize(
    "content",
    [{"ratio": 1.5, "deep": {"x": 1}}, {"format": "inferlab-comparison/1", "ratio": 1.5, "a": None}, {}],
)
def test_what_is_not_known_here_is_shown_as_far_as_it_goes(content: dict[str, Any]) -> None:
    lines = results.entry_lines(a_document("comparison", content))
    assert ("ratio: 1.5" in lines) == ("ratio" in content)
    assert lines[-1] == "All of it as JSON: inferlab show abcdefghij -x result.json"
    assert json.loads(results.entry_json(a_document("x", content))) == content


def test_wrong_outputs_of_a_capacity_are_said() -> None:
    wrong = replace(RUN, check=OutputCheck("mismatch", float("inf"), "rms", 1e-3, "a reference", "y"))
    capacity = a_capacity(Trial(wrong, (), 200.0, 120.0, 0.9, "crossing"), lone=LoneRequest(1.0, "p95"))
    said = "Output Check: WRONG (output 'y': RMS error inf, tolerance 0.001, against a reference)"
    older = a_document("capacity", results.content_of(capacity))
    assert said in shown(as_stored(capacity)) and said in shown(older)
