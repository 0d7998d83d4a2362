"""Documents of the store say what the commands said that made them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from inferlab.measure.candidates import Candidate
from inferlab.measure.capacity import Capacity, Lone
from inferlab.measure.queueing import parse_objective
from inferlab.measure.rate_search import Reading, Trial
from inferlab.measure.recommend import Contender, Deployment, Recommendation
from inferlab.records import OutputCheck
from inferlab.store import Document
from inferlab.views import capacity as render_capacity
from inferlab.views import comparison as render_comparison
from inferlab.views import recommend as render_recommend
from inferlab.views import stored
from tests.helpers.comparisons import COMPARISON, MODEL, RATIO, RUN
from tests.helpers.runs import a_cell


def shown(kind: str, text: str) -> list[str]:
    """What is shown of a document, its head left out."""
    lines = stored.lines(document(kind, json.loads(text)))
    return lines[lines.index("") + 1 :]


def document(kind: str, content: dict[str, Any]) -> Document:
    return Document("abcdefghij", datetime(2026, 1, 2, tzinfo=UTC), "0.1.0", "vm", "", kind, "A / B", content)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"outputs_match": False, "output_error": float("inf")},
        {"output_error": 0.17, "output_metric": "rms"},
        {"outputs_match": None, "output_error": None, "output_detail": "no outputs in common"},
        {"verdict": "inconclusive", "ratio": replace(RATIO, low=None, high=None), "settle_s": 90.0},
        {"pairs": (), "cells": None, "differences": ("machine: one and two",), "interrupted": True},
    ],
)
def test_a_comparison_is_shown_as_it_was_printed(changes: dict[str, Any]) -> None:
    comparison = replace(COMPARISON, **changes)
    assert shown("comparison", render_comparison.to_json(comparison)) == render_comparison.lines(comparison)


def a_capacity(**changes: Any) -> Capacity:
    responses = np.linspace(0.002, 0.02, 1000)
    readings = tuple(Reading(rate, responses * rate / 100, responses / 2) for rate in (50.0, 150.0))
    trial = Trial(replace(RUN, stream_mode="threads"), readings, 200.0, 120.0, 0.9, "crossing")
    objective = parse_objective("p95<20ms")
    cell = a_cell(scenario="server", num_streams=2, instances=2)
    return replace(Capacity(cell, MODEL, objective, 130.0, (trial, trial, trial)), **changes)


@pytest.mark.parametrize("changes", [{}, {"lone": Lone(0.03, "p95"), "predicted_rate": 0.0}])
def test_a_capacity_is_shown_with_lines_that_were_printed(changes: dict[str, Any]) -> None:
    capacity = a_capacity(**changes)
    lines = shown("capacity", render_capacity.to_json(capacity))
    printed = render_capacity.lines(capacity)
    assert [line for line in lines if line not in printed] == []
    assert render_capacity.headline(capacity) in lines
    assert len(printed) - len(lines) <= 2


def test_a_recommendation_is_shown_with_its_evidence_and_code() -> None:
    best, second, bad = (Candidate("fake", 1, 1, batch) for batch in (8, 4, 2))
    found = Recommendation(
        model=MODEL,
        objective=parse_objective("p95<20ms"),
        contenders=(
            Contender(best, "recommended", (RUN, RUN, RUN), "single"),
            Contender(second, "runner-up", (RUN,), "single"),
            Contender(bad, "failed", (), "single", "It died."),
        ),
        comparisons=(replace(COMPARISON, labels=("fake, 1 core", "other"), margin=0.03),),
        troubles=("no time was left",),
        simpler=True,
        deployment=Deployment("/m.onnx", (((0,),),), "single", (("x", "float32", (8, 4)),), "", None),
        left_out={"torch": "is not installed"},
        time_s=60.0,
        seconds=50.0,
        interrupted=False,
    )
    lines, printed = shown("recommendation", render_recommend.to_json(found)), render_recommend.lines(found)
    assert "Recommended: fake, 1 core, 1 stream, batch 8" in lines and "Objective: p95<20ms" in lines
    assert "Runner-up: fake, 1 core, 1 stream, batch 4" in lines
    evidence = [line for line in printed if line.startswith(("In 2 pairs", "Note: no time", "Note: torch"))]
    assert len(evidence) == 3 and set(evidence) <= set(lines)
    assert lines[lines.index("The code that sets it:") :] == printed[printed.index("The code that sets it:") :]
    assert "3 configurations, 2 measured; 50 s of 60 s." in lines
    table = [line.split() for line in lines if line.startswith("fake ")]
    assert [(row[3], row[-1]) for row in table] == [("8", "recommended"), ("4", "runner-up")]


def test_the_head_names_machines_and_versions_once() -> None:
    content = json.loads(render_comparison.to_json(COMPARISON))
    content["b"]["versions"]["onnxruntime"] = "1.21"
    lines = stored.lines(replace(document("comparison", content), note="mine\x1b"))
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
    lines = stored.lines(document("comparison", content))
    assert ("ratio: 1.5" in lines) == ("ratio" in content)
    assert lines[-1] == "All of it as JSON: inferlab show abcdefghij -x result.json"
    assert json.loads(stored.to_json(document("x", content))) == content


def test_wrong_outputs_of_a_capacity_are_said() -> None:
    wrong = replace(RUN, check=OutputCheck("mismatch", float("inf"), "rms", 1e-3, "a reference", "y"))
    capacity = a_capacity(trials=(Trial(wrong, (), 200.0, 120.0, 0.9, "crossing"),), lone=Lone(1.0, "p95"))
    lines = shown("capacity", render_capacity.to_json(capacity))
    assert "Output Check: WRONG (output 'y': RMS error inf, tolerance 0.001, against a reference)" in lines
