"""Pages that were asked for and never opened by a browser, as when programs poll them: they do not pile up.

NiceGUI keeps a page for a minute until a browser connects to it, a third of a megabyte each.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from nicegui.client import Client
from starlette.types import Scope

# A browser connects to a page within a second or two; on a busy machine later.
_PATIENCE_S = 30.0
# Where there are more, those that have waited longer than this are dropped, the oldest first.
_MOST = 50
_SHORT_PATIENCE_S = 5.0
_LOOK_S = 1.0
_ANSWERED = "inferlab.answered"


def note_answer(scope: Scope) -> None:
    """The answer to a request has begun: from now on a browser may connect to its page."""
    scope[_ANSWERED] = time.monotonic()


async def forget_unopened() -> None:
    """Drop what nobody opened, for as long as the server runs."""
    while True:
        await asyncio.sleep(_LOOK_S)
        for client in overdue(list(Client.instances.values()), time.monotonic()):
            # NiceGUI's own look may have been first.
            with contextlib.suppress(KeyError):
                client.delete()


def overdue(clients: list[Client], now_s: float) -> list[Client]:
    """Those of some pages that no browser will open any more."""
    waiting = [(answered, client) for client in clients if (answered := _waits_since(client)) is not None]
    waiting.sort(key=lambda pair: pair[0])
    crowd = max(0, len(waiting) - _MOST)
    return [
        client
        for number, (answered, client) in enumerate(waiting)
        if now_s - answered > (_SHORT_PATIENCE_S if number < crowd else _PATIENCE_S)
    ]


def _waits_since(client: Client) -> float | None:
    """When a page was sent that no browser has connected to yet."""
    if client.environ is not None or client.is_deleted:
        return None
    try:
        answered = client.request.scope.get(_ANSWERED)
    except RuntimeError:
        # NiceGUI's own page for what belongs to none.
        return None
    return None if answered is None else float(answered)
