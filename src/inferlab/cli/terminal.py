"""The way out: whatever a command prints passes through here, and foreign text cannot steer the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from inferlab.errors import BadInput
from inferlab.units import escape_controls

if TYPE_CHECKING:
    from inferlab.views.tables import Block


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
