"""From a plan to its cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferlab import Plan, machine
from inferlab.errors import BadInput
from inferlab.lab import read_model
from inferlab.measure.cells import jobs, validate_plan
from inferlab.records import Cell
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
