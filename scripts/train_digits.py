"""Train the CNN behind demo:digits again, and write it with its held-back data into the package.

Needs torch and scikit-learn. The same versions on the same processor write the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 0
EPOCHS = 60
BATCH = 32
FOLDER = Path(__file__).resolve().parents[1] / "src" / "inferlab" / "model" / "data"

Array = NDArray[Any]


def main() -> None:
    """Load, train, write, and say how well the model does on what it never saw."""
    images, labels, held_images, held_labels = load()
    network = train(images, labels)
    FOLDER.mkdir(exist_ok=True)
    onnx.save(to_onnx(network), str(FOLDER / "digits.onnx"))
    np.savez_compressed(FOLDER / "digits.npz", image=held_images, labels=held_labels)
    with torch.no_grad():
        answers = network(torch.from_numpy(held_images)).argmax(1).numpy()
    parameters = sum(weight.numel() for weight in network.parameters())
    print(f"{parameters} parameters, trained on {len(labels)} digits")
    print(f"held-back accuracy: {(answers == held_labels).mean():.2%} of {len(held_labels)}")


def load() -> tuple[Array, Array, Array, Array]:
    """The digits, pixels from 0 to 1, 70 % to train with and 30 % held back."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    train_images, held_images, train_labels, held_labels = train_test_split(
        images, labels, test_size=0.3, random_state=SEED, stratify=labels
    )
    return train_images, train_labels, held_images, held_labels


def train(images: Array, labels: Array) -> Any:
    """Train on images that are shifted by up to one pixel, at random."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
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
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(y)).split(BATCH):
            down, right = (int(torch.randint(-1, 2, ())) for _ in "yx")
            shifted = shift(x[chosen], down, right)
            loss = torch.nn.functional.cross_entropy(network(shifted), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return network


def shift(images: Any, down: int, right: int) -> Any:
    """The images moved by whole pixels, black where nothing was."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    return padded[:, :, 1 - down : 9 - down, 1 - right : 9 - right]


def to_onnx(network: Any) -> onnx.ModelProto:
    """The network as an ONNX graph that DeepSparse 1.8 loads too: IR version 8, opset 13."""
    weights = {key: value.detach().numpy() for key, value in network.state_dict().items()}
    pads, kernel = [1, 1, 1, 1], [3, 3]
    nodes = [
        helper.make_node(
            "Conv", ["image", "0.weight", "0.bias"], ["conv1"], "conv1", pads=pads, kernel_shape=kernel
        ),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node(
            "Conv", ["relu1", "2.weight", "2.bias"], ["conv2"], "conv2", pads=pads, kernel_shape=kernel
        ),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("MaxPool", ["relu2"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "6.weight", "6.bias"], ["dense"], "dense", transB=1),
        helper.make_node("Relu", ["dense"], ["relu3"], "relu3"),
        helper.make_node("Gemm", ["relu3", "8.weight", "8.bias"], ["logits"], "classifier", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, ir_version=8, opset_imports=[opset], producer_name="inferlab")
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    main()
