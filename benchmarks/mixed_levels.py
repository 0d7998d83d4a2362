"""Are layers that are pruned to levels of their own as fast as where all layers have the same level?

An estimate of zeros takes each layer's time from measurements in which every layer had the same share of zeros.
For each budget the model is really made and profiled once more, layer by layer, on the same engine; a model in
which all layers have one level is made as a control. Prints, for the layers of each level, what they took dense,
as estimated and as made, and the same for the whole call: where the layers agree and the call does not, it is not
the layers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from inferlab.lab import Lab, read_model
from inferlab.profiling.zeros import estimate, layer_times, usual_weights
from inferlab.records import Plan
from inferlab.records.profile import LossProfile, PerformanceProfile, ProfileOptions
from inferlab.transform.prune import prune


def main() -> None:
    """Print a table for every budget, and for the control."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:bert_3layer")
    parser.add_argument("--engine", default="deepsparse")
    parser.add_argument("--cores", type=int, default=2, help="DeepSparse imposes levels on two or more")
    parser.add_argument("--time", type=float, default=20.0, help="seconds of measuring for each profile")
    parser.add_argument("--budgets", nargs="+", type=float, default=[1.0, 5.0])
    parser.add_argument("--control", type=float, default=0.9, help="the level that all layers have in the control")
    given = parser.parse_args()
    wanted = ProfileOptions(loss=False, estimate=False, time_s=given.time)
    levels = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)

    def profiled(source: str, options: ProfileOptions) -> tuple[PerformanceProfile, LossProfile]:
        plan = Plan(source, engines=(given.engine,), scenarios=("sync",), num_cores=(given.cores,), verify=False)
        profile = Lab().profile(plan, options)
        assert profile.performance and profile.loss, profile.problems
        return profile.performance, profile.loss

    every = ProfileOptions(loss=False, estimate=False, time_s=given.time, levels=levels)
    dense, loss = profiled(given.model, every)
    assert dense.pruned, dense.problems
    chosen = {f"budget {budget:g}": estimate(dense, loss, budget) for budget in given.budgets}
    cases: dict[str, Mapping[str, float]] = {name: found.levels for name, found in chosen.items() if found}
    cases[f"all at {given.control:g}"] = dict.fromkeys(usual_weights(loss.layers), given.control)
    with tempfile.TemporaryDirectory() as folder:
        for name, by_weight in cases.items():
            made = prune(read_model(given.model), by_weight, Path(folder) / name.replace(" ", "-"))
            show(f"{given.model}, {given.engine}, {name}", dense, profiled(made.path, wanted)[0], loss, by_weight)


def show(
    title: str,
    dense: PerformanceProfile,
    made: PerformanceProfile,
    loss: LossProfile,
    by_weight: Mapping[str, float],
) -> None:
    """One table: the layers of each level together, then the call."""
    estimated = layer_times(dense, loss, by_weight)
    really = {layer.id: layer.ms for layer in made.layers}
    weight_of = {layer.id: layer.weight for layer in loss.layers}
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for layer in dense.layers:
        its = sorted({by_weight.get(weight_of[node], 0.0) for node in layer.nodes if node in weight_of})
        level = "no weights" if not its else " and ".join(f"{level:g}" for level in its)
        times = (layer.ms, estimated[layer.index], really.get(layer.id, float("nan")))
        groups.setdefault(level, []).append(times)
    print(f"\n### {title}\n{'level':16} {'layers':>6} {'dense ms':>9} {'estimated':>9} {'made':>9} {'error':>7}")
    for level, layers in sorted(groups.items()):
        _line(level, len(layers), (sum(column) for column in zip(*layers, strict=True)))
    calls = dense.ms_per_batch, sum(estimated.values()), made.ms_per_batch
    _line("the call", len(dense.layers), calls)
    print(
        f"layers by the engine's own clock: dense {dense.layers_sum_ms:.3f} ms, made {made.layers_sum_ms:.3f} ms"
    )


def _line(level: str, count: int, times: Iterable[float]) -> None:
    before, estimated, made = times
    print(
        f"{level:16} {count:6} {before:9.3f} {estimated:9.3f} {made:9.3f} {100 * (estimated / made - 1):+6.1f}%",
        flush=True,
    )


if __name__ == "__main__":
    main()
