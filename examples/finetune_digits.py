"""Prune the CNN of demo:digits to 90 %, and train it back to its accuracy while what is pruned stays zero.

Needs torch (pip install 'inferlab[torch]') and scikit-learn, whose digits it trains on; takes some seconds:

    python examples/finetune_digits.py finetuned.onnx

The accuracy is that on the held-back digits, which neither the model nor this training ever saw.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import inferlab
from inferlab.model import reading
from inferlab.records.optimization import Pruning, Recipe, Schedule
from inferlab.training import Pruner

BATCH = 32
# As `inferlab optimize demo:digits --sparsity 0.9 -o pruned.onnx` writes it beside the pruned model; there it is
# read by its file's name: Pruner(network, "pruned.recipe.yaml", …).
RECIPE = Recipe(
    model="demo:digits",
    pruning=Pruning(sparsity=0.9, layers={"2.weight": 0.9, "6.weight": 0.9}),
    schedule=Schedule(end_epoch=8.0, epochs=16.0, learning_rates=((0.0, 2e-3), (12.0, 5e-4))),
)


def main(target: Path) -> dict[str, float]:
    """Prune at once, then prune while training, and write the model that was trained; the accuracy of each."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dense, pruned, tuned = load_network(), load_network(), load_network()
    optimizer = torch.optim.AdamW(pruned.parameters())
    Pruner(pruned, RECIPE, optimizer, steps_per_epoch=1).finalize()
    zeros = fine_tune(tuned)
    inferlab.export_to_onnx(tuned, target, (torch.zeros(1, 1, 8, 8),))
    accuracies = {"dense": accuracy(dense), "pruned": accuracy(pruned), "fine-tuned": accuracy(tuned)}
    for name, right in accuracies.items():
        print(f"{name:>10}: {right:.2%} of the held-back digits are right")
    for weight, share in zeros.items():
        print(f"{weight}: {share:.2%} zeros, and {exported_zeros(target, weight):.2%} in {target}")
    return accuracies


def load_network() -> Any:
    """The network of demo:digits in PyTorch, with the weights of its ONNX file."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 48),
        torch.nn.ReLU(),
        torch.nn.Linear(48, 10),
    )
    stored = onnx.load(str(reading.build_demo("digits"))).graph.initializer
    network.load_state_dict({tensor.name: torch.tensor(numpy_helper.to_array(tensor)) for tensor in stored})
    return network


def fine_tune(network: Any) -> dict[str, float]:
    """Train as long as the recipe says, pruning on its schedule; the sparsity of each weight."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    # The same split as demo:digits was trained with: what it held back stays held back.
    x, _, y, _ = train_test_split(
        images, digits.target.astype(np.int64), test_size=0.3, random_state=0, stratify=digits.target
    )
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
    pruner = Pruner(network, RECIPE, optimizer, steps_per_epoch=-(-len(y) // BATCH))
    with pruner:
        while pruner.epoch < pruner.epochs:
            for chosen in torch.randperm(len(y)).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(shifted(x[chosen])), y[chosen]).backward()
                optimizer.step()
                pruner.step()
    return pruner.sparsities


def shifted(images: Any) -> Any:
    """The images moved by up to one pixel, at random, as the network was trained with."""
    down, right = (int(torch.randint(0, 3, ())) for _ in "yx")
    return torch.nn.functional.pad(images, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]


def accuracy(network: Any) -> float:
    """The share of the held-back digits that the network tells right."""
    with np.load(reading.digits_data()) as held, torch.no_grad():
        answers = network(torch.from_numpy(held["image"])).argmax(1).numpy()
        return float((answers == held["labels"]).mean())


def exported_zeros(target: Path, weight: str) -> float:
    """The sparsity of a weight in an ONNX file."""
    (stored,) = (tensor for tensor in onnx.load(str(target)).graph.initializer if tensor.name == weight)
    return float((numpy_helper.to_array(stored) == 0).mean())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "finetuned.onnx"))
