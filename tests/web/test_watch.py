"""What a server remembers while jobs come and go."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from inferlab.store import open_store
from inferlab.web.desk import Snapshot, Watch
from inferlab.workspace.workspace import Workspace


def test_engines_are_asked_again_after_an_installation_ended(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "lab.db")) as store:
        workspace = Workspace(store)
        watch = Watch(workspace)
        job = store.jobs.add("install", None, {"engine": "deepsparse"})
        asyncio.run(watch.refresh())
        workspace.engines.all()
        store.jobs.cancel(job.id)
        asyncio.run(watch.refresh())
        assert workspace.engines.known is None


class _SlowFirst(Watch):
    """Its first look has read the queue, and then takes until the second one is over."""

    second_over = threading.Event()
    looks = 0

    def _read(self) -> Snapshot:
        self.looks += 1
        first, found = self.looks == 1, super()._read()
        if first:
            assert self.second_over.wait(60)
        return found


def test_a_look_that_ends_late_does_not_bring_back_what_it_read_before_a_newer_one(tmp_path: Path) -> None:
    async def look_twice(watch: _SlowFirst) -> None:
        first = asyncio.create_task(watch.refresh())
        while not watch.looks:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(_queue_one, watch)
        newer = await watch.refresh()
        assert len(newer.jobs) == 1
        watch.second_over.set()
        assert await first == newer
        assert watch.snapshot == newer

    with open_store(str(tmp_path / "lab.db")) as store:
        asyncio.run(look_twice(_SlowFirst(Workspace(store))))


def _queue_one(watch: _SlowFirst) -> None:
    watch._workspace.store.jobs.add("install", None, {"engine": "deepsparse"})


def test_who_follows_is_told_of_every_change_and_of_none_after_that(tmp_path: Path) -> None:
    told: list[int] = []
    with open_store(str(tmp_path / "lab.db")) as store:
        watch = Watch(Workspace(store))
        stop = watch.follow(lambda: told.append(len(watch.snapshot.jobs)))
        asyncio.run(watch.refresh())
        store.jobs.add("install", None, {"engine": "deepsparse"})
        asyncio.run(watch.refresh())
        asyncio.run(watch.refresh())
        stop()
        store.jobs.add("install", None, {"engine": "executor"})
        asyncio.run(watch.refresh())
        assert len(watch.snapshot.jobs) == 2
    assert told == [0, 1]
