"""A capacity and a recommendation, as the searches give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from inferlab.measure.capacity import capacity_of
from inferlab.measure.cells import Layout
from inferlab.measure.exploration import Record as Tried
from inferlab.measure.queueing import parse_objective
from inferlab.measure.rate_search import Reading, Trial
from inferlab.measure.recommend import contender, paired_ratio
from inferlab.records import (
    Candidate,
    Capacity,
    Deployment,
    Recommendation,
)
from tests.helpers.comparisons import COMPARISON, MODEL, RUN
from tests.helpers.runs import a_cell


def a_capacity(*trials: Trial, **changes: Any) -> Capacity:
    responses = np.linspace(0.002, 0.02, 1000)
    readings = tuple(Reading(rate, responses * rate / 100, responses / 2) for rate in (50.0, 150.0))
    trial = Trial(replace(RUN, stream_mode="threads"), readings, 200.0, 120.0, 0.9, "crossing")
    cell = a_cell(scenario="server", num_streams=2, instances=2)
    capacity = capacity_of(cell, MODEL, parse_objective("p95<20ms"), 130.0, trials or (trial, trial, trial))
    return replace(capacity, **changes)


def a_recommendation() -> Recommendation:
    best, second, bad = (Candidate("fake", 1, 1, batch) for batch in (8, 4, 2))
    objective, layout = parse_objective("p95<20ms"), Layout("single", (((0,),),), 1, False, 1)
    return Recommendation(
        model=MODEL,
        objective=objective,
        contenders=(
            contender(best, "recommended", Tried([RUN, RUN, RUN], layout=layout), objective),
            contender(second, "runner-up", Tried([RUN], layout=layout), objective),
            contender(bad, "failed", Tried(problem="It died.", layout=layout), objective),
        ),
        comparisons=(paired_ratio(replace(COMPARISON, labels=("fake, 1 core", "other"), margin=0.03)),),
        troubles=("no time was left",),
        simpler=True,
        deployment=Deployment("/m.onnx", (((0,),),), "single", (("x", "float32", (8, 4)),), "", None),
        left_out={"torch": "is not installed"},
        time_s=60.0,
        seconds=50.0,
        interrupted=False,
        machine=RUN.machine,
        versions=RUN.versions,
    )
