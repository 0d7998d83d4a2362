"""The tables as text, in the layout that Hugging Face's and Intel's users know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from inferlab.records import Finding
from inferlab.transformers.results import BenchmarkOutput, Memory, Table

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
    for name, content in table.items():
        for size in content["bs"]:
            for length in content["ss"]:
                value = content["result"][size][length]
                values = [_number(value), *([_steady(value)] if more else [])]
                first = names[name].center(_NAME) + str(size).center(_COLUMN)
                yield " ".join(
                    [first, str(length).center(_COLUMN), *(value_text.center(_COLUMN) for value_text in values)]
                )
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
    for size, of_size in summary["result"].items():
        for length, cell in of_size.items():
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
