"""What happens on the way: log lines on stderr, and on a terminal one line that shows how far it is."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self

import click

from inferlab.cli.terminal import unescaped
from inferlab.records import Event
from inferlab.units import one_line, shortened

_BAR = 24


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
