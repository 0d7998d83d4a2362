"""What a profile is to have, and how it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from inferlab.errors import BadInput
from inferlab.measure.cells import Job
from inferlab.model.inputs import Data
from inferlab.profiling.estimate import check_budget
from inferlab.records.comparison import Spreads
from inferlab.records.profile import NAME, ProfileOptions


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
