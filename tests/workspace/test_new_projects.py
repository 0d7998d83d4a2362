"""What the form for a new project begins with, and what it gives back of a job."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.records import TensorSpec
from inferlab.store import open_store
from inferlab.workspace.requests import (
    JobRequest,
    ProfileRequest,
    Side,
    benchmark_request,
    has_sequence,
    own_batch_size,
    profile_request,
    suggested_name,
    usual_shapes,
)
from inferlab.workspace.sources import DataFile
from inferlab.workspace.versions import version_request
from inferlab.workspace.workspace import Workspace
from tests.helpers.odd_models import odd_model
from tests.helpers.requests import asked_benchmark, asked_profile, asked_version
from tests.helpers.stored import MODEL

_BERT = replace(MODEL, inputs=(TensorSpec("ids", "int64", ("batch", "sequence"), 100),))
_IMAGE = replace(MODEL, inputs=(TensorSpec("image", "float32", (8, 3, 224, 224)),))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("demo:mobilenet_v2", "mobilenet_v2"),
        ("/models/My net.onnx", "My net"),
        ("C:\\nets\\x.xml", "x"),
        ("https://host/a/resnet50-v1.onnx?download=true", "resnet50-v1"),
        ("hf:org/bert-base", "bert-base"),
        ("hf:org/v1.5", "v1.5"),
        ("/folder/bert/", "bert"),
        ("x" * 200, "x" * 80),
    ],
)
def test_a_project_is_called_by_the_last_part_of_its_source(source: str, name: str) -> None:
    assert suggested_name(replace(MODEL, source=source)) == name


def test_a_length_of_sequence_is_offered_where_it_has_an_effect() -> None:
    assert has_sequence(_BERT)
    assert not has_sequence(_IMAGE)
    assert not has_sequence(replace(MODEL, inputs=(TensorSpec("x", "float32", None),)))


def test_the_batch_size_is_the_models_own() -> None:
    assert (own_batch_size(_IMAGE), own_batch_size(_BERT)) == (8, 1)


@pytest.mark.parametrize(
    "form",
    [
        asked_profile(),
        asked_profile(
            performance_name="a",
            loss_name="b",
            engine="openvino",
            batch_size=4,
            num_cores=1,
            sequence_length=32,
            levels=True,
            int8=True,
            roofline=False,
            data="demo:digits",
            time_s=1.5,
        ),
        asked_profile(performance=False, roofline=False, loss_name="only"),
    ],
)
def test_the_request_of_a_job_is_the_one_that_asked_for_it(form: ProfileRequest) -> None:
    job = profile_request(form, _BERT)
    assert job.wanted == form.wanted
    assert replace(job.plan, model="") == replace(form.plan, time_s=form.wanted.time_s)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(str(tmp_path / "lab.db")) as store:
        yield Workspace(store, [tmp_path])


def test_the_input_shapes_of_a_project_are_those_of_its_profiles_and_benchmarks(
    workspace: Workspace, tmp_path: Path
) -> None:
    model = workspace.analyse(str(odd_model(tmp_path / "odd.onnx")))
    project = workspace.create_project("Odd", "", model, "[2,19]")
    assert workspace.store.projects.get(project.id).input_shapes == "[2,19]"
    theory = workspace.theory(project.id)
    assert theory.flops is not None and (theory.flops.shapes, theory.flops.flops) == ({"x": (2, 19)}, 380)
    for form, shapes in (
        (asked_profile(performance=False), "[2,19]"),
        (asked_profile(performance=False, input_shapes="x = [3,19]"), "x = [3,19]"),
        (asked_profile(performance=False, input_shapes=""), None),
    ):
        job = workspace.add_profile(project.id, form)
        assert job.content["plan"]["input_shapes"] == shapes
    asked = workspace.add_benchmark(project.id, asked_benchmark(engine="onnxruntime", input_shapes=None))
    assert asked.content["plan"]["input_shapes"] == "[2,19]"


def test_other_input_shapes_count_the_operations_again(workspace: Workspace, tmp_path: Path) -> None:
    model = workspace.analyse(str(odd_model(tmp_path / "odd.onnx")))
    project = workspace.create_project("Odd", "", model)
    with pytest.raises(BadInput, match="does not say how many dimensions its input 'x' has"):
        workspace.theory(project.id)
    for shapes, flops in (("[1,19]", 190), ("[4,19]", 760)):
        changed = workspace.change_project(project.id, "Odd", "", shapes)
        assert changed.input_shapes == shapes
        found = workspace.theory(project.id).flops
        assert found is not None and found.flops == flops
        assert len(workspace.profiles(project.id)) == 1
    assert workspace.change_project(project.id, "Other", "").input_shapes == "[4,19]"


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ("[8,3,224", "cannot be read from"),
        ("[8,3,224]", "has 3 dimensions, but the input 'image' has 4"),
        ("other=[8,3,224,224]", "The model has no input 'other'. Its inputs are: 'image'."),
        ("[4,3,224,224]", "has a batch of 4, but the batch size is 8. Make them the same."),
        ("[8,3,224,0]", "A dimension must be at least 1, not 0"),
    ],
)
def test_input_shapes_that_do_not_fit_are_refused_with_a_sentence(shapes: str, told: str) -> None:
    asks: list[Callable[[], JobRequest]] = [
        lambda: profile_request(asked_profile(batch_size=8, input_shapes=shapes), _IMAGE),
        lambda: benchmark_request(asked_benchmark(batch_sizes=(8,), input_shapes=shapes), Side(_IMAGE)),
        lambda: version_request(
            asked_version("v", quantization="fp16", batch_size=8, input_shapes=shapes), _IMAGE, {}
        ),
    ]
    for ask in asks:
        with pytest.raises(BadInput, match=re.escape(told)):
            ask()


def test_the_shapes_that_are_tried_first_are_told() -> None:
    assert usual_shapes(_BERT) == "ids=[1,128]"
    assert usual_shapes(replace(MODEL, inputs=(TensorSpec("x", "float32", None),))) == ""


def test_data_that_was_uploaded_is_listed_by_its_name(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_MODELS", str(tmp_path / "models"))
    assert workspace.sources.data_files() == []
    uploads = [workspace.sources.new_upload() for _ in range(3)]
    for at, (upload, names) in enumerate(zip(uploads, (["a.npz"], ["m.onnx"], ["b.npz"]), strict=True)):
        for name in names:
            path = workspace.sources.folder(upload) / name
            path.write_bytes(b"1234")
            os.utime(path, (at, at))
    assert workspace.sources.data_files() == [
        DataFile(f"upload:{upload}", name, str(tmp_path / "models" / upload / name), 4)
        for upload, name in ((uploads[2], "b.npz"), (uploads[0], "a.npz"))
    ]


def test_a_profile_is_refused_before_there_is_a_project(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "lab.db")) as store:
        workspace = Workspace(store, [tmp_path])
        with pytest.raises(BadInput, match="is not below a folder from which models may be opened"):
            workspace.checked_profile(MODEL, asked_profile(performance=False, data="/etc/passwd"))
        assert workspace.store.projects.lines() == []
