"""Start the web server, say where it is, and end it cleanly."""

from __future__ import annotations

import errno
import gc
import html
import os
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from inferlab.errors import BadInput
from inferlab.settings import LONGEST_DOWNLOAD_S, MOST_DOWNLOAD_BYTES, PUBLIC_DOWNLOADS
from inferlab.store import open_store
from inferlab.web.app import create
from inferlab.web.connections import MOST_HEAD_BYTES, Connection
from inferlab.web.desk import Desk
from inferlab.web.faults import quiet_libraries
from inferlab.web.security import DEFAULT_PORT, Settings, is_loopback, new_token, own_token, stored_token
from inferlab.workspace.workspace import Workspace

# How far to look for a free port beyond the default.
_MOST_PORTS = 100
# Open pages are told to close; whoever does not in this time is cut off.
_PATIENCE_S = 1
_LONGEST_DOWNLOAD_S = 3600
_TO_THE_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>inferlab</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={url}"></head>
<body><a href="{url}">Open inferlab</a></body></html>
"""


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or a polite kill; `say` gets the lines that tell the user where to look."""
    if not settings.needs_token and not is_loopback(settings.host):
        raise BadInput(
            f"--no-token is refused: {settings.host} can be reached from other machines. Leave it out, or listen "
            "on 127.0.0.1."
        )
    listening = _listening(settings.host, settings.port)
    settings = replace(settings, port=listening.getsockname()[1], token=_token(settings))
    _limit_downloads(settings)
    with open_store(settings.store_url) as store:
        workspace = Workspace(store, settings.folders, settings.most_upload_bytes)
        _run(replace(settings, desk=Desk(workspace, settings.store_url)), listening, say)


def _limit_downloads(settings: Settings) -> None:
    """Hold downloads of this process, and of those that it starts, to what others may ask for."""
    os.environ[MOST_DOWNLOAD_BYTES] = str(settings.most_upload_bytes)
    os.environ[LONGEST_DOWNLOAD_S] = str(_LONGEST_DOWNLOAD_S)
    os.environ[PUBLIC_DOWNLOADS] = "0" if settings.private_downloads else "1"


def _token(settings: Settings) -> str | None:
    """The token to ask for: the user's own, that of the user's file, or a new one where it may be overheard."""
    token = own_token()
    if not settings.needs_token:
        return None
    if token:
        return token
    # On the way from another machine it is not encrypted, so it is useless after the server has ended.
    return stored_token() if is_loopback(settings.host) else new_token()


def _run(settings: Settings, listening: socket.socket, say: Callable[[str], None]) -> None:
    app = create(settings)
    quiet_libraries()
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        # The other protocol of uvicorn has no limit for headers.
        http=Connection,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        server_header=False,
        proxy_headers=False,
        ws_per_message_deflate=not is_loopback(settings.host),
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    with tempfile.TemporaryDirectory(prefix="inferlab-") as private:
        _Server(config, lambda: _announce(settings, say, Path(private))).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Says when it answers; to stop it by a signal is how it ends, no interruption that goes on."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer, then say so."""
        await super().startup(sockets)
        # What lives as long as the server is not looked through each time that garbage is collected.
        gc.collect()
        gc.freeze()
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End politely at the first signal, at once at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _announce(settings: Settings, say: Callable[[str], None], private: Path) -> None:
    url = address(settings)
    say(f"inferlab is at {url}")
    say("Press Ctrl-C to stop.")
    if settings.open_browser and _has_screen():
        threading.Thread(target=webbrowser.open, args=(_to_open(url, settings, private),), daemon=True).start()


def _to_open(url: str, settings: Settings, private: Path) -> str:
    """What the browser is started with: any user of the machine can read its command line, so no token is in it.

    A file in a folder that only its owner can enter leads on to the address with the token.
    """
    if settings.token is None:
        return url
    path = private / "open.html"
    path.write_text(_TO_THE_PAGE.format(url=html.escape(url)), encoding="utf-8")
    return path.as_uri()


def address(settings: Settings) -> str:
    """Where a browser finds the server, with the token where one is needed."""
    # All addresses of the machine are one that a browser cannot open: its name is more use to others.
    host = socket.gethostname() if settings.host in ("", "0.0.0.0", "::") else settings.host.strip("[]")  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.port}/" + (f"?token={settings.token}" if settings.token else "")


def _has_screen() -> bool:
    """Whether a browser would get a window; without one Python starts a text browser, here in the terminal."""
    return sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket that listens at the port, or where none was asked for, at the first free one from the default."""
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _MOST_PORTS) if port is None else (port,)
    for each in ports:
        try:
            return _opened(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadInput(
                    f"inferlab cannot listen on {host}, port {each}: {error.strerror or error}."
                ) from error
    if port is None:
        raise BadInput(f"The ports {ports[0]} to {ports[-1]} are all taken. Name a free one with --port.")
    raise BadInput(
        f"Port {port} is taken by another program. Name another with --port, or none for the next free."
    )


def _opened(host: str, port: int) -> socket.socket:
    bare = host.strip("[]") or None
    family, kind, protocol, _, place = socket.getaddrinfo(
        bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # Or else a server that was just stopped blocks its port for a minute.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen()
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening
