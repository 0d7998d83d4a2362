"""The times that an estimate speaks of against those of the models that its recipes make, interleaved.

Models are those that inferlab reads, and foreign networks by their names in `loss_profile`, such as g2p_bert.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.loss_profile import NETWORKS
from inferlab.engines import registry
from inferlab.errors import InferlabError
from inferlab.lab import Lab, read_model
from inferlab.measure.cells import jobs
from inferlab.profiling.build import Request, data_for, verify
from inferlab.profiling.gains import gain_recipe, with_estimate
from inferlab.records import Plan, ignore
from inferlab.records.profile import Gain, Profile, ProfileOptions
from inferlab.views.text import what_is_done
from tests.helpers.real_models import one as real_model

MODELS = ("demo:resnet50", "demo:mobilenet_v2", "demo:bert_3layer")
ENGINES = ("onnxruntime", "openvino", "mnn", "deepsparse")
# The built-in models have random weights, so that changing them costs more than it would a trained model.
_BUDGETS = (0.1, 1.0, 5.0)


def main() -> None:
    """Print every gain of every engine beside what its model takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--cores", type=int, help="all by default")
    parser.add_argument("--time", type=float, default=10.0, help="seconds of measuring for each part of a profile")
    parser.add_argument(
        "--verify-time", type=float, default=20.0, help="seconds for holding a model to its estimate"
    )
    arguments = parser.parse_args()
    print(
        f"{'model':26} {'engine':11} {'what':38} {'loss':>7} {'estimated':>9} {'measured':>9} {'from':>7} "
        f"{'to':>7} {'error':>7}",
        flush=True,
    )
    there = {engine.name for engine in registry.list_engines() if engine.state == "ready"}
    for name in arguments.models:
        network = NETWORKS.get(name)
        source = str(real_model(network.source, network.ending)) if network and network.ending else name
        for engine in (engine for engine in arguments.engines if engine in there):
            plan = Plan(source, engines=(engine,), scenarios=("sync",), num_cores=(arguments.cores,), verify=False)
            try:
                profile = Lab().profile(plan, ProfileOptions(loss=False, time_s=arguments.time))
                for shown, gain in _gains(profile):
                    _compare(name, plan, shown, gain, arguments.verify_time)
            except InferlabError as error:
                print(f"{name:26} {engine:11} {error}", flush=True)


def _gains(profile: Profile) -> list[tuple[Profile, Gain]]:
    """What is estimated at each budget, each change once."""
    gains: dict[str, tuple[Profile, Gain]] = {}
    for budget in _BUDGETS:
        estimated = with_estimate(profile, budget)
        for gain in estimated.gains:
            gains.setdefault(what_is_done(gain), (estimated, gain))
    return list(gains.values())


def _compare(name: str, plan: Plan, profile: Profile, gain: Gain, verify_s: float) -> None:
    (job,) = jobs(replace(plan, time_s=verify_s), read_model(plan.model))
    recipe = gain_recipe(profile, gain)
    assert recipe is not None
    data = data_for(Request(job, ProfileOptions()))
    verified = verify(job, recipe, 1 / gain.speedup, data, verify_s / 3, {}, ignore)
    loss = float("nan") if gain.loss is None else gain.loss
    ends = verified.ms_interval or (float("nan"), float("nan"))
    before = verified.baseline_ms_per_batch
    print(
        f"{name:26} {plan.engines[0]:11} {what_is_done(gain):38} {loss:7.3f} "
        f"{gain.speedup:8.2f}x {before / verified.ms_per_batch:8.2f}x {before / ends[1]:6.2f}x "
        f"{before / ends[0]:6.2f}x {100 * verified.error:+6.1f}%",
        flush=True,
    )


if __name__ == "__main__":
    main()
