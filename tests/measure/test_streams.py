"""Which stream runs where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.errors import BadInput
from inferlab.measure import streams
from inferlab.records import Scenario

EIGHT = tuple(range(8))
BOTH = {"native_streams", "shared_streams"}


def test_cores_are_divided_evenly() -> None:
    assert streams.divide(EIGHT, 8, 4) == (((0, 1), (2, 3), (4, 5), (6, 7)), 2)


def test_more_streams_than_cores_take_turns() -> None:
    assert streams.divide((0, 1), 2, 3) == (((0,), (1,), (0,)), 1)


def test_unpinned_streams_get_threads_but_no_cpus() -> None:
    assert streams.divide((), 8, 2) == (((), ()), 4)


def test_streams_on_numa_nodes_share_the_node() -> None:
    assert streams.divide(EIGHT, 4, 2) == ((EIGHT, EIGHT), 2)


@given(st.integers(1, 64), st.integers(1, 64))
def test_no_core_serves_two_streams_while_there_are_enough(cores: int, count: int) -> None:
    groups, threads = streams.divide(tuple(range(cores)), cores, count)
    assert len(groups) == count
    assert all(len(group) == threads for group in groups)
    if count <= cores:
        used = [cpu for group in groups for cpu in group]
        assert len(used) == len(set(used))


def test_one_stream_has_all_cores() -> None:
    layout = streams.lay_out("auto", "async", EIGHT, 8, 1, BOTH)
    assert (layout.mode, layout.groups, layout.threads) == ("single", (EIGHT,), 8)


def test_processes_have_one_stream_each() -> None:
    layout = streams.lay_out("processes", "async", (0, 1), 2, 2, set())
    assert layout.children == [((0,),), ((1,),)]
    assert streams.lay_out("threads", "async", (0, 1), 2, 2, set()).children == [((0,), (1,))]


def test_elastic_streams_share_one_loaded_model_where_the_engine_can() -> None:
    layout = streams.lay_out("auto", "elastic", EIGHT, 8, 4, BOTH)
    assert (layout.mode, layout.shared, layout.threads, layout.groups) == ("native", True, 8, (EIGHT,) * 4)
    assert streams.lay_out("auto", "elastic", EIGHT, 8, 4, set()).mode == "threads"


@pytest.mark.parametrize("scenario", ["async", "elastic"])
def test_native_streams_are_refused_where_the_engine_has_none(scenario: Scenario) -> None:
    with pytest.raises(BadInput, match="no streams of its own"):
        streams.lay_out("native", scenario, EIGHT, 8, 4, set())


def test_short_calls_go_to_processes_and_long_ones_stay() -> None:
    assert streams.choose_mode(0.0001, 10, 10**9, 4, BOTH) == "processes"
    assert streams.choose_mode(0.01, 10, 10**9, 4, BOTH) == "native"
    assert streams.choose_mode(0.01, 10, 10**9, 4, set()) == "threads"


def test_copies_that_do_not_fit_into_memory_stay_in_one_process() -> None:
    assert streams.choose_mode(0.0001, 10**9, 2 * 10**9, 4, set()) == "threads"


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        streams.check_streams("async", 0, "auto")
    with pytest.raises(BadInput, match="one stream"):
        streams.check_streams("sync", 2, "auto")
    with pytest.raises(BadInput, match="share one engine"):
        streams.check_streams("elastic", 2, "processes")
    streams.check_streams("sync", 1, "auto")
