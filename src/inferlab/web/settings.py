"""What `inferlab serve` was asked for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PORT = 8765
DEFAULT_UPLOAD_BYTES = 4 * 2**30
#: On a busy machine a page comes late rather than not at all.
PAGE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One server: where it listens, whom it lets in, what it may read."""

    host: str = "127.0.0.1"
    #: None: the default, or the next one that is free.
    port: int | None = None
    open_browser: bool = True
    store_url: str | None = None
    #: Models may be opened by their path only below these.
    folders: tuple[Path, ...] = ()
    most_upload_bytes: int = DEFAULT_UPLOAD_BYTES
    #: Models may be downloaded from this machine and from private networks.
    private_downloads: bool = False
    needs_token: bool = True
    #: Whoever does not have it is not let in; None: everybody is, which is refused where the host is not loopback.
    token: str | None = field(default=None, repr=False)
    #: What pages and the HTTP API are made with; it belongs to the whole process.
    desk: Any = None


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address; of other names nobody knows."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
