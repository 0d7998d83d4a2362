"""`inferlab remove ID…`: remove entries from the store."""

from __future__ import annotations

import click

from inferlab.cli.command import agree, opened, store_option


@click.command("remove")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def command(ids: tuple[str, ...], yes: bool, store_url: str | None) -> None:
    """Remove entries from the store, with all that was measured; there is no way back.

    Keep a copy with: inferlab export ID... -o copy.jsonl
    """
    from inferlab.views.history import heading

    with opened(store_url) as store:
        # All are found before the first is removed: a wrong id removes nothing.
        entries = store.headings(ids)
        if not yes:
            for entry in entries:
                click.echo(heading(entry), err=True)
        agree(f"Remove {'this' if len(entries) == 1 else f'these {len(entries)}'} from {store.name}?", yes)
        for entry in entries:
            store.remove(entry.id)
            click.echo(f"Removed {heading(entry)}")
