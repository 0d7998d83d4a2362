"""Make the profiles of a model, one after the other; each is there as soon as it is done."""

from __future__ import annotations

import datetime
import math
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from inferlab.errors import BadInput, InferlabError
from inferlab.measure.cells import Job, cpus_of
from inferlab.measure.check import worst
from inferlab.measure.paired import ComparisonJob, compare
from inferlab.model.flops.costs import Costs
from inferlab.model.inputs import ITEMS, Data, generate_data
from inferlab.profiling import loss, performance, roofline
from inferlab.profiling.copies import (
    ZEROS,
    measure_copies,
    measure_levels,
    measure_mixed_copies,
    measure_zeros_elsewhere,
    own_shapes,
    warmed_briefly,
)
from inferlab.profiling.gains import best_gain, check_budget, gain_recipe, outputs_are_wrong, with_estimate
from inferlab.profiling.layers import flops_profile
from inferlab.profiling.zeros import usual_weights
from inferlab.records import Event, Finding, Listener, ignore
from inferlab.records.comparison import Spreads
from inferlab.records.optimization import Recipe
from inferlab.records.profile import (
    FORMAT,
    LEVELS,
    NAME,
    LossProfile,
    PerformanceProfile,
    Profile,
    ProfileOptions,
    Verified,
)
from inferlab.transform.copies import apply_recipe
from inferlab.version import __version__

# About what a loss profile may take where the user has no data of his own, and what a core computes in a second.
_LOSS_S = 120.0
_FLOPS_A_CORE = 40e9
# Of many inputs of the user's own, those are used that fit into so many times the measuring time of a part.
_LOSS_LIMIT = 60.0
# Of the measuring time, for the model itself where copies of it are measured too: an estimate soon is worth more.
_WITH_COPIES = 0.5
# Of the measuring time, for levels of zeros that nobody asked for but the estimate.
_ZEROS_SHARE = 0.3
# Zeros make no model slower: a level that takes so much longer was disturbed.
_ODD = 1.25


@dataclass(frozen=True, slots=True)
class Request:
    """A model with all that is needed to profile it."""

    job: Job
    wanted: ProfileOptions
    #: The user's own inputs, with labels if there are any.
    data: Data | None = None
    #: How much pairs of processes are expected to differ.
    spreads: Spreads = field(default_factory=dict)


def validate_profile(wanted: ProfileOptions) -> None:
    """Refuse what cannot be profiled before anything is measured."""
    for level in wanted.levels or ():
        if not 0 < level < 1:
            raise BadInput(f"A sparsity level lies between 0 and 1, such as 0.9, not {level:g}.")
    if not 0 < wanted.time_s < math.inf:
        raise BadInput(f"The measuring time must be more than 0 seconds and finite, not {wanted.time_s:g}.")
    check_budget(wanted.budget)
    if wanted.verify and not wanted.performance:
        raise BadInput("--verify-estimate needs the performance profile: leave out --no-performance.")
    if not wanted.performance and (wanted.levels or wanted.int8 or wanted.roofline):
        raise BadInput("--levels, --int8 and --roofline belong to the performance profile, which is switched off.")
    if wanted.performance_name != NAME and not wanted.performance:
        raise BadInput("--performance-name belongs to the performance profile, which is switched off.")
    if wanted.data_file and not (wanted.loss or (wanted.performance and (wanted.int8 or wanted.estimate))):
        raise BadInput("--data is for the loss profile and the estimate, which are switched off, and for --int8.")


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
    profile = with_estimate(profile, wanted.budget)
    yield profile
    parts = [_performance] if wanted.performance else []
    # A torch model, or one without weights, has nothing that could be pruned; that is no fault.
    prunable = costs is not None and request.job.model.kind == "onnx" and bool(loss.layers_to_prune(costs))
    parts += [_loss] if wanted.loss and prunable else []
    both = wanted.performance and wanted.loss and wanted.estimate
    parts += [_mixed, _zeros_elsewhere] if both and prunable else []
    told = False
    for part in parts:
        try:
            for grown, ready in part(request, costs or Costs(()), profile, listener):
                profile = with_estimate(grown, wanted.budget)
                yield profile
                if ready and not told:
                    told = _tell_estimate(profile, listener)
        except InferlabError as error:
            profile = _with_problem(profile, error)
            yield profile
        if outputs_are_wrong(profile):
            return
        if part is _mixed and (not told or _has_shares(profile)):
            _tell_estimate(profile, listener, shares=True)
        elif part is _performance and not told:
            told = _tell_estimate(profile, listener)
    if wanted.verify and best_gain(profile) is None:
        # That there is nothing to gain is an answer, not a failure.
        listener(Event("nothing-to-verify"))
    elif wanted.verify:
        try:
            yield _verified(request, profile, listener)
        except InferlabError as error:
            yield _with_problem(profile, error)


# A profile as it grows, and whether what its estimate needs of this part is there.
_Growing = Iterator[tuple[Profile, bool]]


def _tell_estimate(profile: Profile, listener: Listener, shares: bool = False) -> bool:
    """Tell what the user came for as soon as it is known, since all else may take minutes; whether it was told.

    Shares of channels by groups are only predicted until copies with them were timed.
    """
    best = best_gain(profile)
    if best is None or (best.shares and not shares):
        return False
    listener(Event("estimated", {"gain": best}))
    return True


def _has_shares(profile: Profile) -> bool:
    best = best_gain(profile)
    return best is not None and bool(best.shares)


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


def _performance(request: Request, costs: Costs, profile: Profile, listener: Listener) -> _Growing:
    job, wanted = request.job, request.wanted
    imposes = performance.can_impose(job)
    levels = wanted.levels
    if levels is None:
        zeroed = wanted.estimate and job.model.kind == "onnx" and performance.has_sparse_weights(job)
        levels = LEVELS if imposes else ZEROS if zeroed else ()
    imposed = levels if imposes else ()
    copies = wanted.int8 or (wanted.estimate and job.model.kind == "onnx")
    time_s, timed = (_WITH_COPIES * wanted.time_s, warmed_briefly(job)) if copies else (wanted.time_s, job)
    measured = performance.measure(timed, costs, time_s, wanted.performance_name, imposed, listener)
    measured = _with_odd_levels(measured)
    profile = replace(profile, performance=measured)
    yield profile, False
    if outputs_are_wrong(profile):
        return
    if levels and not imposes:
        asked = wanted.levels is not None
        levels_s = wanted.time_s if asked else _ZEROS_SHARE * wanted.time_s
        measured = measure_levels(job, costs, measured, levels, levels_s, listener, asked)
        measured = _with_odd_levels(measured)
        yield replace(profile, performance=measured), False
    if copies:
        for grown, ready in measure_copies(job, wanted, costs, measured, data_for(request), listener):
            measured = grown
            yield replace(profile, performance=measured), ready
    if wanted.roofline:
        cpus = cpus_of(job.cell) if job.cell.thread_pinning == "core" else ()
        ceilings = roofline.measure_ceilings(job.cell.num_cores, listener, cpus=cpus)
        layers, doubts = roofline.place_all(measured.layers, ceilings)
        measured = replace(measured, ceilings=ceilings, layers=layers, findings=(*measured.findings, *doubts))
        yield replace(profile, performance=measured), True


def _with_odd_levels(profile: PerformanceProfile) -> PerformanceProfile:
    odd = [level for level, ms in profile.pruned.items() if ms > _ODD * profile.ms_per_batch]
    return (
        replace(profile, findings=(*profile.findings, Finding("odd-levels", {"levels": odd}))) if odd else profile
    )


def _loss(request: Request, costs: Costs, profile: Profile, listener: Listener) -> _Growing:
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
    profile = replace(profile, loss=measured_loss)
    yield profile, True
    left_s = _LOSS_LIMIT * wanted.time_s - measured_loss.seconds
    yield replace(profile, loss=_with_channels(request, costs, measured_loss, data, left_s, listener)), True


def _with_channels(
    request: Request, costs: Costs, found: LossProfile, data: Data, seconds: float, listener: Listener
) -> LossProfile:
    """The loss profile with what removing channels costs; why it is not there is a finding."""
    job, weights = request.job, usual_weights(loss.layers_to_prune(costs))
    try:
        groups, kept = loss.measure_channels(job.model, weights, data, listener, job.cell.num_cores, seconds)
    except InferlabError as error:
        finding = Finding("channels-not-tried", {"reason": str(error)})
        return replace(found, findings=(*found.findings, finding))
    return replace(found, groups=groups, channels_kept=kept)


def _mixed(request: Request, costs: Costs, profile: Profile, listener: Listener) -> _Growing:
    """Copies in which each group of channels loses a share of its own, as the losses of the groups let choose."""
    for measured in measure_mixed_copies(request.job, request.wanted, costs, profile, data_for(request), listener):
        yield replace(profile, performance=measured), False


def _zeros_elsewhere(request: Request, costs: Costs, profile: Profile, listener: Listener) -> _Growing:
    """A copy with zeros on engines that gain from them, as the losses of the layers let choose."""
    data = data_for(request)
    for measured in measure_zeros_elsewhere(request.job, request.wanted, costs, profile, data, listener):
        yield replace(profile, performance=measured), False


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
    job = request.job
    return generate_data(job.model.inputs, own_shapes(job), items, seed=job.cell.seed)


def _verified(request: Request, profile: Profile, listener: Listener) -> Profile:
    """The profile with its best gain made and measured."""
    job, best = request.job, profile.gains[0]
    recipe = gain_recipe(profile, best)
    assert recipe is not None and profile.performance is not None, "what counts was tried"
    # Those that the copies of the estimate were made and judged with.
    data = data_for(request)
    predicted = best.ms_per_batch / profile.performance.ms_per_batch
    verified = verify(job, recipe, predicted, data, request.wanted.time_s, request.spreads, listener)
    if best.zeros and profile.estimate is not None:
        return replace(profile, estimate=replace(profile.estimate, verified=verified))
    return replace(profile, gains=(replace(best, verified=verified), *profile.gains[1:]))


# A comparison counts its time with loading, and each pair loads both models.
_LOADING = 3.0
_MARGIN = 0.01


def verify(
    job: Job,
    recipe: Recipe,
    predicted: float,
    data: Data,
    time_s: float,
    spreads: Spreads,
    listener: Listener,
) -> Verified:
    """What the model of a recipe really does, beside the share of the time that it was predicted to take."""
    listener(Event("verifying"))
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        made = apply_recipe(job.model, recipe, data, Path(folder), ignore).model
        changed = replace(job, model=made, cell=replace(job.cell, model_digest=made.digest))
        contest = ComparisonJob(
            job, changed, ("as it is", "as estimated"), _LOADING * time_s, _MARGIN, spreads=spreads
        )
        comparison = compare(contest, listener)
        evaluated = loss.evaluate(made, job.model, data, job.cell.num_cores)
    before_ms = statistics.median(comparison.times_ms[0]) * job.cell.batch_size
    ratio = comparison.ratio
    ends = None if ratio.ends is None else (ratio.ends[0] * before_ms, ratio.ends[1] * before_ms)
    return Verified(
        ms_per_batch=ratio.value * before_ms,
        ms_interval=ends,
        baseline_ms_per_batch=before_ms,
        # Ratios, not times: the machine may have become slower since the profile was made.
        error=predicted / ratio.value - 1,
        loss=evaluated.loss,
        output_check=worst([pair.b.check for pair in comparison.pairs]),
    )
