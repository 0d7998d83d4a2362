"""`inferlab prune`: remove what is old."""

from __future__ import annotations

import click

from inferlab.cli.command import agree, opened, store_option
from inferlab.errors import BadInput


@click.command("prune")
@click.option("--keep", type=int, metavar="N", help="Keep the newest N entries.")
@click.option("--older-than", type=float, metavar="DAYS", help="Remove only what is older than this many days.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def command(keep: int | None, older_than: float | None, dry_run: bool, yes: bool, store_url: str | None) -> None:
    """Remove old entries from the store; with both --keep and --older-than, only what neither protects."""
    from inferlab.units import plural
    from inferlab.views.history import heading

    if keep is None and older_than is None:
        raise BadInput("Say what to prune, such as: inferlab prune --keep 100, or: inferlab prune --older-than 90")
    with opened(store_url) as store:
        old = store.headings(store.prune(keep, older_than, dry_run=True))
        if not old:
            click.echo(f"Nothing to prune in {store.name}.", err=True)
            return
        if dry_run:
            for entry in old:
                click.echo(f"Would remove {heading(entry)}")
            return
        count = plural(len(old), "entry", "entries")
        if not yes:
            click.echo(f"Newest of them: {heading(old[0])}", err=True)
        agree(f"Remove {count} from {store.name}?", yes)
        headings = {entry.id: heading(entry) for entry in old}
        for entry_id in store.prune(keep, older_than):
            click.echo(f"Removed {headings.get(entry_id, entry_id)}")
