"""A result as blocks: named values, sentences and tables; as text, Markdown, CSV, notebook, and drawn by rich."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from inferlab.units import escape_controls, one_line, shortened
from inferlab.views.fields import Field

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


T = TypeVar("T")
# What a spreadsheet takes for a formula; quotes before it are doubled, so that it comes back as it was.
FORMULA = re.compile(r"'*[=+\-@\t\r]")
# Names in tables of reports are cut to this length.
_LONGEST = 30
# The width below which a column of names is not squeezed on a terminal.
_NARROWEST = 12


class Pair(NamedTuple):
    """A named value."""

    name: str
    value: str
    #: Whether it is what the reader came for.
    strong: bool = False


class Note(NamedTuple):
    """Something to know about the values."""

    text: str
    warning: bool = False

    @property
    def line(self) -> str:
        """The note as a line of text."""
        return f"{'Warning' if self.warning else 'Note'}: {self.text}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the same fields."""

    fields: Sequence[Field]
    rows: Sequence[Any]
    title: str = ""
    #: The rows that stand out, counted from 0.
    strong: Collection[int] = ()
    #: A line between rows: what it says, and after how many of them.
    divider: tuple[str, int] | None = None

    @property
    def texts(self) -> list[list[str]]:
        """The headings, then every row, as shown."""
        head = [field.label for field in self.fields]
        return [head, *([one_line(field.text(row)) for field in self.fields] for row in self.rows)]

    @property
    def left(self) -> set[int]:
        """The columns that hold text."""
        return {index for index, field in enumerate(self.fields) if field.left}


class Code(NamedTuple):
    """Lines to be copied."""

    text: str


#: A part of what is shown: an empty text is a gap.
Block = str | Pair | Note | Table | Code


def notes(texts: Iterable[str]) -> list[Note]:
    """Sentences as notes."""
    return [Note(text) for text in texts]


def places_of(told: Sequence[Iterable[T]]) -> dict[T, list[int]]:
    """What is told of rows: everything once, with the places of the rows that it is about."""
    places: dict[T, list[int]] = {}
    for place, sentences in enumerate(told):
        for sentence in sentences:
            places.setdefault(sentence, []).append(place)
    return places


def spaced(*parts: Sequence[Block]) -> list[Block]:
    """Parts with a gap between them; those that are empty are left out."""
    there = [part for part in parts if part]
    return [block for index, part in enumerate(there) for block in (([""] if index else []) + list(part))]


def text(blocks: Iterable[Block]) -> list[str]:
    """The lines of plain text."""
    return [line for block in blocks for line in _text(block)]


def _text(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield block
    elif isinstance(block, Pair):
        yield f"{block.name}: {block.value}"
    elif isinstance(block, Note):
        yield block.line
    elif isinstance(block, Code):
        yield from block.text.splitlines()
    else:
        if block.title:
            yield f"{block.title}:"
        drawn = aligned(block.texts, block.left)
        if block.divider:
            words, place = block.divider
            drawn.insert(place + 1, f" {words} ".center(cell_width(drawn[0]), "-"))
        yield from drawn


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """One line a row, columns two spaces apart and aligned to the right but for those named; no trailing space."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, left)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> Iterator[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        gap = " " * (width - cell_width(cell))
        yield cell + gap if index in left else gap + cell


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes: characters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # late: most text needs no table of widths

    return cell_len(text)


def draw(blocks: Iterable[Block], console: Console) -> None:
    """Draw blocks on a terminal: headings and what matters stand out, names are folded where it is narrow."""
    from rich.text import Text

    for block in blocks:
        if isinstance(block, Table):
            if block.title:
                console.print(Text(escape_controls(f"{block.title}:"), "bold"))
            _draw_table(block, console)
            continue
        style = "bold" if isinstance(block, Pair) and block.strong else ""
        if isinstance(block, Note):
            style = "bold red" if block.warning else "yellow"
        for line in _text(block):
            console.print(Text(escape_controls(line), style), soft_wrap=True)


def _draw_table(table: Table, console: Console) -> None:
    if table.divider:
        for line in _text(table):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    head, *rows = table.texts
    widths = [max(map(cell_width, column)) for column in zip(head, *rows, strict=True)]
    least = sum(min(width, _NARROWEST) if index in table.left else width for index, width in enumerate(widths))
    least += 2 * (len(widths) - 1)
    # A number is never cut: where the terminal is too narrow for all of them, it wraps the lines itself.
    width = console.width if least <= console.width else sum(widths) + 2 * len(widths)
    console.print(_rich_table(table, head, rows), width=width, crop=False, soft_wrap=width > console.width)


def _rich_table(table: Table, head: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, label in enumerate(head):
        named = index in table.left
        justify: Any = "left" if named else "right"
        drawn.add_column(
            Text(escape_controls(label)), justify=justify, no_wrap=not named, overflow="fold" if named else "crop"
        )
    for index, row in enumerate(rows):
        drawn.add_row(
            *(Text(escape_controls(cell)) for cell in row), style="bold" if index in table.strong else None
        )
    return drawn


def markdown(title: str, blocks: Iterable[Block]) -> str:
    """Markdown; all text is foreign and must not become tags, comments or table marks."""
    parts: list[str | Code] = [f"## {one_line(title)}", ""]
    for block in blocks:
        if isinstance(block, Table):
            parts += ["", f"**{one_line(block.title)}**", ""] if block.title else [""]
            parts += [*markdown_rows(block.texts, block.left), ""]
        elif isinstance(block, Code):
            # In a fence nothing is markup; the program is ours, and names in it are quoted.
            parts += ["", Code("\n".join(["```python", *block.text.splitlines(), "```"])), ""]
        else:
            parts += [f"- {one_line(line)}" if line else "" for line in _text(block)]
    lines = [part.text if isinstance(part, Code) else html.escape(part, quote=False) for part in parts]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def markdown_rows(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """A Markdown table, the first row its head."""
    head, *body = [[_markdown_cell(cell) for cell in row] for row in rows]
    rule = [":---" if index in left else "---:" for index in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _markdown_cell(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def to_csv(rows: Table | Sequence[Mapping[str, Any]]) -> str:
    """The rows of a table as CSV, every digit kept; of flat records, with all keys that any of them has."""
    if not isinstance(rows, Table):
        keys = list(dict.fromkeys(key for record in rows for key in record))
    elif rows.rows:
        return to_csv([{k: v for field in rows.fields for k, v in field.values(row).items()} for row in rows.rows])
    else:
        keys, rows = [field.key for field in rows.fields if field.key], ()
    return csv_lines([keys, *([_joined(record.get(key)) for key in keys] for record in rows)])


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; what a spreadsheet would run as a formula is quoted."""
    return "".join(_csv_line([spreadsheet_cell(cell) for cell in row]) for row in rows)


def _csv_line(cells: list[Any]) -> str:
    # With a mere \n at its end, the writer would not quote a \r, at which readers end a line.
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def spreadsheet_cell(value: Any) -> Any:
    """A value as a spreadsheet takes it for what it is: text that it would run as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def notebook(blocks: Iterable[Block]) -> str:
    """HTML for notebooks: plain tables, and sentences as a list."""
    parts = list(blocks)
    return rendered(
        "notebook.html",
        pairs=[block for block in parts if isinstance(block, Pair)],
        tables=[block for block in parts if isinstance(block, Table)],
        sentences=[
            line for block in parts if not isinstance(block, Pair | Table) for line in _text(block) if line
        ],
    )


def rendered(template: str, **values: Any) -> str:
    """A template of ours with these values; all text is foreign and escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # late: it takes a good part of a second

    environment = Environment(loader=PackageLoader("inferlab.views"), autoescape=True, undefined=StrictUndefined)
    environment.filters["anchor"] = lambda name: name.lower().replace(" ", "-")
    # Cut in the middle, as ends tell names apart; the whole name is found, sorted by and shown at the pointer.
    environment.filters["cut"] = lambda text: shortened(text, _LONGEST)
    return environment.get_template(template).render(values)
