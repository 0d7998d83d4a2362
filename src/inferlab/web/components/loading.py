"""Pages whose content takes a while: the frame is shown at once, the content when it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from nicegui import html, ui

from inferlab.web.components.figures import prepare

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
# What is there sooner comes with the page itself, which saves the browser a second drawing.
_AT_ONCE_S = 0.15


async def loaded(read: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs) -> _Found:
    """What `read` returns, from a thread; a page that waits longer for it is sent with a sign that it does."""
    task = asyncio.create_task(asyncio.to_thread(read, *given, **named))
    done, _ = await asyncio.wait([task], timeout=_AT_ONCE_S)
    if not done:
        prepare()
        waiting = html.div("Opening…").classes("il-empty il-muted").props('data-testid="opening"')
        client = ui.context.client
        await client.connected()
        await asyncio.wait([task])
        if client.is_deleted:
            # Nobody came for the page, as under load: there is nothing left to put the content into.
            raise asyncio.CancelledError
        waiting.delete()
    return task.result()
