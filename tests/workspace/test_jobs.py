"""How far a job is, with a clock of our own."""

from __future__ import annotations

import pytest

from inferlab.records import Event, Plan
from inferlab.records.profile import ProfileOptions
from inferlab.workspace.jobs import Tracker, parts_of
from inferlab.workspace.requests import BenchmarkRequest, ComparisonRequest, InstallRequest, ProfileRequest

PLAN = Plan("demo:mlp")


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_benchmark_is_as_far_as_it_says() -> None:
    clock = Clock()
    tracker = Tracker(BenchmarkRequest(PLAN), clock)
    clock.now_s += 10
    tracker(Event("measuring", {"scenario": "sync", "seconds": 10.0}, fraction=0.25))
    progress = tracker.progress()
    assert (progress.stage, progress.fraction, progress.left_s) == ("Running benchmark", 0.25, 30.0)


def test_what_says_nothing_is_as_far_as_its_time_and_waits_before_the_end() -> None:
    clock = Clock()
    tracker = Tracker(ComparisonRequest(PLAN, PLAN, ("a", "b"), time_s=20.0), clock)
    clock.now_s += 5.75
    assert tracker.progress().fraction == 0.25
    clock.now_s += 1000
    assert tracker.progress().fraction == 0.97


def test_what_is_left_is_not_guessed_in_the_first_seconds() -> None:
    clock = Clock()
    tracker = Tracker(ComparisonRequest(PLAN, PLAN, ("a", "b"), time_s=20.0), clock)
    clock.now_s += 2
    assert tracker.progress().left_s is None


def test_a_profile_goes_from_part_to_part() -> None:
    clock = Clock()
    tracker = Tracker(ProfileRequest(PLAN, ProfileOptions(time_s=10.0)), clock)
    expected = [("counting", "Counting operations and parameters"), ("loading", "Profiling performance")]
    for code, stage in expected:
        tracker(Event(code, {"engine": "onnxruntime", "process": 1}))
        assert tracker.progress().stage == stage
    before = tracker.progress().fraction
    tracker(Event("loss", {"layers": 3, "items": 8}))
    tracker(Event("loss", {}, fraction=0.5))
    after = tracker.progress()
    # 1 s of counting, 17.5 s of times, 15 of 30 s of losses.
    assert before == pytest.approx(1 / 48.5)
    assert after.stage == "Profiling loss"
    assert after.fraction == pytest.approx(33.5 / 48.5)


def test_a_download_on_the_way_is_not_taken_for_the_job() -> None:
    tracker = Tracker(BenchmarkRequest(PLAN), Clock())
    tracker(Event("download", {"url": "https://x"}, fraction=0.9))
    assert tracker.progress().fraction == 0.0


def test_the_log_has_each_line_once() -> None:
    tracker = Tracker(InstallRequest("deepsparse"), Clock())
    for detail in ("a", "a", "b"):
        tracker(Event("install", {"name": "deepsparse", "step": "collecting", "detail": detail}))
    assert tracker.log == "collecting a\ncollecting b"
    assert tracker.log.splitlines()[-1] == "collecting b"


def test_pruned_copies_of_an_engine_that_imposes_sparsity_are_no_part_of_their_own() -> None:
    wanted = ProfileOptions(levels=(0.5, 0.9), int8=True, loss=False)
    zeroed = parts_of(ProfileRequest(Plan("m"), wanted))
    imposed = parts_of(ProfileRequest(Plan("m", engines=("deepsparse",)), wanted))
    assert "Measuring pruned copies" in [one.name for one in zeroed]
    assert "Measuring pruned copies" not in [one.name for one in imposed]
