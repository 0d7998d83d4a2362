"""A comparison with every field set."""

from __future__ import annotations

from dataclasses import replace

from inferlab.records import Comparison, Estimate, Model, Pair
from tests.helpers.runs import a_cell, steady_run

MODEL = Model("onnx", "m.onnx", "/m.onnx", "d", (), (), 2048)
RUN = replace(steady_run(2.0, 100), versions={"inferlab": "0.1.0", "onnxruntime": "1.20"})
RATIO = Estimate(1.25, 1.2, 1.3, 0.98, "signed-rank")


COMPARISON = Comparison(
    labels=("old.onnx", "new.onnx"),
    ratio=RATIO,
    verdict="slower",
    margin=0.01,
    metric="median",
    seconds=12.5,
    outputs_match=True,
    output_error=1e-6,
    output_detail="y",
    settle_s=None,
    cells=(a_cell(), a_cell(seed=1)),
    models=(MODEL, MODEL),
    pairs=(Pair(RUN, RUN, 0.2), Pair(RUN, RUN, 0.24)),
    times_ms=((2.0, 2.1), (2.5, 2.6)),
)
