"""Every option, declared once: command line, plan files, Python, HTTP, pages and copied commands read it.

Here is what a declaration says, and how plain values are read from text, checked as Python has them, and written
as text again. `kinds` has the values with a structure; `plan`, `generation` and `optimization` declare.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, get_args

from inferlab.errors import BadInput

#: Where it stands in the help of a command, in this order.
Group = Literal[
    "Model and inputs",
    "Models that generate tokens",
    "Pruning",
    "Quantization",
    "Search",
    "Profiles",
    "Where and how to run",
    "Measuring",
    "Cluster",
    "Output",
]
GROUPS: tuple[Group, ...] = get_args(Group)
#: The commands, and functions of Python, that measure a plan.
ALL = ("benchmark", "compare", "capacity", "recommend", "profile", "optimize", "bisect")


#: No list has more values than this.
MOST_VALUES = 1000
_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*x])(\d+))?")


def refusal(name: str, what: str, value: Any) -> BadInput:
    """The error for a keyword argument that is not what it must be."""
    return BadInput(f"{name} is {what}, not {value!r} ({type(value).__name__}).")


class Kind:
    """Any text; its subclasses take less."""

    #: What stands for one value in the help.
    metavar = "TEXT"
    #: What Python gives is checked as a whole, such as a dictionary, and not value by value.
    whole = False

    def read(self, part: str) -> Sequence[Any]:
        """The values that one part of a list stands for; a ValueError says what is wrong with it."""
        return [part]

    def collect(self, values: Sequence[Any]) -> Any:
        """What a record holds of several values that were read."""
        if len(values) > MOST_VALUES:
            raise ValueError(f"These are {len(values)} values; more than {MOST_VALUES} are not measured.")
        return tuple(dict.fromkeys(values))

    def check(self, name: str, value: Any) -> Any:
        """A value that a Python program gave, if it is one; of plain text, whatever reads it says more."""
        return value

    def limited(self, name: str, value: Any) -> Any:
        """The value, if it is within the limits of its kind."""
        return value

    def text(self, value: Any) -> str:
        """The value as the command line takes it."""
        return str(value)

    def join(self, values: Sequence[Any], name: str = "values") -> str:
        """Several values as the command line takes them; a ValueError says which cannot stand in a list."""
        texts = [self.text(value) for value in values]
        for text in texts:
            if "," in text or text != text.strip():
                raise ValueError(f"'{text}' cannot be in a list of {name}")
        return ",".join(texts)


class Word(Kind):
    """A word, of some or of any."""

    metavar = "NAME"

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        if choices:
            self.metavar = f"[{'|'.join(choices)}]"

    def read(self, part: str) -> Sequence[str]:
        """A word."""
        if not part:
            raise ValueError("a name is missing between commas.")
        if self.choices and part not in self.choices:
            raise ValueError(f"'{part}' is not one of {', '.join(self.choices)}.")
        return [part]

    def check(self, name: str, value: Any) -> str:
        """Any word: whether it is a possible one, the validation of the request says."""
        if isinstance(value, str) and value:
            return value
        raise refusal(name, "a word", value)

    def limited(self, name: str, value: Any) -> Any:
        """One of the choices, where there are some."""
        if self.choices and value not in self.choices:
            raise BadInput(f"'{value}' is not possible here; it is one of {', '.join(self.choices)}.")
        return value


class Number(Kind):
    """A finite number, perhaps with a lower end that it may have, or (`above`) may not."""

    metavar = "NUMBER"

    def __init__(self, least: float | None = None, above: bool = False, unit: str = "") -> None:
        self.least, self.above, self.unit = least, above, unit and f" {unit}"

    def read(self, part: str) -> Sequence[float]:
        """A number."""
        try:
            return [float(part)]
        except ValueError:
            raise ValueError(f"'{part}' is not a number.") from None

    def check(self, name: str, value: Any) -> float:
        """A real number."""
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value):
            return float(self.limited(name, float(value)))
        raise refusal(name, "a number", value)

    def limited(self, name: str, value: Any) -> Any:
        """The value, if it is finite and not below the least."""
        if self.least is None:
            return value
        if not self.least <= value < math.inf or (self.above and value == self.least):
            limit = f"{'more than' if self.above else 'at least'} {self.least:g}{self.unit}"
            finite = " and finite" if self.unit else ""
            raise BadInput(f"{name} must be {limit}{finite}, not {value:g}.")
        return value

    def text(self, value: Any) -> str:
        """All digits that tell it from others, and none more."""
        return repr(value).removesuffix(".0")


class Share(Number):
    """A share such as 1% or 0.01."""

    metavar = "SHARE"

    def read(self, part: str) -> Sequence[float]:
        """A fraction."""
        try:
            return [float(part[:-1]) / 100 if part.endswith("%") else float(part)]
        except ValueError:
            raise ValueError(f"'{part}' is not a share such as 1% or 0.01.") from None

    def limited(self, name: str, value: Any) -> Any:
        """A share of something, neither nothing nor all."""
        if not 0 < value < 1:
            raise BadInput(f"{name} must lie between 0 and 100 %, not {100 * value:g} %.")
        return value

    def text(self, value: Any) -> str:
        """In percent where that is exact."""
        percent = f"{100 * value:.12g}"
        return f"{percent}%" if float(percent) / 100 == value else super().text(value)


class Whole(Number):
    """Whole numbers: 8, ranges 1-4, 2-10+4, 1-64*2; where `most` is, also max, which is None."""

    def __init__(self, least: int | None = None, most: bool = False) -> None:
        super().__init__(least)
        self.most = most
        self.metavar = "N|max" if most else "N"

    def read(self, part: str) -> Sequence[Any]:
        """A number, a range, or max."""
        if part == "max" and self.most:
            return [None]
        if part.lstrip("-").isdigit():
            return [int(part)]
        bounds = _RANGE.fullmatch(part)
        if not bounds:
            raise ValueError(f"'{part}' is not a whole number such as 8, nor a range such as 1-4 or 1-64*2.")
        first, last, sign, step = int(bounds[1]), int(bounds[2]), bounds[3], int(bounds[4] or 1)
        if first > last or (sign and step < (2 if sign in "*x" else 1)) or (sign in ("*", "x") and first < 1):
            raise ValueError(f"The range '{part}' does not lead from its first to its last number.")
        if sign in ("*", "x"):
            values = [first]
            while values[-1] * step <= last:
                values.append(values[-1] * step)
            return values
        if (last - first) // step >= MOST_VALUES:
            raise ValueError(f"The range '{part}' has more than {MOST_VALUES} numbers.")
        return range(first, last + 1, step)

    def check(self, name: str, value: Any) -> Any:
        """A whole number, or all that there are."""
        if self.most and value == "max":
            return None
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return self.limited(name, int(value))
        raise refusal(name, "a whole number", value)

    def text(self, value: Any) -> str:
        """A number, or max."""
        return "max" if value is None and self.most else super().text(value)


class File(Kind):
    """A path."""

    metavar = "FILE"

    def check(self, name: str, value: Any) -> str:
        """Text, or a path object."""
        if isinstance(value, str | os.PathLike) and (path := os.fspath(value)) and isinstance(path, str):
            return path
        raise refusal(name, "a path", value)


class Flag(Kind):
    """True or False."""

    metavar = ""

    def check(self, name: str, value: Any) -> bool:
        """A truth value, nothing that merely stands for one."""
        if isinstance(value, bool):
            return value
        raise refusal(name, "True or False", value)


WORD, NUMBER, WHOLE, FILE, FLAG = Word(), Number(), Whole(), File(), Flag()


def check_each(kind: Kind, name: str, value: Any, optional: bool = False) -> tuple[Any, ...]:
    """One value or several, each once."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    values = value if several else (value,)
    checked = dict.fromkeys(None if optional and each is None else kind.check(name, each) for each in values)
    if not checked:
        raise BadInput(f"{name} is an empty list: give at least one value.")
    return tuple(checked)


@dataclass(frozen=True, slots=True)
class Option:
    """One option; its default is that of the record's field."""

    #: As the command line has them; the first is written where a command is copied.
    flags: tuple[str, ...]
    kind: Kind
    group: Group
    #: For the command line, for Python, for HTTP.
    help: str
    _: KW_ONLY
    #: What some commands say instead.
    help_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Of the record; by default the keyword.
    field: str = ""
    #: In sentences and on pages; by default the keyword.
    label: str = ""
    #: The heading of its column, where it fixes a cell and no view lays it out by hand.
    column: str = ""
    #: What it is where nobody says and the record has no value.
    unset: str = ""
    #: What it is where nobody says and `recommend` searches.
    search: str = ""
    #: What stands for several values in the help.
    metavar: str | None = None
    #: A plan has several values of it and is the product of them all.
    swept: bool = False
    #: How a command line gives several values.
    many: Literal["", "commas", "repeated"] = ""
    #: Those that have it.
    commands: tuple[str, ...] = ALL
    #: Defaults of commands that have one of their own.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: Each arm of a comparison may have its own.
    per_arm: bool = False
    #: Pages and the HTTP API take it, too.
    remote: bool = True
    #: Given by `declared`: in Python, in plan files and over HTTP; and the record's value.
    keyword: str = ""
    default: Any = None
    type: Any = None

    @property
    def is_list(self) -> bool:
        """Whether the command line takes several values with commas."""
        return self.many == "commas"

    @property
    def title(self) -> str:
        """What its field on a page is called."""
        return f"{self.label[0].upper()}{self.label[1:]}"

    @property
    def json_name(self) -> str:
        """Over HTTP, where one value of it is taken: a time says its unit."""
        return self.field if self.field.endswith("_s") else self.keyword

    def default_of(self, command: str) -> Any:
        """What a command takes where nobody says."""
        if self.search and command == "recommend":
            return ()
        return self.defaults.get(command, self.default)

    def told_default(self, command: str) -> str:
        """The default in words; empty where there is none to tell."""
        default = self.default_of(command)
        if default in (None, (None,), (), {}, ""):
            return self.search if command == "recommend" and self.search else self.unset
        return "" if isinstance(self.kind, Flag) else self.written(default)

    def python_default(self, command: str) -> Any:
        """The default as a keyword argument has it."""
        default = self.default_of(command)
        if self.kind.whole:
            return default or None
        return default[0] if self.swept and len(default) == 1 else default

    def read(self, words: str | Sequence[object]) -> Any:
        """The record's value, of text; a ValueError says what is wrong with it."""
        if not self.many:
            values = self.kind.read(str(words))
            if len(values) != 1:
                raise ValueError(f"'{words}' is {len(values)} values; {self.keyword} takes one.")
            return values[0]
        parts = [words] if isinstance(words, str) else words
        texts = [text for part in parts for text in (str(part).split(",") if self.is_list else [str(part)])]
        strip = str.strip if self.is_list else str
        return self.kind.collect([value for text in texts for value in self.kind.read(strip(text))])

    def check(self, value: Any) -> Any:
        """The record's value, of what Python or JSON gave."""
        if self.kind.whole:
            return self.kind.check(self.keyword, value)
        if self.swept:
            return check_each(self.kind, self.keyword, value, optional=self.default == (None,))
        if self.many:
            empty = value is None or (isinstance(value, list | tuple) and not value)
            return self.default if empty else check_each(self.kind, self.keyword, value)
        return None if value is None and self.default is None else self.kind.check(self.keyword, value)

    def validate(self, value: Any) -> None:
        """Refuse a value of the record that is beyond the limits of its kind."""
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None:
                self.kind.limited(f"The {self.label}", each)

    def written(self, value: Any) -> str:
        """The value as the command line takes it; a ValueError says why it cannot be written."""
        if not self.many:
            return self.kind.text(value)
        if None in value and self.kind.text(None) != "max":
            raise ValueError(f"{self.field} has both its default and values of its own")
        return self.kind.join(tuple(value), self.field)

    def words(self, value: Any) -> list[str]:
        """The option as words of a command line; nothing where the value is the default."""
        if value == self.default:
            return []
        if isinstance(self.kind, Flag):
            return [self.flags[0].split("/")[-1 if self.default else 0]]
        if self.many == "repeated":
            values = value.items() if isinstance(value, Mapping) else value
            return [word for each in values for word in (self.flags[0], self.kind.text(each))]
        return [self.flags[0], self.written(value)]


def declared(
    keywords: Any, record: Any, without: Container[str] = (), commands: tuple[str, ...] = ALL
) -> dict[str, Option]:
    """The options that a TypedDict declares, but for some keywords; defaults are the record's."""
    options = {}
    for keyword, annotation in keywords.__annotations__.items():
        if keyword in without:
            continue
        option: Option = annotation.__metadata__[0]
        name = option.field or keyword
        options[keyword] = replace(
            option,
            keyword=keyword,
            field=name,
            label=option.label or keyword.replace("_", " "),
            many=option.many or ("commas" if option.swept else ""),
            commands=option.commands if option.commands != ALL else commands,
            default=getattr(record, name, option.default),
            type=annotation.__origin__,
        )
    return options


def of_command(known: Mapping[str, Option], command: str) -> dict[str, Option]:
    """Those of the options that a command has."""
    return {keyword: option for keyword, option in known.items() if command in option.commands}


def check_keywords(command: str, known: Mapping[str, Option], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all of a command's options, of what a Python program gave."""
    return {
        keyword: option.check(keywords[keyword]) if keyword in keywords else option.default_of(command)
        for keyword, option in of_command(known, command).items()
    }


def field_values(known: Mapping[str, Option], record: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values by keyword that a record has a field for, by field."""
    return {
        option.field: values[keyword]
        for keyword, option in known.items()
        if keyword in values and hasattr(record, option.field)
    }


def validate_values(known: Mapping[str, Option], record: Any) -> None:
    """Refuse a record with a value that is beyond the limits of its option."""
    for option in known.values():
        if hasattr(record, option.field):
            option.validate(getattr(record, option.field))


def model_name(value: Any) -> str:
    """The name of a model, as a user of Python gives it."""
    if isinstance(value, str | os.PathLike) and (name := os.fspath(value)) and isinstance(name, str):
        return name
    raise BadInput(f"A model is a path, a URL or a name such as demo:resnet50, not a {type(value).__name__}.")


def refuse_unknown(function: str, names: Iterable[str], known: Iterable[str], what: str = "argument") -> None:
    """Refuse names that a function, or a file, does not have; the sentence names the nearest."""
    there = list(known)
    for name in names:
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"It takes {', '.join(there)}."
        raise BadInput(f"{function} has no {what} '{name}'. {hint}")
