"""Several children spoken to as one: they share limits, queues and the moment of their beginning."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inferlab.measure import children
from inferlab.measure.cell import PreparedCell
from inferlab.measure.cells import Job, Layout
from inferlab.measure.check import Reference
from inferlab.measure.children import Children
from inferlab.measure.queueing import poisson_arrivals
from inferlab.records import Model, Window
from inferlab.worker import Launch
from tests.helpers.runs import a_cell, a_window, back_to_back, samples

FAKE = Launch("fake", {"builtin": "fake", "class": "Fake"})
ONE: tuple[tuple[tuple[int, ...], ...], ...] = (((),),)
THREADS: tuple[tuple[tuple[int, ...], ...], ...] = (((), (), ()),)
PROCESSES: tuple[tuple[tuple[int, ...], ...], ...] = (((),), ((),), ((),))
MIXED: tuple[tuple[tuple[int, ...], ...], ...] = (((), ()), ((), ()))


def loaded(layout: tuple[tuple[tuple[int, ...], ...], ...], **options: str) -> Children:
    cell = a_cell(engine="fake", engine_options=tuple(options.items()), thread_pinning="none", scenario="async")
    inputs = {"x": np.ones(1, np.float32)}
    job = Job(cell, Model("onnx", "", "none.onnx", "", (), (), 0), (inputs, inputs), None, 60.0)
    laid_out = Layout("any", layout, 1, False, 1)
    return Children(PreparedCell(job, FAKE, Path("none.onnx"), laid_out, Reference("")))


@pytest.mark.parametrize("children", [THREADS, PROCESSES, MIXED])
def test_all_streams_of_all_children_answer(children: tuple[tuple[tuple[int, ...], ...], ...]) -> None:
    with loaded(children, latency_us="1000") as made:
        window = made.measure(0.05)
    assert len(window.streams) == sum(map(len, children))
    assert all(len(stream) for stream in window.streams)
    assert window.arrivals is None and not made.interrupted


def test_a_window_is_stamped_with_what_the_system_says() -> None:
    with loaded(ONE, latency_us="100") as made:
        window = made.measure(0.05)
        unwatched = made.measure(0.05, watched=False)
        run = made.run()
    assert unwatched.streams[0] and (unwatched.counters, unwatched.canary_ns) == ({}, None)
    assert run.windows == (window, unwatched) and run.peak_memory_bytes is not None
    assert window.canary_ns is not None and window.canary_ns > 0
    if sys.platform.startswith("linux"):
        assert {"run_queue_wait_s", "involuntary_switches", "cpu_s"} <= set(window.counters)
    assert all(value >= 0 for value in window.counters.values())


def test_the_limit_of_samples_holds_over_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_SAMPLES", 100)
    with loaded(ONE, latency_us="0", spin="1") as made:
        found = [made.measure(60.0), made.measure(60.0)]
    assert [len(window.streams[0]) for window in found] == [100, 1]
    assert [window.full for window in found] == [True, True]


def test_windows_below_the_limit_of_samples_are_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_SAMPLES", 1000)
    with loaded(ONE, latency_us="20000") as made:
        assert not any(made.measure(0.05).full for _ in range(3))


@pytest.mark.parametrize("children", [ONE, THREADS, PROCESSES, MIXED])
def test_every_request_is_served_exactly_once_and_none_early(
    children: tuple[tuple[tuple[int, ...], ...], ...],
) -> None:
    arrivals = poisson_arrivals(1000.0, 0.2, seed=1)
    with loaded(children, latency_us="500") as made:
        # Twice: the queue of several processes is one file, used again.
        for _ in range(2):
            window = made.serve(arrivals, 60.0)
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
        window = made.serve(np.zeros(0, np.int64), 60.0)
    assert window.arrivals == 0
    assert sum(map(len, window.streams)) == 0


def test_requests_that_wait_when_time_is_up_stay_unserved() -> None:
    with loaded(ONE, latency_us="50000", spin="1") as made:
        window = made.serve(np.zeros(100, np.int64), 0.2)
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
        window = made.serve(arrivals, 3600.0)
    served = sum(map(len, window.streams))
    assert made.interrupted
    assert window.arrivals is not None and 0 < served <= window.arrivals < len(arrivals)


def test_a_server_that_is_cut_short_had_exactly_these_requests_due() -> None:
    arrivals = np.array([5, 20, 30, 40, 50, 60], np.int64) * 1_000_000
    # The schedule began at 100 ms; the last request that was served, that of 30 ms, was done at 145 ms.
    window = a_window(
        samples((105, 115), (130, 145), due_ms=(105, 130)), samples((120, 140), due_ms=[120]), samples(due_ms=[])
    )
    assert children.arrived(window, arrivals) == 4
    assert children.arrived(Window((), {}, 1), arrivals) == 0


class Scripted(Children):
    """Without processes, on a clock of its own: calls take as long as the list says, the last of it for ever."""

    def __init__(self) -> None:
        job = Job(a_cell(), Model("onnx", "", "", "", (), (), 0), ({}, {}), None, 1.0)
        layout = Layout("single", (), 1, False, 1)
        super().__init__(PreparedCell(job, FAKE, Path("none.onnx"), layout, Reference("")))
        self.latencies_s = [1 / 128]
        self.now_s = 0.0
        self.pieces_s: list[float] = []
        self.interrupt_at: int | None = None
        self._calls = 0

    def _load(self) -> dict[str, Any]:
        return {"settings": {}}

    def _collect(self, do: str, seconds: float, arrays: Sequence[str]) -> Window:
        """Call until the time is over, as the real loop does."""
        self.pieces_s.append(seconds)
        end_s = self.now_s + seconds
        taken: list[float] = []
        while not taken or self.now_s < end_s:
            taken.append(self.latencies_s[min(self._calls, len(self.latencies_s) - 1)])
            self._calls += 1
            self.now_s += taken[-1]
        self.interrupted = len(self.pieces_s) == self.interrupt_at
        return a_window(back_to_back(*(1000 * latency for latency in taken)))


@pytest.fixture
def warming(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=lambda: scripted.now_s))
    return scripted


def test_a_warm_up_ends_as_soon_as_three_pieces_agree(warming: Scripted) -> None:
    warming.latencies_s = [1 / 64]
    warming.warm_up(0.5)
    assert warming.pieces_s == [1 / 16, 1 / 16, 1 / 16]
    assert warming.now_s == 3 / 16
    assert warming.call_s == 1 / 64


@pytest.mark.parametrize("most_s", [2.0, 8.0, 600.0])
def test_the_pieces_of_a_long_warm_up_are_a_tenth_of_a_second(warming: Scripted, most_s: float) -> None:
    warming.warm_up(most_s)
    assert warming.pieces_s == [0.1, 0.1, 0.1]


def test_a_warm_up_goes_on_while_calls_get_faster(warming: Scripted) -> None:
    falling = list(np.geomspace(0.02, 0.01, 60))
    warming.latencies_s = falling
    warming.warm_up(8.0)
    # The calls have stopped getting faster after 0.87 s; three pieces after that agree.
    assert sum(falling) == pytest.approx(0.87, abs=0.01)
    assert len(warming.pieces_s) == 11


def test_a_warm_up_that_is_never_steady_takes_its_time_and_at_most_one_call_more(warming: Scripted) -> None:
    warming.latencies_s = [0.3 * 1.05**number for number in range(100)]
    warming.warm_up(8.0)
    ends = np.cumsum(warming.latencies_s)
    assert pytest.approx(ends[np.searchsorted(ends, 8.0)]) == warming.now_s
    assert len(warming.pieces_s) > 3


def test_a_call_that_is_longer_than_the_warm_up_is_made_once(warming: Scripted) -> None:
    warming.latencies_s = [20.0]
    warming.warm_up(2.0)
    assert (warming.now_s, len(warming.pieces_s)) == (20.0, 1)


def test_an_interrupted_warm_up_ends_the_cell(warming: Scripted) -> None:
    warming.interrupt_at = 2
    with pytest.raises(KeyboardInterrupt):
        warming.warm_up(8.0)
