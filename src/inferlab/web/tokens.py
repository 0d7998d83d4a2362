"""The token that lets browsers and programs in: where it is stored, and how wrong ones are slowed down."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import stat
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.settings import token_file

#: Names a token of the user's own choice; it is taken out of the environment, which child processes inherit.
VARIABLE = "INFERLAB_TOKEN"
_FORM = re.compile(r"[A-Za-z0-9._~-]{16,256}")

# The first wrong tokens of a client cost nothing (an old tab), each further one twice as much as the one before.
_FREE_FAILURES = 3
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.25, 8.0
_FORGET_AFTER_S = 300.0
_MOST_CLIENTS = 1024
# Answers that are being delayed hold a connection each.
_MOST_WAITING = 32


def own_token() -> str | None:
    """The token that the user put into the environment; from then on it is not there any more."""
    token = os.environ.pop(VARIABLE, "")
    if token and not _FORM.fullmatch(token):
        raise BadInput(
            f"{VARIABLE} cannot be used: a token has 16 to 256 letters, digits, or any of '-', '.', '_' and '~'."
        )
    return token or None


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def stored_token() -> str:
    """The token of this user on this machine, made at the first call; nobody else can read its file."""
    path = token_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            if token := _read_private(path):
                return token
            _write_private(path, new_token())
        token = _read_private(path)
    except OSError as error:
        raise BadInput(
            f"The token cannot be stored in {path}: {error.strerror or error}. Name one in {VARIABLE}, or "
            "start with --no-token."
        ) from error
    if not token:
        raise BadInput(f"{path} must be a file that only you can read. Remove it, or start with --no-token.")
    return token


def _read_private(path: Path) -> str:
    """The token in a file, or nothing where there is none that others cannot have read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        private = about.st_uid == os.getuid() and not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not private or not stat.S_ISREG(about.st_mode):
            return ""
        text = file.read(1024).decode("ascii", "replace").strip()
    return text if _FORM.fullmatch(text) else ""


def _write_private(path: Path, token: str) -> None:
    """Write the token whole or not at all; mkstemp's files are readable by their owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".token-")
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{token}\n")
        if path.exists() or path.is_symlink():
            unfinished.replace(path)
        else:
            # Two servers that start at once end up with the same token.
            path.hardlink_to(unfinished)
    except FileExistsError:
        pass
    finally:
        unfinished.unlink(missing_ok=True)


class WrongTokens:
    """How long the answer to a wrong token is held back; who has the right one never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._waiting = 0

    def delay_s(self, client: str) -> float | None:
        """Count one more failure of a client; None: too many answers are held back already, refuse at once."""
        key, now_s = _network(client), self._clock()
        count, last_s = self._failures.pop(key, (0, now_s))
        count = 1 if now_s - last_s > _FORGET_AFTER_S else count + 1
        self._failures[key] = (count, now_s)
        while len(self._failures) > _MOST_CLIENTS:
            self._failures.popitem(last=False)
        if count <= _FREE_FAILURES:
            return 0.0
        if self._waiting >= _MOST_WAITING:
            return None
        return float(min(_FIRST_DELAY_S * 2 ** min(count - _FREE_FAILURES - 1, 30), _LONGEST_DELAY_S))

    async def hold(self, client: str) -> bool:
        """Wait as long as this client's failure costs; False where it must be refused without waiting."""
        seconds = self.delay_s(client)
        if seconds is None:
            return False
        if seconds:
            self._waiting += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self._waiting -= 1
        return True


def _network(client: str) -> str:
    """A client's address; one IPv6 client has a whole /64 of them."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    return client if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
