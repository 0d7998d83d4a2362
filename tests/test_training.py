"""Pruning while a real PyTorch module is trained."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load, numpy_helper, save

from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.model.onnx_file import read_onnx
from inferlab.optimizing import recipes
from inferlab.records.optimization import Pruning, Recipe, Schedule
from inferlab.transform.prune import prune

torch: Any = pytest.importorskip("torch")
from inferlab.training import Pruner  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples" / "finetune_digits.py"
AT_ONCE = Schedule(start_epoch=0.0, end_epoch=0.0, epochs=2.0, learning_rates=())


def load_example() -> Any:
    """The example as a module."""
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("finetune_digits", EXAMPLE)
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def a_net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def recipe(level: float = 0.75, pattern: str = "unstructured", schedule: Schedule = AT_ONCE) -> Recipe:
    return Recipe(pruning=Pruning(pattern=pattern, layers={"0.weight": level}), schedule=schedule)


def train(net: Any, optimizer: Any, pruner: Pruner, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(32, 16)).square().sum().backward()
        optimizer.step()
        pruner.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=0.01),
        lambda weights: torch.optim.AdamW(weights, lr=0.01),
    ],
)
def test_what_is_pruned_stays_zero_through_momentum_and_the_rest_learns(make: Any) -> None:
    net = a_net()
    optimizer = make(net.parameters())
    train(net, optimizer, Pruner(net, recipe(0.25), optimizer, steps_per_epoch=4), 3)  # there is momentum by now
    pruner = Pruner(net, recipe(), optimizer, steps_per_epoch=4)
    zeros = net[0].weight == 0
    before = net[0].weight.detach().clone()
    assert int(zeros.sum()) == 96
    train(net, optimizer, pruner, 5)
    assert torch.equal(net[0].weight == 0, zeros)
    assert not torch.equal(net[0].weight[~zeros], before[~zeros])
    assert net[0].weight.grad[zeros].abs().max() == 0
    momenta = [one for one in optimizer.state[net[0].weight].values() if getattr(one, "shape", ()) == zeros.shape]
    assert momenta
    assert all(one[zeros].abs().max() == 0 for one in momenta)
    assert net[2].weight.count_nonzero() == net[2].weight.numel()


def test_the_smallest_go_first() -> None:
    net = a_net()
    sizes = net[0].weight.detach().abs().flatten()
    pruner = Pruner(net, recipe(0.5), steps_per_epoch=1)
    assert pruner.sparsities == {"0.weight": 0.5}
    kept = net[0].weight.detach().flatten() != 0
    assert sizes[kept].min() >= sizes[~kept].max()


def test_the_share_of_zeros_and_the_learning_rate_follow_the_schedule() -> None:
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = Schedule(
        start_epoch=1.0,
        end_epoch=2.0,
        update_frequency=0.5,
        initial_sparsity=0.25,
        epochs=3.0,
        learning_rates=((0.0, 0.01), (2.0, 0.001)),
    )
    pruner = Pruner(net, recipe(0.75, schedule=schedule), optimizer, steps_per_epoch=4)
    seen = []
    for _ in range(10):
        seen.append((pruner.epoch, round(128 * pruner.sparsities["0.weight"]), optimizer.param_groups[0]["lr"]))
        train(net, optimizer, pruner, 1)
    middle = int(128 * (0.75 - 0.5 * 0.5**3) + 0.5)
    counts = [0, 0, 0, 0, 32, 32, middle, middle, 96, 96]
    rates = [0.01] * 8 + [0.001] * 2
    assert seen == [(step / 4, *pair) for step, pair in enumerate(zip(counts, rates, strict=True))]


def test_of_every_four_inputs_of_an_output_two_are_zero_and_one_on_the_way() -> None:
    net = a_net()
    schedule = replace(AT_ONCE, end_epoch=1.0, update_frequency=0.5, initial_sparsity=0.25)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    pruner = Pruner(net, recipe(0.5, "2:4", schedule), optimizer, steps_per_epoch=2)
    for wanted in (1, 1, 2):
        assert ((net[0].weight.reshape(-1, 4) == 0).sum(1) == wanted).all()
        train(net, optimizer, pruner, 1)


def test_blocks_of_a_convolution_lie_along_its_input_channels() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 4, 3))
    Pruner(net, recipe(0.5, "block4"), steps_per_epoch=1).finalize()
    blocks = net[0].weight.detach().movedim(1, -1).reshape(-1, 4)
    counts = (blocks == 0).sum(1)
    assert set(counts.tolist()) == {0, 4}
    assert int((counts == 4).sum()) == 36


def test_leaving_finishes_the_pruning_unless_training_broke_off() -> None:
    late = replace(AT_ONCE, start_epoch=1.0, end_epoch=1.0)
    net, other = a_net(), a_net()
    with Pruner(net, recipe(schedule=late), steps_per_epoch=1) as pruner:
        assert pruner.sparsities["0.weight"] == 0
    assert pruner.sparsities["0.weight"] == 0.75
    with pytest.raises(RuntimeError), Pruner(other, recipe(schedule=late), steps_per_epoch=1) as pruner:
        raise RuntimeError
    assert pruner.sparsities["0.weight"] == 0
    net(torch.randn(2, 16)).sum().backward()
    assert net[0].weight.grad[net[0].weight == 0].abs().max() > 0  # the module is the user's own again


def test_a_recipe_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "small.recipe.yaml"
    path.write_text(recipes.dump(recipe()))
    assert Pruner(a_net(), path, steps_per_epoch=1).sparsities == {"0.weight": 0.75}


def test_names_that_end_alike_are_the_same_weight() -> None:
    net = torch.nn.ModuleDict({"backbone": a_net()})
    assert Pruner(net, recipe(), steps_per_epoch=1).sparsities == {"0.weight": 0.75}


def test_weights_without_a_parameter_are_listed_in_one_sentence() -> None:
    layers = {"0.weight": 0.5, "val_7": 0.5, "val_8": 0.5}
    unknown = Recipe(pruning=Pruning(layers=layers), schedule=AT_ONCE)
    with pytest.raises(BadInput, match=r"no parameter for 2 weights of the recipe: val_7, val_8\. Give the ONNX"):
        Pruner(a_net(), unknown, steps_per_epoch=1)
    names = {"val_7": "2.weight", "val_8": "0.bias"}
    assert Pruner(a_net(), unknown, steps_per_epoch=1, names=names).sparsities == layers


def test_weights_that_the_export_renamed_and_transposed_are_recognised(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    held = {f"val_{place}": net[place].weight.detach().numpy().T.copy() for place in range(3)}
    nodes = [
        helper.make_node("MatMul", [left, f"val_{place}"], [right])
        for place, (left, right) in enumerate([("x", "a"), ("a", "b"), ("b", "y")])
    ]
    graph = helper.make_graph(
        nodes,
        "renamed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    save(helper.make_model(graph), str(tmp_path / "net.onnx"))
    wanted = Recipe(pruning=Pruning(layers={"val_1": 0.5, "val_2": 0.25}), schedule=AT_ONCE)
    Pruner(net, wanted, steps_per_epoch=1, model=tmp_path / "net.onnx")
    assert [int((one.weight == 0).sum()) for one in net] == [0, 128, 16]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Recipe(), "prunes no weight by its name"),
        (Recipe(pruning=Pruning(sparsity=0.8)), "prunes no weight by its name"),
        (recipe(pattern="channel"), "gone from the optimised model"),
        (recipe(schedule=Schedule(start_epoch=9.0)), "must be in this order"),
    ],
)
def test_a_recipe_that_no_training_can_follow_is_refused(wrong: Recipe, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Pruner(a_net(), wrong, steps_per_epoch=1)


def test_the_digits_get_their_accuracy_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = load_example()
    short = Schedule(end_epoch=2.0, epochs=4.0, learning_rates=((0.0, 2e-3), (3.0, 5e-4)))
    monkeypatch.setattr(example, "RECIPE", replace(example.RECIPE, schedule=short))
    found = example.main(tmp_path / "tuned.onnx")
    assert found["pruned"] < 0.8
    assert found["fine-tuned"] > 0.95
    assert example.exported_zeros(tmp_path / "tuned.onnx", "6.weight") == np.float64(22118) / 24576


@pytest.mark.parametrize(("pattern", "level"), [("unstructured", 0.9), ("block4", 0.75), ("2:4", 0.5)])
def test_the_same_weights_become_zero_as_in_the_model_that_optimize_writes(
    tmp_path: Path, pattern: str, level: float
) -> None:
    original = read_onnx(reading.build_demo("digits"), "demo:digits")
    levels = {"2.weight": level, "6.weight": level}
    pruned = prune(original, levels, tmp_path, pattern)
    example = load_example()
    network = example.load_network()
    Pruner(network, Recipe(pruning=Pruning(pattern=pattern, layers=levels)), steps_per_epoch=1).finalize()
    written = {one.name: numpy_helper.to_array(one) for one in load(pruned.path).graph.initializer}
    for name, value in network.state_dict().items():
        assert np.array_equal(written[name], value.numpy()), name


def test_torch_is_not_imported_before_a_pruner_is_made() -> None:
    code = "import sys, inferlab.training; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
