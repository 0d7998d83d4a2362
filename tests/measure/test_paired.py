"""Comparing interleaved: what is dropped, what is measured, what stops while the other runs."""

from __future__ import annotations

import itertools
import math
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inferlab import Lab, Plan, worker
from inferlab.child.processes import descendants_of
from inferlab.measure import intervals
from inferlab.measure.children import Children
from inferlab.measure.paired import (
    BUILT_IN_PRIOR,
    PairedComparison,
    PairedJob,
    best_number_of_turns,
    double_turns,
    responses_ns,
    settled,
    tail_ratio,
    times_ms,
    turns_sd,
    weights,
)
from inferlab.records import ComparisonSweep, Event, Pair, Run, Samples, Spread, Window, ignore
from inferlab.store import Document, open_store
from inferlab.store.formats import record_of
from inferlab.views import results
from tests.helpers.comparisons import COMPARISON
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_run
from tests.helpers.workers import is_stopped

MS = 1_000_000


def window(*starts_ms: int) -> Window:
    starts = array("q", [one * MS for one in starts_ms])
    return Window((Samples(starts, array("q", [start + MS for start in starts])),), {}, 50_000)


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
    assert list(stream.starts_ns) == [start * MS for start in starts][-len(stream) :]


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
    of_a, of_b = times_ms(double_turns(a, b, "median"))
    assert of_b / of_a == pytest.approx(1.2)


def test_throughput_shares_the_mean_call_among_the_streams() -> None:
    a, b = turns((0, 1.0), (100, 1.0)), turns((50, 1.0), (150, 1.0), streams=2)
    assert times_ms(double_turns(a, b, "throughput")) == pytest.approx((1.0, 0.5))


@given(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=8))
def test_the_arms_exchanged_give_the_reciprocal(calls_ms: list[float]) -> None:
    a = turns(*((200 * number, one) for number, one in enumerate(calls_ms)))
    b = turns(*((200 * number + 100, 1 - one) for number, one in enumerate(calls_ms)))
    assert times_ms(double_turns(a, b, "median")) == pytest.approx(times_ms(double_turns(b, a, "median"))[::-1])


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
    found = Lab().compare(scripted(linear, 20_000), scripted(linear, 80_000), time_s=6.0)
    for a, b, pair in zip(*found.times_ms, found.pairs, strict=True):
        assert pair.log_ratio == pytest.approx(math.log(b / a))
    ratios = [math.exp(pair.log_ratio) for pair in found.pairs]
    # A busy machine lengthens both sleeps, so the truth of 4 is only bounded: never A slower than B.
    assert 1 < min(ratios) <= found.ratio.value * (1 + 1e-9) and found.ratio.value <= max(ratios) * (1 + 1e-9)


def test_while_one_arm_is_measured_the_other_is_stopped(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Children] = []
    idle: list[bool] = []
    make, measure, end = Children.__init__, Children.measure, Children.__exit__

    def noted(self: Children, *given: Any) -> None:
        make(self, *given)
        alive.append(self)

    def watched(self: Children, seconds: float, **given: Any) -> Window:
        pids = [worker.pid for one in alive if one is not self for worker in one._workers]
        idle.extend(is_stopped(each) for pid in pids for each in (pid, *descendants_of(pid)))
        return measure(self, seconds, **given)

    def forgotten(self: Children, *given: Any) -> None:
        alive.remove(self)
        end(self, *given)

    monkeypatch.setattr(Children, "__init__", noted)
    monkeypatch.setattr(Children, "measure", watched)
    monkeypatch.setattr(Children, "__exit__", forgotten)
    Lab().compare(scripted(linear, 2000, spin="1"), scripted(linear, 2000, spin="1"), time_s=2.0)
    assert idle and all(idle)


def test_pairs_count_by_their_turns_as_far_as_turns_make_them_differ() -> None:
    assert weights([8, 8, 64], 0.01, 0.0) == pytest.approx([0.3, 0.3, 2.4])
    assert weights([8, 8, 64], 0.0, 0.01) == pytest.approx([1.0, 1.0, 1.0])
    assert weights([8, 64], 0.0, 0.0) == [1.0, 1.0]


def test_two_pairs_that_agree_differ_by_what_their_turns_do() -> None:
    # The pairs of a comparison that ended "faster" though B was slower: 8 double turns that differ by 17 %.
    least_sd = turns_sd([8, 8], 0.17**2)
    assert least_sd == pytest.approx(0.17 * math.sqrt(math.pi / 2 / 8))
    log_ratios = [-0.13, -0.13]
    assert intervals.Looks(0.01, BUILT_IN_PRIOR).look(log_ratios)
    assert not intervals.Looks(0.01, BUILT_IN_PRIOR).look(log_ratios, None, least_sd)
    estimate = intervals.Looks(0.01, BUILT_IN_PRIOR).estimate(log_ratios, None, least_sd)
    assert intervals.verdict(estimate, 0.01) == "inconclusive"


def served(*responses_ms: float, arrivals: int | None = None) -> Window:
    """Requests that were due at once and took so long."""
    ends = array("q", [round(one * MS) for one in responses_ms])
    nothing = array("q", bytes(8 * len(ends)))
    return Window((Samples(nothing, ends, nothing),), {}, 50_000, arrivals=arrivals)


def test_a_request_that_was_given_up_counts_as_the_longest_that_was_not() -> None:
    assert list(responses_ns(served(1, 3, 2, arrivals=5))) == [one * MS for one in (1, 3, 2, 3, 3)]
    assert list(responses_ns(served(1, 3, arrivals=2))) == [MS, 3 * MS]


def spread_out(factor: float, count: int, seed: int = 0) -> Run:
    """Requests whose responses spread as those of a queue do, in two windows."""
    responses = factor * np.random.default_rng(seed).exponential(10.0, count)
    return a_run(served(*responses[: count // 2]), served(*responses[count // 2 :]))


def test_the_tail_is_of_pairs_that_are_pooled_until_each_arm_has_enough_requests() -> None:
    few = [Pair(spread_out(1, 330, seed), spread_out(2, 330, seed), 0.0) for seed in range(5)]
    assert tail_ratio(few[:2], BUILT_IN_PRIOR) is None
    # One group, which has no interval; what is left belongs to it.
    for pairs in (few[:3], few):
        alone = tail_ratio(pairs, BUILT_IN_PRIOR)
        assert alone is not None and alone.ends is None
        assert alone.value == pytest.approx(2.0, rel=1e-6)
    short = Pair(spread_out(1, 700), spread_out(2, 600), 0.0)
    assert tail_ratio([short], BUILT_IN_PRIOR) is None


def test_groups_are_expected_to_differ_by_what_chance_makes_of_a_tail() -> None:
    # Groups that agree by chance: their spread alone would give an interval of no width.
    pair = Pair(spread_out(1, 662), spread_out(2, 662), 0.0)
    found = tail_ratio([pair] * 3, BUILT_IN_PRIOR)
    assert found is not None and (found.method, found.level) == ("moderated", 0.98)
    assert found.value == pytest.approx(2.0, rel=1e-6)
    low, high = found.ends or (2.0, 2.0)
    # The quantiles of an exponential at 98.6 and 99.4 %: each tail has a standard error of about 9 %.
    assert 0.8 < low < 1.9 < 2.1 < high < 5.0


def test_a_comparison_of_responses_says_how_many_requests_its_tail_needs() -> None:
    a = replace(spread_out(1, 40), windows=(served(*[1.0] * 40, arrivals=40),))
    pair = Pair(a, replace(a, windows=(served(*[1.0] * 40, arrivals=41),)), 0.0)
    shown = results.lines(replace(COMPARISON, metric="response", pairs=(pair, pair)))
    assert (
        "99th percentile: none yet: it needs 662 requests, and 80 arrived for each arm; give more time with -t"
        in shown
    )
    assert not any(line.startswith("99th percentile") for line in results.lines(COMPARISON))


def test_arms_that_serve_get_the_same_requests_in_each_double_turn(linear: Path) -> None:
    a, b = (
        replace(scripted(linear, latency), scenarios=("server",), rates=(100.0,), num_streams=(1,))
        for latency in (1000, 5000)
    )
    found = Lab().compare(a, b, time_s=8.0)
    assert found.metric == "response" and found.ratio.value > 1
    for pair in found.pairs:
        turns = [[_arrivals(one) for one in run.windows] for run in (pair.a, pair.b)]
        assert turns[0] == turns[1] and len({tuple(one) for one in turns[0]}) == len(turns[0]) > 1
        assert [one[0] for one in turns[0]] == [one.arrivals for one in pair.a.windows]


def _arrivals(window: Window) -> list[int]:
    """When requests were due, as gaps: the beginning is each turn's own."""
    due = sorted(one for stream in window.streams for one in stream.scheduled_ns or ())
    return [len(due), *(later - earlier for earlier, later in itertools.pairwise(due))]


def test_fresh_processes_are_forked_from_none(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[object] = []
    make = Children.__init__

    def noted(self: Children, *given: Any) -> None:
        pools.append(worker.pool)
        make(self, *given)

    monkeypatch.setattr(Children, "__init__", noted)
    plan = scripted(linear, 1000)
    Lab().compare(plan, plan, time_s=0.5, fresh=True)
    assert len(pools) >= 2 and set(pools) == {None}
    pools.clear()
    Lab().compare(plan, plan, time_s=0.5)
    assert None not in pools


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
    turns = [double_turns(*pair, again.metric) for pair in pairs]
    times = [times_ms(turn) for turn in turns]
    log_ratios = [math.log(of_b / of_a) for of_a, of_b in times]
    assert log_ratios == [pair.log_ratio for pair in measured.pairs] == [pair.log_ratio for pair in again.pairs]
    assert again.spread is not None and again.spread == measured.spread
    precision = weights([len(turn) for turn in turns], again.spread.within**2, again.spread.between**2)
    prior = intervals.at_least(again.spread.prior, turns_sd([len(turn) for turn in turns], again.spread.within**2))
    ratio = intervals.moderated(log_ratios, again.ratio.level, prior, precision)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((again.ratio.value, *(again.ratio.ends or ())))
    assert measured.ratio == again.ratio


class ScriptedArms:
    """B takes so much longer than A in every double turn, whatever both are."""

    kinds = ("onnx", "gguf")

    def __init__(self, log_ratio: float) -> None:
        self.log_ratio = log_ratio
        self.made: list[tuple[int, ...]] = []
        self.turns: list[list[tuple[int, int, bool]]] = []

    def begin(self, order: Sequence[int], pair: int, stack: ExitStack) -> float:
        assert pair == len(self.made)
        self.made.append(tuple(order))
        self.turns.append([])
        return 0.001

    def take_turn(self, arm: int, turn: int, last: bool) -> None:
        self.turns[-1].append((arm, turn, last))

    def end(self) -> NDArray[np.float64]:
        doubles = len(self.turns[-1]) // 2
        assert doubles == 8 or len(self.turns) > 3, "the first pairs are learnt from"
        return np.array([[math.log(2e6), math.log(2e6) + self.log_ratio]] * doubles)


@pytest.mark.parametrize(
    ("engine", "fresh", "forks"), [("a", False, True), ("a", True, False), ("a==1.0", False, False)]
)
def test_releases_are_never_forked_whoever_compares_them(engine: str, fresh: bool, forks: bool) -> None:
    arms: list[Any] = [SimpleNamespace(cell=SimpleNamespace(engine=name)) for name in ("a", engine)]
    assert PairedJob(arms[0], arms[1], ("a", "b"), 30.0, 0.01, fresh=fresh).forks is forks


def test_arms_of_any_kind_are_compared_in_the_same_order_and_by_the_same_looks() -> None:
    arms = ScriptedArms(math.log(1.5))
    one_core: Any = SimpleNamespace(cell=SimpleNamespace(num_cores=1, engine="fake"))
    job = PairedJob(one_core, one_core, ("a", "b"), 30.0, 0.01)
    comparison = PairedComparison(job, arms, time.monotonic(), ignore)
    fields = comparison.run()
    assert (fields["verdict"], fields["interrupted"], fields["labels"]) == ("slower", False, ("a", "b"))
    assert fields["times_ms"] == (pytest.approx((2.0, 2.0)), pytest.approx((3.0, 3.0)))
    assert fields["spread"] == Spread(0.0, 0.0, 8.0, BUILT_IN_PRIOR)
    # The second pair is made the other way round, and the last turn of each arm is known as such.
    assert arms.made[0] == arms.made[1][::-1]
    for pair in arms.turns:
        order = "".join("ab"[arm] for arm, _, _ in pair)
        assert all(order[i : i + 4] in ("abba", "baab") for i in range(0, len(order), 4))
        assert [turn for _, turn, _ in pair] == [place // 2 for place in range(len(pair))]
        assert [last for _, _, last in pair] == [False] * (len(pair) - 2) + [True] * 2


class RecordedArms:
    """Arms whose pairs were measured elsewhere, one after the other."""

    kinds = ("onnx", "onnx")

    def __init__(self, pairs: Sequence[NDArray[np.float64]]) -> None:
        self._pairs = iter(pairs)

    def begin(self, order: Sequence[int], pair: int, stack: ExitStack) -> float:
        return 0.001

    def take_turn(self, arm: int, turn: int, last: bool) -> None:
        pass

    def end(self) -> NDArray[np.float64]:
        return next(self._pairs)


def test_a_comparison_that_was_cut_off_anywhere_says_what_one_says_that_was_not() -> None:
    rng = np.random.default_rng(4)
    logs = math.log(1.05) + 0.02 * rng.standard_normal(40)
    pairs = [np.array([[10.0, 10.0 + log + 0.001 * turn] for turn in range(8)]) for log in logs]
    one_core: Any = SimpleNamespace(cell=SimpleNamespace(num_cores=1, engine="fake"))
    job = PairedJob(one_core, one_core, ("a", "b"), 30.0, 0.01)

    def compared(cut: int) -> dict[str, Any]:
        """After so many pairs of an earlier session."""
        comparison = PairedComparison(job, RecordedArms(pairs[cut:]), time.monotonic(), ignore)
        comparison.take(pairs[:cut], 1.0)
        return {name: value for name, value in comparison.run().items() if name != "seconds"}

    whole = compared(0)
    count = len(whole["times_ms"][0])
    assert (count, whole["verdict"]) == (8, "slower")
    assert all(compared(cut) == whole for cut in range(1, count + 1))
