"""What is shown of a value, declared once: its key, heading, unit and format; tables, files and axes read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from inferlab.errors import BadInput
from inferlab.options import Option
from inferlab.options.plan import COLUMNS
from inferlab.records import Cell, Estimate
from inferlab.units import capitalized, count, decimal, duration, plural, share, shortened, size

Ends = Sequence[float] | None
Form = Callable[[float], str]

# Ends of an interval that are further apart than this factor, about ±100 %, say nothing.
_TOO_WIDE = 4.0
# A comparison that would take longer than this is not settled by measuring longer.
_TOO_LONG_S = 3600.0
#: Milliseconds, as tables show them.
MS: Form = partial(decimal, places=3)
#: What to do about an interval that is too wide.
QUIETER = "Close other programs (inferlab doctor shows what disturbs), or measure longer."


def useful(ends: Ends) -> bool:
    """Whether there is an interval, and it is narrow enough to say something."""
    return ends is not None and 0 < ends[0] <= ends[1] <= _TOO_WIDE * ends[0]


def rounded(value: float, ends: Ends, form: Form = decimal) -> str:
    """A value with the digits that its interval supports: two of half its width; `form` without a useful one."""
    if ends is None or not useful(ends) or ends[0] == ends[1]:
        return form(value)
    places = 1 - math.floor(math.log10((ends[1] - ends[0]) / 2))
    # Five digits are the most that anybody reads.
    places = min(places, 4 - math.floor(math.log10(ends[1])))
    return f"{round(value, places):.{max(0, places)}f}"


def between(ends: Ends, form: Form = decimal, processes: int | None = None) -> str:
    """Both ends of an interval with the digits that they support; in words where they say nothing."""
    if ends is not None and useful(ends):
        return f"{rounded(ends[0], ends, form)} to {rounded(ends[1], ends, form)}"
    words = "no interval" if ends is None else "too noisy for an interval"
    return words if processes is None else f"{words} ({plural(processes, 'process', 'processes')})"


def level_percent(level: float) -> str:
    """The level of an interval in per cent, rounded down: 99.98, never 100."""
    if not 0 < level < 1:  # out of a file that no measurement wrote
        return f"{100 * level:g}"
    places = max(0, -math.floor(math.log10(1 - level)) - 2)
    return f"{math.floor(100 * level * 10**places + 1e-6) / 10**places:.{places}f}"


def between_at(ends: Ends, level: float, form: Form = decimal) -> str:
    """Both ends with the level behind them: 1.2 to 1.4 (95 %)."""
    return f"{between(ends, form)} ({level_percent(level)} %)" if useful(ends) else between(ends)


def in_brackets(ends: Ends, form: Form = decimal, processes: int | None = None) -> str:
    """Both ends in brackets, to stand behind their value; empty where there is no interval."""
    return "" if ends is None else f" ({between(ends, form, processes)})"


def interval_text(ends: Ends, level: float, form: Form = decimal) -> str:
    """An interval with its level before it; in words where there is none or it says nothing."""
    if ends is None:
        return "too few processes for an interval"
    return f"{level_percent(level)}% interval {between(ends, form)}" if useful(ends) else between(ends)


def ratio_of(ratio: Estimate, whole: str = "A's time") -> str:
    """A ratio as a part of something, with its interval: 1.2 of A's time, 95% interval 1.1 to 1.3."""
    return f"{rounded(ratio.value, ratio.ends)} of {whole}, {interval_text(ratio.ends, ratio.level)}"


def half_width(ends: Ends) -> str:
    """Half the width of an interval as a share of its value; empty where there is none."""
    if ends is None:
        return ""
    return share(math.sqrt(ends[1] / ends[0]) - 1.0) if useful(ends) else "too noisy"


def advice(many_ends: Sequence[Ends], remedy: str = QUIETER) -> list[str]:
    """What to do where one of these intervals says nothing: one note for a whole table."""
    noisy = any(ends is not None and not useful(ends) for ends in many_ends)
    return [f"Note: too noisy for an interval means that it would say nothing. {remedy}"] if noisy else []


def would_settle(seconds: float | None) -> str:
    """How long an open comparison would have to take, that it is not worth trying, or that nothing tells."""
    if seconds is None:
        return (
            "What would settle it cannot be told from so few processes: measure both interleaved, with: "
            "inferlab compare A B"
        )
    if seconds <= _TOO_LONG_S:
        return f"About {duration(seconds)} would settle it."
    return (
        f"It cannot be settled here: that would take more than {duration(_TOO_LONG_S)}. Close other programs "
        "(inferlab doctor shows what disturbs), use a quieter machine, or give a larger --margin."
    )


#: What stands where a value is not known.
UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a row: where it comes from, what it is called and how it is written."""

    #: The column of a CSV file; empty: not in files, because it only repeats what another field has.
    key: str
    #: The heading of its column.
    label: str
    get: Callable[[Any], Any]
    form: Callable[[Any], str] = str
    #: Both ends of its interval, which decide how many digits are shown.
    ends: Callable[[Any], Ends] | None = None
    #: Text, aligned to the left.
    left: bool = False
    #: What is longer is cut in its middle, but not in files.
    longest: int | None = None
    suffix: str = ""
    #: What it is called where there is room, as in the title of a chart, and its unit.
    title: str = ""
    unit: str = ""
    #: The value in words that need no heading.
    words: Callable[[Any], str] = str
    #: In reports its numbers stand below each other, with as many places as the largest has room for in so many
    #: digits, and one more; fields of the same group have as many places as each other.
    digits: int | None = None
    group: str = ""

    def of(self, part: Callable[[Any], Any]) -> Field:
        """The same of a part of other rows; None is a row without that part."""
        ends = self.ends
        return replace(
            self,
            get=lambda row: None if (own := part(row)) is None else self.get(own),
            ends=None if ends is None else lambda row: None if (own := part(row)) is None else ends(own),
        )

    @property
    def capitalized(self) -> Field:
        """The same below a heading that begins with a capital letter."""
        return replace(self, label=capitalized(self.label))

    def aligned(self, label: str, digits: int = 3) -> Field:
        """The same in a report, below another heading, its points below each other."""
        return replace(self, label=label, digits=digits)

    @property
    def axis(self) -> str:
        """The title of an axis along which it lies."""
        name = self.title[:1].lower() + self.title[1:]
        return f"{name} ({self.unit})" if self.unit else name

    def text(self, row: Any) -> str:
        """The value as it is shown."""
        value = self.get(row)
        if value is None:
            return UNKNOWN
        value_text = self.form(value) if self.ends is None else rounded(value, self.ends(row), self.form)
        return f"{value_text if self.longest is None else shortened(value_text, self.longest)}{self.suffix}"

    def values(self, row: Any) -> dict[str, Any]:
        """The value as files have it, with the ends of its interval, every digit kept."""
        if not self.key:
            return {}
        values_by_key = {self.key: self.get(row)}
        if self.ends is not None:
            low, high = self.ends(row) or (None, None)
            values_by_key |= {f"{self.key}_low": low, f"{self.key}_high": high}
        return values_by_key


def interval_of(
    field: Field,
    label: str = "95 % interval",
    form: Callable[[Any], str] | None = None,
    processes: Callable[[Any], int | None] = lambda row: None,
) -> Field:
    """The column with both ends of a field's interval, or that those of so many processes say nothing."""
    ends = field.ends
    assert ends is not None, "only what has an interval has this column"

    def ends_text(row: Any) -> str | None:
        both = ends(row)
        return (
            None if both is None or field.get(row) is None else between(both, form or field.form, processes(row))
        )

    return Field("", label, ends_text)


def half_width_of(field: Field) -> Field:
    """The column with half the width of a field's interval, as a share."""
    ends = field.ends
    assert ends is not None, "only what has an interval has this column"
    return Field("", "±", lambda row: half_width(ends(row)) or None)


def estimate(key: str, label: str, get: Callable[[Any], Any], **more: Any) -> Field:
    """The field of an Estimate, which `get` finds in a row, or None."""
    return Field(
        key,
        label,
        lambda row: None if (value := get(row)) is None else value.value,
        ends=lambda row: None if (value := get(row)) is None else value.ends,
        **more,
    )


def _of_cell(key: str, label: str, **more: Any) -> Field:
    return Field(key, label, attrgetter(key), **more)


def _declared(option: Option) -> Field:
    """A cell's value of an option, as the command line takes it; None where it is as by default."""

    def get(cell: Any) -> str | None:
        value = getattr(cell, option.keyword, option.default)
        return None if value == option.default else option.written(value)

    return Field(option.keyword, option.column, get, left=True, words=f"{option.column} {{}}".format)


def _counting(noun: str) -> Callable[[int], str]:
    return lambda number: plural(number, noun)


# What a cell fixes, also a candidate and a point of a chart; a key is the option that sets it.
MACHINE_TYPE = Field("machine_type", "machine", lambda cell: cell.machine_type or "here", left=True)
MACHINE_NUMBER = _of_cell("machine_number", "number", words="machine {}".format)
ENGINE = _of_cell("engine", "engine", left=True, longest=28)
SCENARIO = _of_cell("scenario", "scenario", left=True)
NUM_CORES = _of_cell("num_cores", "cores", title="physical cores", words=_counting("core"))
INSTANCES = _of_cell("instances", "instances", words=_counting("instance"))
NUM_STREAMS = _of_cell("num_streams", "streams", words=_counting("stream"))
RATE = _of_cell(
    "rate",
    "rate/s",
    form="{:g}".format,
    title="request rate",
    unit="requests/s",
    words="{:g} requests/s".format,
)
BATCH_SIZE = _of_cell("batch_size", "batch", title="batch size", unit="items", words="batch {}".format)
SEQUENCE_LENGTH = _of_cell(
    "sequence_length", "sequence", title="sequence length", unit="tokens", words="sequence {}".format
)
# The same of cells that generate tokens.
PROMPT_TOKENS = _of_cell("prompt_tokens", "prompt", title="prompt length", unit="tokens", words="prompt {}".format)
NEW_TOKENS = _of_cell("new_tokens", "new", title="new tokens", unit="tokens", words="{} new".format)
DEPTH = _of_cell(
    "depth", "depth", title="depth", unit="tokens in the cache before the prompt", words="depth {}".format
)
#: How a cell is told from others.
CELL = (
    *(MACHINE_TYPE, MACHINE_NUMBER, ENGINE, SCENARIO, NUM_CORES, INSTANCES, NUM_STREAMS, RATE, BATCH_SIZE),
    SEQUENCE_LENGTH,
    *(_declared(option) for option in COLUMNS.values()),
)
#: How cells that generate tokens are told from each other, apart from the rate of requests.
GENERATION_CELL = (ENGINE, NUM_CORES, BATCH_SIZE, PROMPT_TOKENS, NEW_TOKENS, DEPTH)

# What was measured of a cell, out of rows with its summary.
THROUGHPUT = estimate(
    "items_per_sec",
    "mean items/s",
    lambda row: row.summary and row.summary.items_per_sec,
    form=count,
    title="Throughput",
    unit="items/s",
)
MEDIAN = estimate(
    "median_ms",
    "median ms",
    lambda row: row.summary and row.summary.median_ms,
    form=MS,
    title="Median latency",
    unit="ms per batch",
)


def _percentile(p: int) -> Field:
    def get(row: Any) -> Any:
        return row.summary and row.summary.percentiles_ms[float(p)]

    return Field(f"p{p}_ms", f"p{p} ms", get, MS, title=f"p{p} latency", unit="ms per batch")


P90, P99 = _percentile(90), _percentile(99)
MS_PER_ITEM = Field("ms_per_item", "ms per item", attrgetter("ms_per_item"), title="Time", unit="ms per item")
PEAK_MEMORY = Field("peak_memory_bytes", "peak memory", attrgetter("peak_memory_bytes"), size)


def money(amount: float) -> str:
    """An amount of whatever currency the prices have."""
    return f"{amount:.3g}"


def cost(get: Callable[[Any], Any]) -> Field:
    """What a million inferences cost, where `get` finds that in a row."""
    return estimate("cost_per_million", "cost/million", get, form=money, title="Cost per million inferences")


def by_key(fields: Sequence[Field]) -> dict[str, Field]:
    """Fields by their keys."""
    return {field.key: field for field in fields}


def fits(cell: Cell, pair: str, what: str = "baseline") -> bool:
    """Whether a cell has OPTION=VALUE; refuses what is not of that form."""
    name, equals, value = pair.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    trait = next((option for option in CELL if name in (option.key, option.label)), None)
    if not equals or trait is None:
        options = ", ".join(sorted(option.key for option in CELL if not option.key.startswith("machine")))
        raise BadInput(f"The {what} '{pair}' is not of the form OPTION=VALUE; the options are {options}.")
    known_value = trait.get(cell)
    return ("-" if known_value is None else trait.form(known_value)) == value.strip()
