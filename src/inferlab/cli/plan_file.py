"""--plan FILE.yaml: the options of a command from a file; what the command line says goes before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput
from inferlab.options import Option, refuse_unknown
from inferlab.units import shortened

_NOT_IN_FILES = ("plan", "resume", "help")


def read_plan(path: Path, known: list[click.Parameter]) -> dict[str, Any]:
    """The options in a file, by the names of a command's parameters."""
    try:
        content = parse_yaml(read_text(path, MOST_YAML_BYTES))
    except OSError as error:
        raise BadInput(f"The plan {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"The plan {path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"The plan {path} must be options with their values, such as 'batch_size: [1, 8]'.")
    names = {
        _plain(flag): param
        for param in known
        if param.name not in _NOT_IN_FILES
        for flag in (*param.opts, str(param.name))
        if len(_plain(flag)) > 1
    }
    longest = {
        max(map(_plain, param.opts), key=len) for param in names.values() if isinstance(param, click.Option)
    }
    values = {}
    for key, value in content.items():
        name = shortened(str(key), 60)
        if _plain(name) not in names:
            refuse_unknown(f"The plan {path}", [_plain(name)], sorted(longest), "option")
        param = names[_plain(name)]
        values[str(param.name)] = _value(path, name, param, value)
    return values


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _value(path: Path, key: str, param: click.Parameter, value: Any) -> Any:
    """A value as the command line would give it: text, several texts, or yes and no."""
    option: Option | None = getattr(param, "declared", None)
    several = isinstance(param, click.Option) and param.multiple
    if option and option.kind.whole and isinstance(value, dict):
        value = [f"{name}={setting}" for name, setting in value.items()]
    if isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, list | dict) for item in value)
    ):
        raise BadInput(f"The plan {path}: '{key}' is a value or a list of values, not something nested.")
    if value is None or (isinstance(value, list) and None in value):
        raise BadInput(f"The plan {path}: '{key}' has no value. Leave it out, or give one.")
    if isinstance(param, click.Option) and param.is_flag:
        if not isinstance(value, bool):
            raise BadInput(f"The plan {path}: '{key}' is true or false, not {value!r:.60}.")
        # An option such as --no-verify stands for the opposite of what it sets.
        negative = param.flag_value is False and _plain(key) != param.name
        return value is not negative
    if isinstance(value, list):
        if not several and not (option and option.is_list):
            raise BadInput(f"The plan {path}: '{key}' takes one value, not a list.")
        return [str(item) for item in value]
    return [str(value)] if several else str(value)
