"""A process that writes to a store: waits for a line, then opens it, adds runs and says so after each."""

from __future__ import annotations

import sys

from inferlab.store import open_store
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN


def main(url: str, entry_id: str, count: int) -> None:
    """Add runs to a benchmark, or to a new one where the id is empty."""
    _say("ready")
    sys.stdin.readline()
    with open_store(url) as store:
        entry_id = entry_id or store.begin(PLAN, MODEL, [a_cell()])
        for index in range(count):
            store.add_run(entry_id, a_cell().id, steady_run(1.0 + index, calls=50))
            _say(str(index))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
