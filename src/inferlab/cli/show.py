"""`inferlab show ID`: what the store kept of an entry."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.command import baseline_option, export_option, opened, store_option
from inferlab.errors import BadInput

_NOTE = 'Write a note beside it first, in place of the one it had; "" removes it.'


@click.command("show")
@click.argument("entry_id", metavar="ID")
@click.option("--note", metavar="TEXT", help=_NOTE)
@baseline_option
@store_option
@export_option
def command(
    entry_id: str, note: str | None, baseline: tuple[str, ...], store_url: str | None, export_path: Path | None
) -> None:
    """Show an entry of the store: the result, when, where and with which versions it was measured.

    Of the ID, as inferlab history lists it, the first characters will do: four or more that no other has.
    """
    from inferlab.store import Document
    from inferlab.views import results

    with opened(store_url) as store:
        entry = store.get(entry_id)
        if baseline and isinstance(entry, Document):
            raise BadInput(f"{entry.id} is a {entry.kind}: only the table of a benchmark has a baseline.")
        if note is not None:
            store.note(entry.id, note)
            entry = store.get(entry.id)
    text = results.render_entry(entry, export_path.suffix.lower()) if export_path else ""
    for line in results.entry_lines(entry, baseline):
        click.echo(line)
    if export_path:
        results.write(export_path, text)
        click.echo(f"Saved to {export_path}", err=True)
