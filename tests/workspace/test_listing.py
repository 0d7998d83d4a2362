"""Browsing the folders that the user allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.workspace.sources import ListedFile, Listing, Sources


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed"
    for name in ("nets/deep", "Bert", ".git"):
        (folder / name).mkdir(parents=True)
    for name, size in (("b.onnx", 2), ("A.ONNX", 1), ("notes.txt", 3), (".hidden.onnx", 1), ("nets/x.npz", 4)):
        (folder / name).write_bytes(b"x" * size)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.onnx").write_bytes(b"x")
    return folder


def test_a_folder_lists_its_folders_and_models_without_regard_to_case(allowed: Path) -> None:
    found = Sources([allowed], 1).listing(str(allowed))
    folders, files = ("Bert", "nets"), (ListedFile("A.ONNX", 1), ListedFile("b.onnx", 2))
    assert found == Listing(str(allowed), None, folders, files, is_model=False, is_cut=False)


def test_other_endings_can_be_looked_for(allowed: Path) -> None:
    found = Sources([allowed], 1).listing("nets", (".npz", ".npy"))
    assert (found.parent, found.folders, found.files) == (str(allowed), ("deep",), (ListedFile("x.npz", 4),))


def test_links_that_lead_out_are_not_listed_and_those_that_stay_are(allowed: Path) -> None:
    (allowed / "out").symlink_to(allowed.parent / "secret")
    (allowed / "out.onnx").symlink_to(allowed.parent / "secret" / "s.onnx")
    (allowed / "broken.onnx").symlink_to(allowed / "gone")
    (allowed / "in").symlink_to(allowed / "nets")
    found = Sources([allowed], 1).listing(str(allowed))
    assert (found.folders, [file.name for file in found.files]) == (("Bert", "in", "nets"), ["A.ONNX", "b.onnx"])


@pytest.mark.parametrize("path", ["..", "/", "nets/../..", "out"])
def test_nothing_outside_is_listed(allowed: Path, path: str) -> None:
    (allowed / "out").symlink_to(allowed.parent / "secret")
    with pytest.raises(BadInput, match="is not below a folder from which models may be opened"):
        Sources([allowed], 1).listing(path)


def test_a_folder_of_hugging_faces_is_itself_a_model(allowed: Path) -> None:
    (allowed / "Bert" / "config.json").write_text("{}")
    sources = Sources([allowed], 1)
    assert not sources.listing("Bert").is_model
    (allowed / "Bert" / "model.safetensors").write_bytes(b"x")
    assert sources.listing("Bert").is_model


def test_what_is_no_folder_is_told_of(allowed: Path) -> None:
    sources = Sources([allowed], 1)
    with pytest.raises(BadInput, match=r"b\.onnx is not a folder"):
        sources.listing("b.onnx")
    with pytest.raises(BadInput, match="The folder gone cannot be listed: No such file or directory"):
        sources.listing("gone")


def test_a_folder_without_end_is_cut(allowed: Path) -> None:
    for number in range(501):
        (allowed / "nets" / f"{number:03}.onnx").touch()
    found = Sources([allowed], 1).listing("nets")
    assert (len(found.files), found.files[-1].name, found.is_cut) == (500, "499.onnx", True)


def test_an_upload_that_is_given_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_MODELS", str(tmp_path / "models"))
    sources = Sources([], 1)
    sources.give_up(sources.new_upload())
    assert list((tmp_path / "models").iterdir()) == []
