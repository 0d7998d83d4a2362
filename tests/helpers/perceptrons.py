"""Small models to optimise, whose weights are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from inferlab.model.inputs import Data, generate_data
from inferlab.records import Model
from tests.helpers.graphs import FLOAT, model_of, node, saved

#: The middle weight: magnitudes 1 to 36, with alternating signs.
MIDDLE = (np.arange(1, 37) * np.tile([1, -1], 18)).astype(np.float32).reshape(6, 6) / 10
SHAPES = {"x": (2, 4)}


def perceptron(folder: Path, **changed: Any) -> Model:
    """x · first → Relu → · middle → Relu → · late → Relu → · last; `changed` weights replace these."""
    folder.mkdir(exist_ok=True)
    weights = {
        "first": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6),
        "middle": MIDDLE,
        "late": MIDDLE * 10,
        "last": np.linspace(1, -1, 18, dtype=np.float32).reshape(6, 3),
    } | changed
    nodes = [
        node("MatMul", ["x", "first"], ["a"], name="one"),
        node("Relu", ["a"], ["b"], name="relu_one"),
        node("MatMul", ["b", "middle"], ["c"], name="two"),
        node("Relu", ["c"], ["d"], name="relu_two"),
        node("MatMul", ["d", "late"], ["e"], name="three"),
        node("Relu", ["e"], ["f"], name="relu_three"),
        node("MatMul", ["f", "last"], ["y"], name="four"),
    ]
    return saved(model_of(nodes, {"x": (FLOAT, ("n", 4))}, weights, opsets={"": 17}), folder)


def some_data(model: Model) -> Data:
    """A few generated inputs."""
    return generate_data(model.inputs, SHAPES, 4)
