"""How long the server waits for others: for what a connection should send or take, and for pages to be opened."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time

from h11 import Request as Head
from nicegui.client import Client
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

#: A request's line and headers together may have so many bytes.
MOST_HEAD_BYTES = 2**15
# From the first byte, or from connecting, to the end of the headers.
_HEAD_S = 10.0
# Without one byte of a body that was announced, or of an answer taken, while we wait for it.
_SILENCE_S = 60.0
_GRACE_S = 0.1
_MOST_CONNECTIONS = 500


class Connection(H11Protocol):
    """uvicorn's own connection, with limits on how long it waits for the other side, and on their number."""

    _limit: asyncio.TimerHandle | None = None
    _waits_for_head = False
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._look()
        if len(self.connections) > _most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, and see what is waited for now."""
        super().data_received(data)
        if self.transport.get_protocol() is self:
            self._look()

    def handle_websocket_upgrade(self, event: Head) -> None:
        """From now on it is a WebSocket, which has limits of its own."""
        self._stop()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """The next request may come; until its first byte uvicorn's own limit holds."""
        self._stop()
        self._since_s = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The other side does not take what we send."""
        super().pause_writing()
        self._wait(_SILENCE_S)

    def resume_writing(self) -> None:
        """The other side goes on."""
        self._stop()
        super().resume_writing()
        self._look()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """Set the limit that fits what is waited for."""
        if self.transport.is_closing():
            self._stop()
        elif self.is_idle:
            # Bytes that drip in do not prolong it.
            if not self._waits_for_head:
                self._wait(_HEAD_S)
                self._waits_for_head = True
        elif self.cycle.more_body:
            self._wait(_SILENCE_S)
        else:
            self._stop()

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._limit = self.loop.call_later(seconds, self._end)

    def _stop(self) -> None:
        self._waits_for_head = False
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self) -> None:
        if not self.is_idle and self.flow.read_paused and not self.flow.write_paused:
            # It is we who do not read: the disk is slow.
            self._wait(_SILENCE_S)
        else:
            # Where it was we who had no time, what came meanwhile is read before this.
            self._limit = self.loop.call_later(_GRACE_S, self.transport.abort)

    def _make_room(self) -> None:
        """Close the connection that has waited longest for a request: who asks for nothing locks nobody out."""
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, Connection) and connection.is_idle
        ]
        oldest = min(waiting, key=lambda connection: connection._since_s)
        oldest.transport.abort()
        self.connections.discard(oldest)


def _most_connections() -> int:
    """As many as leave enough files to be opened by all the rest."""
    return min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


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
