"""`--plan FILE.yaml`: the options of a command from a file; what the command line says goes before it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from inferlab.errors import BadInput
from inferlab.parsing import MOST_YAML_BYTES, parse_yaml, read_text

_NOT_IN_FILES = ("plan", "resume", "help")


def plan_option(command: Any) -> Any:
    """Give a command the option --plan."""
    return click.option(
        "--plan",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_take,
        metavar="FILE.yaml",
        help="Options from a file, by their long names; those given here go before it.",
    )(command)


def _take(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read(path, ctx.command.params)}


def read(path: Path, known: list[click.Parameter]) -> dict[str, Any]:
    """The options in a file, by the names of a command's parameters."""
    try:
        content = parse_yaml(read_text(path, MOST_YAML_BYTES))
    except OSError as error:
        raise BadInput(f"The plan {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"The plan {path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"The plan {path} must be options with their values, such as 'batch_size: [1, 8]'.")
    names = _names(known)
    found = {}
    for key, value in content.items():
        name = names.get(str(key).replace("-", "_"))
        if name is None:
            shown = _shown(known)
            near = difflib.get_close_matches(str(key).replace("-", "_"), shown, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" It takes {', '.join(shown)}."
            raise BadInput(f"The plan {path} has an unknown option '{key}'.{hint}")
        found[name] = _value(path, str(key), name, value)
    return found


def _names(known: list[click.Parameter]) -> dict[str, str]:
    """A parameter's name for each way of writing it."""
    return {
        flag.lstrip("-").replace("-", "_"): str(param.name)
        for param in known
        if param.name not in _NOT_IN_FILES
        for flag in (*param.opts, str(param.name))
        if len(flag.lstrip("-")) > 1
    }


def _shown(known: list[click.Parameter]) -> list[str]:
    """What users may write: the long options that the help shows."""
    return sorted(
        max((flag.lstrip("-") for flag in param.opts), key=len).replace("-", "_")
        for param in known
        if isinstance(param, click.Option) and not param.hidden and param.name not in _NOT_IN_FILES
    )


def _value(path: Path, key: str, name: str, value: Any) -> Any:
    if name == "engine_options" and isinstance(value, dict):
        return [f"{option}={setting}" for option, setting in value.items()]
    if name == "prices" and isinstance(value, dict):
        return [f"{machine}={price}" for machine, price in value.items()]
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value)):
        raise BadInput(f"The plan {path}: '{key}' is a value or a list of values, not something nested.")
    if value is None:
        raise BadInput(f"The plan {path}: '{key}' has no value. Leave it out, or give one.")
    return value
