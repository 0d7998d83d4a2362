"""Projects, and which entries belong to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.records import Benchmark, Model, Outcome
from inferlab.store import Stored
from inferlab.store.formats import content_of, outcomes_of
from inferlab.store.store import Store
from tests.helpers.profiles import a_profile
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, benchmark_of, save, save_comparison
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome

OTHER = replace(MODEL, source="demo:mlp", digest="other")


def _measured(store: Store, project_id: str | None, *latencies_ms: float, model: Model = MODEL) -> str:
    cells = [a_cell(seed=seed) for seed in range(len(latencies_ms))]
    entry_id = store.begin(PLAN, model, cells, project_id)
    for cell, latency_ms in zip(cells, latencies_ms, strict=True):
        store.add_run(entry_id, cell.id, steady_run(latency_ms))
        store.finish_cell(entry_id, cell.id, "done")
    return entry_id


def test_a_project_comes_back_as_it_was_made(store: Store) -> None:
    made = store.projects.add("My model", "For the phone.", MODEL)
    assert store.projects.get(made.id) == made
    assert (made.name, made.description, made.model) == ("My model", "For the phone.", MODEL)


def test_a_project_gets_another_name(store: Store) -> None:
    made = store.projects.add("a", "b", MODEL)
    changed = store.projects.change(made.id, "c", "d")
    assert changed == replace(made, name="c", description="d", changed_at=changed.changed_at)
    assert store.projects.get(made.id) == changed


def test_a_project_that_is_not_there_is_told_of(store: Store) -> None:
    with pytest.raises(BadInput, match="There is no project 'aaaaaaaaaa'"):
        store.projects.get("aaaaaaaaaa")
    assert not store.projects.has("aaaaaaaaaa")


def test_what_the_command_line_measured_belongs_to_every_project_of_the_model(store: Store) -> None:
    one, two = store.projects.add("one", "", MODEL), store.projects.add("two", "", MODEL)
    third = store.projects.add("three", "", OTHER)
    anywhere = save(store, Benchmark(PLAN, MODEL, (Outcome(a_cell(), "done", (steady_run(1.0),)),)))
    in_one = _measured(store, one.id, 1.0)
    shown = {each.id: [entry.id for entry in store.history(project_id=each.id)] for each in (one, two, third)}
    assert shown == {one.id: [in_one, anywhere], two.id: [anywhere], third.id: []}
    assert [store.projects.belongs(each.id, in_one) for each in (one, two)] == [True, False]


def test_the_list_names_the_fastest_cell_with_right_outputs(store: Store) -> None:
    project = store.projects.add("p", "", MODEL)
    _measured(store, project.id, 4.0, 2.0)
    wrong = a_sweep(an_outcome((0.5,), wrong=True), an_outcome((), seed=1))
    save(store, wrong)
    (line,) = store.projects.lines()
    assert line.best is not None
    assert (line.benchmarks, line.profiles) == (2, 0)
    assert line.best.items_per_sec == pytest.approx(500.0)


def test_the_fastest_cell_may_be_one_of_a_comparison_that_was_made_in_the_project(store: Store) -> None:
    project = store.projects.add("p", "", MODEL)
    found = a_comparison(1.5, 1.25)
    save_comparison(store, found)
    (line,) = store.projects.lines()
    assert (line.benchmarks, line.best) == (1, None)
    save_comparison(store, found, project_id=project.id)
    (line,) = store.projects.lines()
    assert line.best is not None
    assert line.benchmarks == 2


def test_the_project_that_was_measured_last_comes_first(store: Store) -> None:
    first, second = store.projects.add("first", "", MODEL), store.projects.add("second", "", OTHER)
    assert [line.project.name for line in store.projects.lines()] == ["second", "first"]
    _measured(store, first.id, 1.0)
    assert [line.project.name for line in store.projects.lines()] == ["first", "second"]
    assert store.projects.lines()[0].active_at == store.history(project_id=first.id)[0].created_at
    assert second.model.digest == "other"


def test_removing_a_project_removes_what_was_made_in_it_and_nothing_else(store: Store) -> None:
    project = store.projects.add("p", "", MODEL)
    mine, anywhere = _measured(store, project.id, 1.0), _measured(store, None, 1.0)
    job = store.jobs.add("benchmark", project.id, {})
    assert store.projects.counts(project.id) == {"benchmark": 1}
    store.projects.remove(project.id)
    assert [store.has(one) for one in (mine, anywhere)] == [False, True]
    assert not store.projects.has(project.id)
    with pytest.raises(BadInput, match="There is no job"):
        store.jobs.get(job.id)


def test_models_without_a_project_are_listed_newest_first(store: Store) -> None:
    store.projects.add("p", "", MODEL)
    _measured(store, None, 1.0)
    _measured(store, None, 1.0, model=OTHER)
    _measured(store, None, 1.0, model=OTHER)
    assert store.projects.unfiled() == [("demo:mlp", 2)]


def test_an_entry_can_be_put_into_a_project(store: Store) -> None:
    project = store.projects.add("p", "", OTHER)
    entry_id = _measured(store, None, 1.0)
    store.projects.take(project.id, entry_id)
    assert store.entry(entry_id).project_id == project.id


def test_a_benchmark_knows_what_it_is_to_be_compared_with(store: Store) -> None:
    first = _measured(store, None, 1.0)
    second = store.begin(PLAN, MODEL, [a_cell()], against=first)
    found = store.get(second)
    assert isinstance(found, Stored)
    assert (found.against, store.entry(second).brief) == (first, {"against": first})
    assert benchmark_of(store, second).plan == PLAN


def test_a_comparison_keeps_its_cells_and_their_runs(store: Store) -> None:
    found = a_comparison(1.5, 1.25)
    outcomes = outcomes_of(found)
    entry_id = save_comparison(store, found)
    kept = store.get(entry_id)
    assert not isinstance(kept, Stored)
    assert kept.outcomes == outcomes
    assert [len(outcome.runs) for outcome in kept.outcomes] == [2, 2]
    assert store.entry(entry_id).cells[0].median_ms == pytest.approx(2.0)
    assert store.entry(entry_id).brief["labels"] == ["onnxruntime", "openvino"]
    store.replace_document(entry_id, kept.content, outcomes[:1], keep=1)
    assert store.get(entry_id).outcomes == (outcomes[0], outcomes[0])  # type: ignore[union-attr]


def test_a_document_keeps_its_name_while_it_grows(store: Store) -> None:
    first = {"results": [], "model": {"digest": "d"}}
    entry_id = store.add_document("comparison", "a / b", first)
    store.rename(entry_id, "Ours against theirs")
    grown = {**first, "more": 1}
    store.replace_document(entry_id, grown)
    assert store.entry(entry_id).brief == {"name": "Ours against theirs"}
    assert store.get(entry_id).content == {**grown, "name": "Ours against theirs"}  # type: ignore[union-attr]


def test_the_parts_of_a_profile_keep_their_names_while_it_grows(store: Store) -> None:
    content = content_of(a_profile())
    entry_id = store.add_document("profile", "m", {**content, "loss": None})
    store.rename(entry_id, "on one core")
    store.replace_document(entry_id, content)
    brief = store.entry(entry_id).brief
    assert (brief["performance"]["name"], brief["loss"]["name"]) == ("on one core", content["loss"]["name"])


def test_the_stamp_changes_with_every_entry_project_and_job(store: Store) -> None:
    stamps = [store.stamp()]
    project = store.projects.add("p", "", MODEL)
    stamps.append(store.stamp())
    entry_id = _measured(store, project.id, 1.0)
    stamps.append(store.stamp())
    job = store.jobs.add("benchmark", project.id, {})
    stamps.append(store.stamp())
    store.jobs.cancel(job.id)
    stamps.append(store.stamp())
    store.rename(entry_id, "Before the change")
    stamps.append(store.stamp())
    elsewhere = _measured(store, None, 1.0)
    stamps.append(store.stamp())
    store.rename(elsewhere, "By the command line")
    stamps.append(store.stamp())
    store.remove(entry_id)
    stamps.append(store.stamp())
    assert len(set(stamps)) == len(stamps)
    assert store.stamp() == stamps[-1]
