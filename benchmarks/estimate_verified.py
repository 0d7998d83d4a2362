"""The time that pruning was estimated to give on DeepSparse against that of the pruned model, interleaved."""

from __future__ import annotations

from dataclasses import replace

from inferlab.lab import Lab, read_model
from inferlab.measure.cells import jobs
from inferlab.measure.prepare import Job
from inferlab.model.datasets import Data
from inferlab.profiling import loss
from inferlab.profiling.build import data_for, verify
from inferlab.profiling.estimate import estimate
from inferlab.profiling.options import Request
from inferlab.records import Model, Plan, ignore
from inferlab.records.profile import ProfileOptions

_MODELS = ("demo:resnet50", "demo:bert_3layer")
# The built-in models have random weights, so that pruning them costs more than it would a trained model.
_BUDGETS = (0.1, 1.0, 5.0)


def main(time_s: float = 60.0, verify_s: float = 30.0) -> None:
    """Print estimate and measurement side by side at three budgets."""
    print("model             budget  layers  zeros  dense ms  estimated ms  measured ms (interval)  error")
    for name in _MODELS:
        plan = Plan(name, engines=("deepsparse",), scenarios=("sync",), verify=False)
        profile = Lab().profile(plan, ProfileOptions(time_s=time_s))
        assert profile.performance is not None and profile.loss is not None, profile.problems
        (job,) = jobs(replace(plan, time_s=time_s), read_model(name))
        data = data_for(Request(job, ProfileOptions()))

        def loss_of(pruned: Model, job: Job = job, data: Data = data) -> float | None:
            return loss.evaluate(pruned, job.model, data).loss

        for budget in _BUDGETS:
            found = estimate(profile.performance, profile.loss, budget)
            assert found is not None
            if not found.levels:
                print(f"{name:16}  {budget:6g}  nothing is pruned within this budget")
                continue
            done = verify(job, found, loss_of, verify_s, ignore).verified
            assert done is not None
            # As in --verify, the estimate is held to the dense model's time of the same comparison.
            predicted = (
                (found.estimated_ms_per_batch or 0) / (found.ms_per_batch or 1) * done.baseline_ms_per_batch
            )
            low, high = done.ms_interval or (float("nan"), float("nan"))
            print(
                f"{name:16}  {budget:6g}  {len(found.levels):6}  {100 * found.parameter_reduction:4.0f}%  "
                f"{done.baseline_ms_per_batch:8.2f}  {predicted:12.2f}  "
                f"{done.ms_per_batch:11.2f} ({low:.2f} to {high:.2f})  {100 * done.error:+6.1f}%",
                flush=True,
            )


if __name__ == "__main__":
    main()
