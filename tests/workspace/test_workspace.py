"""What the pages and the HTTP API call, on a real store and with real engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.records import EngineInfo
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.web.runner import Runner
from inferlab.workspace.cards import open_card
from inferlab.workspace.engines import Engines, reason
from inferlab.workspace.entries import export
from inferlab.workspace.requests import BenchmarkRequest
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile
from tests.helpers.requests import asked_benchmark, asked_profile
from tests.helpers.stored import MODEL
from tests.helpers.sweeps import a_sweep, an_outcome

READY = EngineInfo("onnxruntime", "ready", "1.31", ("onnx",), ("layer_times",))
KNOWN = (
    READY,
    EngineInfo("fake", "ready", "1", ("onnx",)),
    EngineInfo("deepsparse", "missing", problem="not there"),
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("INFERLAB_MODELS", str(tmp_path / "models"))
    # What is installed on the machine that runs the tests must not matter.
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    with open_store(str(tmp_path / "lab.db")) as store:
        made = Workspace(store, [tmp_path])
        # Asking them all takes seconds.
        made.engines = Engines(KNOWN)
        yield made


def test_a_new_project_has_what_its_architecture_says(workspace: Workspace) -> None:
    project = workspace.create_project(" My  model ", " For the phone. ", workspace.analyse("demo:mlp"))
    assert (project.name, project.description) == ("My model", "For the phone.")
    (line,) = workspace.store.projects.lines()
    assert (line.project, line.profiles, line.benchmarks) == (project, 1, 0)
    theory = workspace.theory(project.id)
    assert theory.flops is not None
    assert theory.loss is not None
    assert (theory.flops.params, theory.loss.method) == (64 * 64 + 64 + 64 * 10 + 10, "approximated")


def test_a_project_needs_a_name(workspace: Workspace) -> None:
    with pytest.raises(BadInput, match="The project needs a name"):
        workspace.create_project("  ", "", MODEL)


@pytest.mark.parametrize("engine", ["/tmp/x.py:Engine", "x.py:E", "nonsense", ""])
def test_only_known_engines_can_be_named(workspace: Workspace, engine: str) -> None:
    project = workspace.store.projects.add("p", "", MODEL)
    for form in (asked_benchmark(engine=engine), asked_benchmark(compare_engine=engine or "?")):
        with pytest.raises(BadInput, match="There is no engine"):
            workspace.add_benchmark(project.id, form)
    with pytest.raises(BadInput, match="There is no engine"):
        workspace.add_profile(project.id, asked_profile(engine=engine))
    assert workspace.store.jobs.alive() == []


def test_an_engine_that_cannot_says_why(workspace: Workspace) -> None:
    choices = workspace.engines.choices(MODEL, profiling=True)
    assert [(choice.name, choice.reason) for choice in choices] == [
        ("onnxruntime", ""),
        ("deepsparse", "not there"),
    ]
    with pytest.raises(BadInput, match="DeepSparse cannot be chosen: not there"):
        workspace.add_benchmark(
            workspace.store.projects.add("p", "", MODEL).id, asked_benchmark(engine="deepsparse")
        )
    assert reason(EngineInfo("torch", "ready", kinds=("torchscript",)), MODEL) == (
        "it runs torchscript, and this model is onnx"
    )


def test_jobs_wait_in_order(workspace: Workspace) -> None:
    project = workspace.store.projects.add("p", "", MODEL)
    jobs = [workspace.add_benchmark(project.id, asked_benchmark(engine="fake")) for _ in range(3)]
    assert [workspace.position(job) for job in jobs] == [0, 1, 2]
    workspace.store.jobs.cancel(jobs[0].id)
    assert [workspace.position(job) for job in jobs[1:]] == [0, 1]


def test_data_for_a_profile_lies_in_an_allowed_folder(workspace: Workspace) -> None:
    project = workspace.store.projects.add("p", "", MODEL)
    with pytest.raises(BadInput, match="is not below a folder"):
        workspace.add_profile(project.id, asked_profile(data="/etc/passwd"))


def test_a_benchmark_is_run_again_compared_exported_removed_and_put_back(workspace: Workspace) -> None:
    project = workspace.create_project("p", "", workspace.analyse("demo:mlp"))
    runner = Runner(workspace.store)
    job = workspace.add_benchmark(
        project.id, asked_benchmark(engine="fake", num_cores=(1,), batch_sizes=(1, 2), time_s=0.2)
    )
    assert runner.work_once()
    entry_id = str(workspace.store.jobs.get(job.id).entry_id)
    with pytest.raises(BadInput, match="exported as json, csv, html"):
        export(workspace.store, entry_id, "exe")
    assert workspace.command(entry_id).startswith("inferlab benchmark demo:mlp")
    against = workspace.add_benchmark(
        project.id,
        asked_benchmark(engine="fake", num_cores=(None,), batch_sizes=(None,), time_s=0.2, against=entry_id),
    )
    asked = workspace.request_of(entry_id)
    assert isinstance(asked, BenchmarkRequest)
    again = workspace.rerun(entry_id)
    assert (again.content, again.project_id) == (job.content, project.id)
    assert runner.work_once()
    newer = str(workspace.store.jobs.get(against.id).entry_id)
    card = open_card(workspace.store, newer)
    assert (card.core_counts, card.batch_sizes, len(card.arms)) == ([1], [1, 2], 2)
    before = workspace.store.get(entry_id)
    assert workspace.remove(entry_id) == entry_id
    assert [one.id for one in workspace.cards(project.id)] == [newer]
    workspace.trash.put_back(entry_id)
    assert workspace.store.get(entry_id) == before
    assert [one.id for one in workspace.cards(project.id)] == [newer, entry_id]
    with pytest.raises(BadInput, match="too long ago"):
        workspace.trash.put_back(entry_id)


@pytest.mark.parametrize("ending", ["json", "csv", "html"])
def test_every_kind_of_card_and_profile_is_exported(workspace: Workspace, ending: str) -> None:
    from tests.helpers.stored import save, save_comparison
    from tests.helpers.sweeps import a_comparison

    store = workspace.store
    found = a_comparison(1.5, 1.25)
    ids = [
        save(store, a_sweep(an_outcome(), an_outcome((), seed=1))),
        save_comparison(store, found),
        store.add_document("profile", "demo:x", content_of(a_profile())),
    ]
    for entry_id in ids:
        file = export(workspace.store, entry_id, ending)
        assert file.name.endswith(f"-{entry_id}.{ending}")
        assert file.text
        if ending == "json":
            assert json.loads(file.text)
        if ending == "html":
            assert "<html" in file.text[:200].lower()


def test_what_is_being_measured_cannot_be_removed(workspace: Workspace) -> None:
    project = workspace.store.projects.add("p", "", MODEL)
    job = workspace.add_benchmark(project.id, asked_benchmark(engine="fake"))
    from tests.helpers.runs import a_cell
    from tests.helpers.stored import PLAN

    entry_id = workspace.store.begin(PLAN, MODEL, [a_cell()], project.id)
    workspace.store.jobs.belongs(job.id, entry_id)
    with pytest.raises(BadInput, match="Cancel it first"):
        workspace.remove(entry_id)


def test_removing_a_project_removes_its_upload_unless_another_has_it(workspace: Workspace, tmp_path: Path) -> None:
    import asyncio
    from collections.abc import AsyncIterator

    from inferlab.model.reading import build_demo

    async def pieces() -> AsyncIterator[bytes]:
        yield build_demo("mlp").read_bytes()

    upload_id = workspace.sources.new_upload()
    path = asyncio.run(workspace.sources.receive(upload_id, "m.onnx", pieces(), None)).path
    model = workspace.analyse(f"upload:{upload_id}")
    first, second = workspace.create_project("a", "", model), workspace.create_project("b", "", model)
    workspace.remove_project(first.id)
    assert path.exists()
    workspace.remove_project(second.id)
    assert not path.exists()
    assert workspace.store.projects.lines() == []


def test_the_estimate_goes_by_the_losses_that_are_named(workspace: Workspace) -> None:
    from dataclasses import replace

    profile = replace(a_profile(), estimate=None)
    store = workspace.store
    timed = store.add_document("profile", "m", content_of(replace(profile, loss=None)))
    losses = store.add_document("profile", "m", content_of(replace(profile, performance=None)))
    assert workspace.profile(timed).estimate is None
    assert workspace.profile(timed, losses, 0.5).estimate is not None
    assert workspace.profile(timed, losses, 0.5).loss == profile.loss


def test_what_the_command_line_compared_cannot_be_repeated_from_here(workspace: Workspace) -> None:
    entry_id = workspace.store.add_document("comparison", "a / b", {})
    with pytest.raises(BadInput, match="is not stored"):
        workspace.rerun(entry_id)


def test_a_removal_whose_undoing_failed_can_be_undone_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_id = workspace.store.add_document("profile", "p", content_of(a_profile()))
    workspace.remove(entry_id)
    with monkeypatch.context() as full:
        full.setattr("tempfile.tempdir", "/nowhere")
        with pytest.raises(OSError):
            workspace.trash.put_back(entry_id)
    workspace.trash.put_back(entry_id)
    assert workspace.store.entry(entry_id).id == entry_id
