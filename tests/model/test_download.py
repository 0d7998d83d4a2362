from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.model import download
from inferlab.model.reading import LocatedModel, locate
from inferlab.records import Event
from tests.helpers.downloads import Server, cache, certificate, mlp, plain, server

__all__ = ["cache", "certificate", "mlp", "plain", "server"]


def _model_with_data(location: str) -> bytes:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "weight")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", location
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [weight],
    )
    return bytes(helper.make_model(graph).SerializeToString())


def _left(cache: Path) -> list[Path]:
    return list(cache.rglob("*")) if cache.exists() else []


def test_a_model_comes_over_https_once_with_progress(server: Server, mlp: bytes, cache: Path) -> None:
    server.files["/models/net.onnx"] = mlp
    events: list[Event] = []
    found = locate(f"{server.url}/models/net.onnx", events.append)
    assert found.kind == "onnx"
    assert (found.path.name, found.path.read_bytes()) == ("net.onnx", mlp)
    assert found.path.parent.parent == cache
    assert {event.code for event in events} == {"download"}
    assert [event.fraction for event in events] == [0.0, 1.0]
    assert events[-1].data["received_bytes"] == events[-1].data["total_bytes"] == len(mlp)
    assert locate(f"{server.url}/models/net.onnx") == found
    assert server.asked == ["/models/net.onnx"]
    assert [one.name for one in cache.iterdir()] == [found.path.parent.name]


def test_a_chunked_answer_is_taken_whole(server: Server, mlp: bytes) -> None:
    server.files["/net.onnx"] = mlp
    server.chunked.add("/net.onnx")
    events: list[Event] = []
    assert locate(f"{server.url}/net.onnx", events.append).path.read_bytes() == mlp
    assert {event.fraction for event in events} == {None}


@pytest.mark.parametrize(
    ("path", "name"), [("/a%2F..%2Fnet%20x.onnx?raw=1", "net_x.onnx"), ("/..%2f..", "model.onnx")]
)
def test_the_name_of_the_file_is_made_harmless(
    path: str, name: str, server: Server, mlp: bytes, cache: Path
) -> None:
    server.files[path] = mlp
    found = locate(server.url + path)
    assert found.path.name == name
    assert found.path.parent.parent == cache


def test_external_data_is_fetched_from_beside_the_model(server: Server) -> None:
    server.files["/m/net.onnx"] = _model_with_data("parts/net weights.data")
    server.files["/m/parts/net%20weights.data"] = bytes(64)
    path = locate(f"{server.url}/m/net.onnx").path
    assert (path.parent / "parts" / "net weights.data").read_bytes() == bytes(64)
    assert float(numpy_helper.to_array(onnx.load(str(path)).graph.initializer[0]).sum()) == 0.0


def test_an_openvino_model_brings_its_weights(server: Server) -> None:
    server.files["/net.xml"] = b'<?xml version="1.0"?><net name="x"/>'
    server.files["/net.bin"] = b"weights"
    found = locate(f"{server.url}/net.xml")
    assert found == LocatedModel("openvino", found.path)
    assert found.path.with_suffix(".bin").read_bytes() == b"weights"


@pytest.mark.parametrize("name", ["../escaped.data", "/etc/passwd", "a/../../b", "..\\up.data", "net.onnx", ""])
def test_external_data_outside_the_folder_is_refused(name: str, server: Server, cache: Path) -> None:
    server.files["/m/net.onnx"] = _model_with_data(name)
    with pytest.raises(BadInput, match="which is not a file beside it: it is refused"):
        locate(f"{server.url}/m/net.onnx")
    assert server.asked == ["/m/net.onnx"]
    assert _left(cache) == []


def test_missing_external_data_leaves_nothing_behind(server: Server, cache: Path) -> None:
    server.files["/m/net.onnx"] = _model_with_data("net.data")
    with pytest.raises(BadInput, match=r"/m/net\.data cannot be downloaded: the server answered 404 Not Found\.$"):
        locate(f"{server.url}/m/net.onnx")
    assert _left(cache) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_download_that_breaks_off_leaves_nothing_and_can_be_repeated(
    chunked: bool, server: Server, mlp: bytes, cache: Path
) -> None:
    server.files["/net.onnx"] = mlp
    server.cut["/net.onnx"] = 1000
    if chunked:
        server.chunked.add("/net.onnx")
    sentence = "the connection was lost" if chunked else f"it broke off after 1000 of {len(mlp)} bytes"
    with pytest.raises(BadInput, match=sentence):
        locate(f"{server.url}/net.onnx")
    assert _left(cache) == []
    server.cut.clear()
    assert locate(f"{server.url}/net.onnx").path.read_bytes() == mlp


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b""])
def test_a_page_instead_of_a_model_is_not_kept(page: bytes, server: Server, cache: Path) -> None:
    server.files["/net.onnx"] = page
    with pytest.raises(BadInput, match=r"/net\.onnx gave cannot be used: net\.onnx is not an ONNX model"):
        locate(f"{server.url}/net.onnx")
    assert _left(cache) == []


def test_an_http_error_is_a_sentence(server: Server) -> None:
    with pytest.raises(BadInput, match=r"/gone\.onnx cannot be downloaded: the server answered 404 Not Found\.$"):
        locate(f"{server.url}/gone.onnx")


def test_an_unknown_certificate_is_a_sentence(
    server: Server, mlp: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    server.files["/net.onnx"] = mlp
    with pytest.raises(BadInput, match="the server's certificate is not trusted"):
        locate(f"{server.url}/net.onnx")


def test_nobody_at_home_is_a_sentence(server: Server) -> None:
    server.close()
    with pytest.raises(BadInput, match=r"the server cannot be reached \(Connection refused\); check the address"):
        locate(f"{server.url}/net.onnx")


def test_silence_is_a_sentence(plain: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_SILENCE_S", 0.2)
    monkeypatch.setattr(plain, "answer", lambda request: threading.Event().wait(1))
    with pytest.raises(BadInput, match="no answer in 0 s"):
        locate(f"{plain.url}/net.onnx")


def test_plain_http_is_for_this_machine_only(plain: Server, mlp: bytes) -> None:
    plain.files["/net.onnx"] = mlp
    assert locate(f"{plain.url}/net.onnx").path.read_bytes() == mlp
    assert locate(plain.url.replace("127.0.0.1", "localhost") + "/net.onnx").kind == "onnx"
    for url in (
        "http://example.com/net.onnx",
        "http://127.0.0.1.example.com/net.onnx",
        "ftp://127.0.0.1/net.onnx",
    ):
        with pytest.raises(BadInput, match="models come over https:// only"):
            locate(url)


def test_a_redirect_is_followed_unless_it_leaves_encryption(server: Server, plain: Server, mlp: bytes) -> None:
    server.files["/real.onnx"] = plain.files["/net.onnx"] = mlp
    server.redirects = {"/moved.onnx": "/real.onnx", "/down.onnx": f"{plain.url}/net.onnx"}
    plain.redirects = {"/away.onnx": "http://192.0.2.1/net.onnx", "/up.onnx": f"{server.url}/real.onnx"}
    assert locate(f"{server.url}/moved.onnx").path.read_bytes() == mlp
    assert locate(f"{plain.url}/up.onnx").path.read_bytes() == mlp
    with pytest.raises(BadInput, match=r"it redirects to http://127\.0\.0\.1:.*, which is not encrypted"):
        locate(f"{server.url}/down.onnx")
    with pytest.raises(BadInput, match=r"http://192\.0\.2\.1/net\.onnx is refused"):
        locate(f"{plain.url}/away.onnx")
    assert plain.asked.count("/net.onnx") == 0


@pytest.mark.parametrize(
    "url", ["https://", "https://host:port/x", "https://ho st/x", "https://[::1/x", "https:///x.onnx"]
)
def test_what_is_no_url_is_a_sentence(url: str) -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        locate(url)


def test_an_unwritable_cache_is_a_sentence(
    server: Server, mlp: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    server.files["/net.onnx"] = mlp
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(BadInput, match=r"cannot be stored in .*: Not a directory\.$"):
        locate(f"{server.url}/net.onnx")


def test_a_stub_resolves_at_the_mirror_url(server: Server, mlp: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/zoo/cv/net/pruned/model.onnx"] = mlp
    monkeypatch.setenv("INFERLAB_ZOO", f"{server.url}/zoo/")
    monkeypatch.setenv("SPARSEZOO_MODELS_PATH", "/nowhere")
    assert locate("zoo:cv/net/pruned").path.read_bytes() == mlp
    with pytest.raises(
        BadInput, match=r"/zoo/cv/net/dense/model\.onnx cannot be downloaded: the server answered 404"
    ):
        locate("zoo:cv/net/dense")
