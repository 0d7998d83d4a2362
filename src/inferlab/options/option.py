"""What the declaration of an option says, and how its value is read, checked, validated and written."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, get_args

from inferlab.errors import BadInput
from inferlab.options.kinds import Flag, Kind, check_each

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

    def read(self, given: str | Sequence[object]) -> Any:
        """The record's value, of text; a ValueError says what is wrong with it."""
        if not self.many:
            values = self.kind.read(str(given))
            if len(values) != 1:
                raise ValueError(f"'{given}' is {len(values)} values; {self.keyword} takes one.")
            return values[0]
        parts = [given] if isinstance(given, str) else given
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
            return [word for one in values for word in (self.flags[0], self.kind.text(one))]
        return [self.flags[0], self.written(value)]


def declared(
    keywords: Any, record: Any, of_plan: Mapping[str, Option] | None = None, commands: tuple[str, ...] = ALL
) -> dict[str, Option]:
    """The options that a TypedDict declares beside those of a plan, by keyword; defaults are the record's."""
    found = {}
    for keyword, annotation in keywords.__annotations__.items():
        if of_plan and keyword in of_plan:
            continue
        option: Option = annotation.__metadata__[0]
        name = option.field or keyword
        found[keyword] = replace(
            option,
            keyword=keyword,
            field=name,
            label=option.label or keyword.replace("_", " "),
            many=option.many or ("commas" if option.swept else ""),
            commands=option.commands if option.commands != ALL else commands,
            default=getattr(record, name, option.default),
            type=annotation.__origin__,
        )
    return found


def of_command(known: Mapping[str, Option], command: str) -> dict[str, Option]:
    """Those of the options that a command has."""
    return {keyword: option for keyword, option in known.items() if command in option.commands}


def check_keywords(command: str, known: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all of a command's options, of what a Python program gave."""
    return {
        keyword: option.check(given[keyword]) if keyword in given else option.default_of(command)
        for keyword, option in of_command(known, command).items()
    }


def model_name(value: Any) -> str:
    """The name of a model, as a user of Python gives it."""
    if isinstance(value, str | os.PathLike) and (name := os.fspath(value)) and isinstance(name, str):
        return name
    raise BadInput(f"A model is a path, a URL or a name such as demo:resnet50, not a {type(value).__name__}.")


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str], what: str = "argument") -> None:
    """Refuse names that a function, or a file, does not have; the sentence names the nearest."""
    there = list(known)
    for name in given:
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"It takes {', '.join(there)}."
        raise BadInput(f"{function} has no {what} '{name}'. {hint}")
