"""`inferlab recommend MODEL`: find the best engine, cores, streams and batch size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.options import MODELS, cell_options, cluster_options, plan
from inferlab.cli.parameters import Numbers, Words
from inferlab.cli.progress import Log
from inferlab.cli.stores import saving, saving_options

if TYPE_CHECKING:
    from inferlab.records import Objective, Plan

_OWN = (
    *("batch_size", "num_cores", "scenario", "rate", "num_streams", "instances", "engine"),
    *("stream_mode", "engine_options"),
)
_SLO = (
    'A latency objective, such as "p99<20ms" or "median<3ms", for the time of a batch when all streams are busy.'
)
_ENGINES = "Engines to try, such as onnxruntime,openvino.  [default: all that are ready and run the model]"
_BATCHES = "Batch sizes to try.  [default: 1,2,4,8,16, or what the model fixes]"


@click.command("recommend", help=f"Find the best engine, cores, streams and batch size for MODEL.\n\n{MODELS}")
@click.argument("model")
@click.option("--slo", metavar="OBJECTIVE", help=_SLO)
@click.option("-e", "--engine", "engines", type=Words(), default=(), metavar="NAMES", help=_ENGINES)
@click.option("-b", "--batch_size", "batches", type=Numbers(), default=(), metavar="1,4,16", help=_BATCHES)
@click.option(
    "-ncores",
    "--num_cores",
    "cores",
    type=Numbers(),
    default=(),
    metavar="1,2",
    help="Numbers of physical cores to try.  [default: 1, 2, 4, … and all]",
)
@click.option(
    "-nstreams",
    "--num_streams",
    "streams",
    type=Numbers(),
    default=(),
    metavar="1,2",
    help="Numbers of streams to try.  [default: all that divide the cores]",
)
@cell_options(without=_OWN)
@cluster_options
@click.option("-t", "--time", "time_s", default=120.0, show_default=True, help="Seconds in all, loading included.")
@saving_options
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help="Store the result in a JSON file.")
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
    from inferlab.views import files
    from inferlab.views import recommend as render

    objective = parse_objective(slo) if slo else None
    if export_path:
        files.check_writable(export_path)
    wanted = replace(plan(given), engines=engines, num_cores=cores, num_streams=streams, batch_sizes=batches)
    if wanted.cluster is not None:
        return _on_cluster(wanted, objective, time_s, Log(quiet), store_url, no_save, export_path)
    with Log(quiet) as log, saving(store_url, no_save, log) as store:
        found = Lab(store).recommend(wanted, objective, time_s, log)
    for line in render.lines(found):
        click.echo(line)
    if export_path:
        log.export(export_path, lambda: files.write(export_path, render.to_json(found)))
    if found.interrupted:
        return 130
    if found.recommended is None and not any(one.rounds for one in found.contenders):
        return 3
    return log.exit_code(0)


def _on_cluster(
    wanted: Plan,
    objective: Objective | None,
    time_s: float,
    log: Log,
    store_url: str | None,
    no_save: bool,
    export_path: Path | None,
) -> int:
    """Search on each machine type of a cluster."""
    from inferlab.lab import Lab
    from inferlab.views import files, fleet_recommend

    with log, saving(store_url, no_save, log) as store:
        found = Lab(store).recommend_machine(wanted, objective, time_s, log)
    for line in fleet_recommend.lines(found):
        click.echo(line)
    if export_path:
        log.export(export_path, lambda: files.write(export_path, fleet_recommend.to_json(found)))
    if found.interrupted:
        return 130
    return log.exit_code(3 if all(machine.failure for machine in found.machines) else 0)
