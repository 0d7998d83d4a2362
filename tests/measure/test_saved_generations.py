"""Saved generations compared cell by cell, by what their processes took; exact numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import inferlab
from inferlab.errors import BadInput
from inferlab.measure.unpaired import compare_sweeps, results_of
from inferlab.records.comparison import ComparedMetric, ComparisonSweep
from inferlab.records.generation import (
    GenerationCell,
    GenerationOutcome,
    GenerationPlan,
    GenerationRun,
    GenerationSweep,
    GenerativeModel,
)
from inferlab.views import benchmark_file, results
from tests.helpers.generations import MISMATCH, generation_run

MODEL = GenerativeModel(
    "gguf", "m.gguf", "/m.gguf", "d", 100, "llama", 50, 1, 1, 1, 8, None, 32, "F16", tensors=()
)
CELL = GenerationCell("d", "fake", 10, 3, 0, 1, 2, (), "core", (), 2.0, None, 0, False)
#: First token after 10 ms, then one every 2 or 3 ms.
QUICK, SLOW = generation_run(10, 12, 14), generation_run(10, 13, 16)


def sweep(*cells: tuple[GenerationCell, GenerationRun]) -> GenerationSweep:
    outcomes = tuple(GenerationOutcome(cell, "done", (run,) * 3) for cell, run in cells)
    return GenerationSweep(GenerationPlan("m.gguf"), MODEL, outcomes)


def compared(a: GenerationSweep, b: GenerationSweep, metric: ComparedMetric = "tpot") -> ComparisonSweep:
    of_a, of_b = ([one for one in results_of(name, each, metric) if one] for name, each in (("A", a), ("B", b)))
    return compare_sweeps(of_a, of_b, 0.01)


@pytest.mark.parametrize(
    ("metric", "ratio"),
    [("ttft", 1.0), ("tpot", 1.5), ("prefill", 1.0), ("decode", 1.5), ("output", 16 / 14)],
)
def test_each_metric_is_what_a_comparison_of_two_arms_takes(metric: ComparedMetric, ratio: float) -> None:
    (found,) = compared(sweep((CELL, QUICK)), sweep((CELL, SLOW)), metric).results
    assert found.metric == metric
    assert found.ratio.value == pytest.approx(ratio)
    assert found.outputs_match is True and found.differences == ()


def test_cells_of_two_sweeps_are_paired_by_all_but_what_the_sweeps_differ_in() -> None:
    deep, deeper = replace(CELL, depth=8), replace(CELL, depth=64)
    of_a = sweep((CELL, QUICK), (deep, QUICK), (deeper, QUICK))
    of_b = sweep(*((replace(cell, engine="torch"), run) for cell, run in ((deep, SLOW), (CELL, QUICK))))
    found = compared(of_a, of_b)
    assert {one.place: one.ratio.value for one in found.results} == {
        "depth 0": pytest.approx(1.0),
        "depth 8": pytest.approx(1.5),
    }
    # Two cells share the 2 %.
    assert {one.ratio.level for one in found.results} == {0.99}
    assert [failure.message for failure in found.failures] == ["only A has depth 64"]
    assert "engine: fake and torch" in found.results[0].differences


def test_a_report_says_by_what_they_were_compared() -> None:
    page = results.render(compared(sweep((CELL, QUICK)), sweep((CELL, SLOW))), ".html")
    assert "A is A, B is B, by the time per output token." in page and "A, ms per item" not in page


def test_wrong_tokens_and_early_ends_are_said() -> None:
    wrong = generation_run(10, 12, 14, agreement=MISMATCH, finish="stop")
    found = compared(sweep((CELL, QUICK)), sweep((CELL, wrong)))
    (one,) = found.results
    assert one.outputs_match is False
    assert one.differences == ("sequences that ended early: 0 and 3",)
    assert "the tokens of B are WRONG" in "\n".join(results.lines(found))
    # It tells no cell from another.
    deep = replace(CELL, depth=8)
    of_two = compared(sweep((CELL, QUICK), (deep, QUICK)), sweep((CELL, wrong), (deep, QUICK)))
    assert ([one.place for one in of_two.results], of_two.failures) == (["depth 0", "depth 8"], ())


def test_requests_that_overlap_are_compared_by_what_each_has_of_its_own() -> None:
    served = sweep((replace(CELL, rate=2.0), replace(QUICK, arrivals=1)))
    assert compared(served, served, "ttft").results[0].ratio.value == pytest.approx(1.0)
    with pytest.raises(BadInput, match="overlap and have no output time of their own"):
        compared(served, served, "output")


def test_one_token_has_no_time_per_output_token() -> None:
    alone = sweep((CELL, generation_run(10)))
    assert compared(alone, alone, "ttft").results
    with pytest.raises(BadInput, match="No sequence has a second token"):
        compared(alone, alone)


def test_python_compares_results_and_sweeps_by_a_metric() -> None:
    a, b = (inferlab.GenerationResult(sweep((CELL, run))) for run in (QUICK, SLOW))
    assert inferlab.compare(a, b, store=False).ratio == pytest.approx(1.5)
    assert inferlab.compare(a, b, metric="ttft", store=False).ratio == pytest.approx(1.0)
    assert inferlab.compare_sweeps(a, b, metric="decode", store=False)[0].ratio == pytest.approx(1.5)
    given: dict[str, Any] = {"prompt": 8}
    with pytest.raises(BadInput, match="compared as they are: leave out prompt"):
        inferlab.compare(a, b, store=False, **given)
    both = inferlab.GenerationResult(sweep((CELL, QUICK), (replace(CELL, depth=8), QUICK)))
    with pytest.raises(BadInput, match="This result has 2 cells"):
        inferlab.compare(both, b, store=False)


def test_a_damaged_file_of_generations_is_refused_and_one_without_requests_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    inferlab.GenerationResult(sweep((CELL, QUICK))).save(path)
    content = json.loads(path.read_text())
    content["results"][0]["process_times_ms"]["tpot"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match="has no measurement: its status is done"):
        benchmark_file.load(str(path), "tpot")
    for broken in ({"tpot": ["soon"]}, {"tpot": [-1.0]}):
        content["results"][0]["process_times_ms"] = broken
        path.write_text(json.dumps(content))
        with pytest.raises(BadInput, match="is damaged: its measurements cannot be read"):
            benchmark_file.load_all(str(path), "tpot")
