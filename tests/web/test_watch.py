"""What a server remembers while jobs come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from inferlab.store import open_store
from inferlab.web.desk import Watch
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
