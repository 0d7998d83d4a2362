"""`inferlab recommend MODEL`: find the best engine, cores, streams and batch size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from inferlab import views
from inferlab.cli.options import EXPORT, MODELS, plan, plan_options
from inferlab.cli.parameters import Listed
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options
from inferlab.cli.terminal import show_blocks
from inferlab.kinds import Whole, Word
from inferlab.records import FleetRecommendation, Recommendation

_WITHOUT = (
    *("batch_size", "num_cores", "scenario", "num_streams", "instances", "engine"),
    *("stream_mode", "engine_option", "nodes"),
)
_SLO = (
    'A latency objective, such as "p99<20ms" or "median<3ms", for the time of a batch when all streams are busy.'
)
_ENGINES = "Engines to try, such as onnxruntime,openvino.  [default: all that are ready and run the model]"
_BATCHES = "Batch sizes to try.  [default: 1,2,4,8,16, or what the model fixes]"


@click.command("recommend", help=f"Find the best engine, cores, streams and batch size for MODEL.\n\n{MODELS}")
@click.argument("model")
@click.option("--slo", metavar="OBJECTIVE", help=_SLO)
@click.option("-e", "--engine", "engines", type=Listed(Word()), default=(), metavar="NAMES", help=_ENGINES)
@click.option("-b", "--batch_size", "batches", type=Listed(Whole()), default=(), metavar="1,4,16", help=_BATCHES)
@click.option(
    "-ncores",
    "--num_cores",
    "cores",
    type=Listed(Whole()),
    default=(),
    metavar="1,2",
    help="Numbers of physical cores to try.  [default: 1, 2, 4, … and all]",
)
@click.option(
    "-nstreams",
    "--num_streams",
    "streams",
    type=Listed(Whole()),
    default=(),
    metavar="1,2",
    help="Numbers of streams to try.  [default: all that divide the cores]",
)
@plan_options("cell", "inputs", "cluster", without=_WITHOUT)
@click.option("-t", "--time", "time_s", default=120.0, show_default=True, help="Seconds in all, loading included.")
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help=EXPORT)
def command(
    export_path: Path | None,
    quiet: bool,
    slo: str | None,
    engines: tuple[str, ...],
    batches: tuple[int, ...],
    cores: tuple[int, ...],
    streams: tuple[int, ...],
    time_s: float,
    store_url: str | None,
    no_save: bool,
    **given: Any,
) -> int:
    """Parse, search, show."""
    from inferlab.lab import Lab
    from inferlab.measure.queueing import parse_objective
    from inferlab.views import files, results

    objective = parse_objective(slo) if slo else None
    if export_path:
        files.check_writable(export_path)
    wanted = replace(plan(given), engines=engines, num_cores=cores, num_streams=streams, batch_sizes=batches)
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        found = Lab(store).recommend(wanted, objective, time_s, log)
    show_blocks(results.view_of(found).blocks())
    if export_path:
        log.export(export_path, lambda: views.write(found, export_path))
    if found.interrupted:
        return 130
    return log.exit_code(0 if _measured(found) else 3)


def _measured(found: Recommendation | FleetRecommendation) -> bool:
    """Whether any configuration could be measured."""
    if isinstance(found, FleetRecommendation):
        return not all(machine.failure for machine in found.machines)
    return any(contender.rounds for contender in found.contenders)
