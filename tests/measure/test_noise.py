"""What disturbed a measurement, with exact shares."""

from __future__ import annotations

import pytest

from inferlab.measure import findings
from inferlab.measure.findings import Disturbance
from inferlab.records import Run, Window
from tests.helpers.runs import a_run, a_window, back_to_back, samples


def second(canary_ns: int = 50_000, **counters: float) -> Window:
    """A window of one second."""
    return a_window(back_to_back(*[100.0] * 10), counters=counters, canary_ns=canary_ns)


def test_a_cause_has_the_share_of_the_cores_time_that_it_took() -> None:
    runs = [a_run(second(run_queue_wait_s=0.3), second(run_queue_wait_s=0.01)), a_run(second(), second())]
    for cores, share in ((1, 0.31 / 4), (2, 0.31 / 8)):
        (found,) = findings.disturbances(runs, cores)
        assert found == Disturbance("run_queue_wait_s", found.share, 1, 4)
        assert found.share == pytest.approx(share)


def test_every_cause_is_told_by_itself() -> None:
    runs = [a_run(second(run_queue_wait_s=0.1, throttled_s=0.2, steal_s=0.3, cpu_s=0.7, involuntary_switches=9))]
    found = findings.disturbances(runs, 1)
    assert [one.counter for one in found] == ["run_queue_wait_s", "throttled_s", "steal_s"]
    assert [one.share for one in found] == pytest.approx([0.1, 0.2, 0.3])
    assert all((one.touched, one.windows) == (1, 1) for one in found)


def test_the_wait_of_more_threads_than_cores_is_a_share_of_their_own_time() -> None:
    # Three threads on one core: together they ran for 1 s and waited for 2.
    (found,) = findings.disturbances([a_run(second(run_queue_wait_s=2.0, cpu_s=1.0))], 1)
    assert found.share == pytest.approx(2 / 3)
    (found,) = findings.disturbances([a_run(second(run_queue_wait_s=2.0))], 1)
    assert found.share == 1.0


def test_what_is_not_worth_a_word_is_not_told() -> None:
    assert (
        findings.disturbances([a_run(second(run_queue_wait_s=0.019, throttled_s=0.004, steal_s=0.019))], 1) == []
    )
    assert findings.disturbances([a_run(second())], 1) == []


def test_windows_that_were_not_watched_count_with_the_next_one_that_was() -> None:
    turn = a_window(back_to_back(*[100.0] * 10), canary_ns=None)
    (found,) = findings.disturbances([a_run(turn, turn, turn, second(run_queue_wait_s=0.2)), a_run(second())], 1)
    assert found == Disturbance("run_queue_wait_s", 0.04, 0, 2)


def test_windows_without_calls_disturb_nothing() -> None:
    empty = a_window(samples(), counters={"run_queue_wait_s": 5.0})
    assert findings.disturbances([a_run(empty)], 1) == []
    assert findings.disturbances([], 1) == []
    assert findings.touching(empty, 1) == []


def test_a_window_is_touched_by_what_takes_more_than_a_twentieth_of_its_cores_time() -> None:
    window = second(run_queue_wait_s=0.06, throttled_s=0.04, steal_s=0.11)
    assert findings.touching(window, 1) == ["run_queue_wait_s", "steal_s"]
    assert findings.touching(window, 2) == ["steal_s"]
    assert findings.touching(window, 4) == []


def test_counters_add_up_over_all_windows() -> None:
    runs = [a_run(second(cpu_s=1.0), second(cpu_s=0.5, steal_s=0.1)), a_run(second(cpu_s=0.25))]
    assert findings.totals(runs) == {"cpu_s": 1.75, "steal_s": 0.1}


def singing(*canaries_us: int) -> list[Run]:
    """Two runs whose windows had these canaries, one after the other."""
    windows = [second(1000 * one) for one in canaries_us]
    return [a_run(*windows[: len(windows) // 2]), a_run(*windows[len(windows) // 2 :])]


def test_fixed_work_that_slows_down_for_good_tells_of_a_changed_clock() -> None:
    assert findings.clock_change(singing(50, 50, 51, 50, 60, 60, 61, 60)) == pytest.approx(0.2)
    assert findings.clock_change(singing(60, 60, 60, 60, 48, 48, 48, 48)) == pytest.approx(-0.2)


def test_a_neighbour_that_comes_and_goes_is_no_changed_clock() -> None:
    assert findings.clock_change(singing(50, 75, 50, 75, 75, 50, 75, 75)) is None


def test_small_changes_of_fixed_work_and_few_windows_tell_nothing() -> None:
    assert findings.clock_change(singing(50, 50, 50, 50, 54, 54, 54, 54)) is None
    assert findings.clock_change(singing(50, 50, 50, 75, 75, 75)) is None
    assert findings.clock_change([]) is None
