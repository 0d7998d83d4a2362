"""The command line: one file a command, imported only when used; foreign text cannot steer the terminal."""

from __future__ import annotations

import importlib
import keyword
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import click

from inferlab.errors import InferlabError, keep
from inferlab.units import escape_controls, shortened
from inferlab.version import __version__

_COMMANDS = {
    "benchmark": "Measure how fast a model runs.",
    "doctor": "Is this machine fit for measuring?",
    "compare": "Is the difference between two models, engines or settings real?",
    "gate": "Did a change make a model slower? For continuous integration.",
    "bisect": "Find the release of an engine in which a model became slower, larger or wrong.",
    "capacity": "Find the highest rate that meets a latency objective.",
    "recommend": "Find the best engine, cores, streams and batch size.",
    "generate": "Measure how fast a language model generates tokens.",
    "profile": "Where the time goes, layer by layer, and what pruning would gain and cost.",
    "optimize": "Make a pruned or quantised version of a model, and measure what it cost and gained.",
    "plot": "Draw results as a chart.",
    "serve": "Show projects, profiles and benchmarks as a web page.",
    "engines": "List the engines, install or remove one.",
    "export": "Turn a PyTorch model into ONNX and check it, or entries of the store into a file.",
    "history": "List what was measured, newest first.",
    "trend": "Show the same cell over time, and where it changed.",
    "show": "Show an entry of the store.",
    "rerun": "Measure an entry again, under the same conditions.",
    "remove": "Remove entries from the store.",
    "import": "Import the entries of an exported file.",
    "prune": "Remove old entries from the store.",
    "store": "Check the store, or copy it while it is in use.",
    "completion": "Print the script for completion in bash, zsh or fish.",
}

_LONGEST = 4000
_EPILOG = """Start with: inferlab benchmark demo:resnet50 -t 3

Exit codes: 0 done, 1 a gate says "regressed", 2 bad input, 3 a cell failed, 4 inconclusive at a gate, 5 wrong
outputs under --strict, 6 measured but not saved, 70 internal error, 130 interrupted."""


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
        yield lambda: any(stream.used for stream in after)
    finally:
        sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """The stream beneath, for those who style: they escape foreign text themselves."""
    return stream.stream if isinstance(stream, _Escaping) else stream


class _Interrupted(BaseException):
    """Ctrl-C, or a polite kill."""


class _LazyGroup(click.Group):
    """Knows its commands by name and imports them when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, as --help lists them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        # A module cannot be called import.
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = importlib.import_module(f"inferlab.cli.{module}").command
        # From here on there may be something to stop and to save. Started in the background, we may have been
        # told to ignore it.
        if callable(signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, _interrupt)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interruption passes click by, which would print an empty line for it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _underscores(token: str) -> str:
    """--batch-size and --batch_size are the same."""
    return token.replace("-", "_")


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    # Colour is ours alone: what looks like it in foreign text is escaped where it leaves, not taken away.
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _underscores, "color": True},
)
@click.version_option(__version__, "--version", message="inferlab %(version)s")
def group() -> None:
    """How fast does a model run on a CPU, on which engine, and how sure is that?"""


_interrupted = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Remember it too: libraries that are interrupted while they are imported raise something else."""
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def main() -> None:
    """Run a command and turn what it raises into a sentence and an exit code."""
    with escaping() as printed:
        try:
            # A polite kill is an interruption: engines are stopped and what was measured is kept.
            signal.signal(signal.SIGTERM, _interrupt)
            code = int(group.main(prog_name="inferlab", standalone_mode=False) or 0)
        except BaseException as error:
            code = _explain(error, printed())
        sys.exit(code)


def _explain(error: BaseException, printed: bool) -> int:
    """Say what went wrong; the exit code. Whoever interrupts before anything was printed knows it already."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            raise error
        case _Interrupted() | KeyboardInterrupt() | click.Abort():
            if printed:
                _say("interrupted")
            return 130
        case click.ClickException():
            error.show()
            return error.exit_code
        case InferlabError():
            _say(str(error))
            return error.exit_code
        case BrokenPipeError():
            # Whoever read our output has gone; nothing more can be said to them.
            sys.stderr.close()
            return 128 + signal.SIGPIPE
        case _ if _interrupted:
            if printed:
                _say("interrupted")
            return 130
        case OSError():
            # A full disk, a folder that may not be written: the system's own words say it best.
            _say(f"operating system error: {error}")
            return 70
        case _:
            _say(f"internal error ({type(error).__name__}: {error}). {keep(error)}")
            return 70


def _say(text: str) -> None:
    # Of a foreign name of any length, its ends will do.
    click.echo(f"inferlab: {shortened(text, _LONGEST)}", err=True, color=True)
