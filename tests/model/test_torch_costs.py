"""What torch's operators cost: exact figures for programs, TorchScript and Hugging Face folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab import worker
from inferlab.model import reading
from inferlab.model.flops import costs
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.reading import inspect_foreign
from inferlab.records import Kind
from inferlab.worker import TORCH, Worker
from tests.helpers import berts, torch_nets

torch = pytest.importorskip("torch")

Ask = Callable[..., Costs]
IDS = {
    "input_ids": np.arange(32).reshape(2, 16),
    "attention_mask": np.array([[1] * 16, [1] * 12 + [0] * 4]),
    "token_type_ids": np.zeros((2, 16), np.int64),
}


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Costs of any model, told by one child for all of them."""
    root = tempfile.gettempdir()
    with Worker(replace(TORCH, reads=(root,), writes=(root,))) as child, pytest.MonkeyPatch.context() as patch:
        for module in (reading, worker):
            patch.setattr(module, "Worker", lambda *_, **__: nullcontext(child))

        def asked(path: Path, kind: Kind, inputs: dict[str, Any], **options: str) -> Costs:
            model = inspect_foreign(path, kind, path.name)
            shapes = {name: value.shape for name, value in inputs.items()}
            return costs.torch_costs(model, shapes, inputs, options)

        yield asked


@pytest.fixture(scope="module")
def program(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Costs:
    return ask(torch_nets.exported(tmp_path_factory.mktemp("program")), "torch-export", torch_nets.INPUTS)


@pytest.fixture(scope="module")
def script(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Costs:
    return ask(torch_nets.scripted(tmp_path_factory.mktemp("script")), "torchscript", torch_nets.INPUTS)


@pytest.fixture(scope="module")
def folder(ask: Ask) -> Costs:
    pytest.importorskip("transformers")
    return ask(berts.fp32(), "transformers", IDS)


def by_id(costs: Costs) -> dict[str, NodeCost]:
    return {node.id: node for node in costs.nodes}


def test_the_operators_of_a_program_are_its_nodes_in_order(program: Costs) -> None:
    assert [(node.index, node.id, node.name) for node in program.nodes] == list(
        zip(
            range(14),
            (
                "conv2d", "conv2d_1", "batch_norm", "relu", "max_pool2d", "flatten", "transpose",
                "scaled_dot_product_attention", "dropout", "linear", "softmax", "fft_rfft", "abs_1",
            ),
            ("stem", "depthwise", "norm", "", "", "", "", "", "head.0", "head.1", "", "", ""),
            strict=False,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "flops", "macs"),
    [
        # 8 x 8 positions, 3 x 3 x 3 weights into 8 channels, two items; then one channel into one.
        ("conv2d", 2 * 2 * 64 * 8 * 27, 2 * 64 * 8 * 27),
        ("conv2d_1", 2 * 2 * 64 * 8 * 9, 2 * 64 * 8 * 9),
        ("batch_norm", 2 * 2 * 8 * 64, 0),
        ("relu", 2 * 8 * 64, 0),
        ("max_pool2d", 4 * 2 * 8 * 16, 0),
        # Moving data is nothing, on purpose.
        ("flatten", 0, 0),
        ("transpose", 0, 0),
        ("dropout", 0, 0),
        # 16 positions of 8 with each other, twice.
        ("scaled_dot_product_attention", 2 * 2 * 2 * 16 * 16 * 8, 2 * 2 * 16 * 16 * 8),
        ("linear", 2 * 2 * 16 * 8 * 6, 2 * 16 * 8 * 6),
        ("softmax", 5 * 2 * 16 * 6, 0),
        ("abs_1", 2 * 16 * 4, 0),
    ],
)
def test_operations_are_counted_exactly(program: Costs, name: str, flops: int, macs: int) -> None:
    node = by_id(program)[name]
    assert (node.flops, node.macs, node.uncounted) == (flops, macs, "")


def test_an_operator_without_a_formula_is_uncounted_with_a_reason(program: Costs) -> None:
    node = by_id(program)["fft_rfft"]
    assert (node.flops, node.macs) == (None, None)
    assert node.uncounted == "torch has no formula for _fft_r2c"


def test_weights_bytes_and_groups_are_told(program: Costs) -> None:
    stem, depthwise, linear = [by_id(program)[name] for name in ("conv2d", "conv2d_1", "linear")]
    assert (stem.weight, stem.weight_shape, stem.params, stem.groups) == ("stem.weight", (8, 3, 3, 3), 224, 1)
    assert (stem.read_bytes, stem.weight_bytes, stem.write_bytes) == (4 * 600, 4 * 224, 4 * 1024)
    assert (depthwise.weight, depthwise.params, depthwise.groups) == ("depthwise.weight", 72, 8)
    assert (linear.weight, linear.zero_fraction, linear.prunable) == ("head.1.weight", 0.5, True)
    assert linear.inputs == ("dropout", "head.1.weight", "head.1.bias")
    assert (linear.outputs, linear.dtype) == (("linear",), "float32")
    norm, flat = by_id(program)["batch_norm"], by_id(program)["flatten"]
    assert (norm.params, norm.prunable) == (4 * 8, False)
    assert (flat.read_bytes, flat.write_bytes) == (0, 0)


def test_torchscript_costs_what_the_program_costs(program: Costs, script: Costs) -> None:
    def told(costs: Costs) -> list[Any]:
        return [
            (node.flops, node.macs, node.params, node.weight, node.groups, node.read_bytes) for node in costs.nodes
        ]

    assert told(script) == told(program)
    assert script.nodes[0].id == "convolution"
    assert script.nodes[0].name == "stem"


def test_a_frozen_module_has_constants_for_weights(ask: Ask, tmp_path: Path) -> None:
    frozen = torch.jit.freeze(torch.jit.load(torch_nets.scripted(tmp_path)).eval())
    frozen.save(tmp_path / "frozen.pt")
    found = ask(tmp_path / "frozen.pt", "torchscript", torch_nets.INPUTS)
    assert {node.weight_shape for node in found.nodes if node.weight} >= {(8, 3, 3, 3), (8, 1, 3, 3)}


def test_a_weight_is_found_behind_a_view_and_recurrent_layers_are_counted(ask: Ask, tmp_path: Path) -> None:
    class Recurrent(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 5, batch_first=True)
            self.out = torch.nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0] @ self.out.weight.t()

    path = tmp_path / "recurrent.pt2"
    torch.export.save(torch.export.export(Recurrent().eval(), (torch.ones(2, 3, 4),)), path)
    nodes = by_id(ask(path, "torch-export", {"x": np.ones((2, 3, 4), np.float32)}))
    assert nodes["lstm"].macs == 2 * 3 * 4 * 5 * (4 + 5)
    assert (nodes["lstm"].params, nodes["lstm"].weight_shape) == (220, (20, 5))
    # Turning the weight costs nothing and claims nothing.
    assert (nodes["t"].params, nodes["t"].flops) == (0, 0)
    assert (nodes["matmul"].weight, nodes["matmul"].params, nodes["matmul"].macs) == ("out.weight", 10, 60)


def test_a_folder_has_all_its_weights(folder: Costs) -> None:
    module = berts_module()
    wanted = {name for name, one in module.named_parameters() if one.dim() == 2}
    assert wanted <= {node.weight for node in folder.nodes}
    # Every parameter is read by exactly one operator.
    assert sum(node.params for node in folder.nodes) == sum(parameter.numel() for parameter in module.parameters())
    assert [node.uncounted for node in folder.nodes if node.uncounted] == []


def test_a_folder_is_counted_exactly(folder: Costs) -> None:
    words, hidden, inner, layers = 2 * 16, 128, 512, 2
    linear = layers * words * (4 * hidden * hidden + 2 * hidden * inner) + 2 * (hidden * hidden + 3 * hidden)
    attention = layers * 2 * words * 16 * hidden
    assert sum(node.macs or 0 for node in folder.nodes) == linear + attention
    query = next(node for node in folder.nodes if node.name == "bert.encoder.layer.0.attention.self.query")
    assert (query.type, query.flops) == ("linear", 2 * words * hidden * hidden)


def test_an_int8_folder_computes_in_int8(ask: Ask, folder: Costs) -> None:
    found = ask(berts.int8(), "transformers", IDS)
    linear = [node for node in found.nodes if node.type == "linear_dynamic"]
    assert {node.dtype for node in linear} == {"int8"}
    assert [(one.weight, one.macs, one.params) for one in linear] == [
        (node.weight, node.macs, node.params) for node in folder.nodes if node.type == "linear"
    ]
    assert linear[0].weight_bytes == 128 * 128 + 4 * 128


def test_the_head_is_left_out_where_the_engine_leaves_it_out(ask: Ask, folder: Costs) -> None:
    found = ask(berts.fp32(), "transformers", IDS, head="0")
    assert [node.flops for node in found.nodes] == [node.flops for node in folder.nodes[:-2]]


def berts_module() -> Any:
    import transformers

    return transformers.BertForSequenceClassification.from_pretrained(berts.fp32())
