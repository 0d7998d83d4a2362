"""What a loss budget leaves to remove: one share of channels for all layers against shares chosen by group.

    python -m benchmarks.channel_shares demo:mobilenet_v2 demo:resnet50

Everything is counted, nothing timed: the loss is that of copies that are really made, on 2 generated inputs, what
is left is their share of the model's FLOPs. Shares are chosen by the FLOPs of the layers. A choice whose copy
loses more than the budget is made again with as much less.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from inferlab.lab import read_model
from inferlab.model.flops.count import costs
from inferlab.model.inputs import generate_data
from inferlab.model.shapes import resolve
from inferlab.profiling.channel_shares import best_shares
from inferlab.profiling.loss import approximate, evaluate, layers_to_prune, measure_channels
from inferlab.profiling.zeros import usual_weights
from inferlab.transform.channels import prune_channels
from inferlab.transform.cleanup import clean_up

UNIFORM = (0.05, 0.1, 0.25, 0.5)
BUDGETS = (0.1, 0.3)
_ITEMS = 2
_TRIES = 3


def compare(source: str) -> None:
    """Print what copies with one share for all, and with shares by group, lose and leave."""
    model = read_model(source)
    shapes = resolve(model.inputs, 1, None, {}).shapes
    counted = costs(model, shapes)
    weights = usual_weights(layers_to_prune(counted))
    data = generate_data(model.inputs, shapes, _ITEMS, seed=0)
    groups, kept = measure_channels(model, weights, data)
    print(f"{source}: {len(groups)} groups of channels, {len(kept)} weights keep theirs")
    whole = sum(node.flops or 0 for node in counted.nodes)
    flops = {node.weight: node.flops or 0 for node in counted.nodes if node.weight}
    losses = approximate(model, counted)
    layers = tuple(replace(layer, params=flops.get(layer.weight, 0)) for layer in losses.layers)
    losses = replace(losses, layers=layers, groups=groups)
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        cleaned = clean_up(model, Path(folder) / "clean").model

        def made(name: str, shares: Mapping[str, float]) -> float:
            copy = prune_channels(cleaned, shares, Path(folder) / name).model
            loss = evaluate(copy, model, data).loss or 0.0
            left = sum(node.flops or 0 for node in costs(copy, shapes).nodes) / whole
            print(f"  {name:28}  loss {loss:6.3f}  FLOPs left {left:6.1%}", flush=True)
            return loss

        for share in UNIFORM:
            made(f"{share:.0%} of all layers", dict.fromkeys(weights, share))
        for budget in BUDGETS:
            allowed = budget
            for number in range(_TRIES):
                best = best_shares(None, losses, allowed)
                if best is None:
                    break
                loss = made(f"by group within {budget:g}, {number + 1}", best.shares)
                if loss <= budget:
                    break
                allowed *= budget / loss


if __name__ == "__main__":
    for name in sys.argv[1:]:
        compare(name)
