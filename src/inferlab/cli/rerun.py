"""`inferlab rerun ID`: measure a saved benchmark again, under the same conditions."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab import views
from inferlab.cli.options import EXPORT
from inferlab.cli.progress import Log
from inferlab.cli.stores import opened, store_option
from inferlab.records import Benchmark


@click.command("rerun")
@click.argument("entry_id", metavar="ID")
@click.option("--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5).")
@store_option
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(entry_id: str, strict: bool, store_url: str | None, quiet: bool, export_path: Path | None) -> int:
    """Measure a benchmark of the store again, under the same conditions, as a new entry.

    A model that has changed since is refused. Exit codes are those of inferlab benchmark.
    """
    from inferlab.cli.benchmark import show
    from inferlab.lab import Lab
    from inferlab.store import Stored
    from inferlab.views import files

    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log, opened(store_url) as store:
        before = store.get(entry_id)
        benchmark = Lab(store).rerun(before.id, log, live=log.live)
    code = show(benchmark, strict)
    if isinstance(before, Stored) and _cells(before.benchmark) != _cells(benchmark):
        log.say(f"Not all conditions are those of {before.id}: the cores or the inputs here are others.")
    if export_path:
        log.export(export_path, lambda: views.write(benchmark, export_path))
    if benchmark.id and log.all_saved:
        log.say(f"Saved as {benchmark.id}: inferlab show {benchmark.id}")
        if any(one.status in ("cancelled", "pending") for one in benchmark.outcomes):
            log.say(f"Next: inferlab benchmark --resume {benchmark.id}")
        elif code == 0 and len(benchmark.outcomes) == 1:
            log.say(f"Next: inferlab compare {before.id} {benchmark.id}")
    return log.exit_code(code)


def _cells(benchmark: Benchmark) -> set[str]:
    return {one.cell.id for one in benchmark.outcomes}
