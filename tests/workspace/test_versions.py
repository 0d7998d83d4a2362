"""Versions of a project: listed, measured like the original, taken away, removed and put back with their files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from inferlab.errors import BadInput, Conflict, NotThere
from inferlab.lab import Lab, read_model
from inferlab.machine import node_name
from inferlab.measure.cell import lock_file
from inferlab.optimizing import recipes
from inferlab.profiling.zeros import estimate
from inferlab.records import EngineInfo, Plan
from inferlab.records.optimization import Pruning, Recipe, VersionOptions
from inferlab.records.profile import ChannelGroup, Profile
from inferlab.store import open_store
from inferlab.store.entries import Document, QueuedJob
from inferlab.store.formats import content_of
from inferlab.web.runner import Runner
from inferlab.workspace.cards import open_card
from inferlab.workspace.engines import Engines
from inferlab.workspace.entries import KEPT_S, code_sample, model_file, recipe
from inferlab.workspace.requests import ComparisonRequest, from_content
from inferlab.workspace.versions import (
    Version,
    VersionRequest,
    discard_removed,
    free_name,
    levels_of,
)
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile
from tests.helpers.requests import asked_benchmark, asked_profile, asked_version

KNOWN = (
    EngineInfo("onnxruntime", "ready", "1.31", ("onnx",), ("layer_times",)),
    EngineInfo("openvino", "ready", "2026", ("onnx",), ("layer_times",)),
)
#: Made, and measured on nothing.
QUICK = asked_version("Half", sparsity=0.5, engines=(), data="demo:digits")


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace with a project of demo:digits."""

    workspace: Workspace
    project: str
    folder: Path

    def made(self, form: VersionRequest) -> Version:
        """The version that a form asks for."""
        return self.workspace.versions.get(
            str(self.worked(self.workspace.add_version(self.project, form)).entry_id)
        )

    def worked(self, job: QueuedJob) -> QueuedJob:
        """A job after the runner did it."""
        assert Runner(self.workspace.store).work_once()
        done = self.workspace.store.jobs.get(job.id)
        assert (done.status, done.failure) == ("done", ""), done.log
        return done

    def on_the_command_line(self, name: str = "half.onnx") -> str:
        """The id of a version that was made without a project."""
        pruning = Pruning(sparsity=0.5)
        asked = VersionOptions(Recipe(pruning=pruning), str(self.folder / name), "Half", engines=())
        return Lab(self.workspace.store).optimize(Plan("demo:digits", num_cores=(1,)), asked).id


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    # A measuring lock of its own: whoever else measures on this machine is not waited for.
    monkeypatch.setenv("INFERLAB_NODE", f"{node_name()}-{tmp_path.name}")
    folder = tmp_path / "folder"
    folder.mkdir()
    with open_store(str(tmp_path / "lab.db")) as store:
        workspace = Workspace(store, [folder])
        # Asking them all takes seconds.
        workspace.engines = Engines(KNOWN)
        project = workspace.create_project("Digits", "", workspace.analyse("demo:digits"))
        yield Place(workspace, project.id, folder)
    lock_file().unlink(missing_ok=True)


def test_a_version_is_made_in_a_folder_of_its_own_and_listed_in_its_project(place: Place, tmp_path: Path) -> None:
    version = place.made(QUICK)
    path = Path(version.path)
    assert path.parent.parent == tmp_path / "data" / "inferlab" / "versions"
    assert sorted(one.name for one in path.parent.iterdir()) == ["half.onnx", "half.recipe.yaml"]
    assert place.workspace.versions.of_project(place.project) == [version]
    assert (version.name, version.file, version.pattern, version.scheme) == ("Half", "there", "unstructured", "")
    assert read_model(version.path).digest == version.digest
    found = place.workspace.versions.opened(version.id)
    assert found.recipe.pruning is not None
    assert found.recipe.pruning.layers == {"2.weight": 0.5, "6.weight": 0.5}
    assert version.distance is not None
    assert version.distance["original_accuracy"] == pytest.approx(0.9926, abs=1e-4)


def test_a_version_of_the_command_line_belongs_to_every_project_of_its_model(place: Place) -> None:
    made = place.on_the_command_line()
    (version,) = place.workspace.versions.of_project(place.project)
    assert (version.id, version.entry.project_id, version.file) == (made, None, "there")
    other = place.workspace.create_project("MLP", "", place.workspace.analyse("demo:mlp"))
    assert place.workspace.versions.of_project(other.id) == []


def test_a_file_that_is_gone_or_changed_is_told_and_not_measured(place: Place) -> None:
    place.on_the_command_line()
    (version,) = place.workspace.versions.of_project(place.project)
    path = Path(version.path)
    whole = path.read_bytes()
    path.write_bytes(Path(read_model("demo:digits").path).read_bytes())
    assert place.workspace.versions.get(version.id).file == "changed"
    with pytest.raises(BadInput, match="'Half' is no longer the one that was made"):
        place.workspace.add_benchmark(place.project, asked_benchmark(version=version.id))
    path.write_bytes(whole)
    assert place.workspace.versions.get(version.id).file == "there"
    path.unlink()
    assert place.workspace.versions.get(version.id).file == "gone"
    for ask in (
        lambda: place.workspace.add_profile(place.project, asked_profile(version=version.id)),
        lambda: model_file(place.workspace, version.id),
        lambda: code_sample(place.workspace, version.id, "onnxruntime"),
    ):
        with pytest.raises(BadInput, match="'Half' is gone"):
            ask()


def test_a_version_that_changes_while_its_job_waits_is_refused_when_its_turn_comes(place: Place) -> None:
    version = place.made(QUICK)
    job = place.workspace.add_benchmark(place.project, asked_benchmark(version=version.id, time_s=0.1))
    Path(version.path).unlink()
    assert Runner(place.workspace.store).work_once()
    ended = place.workspace.store.jobs.get(job.id)
    assert (ended.status, ended.failure) == (
        "failed",
        "The file of the version 'Half' is gone. Make it again from its recipe.",
    )


def test_the_same_engine_compares_a_version_with_the_original(place: Place) -> None:
    version = place.made(QUICK)
    form = asked_benchmark(compare_engine="onnxruntime", num_cores=(1,), time_s=1.0, version=version.id)
    job = place.workspace.add_benchmark(place.project, form)
    asked = from_content(job.kind, job.content)
    assert isinstance(asked, ComparisonRequest)
    assert asked.labels == ("original", "Half")
    assert (asked.a.model, asked.b.model) == ("demo:digits", version.path)
    entry = str(place.worked(job).entry_id)
    card = open_card(place.workspace.store, entry)
    assert [arm.label for arm in card.arms] == ["Half", "original"]
    assert place.workspace.store.entry(entry).project_id == place.project
    assert version.path in place.workspace.command(entry)


def test_both_sides_must_differ(place: Place) -> None:
    version = place.made(QUICK)
    same = asked_benchmark(compare_engine="onnxruntime", version=version.id, compare_version=version.id)
    for form in (same, asked_benchmark(compare_engine="onnxruntime")):
        with pytest.raises(BadInput, match="Choose another engine or version for one"):
            place.workspace.add_benchmark(place.project, form)
    with pytest.raises(BadInput, match="Name the engine to compare with"):
        place.workspace.add_benchmark(place.project, replace(same, compare_engine=None))


def test_a_version_of_another_project_cannot_be_named(place: Place) -> None:
    version = place.made(QUICK)
    other = place.workspace.create_project("MLP", "", place.workspace.analyse("demo:mlp"))
    with pytest.raises(NotThere, match="is not a version of this project"):
        place.workspace.add_benchmark(other.id, asked_benchmark(version=version.id))


def test_profiles_of_a_version_stand_in_the_project_but_predict_nothing(place: Place) -> None:
    version = place.made(QUICK)
    form = asked_profile(performance=False, loss=False, version=version.id)
    entry = place.worked(place.workspace.add_profile(place.project, form)).entry_id
    listed = place.workspace.profiles(place.project)
    assert [one.model_digest == version.digest for one in listed] == [True, False]
    assert listed[0].id == entry
    assert place.workspace.read_basis(place.project).loss_id == listed[1].id


def test_removed_versions_are_put_back_with_their_files(place: Place) -> None:
    version = place.made(QUICK)
    place.workspace.remove(version.id)
    assert place.workspace.versions.of_project(place.project) == []
    discard_removed(KEPT_S)
    assert Path(version.path).exists()
    place.workspace.trash.put_back(version.id)
    discard_removed(-1.0)
    assert [one.file for one in place.workspace.versions.of_project(place.project)] == ["there"]


def test_the_files_of_a_removed_version_go_when_the_time_to_undo_it_is_over(place: Place) -> None:
    version = place.made(QUICK)
    place.workspace.remove(version.id)
    mark = Path(version.path).parent / ".removed"
    long_ago = time.time() - KEPT_S - 5
    os.utime(mark, (long_ago, long_ago))
    # Another server of the same user, as after a restart.
    Workspace(place.workspace.store)
    assert not mark.parent.exists()


def test_a_file_of_the_command_line_stays_when_its_version_is_removed(place: Place) -> None:
    made = place.on_the_command_line()
    place.workspace.remove(made)
    discard_removed(-1.0)
    assert (place.folder / "half.onnx").exists()


def test_a_version_that_waits_to_be_measured_is_not_removed(place: Place) -> None:
    version = place.made(QUICK)
    place.workspace.add_benchmark(place.project, asked_benchmark(version=version.id))
    with pytest.raises(Conflict, match="being measured, or waits"):
        place.workspace.remove(version.id)


def test_a_project_takes_the_files_of_its_versions_with_it(place: Place) -> None:
    version = place.made(QUICK)
    place.workspace.remove_project(place.project)
    assert not Path(version.path).parent.exists()


def test_what_fails_or_changes_nothing_leaves_no_folder(place: Place, tmp_path: Path) -> None:
    job = place.workspace.add_version(place.project, replace(QUICK, data=str(_text(place.folder / "no.npz"))))
    assert Runner(place.workspace.store).work_once()
    assert place.workspace.store.jobs.get(job.id).status == "failed"
    assert list((tmp_path / "data" / "inferlab" / "versions").iterdir()) == []
    with pytest.raises(BadInput, match="Nothing would change"):
        place.workspace.add_version(place.project, asked_version("None"))


def test_a_version_made_again_is_another_one_with_the_same_bytes(place: Place) -> None:
    version = place.made(QUICK)
    again = place.worked(place.workspace.rerun(version.id)).entry_id
    other = place.workspace.versions.get(str(again))
    assert (other.digest, other.name) == (version.digest, "Half")
    assert other.path != version.path


def test_paths_elsewhere_and_engines_in_files_are_refused(place: Place) -> None:
    with pytest.raises(BadInput, match="is not below a folder"):
        place.workspace.add_version(place.project, replace(QUICK, data="/etc/passwd"))
    with pytest.raises(BadInput, match="There is no engine"):
        place.workspace.add_version(place.project, replace(QUICK, engines=("/tmp/x.py:Engine",)))
    made = place.made(QUICK)
    with pytest.raises(BadInput, match="There is no engine"):
        code_sample(place.workspace, made.id, "/tmp/x.py:Engine")


def test_a_profile_that_is_not_there_is_refused_before_the_version_is_queued(place: Place) -> None:
    wrong = asked_version("a", quantization="dynamic", performance="aaaaaaaaaa")
    with pytest.raises(NotThere, match="aaaaaaaaaa is not a profile of this project's model"):
        place.workspace.add_version(place.project, wrong)
    assert place.workspace.store.jobs.alive() == []


def test_an_imported_version_does_not_open_other_files(place: Place, tmp_path: Path) -> None:
    made = place.on_the_command_line()
    found = place.workspace.store.get(made)
    assert isinstance(found, Document)
    secret = _text(tmp_path / "secret.txt")
    content = {**found.content, "optimized": {**found.content["optimized"], "path": str(secret)}}
    forged = place.workspace.store.add_document("version", "demo:digits", content)
    with pytest.raises(BadInput, match="is not below a folder"):
        model_file(place.workspace, forged)


def test_the_recipe_and_the_code_can_be_taken_away_and_used(place: Place) -> None:
    version = place.made(QUICK)
    told = recipe(place.workspace, version.id)
    assert told.name == "half.recipe.yaml"
    found = recipes.loads(told.text, told.name)
    assert found.pruning is not None
    assert found.pruning.layers == {"2.weight": 0.5, "6.weight": 0.5}
    code = code_sample(place.workspace, version.id, "onnxruntime")
    (place.folder / code.name).write_text(code.text)
    model = model_file(place.workspace, version.id)
    (place.folder / model.name).write_bytes(model.read_bytes())
    ran = subprocess.run([sys.executable, code.name], cwd=place.folder, capture_output=True, text=True)
    assert ran.stdout == "[(1, 10)]\n", ran.stderr
    assert str(place.workspace.versions.get(version.id).path) not in code.text


@pytest.fixture
def predicted(place: Place) -> Place:
    """A project with a profile made by hand, whose times fall with zeros."""
    profile = a_profile()
    project = place.workspace.store.projects.add("MobileNetV2", "", profile.model)
    place.workspace.store.add_document("profile", profile.model.source, content_of(profile), project_id=project.id)
    return Place(place.workspace, project.id, place.folder)


def test_the_first_and_last_layers_and_grouped_ones_are_spared_unless_named(predicted: Place) -> None:
    basis = predicted.workspace.read_basis(predicted.project)
    levels = levels_of(asked_version("a", sparsity=0.8), basis)
    spared = [layer for layer in basis.loss.layers if layer.weight not in levels]
    ends = (basis.loss.layers[0], basis.loss.layers[-1])
    assert {one.weight for one in spared} == {
        layer.weight for layer in basis.loss.layers if layer in ends or layer.groups > 1
    }
    first = basis.loss.layers[0].weight
    assert levels_of(asked_version("a", levels={first: 0.3}), basis) == {first: 0.3}


def test_a_budget_is_spent_as_the_estimate_says(predicted: Place) -> None:
    basis = predicted.workspace.read_basis(predicted.project)
    levels = levels_of(asked_version("a", budget=0.1), basis)
    expected = estimate(basis.profile.performance, basis.loss, 0.1)
    assert expected is not None and expected.levels
    assert levels == expected.levels
    assert basis.predicted(levels).estimated_speedup == expected.estimated_speedup


def test_a_budget_for_whole_channels_goes_by_the_losses_of_their_groups(predicted: Place) -> None:
    basis = predicted.workspace.read_basis(predicted.project)
    first, second = (layer.weight for layer in basis.loss.layers if layer.groups == 1 and layer.index in (2, 3))
    group = ChannelGroup((first,), 16, {first: 1.0}, {second: 1.0}, {"0.25": 0.04, "0.5": 0.3})
    profile = replace(basis.profile, loss=replace(basis.loss, groups=(group,)))
    basis = replace(basis, profile=profile)
    assert levels_of(asked_version("a", budget=0.1, pattern="channel"), basis) == {first: 0.25}
    channels = basis.predicted({first: 0.25}, "channel")
    assert (channels.loss, channels.recovery) == (0.04, 0.96)
    assert channels.parameter_reduction == basis.predicted({first: 0.25}).parameter_reduction


def test_two_of_four_is_half_of_every_layer(predicted: Place) -> None:
    basis = predicted.workspace.read_basis(predicted.project)
    assert set(levels_of(asked_version("a", pattern="2:4"), basis).values()) == {0.5}


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (asked_version("a", sparsity=0.5, budget=0.1), "one of them"),
        (asked_version("a", sparsity=1.0), "between 0 and 1"),
        (asked_version("a", levels={"nothing": 0.5}), "no weight 'nothing'"),
        (asked_version("a", pattern="9:4"), "The pattern 9:4 cannot be"),
        (asked_version("a", budget=-1.0), "The loss budget must be 0 or more"),
    ],
)
def test_nonsense_is_refused(predicted: Place, form: VersionRequest, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        levels_of(form, predicted.workspace.read_basis(predicted.project))


def test_names_of_versions_are_told_apart() -> None:
    assert free_name("INT8", set()) == "INT8"
    assert free_name("INT8", {"INT8", "INT8 (2)"}) == "INT8 (3)"


def _text(path: Path) -> Path:
    path.write_text("no model")
    return path


def cut_short(count: int) -> Profile:
    """A profile whose losses were measured of its first layers only."""
    profile = a_profile()
    assert profile.loss is not None
    left_out = {layer.id: "the time was up" for layer in profile.loss.layers[count:]}
    return replace(profile, loss=replace(profile.loss, layers=profile.loss.layers[:count], left_out=left_out))


def test_layers_whose_losses_were_not_measured_can_still_be_pruned(place: Place) -> None:
    workspace, whole = place.workspace, a_profile()
    assert whole.loss is not None
    project = workspace.store.projects.add("Cut", "", whole.model).id
    rough = replace(whole, performance=None, estimate=None, loss=replace(whole.loss, method="approximated"))
    for one in (rough, cut_short(5)):
        workspace.store.add_document("profile", "m", content_of(one), project_id=project)
    basis = workspace.read_basis(project)
    assert basis.loss.method == "one-shot"
    assert [layer.weight for layer in basis.loss.layers] == [layer.weight for layer in whole.loss.layers]
    unmeasured = [layer.weight for layer in whole.loss.layers[5:]]
    assert basis.unmeasured() == unmeasured
    last = unmeasured[-1]
    assert basis.unmeasured({last: 0.5, whole.loss.layers[1].weight: 0.5}) == [last]
    assert not set(basis.within(10.0, [layer.weight for layer in basis.loss.layers])) & set(unmeasured)
    assert basis.predicted({last: 0.5}).parameter_reduction > 0
    theory = next(
        profile.id for profile in workspace.profiles(project) if profile.brief["loss"]["method"] == "approximated"
    )
    assert workspace.read_basis(project, None, theory).unmeasured() == []


def test_a_version_begins_with_the_engine_the_cores_the_batch_size_and_the_data_of_its_profile(
    place: Place,
) -> None:
    asked = asked_profile(
        engine="openvino",
        data="demo:digits",
        num_cores=1,
        batch_size=2,
        seed=3,
        loss=False,
        estimate=False,
        roofline=False,
        time_s=0.2,
    )
    profile = str(place.worked(place.workspace.add_profile(place.project, asked)).entry_id)
    version = place.workspace.as_profiled(profile, asked_version("a", sparsity=0.5))
    assert (version.engines, version.plan.num_cores, version.plan.batch_sizes) == (("openvino",), (1,), (2,))
    assert (version.plan.seed, version.data) == (3, None)
    asked = replace(asked, wanted=replace(asked.wanted, int8=True))
    profile = str(place.worked(place.workspace.add_profile(place.project, asked)).entry_id)
    assert place.workspace.as_profiled(profile, asked_version("a", sparsity=0.5)).data == "demo:digits"
    assert place.workspace.as_profiled(None, QUICK) == QUICK
