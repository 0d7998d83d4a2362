"""Several children spoken to as one: they share limits, queues and the moment of their beginning."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from inferlab.measure import children
from inferlab.measure.children import Crew, Slice
from inferlab.measure.prepare import Layout
from inferlab.measure.queueing import poisson_arrivals
from inferlab.records import Window
from inferlab.worker import Launch
from tests.helpers.runs import a_window, samples

FAKE = Launch("fake", {"builtin": "fake", "class": "Fake"})
ONE: tuple[tuple[tuple[int, ...], ...], ...] = (((),),)
THREADS: tuple[tuple[tuple[int, ...], ...], ...] = (((), (), ()),)
PROCESSES: tuple[tuple[tuple[int, ...], ...], ...] = (((),), ((),), ((),))
MIXED: tuple[tuple[tuple[int, ...], ...], ...] = (((), ()), ((), ()))


@contextmanager
def loaded(children: tuple[tuple[tuple[int, ...], ...], ...], **options: str) -> Iterator[Crew]:
    with Crew(FAKE, Layout("any", children, 1, False, 1), 60.0) as made:
        made.load(
            {
                "model": "none.onnx",
                "kind": "onnx",
                "scheduler": "multi_stream",
                "pinning": "none",
                "batch_size": 1,
                "shapes": {},
                "options": options,
                "outputs": ["y"],
            }
        )
        made.give_inputs({"x": np.ones(1, np.float32)})
        yield made


def starts(found: Slice) -> list[int]:
    return [stream.starts_ns[0] for stream in found.window.streams]


@pytest.mark.parametrize("children", [THREADS, PROCESSES, MIXED])
def test_all_streams_of_all_children_answer(children: tuple[tuple[tuple[int, ...], ...], ...]) -> None:
    with loaded(children, latency_us="1000") as made:
        found = made.slice(0.05)
    assert made.streams == len(found.window.streams) == sum(map(len, children))
    assert all(len(stream) for stream in found.window.streams)
    assert found.window.arrivals is None and not found.interrupted


def test_a_window_is_stamped_with_what_the_system_says() -> None:
    with loaded(ONE, latency_us="100") as made:
        window = made.slice(0.05).window
    assert window.canary_ns > 0
    if sys.platform.startswith("linux"):
        assert {"run_queue_wait_s", "involuntary_switches", "cpu_s"} <= set(window.counters)
    assert all(value >= 0 for value in window.counters.values())


def test_the_limit_of_samples_holds_over_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_SAMPLES", 100)
    with loaded(ONE, latency_us="0", spin="1") as made:
        found = [made.slice(60.0).window, made.slice(60.0).window]
    assert [len(window.streams[0]) for window in found] == [100, 1]
    assert [window.full for window in found] == [True, True]


def test_windows_below_the_limit_of_samples_are_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_SAMPLES", 1000)
    with loaded(ONE, latency_us="20000") as made:
        assert not any(made.slice(0.05).window.full for _ in range(3))


@pytest.mark.parametrize("children", [ONE, THREADS, PROCESSES, MIXED])
def test_every_request_is_served_exactly_once_and_none_early(
    children: tuple[tuple[tuple[int, ...], ...], ...],
) -> None:
    arrivals = poisson_arrivals(1000.0, 0.2, seed=1)
    with loaded(children, latency_us="500") as made:
        # Twice: the queue of several processes is one file, used again.
        for _ in range(2):
            window = made.serve(arrivals, 60.0).window
            due = np.sort(np.concatenate([stream.scheduled_ns for stream in window.streams]))
            assert window.arrivals == len(arrivals) == len(due)
            # In every child the schedule begins at the same moment.
            assert np.array_equal(due - due[0], arrivals - arrivals[0])
            for stream in window.streams:
                assert stream.scheduled_ns is not None
                assert all(begun >= at for begun, at in zip(stream.starts_ns, stream.scheduled_ns, strict=True))


@pytest.mark.parametrize("children", [ONE, THREADS, PROCESSES])
def test_a_queue_without_requests_is_a_window_without_samples(
    children: tuple[tuple[tuple[int, ...], ...], ...],
) -> None:
    with loaded(children) as made:
        window = made.serve(np.zeros(0, np.int64), 60.0).window
    assert window.arrivals == 0
    assert sum(map(len, window.streams)) == 0


def test_requests_that_wait_when_time_is_up_stay_unserved() -> None:
    with loaded(ONE, latency_us="50000", spin="1") as made:
        window = made.serve(np.zeros(100, np.int64), 0.2).window
    assert window.arrivals == 100
    assert 0 < len(window.streams[0]) <= 4


@pytest.mark.parametrize("children", [ONE, THREADS, PROCESSES])
def test_a_server_that_is_cut_short_counts_only_the_requests_that_had_arrived(
    children: tuple[tuple[tuple[int, ...], ...], ...],
) -> None:
    # One request every ten milliseconds, for an hour.
    arrivals = np.arange(360_000, dtype=np.int64) * 10_000_000
    with loaded(children, latency_us="100") as made:
        threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        found = made.serve(arrivals, 3600.0)
    served = sum(map(len, found.window.streams))
    assert found.interrupted
    assert found.window.arrivals is not None and 0 < served <= found.window.arrivals < len(arrivals)


def test_a_server_that_is_cut_short_had_exactly_these_requests_due() -> None:
    arrivals = np.array([5, 20, 30, 40, 50, 60], np.int64) * 1_000_000
    # The schedule began at 100 ms; the last request that was served, that of 30 ms, was done at 145 ms.
    window = a_window(
        samples((105, 115), (130, 145), due_ms=(105, 130)), samples((120, 140), due_ms=[120]), samples(due_ms=[])
    )
    assert children._due(window, arrivals) == 4
    assert children._due(Window((), {}, 1), arrivals) == 0
