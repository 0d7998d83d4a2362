"""Processes that have imported an engine, forked for each worker, where a process of its own takes too long."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from inferlab import worker
from inferlab.child import protocol
from inferlab.worker import Host, Launch, end_host, start

# A process that takes longer to import an engine is no help.
_PREPARE_S = 120.0


@contextmanager
def kept_warm(
    kinds: Sequence[str] = (), copies: int = 1, modules: Mapping[str, Sequence[str]] | None = None
) -> Iterator[None]:
    """Inside it, every worker is a fork of a process that has imported its engine, not a new process.

    `kinds` are those of the models to come. For each engine and choice of CPUs there are up to `copies` such
    processes that take turns: processes forked from one and the same share its layout of memory. An engine that
    starts threads while it is imported cannot be forked and gets new processes, as always. `modules` are what the
    processes of an engine that measure nothing import beside it.
    """
    before, worker.pool = worker.pool, (own := _Warm(list(kinds), copies, modules or {}))
    try:
        yield
    finally:
        worker.pool = before
        for host in own.idle:
            end_host(host)


@contextmanager
def never_forked() -> Iterator[None]:
    """Inside it, every worker is a new process."""
    before, worker.pool = worker.pool, None
    try:
        yield
    finally:
        worker.pool = before


class _Warm:
    """The processes that have imported an engine, by engine and CPUs."""

    def __init__(self, kinds: list[str], copies: int, modules: Mapping[str, Sequence[str]]) -> None:
        self._kinds, self._copies, self._modules = kinds, copies, modules
        self._hosts: dict[tuple[Any, ...], list[Host]] = {}
        self._unforkable: set[str] = set()
        #: Those that no worker uses, the one that waits longest first.
        self.idle: list[Host] = []
        # Threads of one program may ask engines at the same time.
        self._lock = threading.Lock()

    def lend(self, launch: Launch, cpus: Sequence[int], confined: bool) -> Host | None:
        """A new one while there are few, else the one that waits longest, if any."""
        with self._lock:
            if launch.name in self._unforkable:
                return None
            hosts = self._hosts.setdefault((launch.name, launch.interpreter, confined, *cpus), [])
            hosts[:] = [host for host in hosts if host.process.returncode is None]
            # Without CPUs of its own nothing is measured, so that the layout of memory does not matter.
            if len(hosts) < (self._copies if cpus else 1):
                host = start(launch, confined)
                if self._prepare(host, launch, cpus):
                    hosts.append(host)
                    return host
                self._unforkable.add(launch.name)
                end_host(host)
                return None
            waiting = [host for host in self.idle if host in hosts]
            if not waiting:
                return None
            self.idle.remove(waiting[0])
            return waiting[0]

    def give_back(self, host: Host) -> None:
        """Let the next worker fork from this process: its last fork has ended well."""
        host.scratch.empty()
        host.log.seek(0)
        host.log.truncate()
        self.idle.append(host)

    def _prepare(self, host: Host, launch: Launch, cpus: Sequence[int]) -> bool:
        """Let a new process import the engine; whether it can be forked then."""
        requests, answers = cast(BinaryIO, host.process.stdin), cast(BinaryIO, host.process.stdout)
        order = {"do": "prepare", "engine": dict(launch.reference), "cpus": list(cpus), "kinds": self._kinds}
        order["modules"] = [] if cpus else list(self._modules.get(launch.name, ()))
        try:
            protocol.send(requests, order)
            if not select.select([answers], [], [], _PREPARE_S)[0]:
                return False
            return bool(protocol.receive(answers)[0].get("forkable"))
        except (OSError, protocol.Closed):
            return False
