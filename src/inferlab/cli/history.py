"""`inferlab history`: what was measured, newest first."""

from __future__ import annotations

import os
import shlex
import sys
from typing import get_args

import click

from inferlab.cli.command import declared_options, opened, show_blocks, store_option
from inferlab.options.plan import LABELLED
from inferlab.records import Status
from inferlab.store import Entry

_MODEL = "Only models (or titles) that contain this, or whose digest begins with it."
_STATUS = "Only what is done, has failed or cancelled cells, or is not finished."
_SERIES = "List cells that were measured again and again instead, with where they changed. See: inferlab trend"
_PAGE = 20
_BEGIN = "Start with: inferlab benchmark demo:resnet50 -t 3"


@click.command("history")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=_PAGE,
    show_default=True,
    help="Show at most this many.",
)
@click.option("--before", metavar="ID", help="Only what is older than this entry: the next page.")
@click.option("--model", metavar="TEXT", help=_MODEL)
@click.option("--engine", metavar="NAME", help="Only benchmarks with a cell on this engine.")
@declared_options("history", LABELLED)
@click.option("--status", type=click.Choice(get_args(Status)), help=_STATUS)
@click.option("--series", is_flag=True, help=_SERIES)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print the page as JSON.")
def command(
    limit: int,
    before: str | None,
    model: str | None,
    engine: str | None,
    status: Status | None,
    label: tuple[tuple[str, str], ...],
    series: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """List what is in the store, newest first.

    See one with: inferlab show ID
    """
    from inferlab.store import NoStore
    from inferlab.views import history as render

    if series:
        _print_series(model, engine, label, store_url, as_json)
        return
    name, entries = "", list[Entry]()
    try:
        with opened(store_url) as store:
            name = store.name
            # One more than is shown tells whether there is another page.
            entries = store.history(limit + 1, before, model, engine, status, labels=label)
    except NoStore:
        # Where nothing was saved yet there is nothing to list; one that was named and is not there is a mistake.
        if store_url or os.environ.get("INFERLAB_STORE"):
            raise
    page, older = entries[:limit], entries[limit:]
    if as_json:
        click.echo(render.to_json(page, page[-1].id if older else None))
        return
    if page:
        _print(page)
    elif name and (before or model or engine or status or label):
        click.echo(f"Nothing in the store {name} matches. See all with: inferlab history", err=True)
    else:
        click.echo(f"Nothing is saved yet{name and f' in {name}'}. {_BEGIN}", err=True)
    if older:
        options = {
            "-n": "" if limit == _PAGE else str(limit),
            "--model": model,
            "--engine": engine,
            "--status": status,
            # A password is not repeated.
            "--store": "URL" if ":***@" in name else store_url,
            "--before": page[-1].id,
        }
        more = [f"{option} {shlex.quote(value)}" for option, value in options.items() if value]
        more[-1:-1] = [f"--label {shlex.quote('='.join(pair))}" for pair in label]
        click.echo(f"Older ones: inferlab history {' '.join(more)}", err=True)


def _print_series(
    model: str | None,
    engine: str | None,
    labels: tuple[tuple[str, str], ...],
    store_url: str | None,
    as_json: bool,
) -> None:
    from inferlab.lab.tracking import TrendRequest, find_series
    from inferlab.views import trend as view
    from inferlab.views.results import dumps

    with opened(store_url) as store:
        request = TrendRequest(model, labels=labels)
        trend = find_series(store, request, lambda cell: engine is None or cell.engine == engine)
    if as_json:
        click.echo(dumps(view.content(trend)), nl=False)
    elif trend.series:
        show_blocks([view.overview(trend.series)])
    else:
        click.echo("No finished benchmark matches. See all with: inferlab history", err=True)


def _print(page: list[Entry]) -> None:
    import shutil
    from datetime import UTC, datetime

    from inferlab.views import history as render

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in render.lines(page, datetime.now(UTC), width):
        click.echo(line)
