"""`inferlab trend [MODEL]`: the same cell over time, and where it became slower or faster."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from inferlab.cli.command import declared_options, export_option, opened, show_blocks, store_option
from inferlab.options.plan import LABELLED
from inferlab.records.series import Across, SeriesMetric

_ACROSS = (
    "One series across machines (corrected by a cell that was measured on each), versions of the engine, or "
    "models of the same name. May be repeated."
)
_CELL = "Only cells with this, such as engine=openvino or num_cores=1. May be repeated."


@click.command("trend")
@click.argument("model", required=False)
@click.option("--cell", "cells", multiple=True, metavar="OPTION=VALUE", help=_CELL)
@click.option("--metric", type=click.Choice(get_args(SeriesMetric)), default="time", show_default=True)
@click.option("--across", multiple=True, type=click.Choice(get_args(Across)), help=_ACROSS)
@declared_options("trend", LABELLED)
@store_option
@export_option
def command(
    model: str | None,
    cells: tuple[str, ...],
    metric: SeriesMetric,
    across: tuple[Across, ...],
    label: tuple[tuple[str, str], ...],
    store_url: str | None,
    export_path: Path | None,
) -> None:
    """Show the same cell over time: its level, where it changed, by how much and how sure that is.

    MODEL is a part of a model's name, or the beginning of its digest; all models where it is left out. Each model,
    machine, version of an engine and set of options is a series of its own.
    """
    from inferlab.errors import BadInput
    from inferlab.lab.tracking import TrendRequest, find_series
    from inferlab.measure.intervals import LEAST_POINTS
    from inferlab.views import results
    from inferlab.views import trend as view

    request = TrendRequest(model, metric, tuple(dict.fromkeys(across)), label)
    with opened(store_url) as store:
        trend = find_series(store, request, lambda cell: view.wanted_cell(cells, cell))
        if not trend.series:
            conditions = [repr(model)] if model else []
            conditions += [*cells, *(f"{name}={value}" for name, value in label)]
            which = f" that fits {' and '.join(conditions)}" if conditions else ""
            raise BadInput(f"The store {store.name} has no finished benchmark{which}. See: inferlab history")
    show_blocks(view.blocks(trend, chart=True))
    if export_path:
        text = results.render_view(view.view_of(trend), export_path.suffix.lower())
        results.write(export_path, text)
        click.echo(f"Saved to {export_path}", err=True)
    if not any(series.enough for series in trend.series):
        newest = trend.series[0].points[-1].entry_id
        raise BadInput(
            f"No series has {LEAST_POINTS} entries yet, from which on a change is reported. Measure the same "
            f"again: inferlab rerun {newest}"
        )
