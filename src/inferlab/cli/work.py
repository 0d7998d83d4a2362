"""What commands share: the store that they name, and of those that measure the log, the file and the exit code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.terminal import Log, show_blocks
from inferlab.errors import NotSaved

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records import OutputCheck
    from inferlab.store.store import Store
    from inferlab.views.results import Result, View
    from inferlab.views.tables import Block

_STORE = "A path or postgresql:// URL.  [default: $INFERLAB_STORE, or your own store]"
_EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."

store_option = click.option("--store", "store_url", metavar="URL", help=_STORE)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
export_option = click.option("-x", "--export_path", type=click.Path(path_type=Path), help=_EXPORT)
yes_option = click.option(
    "--yes",
    is_flag=True,
    help="Install releases of engines that are named, such as onnxruntime==1.22.1, without asking.",
)
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

    def __init__(
        self,
        store_url: str | None,
        no_save: bool,
        quiet: bool,
        export_path: Path | None = None,
        yes: bool = False,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.log = Log(quiet)
        self._yes, self._labels = yes, labels
        self._store_url, self._no_save, self._export_path = store_url, no_save, export_path
        if export_path:
            from inferlab.views import files

            files.check_writable(export_path)

    def need_engines(self, engines: Iterable[str]) -> None:
        """Install the releases among these engines that are missing, after a question or with --yes."""
        releases = [name for name in dict.fromkeys(engines) if "==" in name]
        if not releases:
            return
        from inferlab.engines import environments, registry
        from inferlab.engines.specs import spec_of
        from inferlab.records import is_release

        missing = [name for name in releases if is_release(name) and not environments.interpreter_of(name)]
        if not missing:
            return
        size_mb = sum(spec_of(name).size_bytes for name in missing) / 1e6
        if not self._yes:
            if not sys.stdin.isatty():
                raise registry.NotInstalled(
                    missing[0], f"inferlab engines install {missing[0]}, or give --yes to install it on first use"
                )
            question = f"Install {', '.join(missing)}? That takes about {size_mb:.0f} MB."
            if not click.confirm(question, err=True, default=True):
                raise registry.NotInstalled(missing[0], f"inferlab engines install {missing[0]}")
        for name in missing:
            environments.install(name, listener=self.log)

    def agree_to_releases(self, engine: str, count: int, versions: Sequence[str]) -> None:
        """Ask once whether so many of these releases may be installed, where any is missing."""
        from inferlab.engines import environments, registry
        from inferlab.engines.specs import spec_of

        names = [f"{engine}=={version}" for version in versions]
        missing = [name for name in names if not environments.interpreter_of(name)]
        if not missing or self._yes:
            return
        count = min(count, len(missing))
        if not sys.stdin.isatty():
            raise registry.NotInstalled(missing[0], "--yes, which installs every release that is needed")
        size_mb = count * spec_of(missing[0]).size_bytes / 1e6
        if not click.confirm(f"Install up to {count} releases of {engine}, about {size_mb:.0f} MB?", err=True):
            raise registry.NotInstalled(missing[0], "--yes, which installs every release that is needed")
        self._yes = True

    @contextmanager
    def lab(self) -> Iterator[Lab]:
        """The laboratory, on the store that results are saved in."""
        from inferlab.lab import Lab
        from inferlab.lab.labels import entry_labels
        from inferlab.store import saving_store

        with self.log:
            if self._no_save:
                yield Lab()
                return
            with saving_store(self._store_url, self.log) as store:
                yield Lab(store, labels=entry_labels(self._labels))

    def show(self, record: Result, blocks: Iterable[Block] | None = None) -> None:
        """Print a result, and write it to the file that was named."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks() if blocks is None else blocks)
        if self._export_path:
            self.write(self._export_path, record)

    @staticmethod
    def show_more(record: Result) -> None:
        """Print a result beside the one that was asked for."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks())

    def write(self, path: Path, record: Result, ending: str = "", done: str = "Saved to") -> None:
        """Write a result that was measured; where that fails it is said, and the rest goes on."""
        from inferlab.views import files, results

        try:
            files.write(path, results.render(record, ending or path.suffix.lower()))
        except NotSaved as error:
            self.log.warn_unsaved(str(error))
        else:
            self.log.say(f"{done} {path}")

    def write_view(self, view: View, record: Any) -> None:
        """Write what has a view but is no entry of the store to the file that was named, where one was."""
        if self._export_path is None:
            return
        from inferlab.codec import plain
        from inferlab.views import files, results

        text = results.render_view(view, self._export_path.suffix.lower(), lambda: plain(record))
        files.write(self._export_path, text)
        self.log.say(f"Saved to {self._export_path}")

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

    @yes_option
    @store_option
    @click.option("--no-save", is_flag=True, help="Do not save the result in the store.")
    @quiet_option
    @export_option
    @functools.wraps(function)
    def run(
        *args: Any,
        store_url: str | None,
        no_save: bool,
        quiet: bool,
        export_path: Path | None,
        yes: bool,
        **given: Any,
    ) -> int:
        work = Work(store_url, no_save, quiet, export_path, yes, given.pop("label", None) or ())
        work.need_engines([*(given.get("engine") or ()), *(given.get("measure") or ())])
        return function(*args, work=work, **given)

    return run
