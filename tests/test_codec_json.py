"""Records as JSON and samples as blobs, and back."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlab.codec import dumps, plain, restored
from inferlab.records import Cell, Model, Plan, Run, Samples, Window
from inferlab.records.capacity import LoadPoint
from inferlab.store.samples import pack, unpack
from tests.helpers.runs import a_cell, a_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark

_RUN = a_run()
_SETTINGS = settings(max_examples=50)
_NS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def _samples(draw: st.DrawFn) -> Samples:
    size = draw(st.integers(0, 6))
    times = st.lists(_NS, min_size=size, max_size=size).map(lambda values: array("q", values))
    return Samples(draw(times), draw(times), draw(st.none() | times), draw(st.none() | times))


_floats = st.floats(allow_nan=False)
_windows = st.lists(
    st.builds(
        Window,
        st.lists(_samples(), max_size=2).map(tuple),
        st.dictionaries(st.text(), _floats | st.integers(), max_size=3),
        st.integers(),
        st.none() | st.integers(),
        st.booleans(),
    ),
    max_size=2,
).map(tuple)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _floats | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
_runs = st.builds(
    lambda windows, warmup, options, text, number: replace(
        _RUN, windows=windows, warmup=warmup, settings=options, started_at=text, ready_s=number
    ),
    _windows,
    _windows,
    st.dictionaries(st.text(), _values, max_size=3),
    st.text(),
    _floats,
)


def _there_and_back(kind: type, record: Any) -> Any:
    streams: list[Samples] = []
    text = dumps(plain(record, streams))
    return restored(kind, json.loads(text), unpack(pack(streams)))


@_SETTINGS
@given(_runs)
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    assert _there_and_back(Run, run) == run


@_SETTINGS
@given(st.lists(_samples(), max_size=5))
def test_samples_come_back_to_the_nanosecond(streams: list[Samples]) -> None:
    assert unpack(pack(streams)) == streams


def test_plans_models_and_cells_come_back_as_they_were() -> None:
    cell = a_cell(shapes=(("x", (1, 3)),), engine_options=(("a", "b"),), rate=2, precision=0.01)
    assert _there_and_back(Plan, PLAN) == PLAN
    assert _there_and_back(Model, MODEL) == MODEL
    assert _there_and_back(Cell, cell) == cell
    # 10 and 10.0 are equal but written differently: what was one shall stay one.
    assert _there_and_back(Cell, cell).id == cell.id


def test_numbers_by_which_values_are_found_come_back_as_numbers() -> None:
    times: dict[float, float | None] = {50.0: 1.5, 99.9: None}
    point = LoadPoint(1.0, 0.5, 9, 2, 0.0, 1.0, 1.0, times, times, times)
    assert restored(LoadPoint, json.loads(dumps(plain(point)))) == point
    damaged = {**plain(point), "ttft_percentiles_ms": {"p50": 1.5}}
    with pytest.raises(ValueError, match="could not convert string to float"):
        restored(LoadPoint, damaged)


def test_infinities_and_nan_are_kept() -> None:
    run = _there_and_back(Run, a_run(ready_s=math.inf, load_s=-math.inf, harness_ns=math.nan))
    assert (run.ready_s, run.load_s) == (math.inf, -math.inf)
    assert math.isnan(run.harness_ns)


def test_fields_of_a_newer_version_are_ignored_and_those_of_an_older_take_their_default() -> None:
    value = plain(PLAN)
    value["colour"] = "red"
    del value["time_s"]
    assert restored(Plan, value).time_s == 10.0


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Plan, {}, "a Plan lacks its model"),
        (Plan, [], "a Plan is an object"),
        (Plan, {"model": 3}, "str is expected, not 3"),
        (Plan, {"model": "x", "engines": "fake"}, "a list is expected, not 'fake'"),
        (Plan, {"model": "x", "engine_options": [["a"]]}, "2 values are expected, not 1"),
        (Plan, {"model": "x", "seed": True}, "int is expected, not True"),
        (Plan, {"model": "x", "input_shapes": 3}, "str is expected, not 3"),
        (Window, {"streams": [7], "counters": {}, "canary_ns": 1}, "there are no samples 7"),
        (Window, {"streams": [], "counters": [], "canary_ns": 1}, "an object is expected"),
    ],
)
def test_what_is_no_record_is_refused(kind: type, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        restored(kind, value)


def test_only_samples_with_canaries_need_a_reader_that_knows_them() -> None:
    times = array("q", [1, 2])
    plain_one = Samples(times, times)
    with_canaries = replace(plain_one, canaries_ns=array("q", [50_000, 50_000]))
    assert [pack([plain_one])[0], pack([plain_one, with_canaries])[0]] == [1, 2]


def test_damaged_samples_are_refused() -> None:
    streams = [stream for window in a_benchmark().outcomes[0].runs[0].windows for stream in window.streams]
    blob = pack(streams)
    for damaged in (b"", b"\x09" + blob[1:], blob[:-1], blob[:10] + b"!" + blob[11:], b"\x01"):
        with pytest.raises(ValueError, match="samples"):
            unpack(damaged)
