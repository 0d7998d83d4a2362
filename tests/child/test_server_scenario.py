"""The server scenario, on a clock that the tests own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Sequence

import numpy as np
import pytest

from inferlab.child import scenarios
from inferlab.measure import queueing

FAR = [1 << 62]


class World:
    """A clock that moves only when someone waits or works, and a service that takes a fixed time."""

    def __init__(self, service_ns: int, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.service_ns = service_ns
        self.waits: list[int] = []

    def clock(self) -> int:
        return self.now_ns

    def wait(self, moment_ns: int) -> None:
        self.waits.append(moment_ns - self.now_ns)
        self.now_ns = moment_ns

    def call(self) -> None:
        self.now_ns += self.service_ns

    def serve(self, offsets: Sequence[int], start_ns: int = 0, deadline: list[int] = FAR) -> scenarios.Served:
        take = scenarios.from_memory(offsets)
        return scenarios.serve(self.call, take, start_ns, deadline, clock=self.clock, wait=self.wait)


def waited(served: scenarios.Served) -> list[int]:
    return [start - due for due, start in zip(served.scheduled, served.starts, strict=True)]


def test_a_request_that_finds_the_server_busy_waits_for_all_before_it() -> None:
    served = World(service_ns=10).serve([0, 5, 6, 100])
    assert list(served.scheduled) == [0, 5, 6, 100]
    assert list(served.starts) == [0, 10, 20, 100]
    assert list(served.ends) == [10, 20, 30, 110]
    assert waited(served) == [0, 5, 14, 0]


def test_the_schedule_begins_at_the_start_and_not_at_the_first_request() -> None:
    served = World(service_ns=10).serve([3, 8], start_ns=1000)
    assert list(served.scheduled) == [1003, 1008]
    assert list(served.starts) == [1003, 1013]


def test_requests_that_were_due_before_the_stream_began_have_waited_since_then() -> None:
    assert waited(World(service_ns=10, now_ns=50).serve([0, 5, 100])) == [50, 55, 0]


def test_a_request_that_comes_as_the_last_one_ends_does_not_wait() -> None:
    world = World(service_ns=10)
    assert waited(world.serve([0, 10, 20])) == [0, 0, 0]
    assert world.waits == []


def test_no_requests_are_served_from_an_empty_queue() -> None:
    assert [len(one) for one in World(service_ns=10).serve([])] == [0, 0, 0]


def test_requests_in_the_queue_at_the_deadline_stay_unserved() -> None:
    served = World(service_ns=10).serve([0, 1, 2, 3, 4], deadline=[25])
    assert list(served.ends) == [10, 20, 30]


def test_a_request_due_after_the_deadline_is_not_waited_for() -> None:
    world = World(service_ns=10)
    assert list(world.serve([0, 500], deadline=[100]).ends) == [10]
    assert world.waits == []


def test_a_deadline_brought_forward_ends_a_long_wait() -> None:
    deadline = [1 << 62]
    world = World(service_ns=10)

    def wait(moment_ns: int) -> None:
        world.wait(moment_ns)
        if len(world.waits) == 3:
            deadline[0] = 0

    take = scenarios.from_memory([0, 3600 * 10**9])
    served = scenarios.serve(world.call, take, 0, deadline, clock=world.clock, wait=wait)
    assert list(served.ends) == [10]
    assert world.waits == [100_000_000] * 3


def test_a_deadline_brought_forward_leaves_the_queue_unserved() -> None:
    deadline = [1 << 62]
    world = World(service_ns=10)

    def call() -> None:
        world.call()
        if world.now_ns == 70:
            deadline[0] = 0

    served = scenarios.serve(
        call, scenarios.from_memory(range(100)), 0, deadline, clock=world.clock, wait=world.wait
    )
    assert list(served.ends) == [10, 20, 30, 40, 50, 60, 70]


def test_a_stream_grows_its_arrays_and_loses_nothing() -> None:
    served = World(service_ns=2).serve(range(20_000))
    assert list(served.scheduled) == list(range(20_000))
    assert list(served.starts) == list(range(0, 40_000, 2))
    assert list(served.ends) == list(range(2, 40_002, 2))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_million_requests_wait_as_queueing_theory_says(load: float) -> None:
    service_ns = 1_000_000
    rate = load * 1e9 / service_ns
    arrivals = queueing.poisson_arrivals(rate, 1_000_000 / rate, seed=0)
    assert 990_000 < len(arrivals) < 1_010_000
    served = World(service_ns).serve(array("q", arrivals.tobytes()))
    found = np.frombuffer(served.starts, np.int64) - np.frombuffer(served.scheduled, np.int64)
    assert np.array_equal(served.scheduled, arrivals)
    assert np.array_equal(found, queueing.waits(arrivals, service_ns))
    theory_s = queueing.pollaczek_khinchine(rate, service_ns / 1e9, squared_cv=0.0)
    assert float(found.mean()) / 1e9 == pytest.approx(theory_s, rel=0.02)


@pytest.mark.parametrize("wait", [scenarios.wait_spinning, scenarios.wait_yielding])
def test_no_wait_ends_early(wait: scenarios.Wait) -> None:
    for wanted_ns in (-1000, 0, 50_000, 150_000, 300_000, 2_000_000):
        moment = time.perf_counter_ns() + wanted_ns
        wait(moment)
        assert time.perf_counter_ns() >= moment


def test_the_threads_of_a_process_take_each_ticket_once_and_in_order() -> None:
    take = scenarios.from_memory(array("q", range(100_000)))
    takers: list[list[int]] = [[], [], []]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(iter(take, -1))) for mine in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ticket for mine in takers for ticket in mine) == list(range(100_000))
    assert all(mine == sorted(mine) for mine in takers)


TAKERS = """
import sys, threading
from array import array
from inferlab.child import scenarios

take = scenarios.from_descriptor(int(sys.argv[1]))
takers = [array("q"), array("q")]
threads = [threading.Thread(target=lambda mine=mine: mine.extend(iter(take, -1))) for mine in takers]
print("ready", flush=True)
sys.stdin.read(1)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for mine in takers:
    print(*mine)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux is known to lock the position of a file"
)
def test_the_processes_that_share_a_file_take_each_ticket_once_and_in_order() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(array("q", range(200_000)).tobytes())
        file.seek(0)
        command = [sys.executable, "-c", TAKERS, str(file.fileno())]
        pass_fds, pipe = [file.fileno()], subprocess.PIPE
        processes = [
            subprocess.Popen(command, pass_fds=pass_fds, stdin=pipe, stdout=pipe, text=True) for _ in range(3)
        ]
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("!")
            process.stdin.flush()
        told = [process.communicate()[0] for process in processes]
    takers = [[int(ticket) for ticket in line.split()] for text in told for line in text.splitlines()]
    assert len(takers) == 6
    assert sorted(ticket for mine in takers for ticket in mine) == list(range(200_000))
    assert all(mine == sorted(mine) for mine in takers)
    assert sum(bool(text.strip()) for text in told) > 1, "one process took all, which proves nothing"


def test_several_streams_share_one_queue_and_none_begins_early() -> None:
    start = time.perf_counter_ns() + 1_000_000
    offsets = [index * 100_000 for index in range(60)]
    calls = [lambda: time.sleep(0.0002)] * 3
    served = scenarios.serve_all(calls, [[]] * 3, scenarios.from_memory(offsets), start, [1 << 62])
    assert len(served) == 3
    assert sorted(due - start for one in served for due in one.scheduled) == offsets
    assert all(wait >= 0 for one in served for wait in waited(one))


def test_one_stream_runs_in_the_calling_thread() -> None:
    threads: list[threading.Thread] = []
    take = scenarios.from_memory([0])
    scenarios.serve_all([lambda: threads.append(threading.current_thread())], [[]], take, 0, [1 << 62])
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("others", [0, 1])
def test_an_error_in_one_stream_ends_all_and_is_raised(others: int) -> None:
    def breaks() -> None:
        raise ValueError("as ordered")

    hour = 3600 * 10**9
    start = time.perf_counter_ns()
    calls = [breaks, *[breaks] * others]
    with pytest.raises(ValueError, match="as ordered"):
        scenarios.serve_all(calls, [[]] * len(calls), scenarios.from_memory([0, hour]), start, [start + 2 * hour])
