"""The queue: what users and the runner do with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.store.jobs import Progress
from inferlab.store.store import Store
from tests.helpers.runs import a_cell
from tests.helpers.stored import MODEL, PLAN

HALF = Progress("Running benchmark", 0.5, 12.0)


def test_jobs_are_taken_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    asked = [store.jobs.add("benchmark", None, {"number": number}) for number in range(3)]
    assert [one.status for one in asked] == ["queued"] * 3
    taken = [store.jobs.take() for _ in range(4)]
    assert [one and one.content["number"] for one in taken] == [0, 1, 2, None]
    assert store.jobs.get(asked[0].id).status == "running"


def test_the_running_one_comes_before_those_that_wait(store: Store) -> None:
    for number in range(3):
        store.jobs.add("profile", None, {"number": number})
    store.jobs.take()
    assert [(one.content["number"], one.status) for one in store.jobs.alive()] == [
        (0, "running"),
        (1, "queued"),
        (2, "queued"),
    ]


def test_a_report_says_how_far_it_is_and_hears_of_a_cancellation(store: Store) -> None:
    job = store.jobs.add("benchmark", None, {})
    store.jobs.take()
    assert store.jobs.report(job.id, HALF, "line one\nline two") is False
    found = store.jobs.get(job.id)
    assert (found.stage, found.fraction, found.left_s) == ("Running benchmark", 0.5, 12.0)
    assert found.log == "line one\nline two"
    assert store.jobs.cancel(job.id).status == "running"
    assert store.jobs.report(job.id, HALF) is True
    store.jobs.end(job.id, "cancelled")
    ended = store.jobs.get(job.id)
    assert (ended.status, ended.alive, ended.left_s, ended.log) == ("cancelled", False, None, "line one\nline two")


def test_a_job_that_waits_is_cancelled_at_once_and_never_taken(store: Store) -> None:
    job = store.jobs.add("benchmark", None, {})
    assert store.jobs.cancel(job.id).status == "cancelled"
    assert store.jobs.take() is None


def test_what_was_cut_off_goes_to_the_end_of_the_queue_and_keeps_its_entry(store: Store) -> None:
    first = store.jobs.add("benchmark", None, {})
    store.jobs.take()
    store.jobs.belongs(first.id, "abcdefghij")
    assert store.jobs.interrupt_running() == 1
    assert store.jobs.get(first.id).status == "interrupted"
    second = store.jobs.add("benchmark", None, {})
    again = store.jobs.resume(first.id)
    assert (again.status, again.entry_id, again.cancel) == ("queued", "abcdefghij", False)
    assert [one.id for one in store.jobs.alive()] == [second.id, first.id]


def test_what_is_done_or_on_its_way_cannot_be_resumed(store: Store) -> None:
    job = store.jobs.add("benchmark", None, {})
    with pytest.raises(BadInput, match="This job is queued"):
        store.jobs.resume(job.id)
    store.jobs.take()
    store.jobs.end(job.id, "done")
    with pytest.raises(BadInput, match="This job is done"):
        store.jobs.resume(job.id)


def test_a_job_of_another_machine_is_neither_taken_nor_interrupted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_NODE", "far-away")
    theirs = store.jobs.add("benchmark", None, {})
    store.jobs.take()
    waiting = store.jobs.add("benchmark", None, {})
    monkeypatch.setenv("INFERLAB_NODE", "here")
    assert store.jobs.take() is None
    assert store.jobs.interrupt_running() == 0
    assert [store.jobs.get(one.id).status for one in (theirs, waiting)] == ["running", "queued"]


def test_a_project_shows_jobs_on_their_way_and_those_that_made_nothing(store: Store) -> None:
    project = store.projects.add("p", "", MODEL)
    entry_id = store.begin(PLAN, MODEL, [a_cell()], project.id)
    failed, done, cut, waits = (store.jobs.add("benchmark", project.id, {}) for _ in range(4))
    for job, status in ((failed, "failed"), (done, "done"), (cut, "interrupted")):
        store.jobs.end(job.id, status)  # type: ignore[arg-type]
    store.jobs.belongs(cut.id, entry_id)
    assert [one.id for one in store.jobs.of_project(project.id)] == [waits.id, failed.id]
    assert store.jobs.of_entries([entry_id]) == {entry_id: replace(store.jobs.get(cut.id), log="")}
    store.remove(entry_id)
    assert cut.id in [one.id for one in store.jobs.of_project(project.id)]


def test_only_what_has_ended_can_be_forgotten(store: Store) -> None:
    job = store.jobs.add("install", None, {})
    with pytest.raises(BadInput, match="has not ended yet"):
        store.jobs.remove(job.id)
    store.jobs.cancel(job.id)
    store.jobs.remove(job.id)
    assert store.jobs.recent() == []


def test_a_job_whose_project_is_gone_shall_end(store: Store) -> None:
    project = store.projects.add("p", "", MODEL)
    job = store.jobs.add("benchmark", project.id, {})
    store.jobs.take()
    store.projects.remove(project.id)
    assert store.jobs.report(job.id, HALF) is True
