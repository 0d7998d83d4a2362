"""What is worth a warning about a cell's runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferlab.measure.findings import find, find_all
from inferlab.records import Cell, Failure, Finding, Outcome, OutputCheck, Run, Window
from inferlab.views.text import finding
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples, steady_run

FIVE = [steady_run(2.0)] * 5


def codes(cell: Cell, runs: list[Run]) -> list[str]:
    return [one.code for one in find(cell, runs)]


def the(code: str, found: tuple[Finding, ...]) -> Finding:
    (one,) = [one for one in found if one.code == code]
    return one


def test_undisturbed_runs_that_are_right_have_no_findings() -> None:
    assert find(a_cell(), FIVE) == ()
    assert find(a_cell(), []) == ()


def test_the_worst_check_of_all_processes_counts() -> None:
    wrong = replace(FIVE[0], check=OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y"))
    assert the("output-mismatch", find(a_cell(), [*FIVE, wrong])).data == {"error": 0.5, "output": "y"}
    unchecked = replace(FIVE[0], check=OutputCheck("unchecked", detail="no reason"))
    assert the("unchecked", find(a_cell(), [*FIVE, unchecked])).data == {"reason": "no reason"}


@pytest.mark.parametrize(
    ("metric", "error", "said"),
    [("rms", 0.049, ""), ("rms", 0.17, "RMS error 0.17"), ("share", 0.02, "share that differs 0.02")],
)
def test_outputs_that_match_but_deviate_are_said(metric: Any, error: float, said: str) -> None:
    runs = [*FIVE, replace(FIVE[0], check=OutputCheck("match", error, metric, 0.25, "a reference", "y"))]
    if not said:
        assert find(a_cell(), runs) == ()
        return
    found = the("deviates", find(a_cell(), runs))
    assert found.data == {"error": error, "metric": metric, "output": "y"}
    assert finding(found) == (
        f"the outputs deviate from the reference ({said} in 'y'). That is within what rounding to few bits may "
        "change; check the accuracy on data before you use it."
    )


def test_one_process_that_was_not_pinned_is_enough() -> None:
    runs = [*FIVE, replace(FIVE[0], pinned=False)]
    assert codes(a_cell(), runs) == ["not-pinned"]
    assert codes(a_cell(thread_pinning="none"), runs) == []


def test_a_cell_that_another_machine_finished_says_so() -> None:
    other = replace(FIVE[0], machine=replace(FIVE[0].machine, node="another"))
    assert the("several-machines", find(a_cell(), [*FIVE, other])).data == {"machines": 2}


def test_a_rewritten_batch_and_a_quota_below_the_cores_are_said() -> None:
    assert codes(a_cell(batch_size=4), [replace(run, rewritten=True) for run in FIVE]) == ["batch-rewritten"]
    tight = [replace(run, machine=replace(run.machine, cpu_quota=1.5)) for run in FIVE]
    assert codes(a_cell(num_cores=2), tight) == ["quota-below-cores"]
    assert codes(a_cell(num_cores=1), tight) == []


STREAMS: list[tuple[dict[str, Any], dict[str, int] | None]] = [
    ({"scenario": "sync", "num_cores": 4}, None),
    ({"scenario": "elastic", "num_streams": 8, "num_cores": 4}, None),
    ({"scenario": "async", "num_streams": 4, "num_cores": 4}, None),
    ({"scenario": "async", "num_streams": 3, "num_cores": 4}, {"num_streams": 3, "num_cores": 4, "idle": 1}),
    ({"scenario": "async", "num_streams": 5, "num_cores": 4}, {"num_streams": 5, "num_cores": 4}),
    ({"scenario": "sync", "instances": 2, "num_cores": 4}, None),
    ({"scenario": "sync", "instances": 3, "num_cores": 2}, {"num_streams": 3, "num_cores": 2}),
    ({"scenario": "sync", "instances": 3, "num_cores": 8}, {"num_streams": 3, "num_cores": 8, "idle": 2}),
    ({"scenario": "async", "instances": 2, "num_streams": 3, "num_cores": 8},
     {"num_streams": 6, "num_cores": 8, "idle": 2}),
    ({"scenario": "async", "instances": 2, "num_streams": 3, "num_cores": 4}, {"num_streams": 6, "num_cores": 4}),
    ({"scenario": "elastic", "instances": 2, "num_streams": 4, "num_cores": 4}, None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "data"), STREAMS)
def test_cores_that_are_shared_or_idle_are_said(fields: dict[str, Any], data: dict[str, int] | None) -> None:
    found = find(a_cell(**fields), FIVE)
    code = "idle-cores" if data and "idle" in data else "streams-share-cores"
    assert found == (() if data is None else (Finding(code, data),))


def test_one_process_is_said_with_its_reason() -> None:
    run = FIVE[0]
    assert find(a_cell(processes=1), [run]) == (Finding("one-process", {"why": "asked", "ready_s": 0.5}),)
    slow = replace(run, ready_s=6.0)
    assert find(a_cell(time_s=10.0), [slow]) == (Finding("one-process", {"why": "loading", "ready_s": 6.0}),)
    # Loading does not explain it here, so the user stopped it before the second one.
    assert the("one-process", find(a_cell(time_s=10.0), [run])).data["why"] == "interrupted"
    assert the("one-process", find(a_cell(precision=0.01), [slow])).data["why"] == "interrupted"


def test_a_precision_that_was_not_reached_in_time_is_said() -> None:
    uneven = [steady_run(latency) for latency in (1.0, 1.1, 1.2, 1.3, 1.4)]
    # Ready in half a second, so every process gets half a second, and five are all that 2.5 s allow.
    cell = a_cell(precision=0.05, time_s=2.5)
    assert find(cell, uneven) == (Finding("not-precise", {"wanted": 0.05, "seconds": 2.5}),)
    assert find(replace(cell, precision=0.9), uneven) == ()


def test_a_precision_that_was_not_reached_because_it_was_stopped_is_not_the_times_fault() -> None:
    assert find(a_cell(precision=0.05, time_s=20.0), [steady_run(1.0), steady_run(2.0)]) == ()


def test_a_stream_that_was_full_is_said() -> None:
    full = a_run(a_window(back_to_back(1.0, 1.0), full=True))
    assert codes(a_cell(), [*FIVE, full]) == ["sample-limit"]


def test_an_interrupted_run_is_said_with_the_time_that_all_had() -> None:
    cut = replace(steady_run(2.0, calls=5), interrupted=True)
    found = the("interrupted", find(a_cell(), [steady_run(2.0), cut]))
    assert found.data == {"seconds": pytest.approx(0.03), "wanted_s": 10.0}


def test_an_outcome_that_was_stopped_between_processes_says_so() -> None:
    two = tuple(FIVE[:2])
    assert [one.code for one in find_all(Outcome(a_cell(), "cancelled", two))] == ["interrupted"]
    cut = (FIVE[0], replace(FIVE[1], interrupted=True))
    assert [one.code for one in find_all(Outcome(a_cell(), "cancelled", cut))] == ["interrupted"]
    assert find_all(Outcome(a_cell(), "done", tuple(FIVE))) == ()
    assert find_all(Outcome(a_cell(), "cancelled")) == ()


def test_an_outcome_that_failed_later_says_whose_numbers_these_are() -> None:
    failure = Failure("died", "It died.")
    found = find_all(Outcome(a_cell(), "failed", tuple(FIVE[:2]), failure))
    assert found == (Finding("failed-later", {"processes": 2}),)
    assert finding(found[0]) == "the engine failed in process 3; these numbers are of the 2 before it."
    assert find_all(Outcome(a_cell(), "failed", (), failure)) == ()


def second(**counters: float) -> Window:
    return a_window(back_to_back(*[100.0] * 10), counters=counters)


@pytest.mark.parametrize(
    ("counter", "code", "said"),
    [
        ("run_queue_wait_s", "waited-for-cpu", "threads waited 25 % of the time for a CPU"),
        ("throttled_s", "throttled", "the container was throttled for 25 % of the time"),
        ("steal_s", "steal", "the hypervisor took 25 % of the CPUs' time"),
    ],
)  # fmt: skip
def test_a_disturbance_is_named_with_its_cause_and_its_share(counter: str, code: str, said: str) -> None:
    runs = [a_run(second(**{counter: 0.5})), a_run(second())]
    (found,) = find(a_cell(), runs)
    assert found == Finding(code, {"share": pytest.approx(0.25), "touched": 1, "windows": 2})
    assert finding(found).startswith(f"{said} (visible in 1 of 2 windows)")


def test_streams_that_crowd_the_cores_waited_for_each_other() -> None:
    runs = [a_run(second(run_queue_wait_s=0.5)), a_run(second())]
    crowded = a_cell(scenario="async", num_streams=3, num_cores=2)
    assert "waited-for-each-other" in codes(crowded, runs)
    assert "waited-for-each-other" in codes(a_cell(scenario="elastic", num_streams=2, num_cores=2), runs)
    assert "waited-for-cpu" in codes(a_cell(scenario="async", num_streams=2, num_cores=2), runs)


def test_a_changed_clock_is_said() -> None:
    before = a_run(*[a_window(back_to_back(1.0), canary_ns=50_000)] * 4)
    after = a_run(*[a_window(back_to_back(1.0), canary_ns=75_000)] * 4)
    found = the("clock-changed", find(a_cell(), [before, after]))
    assert found.data == {"change": pytest.approx(0.5)}
    assert finding(found).startswith("fixed work took 50 % longer in the later half")


SERVER = a_cell(scenario="server", rate=100.0)


def served(service_ms: float, arrivals: int = 60, every_ms: float = 10.0, given_up_ms: float = 1e9) -> Run:
    """Requests at regular moments, served one by one."""
    spans: list[tuple[float, float]] = []
    free = 0.0
    due = [every_ms * number for number in range(arrivals)]
    for moment in due:
        begin = max(moment, free)
        if begin < given_up_ms:
            free = begin + service_ms
            spans.append((begin, free))
    return a_run(a_window(samples(*spans, due_ms=due[: len(spans)]), arrivals=arrivals))


def test_a_server_that_keeps_up_is_not_overloaded() -> None:
    assert find(SERVER, [served(8.0)] * 2) == ()


def test_a_server_that_leaves_requests_waiting_is_overloaded() -> None:
    (found,) = find(SERVER, [served(20.0, given_up_ms=600.0)] * 2)
    assert found == Finding("overloaded", {"share": pytest.approx(0.5), "load": pytest.approx(2.0), "rate": 100.0})
    assert finding(found).startswith(
        "50 % of the requests still waited when time was up: 100 a second is more than"
    )


def test_a_server_that_needs_more_time_than_there_is_is_overloaded_although_it_serves_all_in_the_end() -> None:
    (found,) = find(SERVER, [served(11.0)] * 2)
    assert found == Finding("overloaded", {"share": 0.0, "load": pytest.approx(1.1), "rate": 100.0})
    assert finding(found).startswith(
        "the requests need 110 % of the time that there is: 100 a second is more than"
    )


def test_few_requests_in_a_row_are_no_overload() -> None:
    assert find(SERVER, [served(11.0, arrivals=10)] * 2) == ()


def test_a_server_that_was_interrupted_is_not_called_overloaded() -> None:
    runs = [served(8.0), replace(served(20.0, given_up_ms=600.0), interrupted=True)]
    assert codes(SERVER, runs) == ["interrupted"]


def test_processes_without_a_request_are_said() -> None:
    idle = a_run(a_window(samples(due_ms=[]), arrivals=0))
    cell = a_cell(scenario="server", rate=0.1)
    assert find(cell, [served(8.0), idle, idle]) == (
        Finding("no-requests", {"idle": 2, "processes": 3, "rate": 0.1}),
    )
    assert codes(cell, [idle, idle]) == ["no-requests"]
