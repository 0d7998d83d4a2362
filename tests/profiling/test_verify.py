"""An estimate held against the model that it speaks of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.measure.cells import only_job
from inferlab.measure.paired import ComparisonJob
from inferlab.profiling import build as module
from inferlab.profiling.build import verify
from inferlab.records import Comparison, Listener, Plan, ignore
from inferlab.records.profile import PruningEstimate
from tests.helpers.perceptrons import perceptron
from tests.helpers.sweeps import WRONG, compared


def test_wrong_outputs_in_one_pair_of_several_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(contest: ComparisonJob, listener: Listener) -> Comparison:
        found = compared(contest, 0.5)
        (pair,) = found.pairs
        return replace(found, pairs=(pair, replace(pair, b=replace(pair.b, check=WRONG)), pair))

    monkeypatch.setattr(module, "compare", compare)
    model = perceptron(tmp_path)
    job = only_job(Plan(model.path, num_cores=(1,)), model)
    estimate = PruningEstimate(0.01, 0.01, "time", {"middle": 0.5}, 2.0, 1.0, 2.0, (), 0.5, None)
    verified = verify(job, estimate, lambda model: 0.25, 1.0, ignore).verified
    assert verified is not None
    assert (verified.output_check, verified.loss, verified.ms_per_batch) == (WRONG, 0.25, 1.0)
