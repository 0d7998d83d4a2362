"""From a plan to its cells, and which of their streams runs where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab import Plan, machine
from inferlab.errors import BadInput
from inferlab.lab import read_model
from inferlab.measure.cells import (
    check_streams,
    choose_mode,
    default_streams,
    divide,
    jobs,
    lay_out,
    validate_plan,
)
from inferlab.records import Cell, Scenario, StreamMode
from tests.helpers.onnx_files import save_linear


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_linear(made / "open.onnx", "batch")
    save_linear(made / "fixed.onnx", 3)
    return made


def cells(model: Path, **fields: Any) -> list[Cell]:
    plan = Plan(str(model), **fields)
    return [job.cell for job in jobs(plan, read_model(str(model)))]


def test_offline_takes_a_batch_of_16_where_nobody_says(folder: Path) -> None:
    (cell,) = cells(folder / "open.onnx", scenarios=("offline",))
    assert (cell.batch_size, cell.shapes) == (16, (("x", (16, 4)),))


def test_offline_takes_the_batch_that_the_model_fixes(folder: Path) -> None:
    (job,) = jobs(Plan(str(folder / "fixed.onnx"), scenarios=("offline",)), read_model(str(folder / "fixed.onnx")))
    assert (job.cell.batch_size, job.rewrite_batch) == (3, None)


def test_offline_takes_the_batch_or_the_shapes_that_were_asked_for(folder: Path) -> None:
    assert cells(folder / "open.onnx", scenarios=("offline",), batch_sizes=(5,))[0].batch_size == 5
    assert cells(folder / "open.onnx", scenarios=("offline",), input_shapes="[7,4]")[0].batch_size == 7


def test_the_other_scenarios_take_a_batch_of_1(folder: Path) -> None:
    found = cells(folder / "open.onnx", scenarios=("sync", "async", "elastic"))
    assert [cell.batch_size for cell in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("scenario", "cores", "instances", "streams"),
    [("sync", 8, 2, 1), ("async", 8, 2, 4), ("async", 8, 1, 8), ("async", 2, 3, 1), ("offline", 4, 2, 2)],
)
def test_every_instance_has_one_stream_for_each_of_its_cores(
    folder: Path, scenario: Any, cores: int, instances: int, streams: int
) -> None:
    (cell,) = cells(folder / "open.onnx", scenarios=(scenario,), num_cores=(cores,), instances=(instances,))
    assert (cell.num_cores, cell.instances, cell.num_streams) == (cores, instances, streams)


def test_an_empty_list_is_no_plan(folder: Path) -> None:
    with pytest.raises(BadInput, match="an empty list of batch sizes"):
        cells(folder / "open.onnx", batch_sizes=())


def test_a_plan_is_the_product_of_its_rates_and_instances(folder: Path) -> None:
    found = cells(folder / "open.onnx", scenarios=("server",), rates=(5.0, 50.0), instances=(1, 2))
    assert [(cell.instances, cell.rate) for cell in found] == [(1, 5.0), (1, 50.0), (2, 5.0), (2, 50.0)]
    assert len({cell.id for cell in found}) == 4


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"processes": 0}, "processes must be at least 1, not 0"),
    ({"precision": 0.0}, "between 0 and 100 %, not 0 %"),
    ({"precision": 1.5}, "between 0 and 100 %, not 150 %"),
    ({"precision": float("nan")}, "between 0 and 100 %, not nan %"),
    ({"precision": 0.01, "processes": 3}, "contradict each other"),
    ({"num_streams": (2, 0)}, "streams must be at least 1, not 0"),
    ({"batch_sizes": (0,)}, "batch size must be at least 1, not 0"),
    ({"instances": (1, 0)}, "instances must be at least 1, not 0"),
    ({"scenarios": ("async", "server")}, "needs the rate"),
    ({"scenarios": ("server",), "rates": (5.0, None)}, "needs the rate"),
    ({"rates": (5.0,)}, "belongs to the scenario server"),
    ({"time_s": 0.0}, "more than 0 seconds"),
    ({"num_cores": (machine.usable_cores() + 10_000,)}, "cores"),
]


@pytest.mark.parametrize(("fields", "said"), NONSENSE)
def test_nonsense_is_refused_before_anything_is_loaded(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        validate_plan(Plan("no such model", **fields))


EIGHT = tuple(range(8))
BOTH = {"native_streams", "shared_streams"}


def test_cores_are_divided_evenly() -> None:
    assert divide(EIGHT, 8, 4) == (((0, 1), (2, 3), (4, 5), (6, 7)), 2)


def test_more_streams_than_cores_take_turns() -> None:
    assert divide((0, 1), 2, 3) == (((0,), (1,), (0,)), 1)


def test_unpinned_streams_get_threads_but_no_cpus() -> None:
    assert divide((), 8, 2) == (((), ()), 4)


def test_streams_on_numa_nodes_share_the_node() -> None:
    assert divide(EIGHT, 4, 2) == ((EIGHT, EIGHT), 2)


@given(st.integers(1, 64), st.integers(1, 64))
def test_no_core_serves_two_streams_while_there_are_enough(cores: int, count: int) -> None:
    groups, threads = divide(tuple(range(cores)), cores, count)
    assert len(groups) == count
    assert all(len(group) == threads for group in groups)
    if count <= cores:
        used = [cpu for group in groups for cpu in group]
        assert len(used) == len(set(used))


def test_one_stream_has_all_cores() -> None:
    layout = lay_out("auto", "async", EIGHT, 8, 1, BOTH)
    assert (layout.mode, layout.children, layout.threads) == ("single", ((EIGHT,),), 8)


def test_processes_have_one_stream_each() -> None:
    layout = lay_out("processes", "async", (0, 1), 2, 2, set())
    assert layout.children == (((0,),), ((1,),))
    assert lay_out("threads", "async", (0, 1), 2, 2, set()).children == (((0,), (1,)),)


def test_elastic_streams_share_one_loaded_model_where_the_engine_can() -> None:
    layout = lay_out("auto", "elastic", EIGHT, 8, 4, BOTH)
    assert (layout.mode, layout.shared, layout.threads) == ("native", True, 8)
    assert layout.children == ((EIGHT,) * 4,)
    assert lay_out("auto", "elastic", EIGHT, 8, 4, set()).mode == "threads"


@pytest.mark.parametrize("scenario", ["async", "elastic"])
def test_native_streams_are_refused_where_the_engine_has_none(scenario: Scenario) -> None:
    with pytest.raises(BadInput, match="no streams of its own"):
        lay_out("native", scenario, EIGHT, 8, 4, set())


def test_short_calls_go_to_processes_and_long_ones_stay() -> None:
    assert choose_mode(0.0001, 10, 10**9, 4, BOTH) == "processes"
    assert choose_mode(0.01, 10, 10**9, 4, BOTH) == "native"
    assert choose_mode(0.01, 10, 10**9, 4, set()) == "threads"


def test_an_engine_that_serves_one_stream_in_a_process_always_gets_processes() -> None:
    assert choose_mode(0.01, 10**9, 2 * 10**9, 4, {"process_streams"}) == "processes"


def test_copies_that_do_not_fit_into_memory_stay_in_one_process() -> None:
    assert choose_mode(0.0001, 10**9, 2 * 10**9, 4, set()) == "threads"


def test_instances_divide_the_cores_and_are_processes_of_their_own() -> None:
    layout = lay_out("auto", "sync", EIGHT, 8, 1, BOTH, instances=2)
    assert layout.children == (((0, 1, 2, 3),), ((4, 5, 6, 7),))
    assert (layout.mode, layout.threads, layout.cores_each) == ("single", 4, 4)


@pytest.mark.parametrize(
    ("mode", "children"),
    [
        ("threads", (((0, 1), (2, 3)), ((4, 5), (6, 7)))),
        ("processes", (((0, 1),), ((2, 3),), ((4, 5),), ((6, 7),))),
        ("native", (((0, 1, 2, 3),) * 2, ((4, 5, 6, 7),) * 2)),
    ],
)
def test_the_streams_of_an_instance_divide_its_cores(
    mode: str, children: tuple[tuple[tuple[int, ...], ...], ...]
) -> None:
    layout = lay_out(mode, "async", EIGHT, 8, 2, BOTH, instances=2)
    assert (layout.mode, layout.children, layout.threads) == (mode, children, 2)


def test_the_elastic_streams_of_an_instance_share_its_cores() -> None:
    layout = lay_out("auto", "elastic", EIGHT, 8, 3, BOTH, instances=2)
    assert layout.children == (((0, 1, 2, 3),) * 3, ((4, 5, 6, 7),) * 3)
    assert (layout.mode, layout.threads) == ("native", 4)


def test_more_instances_than_cores_take_turns() -> None:
    layout = lay_out("auto", "sync", (0, 1), 2, 1, BOTH, instances=3)
    assert layout.children == (((0,),), ((1,),), ((0,),))
    assert layout.threads == 1


def test_cores_that_do_not_divide_by_the_instances_stay_idle() -> None:
    layout = lay_out("auto", "sync", EIGHT, 8, 1, BOTH, instances=3)
    assert layout.children == (((0, 1),), ((2, 3),), ((4, 5),))


def test_the_first_stream_alone_has_the_cores_that_it_would_have_beside_the_others() -> None:
    first = lay_out("processes", "async", EIGHT, 8, 2, BOTH, instances=2).first_stream
    assert (first.children, first.threads, first.mode) == ((((0, 1),),), 2, "single")


@pytest.mark.parametrize(("scenario", "expected"), [("sync", 1), ("async", 4), ("server", 4), ("offline", 4)])
def test_there_is_one_stream_a_core_except_in_sync(scenario: Scenario, expected: int) -> None:
    assert default_streams(scenario, 4) == expected


def refusal(scenario: Scenario, count: int | None, mode: StreamMode, instances: int = 1, rate: float = 0.0) -> str:
    with pytest.raises(BadInput) as caught:
        check_streams(scenario, count, instances, rate or None, mode)
    return str(caught.value)


def test_contradictions_are_refused() -> None:
    assert "one stream" in refusal("sync", 2, "auto")
    assert "share one engine" in refusal("elastic", 2, "processes")
    assert "instances must be at least 1" in refusal("sync", 1, "auto", instances=0)
    assert "needs the rate" in refusal("server", None, "auto")
    assert "belongs to the scenario server, not to async" in refusal("async", None, "auto", rate=5.0)
    for rate in (-1.0, float("nan"), float("inf")):
        assert "more than 0 requests per second and finite" in refusal("server", None, "auto", rate=rate)
    check_streams("sync", 1, 1, None, "auto")
    check_streams("server", 2, 3, 50.0, "processes")
