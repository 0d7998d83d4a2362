"""A recipe with every field set."""

from __future__ import annotations

from inferlab.records.optimization import Pruning, Quantization, Recipe, Schedule

WHOLE = Recipe(
    model="model.onnx",
    digest="abc",
    cleanup=False,
    pruning=Pruning(
        0.8, "global", "block4", {"conv.weight": 0.123456, "ä b": 1e-6}, ("a.*",), ("7",), 0.1, 0.9, True
    ),
    quantization=Quantization("static", False, 8, (), ("conv",), 2, 16),
    data="data.npz",
    data_digest="def",
    seed=3,
    shapes={"x": (1, 3, 8, 8)},
    schedule=Schedule(1, 5, 0.25, 0.1, 8, ((0.0, 0.1), (4.0, 0.01))),
    inferlab="0.1.0",
)
