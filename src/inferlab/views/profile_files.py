"""A profile as a JSON file, and read again from one."""

from __future__ import annotations

from typing import get_args

from inferlab.records.profile import FORMAT, LossMethod, LossMetric, Profile
from inferlab.views.record_files import RecordFiles


def is_file(name: str) -> bool:
    """Whether a name means a file with a profile in it, which need not be there, rather than a model."""
    return name.lower().endswith(".json")


def _check(profile: Profile) -> None:
    """Refuse what no measurement gives, and what views divide by or look up; a ValueError says why."""
    performance, loss = profile.performance, profile.loss
    positive: list[float] = []
    levels: list[str] = []
    if performance:
        positive += [performance.batch_size, performance.ms_per_batch, *(performance.processes_ms or [0.0])]
        levels += [*performance.pruned, *(key for layer in performance.layers for key in layer.pruned)]
        if limits := performance.ceilings:
            positive += [limits.fp32_gflops, limits.bandwidth_gb_per_s]
    if loss:
        levels += [key for layer in loss.layers for key in layer.losses]
        if loss.method not in get_args(LossMethod) or loss.metric not in get_args(LossMetric):
            raise ValueError(f"its losses are of an unknown kind, {loss.method} in {loss.metric}")
    if profile.estimate and profile.estimate.verified:
        positive.append(profile.estimate.verified.ms_per_batch)
    if not all(value > 0 for value in positive):
        raise ValueError("a time, a batch size or a ceiling is not more than 0")
    for key in levels:
        if not 0 <= float(key) <= 1:
            raise ValueError(f"{key} is no level of pruning")


_FILES = RecordFiles(Profile, FORMAT, "profile", "inferlab profile MODEL -x profile.json", _check)
content, to_json, from_content, load = _FILES.content, _FILES.to_json, _FILES.from_content, _FILES.load
