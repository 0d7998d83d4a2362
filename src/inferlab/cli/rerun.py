"""`inferlab rerun ID`: measure a saved benchmark again, under the same conditions."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.work import Work, export_option, opened, quiet_option, store_option, strict_option
from inferlab.records import Benchmark


@click.command("rerun")
@click.argument("entry_id", metavar="ID")
@strict_option
@store_option
@quiet_option
@export_option
def command(entry_id: str, strict: bool, store_url: str | None, quiet: bool, export_path: Path | None) -> int:
    """Measure a benchmark of the store again, under the same conditions, as a new entry.

    A model that has changed since is refused. Exit codes are those of inferlab benchmark.
    """
    from inferlab.cli.benchmark import show
    from inferlab.lab import Lab
    from inferlab.store import Stored

    work = Work(store_url, False, quiet, export_path)
    with work.log, opened(store_url) as store:
        before = store.get(entry_id)
        benchmark = Lab(store).rerun(before.id, work.log, live=work.log.live)
    code = show(benchmark, work, strict)
    if isinstance(before, Stored) and _cells(before.benchmark) != _cells(benchmark):
        work.log.say(f"Not all conditions are those of {before.id}: the cores or the inputs differ here.")
    work.say_saved(benchmark.id)
    if benchmark.id and work.log.all_saved:
        if any(one.status in ("cancelled", "pending") for one in benchmark.outcomes):
            work.log.say(f"Next: inferlab benchmark --resume {benchmark.id}")
        elif code == 0 and len(benchmark.outcomes) == 1:
            work.log.say(f"Next: inferlab compare {before.id} {benchmark.id}")
    return work.exit_code(code)


def _cells(benchmark: Benchmark) -> set[str]:
    return {one.cell.id for one in benchmark.outcomes}
