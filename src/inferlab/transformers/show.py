"""Print the results and write the files that were asked for: the one place of these classes that does."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.records import Event
from inferlab.transformers import tables
from inferlab.transformers.arguments import BenchmarkArguments
from inferlab.transformers.results import BenchmarkOutput, Measured, Table
from inferlab.units import duration, escape_controls, plural
from inferlab.views.tables import spreadsheet_cell

_CELL = ("model", "batch_size", "sequence_length", "result")


def check_files(args: BenchmarkArguments) -> None:
    """Refuse files that could not be written, before anything is measured."""
    for name, file in args.files().items():
        path = Path(file)
        if not path.parent.is_dir():
            raise BadInput(
                f"The folder {path.parent} of {name} does not exist. Make it first, or name another file."
            )
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput(f"{path}, named by {name}, cannot be written. Name another file.")


def show(args: BenchmarkArguments, output: BenchmarkOutput, environment: Mapping[str, str]) -> None:
    """Print every table and write every file."""
    lines = list(_lines(args, output, environment))
    print(escape_controls("\n".join(lines)))
    files = args.files()
    if "log_filename" in files:
        with Path(files["log_filename"]).open("a", encoding="utf-8") as log:
            log.write("\n".join(lines) + "\n")
    contents: dict[str, Sequence[Sequence[Any]]] = {
        "inference_time_csv_file": _times(output.inference_summary, output),
        "inference_memory_csv_file": _memories(output.inference_summary, output),
        "train_time_csv_file": _times(output.train_summary, output),
        "train_memory_csv_file": _memories(output.train_summary, output),
        "env_info_csv_file": list(environment.items()),
    }
    for name, rows in contents.items():
        if name in files:
            _write(Path(files[name]), rows)


def announce(args: BenchmarkArguments, engine: str) -> None:
    """Say on stderr how long it will take at least, before anything is measured."""
    stages = args.inference + args.training
    cells = stages * len(args.models) * len(args.batch_sizes) * len(args.sequence_lengths)
    fresh = plural(args.repeat, "fresh process", "fresh processes")
    warm = plural(args.repeat, "process that has", "processes that have")
    least = duration(cells * args.time_s)
    print(
        f"Measuring {plural(cells, 'cell')} of {args.time_s:g} s each: at least {least}, in {fresh} per cell, "
        f"forked from {warm} imported {engine}.",
        file=sys.stderr,
    )


def say(event: Event) -> None:
    """A line on stderr for what is being done."""
    if event.fraction is None:
        from inferlab.views.events import event as prose

        if line := prose(event):
            print(escape_controls(line), file=sys.stderr)


def _lines(args: BenchmarkArguments, output: BenchmarkOutput, environment: Mapping[str, str]) -> Iterable[str]:
    if args.inference:
        if args.speed:
            yield tables.banner("INFERENCE - SPEED - RESULT")
            yield from tables.cells(output.time_inference_result, "Time in s")
        if args.memory:
            yield tables.banner("INFERENCE - MEMORY - RESULT")
            yield from tables.cells(output.memory_inference_result, "Memory in MB", "Steady in MB")
        yield tables.banner("INFERENCE - MODEL SIZE - RESULT")
        yield from tables.sizes(output.model_sizes)
    if args.training:
        if args.speed:
            yield tables.banner("TRAIN - SPEED - RESULTS")
            yield from tables.cells(output.time_train_result, "Time in s")
        if args.memory:
            yield tables.banner("TRAIN - MEMORY - RESULTS")
            yield from tables.cells(output.memory_train_result, "Memory in MB", "Steady in MB")
    notes = list(tables.notes(output))
    if notes:
        yield ""
        yield from notes
    if args.env_print:
        yield tables.banner("ENVIRONMENT INFORMATION")
        yield from (f"- {name}: {value}" for name, value in environment.items())


def _times(summary: Table, output: BenchmarkOutput) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = [(*_CELL, "low", "high", "model_size_mb", "reason")]
    for model, size, length, cell in _cells(summary):
        value = "N/A" if cell.time_s is None else cell.time_s
        interval = ["" if end is None else end for end in (cell.low_s, cell.high_s)]
        rows.append((model, size, length, value, *interval, _size(output, model), cell.reason))
    return rows


def _memories(summary: Table, output: BenchmarkOutput) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = [(*_CELL, "steady", "model_size_mb", "reason")]
    for model, size, length, cell in _cells(summary):
        values = ("N/A", "") if cell.memory is None else (cell.memory.megabytes, cell.memory.steady_megabytes)
        texts = [round(value, 3) if isinstance(value, float) else value for value in values]
        rows.append((model, size, length, *texts, _size(output, model), cell.reason))
    return rows


def _cells(summary: Table) -> Iterable[tuple[str, int, int, Measured]]:
    for model, content in summary.items():
        for size in content["bs"]:
            for length in content["ss"]:
                yield model, size, length, content["result"][size][length]


def _size(output: BenchmarkOutput, model: str) -> float | str:
    size = output.model_sizes[model]
    return round(size, 3) if isinstance(size, float) else size


def _write(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([spreadsheet_cell(value) for value in row] for row in rows)
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
