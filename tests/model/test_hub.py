from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.model import reading

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# The endpoint is read when huggingface_hub is imported, hence a process for each question.
_ASK = """
import json, sys
from inferlab.errors import BadInput
from inferlab.model import hub, reading
events = []
answer = {}
try:
    if sys.argv[1] == "locate":
        answer["path"] = str(reading.locate(sys.argv[2], events.append).path)
    else:
        answer["path"] = str(hub.fetch_transformers(sys.argv[2], events.append))
except BadInput as error:
    answer["error"] = str(error)
answer["fractions"] = [event.fraction for event in events if event.code == "download"]
print(json.dumps(answer))
"""


class Hub:
    """As much of the Hugging Face Hub as huggingface_hub asks for."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.downloaded: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path).path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._api(request, "/".join(parts[2:4]), parts[4:])
        elif parts[2:4] == ["resolve", "main"] or parts[2:4] == ["resolve", COMMIT]:
            self._file(request, "/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self._say(request, 404, b"")

    def _api(self, request: BaseHTTPRequestHandler, repo: str, rest: list[str]) -> None:
        files = self.repositories.get(repo)
        if files is None:
            self._say(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif repo in self.gated:
            self._say(request, 403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif rest[:1] == ["tree"]:
            listed = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in files.items()
            ]
            self._say(request, 200, json.dumps(listed).encode())
        else:
            siblings = [{"rfilename": name} for name in files]
            info = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
            self._say(request, 200, json.dumps(info).encode())

    def _file(self, request: BaseHTTPRequestHandler, repo: str, name: str) -> None:
        body = self.repositories.get(repo, {}).get(name)
        if body is None:
            self._say(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        if request.command == "GET":
            self.downloaded.append(name)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(body).hexdigest()}"'}
        self._say(request, 200, body, headers)

    def _say(
        self, request: BaseHTTPRequestHandler, code: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        request.send_response(code)
        for key, value in {
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            **(headers or {}),
        }.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    one = Hub()
    yield one
    one.close()


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERLAB_CACHE", str(tmp_path_factory.mktemp("demo")))
        return reading.build_demo("mlp").read_bytes()


def ask(hub: Hub, folder: Path, source: str, what: str = "locate", **environment: str) -> dict[str, Any]:
    """What inferlab answers in a process that knows only this hub; nothing may be printed on the way."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    variables = {
        **{
            key: value
            for key, value in os.environ.items()
            if not key.startswith("HF_") and "proxy" not in key.lower()
        },
        "HF_ENDPOINT": hub.url,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "INFERLAB_CACHE": str(folder / "cache"),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", _ASK, what, source],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_onnx_file_of_a_repository_is_found_and_fetched(hub: Hub, mlp: bytes, tmp_path: Path) -> None:
    hub.repositories["org/name"] = {"README.md": b"x", "onnx/model.onnx": mlp, "onnx/model_int8.onnx": b"other"}
    answer = ask(hub, tmp_path, "hf:org/name")
    assert answer["path"] == str(tmp_path / "cache" / "hub" / "org--name" / "onnx" / "model.onnx")
    assert Path(answer["path"]).read_bytes() == mlp
    assert answer["fractions"][-1] == 1.0
    assert hub.downloaded == ["onnx/model.onnx"]
    assert [one for one in (tmp_path / "home").rglob("*") if one.is_file()] == []
    assert ask(hub, tmp_path, "hf:org/name")["path"] == answer["path"]
    assert hub.downloaded == ["onnx/model.onnx"]


def test_what_was_fetched_is_found_again_without_a_network(hub: Hub, mlp: bytes, tmp_path: Path) -> None:
    hub.repositories["org/name"] = {"net.onnx": mlp}
    answer = ask(hub, tmp_path, "hf:org/name")
    hub.close()
    assert ask(hub, tmp_path, "hf:org/name")["path"] == answer["path"]
    assert ask(hub, tmp_path, "hf:org/name/net.onnx", HF_HUB_OFFLINE="1")["path"] == answer["path"]
    assert ask(hub, tmp_path, "hf:org/other")["error"] == (
        "hf:org/other cannot be fetched: the Hugging Face Hub cannot be reached. Check the network."
    )


def test_external_data_comes_along_as_real_files(hub: Hub, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(np.ones((64, 64), np.float32), "w")],
    )
    onnx.save(
        helper.make_model(graph), str(tmp_path / "m.onnx"), save_as_external_data=True, location="model.onnx_data"
    )
    hub.repositories["org/name"] = {
        "onnx/model.onnx": (tmp_path / "m.onnx").read_bytes(),
        "onnx/model.onnx_data": (tmp_path / "model.onnx_data").read_bytes(),
    }
    path = ask(hub, tmp_path, "hf:org/name/onnx/model.onnx")["path"]
    # onnx refuses external data behind a symbolic link, which is what the Hub library's own cache would give.
    assert float(numpy_helper.to_array(onnx.load(path).graph.initializer[0]).sum()) == 4096.0
    assert sorted(hub.downloaded) == ["onnx/model.onnx", "onnx/model.onnx_data"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "hf:org/several",
            "hf:org/several has several ONNX files: a.onnx, b.onnx. Name one: hf:org/several/a.onnx",
        ),
        ("hf:org/several/c.onnx", "hf:org/several has no file 'c.onnx'. Its ONNX files: a.onnx, b.onnx."),
        ("hf:org/none", "hf:org/none has no ONNX file. Export it with: inferlab export hf:org/none"),
        (
            "hf:org/gone",
            "hf:org/gone cannot be fetched: there is no such repository, or it is private "
            "(then log in with: hf auth login).",
        ),
        (
            "hf:org/gated",
            "hf:org/gated cannot be fetched: access to it must be granted. "
            "Ask for it on its page, then log in with: hf auth login",
        ),
        ("hf:org/broken", "hf:org/broken cannot be used: model.onnx is not an ONNX model."),
    ],
)
def test_a_repository_that_does_not_serve_gets_a_sentence(
    source: str, sentence: str, hub: Hub, tmp_path: Path
) -> None:
    hub.repositories |= {
        "org/several": {"a.onnx": b"x", "b.onnx": b"x"},
        "org/none": {"model.safetensors": b"x", "config.json": b"{}"},
        "org/gated": {"model.onnx": b"x"},
        "org/broken": {"model.onnx": b"<html>"},
    }
    hub.gated.add("org/gated")
    assert ask(hub, tmp_path, source)["error"] == sentence


@pytest.mark.parametrize(
    "source", ["hf:", "hf:name", "hf:/name", "hf:org/", "hf:../../etc", "hf:org/name/../../x"]
)
def test_a_name_that_is_none_gets_a_sentence(source: str, hub: Hub, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, source)["error"] == (
        f"'{source}' does not name a model on the Hugging Face Hub: write hf:org/name or hf:org/name/file."
    )


def test_without_the_library_the_remedy_is_named(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text("raise ImportError('not installed')\n")
    answer = ask(hub, tmp_path, "hf:org/name", PYTHONPATH=str(tmp_path))
    assert answer["error"] == (
        "Models on the Hugging Face Hub need huggingface_hub. Install it with: pip install 'inferlab[hub]'"
    )


def test_for_exporting_neither_pickles_nor_code_are_fetched(hub: Hub, mlp: bytes, tmp_path: Path) -> None:
    wanted = {"config.json": b"{}", "tokenizer.json": b"{}", "vocab.txt": b"a", "model.safetensors": b"weights"}
    hub.repositories["org/name"] = {
        **wanted, "pytorch_model.bin": b"pickle", "modeling.py": b"code",
        "onnx/model.onnx": mlp, "onnx/config.json": b"{}",
    }  # fmt: skip
    answer = ask(hub, tmp_path, "org/name", "transformers")
    assert {one.name for one in Path(answer["path"]).iterdir() if one.is_file()} == set(wanted)
    assert sorted(hub.downloaded) == sorted(wanted)


def test_a_repository_without_safetensors_cannot_be_exported(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["org/name"] = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    assert ask(hub, tmp_path, "org/name", "transformers")["error"] == (
        "hf:org/name has no config.json with safetensors beside it, so it cannot be loaded."
    )
