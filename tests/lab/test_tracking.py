"""Series out of a store: what belongs together, what is corrected by what, and where it changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.lab.tracking import TrendRequest, find_series, segments_around
from inferlab.store import open_store
from inferlab.store.store import Store
from tests.helpers.runs import a_cell
from tests.helpers.series import WOBBLE, save_point, wobbling

OTHER = a_cell(engine="openvino")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "lab.db"), make=True) as opened:
        yield opened


def test_a_series_is_of_one_cell_machine_and_version(store: Store) -> None:
    for point in ({}, {}, {"version": "2.0"}, {"cpu": "CPU B"}, {"cell": a_cell(num_cores=2)}):
        save_point(store, 2.0, **point)
    found = find_series(store).series
    assert sorted(len(series.points) for series in found) == [1, 1, 1, 2]
    assert {(series.machines, series.versions) for series in found if len(series.points) == 2} == {
        (("CPU A, 4 cores",), ("1.0",))
    }
    assert not any(series.enough for series in found)


def test_a_change_has_its_size_and_the_entries_before_and_after(store: Store) -> None:
    ids = [save_point(store, ms) for ms in (*wobbling(2.0, 8), *wobbling(2.2, 4))]
    (series,) = find_series(store).series
    (change,) = series.changes
    assert [point.entry_id for point in series.points] == ids
    assert (change.index, change.before_id, change.after_id) == (8, ids[7], ids[8])
    assert change.ratio.value == pytest.approx(1.1, rel=2e-3)
    assert series.enough


def test_only_what_is_labelled_so_belongs_to_the_series(store: Store) -> None:
    for branch in ("main", "topic", "main"):
        save_point(store, 2.0, [("branch", branch)])
    (series,) = find_series(store, TrendRequest(labels=(("branch", "main"),))).series
    assert [dict(point.labels)["branch"] for point in series.points] == ["main", "main"]


def test_across_machines_points_are_scaled_by_what_another_cell_took_on_each(store: Store) -> None:
    save_point(store, 2.0, beside=[(OTHER, 10.0)])
    save_point(store, 6.0, beside=[(OTHER, 30.0)], cpu="CPU B")
    separate = find_series(store, wanted=lambda cell: cell.engine == "fake").series
    assert sorted(series.points[0].value for series in separate) == [2.0, 6.0]
    (series,) = find_series(store, TrendRequest(across=("machine",)), lambda cell: cell.engine == "fake").series
    assert [point.value for point in series.points] == pytest.approx([2.0, 2.0])
    assert series.machines == ("CPU A, 4 cores", "CPU B, 4 cores")
    assert series.reference == "demo:mobilenet_v2 on openvino 1.0, sync"


def test_machines_without_a_common_cell_are_not_mixed(store: Store) -> None:
    save_point(store, 2.0)
    save_point(store, 6.0, cpu="CPU B")
    with pytest.raises(BadInput) as caught:
        find_series(store, TrendRequest(across=("machine",)))
    assert str(caught.value).startswith(
        "CPU A, 4 cores and CPU B, 4 cores have no other cell in common that the series of demo:mobilenet_v2 on "
        "fake could be corrected by. Measure the same one on each: "
    )


def test_across_versions_the_mood_of_the_machine_is_taken_off_by_another_engine(store: Store) -> None:
    for version, mood in (("1.0", 1.0), ("2.0", 1.5)):
        save_point(store, 2.0 * mood, version=version, beside=[(OTHER, 10.0 * mood)])
    request = TrendRequest(across=("version",))
    (series,) = find_series(store, request, lambda cell: cell.engine == "fake").series
    assert [point.version for point in series.points] == ["1.0", "2.0"]
    assert series.points[0].value == pytest.approx(series.points[1].value)


def test_memory_is_followed_as_time_is(store: Store) -> None:
    for mib in (100, 101):
        save_point(store, 2.0, peak_memory_bytes=mib << 20)
    (series,) = find_series(store, TrendRequest(metric="memory")).series
    assert [point.value for point in series.points] == [100 << 20, 101 << 20]


def test_wrong_outputs_are_no_points(store: Store) -> None:
    from inferlab.records import OutputCheck

    save_point(store, 2.0, check=OutputCheck("mismatch", 1.0, "max", 1e-3, "a reference"))
    assert find_series(store).series == ()


def test_what_a_gate_compares_with_lies_between_the_changes_around_an_entry(store: Store) -> None:
    main = [("branch", "main")]
    first = [save_point(store, ms, main) for ms in wobbling(2.0, 8)]
    last = [save_point(store, ms, main) for ms in wobbling(3.0, 8)]
    save_point(store, 5.0, [("branch", "topic")])
    for entry, level in ((first[3], 2.0), (last[-1], 3.0)):
        (points,) = segments_around(store, store.entry(entry)).values()
        assert points == pytest.approx([level * wobble for wobble in WOBBLE])
