"""`inferlab import FILE`: take entries from another store."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.command import opened, store_option


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
def command(file: Path, store_url: str | None) -> None:
    """Take in the entries of a file that inferlab export wrote, all of them or none.

    \b
      inferlab export -o all.jsonl.gz          on the one machine
      inferlab import all.jsonl.gz             on the other
    """
    from inferlab.store.exchange import announced
    from inferlab.units import plural

    # Before a store is made for it.
    total = announced(file)
    with opened(store_url, make=True) as store:
        added = len(store.import_file(file))
        new = plural(added, "new entry", "new entries")
        click.echo(f"Imported {new} into {store.name}; {total - added} there already.")
