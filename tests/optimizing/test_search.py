"""What a search tries, times and stops at, with a bench whose answers are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from inferlab.errors import EngineFailed
from inferlab.optimizing.search import BuiltCopy, SearchSpace, SearchState, Speed, search
from inferlab.records import ignore
from inferlab.records.optimization import Candidate, Goal, Recipe

ORIGINAL = 1000
Answer = tuple[float, float, int]


def name(recipe: Recipe) -> str:
    """A recipe in a word."""
    parts = []
    if recipe.pruning is not None:
        pruning = recipe.pruning
        level = pruning.sparsity or pruning.budget or max(pruning.layers.values(), default=0.0)
        parts.append(f"{pruning.pattern[:2]}{level:g}")
    if recipe.quantization is not None:
        parts.append(
            f"{recipe.quantization.scheme}{recipe.quantization.bits}k{recipe.quantization.keep_sensitive}"
        )
    return "+".join(parts)


@dataclass
class Table:
    """A bench that reads loss, speed and size of each recipe off a table; each making takes 1 s of its clock."""

    answers: dict[str, Answer]
    half_width: Callable[[float], float] = lambda seconds: 0.01
    now: float = 0.0
    made: list[str] = field(default_factory=list)
    timed: list[tuple[str, float]] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    def make(self, recipe: Recipe) -> BuiltCopy:
        self.now += 1.0
        self.made.append(name(recipe))
        if name(recipe) not in self.answers:
            raise EngineFailed(f"no {name(recipe)}")
        loss, _, size = self.answers[name(recipe)]
        self.kept.add(name(recipe))
        return BuiltCopy(recipe, name(recipe), size, loss)

    def time(self, copy: BuiltCopy, seconds: float, goal: float | None) -> Speed:
        self.now += seconds
        self.timed.append((copy.path, seconds))
        speed = self.answers[copy.path][1]
        if speed < 0:
            raise KeyboardInterrupt
        half = self.half_width(seconds)
        return Speed(speed, (speed - half, speed + half), 0.98)

    def discard(self, copy: BuiltCopy) -> None:
        self.kept.remove(copy.path)


def run(table: Table, goal: Goal, time_s: float = 160.0, zeros: bool = False) -> SearchState:
    space = SearchSpace("fake", goal, Recipe(), gains_from_zeros=zeros)
    *_, last = search(space, ORIGINAL, table, time_s, ignore, lambda: table.now)
    return last


ALL: dict[str, Answer] = {
    "fp168k0": (0.0, 0.9, 500),
    "weights8k0": (0.001, 1.0, 260),
    "dynamic8k0": (0.005, 1.4, 255),
    "static8k0": (0.002, 2.5, 250),
}


def reasons(found: SearchState) -> dict[str, str]:
    return {candidate.label: candidate.reason for candidate in found.candidates}


def test_it_stops_at_the_first_that_reaches_the_goal() -> None:
    table = Table(ALL)
    found = run(table, Goal(2.0))
    assert table.made == ["fp168k0", "weights8k0", "dynamic8k0", "static8k0"]
    assert [candidate.reaches for candidate in found.candidates] == [False, False, False, True]
    assert [candidate.efficient for candidate in found.candidates] == [True, True, False, True]
    assert not table.kept - {"static8k0"}


def test_what_loses_too_much_is_not_timed_while_another_may_reach_the_goal() -> None:
    table = Table({**ALL, "dynamic8k0": (0.5, 9.0, 255)})
    found = run(table, Goal(2.0))
    assert [path for path, _ in table.timed] == ["fp168k0", "weights8k0", "static8k0"]
    assert reasons(found)["INT8 dynamic"] == "it loses more than allowed"


def test_where_nothing_reaches_the_goal_the_lossy_ones_are_timed_in_the_end_least_lossy_first() -> None:
    table = Table({**ALL, "dynamic8k0": (0.5, 1.4, 255), "static8k0": (0.2, 4.0, 250)})
    found = run(table, Goal(3.0))
    assert [path for path, _ in table.timed] == ["fp168k0", "weights8k0", "static8k0", "dynamic8k0"]
    assert found.complete
    assert [candidate.label for candidate in found.candidates if candidate.efficient] == [
        "FP16",
        "INT8 weights",
        "INT8 static",
    ]


def test_sensitive_layers_are_kept_one_by_one_until_the_loss_is() -> None:
    losses = {"static8k0": 0.5, "static8k1": 0.1, "static8k2": 0.009}
    table = Table({**ALL, **{key: (loss, 2.5, 250) for key, loss in losses.items()}})
    found = run(table, Goal(2.0))
    assert table.made[3:] == ["static8k0", "static8k1", "static8k2"]
    assert found.candidates[-1].reaches


def test_a_short_look_that_leaves_the_goal_open_is_followed_by_a_long_one() -> None:
    table = Table({"static8k0": (0.0, 2.1, 250)}, half_width=lambda seconds: 2.0 / seconds)
    found = run(table, Goal(2.0), time_s=160.0)
    assert table.timed == [("static8k0", 10.0), ("static8k0", 40.0)]
    assert found.candidates[3].speedup_interval == pytest.approx((2.05, 2.15))
    assert found.candidates[3].reaches


def test_what_seems_to_reach_the_goal_is_measured_longest_and_what_seems_to_miss_it_is_not() -> None:
    answers = {"fp168k0": (0.0, 1.99, 500), "weights8k0": (0.0, 2.05, 260)}
    table = Table(answers, half_width=lambda seconds: 3.0 / seconds)
    found = run(table, Goal(2.0), time_s=160.0)
    assert table.timed == [
        *(("fp168k0", 10.0), ("fp168k0", 40.0), ("weights8k0", 10.0), ("weights8k0", 40.0)),
        ("weights8k0", 160.0 - 102.0),
    ]
    assert [candidate.reaches for candidate in found.candidates] == [False, False]
    assert not found.complete


def test_an_engine_that_gains_nothing_from_zeros_is_given_none() -> None:
    found = run(Table(ALL), Goal(9.0))
    assert reasons(found)["pruned"] == "fake computes no faster where weights are zero"


def test_pruning_rises_while_the_loss_is_kept_and_then_meets_int8() -> None:
    losses = {"un0.5": 0.001, "un0.7": 0.003, "un0.8": 0.2, "un0.01": 0.004, "un0.03": 0.3}
    table = Table({**ALL, **{key: (loss, 1.5, 1000) for key, loss in losses.items()}})
    run(table, Goal(9.0), zeros=True)
    assert table.made[4:9] == ["un0.5", "un0.7", "un0.8", "un0.01", "un0.03"]


def test_both_together_begin_with_the_strongest_pruning_that_keeps_the_loss() -> None:
    class Levels(Table):
        """Names levels as a recipe that was carried out does."""

        def make(self, recipe: Recipe) -> BuiltCopy:
            copy = super().make(recipe)
            if recipe.pruning is None or recipe.pruning.layers:
                return copy
            level = recipe.pruning.sparsity or 0.75
            levels = replace(recipe.pruning, layers={"w": level})
            return replace(copy, recipe=replace(recipe, pruning=levels))

    singles = {"un0.5": 0.0, "un0.7": 0.5, "un0.01": 0.0, "un0.03": 0.5, "ch0.1": 0.5}
    both = {"un0.75+static8k0": (0.5, 4.0, 250), "un0.5+static8k0": (0.001, 3.5, 250)}
    table = Levels({**ALL, **{key: (loss, 1.5, 1000) for key, loss in singles.items()}, **both})
    found = run(table, Goal(3.0), zeros=True)
    assert table.made[-2:] == ["un0.75+static8k0", "un0.5+static8k0"]
    assert found.candidates[-1].reaches


def test_what_cannot_be_made_is_a_reason_and_the_search_goes_on() -> None:
    found = run(Table({"static8k0": ALL["static8k0"]}), Goal(2.0))
    assert reasons(found)["FP16"] == "no fp168k0"
    assert found.candidates[-1].reaches


def test_four_bits_are_tried_where_the_goal_is_a_size() -> None:
    table = Table({**ALL, "weights4k0": (0.0, 0.5, 130)})
    found = run(table, Goal(size_ratio=5.0))
    assert table.made == ["fp168k0", "weights8k0", "weights4k0"]
    assert reasons(found)["FP16"] == "it is not small enough"
    assert found.candidates[-1].reaches


def test_it_ends_when_the_time_is_over_and_says_so() -> None:
    table = Table(ALL, half_width=lambda seconds: 0.01)
    found = run(table, Goal(9.0), time_s=4.0)
    assert not found.complete
    assert not found.interrupted
    assert [candidate.label for candidate in found.candidates] == [
        "FP16",
        "INT8 weights",
        "INT8 dynamic",
        "INT8 static",
    ]
    assert found.candidates[-1].reason == "time ran out"
    assert found.candidates[-1].loss == 0.002


def test_the_first_recipe_is_made_however_short_the_time() -> None:
    space = SearchSpace("fake", Goal(9.0), Recipe(), gains_from_zeros=False)
    # Each look at the clock takes a second.
    ticks = itertools.count()
    (found,) = search(space, ORIGINAL, Table(ALL), 0.5, ignore, lambda: float(next(ticks)))
    assert [(candidate.label, candidate.reason) for candidate in found.candidates] == [("FP16", "time ran out")]


def test_ctrl_c_keeps_what_there_is() -> None:
    table = Table({**ALL, "dynamic8k0": (0.0, -1.0, 255)})
    found = run(table, Goal(9.0))
    assert found.interrupted
    assert [(candidate.label, candidate.speedup) for candidate in found.candidates] == [
        *(("FP16", 0.9), ("INT8 weights", 1.0), ("INT8 dynamic", None))
    ]


def test_a_known_abort_of_an_engine_is_not_provoked() -> None:
    table = Table(ALL)
    space = SearchSpace("deepsparse", Goal(2.0), Recipe(), gains_from_zeros=True)
    *_, found = search(space, ORIGINAL, table, 160.0, ignore, lambda: table.now)
    assert "dynamic8k0" not in table.made
    assert reasons(found)["INT8 dynamic"] == "DeepSparse aborts on dynamic INT8"


@pytest.mark.parametrize("goal", [Goal(2.0), Goal(9.0), Goal(size_ratio=2.0), Goal(9.0, 9.0)])
def test_what_is_known_comes_after_each_recipe(goal: Goal) -> None:
    table = Table(ALL)
    space = SearchSpace("fake", goal, Recipe(), gains_from_zeros=False)
    counts = [len(one.candidates) for one in search(space, ORIGINAL, table, 160.0, ignore, lambda: table.now)]
    assert counts == sorted(counts)
    assert counts[0] == 1


def test_wrong_outputs_make_a_speed_worthless() -> None:
    class Wrong(Table):
        def time(self, copy: BuiltCopy, seconds: float, goal: float | None) -> Speed:
            return Speed(None, None, reason="its outputs on this engine are wrong")

    found = run(Wrong(ALL), Goal(2.0))
    assert not any(candidate.reaches or candidate.efficient for candidate in found.candidates)
    fastest: Candidate = found.candidates[3]
    assert fastest.speedup is None
    assert fastest.reason == "its outputs on this engine are wrong"
