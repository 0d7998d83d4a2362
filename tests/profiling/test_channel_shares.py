"""Which share of its channels each group loses within a budget: exact answers from profiles made by hand."""

from __future__ import annotations

import math

import pytest

from inferlab.errors import BadInput
from inferlab.profiling.channel_shares import best_shares, channel_speedup, gain_of_shares
from inferlab.profiling.gains import best_gain, estimated_ms, gain_recipe, with_estimate
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Recipe
from inferlab.records.profile import ChangedCopy, ChannelGroup, LossProfile, PerformanceProfile, Profile
from inferlab.store import formats
from inferlab.views import tables
from inferlab.views.profile import blocks
from inferlab.views.reports.profile import report
from tests.helpers.estimates import layer, lost, measured, weight
from tests.helpers.profiles import a_profile

#: What w0 makes and w1 reads, and what w1 makes and w2 reads.
FIRST = ChannelGroup(("w0",), 8, {"w0": 1.0}, {"w1": 1.0}, {"0.5": 0.1, "0.75": 0.5})
SECOND = ChannelGroup(("w1",), 8, {"w1": 1.0}, {"w2": 1.0}, {"0.5": 0.02, "0.75": 0.04})


def losses(*groups: ChannelGroup) -> LossProfile:
    return lost([weight(index, {"0.9": 9.0}) for index in range(3)], groups=groups or (FIRST, SECOND))


def copy(shares: dict[str, float], times: tuple[float, float, float], loss: float, alike: bool) -> ChangedCopy:
    pruning = Pruning(0.5 if alike else None, "uniform" if alike else "layers", CHANNEL, shares)
    layers = {f"out{index}": ms for index, ms in enumerate(times)}
    return ChangedCopy(Recipe(pruning=pruning), sum(times), layers, Distance(loss, 8, generated=True))


#: Without half of all channels, w1 has a quarter of its work and the others half; all of the time goes with it.
HALF = copy({"w0": 0.5, "w1": 0.5}, (2.0, 2.0, 2.0), 0.3, alike=True)


def timed(*mixed: ChangedCopy, half: ChangedCopy = HALF) -> PerformanceProfile:
    """Layers of 4, 8 and 4 ms."""
    layers = [layer(0, 4.0, {}), layer(1, 8.0, {}), layer(2, 4.0, {})]
    return measured(layers, copies=(half,), mixed_copies=mixed, int8_ms_per_batch=None)


def profiled(budget: float, *mixed: ChangedCopy) -> Profile:
    return with_estimate(a_profile(performance=timed(*mixed), loss=losses(), estimate=None), budget)


def test_the_budget_goes_to_the_groups_that_gain_most_for_their_loss() -> None:
    profile = profiled(0.05)
    best = best_gain(profile)
    assert best is not None
    # w1 then has a quarter of its channels, which w2 reads: 4 + 2 + 1 ms.
    assert (best.shares, best.channels, best.ms_per_batch, best.speedup) == ({"w1": 0.75}, 0.375, 7.0, 16 / 7)
    assert (best.loss, best.budget, best.counts, best.int8, best.zeros) == (0.04, 0.05, True, False, 0.0)
    assert estimated_ms(profile) == {0: 4.0, 1: 2.0, 2: 1.0}
    assert gain_recipe(profile, best) == Recipe(
        pruning=Pruning(scope="layers", pattern=CHANNEL, layers={"w1": 0.75})
    )


def test_what_other_groups_lost_makes_a_step_worth_less() -> None:
    # Half of the first group: 2 ms of w0, and half of what w1 still takes.
    wide = best_shares(timed(), losses(), 0.15)
    assert wide is not None and wide.loss == pytest.approx(0.14)
    assert (wide.shares, wide.ms_per_batch) == ({"w0": 0.5, "w1": 0.75}, 2.0 + 1.0 + 1.0)
    assert best_shares(timed(), losses(), 0.01) is None


def test_one_share_for_all_gains_less_within_the_same_budget() -> None:
    mixed, alike = profiled(0.3).gains
    assert (mixed.shares, mixed.ms_per_batch) == ({"w0": 0.5, "w1": 0.75}, 4.0)
    assert (alike.shares, alike.channels, alike.ms_per_batch) == ({}, 0.5, 6.0)
    assert mixed.loss is not None and alike.loss is not None and mixed.loss < alike.loss <= 0.3


def test_time_that_does_not_go_with_the_work_is_not_gained() -> None:
    # Two thirds of the time of w1 go with its work: it took 4 of 8 ms with a quarter of it.
    slow = timed(half=copy({"w0": 0.5, "w1": 0.5}, (2.0, 4.0, 2.0), 0.3, alike=True))
    best = best_shares(slow, losses(), 0.05)
    assert best is not None
    assert best.layers_ms == pytest.approx({0: 4.0, 1: 8 * (1 - 2 / 3 * 0.75), 2: 1.0})


def test_what_a_copy_really_lost_corrects_the_next_choice() -> None:
    made = copy({"w1": 0.75}, (4.0, 2.2, 1.1), 0.08, alike=False)
    # It lost twice of what its groups lose one by one.
    smaller = best_shares(timed(made), losses(), 0.05)
    assert smaller is not None and smaller.copy is None
    assert smaller.shares == {"w1": 0.5} and smaller.loss == pytest.approx(0.04)
    same = best_shares(timed(made), losses(), 0.1)
    assert same is not None
    assert (same.copy, same.shares, same.loss) == (made, {"w1": 0.75}, 0.08)
    profile = profiled(0.1, made)
    best = best_gain(profile)
    assert best is not None and best.loss == 0.08 and best.ms_per_batch == pytest.approx(7.3)
    assert estimated_ms(profile) == {0: 4.0, 1: 2.2, 2: 1.1}


def test_only_given_weights_lose_channels_and_none_more_than_the_most() -> None:
    assert best_shares(timed(), losses(), 0.05, weights=["w0"]) is None
    first = best_shares(timed(), losses(), 0.1, weights=["w0"])
    assert first is not None and first.shares == {"w0": 0.5}
    half = best_shares(timed(), losses(), 0.05, most=0.6)
    assert half is not None and half.shares == {"w1": 0.5}


def test_without_times_it_goes_by_parameters() -> None:
    best = best_shares(None, losses(), 0.05)
    assert best is not None
    assert (best.shares, best.ms_per_batch, best.layers_ms) == ({"w1": 0.75}, None, {})


def test_a_share_whose_outputs_are_no_numbers_is_not_taken() -> None:
    broken = ChannelGroup(("w1",), 8, {"w1": 1.0}, {"w2": 1.0}, {"0.5": 0.02, "0.75": None})
    best = best_shares(timed(), losses(FIRST, broken), 0.05)
    assert best is not None and best.shares == {"w1": 0.5}
    assert gain_of_shares(timed(), losses(FIRST, broken), {"w1": 0.75}).loss == math.inf


def test_shares_of_channels_predict_a_speed_up_where_copies_tell() -> None:
    assert channel_speedup(timed(), losses(), {"w1": 0.75}) == 16 / 7
    # Channels that meet go together, as many as the smallest share says.
    both = ChannelGroup(("w0", "w1"), 8, {"w0": 1.0, "w1": 1.0}, {"w2": 1.0}, {"0.5": 0.1})
    assert gain_of_shares(timed(), losses(both), {"w0": 0.5, "w1": 0.25}).shares == {"w0": 0.25, "w1": 0.25}
    assert channel_speedup(measured([layer(0, 4.0, {})], copies=()), losses(), {"w1": 0.75}) is None
    assert channel_speedup(timed(), losses(), {"unknown": 0.75}) is None


def test_a_profile_shows_the_groups_and_the_shares() -> None:
    profile = profiled(0.05)
    shown = "\n".join(tables.text(blocks(profile)))
    assert "2.29 times as fast (37.5 % of channels removed, of each group its own share; loss 0.04" in shown
    assert "Channels that go together:" in shown
    assert "Losses of removed channels" in report(profile)


def test_a_profile_that_was_saved_before_groups_were_known_is_read() -> None:
    content = formats.content_of(profiled(0.05))
    again = formats.PROFILES.from_content(content, "again")
    assert again.loss is not None and again.loss.groups == (FIRST, SECOND)
    del content["loss"]["groups"], content["loss"]["channels_kept"], content["performance"]["mixed_copies"]
    for gain in content["gains"]:
        del gain["shares"]
    old = formats.PROFILES.from_content(content, "old")
    assert old.loss is not None and old.loss.groups == ()
    assert [gain.shares for gain in with_estimate(old, 0.3).gains] == [{}]


def test_a_group_without_channels_is_refused() -> None:
    content = formats.content_of(profiled(0.05))
    content["loss"]["groups"][0]["weights"] = []
    with pytest.raises(BadInput, match="a group of channels has none, or nothing that makes them"):
        formats.PROFILES.from_content(content, "damaged")
