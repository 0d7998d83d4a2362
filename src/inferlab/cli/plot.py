"""`inferlab plot RESULT… -o chart.html`: results as a chart."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.work import store_option

_HELP = """Draw results: time or throughput against batch size, sequence length or cores.

\b
  inferlab plot sweep.json -o chart.html
  inferlab plot monday.csv friday.csv -o chart.png --x num_cores --y items_per_sec
  inferlab plot k3xq -o chart.html                    every iteration of a benchmark in the store

RESULT is a file that inferlab wrote (JSON, CSV or Markdown), or an id of inferlab history; FILE#2 or ID#2 is its
second cell. A comparison is drawn as the ratio of its pairs, a search (its id) as speed against loss."""
_X = "The x axis; cell: the cells side by side; time: the iterations of one cell.  [default: what varies most]"
_Y = "The y axis.  [default: median_ms; of cells side by side items_per_sec]"
_OUTPUT = "The chart's file: .html opens offline in a browser; .png needs kaleido and Chrome or Chromium."


@click.command("plot", help=_HELP)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help=_OUTPUT)
@click.option("--x", type=click.Choice(["batch_size", "sequence_length", "num_cores", "cell", "time"]), help=_X)
@click.option("--y", type=click.Choice(["median_ms", "items_per_sec", "p99_ms", "cost_per_million"]), help=_Y)
@store_option
def command(results: tuple[str, ...], output: Path, x: str | None, y: str | None, store_url: str | None) -> None:
    """Read, draw, write."""
    from inferlab.plotting import plot
    from inferlab.views import charts, files

    charts.check_ending(output)
    files.check_writable(output)
    charts.save(plot(*results, x=x, y=y, store=store_url), output)
    click.echo(f"Written: {output}")
