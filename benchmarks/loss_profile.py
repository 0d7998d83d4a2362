"""The loss profile of MobileNetV2, all layers and levels on 8 inputs: inferlab's time against a session for each.

Interleaved: inferlab's own, and a fresh session for every layer and level, made of the model with that one weight
pruned, with all cores as its threads. Prints the ratio of both times and the largest difference.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from inferlab import machine
from inferlab.child.pruning import smallest
from inferlab.lab import read_model
from inferlab.model.datasets import Data, generate_data
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs
from inferlab.model.shapes import resolve
from inferlab.profiling.loss import layers_to_prune, measure
from inferlab.records import Model
from inferlab.records.profile import LEVELS

MODEL = "demo:mobilenet_v2"

Losses = dict[str, list[float | None]]


def a_session_each(model: Model, counted: Costs, data: Data, num_cores: int) -> Losses:
    """The same losses, from a session for every layer and level."""
    proto = onnx.load(model.path)
    tensors = {one.name: one for one in proto.graph.initializer}
    dense = _outputs(proto, data, num_cores)
    power = sum(float(np.square(one, dtype=np.float64).sum()) for one in dense)
    found: Losses = {}
    for node in layers_to_prune(counted):
        tensor = tensors[node.weight]
        original = tensor.raw_data
        values = numpy_helper.to_array(tensor)
        found[node.weight] = []
        for level in LEVELS:
            pruned = values.copy()
            pruned.reshape(-1)[smallest(values, level)] = 0
            tensor.raw_data = pruned.tobytes()
            outputs = _outputs(proto, data, num_cores)
            change = sum(
                float(np.square(a - b, dtype=np.float64).sum()) for a, b in zip(outputs, dense, strict=True)
            )
            found[node.weight].append(change / power)
        tensor.raw_data = original
    return found


def _outputs(proto: onnx.ModelProto, data: Data, num_cores: int) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(one))[0] for one in data.sets]


def main(rounds: int = 3) -> None:
    """Compare both on all cores."""
    num_cores = machine.usable_cores()
    model = read_model(MODEL)
    shapes = resolve(model.inputs, 8, None, {}).shapes
    counted, data = costs(model, shapes), generate_data(model.inputs, shapes)
    ratios, differences = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        ours = measure(model, counted, data, num_cores=num_cores)
        middle = time.perf_counter()
        theirs = a_session_each(model, counted, data, num_cores)
        ended = time.perf_counter()
        pairs = [pair for one in ours.layers for pair in zip(one.losses.values(), theirs[one.weight], strict=True)]
        assert len(pairs) == len(theirs) * len(LEVELS)
        differences.append(max(abs(a - b) for a, b in pairs if a is not None and b is not None))
        ratios.append((ended - middle) / (middle - started))
        print(
            f"# {MODEL}: {len(theirs)} layers × {len(LEVELS)} levels × {data.items} inputs on {num_cores} cores: "
            f"inferlab {middle - started:.1f} s, a session each {ended - middle:.1f} s, "
            f"largest difference {differences[-1]:.1e}",
            flush=True,
        )
    print(f"loss profile, a session each / inferlab: {statistics.median(ratios):.2f} (at least 5)")
    print(f"loss profile, largest difference of a loss: {max(differences):.1e} (at most 1e-4)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
