"""`inferlab store check` and `inferlab store backup FILE`: is the store sound, and a copy of it."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.command import store_option


@click.group("store")
def command() -> None:
    """Check the store, or copy it while it is in use."""


@command.command("check")
@store_option
def check(store_url: str | None) -> int:
    """Check that the store is sound: its file, version, references, and that all in it can be read back.

    Nothing is changed. The exit code is 0, or 2 where something is wrong; each problem is a line.
    """
    from inferlab.store import inspect_store
    from inferlab.store.exchange import problems
    from inferlab.units import plural

    with inspect_store(store_url) as database:
        lines = list(problems(database))
        for line in lines:
            click.echo(line)
        if not lines:
            click.echo(f"The store {database.label} is sound.")
            return 0
        click.echo(f"inferlab: the store {database.label} has {plural(len(lines), 'problem')}.", err=True)
        return 2


@command.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
def backup(file: Path, store_url: str | None) -> None:
    """Copy the store into FILE while others may use it: whole or not at all, and never over a file that is there.

    The copy is a store: name it with --store. Of a store in PostgreSQL, make a copy with pg_dump.
    """
    from inferlab.store import inspect_store
    from inferlab.units import size

    with inspect_store(store_url) as database:
        database.backup(file)
        click.echo(f"Copied {database.label} to {file} ({size(file.stat().st_size)})")
