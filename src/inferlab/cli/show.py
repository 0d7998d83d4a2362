"""`inferlab show ID`: what the store kept of an entry."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.command import BASELINE, export_option, opened, store_option

_NOTE = 'Write a note beside it first, in place of the one it had; "" removes it.'


@click.command("show")
@click.argument("entry_id", metavar="ID")
@click.option("--note", metavar="TEXT", help=_NOTE)
@click.option("--baseline", multiple=True, metavar="OPTION=VALUE", help=BASELINE)
@store_option
@export_option
def command(
    entry_id: str, note: str | None, baseline: tuple[str, ...], store_url: str | None, export_path: Path | None
) -> None:
    """Show an entry of the store: the result, when, where and with which versions it was measured.

    Of the ID, as inferlab history lists it, the first characters will do: four or more that no other has.
    """
    from inferlab.errors import BadInput
    from inferlab.store import Document
    from inferlab.views import results

    with opened(store_url) as store:
        found = store.get(entry_id)
        if baseline and isinstance(found, Document):
            raise BadInput(f"{found.id} is a {found.kind}: only the table of a benchmark has a baseline.")
        if export_path:
            from inferlab.views import files

            files.check_writable(export_path)
        if note is not None:
            store.note(found.id, note)
            found = store.get(found.id)
    whole = results.render_entry(found, export_path.suffix.lower()) if export_path else ""
    for line in results.entry_lines(found, baseline):
        click.echo(line)
    if export_path:
        files.write(export_path, whole)
        click.echo(f"Saved to {export_path}", err=True)
