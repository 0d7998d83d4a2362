"""What a command prints: results, log lines and how far it is; foreign text cannot steer the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

import click

from inferlab.errors import BadInput
from inferlab.units import escape_controls, one_line, shortened

if TYPE_CHECKING:
    from inferlab.records import Event
    from inferlab.views.tables import Block

_BAR = 24


class _Escaping:
    """A text stream that lets through only what can be seen, line breaks and tabs."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        #: Whether anything was written.
        self.used = False

    def write(self, written: str | bytes) -> int:
        """Write text with its control characters made visible, and characters that the stream lacks as well."""
        self.used = True
        # click answers a shell that completes in bytes.
        text = written if isinstance(written, str) else written.decode(errors="backslashreplace")
        shown, encoding = escape_controls(text), self.stream.encoding or "utf-8"
        self.stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(written)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            # Bytes would pass by.
            raise AttributeError(name)
        return getattr(self.stream, name)


@contextmanager
def escaping() -> Iterator[Callable[[], bool]]:
    """Print through streams that escape, whoever prints: commands, click, warnings, tracebacks of threads.

    Yields what tells whether anything was printed yet.
    """
    before = sys.stdout, sys.stderr
    after = _Escaping(before[0]), _Escaping(before[1])
    sys.stdout, sys.stderr = after
    try:
        yield lambda: any(one.used for one in after)
    finally:
        sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """The stream beneath, for those who style: they escape foreign text themselves."""
    return stream.stream if isinstance(stream, _Escaping) else stream


def show_blocks(blocks: Iterable[Block]) -> None:
    """Print a result: drawn by rich on a terminal, plain text elsewhere."""
    from inferlab.views import tables

    if not sys.stdout.isatty():
        for line in tables.text(blocks):
            click.echo(line)
        return
    from rich.console import Console

    sys.stdout.flush()
    tables.draw(blocks, Console(file=unescaped(sys.stdout), highlight=False))


def agree(question: str, yes: bool) -> None:
    """Ask on a terminal, unless the user agreed already; refuses where nobody can be asked or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput("Nothing was removed: there is no terminal to ask on. Agree to it with: --yes")
    if not click.confirm(question, err=True):
        raise BadInput("Nothing was removed.")


class Log:
    """A listener. One plain line, rewritten about once a second: anything richer would cost the measured cores."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self._open_line = False
        self._last = ""
        self._unsaved: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_line()

    def __call__(self, event: Event) -> None:
        """Show one event: a line when something new begins, then how far it is."""
        if event.code == "unsaved":
            self.warn_unsaved(f"the result is not saved: {event.data['reason']}")
            return
        if self._quiet:
            return
        if event.fraction is not None:
            if self.live:
                self._rewrite(event)
            return
        from inferlab.views.events import event as prose  # late: --help must not wait for all that it needs

        line = prose(event)
        if line and line != self._last:
            self._last = line
            self.say(line)

    def say(self, line: str) -> None:
        """Write one line, unless quiet."""
        if not self._quiet:
            self._end_line()
            click.echo(line, err=True)

    @property
    def all_saved(self) -> bool:
        """Whether nothing that was to be saved is lost so far."""
        return not self._unsaved

    def warn_unsaved(self, reason: str) -> None:
        """Say, each reason once and also when quiet, that something was to be saved and is not."""
        if reason not in self._unsaved:
            self._unsaved.append(reason)
            self._end_line()
            click.echo(f"inferlab: {reason}", err=True)

    def _rewrite(self, event: Event) -> None:
        done = round(_BAR * (event.fraction or 0.0))
        stage = event.code
        if "nodes" in event.data:
            from inferlab.views.events import progress

            # What does not fit into the line would scroll the screen with each rewriting.
            stage = shortened(one_line(progress(event)), max(10, shutil.get_terminal_size().columns - _BAR - 9))
        _style(f"\r[{'#' * done}{'.' * (_BAR - done)}] {event.fraction:4.0%} {stage}\033[K")
        self._open_line = True

    def _end_line(self) -> None:
        if self._open_line:
            _style("\r\033[K")
            self._open_line = False


def _style(text: str) -> None:
    stream = unescaped(sys.stderr)
    stream.write(text)
    stream.flush()
