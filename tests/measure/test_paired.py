"""Comparing interleaved: what is dropped, what is measured, what stops while the other runs."""

from __future__ import annotations

import itertools
import math
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab import Lab, Plan
from inferlab.child.descendants import descendants_of
from inferlab.measure import intervals
from inferlab.measure.children import Children
from inferlab.measure.paired import best_number_of_turns, double_turns, settled, times_ms
from inferlab.records import ComparisonSweep, Event, Run, Samples, Window
from inferlab.store import Document, open_store
from inferlab.store.formats import record_of
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_run

MS = 1_000_000


def window(*starts_ms: int) -> Window:
    starts = array("q", [one * MS for one in starts_ms])
    return Window((Samples(starts, array("q", [one + MS for one in starts])),), {}, 50_000)


def test_the_first_call_of_a_turn_and_what_began_in_two_milliseconds_is_dropped() -> None:
    (stream,) = settled(window(100, 101, 102, 103)).streams
    assert list(stream.starts_ns) == [102 * MS, 103 * MS]
    assert list(stream.ends_ns) == [103 * MS, 104 * MS]
    (stream,) = settled(window(100, 120, 140)).streams
    assert list(stream.starts_ns) == [120 * MS, 140 * MS]


def test_the_last_call_always_stays() -> None:
    (stream,) = settled(window(100, 120)).streams
    assert list(stream.starts_ns) == [120 * MS]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50).map(sorted))
def test_settling_keeps_a_tail_of_the_calls(starts: list[int]) -> None:
    (stream,) = settled(window(*starts)).streams
    assert len(stream) >= 1
    assert list(stream.starts_ns) == [one * MS for one in starts][-len(stream) :]


def turns(*spans_ms: tuple[int, float], streams: int = 1) -> Run:
    """A run of turns that began at these moments and whose calls, after the first, took so long."""
    windows = []
    for begin, call_ms in spans_ms:
        starts = array("q", [begin * MS, *(begin * MS + (5 + number) * MS for number in range(3))])
        ends = array("q", [begin * MS + 4 * MS, *(start + int(call_ms * MS) for start in starts[1:])])
        windows.append(Window((Samples(starts, ends),) * streams, {}, 50_000))
    return a_run(*windows)


def test_the_ratio_of_a_pair_is_the_median_of_its_double_turns() -> None:
    # A B, B A, B A: a burst makes both turns of the second double turn twice as long, and one of the third.
    a = turns((0, 1.0), (300, 2.0), (500, 1.0))
    b = turns((100, 1.2), (200, 2.4), (400, 3.0))
    assert np.exp(double_turns(a, b, "median")) == pytest.approx(
        np.array([[1e6, 1.2e6], [2e6, 2.4e6], [1e6, 3e6]])
    )
    of_a, of_b = times_ms(a, b, "median")
    assert of_b / of_a == pytest.approx(1.2)


def test_throughput_shares_the_mean_call_among_the_streams() -> None:
    a, b = turns((0, 1.0), (100, 1.0)), turns((50, 1.0), (150, 1.0), streams=2)
    assert times_ms(a, b, "throughput") == pytest.approx((1.0, 0.5))


@given(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=8))
def test_the_arms_exchanged_give_the_reciprocal(calls_ms: list[float]) -> None:
    a = turns(*((200 * number, one) for number, one in enumerate(calls_ms)))
    b = turns(*((200 * number + 100, 1 - one) for number, one in enumerate(calls_ms)))
    assert times_ms(a, b, "median") == pytest.approx(times_ms(b, a, "median")[::-1])


@pytest.mark.parametrize(
    ("within", "between", "made_s", "turn_s", "turns"),
    [
        (2 / math.pi, 1.0, 0.9, 0.1, 3),  # the square root of 9
        (8 / math.pi, 1.0, 0.9, 0.1, 6),  # turns that differ twice as much
        (2 / math.pi, 0.0, 0.9, 0.1, 64),  # pairs that differ by nothing: one would do
        (1.0, 1e-9, 0.9, 0.1, 64),
    ],
)
def test_the_number_of_turns_makes_the_most_of_the_time(
    within: float, between: float, made_s: float, turn_s: float, turns: int
) -> None:
    assert best_number_of_turns(within, between, made_s, turn_s) == turns


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("models") / "linear.onnx", "batch")


def scripted(model: Path, latency_us: int, **more: str) -> Plan:
    options = {"latency_us": str(latency_us), **more}
    return Plan(str(model), ("fake",), ("sync",), num_cores=(1,), engine_options=tuple(sorted(options.items())))


def test_arms_take_turns_and_every_pair_is_of_fresh_processes(linear: Path) -> None:
    events: list[Event] = []

    def stop_after_two(event: Event) -> None:
        events.append(event)
        if event.code == "pair" and event.data["number"] == 2:
            raise KeyboardInterrupt

    found = Lab().compare(scripted(linear, 2000), scripted(linear, 4000), time_s=30.0, listener=stop_after_two)
    assert len(found.pairs) == sum(event.code == "pair" for event in events) == 2
    for pair in found.pairs:
        assert len(pair.a.windows) == len(pair.b.windows) >= 2
        spans = [
            (one.streams[0].starts_ns[0], one.streams[0].ends_ns[-1], arm)
            for arm, run in (("a", pair.a), ("b", pair.b))
            for one in run.windows
        ]
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        order = "".join(arm for _, _, arm in spans)
        assert all(order[i : i + 4] in ("abba", "baab") for i in range(0, len(order) - 3, 4))
    assert len({run.started_at for pair in found.pairs for run in (pair.a, pair.b)}) == 2 * len(found.pairs)


def test_the_ratio_is_that_of_the_arms_times(linear: Path) -> None:
    found = Lab().compare(scripted(linear, 20_000), scripted(linear, 40_000), time_s=6.0)
    for a, b, pair in zip(*found.times_ms, found.pairs, strict=True):
        assert pair.log_ratio == pytest.approx(math.log(b / a))
    assert found.ratio.value == pytest.approx(2.0, rel=0.2)


def test_while_one_arm_is_measured_the_other_is_stopped(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Children] = []
    idle: list[bool] = []
    make, measure, end = Children.__init__, Children.measure, Children.__exit__

    def noted(self: Children, *given: Any) -> None:
        make(self, *given)
        alive.append(self)

    def watched(self: Children, seconds: float) -> Window:
        pids = [worker.pid for one in alive if one is not self for worker in one._workers]
        idle.extend(is_stopped(each) for pid in pids for each in (pid, *descendants_of(pid)))
        return measure(self, seconds)

    def forgotten(self: Children, *given: Any) -> None:
        alive.remove(self)
        end(self, *given)

    monkeypatch.setattr(Children, "__init__", noted)
    monkeypatch.setattr(Children, "measure", watched)
    monkeypatch.setattr(Children, "__exit__", forgotten)
    Lab().compare(scripted(linear, 2000, spin="1"), scripted(linear, 2000, spin="1"), time_s=2.0)
    assert idle and all(idle)


def is_stopped(pid: int) -> bool:
    """Whether Linux says so; a process that waits for a CPU stops when it gets one."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.001)
    return False


def test_outputs_of_the_arms_are_compared_by_the_models_precision(linear: Path) -> None:
    plan = Plan(str(linear), ("onnxruntime",), ("sync",), num_cores=(1,))
    wrong = scripted(linear, 100, outputs="zeros")
    found = Lab().compare(plan, wrong, time_s=2.0)
    assert found.outputs_match is False
    assert found.output_error == float("inf")  # zeros of another shape
    assert Lab().compare(plan, plan, time_s=2.0).output_error == 0.0


@pytest.mark.parametrize(("process", "calls"), [(1, 0), (2, 20)], ids=["first pair only", "late in the second"])
def test_outputs_that_are_wrong_in_one_pair_only_or_late_are_found(
    linear: Path, tmp_path: Path, process: int, calls: int
) -> None:
    engine = tmp_path / "sometimes.py"
    engine.write_text(
        "import os, time\n"
        "class Right:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def bind(self, inputs, stream=0):\n"
        "        def call():\n"
        "            time.sleep(0.002)\n"
        "            return [inputs['x'] * 2]\n"
        "        return call\n"
        "class Sometimes:\n"
        "    def load(self, model, options):\n"
        f"        self.process = len(os.listdir({str(tmp_path)!r}))\n"
        f"        open(os.path.join({str(tmp_path)!r}, 'process-%d' % self.process), 'w').close()\n"
        "        self.calls = 0\n"
        "    def bind(self, inputs, stream=0):\n"
        "        def call():\n"
        "            time.sleep(0.002)\n"
        "            self.calls += 1\n"
        f"            wrong = self.process == {process} and self.calls > {calls}\n"
        "            return [inputs['x'] * (3 if wrong else 2)]\n"
        "        return call\n"
    )
    right = Plan(str(linear), (f"{engine}:Right",), ("sync",), num_cores=(1,))

    def stop_after_three(event: Event) -> None:
        if event.code == "pair" and event.data["number"] == 3:
            raise KeyboardInterrupt

    sometimes = replace(right, engines=(f"{engine}:Sometimes",))
    found = Lab().compare(right, sometimes, time_s=30.0, listener=stop_after_three)
    assert len(found.pairs) == 3
    checks = [pair.b.check.status for pair in found.pairs]
    assert [number for number, status in enumerate(checks, 1) if status == "mismatch"] == [process]
    assert (found.outputs_match, found.output_detail) == (False, "y")
    assert found.output_error is not None and found.output_error > 0.1


def test_a_median_of_latencies_is_taken_only_where_both_arms_are_sync(linear: Path) -> None:
    sync = scripted(linear, 1000)
    many = Plan(str(linear), ("fake",), ("async",), num_cores=(1,), engine_options=(("latency_us", "1000"),))
    assert Lab().compare(sync, sync, time_s=1.0).metric == "median"
    assert Lab().compare(sync, many, time_s=1.0).metric == "throughput"


def test_inputs_of_the_first_arm_serve_both_where_the_models_take_the_same(linear: Path, tmp_path: Path) -> None:
    other = save_linear(tmp_path / "other.onnx", "batch")
    seeds = Plan(str(linear), scenarios=("sync",), seed=1), Plan(str(other), scenarios=("sync",), seed=2)
    found = Lab().compare(*seeds, time_s=1.0)
    assert found.outputs_match is True and found.output_error == 0.0
    assert found.cells is not None
    assert found.cells[0].input_digest == found.cells[1].input_digest
    assert np.isfinite(found.ratio.value)


def test_a_stored_comparison_is_computed_again_from_its_record_to_the_last_bit(
    linear: Path, tmp_path: Path
) -> None:
    def stop_after_four(event: Event) -> None:
        if event.code == "pair" and event.data["number"] == 4:
            raise KeyboardInterrupt

    file = tmp_path / "lab.jsonl"
    with open_store(str(tmp_path / "lab.db")) as store, open_store(str(tmp_path / "other.db")) as other:
        lab = Lab(store)
        measured = lab.compare(scripted(linear, 500), scripted(linear, 700), time_s=30.0, listener=stop_after_four)
        file.write_bytes(b"".join(store.export()))
        (entry_id,) = other.import_file(file)
        found = other.get(entry_id)
    assert isinstance(found, Document)
    sweep = record_of(found)
    assert isinstance(sweep, ComparisonSweep)
    (again,) = sweep.results
    pairs = [(pair.a, pair.b) for pair in again.pairs]
    times = [times_ms(*pair, again.metric) for pair in pairs]
    log_ratios = [math.log(of_b / of_a) for of_a, of_b in times]
    assert log_ratios == [pair.log_ratio for pair in measured.pairs] == [pair.log_ratio for pair in again.pairs]
    assert again.spread is not None and again.spread == measured.spread
    assert intervals.moderated(log_ratios, again.ratio.level, again.spread.prior) == measured.ratio == again.ratio
