"""A saved benchmark measured again, or to its end: its plan, its model and its outcomes as they must then be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model.reading import read_model
from inferlab.records import Benchmark, Listener, Model, Outcome, Plan


def with_absolute_paths(plan: Plan) -> Plan:
    """The plan with whole paths: it may be measured again from another folder."""

    def whole(path: str) -> str:
        return str(Path(path).resolve()) if Path(path).exists() else path

    data = None if plan.input_file is None else whole(plan.input_file)
    return replace(plan, model=whole(plan.model), input_file=data)


def read_unchanged_model(benchmark: Benchmark, listener: Listener) -> Model:
    """The benchmark's model as it is now; refused if it is another one."""
    model = read_model(benchmark.plan.model, listener)
    if model.digest != benchmark.model.digest:
        raise BadInput(
            f"The model {model.source} has changed since it was measured. Measure it as it is now: "
            f"inferlab benchmark {model.source}"
        )
    return model


def drop_cut_runs(outcome: Outcome) -> Outcome:
    """An outcome that can go on: without the runs that were cut short, or the failure of a lost machine."""
    lost = outcome.failure is not None and outcome.failure.code == "lost"
    if outcome.status != "cancelled" and not lost:
        return outcome
    runs = tuple(run for run in outcome.runs if not run.interrupted)
    return Outcome(outcome.cell, "pending", runs)
