"""The rules of the search for the best configuration: the grid, who is dropped, who is spared, who wins a tie."""

from __future__ import annotations

import itertools
import math
from array import array
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.machine import host_name
from inferlab.measure import exploration, paired, recommend
from inferlab.measure.exploration import Evidence
from inferlab.measure.recommend import Finals
from inferlab.records import (
    Candidate,
    Comparison,
    Estimate,
    Listener,
    Plan,
    Run,
    Samples,
    SpreadPrior,
    Window,
    ignore,
)
from inferlab.views.recommendation import comparison_line
from tests.helpers.sweeps import a_comparison

RATES = st.floats(1.0, 1e6)
COUNTS = st.sampled_from([1, 2, 4, 8])
CANDIDATES = st.builds(Candidate, st.sampled_from("ab"), COUNTS, COUNTS, COUNTS)
EVIDENCE = st.builds(
    Evidence, st.lists(RATES, min_size=1, max_size=5).map(tuple), st.sampled_from([0.0, 0.9, 1.2, 3.0])
)
KNOWN = st.dictionaries(CANDIDATES, EVIDENCE, min_size=1, max_size=12)


def one(engine: str = "a", cores: int = 2, streams: int = 2, batch: int = 1) -> Candidate:
    return Candidate(engine, cores, streams, batch)


def spared_by(candidate: Candidate, known: dict[Candidate, Evidence]) -> Candidate | None:
    return exploration.spared([candidate], known).get(candidate)


def test_cores_are_doubled_up_to_all() -> None:
    assert recommend.core_counts(1) == (1,)
    assert recommend.core_counts(2) == (1, 2)
    assert recommend.core_counts(6) == (1, 2, 4, 6)
    assert recommend.core_counts(8) == (1, 2, 4, 8)


def test_the_grid_has_every_engine_core_count_divisor_and_batch_size() -> None:
    found = recommend.grid(["a", "b"], (1, 4), (), (1, 8))
    assert [(each.num_cores, each.num_streams, each.batch_size) for each in found if each.engine == "b"] == [
        *((1, 1, 1), (1, 1, 8)),
        *((4, 1, 1), (4, 1, 8), (4, 2, 1), (4, 2, 8), (4, 4, 1), (4, 4, 8)),
    ]
    assert len(found) == 16
    assert {each.scenario for each in found if each.num_streams == 1} == {"sync"}
    assert {each.scenario for each in found if each.num_streams > 1} == {"async"}


def test_streams_that_were_given_need_not_divide_the_cores_but_need_a_core_each() -> None:
    assert [each.num_streams for each in recommend.grid(["a"], (2, 4), (3,), (1,))] == [3]


def test_after_one_process_a_quarter_less_is_clearly_worse_and_a_fifth_less_is_not() -> None:
    known = {one(batch=1): Evidence((100.0,)), one(batch=2): Evidence((80.0,)), one(batch=4): Evidence((74.0,))}
    assert exploration.still_in(known) == [one(batch=1), one(batch=2)]


def test_more_processes_that_agree_make_smaller_differences_clear() -> None:
    steady = {one(batch=1): Evidence((100.0,) * 4), one(batch=2): Evidence((90.0,) * 4)}
    assert exploration.still_in(steady) == [one(batch=1)]
    restless = {one(batch=1): Evidence((85.0, 115.0)), one(batch=2): Evidence((75.0, 105.0))}
    assert exploration.still_in(restless) == [one(batch=1), one(batch=2)]


def test_the_spread_is_that_of_all_candidates_held_by_what_is_expected() -> None:
    assert exploration.spread({one(): Evidence((7.0,))}) == pytest.approx(0.068)
    known = {one(batch=1): Evidence((1.0, math.e)), one(batch=2): Evidence((2.0, 2 * math.e))}
    # Each has the variance 0.5 of 0 and 1 with one degree of freedom; four more expect 0.068².
    assert exploration.spread(known) == pytest.approx(math.sqrt((4 * 0.068**2 + 2 * 0.5) / 6))


def test_one_process_counts_less_than_several_that_say_the_same() -> None:
    known = {one(batch=1): Evidence((101.0,)), one(batch=2): Evidence((100.0, 100.0, 100.0))}
    assert exploration.ranked(known) == [one(batch=2), one(batch=1)]


def test_who_misses_the_objective_is_never_the_best_however_fast() -> None:
    known = {one(batch=8): Evidence((900.0,), strain=1.01), one(batch=1): Evidence((100.0,), strain=0.8)}
    assert exploration.best_of(known) == one(batch=1)
    # It may yet keep it, so it stays; who misses by half is out.
    assert exploration.still_in(known) == [one(batch=8), one(batch=1)]
    known[one(batch=8)] = Evidence((900.0,), strain=1.51)
    assert exploration.still_in(known) == [one(batch=1)]
    assert exploration.best_of({one(): Evidence((1.0,), strain=1.3)}) is None


def test_simpler_ones_that_may_be_as_fast_are_looked_at_before_others() -> None:
    known = {
        one(batch=8): Evidence((100.0,) * 3),
        one(batch=16): Evidence((99.9,) * 3),
        one(batch=4): Evidence((98.0,) * 3),
        one(batch=1): Evidence((97.5,) * 3),
        one(streams=1, batch=2): Evidence((92.0,) * 3),
    }
    assert exploration.still_in(known) == list(known)
    # A twelfth less is more than the margin and one standard error: it is simpler, but not as fast.
    expected = [one(batch=8), one(batch=1), one(batch=4), one(batch=16), one(streams=1, batch=2)]
    assert exploration.contending(known) == expected


def test_a_larger_batch_than_one_that_misses_the_objective_is_spared() -> None:
    known = {one(batch=2): Evidence((100.0,), strain=2.0)}
    assert spared_by(one(batch=4), known) == one(batch=2)
    assert spared_by(one(batch=1), known) is None
    assert spared_by(one(streams=1, batch=4), known) is None


def test_a_batch_that_could_at_best_multiply_a_hopeless_figure_is_spared() -> None:
    known = {one("a"): Evidence((1000.0,)), one("b"): Evidence((100.0,))}
    assert spared_by(one("b", batch=4), known) == one("b")
    assert spared_by(one("b", batch=8), known) is None


def test_fewer_cores_are_spared_where_all_cores_are_hopeless_or_another_batch_size_showed_the_share() -> None:
    known = {one("a"): Evidence((1000.0,)), one("b"): Evidence((700.0,))}
    assert spared_by(one("b", 1, 1), known) == one("b")
    assert spared_by(one("a", 1, 1), known) is None
    known[one("a", 1, 1)] = Evidence((520.0,))
    known[one("a", batch=2)] = Evidence((1040.0,))
    assert spared_by(one("a", 1, 1, batch=2), known) == one("a", batch=2)
    # One core that does as much as two might do so at another batch size too.
    known[one("a", 1, 1)] = Evidence((990.0,))
    assert spared_by(one("a", 1, 1, batch=2), known) is None


def test_an_engine_begins_with_all_streams_and_after_a_failure_with_one() -> None:
    waiting = recommend.grid(["a", "b"], (1, 2), (), (1, 4))
    assert exploration.next_up(waiting, {}, {}) == one("a", 2, 2, 1)
    known = {one("a", 2, 2, 1): Evidence((5.0,))}
    assert exploration.next_up(waiting, known, {}) == one("b", 2, 2, 1)
    assert exploration.next_up(waiting, known, {"b": 1}) == one("b", 2, 1, 1)


def test_what_one_engine_gained_from_a_batch_is_expected_of_the_other() -> None:
    known = {
        one("a", batch=1): Evidence((100.0,)),
        one("a", batch=4): Evidence((380.0,)),
        one("b", batch=1): Evidence((110.0,)),
    }
    waiting = [one("b", 1, 1), one("a", batch=2), one("b", batch=4)]
    assert exploration.next_up(waiting, known, {}) == one("b", batch=4)


@pytest.mark.parametrize(
    ("ratio", "verdict", "tie"),
    [
        (1.02, "same", True),
        (1.02, "inconclusive", True),
        (0.98, "inconclusive", True),
        (1.05, "inconclusive", False),
        (0.95, "inconclusive", False),
        (1.02, "slower", False),
        (0.98, "faster", False),
    ],
)
def test_a_tie_is_what_is_the_same_or_nearly_so_as_far_as_is_known(ratio: float, verdict: str, tie: bool) -> None:
    assert recommend.prefers_simpler(ratio, verdict) is tie


@pytest.mark.parametrize(
    ("ratio", "verdict", "winner"),
    [
        (0.9, "faster", "b"),
        (0.9, "inconclusive", "a"),
        (0.6, "inconclusive", "a"),
        (1.2, "inconclusive", "a"),
        (1.2, "slower", "a"),
    ],
)
def test_only_a_pair_that_is_settled_unseats_the_leader(
    monkeypatch: pytest.MonkeyPatch, ratio: float, verdict: Any, winner: str
) -> None:
    leader, other = one("a"), one("b")
    found = a_comparison(ratio, ratio=Estimate(ratio, ratio / 1.3, ratio * 1.3, 0.98, "student"), verdict=verdict)
    monkeypatch.setattr(Finals, "_compare", lambda self, *arms: found)
    records = {leader: exploration.Record(), other: exploration.Record()}
    explorer = Mock(spec=exploration.Explorer, records=records, finalists=lambda: [leader, other])
    finals = Finals(explorer, ignore)
    finals.run()
    assert finals.winner == one(winner)
    assert finals.comparisons == [found]


def test_the_finals_expect_what_comparisons_on_this_machine_showed(monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = SpreadPrior(0.005, comparisons=5), SpreadPrior(0.5, comparisons=5)
    seen: list[SpreadPrior] = []

    def compare(job: paired.ComparisonJob, listener: Listener) -> Comparison:
        seen.append(job.prior)
        return a_comparison(1.0)

    monkeypatch.setattr(paired, "compare", compare)
    spreads = {host_name(): {2: here}, "elsewhere": {2: elsewhere}}
    search = exploration.Search(Plan(""), Mock(), None, 60.0, spreads)
    leader, other = one("a"), one("b")
    records = dict.fromkeys((leader, other), exploration.Record(cost_s=0.1))
    known = dict.fromkeys((leader, other), Evidence((1.0,)))
    explorer = Mock(
        spec=exploration.Explorer, records=records, measurements=known, search=search, spent=0.0,
        finalists=lambda: [leader, other], job=lambda _: Mock(cell=Mock(num_cores=2)), quietly=ignore,
    )  # fmt: skip
    Finals(explorer, ignore).run()
    assert seen == [here]


def test_a_final_that_is_open_says_how_long_would_settle_it() -> None:
    found = a_comparison(1.02, labels=("a", "b"), verdict="inconclusive", settle_s=90.0)
    assert comparison_line(recommend.paired_ratio(found)).endswith(
        "of the time per item of a: inconclusive. About 90 s would settle it."
    )


def test_the_simplest_has_fewer_cores_then_a_smaller_batch_then_fewer_streams() -> None:
    few, small, narrow = one("a", 1, 1, 16), one("a", 2, 2, 1), one("a", 2, 1, 2)
    assert recommend.simplest([small, few, narrow]) == few
    assert recommend.simplest([narrow, small]) == small
    assert recommend.simplest([one("b"), one("a")]) == one("b")


@pytest.mark.parametrize(
    ("counters", "rate"),
    [
        ({}, 1000.0),
        # Half of the time of two cores was taken by others.
        ({"run_queue_wait_s": 0.8, "steal_s": 0.2, "cpu_s": 1.0}, 2000.0),
        # The engine's own threads stood in each other's way: both cores were busy with it.
        ({"run_queue_wait_s": 1.0, "cpu_s": 2.0}, 1000.0),
        # Hardly anything was measured, so not more than five times is made of it.
        ({"run_queue_wait_s": 1.9, "cpu_s": 0.1}, 5000.0),
    ],
)
def test_what_others_took_is_made_up_for_in_the_search(counters: dict[str, float], rate: float) -> None:
    calls = 500
    starts = array("q", (2_000_000 * number for number in range(calls)))
    stream = Samples(starts, array("q", (start + 2_000_000 for start in starts)))
    run = Mock(spec=Run, windows=(Window((stream, stream), counters, 0),))
    assert exploration.undisturbed_rate(run, one(batch=1)) == pytest.approx(rate)


@given(KNOWN)
def test_the_best_that_keeps_the_objective_is_never_dropped(known: dict[Candidate, Evidence]) -> None:
    best, left = exploration.best_of(known), exploration.still_in(known)
    assert (best is None) == (not any(evidence.keeps for evidence in known.values()))
    assert best is None or best in left
    assert set(left) <= set(known)
    assert not any(known[each].clearly_misses for each in left)


@given(KNOWN, RATES)
def test_only_ratios_matter(known: dict[Candidate, Evidence], factor: float) -> None:
    scaled = {
        each: Evidence(tuple(rate * factor for rate in evidence.rates), evidence.strain)
        for each, evidence in known.items()
    }
    assert set(exploration.still_in(scaled)) == set(exploration.still_in(known)) or _borderline(known)


def _borderline(known: dict[Candidate, Evidence]) -> bool:
    """Whether rounding may decide: somebody is within a millionth of the best or of being dropped."""
    rates = sorted(math.log(evidence.rate) for evidence in known.values())
    return any(b - a < 1e-6 for a, b in itertools.pairwise(rates))


@given(KNOWN, CANDIDATES)
def test_who_spares_another_was_measured_and_is_of_the_same_engine(
    known: dict[Candidate, Evidence], candidate: Candidate
) -> None:
    by = spared_by(candidate, known)
    assert by is None or (by in known and by.engine == candidate.engine and by != candidate)


@given(KNOWN, st.lists(CANDIDATES, min_size=1, unique=True))
def test_the_next_is_one_that_waits(known: dict[Candidate, Evidence], waiting: list[Candidate]) -> None:
    assert exploration.next_up(waiting, known, {}) in waiting
