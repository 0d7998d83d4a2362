"""What commands share: the store that they name, and of those that measure the log, the file and the exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.progress import Log
from inferlab.cli.terminal import show_blocks
from inferlab.errors import NotSaved

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records import OutputCheck
    from inferlab.store.store import Store
    from inferlab.views.results import Result
    from inferlab.views.tables import Block

_STORE = "A path or postgresql:// URL.  [default: $INFERLAB_STORE, or your own store]"
_EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."

store_option = click.option("--store", "store_url", metavar="URL", help=_STORE)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
export_option = click.option("-x", "--export_path", type=click.Path(path_type=Path), help=_EXPORT)
strict_option = click.option(
    "--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5)."
)


@contextmanager
def opened(store_url: str | None, make: bool = False) -> Iterator[Store]:
    """The store that a command reads or changes; one that is not there is made only where that is wanted."""
    from inferlab.store import open_store

    with open_store(store_url, make) as store:
        yield store


class Work:
    """One measurement of a command: where it is saved, what is said on the way, and how it ends."""

    def __init__(self, store_url: str | None, no_save: bool, quiet: bool, export_path: Path | None) -> None:
        self.log = Log(quiet)
        self._store_url, self._no_save, self._export_path = store_url, no_save, export_path
        if export_path:
            from inferlab.views import files

            files.check_writable(export_path)

    @contextmanager
    def lab(self) -> Iterator[Lab]:
        """The laboratory, on the store that results are saved in."""
        from inferlab.lab import Lab
        from inferlab.store import saving_store

        with self.log:
            if self._no_save:
                yield Lab()
                return
            with saving_store(self._store_url, self.log) as store:
                yield Lab(store)

    def show(self, record: Result, blocks: Iterable[Block] | None = None) -> None:
        """Print a result, and write it to the file that was named."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks() if blocks is None else blocks)
        if self._export_path:
            self.write(self._export_path, record)

    def write(self, path: Path, record: Result, ending: str = "", done: str = "Saved to") -> None:
        """Write a result that was measured; where that fails it is said, and the rest goes on."""
        from inferlab.views import files, results

        try:
            files.write(path, results.render(record, ending or path.suffix.lower()))
        except NotSaved as error:
            self.log.warn_unsaved(str(error))
        else:
            self.log.say(f"{done} {path}")

    def say_saved(self, entry_id: str) -> None:
        """Say under which name a result was saved, if it was."""
        if entry_id and self.log.all_saved:
            self.log.say(f"Saved as {entry_id}: inferlab show {entry_id}")

    def exit_code(self, code: int) -> int:
        """The command's own code, or 6 where it is 0 and something was not saved."""
        return code or (0 if self.log.all_saved else NotSaved.exit_code)


def strict_code(check: OutputCheck) -> int:
    """The exit code under --strict: 5 where outputs do not match, which is said."""
    from inferlab.views.text import output_check

    if check.status == "match":
        return 0
    click.echo(f"inferlab: strict: the output check is {output_check(check)}", err=True)
    return 5


def measures(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command that measures the options of saving and showing; it gets them as `work`."""

    @store_option
    @click.option("--no-save", is_flag=True, help="Do not save the result in the store.")
    @quiet_option
    @export_option
    @functools.wraps(function)
    def run(
        *args: Any, store_url: str | None, no_save: bool, quiet: bool, export_path: Path | None, **given: Any
    ) -> int:
        return function(*args, work=Work(store_url, no_save, quiet, export_path), **given)

    return run
