"""Pages that programs ask for and no browser opens."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from websockets.asyncio.client import connect

from inferlab.web.connections import note_answer, overdue
from tests.helpers.web_server import PATIENCE_S, Server, until


def _page(answered_s: float | None, opened: bool = False) -> Any:
    scope: dict[str, Any] = {} if answered_s is None else {"inferlab.answered": answered_s}
    request = SimpleNamespace(scope=scope)
    return SimpleNamespace(environ={} if opened else None, is_deleted=False, request=request)


def test_of_many_pages_that_nobody_opened_the_oldest_go_first() -> None:
    pages = [_page(float(number)) for number in range(60)]
    opened, building = _page(0.0, opened=True), _page(None)
    everything = [opened, building, *pages]
    # Of the ten that are too many, the one of a second ago may still be opened.
    assert overdue(everything, 14.0) == pages[:9]
    assert overdue(everything, 65.0) == pages[:35]
    assert overdue(everything, 1000.0) == pages
    assert overdue([opened, building], 1000.0) == []


def test_the_moment_of_an_answer_is_noted_in_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    page = _page(None)
    note_answer(page.request.scope)
    assert overdue([cast(Any, page)], 38.0) == [page]


def test_polled_pages_are_forgotten_before_their_minute_is_over(server: Server) -> None:
    with httpx.Client(headers=server.headers, timeout=PATIENCE_S, trust_env=False) as http:
        pages = [_client_id(http.get(f"{server.url}/new").text) for _ in range(80)]
        assert asyncio.run(_opens(server, pages[-1]))
        # A look opens the page where it is still there, so each looks at another.
        old = iter(pages[:25])

        def is_forgotten() -> bool:
            time.sleep(0.5)
            return not asyncio.run(_opens(server, next(old)))

        until(is_forgotten, "the pages stayed")


def _client_id(page: str) -> str:
    return page.split("'client_id': '")[1].split("'")[0]


async def _opens(server: Server, client_id: str) -> bool:
    """Whether a browser can connect to a page."""
    query = f"implicit_handshake=true&client_id={client_id}&tab_id=t&document_id=d&next_message_id=0"
    address = f"ws://127.0.0.1:{server.port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket&{query}"
    async with connect(address, additional_headers=server.headers, proxy=None) as page:
        await page.recv()
        await page.send("40")
        answer = str(await page.recv())
    assert answer[:2] in ("40", "44"), answer
    return answer.startswith("40")
