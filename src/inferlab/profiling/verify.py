"""Make the model that an estimate speaks of, measure it in turns with the original, and hold both side by side."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from inferlab.measure.check import worst
from inferlab.measure.compare import Contest, compare
from inferlab.measure.setup import Job
from inferlab.records import Event, Listener, Model
from inferlab.records.profile import PruningEstimate, Verified
from inferlab.transform.prune import prune

# A comparison counts its time with loading, and each pair loads both models.
_LOADING = 3.0
_MARGIN = 0.01


def can_verify(estimate: PruningEstimate | None) -> bool:
    """Whether there is a model to make: the estimate prunes some layer, and says how long it would take."""
    return (
        estimate is not None
        and bool(estimate.levels)
        and estimate.estimated_ms_per_batch is not None
        and estimate.ms_per_batch is not None
    )


def verify(
    job: Job,
    estimate: PruningEstimate,
    loss_of: Callable[[Model], float | None],
    time_s: float,
    listener: Listener,
) -> PruningEstimate:
    """The estimate with what the model that it speaks of really does; `loss_of` says what its changes cost."""
    assert can_verify(estimate)
    assert estimate.estimated_ms_per_batch is not None
    assert estimate.ms_per_batch is not None
    listener(Event("verifying", {"layers": len(estimate.levels)}))
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        pruned = prune(job.model, estimate.levels, Path(folder))
        changed = replace(job, model=pruned, cell=replace(job.cell, model_digest=pruned.digest))
        contest = Contest(job, changed, ("dense", "pruned"), _LOADING * time_s, _MARGIN)
        found = compare(contest, listener)
        loss = loss_of(pruned)
    dense_ms = statistics.median(found.times_ms[0]) * job.cell.batch_size
    ratio = found.ratio
    ends = None if ratio.ends is None else (ratio.ends[0] * dense_ms, ratio.ends[1] * dense_ms)
    # Ratios, not times: the machine may have become slower since the profile was made.
    foretold = estimate.estimated_ms_per_batch / estimate.ms_per_batch
    verified = Verified(
        ms_per_batch=ratio.value * dense_ms,
        ms_interval=ends,
        baseline_ms_per_batch=dense_ms,
        error=foretold / ratio.value - 1,
        loss=loss,
        output_check=worst([pair.b.check for pair in found.pairs]),
    )
    return replace(estimate, verified=verified)
