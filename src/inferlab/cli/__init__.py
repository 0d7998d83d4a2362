"""The command line: one file a command, imported only when that command is used."""

from __future__ import annotations

import importlib
import keyword
import signal
import sys

import click

from inferlab.errors import InferlabError, keep
from inferlab.version import __version__

_COMMANDS = {
    "benchmark": "Measure how fast a model runs.",
    "doctor": "Is this machine fit for measuring?",
    "compare": "Is the difference between two models, engines or settings real?",
    "capacity": "Find the highest rate that keeps a latency objective.",
    "recommend": "Find the best engine, cores, streams and batch size.",
    "profile": "Where the time goes, layer by layer, and what pruning would buy and cost.",
    "optimize": "Make a pruned or quantised version of a model, and measure what it cost and gained.",
    "plot": "Draw results as a chart.",
    "serve": "Show projects, profiles and benchmarks as a web page.",
    "engines": "List the engines, install or remove one.",
    "export": "Turn a PyTorch model into ONNX and check it, or entries of the store into a file.",
    "history": "List what was measured, newest first.",
    "show": "Show an entry of the store.",
    "rerun": "Measure an entry again, under the same conditions.",
    "remove": "Remove entries from the store.",
    "import": "Take in the entries of an exported file.",
    "prune": "Remove old entries from the store.",
}

_EPILOG = """Start with: inferlab benchmark demo:resnet50 -t 3

Exit codes: 0 done, 1 a gate says "regressed", 2 bad input, 3 a cell failed, 4 inconclusive at a gate, 5 wrong
outputs under --strict, 70 a fault of inferlab, 130 interrupted."""


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
        return command

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
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _underscores},
)
@click.version_option(__version__, "--version", message="inferlab %(version)s")
def group() -> None:
    """How fast does a model run on a CPU, on which engine, and how sure is that?"""


def main() -> None:
    """Run a command and turn what it raises into a sentence and an exit code."""
    # A polite kill is an interruption: engines are stopped and what was measured is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(group.main(prog_name="inferlab", standalone_mode=False) or 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except InferlabError as error:
        click.echo(f"inferlab: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("inferlab: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing more can be said to them.
        sys.stderr.close()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        # A full disk, a folder that may not be written: the system's own words say it best.
        click.echo(f"inferlab: the system refused: {error}", err=True)
        sys.exit(70)
    except Exception as error:
        click.echo(
            f"inferlab: a fault of inferlab itself ({type(error).__name__}: {error}). {keep(error)}", err=True
        )
        sys.exit(70)
