"""A profile on its way: part after part, each saved when it is done."""

from __future__ import annotations

from dataclasses import replace

from inferlab.lab.executor import Executor
from inferlab.measure.cells import tell_inputs
from inferlab.measure.prepare import Job
from inferlab.model import demo
from inferlab.model.datasets import Data, load_data
from inferlab.profiling.options import ProfileOptions, Request
from inferlab.records import Listener, Plan
from inferlab.records.profile import Profile
from inferlab.store.saving import Saver


def profiled(
    plan: Plan, wanted: ProfileOptions, job: Job, executor: Executor, saver: Saver, listener: Listener
) -> Profile:
    """The whole profile; Ctrl-C keeps the parts that are done, and raises where that is nothing."""
    data = _data(wanted, job)
    tell_inputs(plan, job, listener)
    found: Profile | None = None
    try:
        for found in executor.profile(Request(job, wanted, data), listener):
            saver.record(found, plan.model)
    except KeyboardInterrupt:
        if found is None:
            raise
        found = replace(found, interrupted=True)
        saver.record(found, plan.model)
    assert found is not None, "a profile begins with what the architecture says"
    return replace(found, id=saver.id)


def _data(wanted: ProfileOptions, job: Job) -> Data | None:
    if wanted.data_file is None:
        return None
    file = demo.digits_data() if wanted.data_file == "demo:digits" else wanted.data_file
    return load_data(file, job.model.inputs, job.model.outputs, job.cell.batch_size)
