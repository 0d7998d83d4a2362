"""The table of a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.records import Failure, Outcome, OutputCheck, Run
from inferlab.views import benchmark as view
from inferlab.views import results
from tests.helpers.outcomes import benchmark, outcome
from tests.helpers.runs import a_cell, a_window, steady_run

FAST = outcome((1.0, 1.01, 1.02), batch_size=1, engine="openvino")
SLOW = outcome((2.0, 2.02, 2.04), batch_size=1)
CLOSE = outcome((1.0, 1.02, 1.05), batch_size=1, num_cores=2)
DEAD = Outcome(a_cell(batch_size=8), "failed", (), Failure("died", "Engine 'fake' died: killed by SIGABRT."))


def wrong(run: Run) -> Run:
    return replace(run, check=OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y"))


def test_the_table_marks_best_and_worst_and_tells_speed_ups_with_intervals() -> None:
    lines = results.lines(benchmark(SLOW, FAST))
    assert lines[0] == "m.onnx (2 KiB, 1,000 parameters, FP32)"
    head, slow, fast = (line.split() for line in lines[1:4])
    assert head[:4] == ["#", "engine", "cores", "batch"] and lines[1].count("speed-up over #1") == 1
    assert slow[:4] == ["1", "fake", "1", "1"] and slow[-1] == "worst"
    assert fast[:4] == ["2", "openvino", "1", "1"] and fast[-1] == "best"
    assert "2.000 (1.956 to 2.045)" in lines[3] and "3 MiB" in lines[3]
    assert lines[4] == "Best (lowest median latency per item): #2, openvino, sync, 1 core, batch 1."


def test_cells_that_may_be_as_fast_as_the_best_are_named() -> None:
    (line,) = [one for one in results.lines(benchmark(SLOW, FAST, CLOSE)) if one.startswith("Best")]
    assert line.endswith("#3 may be as fast: to be sure, compare them interleaved (inferlab compare).")


def test_a_failed_cell_says_so_and_why() -> None:
    lines = results.lines(benchmark(SLOW, DEAD))
    assert lines[3].split()[-1] == "FAILED" and lines[3].split()[4:9] == ["-"] * 5
    assert "Note on #2: Engine 'fake' died: killed by SIGABRT." in lines
    assert not any(line.startswith("Best") for line in lines)


def test_wrong_outputs_are_impossible_to_miss_and_never_the_best() -> None:
    false = replace(FAST, runs=tuple(map(wrong, FAST.runs)))
    lines = results.lines(benchmark(SLOW, false, CLOSE))
    assert lines[3].endswith("outputs WRONG")
    assert lines[4].endswith("best") and lines[2].endswith("worst")
    assert any(line.startswith("Note on #2: the outputs are WRONG") for line in lines)


def test_only_what_varies_is_shown_beside_engine_cores_and_batch() -> None:
    many = [
        outcome((1.0, 1.0), scenario="server", rate=rate, sequence_length=n) for rate, n in ((5.0, 8), (7.5, 16))
    ]
    shown = view.traits([one.cell for one in many])
    assert [one.label for one in shown] == ["engine", "cores", "rate/s", "batch", "sequence"]
    assert [trait.label for trait in view.traits([SLOW.cell])] == ["engine", "cores", "batch"]


def test_the_baseline_is_the_first_that_was_measured_or_the_one_asked_for() -> None:
    found = benchmark(DEAD, SLOW, FAST)
    assert view.find_baseline(found, ()) is SLOW
    assert view.find_baseline(found, ("engine=openvino", "num-cores=1")) is FAST
    assert view.find_baseline(found, ("batch_size=8",)) is None
    assert "speed-up over #3" in results.lines(found, FAST)[1]


def test_a_baseline_that_no_cell_is_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(BadInput, match="No cell of this plan has engine=torch"):
        view.check_baseline([SLOW.cell], ["engine=torch"])
    with pytest.raises(
        BadInput, match=r"'speed' is not of the form OPTION=VALUE; the options are batch_size, cpu_list, engine"
    ):
        view.check_baseline([SLOW.cell], ["speed"])


def test_a_finding_of_all_cells_is_told_once() -> None:
    one = Outcome(a_cell(processes=1), "done", (steady_run(1.0),))
    other = Outcome(a_cell(processes=1, batch_size=2), "done", (steady_run(1.5),))
    notes = [line for line in results.lines(benchmark(one, other)) if line.startswith("Note")]
    assert notes == ["Note: only one process was measured, so there is no interval."]


def test_an_interval_that_says_nothing_is_not_printed() -> None:
    far_apart = replace(SLOW, runs=(steady_run(1.0), steady_run(2.0), steady_run(4.0)))
    lines = results.lines(benchmark(far_apart, FAST))
    assert lines[2].count("too noisy") == 1 and "(too noisy for an interval)" in lines[3]
    assert not any("±" in line or "e+" in line for line in lines[2:])


def test_noise_that_several_cells_met_is_told_once() -> None:
    def disturbed(outcome: Outcome, wait_s: float) -> Outcome:
        windows = [
            (a_window(*run.windows[0].streams, counters={"run_queue_wait_s": wait_s}),) for run in outcome.runs
        ]
        return replace(
            outcome, runs=tuple(replace(a, windows=b) for a, b in zip(outcome.runs, windows, strict=True))
        )

    seconds = SLOW.runs[0].windows[0].streams[0].ends_ns[-1] / 1e9
    lines = results.lines(benchmark(disturbed(SLOW, seconds / 4), FAST, disturbed(CLOSE, seconds / 2)))
    assert [line for line in lines if "threads waited" in line] == [
        "Note on #1, #3: threads waited 24.8 % to 48.9 % of the time for a CPU (visible in 6 of 6 windows): other "
        "programs took it. Stop them and repeat."
    ]
