"""Reach a Ray cluster, or start one here, and let it go again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from inferlab.errors import BadInput
from inferlab.fleet.cluster import Cluster, first_line

# How long a machine may take to accept a connection, Ray to answer, and how often it is asked: by itself Ray tries
# for minutes, and says nothing of it.
_CONNECT_S = 5.0
_HASTE = {"RAY_gcs_server_port_wait_time_s": "2", "RAY_py_gcs_connect_timeout_s": "5"}
_UNAUTHENTICATED = ("Unauthenticated", "InvalidAuthToken", "AuthenticationError")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextlib.contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """The cluster at an address; 'local' starts one on this machine, which ends with us."""
    try:
        import ray
    except ImportError:
        raise BadInput(
            "A cluster is reached through Ray, which is not installed. "
            "Install it with: pip install 'inferlab[fleet]'"
        ) from None
    if address.startswith("ray://"):
        raise BadInput(
            "Ray's client (ray://) cannot pass on results one by one. Run inferlab on a machine of the cluster, "
            "with --cluster auto; from elsewhere: ray job submit -- inferlab benchmark …"
        )
    mine = not ray.is_initialized()
    with contextlib.redirect_stdout(_WithoutRay(sys.stdout)):
        try:
            if mine:
                _init(ray, address)
            yield Cluster(ray)
        finally:
            if mine:
                ray.shutdown()


def _init(ray: Any, address: str) -> None:
    os.environ.update(_QUIET)
    if address not in ("local", "auto"):
        _refuse_deaf(address)
    if address != "local":
        for name, value in _HASTE.items():
            os.environ.setdefault(name, value)
    # Ray's processes stand back for others by default, and so would what is measured.
    own = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}} if address == "local" else {}
    polite = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, namespace="inferlab", logging_level=logging.CRITICAL, log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.AuthenticationError) as error:
        if _is_unauthenticated(error):
            raise BadInput(
                f"The Ray cluster at '{address}' asks for a token, and this machine gave none or a wrong one. Put "
                "the head's ~/.ray/auth_token here in the same place, and set RAY_AUTH_MODE=token."
            ) from error
        raise BadInput(
            f"There is no Ray cluster to join at '{address}': {first_line(error)} On a machine of the cluster "
            "give --cluster auto; --cluster local starts one here."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, polite)


def _refuse_deaf(address: str) -> None:
    """Refuse an address at which nothing answers, before Ray tries for minutes to reach it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(
            f"'{address}' is not the address of a Ray cluster. Write it as HOST:6379, or give auto on a machine "
            "of the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        cause = "no answer" if isinstance(error, TimeoutError) else str(getattr(error, "strerror", "") or error)
        raise BadInput(
            f"There is no Ray cluster to join at '{address}': {cause[:1].lower()}{cause[1:]}. Look at the head's "
            "address and port; on a machine of the cluster give --cluster auto; --cluster local starts one here."
        ) from error


def _is_unauthenticated(error: BaseException) -> bool:
    """Whether Ray failed for want of a token: it hides that behind other errors."""
    seen: BaseException | None = error
    while seen is not None:
        if any(word in f"{type(seen).__name__}: {seen}" for word in _UNAUTHENTICATED):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class _WithoutRay:
    """Standard output without what Ray's own threads write to it: only results go there."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)
