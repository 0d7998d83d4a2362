"""The process that measures for the pages: takes job after job from the store, and says how far each is.

Started by `inferlab serve` as `python -m inferlab.web.runner`, the store in INFERLAB_STORE. When whoever started
it is gone (its standard input ends), it ends after the job in progress; by SIGTERM at once, and what is measured
is kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from inferlab.errors import InferlabError
from inferlab.lab.executor import Executor
from inferlab.machine import node_name
from inferlab.store import open_store
from inferlab.store.entries import QueuedJob
from inferlab.store.store import Store
from inferlab.workspace import requests
from inferlab.workspace.jobs import Ended, Tracker, work

# Between two looks at an empty queue, and between two reports of a job.
_IDLE_S = 0.3
_REPORT_S = 1.0


def main() -> int:
    """Work until nobody needs it any more."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open_store() as store:
        runner = Runner(store)
        signal.signal(signal.SIGTERM, runner.stop)
        threading.Thread(target=runner.wait_for_end_of_input, daemon=True).start()
        try:
            with only_runner(store.name):
                runner.work()
        except KeyboardInterrupt:
            pass
    return 0


@contextmanager
def only_runner(store_name: str) -> Iterator[None]:
    """Wait until no other process works for this store on this machine."""
    digest = hashlib.sha256(f"{node_name()} {store_name}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"inferlab-runner-{os.getuid()}-{digest}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Runner:
    """Takes jobs one after the other."""

    def __init__(self, store: Store, executor: Executor | None = None) -> None:
        self._store, self._executor = store, executor
        self._stopping = False
        self._alone = False

    def stop(self, number: int, frame: FrameType | None) -> None:
        """End at once, keeping what is measured: a handler of SIGTERM."""
        self._stopping = True
        raise KeyboardInterrupt

    def wait_for_end_of_input(self) -> None:
        """Whoever started us holds the other end of our input; its end is theirs."""
        while os.read(sys.stdin.fileno(), 1024):
            pass
        self._alone = True

    def work(self) -> None:
        """Do what is in the queue and what comes, for as long as somebody needs it."""
        # We hold the lock, so nobody works on what is said to be running.
        self._store.jobs.interrupt_running()
        while not (self._stopping or self._alone):
            if not self.work_once():
                time.sleep(_IDLE_S)

    def work_once(self) -> bool:
        """Do the next job; says whether there was one."""
        job = self._store.jobs.take()
        if job is None:
            return False
        ended = self._done(job)
        self._store.jobs.end(job.id, ended.status, ended.failure)
        return True

    def _done(self, job: QueuedJob) -> Ended:
        try:
            request = requests.request_of(job)
            tracker = Tracker(request)
            with Reporting(self._store, job.id, tracker):
                return self._after_interrupt(work(job, request, self._store, tracker, self._executor))
        except KeyboardInterrupt:
            return self._after_interrupt(Ended("cancelled"))
        except InferlabError as error:
            return Ended("failed", str(error))
        except OSError as error:
            return Ended("failed", f"Operating system error: {error}.")
        except Exception as error:
            # A fault of ours must not take the queue with it.
            return Ended("failed", f"Internal error: {type(error).__name__}: {error}.")

    def _after_interrupt(self, ended: Ended) -> Ended:
        """What the user did not cancel was interrupted."""
        return Ended("interrupted") if self._stopping and ended.status == "cancelled" else ended


class Reporting:
    """Writes about once a second how far a job is, and passes on that the user cancelled it."""

    def __init__(self, store: Store, job_id: str, tracker: Tracker) -> None:
        self._store, self._job_id, self._tracker = store, job_id, tracker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._log = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def _report(self) -> None:
        cancelled = False
        while not self._over.wait(_REPORT_S):
            if self._write() and not cancelled:
                cancelled = True
                # As Ctrl-C would: the main thread ends what it is doing and keeps what is measured.
                os.kill(os.getpid(), signal.SIGINT)

    def _write(self) -> bool:
        """Report; a store that cannot be written to now is tried again a second later."""
        log = self._tracker.log
        try:
            cancel = self._store.jobs.report(
                self._job_id, self._tracker.progress(), log if log != self._log else None
            )
        except InferlabError:
            return False
        self._log = log
        return cancel


if __name__ == "__main__":
    sys.exit(main())
