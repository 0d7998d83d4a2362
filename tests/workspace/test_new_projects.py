"""What the form for a new project begins with, and what it gives back of a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.records import TensorSpec
from inferlab.store import open_store
from inferlab.workspace.forms import (
    ProfileForm,
    form_of,
    has_sequence,
    own_batch_size,
    profile_asked,
    suggested_name,
)
from inferlab.workspace.workspace import Workspace
from tests.store.saved import MODEL

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
        ProfileForm(),
        ProfileForm(True, True, "a", "b", "openvino", 4, 1, 32, True, True, False, "demo:digits", 1.5),
        ProfileForm(performance=False, roofline=False, loss_name="only"),
    ],
)
def test_the_form_of_a_job_is_the_one_that_asked_for_it(form: ProfileForm) -> None:
    assert form_of(profile_asked(form, _BERT)) == form


def test_a_profile_is_refused_before_there_is_a_project(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "lab.db")) as store:
        workspace = Workspace(store, [tmp_path])
        with pytest.raises(BadInput, match="is not below a folder from which models may be opened"):
            workspace.checked_profile(MODEL, ProfileForm(performance=False, data="/etc/passwd"))
        assert workspace.projects() == []
