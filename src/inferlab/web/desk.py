"""What all pages and requests of one server share: the workspace, the runner, and how far the jobs are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from nicegui import app, background_tasks, ui

from inferlab.errors import InferlabError, TooMany
from inferlab.model.download import stoppable
from inferlab.records import Event, Listener, Model, ignore
from inferlab.store.entries import QueuedJob
from inferlab.workspace.sources import is_fetched
from inferlab.workspace.workspace import Workspace

#: What is called when something has changed.
Changed = Callable[[], Awaitable[None] | None]
_P = ParamSpec("_P")
_T = TypeVar("_T")
_LOOK_S = 1.0
# Ages are shown again so often.
_TICK_S = 20.0
# A runner that dies at once is not started a hundred times a second.
_RESTART_S = 1.0
_STOP_S = 20.0
_SWEEP_S = 600.0
# Models that are downloaded at the same time, and with those that wait for it.
_FETCHERS = 3
_MOST_FETCHED = 12


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queue at one moment; `stamp` changes when entries, runs or projects come or go, or a job ends."""

    jobs: tuple[QueuedJob, ...] = ()
    stamp: tuple[str, ...] = ()

    def position(self, job_id: str) -> int:
        """How many jobs go before this one; 0 where it runs, is the next, or has ended."""
        return next((place for place, job in enumerate(self.jobs) if job.id == job_id), 0)


class Watch:
    """The one that looks at the store: once a second while somebody follows it, who is told of every change."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._followers: set[Callable[[], None]] = set()
        self._reads = self._newest_read = 0
        self.snapshot = Snapshot()
        #: Counts on while nothing changes, so that ages are shown again.
        self.ticks = 0

    def follow(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` whenever the snapshot changes or time has passed; returns what ends that."""
        self._followers.add(tell)
        return lambda: self._followers.discard(tell)

    async def refresh(self) -> Snapshot:
        """Look now; what was read before another look that is shown already changes nothing."""
        self._reads += 1
        number = self._reads
        try:
            snapshot = await asyncio.to_thread(self._read)
        except InferlabError:
            # The store is out of reach for a moment; whoever reads an entry will say it.
            return self.snapshot
        if number < self._newest_read:
            return self.snapshot
        self._newest_read = number
        if snapshot != self.snapshot:
            if _installing(self.snapshot) - _installing(snapshot):
                # Whoever asks for the engines next shall see what became of it.
                self._workspace.engines.forget()
            self.snapshot = snapshot
            self._tell()
        return self.snapshot

    async def run(self) -> None:
        """Look for as long as the server runs."""
        ticked_s = time.monotonic()
        while True:
            if self._followers:
                await self.refresh()
            if time.monotonic() - ticked_s >= _TICK_S:
                ticked_s = time.monotonic()
                self.ticks += 1
                self._tell()
            await asyncio.sleep(_LOOK_S)

    async def changes(self) -> AsyncIterator[Snapshot]:
        """Every snapshot from now on that differs from the one before."""
        changed = asyncio.Event()
        stop = self.follow(changed.set)
        last: Snapshot | None = None
        try:
            while True:
                changed.clear()
                if last is None or self.snapshot != last:
                    last = self.snapshot
                    yield last
                await changed.wait()
        finally:
            stop()

    def _tell(self) -> None:
        for tell in tuple(self._followers):
            tell()

    def _read(self) -> Snapshot:
        store = self._workspace.store
        return Snapshot(tuple(store.jobs.alive()), store.stamp())


def _installing(snapshot: Snapshot) -> set[str]:
    return {job.id for job in snapshot.jobs if job.kind == "install"}


class RunnerProcess:
    """The process that measures, started again when it dies."""

    def __init__(self, store_url: str | None) -> None:
        self._store_url = store_url
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def start(self) -> None:
        """Start it, and watch over it."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process that works now."""
        return self._process.pid if self._process else None

    def stop(self) -> None:
        """End it; the job in progress keeps what is measured and says that it was interrupted."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep_alive(self) -> None:
        while not self._stopping.is_set():
            environment = {**os.environ}
            if self._store_url is not None:
                environment["INFERLAB_STORE"] = self._store_url
            self._process = subprocess.Popen(
                [sys.executable, "-m", "inferlab.web.runner"],
                stdin=subprocess.PIPE,
                env=environment,
                # Ctrl-C is for us, who then end it.
                start_new_session=True,
            )
            self._process.wait()
            self._stopping.wait(_RESTART_S)


class Desk:
    """The one object of a server that pages and requests get."""

    def __init__(self, workspace: Workspace, store_url: str | None) -> None:
        self.workspace = workspace
        self.watch = Watch(workspace)
        self.runner = RunnerProcess(store_url)
        self._fetchers = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="inferlab-download")
        self._fetching = 0
        self._tasks: list[asyncio.Task[object]] = []

    async def change(self, act: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """Do something to the store in a thread, and let all pages see it at once."""
        result = await asyncio.to_thread(act, *arguments, **named)
        await self.watch.refresh()
        return result

    async def analyse(self, source: str, show: Listener = ignore) -> Model:
        """What a model is; one that must be fetched first waits for one of a few threads.

        `show` is told about once a second what happened last. Where the caller is cancelled, so is a download, and
        what reads a model ends when it next tells something.
        """
        fetched = is_fetched(source)
        if fetched and self._fetching >= _MOST_FETCHED:
            raise TooMany(f"{_MOST_FETCHED} models are being downloaded already. Try again when one has arrived.")
        stop = threading.Event()
        nothing = {"url": source, "received_bytes": 0, "total_bytes": None}
        last = Event("download", nothing) if fetched else None

        def listen(event: Event) -> None:
            nonlocal last
            if stop.is_set():
                raise InferlabError("Nobody waits for this model any more.")
            last = event

        def find() -> Model:
            with stoppable(stop):
                return self.workspace.analyse(source, listen)

        def done_with(task: asyncio.Future[Model]) -> None:
            self._fetching -= fetched
            if not task.cancelled():
                # Whoever was told of it already, or has gone, does not need it again.
                task.exception()

        self._fetching += fetched
        pool = self._fetchers if fetched else None
        task = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(pool, find))
        task.add_done_callback(done_with)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_LOOK_S)
                if last is not None:
                    show(last)
        finally:
            stop.set()
        return task.result()

    async def open(self) -> None:
        """Begin to work: called when the server starts."""
        self.runner.start()
        await self.watch.refresh()
        # Asking every engine takes seconds; whoever opens a dialog should not wait for them.
        asking = asyncio.to_thread(self.workspace.engines.all)
        self._tasks = [asyncio.create_task(each) for each in (self.watch.run(), self._sweep(), asking)]

    async def close(self) -> None:
        """Stop working: called when the server ends."""
        for task in self._tasks:
            task.cancel()
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.runner.stop)

    async def _sweep(self) -> None:
        """Remove uploads that were left, also by a server before this one."""
        while True:
            # What cannot be removed now may be gone the next time.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.workspace.sources.sweep)
            await asyncio.sleep(_SWEEP_S)


def follow(
    desk: Desk,
    changed: Callable[[Snapshot, Snapshot], Awaitable[None] | None],
    renew: Changed | None = None,
) -> None:
    """Call `changed` with the older and the newer state when the queue or the store changes.

    It goes on for as long as there is the part of the page that it is called in. `renew` shows ages as they are by
    then.
    """
    slot, client = ui.context.slot, ui.context.client
    part = slot.parent
    last, ticks, busy = desk.watch.snapshot, desk.watch.ticks, False

    async def catch_up() -> None:
        nonlocal last, ticks, busy
        if busy or part.is_deleted or not client.has_socket_connection:
            return
        busy = True
        try:
            with slot:
                while desk.watch.snapshot != last and not part.is_deleted:
                    before, last = last, desk.watch.snapshot
                    await done(changed(before, last))
                if renew is not None and ticks != desk.watch.ticks:
                    ticks = desk.watch.ticks
                    await done(renew())
        except Exception as error:
            with client:
                app.handle_exception(error)
        finally:
            busy = False

    def tell() -> None:
        if part.is_deleted:
            stop()
        else:
            background_tasks.create(catch_up(), name="follow")

    stop = desk.watch.follow(tell)
    client.on_connect(catch_up)
    client.on_delete(stop)


async def done(waiting: Awaitable[None] | None) -> None:
    """Wait for what a handler does, where it returned something to wait for."""
    if waiting is not None:
        await waiting
