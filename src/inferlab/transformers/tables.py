"""The tables as text, in the layout that Hugging Face's and Intel's users know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from inferlab.transformers.results import BenchmarkOutput, Memory, Missing, Table
from inferlab.units import plural

_NAME, _COLUMN, _SIZE_NAME, _LONGEST_SIZE_NAME = 30, 15, 60, 50
_WIDTH = 80


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
    for name, found in table.items():
        for size in found["bs"]:
            for length in found["ss"]:
                value = found["result"][size][length]
                values = [_number(value), *([_steady(value)] if more else [])]
                first = names[name].center(_NAME) + str(size).center(_COLUMN)
                yield " ".join([first, str(length).center(_COLUMN), *(one.center(_COLUMN) for one in values)])
    yield width * "-"


def sizes(model_sizes: dict[str, float | str]) -> Iterator[str]:
    """The lines of the table of model sizes."""
    names = shortened(list(model_sizes), _LONGEST_SIZE_NAME)
    yield _WIDTH * "-"
    yield "Model Name".center(_SIZE_NAME) + "Model Size in MB".center(_COLUMN)
    yield _WIDTH * "-"
    for name, size in model_sizes.items():
        shown = str(round(size, 3)) if isinstance(size, float) else size
        yield names[name].center(_SIZE_NAME) + " " + shown.center(_COLUMN)
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
    shown = list(short.values())
    return [name for name, one in short.items() if shown.count(one) > 1 and name != one]


def notes(output: BenchmarkOutput) -> Iterator[str]:
    """Why cells are "N/A", and which outputs were wrong."""
    grouped: dict[tuple[str, str, str], list[Missing]] = {}
    for one in output.missing:
        grouped.setdefault((one.model, one.stage, one.reason), []).append(one)
    for (model, stage, reason), found in grouped.items():
        summary = (output.inference_summary if stage == "inference" else output.train_summary)[model]
        every = len(found) == len(summary["bs"]) * len(summary["ss"])
        which = ", ".join(f"{one.batch_size} × {one.sequence_length}" for one in found)
        yield f"N/A: {model}, {stage}{'' if every else f' at {which}'}: {reason}"
    for model, summary in output.inference_summary.items():
        wrong = [
            (size, length, cell.check)
            for size, of_size in summary["result"].items()
            for length, cell in of_size.items()
            if cell.check is not None and cell.check.status == "mismatch"
        ]
        if wrong:
            worst = max(wrong, key=lambda one: one[2].error or 0.0)[2]
            yield (
                f"WRONG OUTPUTS: {model}, {plural(len(wrong), 'cell')}: error up to {worst.error:.3g} in "
                f"'{worst.detail}' against {worst.reference}, tolerance {worst.tolerance:g}."
            )


def _number(value: Any) -> str:
    """Three significant digits, without an exponent."""
    return format(Decimal(f"{value:.3g}"), "f") if isinstance(value, float) else str(value)


def _steady(value: Any) -> str:
    return _number(value.steady_megabytes) if isinstance(value, Memory) else str(value)
