"""`inferlab doctor`: is this machine fit for measuring?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferlab.cli import unescaped
from inferlab.cli.command import Log, export_option

if TYPE_CHECKING:
    from inferlab.records import FactState

_COLOURS = {"good": "green", "warn": "red", "unknown": "yellow", "info": "blue"}


@click.command("doctor")
@export_option
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="Find out in 15 seconds how small a difference could be seen here.",
)
@click.option("-q", "--quiet", is_flag=True, help="Only the report and errors.")
def command(export_path: Path | None, measure: bool, quiet: bool) -> None:
    """Report whether this machine is fit for measuring: what disturbs, what cannot be read, and what to do."""
    from inferlab.lab import Lab
    from inferlab.machine.conditions import examine
    from inferlab.views import doctor, results

    facts = examine()
    if measure:
        with Log(quiet) as log:
            facts = (*facts, Lab().smallest_difference(listener=log))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in doctor.lines(facts, width, _paint):
        click.echo(line, file=unescaped(sys.stdout))
    if export_path:
        results.write(export_path, doctor.render(facts, export_path.suffix.lower()))
        click.echo(f"Saved to {export_path}", err=True)


def _paint(state: FactState, word: str) -> str:
    return click.style(word, fg=_COLOURS[state]) if sys.stdout.isatty() else word
