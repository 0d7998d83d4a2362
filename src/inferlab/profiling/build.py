"""Make the profiles of a model, one after the other; each is there as soon as it is done."""

from __future__ import annotations

import datetime
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from inferlab.errors import InferlabError
from inferlab.measure.check import worst
from inferlab.measure.paired import ComparisonJob, compare
from inferlab.measure.prepare import Job, cpus_of
from inferlab.model.datasets import ITEMS, Data, generate_data
from inferlab.model.flops.costs import Costs
from inferlab.model.shapes import resolve
from inferlab.profiling import loss, performance, roofline
from inferlab.profiling.estimate import with_estimate
from inferlab.profiling.flops import flops_profile
from inferlab.profiling.options import Request
from inferlab.records import Event, Finding, Listener, Model
from inferlab.records.profile import FORMAT, LEVELS, PerformanceProfile, Profile, PruningEstimate, Verified
from inferlab.transform.prune import prune
from inferlab.version import __version__

# About what a loss profile may take where the user has no data of his own, and what a core computes in a second.
_LOSS_S = 120.0
_FLOPS_A_CORE = 40e9
# Of many inputs of the user's own, those are used that fit into so many times the measuring time of a part.
_LOSS_LIMIT = 60.0
# Zeros make no model slower: a level that takes so much longer was disturbed.
_ODD = 1.25


def build_profile(request: Request, listener: Listener) -> Iterator[Profile]:
    """The profile as it grows: what the architecture says, then what was measured, each with its estimate.

    What an engine or a model cannot do is a sentence in `problems`; the other parts are made all the same.
    """
    wanted, costs = request.wanted, None
    profile = Profile(
        format=FORMAT,
        inferlab=__version__,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=request.job.model,
        flops=None,
        performance=None,
        loss=None,
    )
    listener(Event("counting"))
    try:
        costs = _costs(request.job)
        profile = _in_theory(request, costs, profile)
    except InferlabError as error:
        profile = _with_problem(profile, error)
    yield with_estimate(profile, wanted.budget)
    parts = [_performance] if wanted.performance else []
    # A torch model, or one without weights, has nothing that could be pruned; that is no fault.
    prunable = costs is not None and request.job.model.kind == "onnx" and bool(loss.layers_to_prune(costs))
    parts += [_loss] if wanted.loss and prunable else []
    for part in parts:
        try:
            for grown in part(request, costs or Costs(()), profile, listener):
                profile = grown
                yield with_estimate(profile, wanted.budget)
        except InferlabError as error:
            profile = _with_problem(profile, error)
            yield with_estimate(profile, wanted.budget)
    if wanted.verify:
        profile = with_estimate(profile, wanted.budget)
        if not can_verify(profile.estimate):
            # That there is nothing to gain is an answer, not a failure.
            listener(Event("nothing-to-verify"))
            return
        try:
            yield _verified(request, profile, listener)
        except InferlabError as error:
            yield _with_problem(profile, error)


def _with_problem(profile: Profile, error: InferlabError) -> Profile:
    return replace(profile, problems=(*profile.problems, str(error)))


def _costs(job: Job) -> Costs:
    """What the nodes cost by the architecture alone."""
    model, shapes = job.model, dict(job.cell.shapes)
    if model.kind == "onnx":
        from inferlab.model.flops.count import costs

        return costs(model, shapes)
    if model.kind == "openvino":
        raise InferlabError(
            "An OpenVINO model has no FLOPS and no loss profile. Profile the ONNX file that it was made from."
        )
    from inferlab.model.flops.costs import torch_costs

    return torch_costs(model, shapes, job.inputs[0], dict(job.cell.engine_options))


def _in_theory(request: Request, costs: Costs, profile: Profile) -> Profile:
    cell, model = request.job.cell, request.job.model
    flops = flops_profile(costs, cell.batch_size, dict(cell.shapes))
    wanted = request.wanted
    approximated = model.kind == "onnx" and (wanted.loss or wanted.approximate)
    predicted = loss.approximate(model, costs, wanted.loss_name) if approximated else None
    return replace(profile, flops=flops, loss=predicted)


def _performance(request: Request, costs: Costs, profile: Profile, listener: Listener) -> Iterator[Profile]:
    job, wanted = request.job, request.wanted
    imposes = performance.can_impose(job)
    levels = wanted.levels if wanted.levels is not None else LEVELS if imposes else ()
    imposed = levels if imposes else ()
    measured = performance.measure(job, costs, wanted.time_s, wanted.performance_name, imposed, listener)
    measured = _with_odd_levels(measured)
    yield replace(profile, performance=measured)
    if levels and not imposes:
        measured = _with_odd_levels(
            performance.measure_levels(job, costs, measured, levels, wanted.time_s, listener)
        )
        yield replace(profile, performance=measured)
    if wanted.int8:
        calibration = [dict(inputs) for inputs in data_for(request).sets]
        measured = performance.measure_int8(job, costs, measured, calibration, wanted.time_s, listener)
        yield replace(profile, performance=measured)
    if wanted.roofline:
        cpus = cpus_of(job.cell) if job.cell.thread_pinning == "core" else ()
        ceilings = roofline.measure_ceilings(job.cell.num_cores, listener, cpus=cpus)
        layers, doubts = roofline.place_all(measured.layers, ceilings)
        measured = replace(measured, ceilings=ceilings, layers=layers, findings=(*measured.findings, *doubts))
        yield replace(profile, performance=measured)


def _with_odd_levels(profile: PerformanceProfile) -> PerformanceProfile:
    odd = [level for level, ms in profile.pruned.items() if ms > _ODD * profile.ms_per_batch]
    return (
        replace(profile, findings=(*profile.findings, Finding("odd-levels", {"levels": odd}))) if odd else profile
    )


def _loss(request: Request, costs: Costs, profile: Profile, listener: Listener) -> Iterator[Profile]:
    job, wanted = request.job, request.wanted
    data = data_for(request, _items(costs, job))
    measured_loss = loss.measure(
        job.model,
        costs,
        data,
        listener,
        num_cores=job.cell.num_cores,
        seconds=_LOSS_LIMIT * wanted.time_s,
        name=wanted.loss_name,
    )
    yield replace(profile, loss=measured_loss)


def _items(costs: Costs, job: Job) -> int:
    """Fewer generated inputs for a large model: pruning every layer must not take hours."""
    each = sum(node.flops or 0 for node in costs.nodes) / job.cell.batch_size
    # A layer is tried on what follows it, which is half of the model on the average.
    flops = 0.5 * each * len(LEVELS) * len(loss.layers_to_prune(costs))
    affordable = _LOSS_S * _FLOPS_A_CORE * job.cell.num_cores / max(1.0, flops)
    return max(1, min(ITEMS, int(affordable)))


def data_for(request: Request, items: int = ITEMS) -> Data:
    """The user's inputs, or so many generated ones at the shapes that the model itself takes."""
    if request.data is not None:
        return request.data
    job, cell = request.job, request.job.cell
    shapes = dict(cell.shapes)
    if job.rewrite_batch is not None:
        shapes = resolve(job.model.inputs, None, cell.sequence_length, {}).shapes
    return generate_data(job.model.inputs, shapes, items, seed=cell.seed)


def _verified(request: Request, profile: Profile, listener: Listener) -> Profile:
    job = request.job
    assert profile.estimate is not None and profile.loss is not None
    data = data_for(request, profile.loss.items)
    verified = verify(
        job,
        profile.estimate,
        lambda pruned: loss.evaluate(pruned, job.model, data, job.cell.num_cores).loss,
        request.wanted.time_s,
        listener,
    )
    return replace(profile, estimate=verified)


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
        contest = ComparisonJob(job, changed, ("dense", "pruned"), _LOADING * time_s, _MARGIN)
        comparison = compare(contest, listener)
        loss = loss_of(pruned)
    dense_ms = statistics.median(comparison.times_ms[0]) * job.cell.batch_size
    ratio = comparison.ratio
    ends = None if ratio.ends is None else (ratio.ends[0] * dense_ms, ratio.ends[1] * dense_ms)
    # Ratios, not times: the machine may have become slower since the profile was made.
    predicted = estimate.estimated_ms_per_batch / estimate.ms_per_batch
    verified = Verified(
        ms_per_batch=ratio.value * dense_ms,
        ms_interval=ends,
        baseline_ms_per_batch=dense_ms,
        error=predicted / ratio.value - 1,
        loss=loss,
        output_check=worst([pair.b.check for pair in comparison.pairs]),
    )
    return replace(estimate, verified=verified)
