"""What the benchmarks print and write: tables as Hugging Face's and Intel's users know them, files, versions."""

from __future__ import annotations

import csv
import datetime
import io
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.records import Event, Finding
from inferlab.transformers.arguments import BenchmarkArguments
from inferlab.transformers.results import MB, BenchmarkOutput, Memory, Table
from inferlab.units import duration, escape_controls, plural
from inferlab.version import __version__
from inferlab.views.tables import spreadsheet_cell

_NAME, _COLUMN, _SIZE_NAME, _LONGEST_SIZE_NAME = 30, 15, 60, 50
_WIDTH = 80
# The number of processes is an argument here.
_ASKED_FOR = ("one-process",)


def banner(title: str) -> str:
    """A heading."""
    return "\n" + 20 * "=" + title.center(40) + 20 * "="


def cells(table: Table, label: str, more: str = "") -> Iterator[str]:
    """The lines of a table of cells; `more` heads a column for the memory that stays."""
    names = shortened(list(table), _NAME)
    width = _WIDTH + (_COLUMN if more else 0)
    yield width * "-"
    titles = ("Model Name", "Batch Size", "Seq Length", label, *([more] if more else []))
    yield titles[0].center(_NAME) + "".join(title.center(_COLUMN) for title in titles[1:])
    yield width * "-"
    for name, size, length, value in _cells(table):
        values = [str(length), _number(value), *([_steady(value)] if more else [])]
        first = names[name].center(_NAME) + str(size).center(_COLUMN)
        yield " ".join([first, *(text.center(_COLUMN) for text in values)])
    yield width * "-"


def sizes(model_sizes: dict[str, float | str]) -> Iterator[str]:
    """The lines of the table of model sizes."""
    names = shortened(list(model_sizes), _LONGEST_SIZE_NAME)
    yield _WIDTH * "-"
    yield "Model Name".center(_SIZE_NAME) + "Model Size in MB".center(_COLUMN)
    yield _WIDTH * "-"
    for name, size in model_sizes.items():
        text = str(round(size, 3)) if isinstance(size, float) else size
        yield names[name].center(_SIZE_NAME) + " " + text.center(_COLUMN)
    yield _WIDTH * "-"


def shortened(names: Sequence[str], most: int) -> dict[str, str]:
    """Every name in at most so many characters, no two alike.

    A long name keeps its beginning; where that is another one's too, its end; else it gets a number.
    """
    short = {name: name[:most] for name in names}
    for name in _alike(short):
        short[name] = "…" + name[1 - most :]
    for number, name in enumerate(_alike(short), 1):
        mark = f"…{number}"
        short[name] = name[: most - len(mark)] + mark
    return short


def _alike(short: dict[str, str]) -> list[str]:
    """The names that are cut and then look like another."""
    names = list(short.values())
    return [name for name, short_name in short.items() if names.count(short_name) > 1 and name != short_name]


def notes(output: BenchmarkOutput) -> Iterator[str]:
    """Why cells are "N/A", and what else the reader of the tables must know."""
    grouped: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for gap in output.missing:
        grouped.setdefault((gap.model, gap.stage, gap.reason), []).append((gap.batch_size, gap.sequence_length))
    for (model, stage, reason), cells in grouped.items():
        table = output.inference_summary if stage == "inference" else output.train_summary
        yield f"N/A: {model}, {stage}{_at(cells, table[model])}: {reason}"
    for model, summary in output.inference_summary.items():
        yield from _findings(model, summary)


def _findings(model: str, summary: dict[str, Any]) -> Iterator[str]:
    """One line for each kind of finding, by the worst of its cells."""
    # Late, with NumPy behind it: importing the classes must be quick.
    from inferlab.views.text import finding as prose

    findings: dict[str, list[tuple[tuple[int, int], Finding]]] = {}
    for _, size, length, cell in _cells({model: summary}):
        for finding in cell.findings:
            if finding.code not in _ASKED_FOR:
                findings.setdefault(finding.code, []).append(((size, length), finding))
    for several in findings.values():
        worst = max(
            (finding for _, finding in several),
            key=lambda finding: finding.data.get("share") or finding.data.get("error") or 0.0,
        )
        yield f"NOTE: {model}{_at([cell for cell, _ in several], summary)}: {prose(worst)}"


def _at(cells: Sequence[tuple[int, int]], summary: dict[str, Any]) -> str:
    """Which cells, where it is not all of them."""
    if len(cells) == len(summary["bs"]) * len(summary["ss"]):
        return ""
    return " at " + ", ".join(f"{size} × {length}" for size, length in cells)


def _number(value: Any) -> str:
    """Three significant digits, without an exponent."""
    return format(Decimal(f"{value:.3g}"), "f") if isinstance(value, float) else str(value)


def _steady(value: Any) -> str:
    return _number(value.steady_megabytes) if isinstance(value, Memory) else str(value)


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
        from inferlab.views.text import event as prose

        if line := prose(event):
            print(escape_controls(line), file=sys.stderr)


def _lines(args: BenchmarkArguments, output: BenchmarkOutput, environment: Mapping[str, str]) -> Iterable[str]:
    tables = (
        (args.inference, "INFERENCE", "RESULT", output.time_inference_result, output.memory_inference_result),
        (args.training, "TRAIN", "RESULTS", output.time_train_result, output.memory_train_result),
    )
    for measured, stage, result, times, memories in tables:
        if measured and args.speed:
            yield banner(f"{stage} - SPEED - {result}")
            yield from cells(times, "Time in s")
        if measured and args.memory:
            yield banner(f"{stage} - MEMORY - {result}")
            yield from cells(memories, "Memory in MB", "Steady in MB")
        if measured and stage == "INFERENCE":
            yield banner("INFERENCE - MODEL SIZE - RESULT")
            yield from sizes(output.model_sizes)
    remarks = list(notes(output))
    if remarks:
        yield ""
        yield from remarks
    if args.env_print:
        yield banner("ENVIRONMENT INFORMATION")
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


def _cells(table: Table) -> Iterable[tuple[str, int, int, Any]]:
    for model, content in table.items():
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


def environment(args: BenchmarkArguments, engine: str, versions: Mapping[str, str]) -> dict[str, str]:
    """The environment by Hugging Face's names where it has some; `versions` are those that measured."""
    from inferlab import machine

    here = machine.describe()
    cores = args.num_cores or machine.usable_cores()
    now = datetime.datetime.now()
    packages = {name: version for name, version in versions.items() if name not in ("inferlab", "python")}
    return {
        "inferlab_version": __version__,
        "engine": engine,
        **{f"{name}_version": package for name, package in (packages or installed(engine)).items()},
        "python_version": versions.get("python", platform.python_version()),
        "system": here.system,
        "architecture": here.architecture,
        "cpu": here.cpu,
        "instruction_sets": " ".join(here.instruction_sets),
        "physical_cores": str(here.physical_cores),
        "logical_cpus": str(here.logical_cpus),
        "numa_nodes": str(here.numa_nodes),
        "cpu_quota": "none" if here.cpu_quota is None else f"{here.cpu_quota:g}",
        "num_cores": str(cores),
        "num_threads": str(cores),
        "cpu_ram_mb": "unknown" if here.memory_bytes is None else str(here.memory_bytes // MB),
        "use_multiprocessing": "True",
        "processes": str(args.repeat),
        "only_pretrain_model": str(args.only_pretrain_model),
        "date": now.date().isoformat(),
        "time": now.time().isoformat(timespec="seconds"),
    }


def installed(engine: str) -> dict[str, str]:
    """The versions of an engine's packages in this environment, where they are in it."""
    versions = {}
    for name in (engine, *(["transformers"] if engine == "torch" else [])):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
