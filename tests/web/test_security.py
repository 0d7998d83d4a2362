"""Who is let in, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from inferlab.web.security import Guard, WrongTokens

OWN = "http://127.0.0.1:8765"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


async def _counted(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def _greeted(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def _client(host: str = "127.0.0.1", token: str | None = None, most: int = 2**30, at: str = OWN) -> TestClient:
    routes = [
        WebSocketRoute("/ws", _greeted),
        *(Route(path, _counted, methods=METHODS) for path in ("/", "/page", "/api/v1/jobs")),
    ]
    app = Guard(Starlette(routes=routes), host=host, port=8765, token=token, most_upload_bytes=most)
    return TestClient(app, base_url=at, follow_redirects=False, raise_server_exceptions=False)


def _greeting(client: TestClient, **headers: str) -> str:
    place = client.base_url.netloc.decode()
    with client.websocket_connect("/ws", headers={"host": place, **headers}) as websocket:
        return str(websocket.receive_text())


# ---- Host ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LocalHost:8765", "[::1]:8765"])
def test_the_names_of_this_machine_are_served(host: str) -> None:
    assert _client().get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8765",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8766",
        "127.0.0.1.evil.example:8765",
        "localhost.:8765",
        "",
        "127.0.0.1:8765@evil.example",
        "0.0.0.0:8765",
    ],
)
def test_another_name_that_leads_here_is_refused(host: str) -> None:
    refused = _client().get("/", headers={"Host": host})
    assert refused.status_code == 421
    assert "inferlab answers only to the address that it printed when it was started." in refused.text
    with pytest.raises(WebSocketDisconnect):
        _greeting(_client(), host=host)


def test_the_usual_port_of_the_web_may_be_left_out() -> None:
    app = Guard(PlainTextResponse("hello"), host="127.0.0.1", port=80, token=None, most_upload_bytes=1)
    assert TestClient(app, base_url="http://localhost").get("/").text == "hello"


def test_a_loopback_address_of_ones_own_is_served_under_that_name_too() -> None:
    assert _client("127.0.0.5", at="http://127.0.0.5:8765").get("/").status_code == 200


@pytest.mark.parametrize("hosts", [[], [b"127.0.0.1:8765", b"evil.example"], [b"127.0.0.1:8765"] * 2])
def test_no_host_is_refused_and_so_are_two(hosts: list[bytes]) -> None:
    assert asyncio.run(_status([(b"host", host) for host in hosts])) == 421


async def _status(headers: list[tuple[bytes, bytes]], guard: Guard | None = None) -> int:
    found: list[int] = []

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            found.append(int(str(message["status"])))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    hello = PlainTextResponse("hello")
    guard = guard or Guard(hello, host="127.0.0.1", port=8765, token=None, most_upload_bytes=1)
    await guard(scope, receive, send)  # type: ignore[arg-type]
    return found[0]


# ---- Origin ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_our_own_pages_may_ask_for_anything(method: str) -> None:
    headers = {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}
    assert _client().request(method, "/api/v1/jobs", headers=headers).status_code == 200


def test_a_program_that_is_no_browser_may_ask_for_anything() -> None:
    assert _client().post("/api/v1/jobs", content=b"12345").text == "5"
    assert _greeting(_client()) == "hello"


@pytest.mark.parametrize("method", [*METHODS, "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:3000",
        "http://localhost:8765",
        "file://",
        "127.0.0.1:8765",
        "",
    ],
)
def test_another_origin_is_refused(method: str, origin: str) -> None:
    refused = _client().request(method, "/page", headers={"Origin": origin})
    assert refused.status_code == 403
    assert "This request comes from another web site, so it was refused." in refused.text
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:3000"])
def test_another_origin_gets_no_websocket(origin: str) -> None:
    with pytest.raises(WebSocketDisconnect) as closed:
        _greeting(_client(), origin=origin)
    assert closed.value.code == 1008


def test_our_own_pages_get_a_websocket() -> None:
    assert _greeting(_client(), origin=OWN) == "hello"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_can_neither_change_anything_nor_ask_the_api(site: str) -> None:
    client, headers = _client(), {"Sec-Fetch-Site": site}
    assert [client.request(method, "/page", headers=headers).status_code for method in METHODS] == [200] + [
        403
    ] * 4
    refused = client.get("/api/v1/jobs", headers=headers)
    assert refused.status_code == 403
    assert refused.json() == {"detail": "This request comes from another web site, so it was refused."}


# ---- token -----------------------------------------------------------------------------------------------------

SHARED = "http://lab.example:8765"


@pytest.fixture
def shared() -> Iterator[TestClient]:
    """A server that others can reach, with a client that keeps its cookies."""
    with _client("0.0.0.0", token="right", at=SHARED) as client:
        yield client


def test_an_address_that_others_can_reach_needs_a_token() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "lab.example", ""):
        with pytest.raises(ValueError, match="needs a token"):
            _client(host)


def test_without_the_token_nobody_is_let_in(shared: TestClient) -> None:
    page, api = shared.get("/page"), shared.get("/api/v1/jobs")
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "with its token" in page.text
    assert (api.status_code, list(api.json())) == (401, ["detail"])
    with pytest.raises(WebSocketDisconnect):
        _greeting(shared)


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(shared: TestClient) -> None:
    first = shared.get("/page?tab=a%20b&token=right")
    assert (first.status_code, first.headers["location"]) == (303, "/page?tab=a+b")
    cookie = first.headers["set-cookie"].lower()
    assert cookie.startswith("inferlab-8765=right;")
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert shared.get("/page").status_code == 200
    assert _greeting(shared, cookie="inferlab-8765=right") == "hello"


def test_a_token_in_the_address_leaves_it_also_where_the_cookie_is_there_already(shared: TestClient) -> None:
    headers = {"Cookie": "inferlab-8765=right"}
    for token in ("right", "of-yesterday"):
        again = shared.get(f"/page?token={token}", headers=headers)
        assert (again.status_code, again.headers["location"]) == (303, "/page")


def test_after_a_click_elsewhere_our_own_page_asks_again_for_a_strict_cookie_is_kept_back(
    shared: TestClient,
) -> None:
    first = shared.get("/page?token=right", headers={"Sec-Fetch-Site": "cross-site"})
    assert (first.status_code, first.headers["refresh"]) == (200, "0;url=/page")
    assert "set-cookie" in first.headers


def test_the_address_to_which_the_token_leads_is_ours(shared: TestClient) -> None:
    assert shared.get(f"{SHARED}//evil.example/?token=right").headers["location"] == "/evil.example/"


@pytest.mark.parametrize("token", ["wrong", "", "right ", "Right", "righ", "%C3%A9"])
def test_a_wrong_token_is_refused_however_it_comes(shared: TestClient, token: str) -> None:
    assert shared.get(f"/page?token={token}").status_code == 401
    assert shared.get("/page", headers={"Cookie": f"inferlab-8765={token.strip()}x"}).status_code == 401
    assert shared.get("/api/v1/jobs", headers={"Authorization": f"Bearer x{token}"}).status_code == 401


def test_programs_send_the_token_as_a_bearer(shared: TestClient) -> None:
    headers = {"Authorization": "Bearer right"}
    assert shared.post("/api/v1/jobs", headers=headers, content=b"123").text == "3"
    assert shared.post("/api/v1/jobs?token=right").status_code == 401
    assert shared.get("/api/v1/jobs", headers={"Authorization": "Basic right"}).status_code == 401


def test_with_a_token_the_origin_still_counts(shared: TestClient) -> None:
    headers = {"Authorization": "Bearer right", "Origin": "https://evil.example"}
    assert shared.post("/api/v1/jobs", headers=headers).status_code == 403
    assert shared.post("/api/v1/jobs", headers={**headers, "Origin": SHARED}).status_code == 200


def test_a_loopback_server_may_have_a_token_too() -> None:
    client = _client(token="right")
    assert client.get("/").status_code == 401
    assert client.get("/", headers={"Authorization": "Bearer right"}).status_code == 200
    assert client.get("/", headers={"Authorization": "Bearer right", "Host": "evil.example"}).status_code == 421


# ---- wrong tokens ----------------------------------------------------------------------------------------------


def test_the_answer_to_wrong_tokens_is_held_back_longer_and_longer_for_each_client() -> None:
    now_s = [0.0]
    wrong = WrongTokens(lambda: now_s[0])
    assert [wrong.delay_s("127.0.0.1") for _ in range(10)] == [0, 0, 0, 0.25, 0.5, 1, 2, 4, 8, 8]
    assert wrong.delay_s("127.0.0.2") == 0
    # One client of IPv6 has a whole network to itself.
    assert [wrong.delay_s(f"2001:db8::{number}") for number in range(5)] == [0, 0, 0, 0.25, 0.5]
    now_s[0] = 301.0
    assert wrong.delay_s("127.0.0.1") == 0


def test_who_has_the_right_token_does_not_wait_for_those_who_guess() -> None:
    async def guess_and_enter() -> list[int]:
        guesses = [asyncio.create_task(_status_of(guard, f"Bearer wrong-{number}")) for number in range(50)]
        await asyncio.sleep(0)
        right = await _status_of(guard, "Bearer right")
        refused = [task.result() for task in guesses if task.done()]
        for task in guesses:
            task.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        return [right, *sorted(refused)]

    guard = Guard(PlainTextResponse("hello"), host="127.0.0.1", port=8765, token="right", most_upload_bytes=1)
    # Three are answered at once, 32 are held back, and 15 would be too many to hold back.
    assert asyncio.run(guess_and_enter()) == [200, *[401] * 3, *[429] * 15]


def test_no_token_at_all_is_answered_at_once_however_often() -> None:
    client = _client(token="right")
    assert {client.get("/").status_code for _ in range(50)} == {401}


async def _status_of(guard: Guard, authorization: str) -> int:
    host, told = (b"host", b"127.0.0.1:8765"), (b"authorization", authorization.encode())
    return await _status([host, told], guard)


# ---- size and headers ------------------------------------------------------------------------------------------

ROOM = 2**20


def test_a_body_that_is_announced_as_too_large_is_not_read() -> None:
    client = _client(most=1000)
    assert client.post("/api/v1/jobs", content=b"x" * (1000 + ROOM)).text == str(1000 + ROOM)
    refused = client.post("/api/v1/jobs", content=b"x" * (1001 + ROOM))
    assert refused.status_code == 413
    assert refused.json()["detail"].startswith("This is more than 1000 bytes.")


def test_a_body_that_turns_out_too_large_is_cut_off() -> None:
    def parts(count: int) -> Iterator[bytes]:
        yield from [b"x" * 1000] * count

    client = _client(most=1000)
    assert client.post("/page", content=parts(1000)).text == "1000000"
    refused = client.post("/page", content=parts(1100))
    assert refused.status_code == 413
    assert "This is more than 1000 bytes." in refused.text


def test_headers_of_more_than_32_kib_are_refused_also_where_they_come_at_once() -> None:
    refused = _client().get("/api/v1/jobs", headers={"X-Long": "x" * 200_000})
    assert refused.status_code == 431
    assert refused.json()["detail"] == "The headers of this request have more than 32 KiB."
    assert _client().get("/", headers={"X-Long": "x" * 30_000}).status_code == 200


@pytest.mark.parametrize(
    ("path", "host"), [("/", "127.0.0.1:8765"), ("/none", "127.0.0.1:8765"), ("/", "evil.example")]
)
def test_every_answer_forbids_the_browser_other_hosts_frames_and_guesses(path: str, host: str) -> None:
    headers = _client().get(path, headers={"Host": host}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    allowed = {"'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:", "blob:"}
    assert {source for sources in policy.values() for source in sources.split()} <= allowed
