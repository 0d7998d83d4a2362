"""What torch's operators take: every layer is there, in order, and joins the costs by its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.child import protocol
from inferlab.errors import BadInput
from inferlab.worker import TORCH, Worker
from tests.helpers import berts, torch_nets

torch = pytest.importorskip("torch")

IDS = {name: np.ones((1, 16), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}


class Told:
    """What one child says of one model: its costs, then its layers' times."""

    def __init__(self, path: Path, kind: str, inputs: dict[str, Any], **options: str) -> None:
        heads, blocks = protocol.pack_arrays(inputs)
        model: dict[str, Any] = {
            "model": str(path), "kind": kind, "options": options,
            "shapes": {name: list(value.shape) for name, value in inputs.items()},
        }  # fmt: skip
        with Worker(TORCH) as worker:
            arguments = {**model, "arrays": heads}
            self.costs = worker.ask("task", blocks, task="torch_models.operator_costs", arguments=arguments).data[
                "nodes"
            ]
            worker.ask(
                "load", groups=[[]], layout="each", threads=1, cores=1, scheduler="single_stream", pinning="none",
                batch_size=1, outputs=[], **model,
            )  # fmt: skip
            worker.ask("inputs", blocks, arrays=heads)
            self.times = worker.ask("layers", seconds=0.05, imposed_sparsity=None, folder=str(path.parent)).data
            with pytest.raises(BadInput, match="torch cannot impose sparsity"):
                worker.ask("layers", seconds=0.05, imposed_sparsity=0.9, folder=str(path.parent))

    @property
    def operators(self) -> list[dict[str, Any]]:
        """The layers without Python's own time."""
        return [one for one in self.times["layers"] if one["type"] != "host"]

    def check(self) -> None:
        """Every operator is a layer of its own, in the order of execution, with the name that the costs have."""
        assert [operator["covers"] for operator in self.operators] == [[cost["id"]] for cost in self.costs]
        assert [operator["type"] for operator in self.operators] == [cost["type"] for cost in self.costs]
        assert [operator["name"] for operator in self.operators] == [
            cost["name"] or cost["id"] for cost in self.costs
        ]
        assert all(operator["ns"] >= 0 and operator["fallback"] is False for operator in self.operators)
        assert self.times["iterations"] >= 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_nets.exported(tmp_path_factory.mktemp("program"))


def test_the_layers_of_a_program_are_the_nodes_of_its_graph(program: Path) -> None:
    told = Told(program, "torch-export", torch_nets.INPUTS)
    told.check()
    first = told.operators[0]
    assert (first["name"], first["type"], first["kernel"]) == ("stem", "conv2d", "aten.conv2d.default")
    # Nothing lies between the layers, so that all of them together are the inference but for its end.
    assert told.operators == told.times["layers"]
    assert sum(operator["ns"] for operator in told.operators) <= told.times["wall_ns"]


def test_the_layers_of_torchscript_are_the_operators_that_it_calls(tmp_path: Path) -> None:
    told = Told(torch_nets.scripted(tmp_path), "torchscript", torch_nets.INPUTS)
    told.check()
    first = told.operators[0]
    assert (first["name"], first["type"], first["kernel"]) == ("stem", "convolution", "aten::_convolution")


def test_the_layers_of_a_folder_are_the_operators_that_it_calls() -> None:
    pytest.importorskip("transformers")
    told = Told(berts.fp32(), "transformers", IDS)
    told.check()
    names = [operator["name"] for operator in told.operators if operator["type"] == "linear"]
    assert names[0] == "bert.encoder.layer.0.attention.self.query"
    assert names[-1] == "classifier"
    assert len(names) == 2 * 6 + 2


def test_a_program_that_changes_its_buffers_is_timed_as_it_runs(tmp_path: Path) -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    path = tmp_path / "counter.pt2"
    torch.export.save(torch.export.export(Counter(), (torch.zeros(3),)), path)
    told = Told(path, "torch-export", {"x": np.zeros(3, np.float32)})
    told.check()
    assert [operator["type"] for operator in told.operators] == ["add", "add"]


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "torch-export",
            {"mode": "compile"},
            "cannot be timed one by one; profile the model with mode=eager",
        ),
        ("torchscript", {"freeze": "1"}, "torch's profiler does not see them"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    program: Path, tmp_path: Path, kind: str, options: dict[str, str], sentence: str
) -> None:
    path = program if kind == "torch-export" else torch_nets.scripted(tmp_path)
    with Worker(TORCH) as worker:
        worker.ask(
            "load", groups=[[]], layout="each", threads=1, cores=1, scheduler="single_stream", pinning="none",
            batch_size=1, outputs=[], model=str(path), kind=kind, options=options,
            shapes={"x": list(torch_nets.SHAPE)},
        )  # fmt: skip
        heads, blocks = protocol.pack_arrays(torch_nets.INPUTS)
        worker.ask("inputs", blocks, arrays=heads)
        with pytest.raises(BadInput, match=sentence):
            worker.ask("layers", seconds=0.01, imposed_sparsity=None, folder=str(tmp_path))


def test_no_stamp_of_the_last_calls_is_lost(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inferlab.child.engines import torch as torch_layers
    from inferlab.child.engines.torch import files as torch_files

    read = torch_files.read_exported(str(program))
    weights = [*read.state_dict.values()]
    inputs = [torch.from_numpy(value) for value in torch_nets.INPUTS.values()]

    class Clock:
        """Every look at it takes a nanosecond, and a tenth of a second."""

        now = 0

        def perf_counter_ns(self) -> int:
            self.now += 1
            return self.now

        def perf_counter(self) -> float:
            self.looks = getattr(self, "looks", 0) + 1
            return self.looks / 10

    monkeypatch.setattr(torch_layers, "time", Clock())
    graph = read.graph_module
    for seconds in (0.35, 0.45, 0.55, 0.65):
        found = torch_layers.program_times(graph, lambda run: lambda: run(*weights, *inputs), seconds)
        assert [one["ns"] for one in found["layers"]] == [1.0] * len(found["layers"])
        assert found["wall_ns"] == len(found["layers"]) + 1
