"""The HTTP API of a really started server: whom it answers, what it takes, and uploads."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.helpers.http_calls import ABSENT, QUICK, refused
from tests.helpers.web_server import Server, ended, new_server, until


@pytest.fixture(scope="module")
def project(http: httpx.Client) -> str:
    """The id of a project."""
    return str(http.post("/projects", json={"source": "demo:mlp", "name": "Requests"}).json()["id"])


# Who may speak with it, and what it takes.


def test_another_host_or_origin_is_refused(http: httpx.Client, server: Server) -> None:
    assert "answers only to the address" in refused(http.get("/system", headers={"Host": "evil.example"}), 421)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert "another web site" in refused(http.post("/uploads", headers=headers), 403)
        assert "another web site" in refused(http.get("/projects", headers=headers), 403)
    assert http.post("/uploads", headers={"Origin": server.url}).status_code == 201


def test_unknown_fields_and_parameters_are_refused(http: httpx.Client, project: str) -> None:
    address = f"/projects/{project}/benchmarks"
    assert refused(http.post(address, json={**QUICK, "cores": 2}), 422).startswith("cores: Extra inputs")
    assert refused(http.get(address, params={"limt": 3}), 422) == "limt: There is no such parameter."
    assert refused(http.get(address, params={"limit": 0}), 422).startswith("limit: ")
    assert refused(http.get("/system", params={"x": 1}), 422) == "x: There is no such parameter."
    assert refused(http.post(address, json={"num_cores": ["2"]}), 422).startswith("num_cores.0")


@pytest.mark.parametrize("body", ['{"time_s": NaN}', '{"time_s": 1e999}', '{"\\ud800": 1}', "[", "null", '"x"'])
def test_a_body_that_makes_no_sense_gets_a_sentence(http: httpx.Client, project: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = http.post(f"/projects/{project}/benchmarks", content=body, headers=headers)
    assert refused(answer, 422)


def test_a_body_of_json_that_is_no_few_lines_is_refused(http: httpx.Client) -> None:
    body = json.dumps({"source": "x" * (2 << 20)})
    said = refused(http.post("/models/analyse", content=body, headers={"Content-Type": "application/json"}), 413)
    assert said == "This is more than 1 MiB. Send models to /uploads."


def test_every_address_with_an_id_says_404_where_there_is_nothing(http: httpx.Client, server: Server) -> None:
    described = http.get("/openapi.json").json()
    bodies = {"benchmarks": QUICK, "profiles": {}, "versions": {"name": "x"}, "{entry_id}": {"name": "x"}}
    tried = 0
    for path, methods in described["paths"].items():
        for wrong in (ABSENT, "short", "toolongforanid", "..%2F..%2Fetc", "%00"):
            if "_id}" not in path:
                continue
            address = path.removeprefix("/api/v1")
            for name in ("project_id", "entry_id", "job_id", "upload_id"):
                address = address.replace(f"{{{name}}}", wrong)
            query: dict[str, str | int] = {"format": "json", "against": ABSENT, "num_cores": 1, "batch_size": 1}
            for method, about in methods.items():
                named = {one["name"] for one in about.get("parameters", ())}
                params = {name: value for name, value in query.items() if name in named}
                body = bodies.get(path.rpartition("/")[2], {}) if method in ("post", "patch") else None
                answer = http.request(method, address.replace("{name}", "x"), params=params, json=body)
                assert refused(answer, 404), (method, address)
                tried += 1
    assert tried > 100


# Uploads.


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes uploads of up to one MiB."""
    found = new_server(tmp_path_factory.mktemp("narrow"), ["--max-upload", "1M"])
    found.start()
    yield found
    ended(found)


def _left(server: Server, upload: str) -> list[str]:
    return [file.name for file in (server.home / "models" / upload).iterdir()]


def _arriving(server: Server, upload: str) -> list[str]:
    return [file.name for file in (server.home / "models" / ".pending" / upload).iterdir()]


@pytest.mark.parametrize("size", [(1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("told", [True, False])
def test_an_upload_above_the_limit_leaves_nothing(narrow: Server, size: int, told: bool) -> None:
    upload = narrow.client().post("/uploads").json()
    assert upload["most_bytes"] == 1 << 20
    content: Any = b"x" * size if told else (b"x" * 65536 for _ in range(size // 65536 + 1))
    said = refused(narrow.client().put(f"/uploads/{upload['id']}/large.onnx", content=content), 413)
    assert "1 MiB" in said or "large.onnx is too large" in said
    assert _left(narrow, upload["id"]) == []


def test_all_files_of_an_upload_together_have_one_limit(narrow: Server) -> None:
    upload = narrow.client().post("/uploads").json()["id"]
    for name, status in (("a.bin", 201), ("b.bin", 413), ("a.bin", 201)):
        sent = narrow.client().put(f"/uploads/{upload}/{name}", content=b"x" * 600_000)
        assert sent.status_code == status
    assert _left(narrow, upload) == ["a.bin"]


def test_a_client_that_goes_away_leaves_nothing(narrow: Server) -> None:
    upload = narrow.client().post("/uploads").json()["id"]
    head = (
        f"PUT /api/v1/uploads/{upload}/half.onnx HTTP/1.1\r\nHost: 127.0.0.1:{narrow.port}\r\n"
        f"Authorization: Bearer {narrow.token}\r\nContent-Length: 100000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", narrow.port)) as client:
        client.sendall(head.encode() + b"x" * 50_000)
        until(lambda: len(_arriving(narrow, upload)) == 1, "the file was not begun")
    until(lambda: not _arriving(narrow, upload), "half a file was left")
    assert _left(narrow, upload) == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [("..%2F..%2Fetc%2Fpasswd", "passwd"), ("..%5C..%5Cevil.onnx", "evil.onnx"), ("a%00b.onnx", "a_b.onnx")],
)
def test_the_name_of_a_file_cannot_lead_elsewhere(narrow: Server, name: str, kept: str) -> None:
    upload = narrow.client().post("/uploads").json()["id"]
    answer = narrow.client().put(f"/uploads/{upload}/{name}", content=b"x")
    if answer.status_code == 201:
        assert (answer.json()["name"], _left(narrow, upload)) == (kept, [kept])
    else:
        refused(answer, 404)
        assert _left(narrow, upload) == []
