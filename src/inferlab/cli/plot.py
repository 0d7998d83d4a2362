"""`inferlab plot RESULT… -o chart.html`: results as a chart."""

from __future__ import annotations

from pathlib import Path

import click

from inferlab.cli.command import WritableFile, store_option

_HELP = """Draw results: time or throughput against batch size, sequence length or cores.

\b
  inferlab plot sweep.json -o chart.html
  inferlab plot monday.csv friday.csv -o chart.png --x num_cores --y items_per_sec
  inferlab plot k3xq -o chart.html                    every iteration of a benchmark in the store

RESULT is a file that inferlab wrote (JSON, CSV or Markdown), or an id of inferlab history; FILE#2 or ID#2 is its
second cell. A comparison is drawn as the ratio of its pairs, a search (its id) as speed against loss, a generation
as its times by depth or prompt length, or over throughput where batch sizes vary."""
_X = (
    "The x axis; cell: the cells side by side; time: the iterations of one cell; token: the tokens of one "
    "generation.  [default: what varies most]"
)
_Y = (
    "The y axis.  [default: median_ms; of cells side by side items_per_sec; of a generation tpot_ms, by prompt "
    "length ttft_ms]"
)
# Named here, so that help is quick; a test holds them against what charts draw.
_X_CHOICES = (
    *("batch_size", "sequence_length", "num_cores", "cell", "time"),
    *("depth", "prompt_tokens", "rate", "decode_tokens_per_s", "token"),
)
_Y_CHOICES = (
    *("median_ms", "items_per_sec", "p99_ms", "cost_per_million"),
    *("ttft_ms", "tpot_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s", "end_to_end_ms"),
)
_OUTPUT = "The chart's file: .html opens offline in a browser; .png needs kaleido and Chrome or Chromium."


@click.command("plot", help=_HELP)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("-o", "--output", required=True, type=WritableFile(), help=_OUTPUT)
@click.option("--x", type=click.Choice(_X_CHOICES), help=_X)
@click.option("--y", type=click.Choice(_Y_CHOICES), help=_Y)
@store_option
def command(results: tuple[str, ...], output: Path, x: str | None, y: str | None, store_url: str | None) -> None:
    """Read, draw, write."""
    from inferlab.plotting import plot
    from inferlab.views.charts import frame

    frame.check_ending(output)
    frame.save(plot(*results, x=x, y=y, store=store_url), output)
    click.echo(f"Written: {output}")
