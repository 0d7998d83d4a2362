"""The process that measures for the pages, with the fake engine."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.errors import InferlabError
from inferlab.records import Plan
from inferlab.records.profile import ProfileOptions
from inferlab.store import Stored, open_store
from inferlab.store.entries import JobStatus, QueuedJob
from inferlab.store.store import Store
from inferlab.web.runner import Runner
from inferlab.workspace import requests
from inferlab.workspace.requests import BenchmarkRequest, ComparisonRequest, JobRequest, ProfileRequest

QUICK = Plan("demo:mlp", engines=("fake",), scenarios=("sync",), num_cores=(1,), time_s=0.2, warmup_s=0.0)
LONG = replace(QUICK, num_cores=(1,), batch_sizes=(1, 2), time_s=600.0, processes=100)
_PATIENCE_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "lab.db")) as opened:
        yield opened


def _queue(store: Store, wanted: JobRequest, project_id: str | None = None) -> QueuedJob:
    return store.jobs.add(requests.kind_of(wanted), project_id, requests.to_content(wanted))


def _worked(store: Store, wanted: JobRequest, project_id: str | None = None) -> QueuedJob:
    """A job after this process did it."""
    job = _queue(store, wanted, project_id)
    assert Runner(store).work_once()
    return store.jobs.get(job.id)


@pytest.fixture
def start(store: Store) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start runners as the server does; what is left of them is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "INFERLAB_STORE": store.name}
        command = [sys.executable, "-m", "inferlab.web.runner"]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        one.wait()


def _await(store: Store, job: QueuedJob, *states: JobStatus, saved: bool = False) -> QueuedJob:
    """The job once it is in one of these states, and has an entry where that is wanted."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        found = store.jobs.get(job.id)
        if found.status in states and (found.entry_id or not saved):
            return found
        time.sleep(0.05)
    pytest.fail(f"The job stayed {found.status}: {found.failure} {found.log}")


def _statuses(store: Store, job: QueuedJob) -> list[str]:
    found = store.get(str(job.entry_id))
    assert isinstance(found, Stored)
    return [outcome.status for outcome in found.benchmark.outcomes]


def test_a_benchmark_is_measured_and_belongs_to_its_project(store: Store) -> None:
    from inferlab.lab import read_model

    project = store.projects.add("p", "", read_model("demo:mlp"))
    done = _worked(store, BenchmarkRequest(replace(QUICK, batch_sizes=(1, 2))), project.id)
    assert (done.status, done.failure) == ("done", "")
    assert _statuses(store, done) == ["done", "done"]
    assert store.entry(str(done.entry_id)).project_id == project.id
    assert "Cell 1 of 2" in done.log


def test_an_empty_queue_has_nothing_to_do(store: Store) -> None:
    assert not Runner(store).work_once()


@pytest.mark.parametrize("how", ["abort", "raise", "exit"])
def test_an_engine_that_fails_fails_its_job_with_the_cause_and_nothing_else(store: Store, how: str) -> None:
    failed = _worked(store, BenchmarkRequest(replace(QUICK, engine_options=(("fail", how),))))
    assert failed.status == "failed"
    assert "Engine 'fake'" in failed.failure
    assert _worked(store, BenchmarkRequest(QUICK)).status == "done"


def test_a_model_that_is_not_there_fails_its_job_with_a_sentence(store: Store) -> None:
    failed = _worked(store, BenchmarkRequest(replace(QUICK, model="/nowhere/model.onnx")))
    assert (failed.status, failed.entry_id) == ("failed", None)
    assert failed.failure == "There is no file or folder '/nowhere/model.onnx'."


def test_a_job_that_cannot_be_read_fails_and_the_next_one_is_done(store: Store) -> None:
    broken = store.jobs.add("benchmark", None, {"plan": 7})
    good = _queue(store, BenchmarkRequest(QUICK))
    runner = Runner(store)
    assert [runner.work_once() for _ in range(2)] == [True, True]
    assert store.jobs.get(broken.id).failure.startswith("The request of this job cannot be read")
    assert store.jobs.get(good.id).status == "done"


def test_a_model_that_changed_since_its_project_was_made_is_refused(store: Store, tmp_path: Path) -> None:
    from inferlab.lab import read_model
    from inferlab.model.reading import build_demo

    path = tmp_path / "model.onnx"
    path.write_bytes(build_demo("mlp").read_bytes())
    project = store.projects.add("My model", "", read_model(str(path)))
    path.write_bytes(build_demo("mlp_medium").read_bytes())
    failed = _worked(store, BenchmarkRequest(replace(QUICK, model=str(path))), project.id)
    assert failed.failure.startswith(f"The model {path} has changed since the project 'My model' was made.")


def test_a_fault_of_ours_does_not_take_the_queue_with_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("as ordered")

    with monkeypatch.context() as patch:
        patch.setattr("inferlab.web.runner.work", broken)
        failed = _worked(store, BenchmarkRequest(QUICK))
    assert failed.failure == "Internal error: ZeroDivisionError: as ordered."
    assert _worked(store, BenchmarkRequest(QUICK)).status == "done"


def test_a_profile_is_made_in_parts_and_a_comparison_with_its_cells(store: Store) -> None:
    theory = _worked(store, ProfileRequest(Plan("demo:mlp"), ProfileOptions(performance=False, loss=False)))
    assert theory.status == "done"
    assert store.entry(str(theory.entry_id)).brief["flops"] == 2 * (64 * 64 + 64 * 10) + 64 + 64 + 10
    plan = replace(QUICK, engines=("onnxruntime",), batch_sizes=(1, 2))
    both = _worked(store, ComparisonRequest(plan, plan, ("A", "B"), time_s=0.5))
    assert both.status == "done"
    assert len(store.entry(str(both.entry_id)).cells) == 4


def test_cancelling_keeps_what_is_measured_and_resuming_finishes_it(
    store: Store, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    job = _queue(store, BenchmarkRequest(LONG))
    start()
    _await(store, job, "running", saved=True)
    _has_a_run(store, job)
    store.jobs.cancel(job.id)
    cancelled = _await(store, job, "cancelled")
    assert sorted(_statuses(store, cancelled)) == ["cancelled", "pending"]
    again = store.jobs.resume(job.id)
    assert again.entry_id == cancelled.entry_id
    running = _await(store, job, "running")
    assert running.entry_id == cancelled.entry_id


def _has_a_run(store: Store, job: QueuedJob) -> None:
    """Wait until a process of the job's benchmark is saved."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        entry_id = store.jobs.get(job.id).entry_id
        if entry_id and any(cell.runs for cell in store.entry(entry_id).cells):
            return
        time.sleep(0.05)
    pytest.fail("Nothing was measured.")


def test_a_runner_that_is_killed_leaves_a_job_that_says_interrupted_and_goes_on(
    store: Store, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    job = _queue(store, BenchmarkRequest(replace(LONG, time_s=5.0, processes=10)))
    first = start()
    _has_a_run(store, job)
    first.kill()
    first.wait()
    assert store.jobs.get(job.id).status == "running"
    start()
    interrupted = _await(store, job, "interrupted")
    kept = sum(cell.runs for cell in store.entry(str(interrupted.entry_id)).cells)
    assert kept >= 1
    store.jobs.resume(job.id)
    done = _await(store, job, "done")
    assert _statuses(store, done) == ["done", "done"]


def test_a_polite_end_interrupts_the_job_and_keeps_what_is_measured(
    store: Store, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    job = _queue(store, BenchmarkRequest(LONG))
    runner = start()
    _has_a_run(store, job)
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(_PATIENCE_S) == 0
    ended = store.jobs.get(job.id)
    assert ended.status == "interrupted"
    assert "pending" in _statuses(store, ended)


def test_without_a_server_the_job_in_progress_is_finished_and_no_other_begun(
    store: Store, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first = _queue(store, BenchmarkRequest(replace(QUICK, time_s=1.0)))
    second = _queue(store, BenchmarkRequest(QUICK))
    runner = start()
    _await(store, first, "running")
    assert runner.stdin is not None
    runner.stdin.close()
    assert runner.wait(_PATIENCE_S) == 0
    assert [store.jobs.get(one.id).status for one in (first, second)] == ["done", "queued"]


def test_two_runners_of_one_store_never_work_at_once(
    store: Store, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    jobs = [_queue(store, BenchmarkRequest(QUICK)) for _ in range(4)]
    start()
    start()
    ended = [_await(store, job, "done") for job in jobs]
    spans = sorted((one.started_at, one.ended_at) for one in ended if one.started_at and one.ended_at)
    assert len(spans) == 4
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_what_cannot_be_saved_is_not_measured_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise InferlabError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add_run", full)
        failed = _worked(store, BenchmarkRequest(replace(QUICK, time_s=600.0, processes=1000)))
    assert failed.failure == "The result cannot be saved: the disk is full"
