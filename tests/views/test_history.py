"""The history's table, from entries made by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inferlab.records import Failure, Status
from inferlab.store import CellEntry, Entry
from inferlab.views import history
from tests.helpers.runs import a_cell

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def cell(
    items: float | None = 100.0,
    half: float | None = 0.05,
    status: Status = "done",
    wrong: bool = False,
    **more: Any,
) -> CellEntry:
    """A cell of the scenario async with so much throughput, ± a share."""
    made = a_cell(**{"scenario": "async", **more})
    failure = Failure("died", "It died.") if status == "failed" else None
    if items is None:
        return CellEntry(made.id, made, status, failure, 0, None, None, None, None, None, None)
    median = 1000 / items
    ends: tuple[float | None, float | None] = (None, None)
    medians = ends
    if half is not None:
        ends, medians = (items / (1 + half), items * (1 + half)), (median / (1 + half), median * (1 + half))
    return CellEntry(made.id, made, status, failure, 3, items, *ends, median, *medians, wrong)


def entry(*cells: CellEntry, **more: Any) -> Entry:
    given = {
        "id": "abcdefghij",
        "created_at": NOW - timedelta(hours=3),
        "kind": "benchmark",
        "title": "demo:resnet50",
        "model_digest": "d",
        "inferlab_version": "0.1.0",
        "node": "vm",
        "note": "",
        **more,
    }
    return Entry(**given, cells=cells)


def table(*entries: Entry, width: int | None = None) -> list[str]:
    return history.lines(entries, NOW, width)


def test_a_line_says_what_was_measured_how_fast_it_was_and_what_became_of_it() -> None:
    sweep = [cell(50.0, batch_size=8, num_cores=2), cell(200.0), cell(None, status="failed", engine="openvino")]
    assert table(entry(*sweep, note="before the change"), entry(kind="comparison", title="A / B")) == [
        "Id          When     Kind        Model          Engines         Cores  Batch              Best"
        "  Status         Note",
        "abcdefghij  3 h ago  benchmark   demo:resnet50  fake, openvino    1,2    1,8  200 items/s ±5 %"
        "  failed 1 of 3  before the change",
        "abcdefghij  3 h ago  comparison  A / B          -                   -      -                 -  done",
    ]


def test_there_is_no_column_for_notes_where_there_are_none() -> None:
    assert table(entry(cell()))[0].endswith("Status")


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (timedelta(seconds=-5), "0 s ago"),
        (timedelta(seconds=59.9), "59 s ago"),
        (timedelta(minutes=1), "1 min ago"),
        (timedelta(minutes=89), "89 min ago"),
        (timedelta(hours=35), "35 h ago"),
        (timedelta(days=2), "2 d ago"),
        (timedelta(days=40), "2026-10-07"),
    ],
)
def test_ages_have_the_unit_that_suits_them(ago: timedelta, said: str) -> None:
    assert history.age(NOW - ago, NOW) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "done"),
        (["done"], "done"),
        (["failed"], "failed"),
        (["done", "done"], "done"),
        (["failed"] + ["done"] * 17, "failed 1 of 18"),
        (["pending"] * 6 + ["done"] * 12, "pending 6 of 18"),
        (["pending", "cancelled", "failed", "done"], "failed 1, cancelled 1, pending 1 of 4"),
    ],
)
def test_the_status_counts_what_is_not_done(words: list[str], said: str) -> None:
    assert history.status(words) == said


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([], "-"),
        ([cell(None, status="pending")], "-"),
        ([cell(123456.0, None)], "123456 items/s"),
        ([cell(3.0, 0.012), cell(2.0, 0.5)], "3 items/s ±1.2 %"),
        ([cell(3.0, 4.0)], "3 items/s, too noisy"),
        ([cell(3.0, 1.0)], "3 items/s ±100 %"),
        # One request at a time, or at a rate: the lowest median.
        ([cell(100.0, scenario="sync"), cell(50.0, scenario="server")], "median 10 ms ±5 %"),
        ([cell(100.0, scenario="sync"), cell(50.0)], "100 items/s ±5 %"),
        # What was cut off counts only where nothing else does, and what is wrong never.
        ([cell(100.0, status="cancelled"), cell(50.0)], "50 items/s ±5 %"),
        ([cell(100.0, status="cancelled")], "100 items/s ±5 %"),
        ([cell(100.0, wrong=True), cell(50.0)], "50 items/s ±5 %"),
        ([cell(100.0, wrong=True)], "-"),
        ([cell(float("inf"))], "-"),
    ],
)
def test_the_best_is_the_highest_throughput_or_the_lowest_median_of_what_is_right(
    cells: list[CellEntry], said: str
) -> None:
    assert history.best(cells) == said


def test_wrong_outputs_are_said() -> None:
    assert table(entry(cell(wrong=True)))[1].endswith("  wrong outputs")
    assert table(entry(cell(wrong=True), cell()))[1].endswith("  wrong outputs 1 of 2")


def test_long_names_are_cut_in_the_middle_and_what_a_terminal_would_obey_is_made_visible() -> None:
    (line,) = table(entry(cell(), title="/models/" + "x" * 60 + "/last.onnx", note="one\ntwo\x1b[31m \ud800 ü"))[
        1:
    ]
    assert "  /models/xxxxxxxxxxxx…xxxxxxxxx/last.onnx  " in line
    assert line.endswith("  one\\ntwo\\x1b[31m \\ud800 ü")


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_the_table_fits_a_terminal(width: int) -> None:
    one = entry(cell(), cell(engine="onnxruntime"), title="/models/" + "x" * 60, note="a note of mine " * 5)
    lines = table(one, width=width)
    assert max(map(len, lines)) <= width
    assert lines[0].split()[:2] == ["Id", "When"] and lines[1].startswith("abcdefghij  3 h ago  ")
    assert ("Note" in lines[0]) == (width > 100)


def test_many_numbers_are_shown_as_their_range() -> None:
    (line,) = table(entry(*(cell(num_cores=cores) for cores in (1, 2, 4, 8, 16))))[1:]
    assert "  1…16  " in line


def test_the_json_has_every_cell_and_the_way_to_the_next_page() -> None:
    found = json.loads(history.to_json([entry(cell(100.0, 0.25), cell(None, status="failed"))], "abcdefghij"))
    assert (found["format"], found["before"]) == ("inferlab-history/1", "abcdefghij")
    (one,) = found["entries"]
    assert (one["id"], one["title"], one["status"]) == ("abcdefghij", "demo:resnet50", "failed")
    done, failed = one["cells"]
    assert (done["items_per_sec"], done["items_per_sec_interval"]) == (100.0, [80.0, 125.0])
    assert (failed["median_ms"], failed["median_ms_interval"]) == (None, None)
    assert failed["failure"] == {"code": "died", "message": "It died."}
