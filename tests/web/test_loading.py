"""Pages whose content takes a while, and nobody waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from nicegui import core
from nicegui.client import Client
from nicegui.page import page
from starlette.requests import Request

from inferlab.web.components.charts import loaded


def test_a_page_that_was_given_up_while_its_content_was_read_ends_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = threading.Event()

    async def build(client: Client) -> None:
        with client:
            await loaded(read.wait, 60)

    async def give_up() -> bool:
        monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        client = Client(page("/"), request=Request(scope))
        building = asyncio.create_task(build(client))
        while not (building.done() or client._waiting_for_connection.is_set()):
            await asyncio.sleep(0.01)
        client.delete()
        read.set()
        await asyncio.wait([building])
        return building.cancelled()

    assert asyncio.run(give_up())
