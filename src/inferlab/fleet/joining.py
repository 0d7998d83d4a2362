"""Reach a Ray cluster, or start one here, and let it go again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from inferlab.errors import BadInput
from inferlab.fleet.cluster import Cluster, first_line

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
    # Ray's processes stand back for others by default, and so would what is measured.
    own = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}} if address == "local" else {}
    polite = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, namespace="inferlab", logging_level=logging.CRITICAL, log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.AuthenticationError) as error:
        if isinstance(error.__cause__ or error, ray.exceptions.AuthenticationError):
            raise BadInput(
                f"The Ray cluster at '{address}' asks for a token. Give Ray the cluster's, and say so with "
                "RAY_AUTH_MODE=token: https://docs.ray.io/en/latest/ray-security/token-auth.html"
            ) from error
        raise BadInput(
            f"There is no Ray cluster to join at '{address}': {first_line(error)} On a machine of the cluster "
            "say --cluster auto; --cluster local starts one here."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, polite)


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
