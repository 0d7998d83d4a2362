"""`inferlab benchmark MODEL`: measure how fast a model runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from inferlab.cli.progress import Log
from inferlab.records import Benchmark, Outcome, Plan

_HELP = """Measure how fast MODEL runs.

MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program (.pt2), a
TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""


_SHAPES = 'By position "[1,2,3],[4,5,6]" or by name "input_ids=[1,384]".'
_SCENARIOS = "sync: one request at a time; async: streams that divide the cores; elastic: streams that share them."
_STREAM_MODES = (
    "Streams in threads or processes with a loaded model each, or on the engine's own streams; "
    "auto takes processes for calls below 2 ms."
)
_TIMEOUT = "Seconds without an answer after which an engine counts as hung."
_POSITIVE = click.FloatRange(min=0, min_open=True)


def _choice(*names: str, choices: str, help: str) -> Callable[[Any], Any]:
    """An option that is one of a few words, the first of them by default."""
    words = choices.split()
    return click.option(*names, type=click.Choice(words), default=words[0], show_default=True, help=help)


def _options(pairs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    given = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"'{pair}' is not of the form KEY=VALUE.", param_hint="--engine-option")
        given[key] = value
    return tuple(sorted(given.items()))


@click.command("benchmark", help=_HELP)
@click.argument("model")
@click.option("-b", "--batch_size", type=int, help="Items in a batch.  [default: 1, or what the model fixes]")
@click.option("-i", "-shapes", "--input_shapes", metavar="SHAPES", help=_SHAPES)
@click.option(
    "--sequence_length", type=int, help="Length of sequences that the model leaves open.  [default: 128]"
)
@click.option("--input", "input_file", metavar="FILE.npz", help="Real inputs, by the names of the model's inputs.")
@click.option("-ncores", "--num_cores", type=int, help="Physical cores to run on.  [default: all]")
@_choice("-s", "--scenario", choices="async sync elastic", help=_SCENARIOS)
@click.option("-t", "--time", "time_s", default=10.0, show_default=True, help="Seconds to measure.")
@click.option("-w", "--warmup_time", "warmup_s", default=2.0, show_default=True, help="Seconds to warm up, or 0.")
@click.option("-nstreams", "--num_streams", type=int, help="Streams for async and elastic.  [default: one a core]")
@_choice(
    "-pin", "--thread_pinning", choices="core numa none", help="Bind threads to cores, to NUMA nodes, or not."
)
@_choice("--stream-mode", choices="auto threads processes native", help=_STREAM_MODES)
@click.option(
    "-e", "--engine", default="onnxruntime", show_default=True, help="See inferlab engines; or FILE.py:CLASS."
)
@click.option("--engine-option", "engine_options", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the generated inputs.")
@click.option(
    "--no-verify", "verify", is_flag=True, flag_value=False, default=True, help="Do not check the outputs."
)
@click.option("--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5).")
@click.option("--timeout", "patience_s", type=_POSITIVE, default=300.0, show_default=True, help=_TIMEOUT)
@click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
@click.option("-x", "--export_path", type=click.Path(path_type=Path), help="Store the result in a JSON file.")
def command(export_path: Path | None, quiet: bool, strict: bool, **given: Any) -> int:
    """Parse, measure, show."""
    from inferlab.lab import Lab
    from inferlab.render import files

    if export_path:
        files.check_writable(export_path)
    with Log(quiet) as log:
        benchmark = Lab().benchmark(_plan(given), log, live=log.live)
    code = _show(benchmark, benchmark.outcomes[0], strict)
    if export_path:
        files.write(export_path, files.to_json(benchmark))
        log.say(f"Saved to {export_path}")
    if code == 0:
        log.say(f"Next: {_suggestion(benchmark)}")
    return code


def _suggestion(benchmark: Benchmark) -> str:
    """What one would ask next: another engine, or the other scenario."""
    plan, cell = benchmark.plan, benchmark.outcomes[0].cell
    if cell.engine == "onnxruntime" and benchmark.model.kind == "onnx":
        return f"inferlab benchmark {plan.model} -e openvino"
    other = "async" if cell.scenario == "sync" else "sync"
    return f"inferlab benchmark {plan.model} -e {cell.engine} -s {other}"


def _plan(given: dict[str, Any]) -> Plan:
    return Plan(
        model=given["model"],
        engines=(given["engine"],),
        scenarios=(given["scenario"],),
        num_cores=(given["num_cores"],),
        num_streams=(given["num_streams"],),
        batch_sizes=(given["batch_size"],),
        sequence_lengths=(given["sequence_length"],),
        input_shapes=given["input_shapes"],
        input_file=given["input_file"],
        engine_options=_options(given["engine_options"]),
        thread_pinning=given["thread_pinning"],
        stream_mode=given["stream_mode"],
        time_s=given["time_s"],
        warmup_s=given["warmup_s"],
        seed=given["seed"],
        verify=given["verify"],
        patience_s=given["patience_s"],
    )


def _show(benchmark: Benchmark, outcome: Outcome, strict: bool) -> int:
    """Print the result and choose the exit code."""
    from inferlab.render import text

    if outcome.failure:
        click.echo(f"inferlab: {outcome.failure.message}", err=True)
        return 2 if outcome.failure.code == "refused" else 3
    if not outcome.runs:
        click.echo("inferlab: interrupted before anything was measured", err=True)
        return 130
    for line in text.result_lines(benchmark, outcome):
        click.echo(line)
    if outcome.status == "cancelled":
        return 130
    if strict and outcome.runs[0].check.status != "match":
        click.echo(f"inferlab: strict: the output check is {text.output_check(outcome.runs[0].check)}", err=True)
        return 5
    return 0
