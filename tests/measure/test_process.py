"""Warming up, on a clock that the tests own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from inferlab.measure import children
from inferlab.measure.children import Process, Slice
from inferlab.measure.prepare import Job, Layout, Setup
from inferlab.measure.reference import Reference
from inferlab.records import Model
from inferlab.worker import Launch
from tests.helpers.runs import a_cell, a_window, back_to_back


class Crew:
    """Instead of children: every call takes as long as the list says, the last of it for ever."""

    latencies_s: ClassVar[list[float]] = [1 / 128]
    now_s = 0.0
    pieces_s: ClassVar[list[float]] = []
    interrupt_at: int | None = None

    def __init__(self, *_: Any) -> None:
        self.calls = 0
        Crew.now_s, Crew.pieces_s = 0.0, []

    def load(self, request: Any) -> dict[str, Any]:
        return {"settings": {}}

    def slice(self, seconds: float, expected_s: float | None = None) -> Slice:
        """Call until the time is over, as the real loop does."""
        Crew.pieces_s.append(seconds)
        end_s = Crew.now_s + seconds
        taken: list[float] = []
        while not taken or Crew.now_s < end_s:
            taken.append(self.latencies_s[min(self.calls, len(self.latencies_s) - 1)])
            self.calls += 1
            Crew.now_s += taken[-1]
        window = a_window(back_to_back(*(1000 * latency for latency in taken)))
        return Slice(window, None, None, len(Crew.pieces_s) == self.interrupt_at, None, {})


@pytest.fixture
def warming(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(children, "Crew", Crew)
    monkeypatch.setattr(children, "time", SimpleNamespace(monotonic=lambda: Crew.now_s))
    monkeypatch.setattr(Crew, "latencies_s", [1 / 128])
    monkeypatch.setattr(Crew, "interrupt_at", None)
    job = Job(a_cell(), Model("onnx", "", "", "", (), (), 0), ({}, {}), None, 1.0)
    layout = Layout("single", (((),),), 1, False, 1)
    return Process(Setup(job, Launch("none", {}), Path("none"), layout, Reference("")))


def test_a_warm_up_ends_as_soon_as_three_pieces_agree(warming: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Crew, "latencies_s", [1 / 64])
    warming.warm_up(0.5)
    assert Crew.pieces_s == [1 / 16, 1 / 16, 1 / 16]
    assert Crew.now_s == 3 / 16
    assert warming.call_s == 1 / 64


@pytest.mark.parametrize("most_s", [2.0, 8.0, 600.0])
def test_the_pieces_of_a_long_warm_up_are_a_tenth_of_a_second(warming: Process, most_s: float) -> None:
    warming.warm_up(most_s)
    assert Crew.pieces_s == [0.1, 0.1, 0.1]


def test_a_warm_up_goes_on_while_calls_get_faster(warming: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    falling = list(np.geomspace(0.02, 0.01, 60))
    monkeypatch.setattr(Crew, "latencies_s", falling)
    warming.warm_up(8.0)
    # The calls have stopped getting faster after 0.87 s; three pieces after that agree.
    assert sum(falling) == pytest.approx(0.87, abs=0.01)
    assert len(Crew.pieces_s) == 11


def test_a_warm_up_that_is_never_steady_takes_its_time_and_at_most_one_call_more(
    warming: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crew, "latencies_s", [0.3 * 1.05**number for number in range(100)])
    warming.warm_up(8.0)
    ends = np.cumsum(Crew.latencies_s)
    assert pytest.approx(ends[np.searchsorted(ends, 8.0)]) == Crew.now_s
    assert len(Crew.pieces_s) > 3


def test_a_call_that_is_longer_than_the_warm_up_is_made_once(
    warming: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Crew, "latencies_s", [20.0])
    warming.warm_up(2.0)
    assert (Crew.now_s, len(Crew.pieces_s)) == (20.0, 1)


def test_an_interrupted_warm_up_ends_the_cell(warming: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Crew, "interrupt_at", 2)
    with pytest.raises(KeyboardInterrupt):
        warming.warm_up(8.0)
