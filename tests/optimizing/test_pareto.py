"""Who of the candidates is efficient, who reaches the goal, who is nearest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferlab.optimizing import pareto
from inferlab.records.optimization import Candidate, Front, Goal, Recipe

ORIGINAL = 1000


def candidate(
    speedup: float | None, loss: float | None, size: int | None, half_width: float | None = 0.05
) -> Candidate:
    interval = None if speedup is None or half_width is None else (speedup - half_width, speedup + half_width)
    return Candidate("one", Recipe(), speedup, interval, loss, size)


some = st.lists(
    st.builds(
        candidate,
        st.none() | st.sampled_from([0.5, 0.8, 1.0, 1.02, 1.5, 2.0, 3.0]),
        st.none() | st.sampled_from([0.0, 0.001, 0.01, 0.1]),
        st.none() | st.sampled_from([250, 500, 1000]),
        st.none() | st.sampled_from([0.01, 0.2]),
    ),
    max_size=8,
)


def test_who_is_beaten_in_everything_is_not_efficient() -> None:
    judged = pareto.mark_candidates(
        [
            candidate(2.0, 0.01, 500),
            candidate(1.5, 0.02, 600),  # beaten by the first
            candidate(1.5, 0.001, 600),  # loses less
            candidate(3.0, 0.5, 500),  # is faster
            candidate(1.1, 0.02, 250),  # is smaller
            candidate(0.7, 0.001, 1000),  # beaten by the original
        ],
        Goal(2.0),
        ORIGINAL,
    )
    assert [one.efficient for one in judged] == [True, False, True, True, True, False]


def test_a_speed_that_the_interval_does_not_tell_from_the_original_is_none() -> None:
    (one,) = pareto.mark_candidates([candidate(1.02, 0.001, 1000, half_width=0.05)], Goal(2.0), ORIGINAL)
    assert not one.efficient


def test_what_was_not_measured_is_neither_efficient_nor_reaches_the_goal() -> None:
    tried = [candidate(None, 0.0, 10), candidate(9.0, None, 10), candidate(9.0, 0.0, None)]
    judged = pareto.mark_candidates(tried, Goal(2.0), ORIGINAL)
    assert [one.efficient for one in judged] == [False, False, False]
    assert [one.reaches for one in judged] == [False, False, True]


def test_a_goal_is_reached_with_the_whole_interval_only() -> None:
    goal = Goal(speedup=2.0, size_ratio=2.0, max_loss=0.01)
    assert pareto.reaches(candidate(2.125, 0.01, 500, 0.125), goal, ORIGINAL)
    assert not pareto.reaches(candidate(2.1, 0.01, 500, 0.125), goal, ORIGINAL)
    assert not pareto.reaches(candidate(9.0, 0.01, 500, half_width=None), goal, ORIGINAL)
    assert not pareto.reaches(candidate(9.0, 0.011, 500), goal, ORIGINAL)
    assert not pareto.reaches(candidate(9.0, 0.0, 501), goal, ORIGINAL)
    assert pareto.reaches(candidate(0.5, 0.0, 500), Goal(size_ratio=2.0), ORIGINAL)


def test_what_did_not_run_on_the_engine_does_not_reach_a_size_either() -> None:
    assert not pareto.reaches(candidate(None, 0.0, 500), Goal(size_ratio=2.0), ORIGINAL)


def test_who_may_reach_the_goal_is_known_by_the_other_end() -> None:
    goal = Goal(speedup=2.0)
    assert pareto.may_reach(candidate(1.9, 0.01, 500, 0.125), goal, ORIGINAL)
    assert pareto.may_reach(candidate(None, 0.01, 500), goal, ORIGINAL)
    assert pareto.may_reach(candidate(1.5, 0.01, 500, None), goal, ORIGINAL)
    assert not pareto.may_reach(candidate(1.3, 0.01, 500, None), goal, ORIGINAL)
    assert not pareto.may_reach(candidate(1.8, 0.01, 500, 0.125), goal, ORIGINAL)
    assert not pareto.may_reach(candidate(1.9, 0.02, 500, 0.125), goal, ORIGINAL)
    assert not pareto.may_reach(candidate(1.9, 0.0, 600, 0.125), Goal(2.0, 2.0), ORIGINAL)


def test_the_nearest_is_the_one_whose_weakest_side_is_best_within_the_loss() -> None:
    tried = [
        candidate(1.9, 0.02, 300),  # loses too much
        candidate(1.2, 0.001, 400),  # 60 % of the speed
        candidate(1.6, 0.001, 800),  # 62 % of the size
        candidate(None, 0.0, 100),  # was not timed
    ]
    assert pareto.nearest(tried, Goal(2.0, 2.0), ORIGINAL) == 2
    assert pareto.nearest(tried, Goal(2.0), ORIGINAL) == 2
    assert pareto.nearest(tried, Goal(size_ratio=20.0), ORIGINAL) == 1
    assert pareto.nearest(tried[:3], Goal(2.0, max_loss=0.0), ORIGINAL) is None


def test_what_is_no_faster_than_the_original_is_not_nearer_to_a_speed() -> None:
    tried = [candidate(0.9, 0.0, 500), candidate(1.02, 0.0, 500)]
    assert pareto.nearest(tried, Goal(2.0), ORIGINAL) is None
    assert pareto.nearest(tried, Goal(2.0, 4.0), ORIGINAL) == 1


def test_what_the_search_measured_alone_reaches_nothing_and_a_goal_is_missed_where_nothing_is_open() -> None:
    def found(one: Candidate, complete: bool, chosen: int | None = None) -> Front:
        return Front(Goal(2.0), "fake", (one,), chosen, None, ORIGINAL, 1.0, complete=complete)

    assert pareto.outcome(found(candidate(3.0, 0.0, 500), False, chosen=0)) == "open"
    assert pareto.outcome(found(candidate(1.5, 0.0, 500), True)) == "missed"
    assert pareto.outcome(found(candidate(1.5, 0.0, 500), False)) == "open"
    assert pareto.outcome(found(candidate(1.96, 0.0, 500), True)) == "open"


@given(some)
def test_whoever_is_not_efficient_is_beaten_by_one_that_is_or_by_the_original(tried: list[Candidate]) -> None:
    judged = pareto.mark_candidates(tried, Goal(2.0), ORIGINAL)
    whole = [(one, own) for one in judged if (own := pareto._merits(one)) is not None]
    assert all(pareto._merits(one) for one in judged if one.efficient)
    # Being beaten is transitive and goes in no circle, so that the efficient ones beat all others.
    best = [(1.0, 0.0, -float(ORIGINAL)), *(own for one, own in whole if one.efficient)]
    for one, own in whole:
        assert one.efficient != any(pareto._beats(other, own) for other in best)


@given(some)
def test_the_order_of_trying_changes_nothing(tried: list[Candidate]) -> None:
    goal = Goal(1.5, 2.0, 0.01)
    assert (
        pareto.mark_candidates(tried, goal, ORIGINAL) == pareto.mark_candidates(tried[::-1], goal, ORIGINAL)[::-1]
    )


@given(some)
def test_the_chosen_one_reaches_the_goal_and_none_that_does_is_faster(tried: list[Candidate]) -> None:
    judged = pareto.mark_candidates(tried, Goal(1.5, None, 0.01), ORIGINAL)
    place = pareto.chosen(judged)
    reaching = [one.speedup or 0.0 for one in judged if one.reaches]
    assert (place is None) == (not reaching)
    assert place is None or (judged[place].reaches and judged[place].speedup == max(reaching))
