"""Hugging Face folders that would run code, lead out of themselves or fill the memory: nothing of it happens."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferlab.child import confinement
from inferlab.child.engines.base import BadOption
from inferlab.child.engines.torch import folders as torch_folders
from inferlab.child.model_files import files_of
from inferlab.errors import BadInput
from inferlab.model.reading import weight_files
from inferlab.worker import Launch, Worker
from tests.helpers import torch_attacks
from tests.helpers.workers import load

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=20, max_position_embeddings=16, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def _configured(**changes: Any) -> Callable[[Path, Path], None]:
    def change(folder: Path, marker: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        (folder / "modeling.py").write_text(f"open({str(marker)!r}, 'w')\n")

    return change


def _weights(data: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def change(folder: Path, marker: Path) -> None:
        file = folder / "model.safetensors"
        file.write_bytes(data(file.read_bytes()))

    return change


def _header(change: Callable[[Any], None]) -> Callable[[Path, Path], None]:
    """Weights whose header is changed."""

    def data(old: bytes) -> bytes:
        length = struct.unpack("<Q", old[:8])[0]
        header = json.loads(old[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + old[8 + length :]

    return _weights(data)


def _pickled_weights(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"bert": torch_attacks.Harmful(marker)}, folder / "pytorch_model.bin")


def _older_weights(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(torch_attacks.harmful_pickle(marker))


def _indexed(*names: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, marker: Path) -> None:
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        weights = {f"weight{number}": name for number, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights, "metadata": {}}))

    return change


def _adapter(folder: Path, marker: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/", "peft_type": "LORA"}')


def _config_text(text: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, marker: Path) -> None:
        (folder / "config.json").write_text(text)

    return change


def _first(header: Any) -> Any:
    return next(value for name, value in header.items() if name != "__metadata__")


FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    "code of its own": _configured(model_type="own", auto_map={"AutoConfig": "modeling.Config"}),
    "kernel of a hub": _configured(_attn_implementation="someone/kernel"),
    "kernel of a part": _configured(text_config={"attn_implementation": {"": "someone/kernel:forward"}}),
    "pickled weights": _pickled_weights,
    "pickled weights of the older format": _older_weights,
    "index that climbs": _indexed("../outside.safetensors"),
    "index with an absolute name": _indexed("/outside.safetensors"),
    "index with a number": _indexed(3),  # type: ignore[arg-type]
    "adapter": _adapter,
    "header that is too long": _weights(lambda old: struct.pack("<Q", 1 << 60) + old[8:]),
    "header that is cut off": _weights(lambda old: old[:40]),
    "header of brackets": _weights(lambda old: struct.pack("<Q", 100000) + b"[" * 100000),
    "tensors that overlap": _header(lambda header: _first(header).update(data_offsets=[0, 4])),
    "tensor beyond the file": _header(lambda header: _first(header).update(data_offsets=[0, 1 << 50])),
    "tensor of 4 TB": _header(lambda header: _first(header).update(shape=[1 << 40])),
    "type of its own": _header(lambda header: _first(header).update(dtype="OBJECT")),
    "configuration of brackets": _config_text("[" * 100000),
    "configuration that is a list": _config_text("[]"),
}


@pytest.fixture(scope="module")
def right(bert: Path) -> Any:
    """What the model computes of its own accord, without any of our checks."""
    from transformers import BertModel

    return output_of(BertModel.from_pretrained(bert).eval())


def output_of(module: Any) -> Any:
    with torch.inference_mode():
        return module(input_ids=torch.tensor([[1, 5, 19, 7]])).last_hidden_state


def test_a_genuine_folder_is_read_and_computes_what_was_saved(bert: Path, right: Any) -> None:
    module = torch_folders.read_folder(str(bert))
    assert module.config.hidden_size == 8
    assert torch.equal(output_of(module), right)


@pytest.mark.parametrize("attack", FOLDERS)
def test_a_crafted_folder_runs_nothing(attack: str, bert: Path, marker: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(bert, folder)
    FOLDERS[attack](folder, marker)
    with pytest.raises(BadOption) as problem:
        torch_folders.read_folder(str(folder))
    assert "Traceback" not in str(problem.value)


def test_code_beside_a_model_that_transformers_knows_is_not_run(
    bert: Path, right: Any, marker: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(bert, folder)
    _configured(auto_map={"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"})(folder, marker)
    assert torch.equal(output_of(torch_folders.read_folder(str(folder))), right)


def _tokenizer_code(folder: Path, marker: Path) -> None:
    (folder / "tokenization.py").write_text(f"open({str(marker)!r}, 'w')\n")
    named = {"AutoTokenizer": ["tokenization.Slow", "tokenization.Fast"]}
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": named, "tokenizer_class": "Own"}))


def _pickled_vocabulary(folder: Path, marker: Path) -> None:
    for name in ("vocab.pkl", "tokenizer.model", "added_tokens.json", "vocab.txt"):
        (folder / name).write_bytes(torch_attacks.harmful_pickle(marker))


def _bracketed(*names: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, marker: Path) -> None:
        for name in names:
            (folder / name).write_text("[" * 100_000)

    return change


def _chat_template(folder: Path, marker: Path) -> None:
    code = "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ cycler.__init__.__globals__.os.system('touch x') }}"
    (folder / "chat_template.jinja").write_text(code)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": code}))


BESIDE: dict[str, Callable[[Path, Path], None]] = {
    "code of a tokenizer": _tokenizer_code,
    "pickled vocabulary": _pickled_vocabulary,
    "tokenizer of brackets": _bracketed("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "template that is code": _chat_template,
    "processor of brackets": _bracketed("preprocessor_config.json", "processor_config.json"),
}


@pytest.mark.parametrize("attack", BESIDE)
def test_what_lies_beside_a_model_is_not_read(
    attack: str, bert: Path, right: Any, marker: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(bert, folder)
    BESIDE[attack](folder, marker)
    assert torch.equal(output_of(torch_folders.read_folder(str(folder))), right)


# Links.


def test_a_folder_whose_weights_are_links_or_hard_links_is_read(bert: Path, right: Any, tmp_path: Path) -> None:
    weights, folder, hard = tmp_path / "elsewhere.safetensors", tmp_path / "folder", tmp_path / "hard"
    shutil.copy(bert / "model.safetensors", weights)
    for made in (folder, hard):
        made.mkdir()
        shutil.copy(bert / "config.json", made)
    (folder / "model.safetensors").symlink_to(weights)
    (hard / "model.safetensors").hardlink_to(weights)
    assert files_of(str(folder)) == [str(folder), str(weights)]
    assert torch.equal(output_of(torch_folders.read_folder(str(folder))), right)
    assert torch.equal(output_of(torch_folders.read_folder(str(hard))), right)


def test_a_folder_of_the_hubs_cache_is_read_with_its_blobs(bert: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a" / "snapshots" / "abc", tmp_path / "models--a" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(bert / name, blobs / f"of-{name}".replace(".", "-"))
        (snapshot / name).symlink_to(Path("../../blobs") / f"of-{name}".replace(".", "-"))
    assert sorted(files_of(str(snapshot))[1:]) == [
        str(blobs / "of-config-json"),
        str(blobs / "of-model-safetensors"),
    ]


READ = """
import os
from inferlab_child.engines.torch import Torch

class Reader(Torch):
    def load(self, model, options):
        found = {}
        for name in sorted(os.listdir(model)):
            path = os.path.join(model, name)
            try:
                os.listdir(path) if os.path.isdir(path) else open(path).close()
                found[name] = "read"
            except OSError as error:
                found[name] = type(error).__name__
        return found
"""


@pytest.mark.skipif("files" in confinement.support(), reason="Landlock is not allowed here")
def test_links_in_a_folder_do_not_open_the_users_files_to_its_engine(bert: Path, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("secret")
    shutil.copytree(bert, folder)
    (folder / "all").symlink_to(home)
    (folder / "vocab.txt").symlink_to(home / ".ssh" / "id_rsa")
    (folder / "other.safetensors").symlink_to(home / ".ssh" / "id_rsa")
    (folder / "tokenizer.json").symlink_to("vocab.txt")
    (tmp_path / "reader.py").write_text(READ)
    launch = Launch("reader", {"file": str(tmp_path / "reader.py"), "class": "Reader"})
    with Worker(launch) as worker:
        found = load(worker, {}, model=str(folder), kind="transformers")["settings"]
    refused = {name for name, how in found.items() if how == "PermissionError"}
    assert refused == {"all", "vocab.txt", "other.safetensors", "tokenizer.json"}
    assert {"config.json", "model.safetensors"} <= found.keys() - refused


# The index of weights, which inferlab itself reads to find them.


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "{",
        "[]",
        '{"weight_map": []}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": ["b"]}}',
        "\0",
    ],
)
def test_a_damaged_index_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(BadInput, match=r"index\.json cannot be read: it is cut off or damaged") as problem:
        weight_files(tmp_path)
    assert "\n" not in str(problem.value)


def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"")
    index = {"weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_files(folder) == [folder / "a.safetensors"]
    index["weight_map"]["y"] = "../secret"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match=r"lacks secret, which its model\.safetensors\.index\.json names"):
        weight_files(folder)


def test_an_index_of_many_gigabytes_takes_no_memory_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors.index.json").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    with pytest.raises(BadInput, match="memory to read, so it is refused"):
        weight_files(tmp_path)
