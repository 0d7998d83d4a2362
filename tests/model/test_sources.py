from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.model.reading import LocatedModel, locate, read_model


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INFERLAB_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("INFERLAB_ZOO", "SPARSEZOO_MODELS_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def torch_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tiny module in every format that PyTorch writes."""
    torch: Any = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("torch")
    module, sample = torch.nn.Linear(4, 4), torch.zeros(1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(module, (sample,)), str(folder / "program.pt2"))
        torch.jit.save(torch.jit.trace(module, sample), str(folder / "script.pt"))
    torch.save(module.state_dict(), folder / "state.pth")
    torch.save(module.state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    return folder


def _onnx(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(reading.build_demo("mlp").read_bytes())
    return path


@pytest.mark.parametrize("name", ["net.onnx", "net.ONNX", "net.model", "net"])
def test_a_file_of_unknown_ending_counts_as_onnx(name: str, tmp_path: Path) -> None:
    path = _onnx(tmp_path / name)
    assert locate(str(path)) == LocatedModel("onnx", path)


def test_a_tilde_stands_for_the_home_folder(tmp_path: Path) -> None:
    path = _onnx(tmp_path / "home" / "net.onnx")
    assert locate("~/net.onnx").path == path


def test_a_folder_with_one_onnx_file_stands_for_it(tmp_path: Path) -> None:
    path = _onnx(tmp_path / "model" / "net.onnx")
    (path.parent / "config.json").write_text("{}")
    (path.parent / "model.safetensors").write_bytes(b"x")
    assert locate(str(path.parent)) == LocatedModel("onnx", path)


def test_a_folder_with_several_prefers_model_onnx_or_lists_them(tmp_path: Path) -> None:
    folder = _onnx(tmp_path / "model" / "b.onnx").parent
    _onnx(folder / "a.onnx")
    with pytest.raises(BadInput, match=r"several ONNX files: a\.onnx, b\.onnx\. Name one of them\.$"):
        locate(str(folder))
    preferred = _onnx(folder / "model.onnx")
    assert locate(str(folder)).path == preferred


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_a_hugging_face_folder_without_onnx_is_a_transformers_model(weights: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="has no ONNX file, and it is not a Hugging Face model"):
        locate(str(tmp_path))
    (tmp_path / weights).write_bytes(b"x")
    assert locate(str(tmp_path)) == LocatedModel("transformers", tmp_path)


def test_an_openvino_model_needs_its_weights_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "net.xml"
    path.write_text('<?xml version="1.0"?>\n<net name="x" version="11"></net>\n')
    with pytest.raises(BadInput, match=r"net\.xml lacks its weights: there is no net\.bin beside it\.$"):
        locate(str(path))
    path.with_suffix(".bin").write_bytes(b"x")
    assert locate(str(path)) == LocatedModel("openvino", path)
    with pytest.raises(BadInput, match=r"holds the weights of an OpenVINO model; name net\.xml instead"):
        locate(str(path.with_suffix(".bin")))


@pytest.mark.parametrize(("name", "kind"), [("program.pt2", "torch-export"), ("script.pt", "torchscript")])
@pytest.mark.parametrize("ending", ["", ".pt", ".ts"])
def test_the_content_of_a_torch_file_decides_its_kind(
    name: str, kind: str, ending: str, torch_files: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"copy{ending or Path(name).suffix}"
    path.write_bytes((torch_files / name).read_bytes())
    assert locate(str(path)) == LocatedModel(kind, path)  # type: ignore[arg-type]


def test_a_program_of_an_older_torch_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.pt", b"x")
    assert locate(str(path)).kind == "torch-export"


@pytest.mark.parametrize("name", ["state.pth", "legacy.pt"])
def test_a_pickled_checkpoint_is_refused(name: str, torch_files: Path) -> None:
    with pytest.raises(
        BadInput, match=r"is a pickled checkpoint, which inferlab does not load; export it with torch\."
    ):
        locate(str(torch_files / name))


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1.0]}))


def _foreign_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "x")


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("gone.onnx", lambda path: None, "There is no file or folder"),
        ("empty.onnx", lambda path: path.write_bytes(b""), "is empty"),
        ("disguised.onnx", _pickle, "is a pickled checkpoint"),
        (
            "text.pt",
            lambda path: path.write_text("hello"),
            "neither a TorchScript file nor a torch.export program",
        ),
        ("short.pt2", lambda path: path.write_bytes(b"PK\x03\x04rest"), "cut off or damaged"),
        ("other.pt", _foreign_zip, "a zip archive, but not one that PyTorch wrote"),
        ("page.xml", lambda path: path.write_text("<html></html>"), "is not an OpenVINO model"),
        ("model.safetensors", lambda path: path.write_bytes(b"x"), "holds weights without a model"),
        ("pipe", os.mkfifo, "is neither a file nor a folder"),
        ("folder", Path.mkdir, "has no ONNX file"),
        ("file.onnx/inside.onnx", lambda path: path.parent.write_text("x"), "There is no file or folder"),
        ("x" * 300, lambda path: None, "File name too long"),
        ("nul\0.onnx", lambda path: None, "cannot be read: "),
    ],
)
def test_bad_input_gets_one_sentence(
    name: str, write: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(BadInput, match=sentence) as caught:
        locate(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_bad_input(tmp_path: Path) -> None:
    path = _onnx(tmp_path / "model" / "net.onnx")
    path.chmod(0)
    with pytest.raises(BadInput, match="Permission denied"):
        locate(str(path))
    path.parent.chmod(0)
    with pytest.raises(BadInput, match="Permission denied"):
        locate(str(path.parent))
    path.parent.chmod(0o700)


def test_nothing_is_not_a_model() -> None:
    with pytest.raises(BadInput, match="No model was named"):
        locate("")


def test_a_demo_model_is_built_and_a_forgotten_prefix_is_pointed_out(tmp_path: Path) -> None:
    assert locate("demo:mlp") == LocatedModel("onnx", tmp_path / "cache" / "demo" / "mlp-v1.onnx")
    with pytest.raises(BadInput, match=r"There is no file or folder 'mlp'\. Did you mean demo:mlp\?$"):
        locate("mlp")
    with pytest.raises(BadInput, match="There are: mlp, "):
        locate("demo:nothing")


OLD_STUB = "cv/classification/mobilenet_v1-1.0/pytorch/sparseml/imagenet/pruned-moderate"
NEW_STUB = "bert-base-squad_wikipedia_bookcorpus-pruned90"


@pytest.mark.parametrize("stub", [OLD_STUB, NEW_STUB])
@pytest.mark.parametrize("inner", ["model.onnx", "deployment/model.onnx"])
def test_a_stub_resolves_in_the_mirror_folder(
    stub: str, inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _onnx(tmp_path / "mirror" / stub / inner)
    (tmp_path / "config.toml").write_text(f'zoo_mirror = "{tmp_path / "mirror"}"\n')
    assert locate(f"zoo:{stub}?recipe=original") == LocatedModel("onnx", path)


def test_a_stub_resolves_in_the_cache_that_sparsezoo_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _onnx(
        tmp_path / "home" / ".cache" / "sparsezoo" / "neuralmagic" / NEW_STUB / "deployment" / "model.onnx"
    )
    assert locate(f"zoo:{NEW_STUB}").path == path
    moved = _onnx(tmp_path / "elsewhere" / "neuralmagic" / NEW_STUB / "model.onnx")
    monkeypatch.setenv("SPARSEZOO_MODELS_PATH", str(tmp_path / "elsewhere"))
    assert locate(f"zoo:{NEW_STUB}").path == moved


def test_a_stub_without_a_mirror_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        locate(f"zoo:{OLD_STUB}")
    assert str(caught.value) == (
        f"zoo:{OLD_STUB} cannot be fetched: SparseZoo reached its end of life with DeepSparse in June 2025, "
        "so a stub resolves only in a mirror or in SparseZoo's own cache; no mirror is named and "
        f"{tmp_path}/home/.cache/sparsezoo does not have it. "
        f"Name a folder or URL that has {OLD_STUB}/model.onnx in INFERLAB_ZOO, "
        f"or zoo_mirror in {tmp_path}/config.toml."
    )


def test_a_mirror_without_the_stub_or_without_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_ZOO", str(tmp_path))
    with pytest.raises(BadInput, match=f"neither the mirror {tmp_path} nor .*sparsezoo has it"):
        locate(f"zoo:{NEW_STUB}")
    monkeypatch.setenv("INFERLAB_ZOO", str(tmp_path / "gone"))
    with pytest.raises(BadInput, match=r"is neither a folder nor a URL\. Correct INFERLAB_ZOO"):
        locate(f"zoo:{NEW_STUB}")


@pytest.mark.parametrize("stub", ["", "../secret", "a/../../secret", "/etc", "a//b", "a/./b", "a b", "*"])
def test_a_stub_cannot_leave_the_mirror(stub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _onnx(tmp_path / "secret" / "model.onnx")
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("INFERLAB_ZOO", str(tmp_path / "mirror"))
    with pytest.raises(BadInput, match="is not a SparseZoo stub"):
        locate(f"zoo:{stub}")


def test_a_folder_in_int8_is_not_sent_to_an_export_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadInput, match="Export it first for other engines: inferlab export"):
        read_model(str(tmp_path), engines=("onnxruntime",))
    (tmp_path / "model.int8.safetensors").write_bytes(b"")
    with pytest.raises(BadInput, match=r"in INT8, which only the engine torch runs \(-e torch\)") as raised:
        read_model(str(tmp_path), engines=("onnxruntime",))
    assert "inferlab export" not in str(raised.value)
