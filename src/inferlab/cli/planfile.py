"""`--plan FILE.yaml`: the options of a command from a file; what the command line says goes before it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from inferlab.cli.parameters import Listed
from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput
from inferlab.units import shortened

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
    params = {str(param.name): param for param in known}
    found = {}
    for key, value in content.items():
        key = shortened(str(key), 60)
        name = names.get(key.replace("-", "_"))
        if name is None:
            shown = _shown(known)
            near = difflib.get_close_matches(key.replace("-", "_"), shown, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" It takes {', '.join(shown)}."
            raise BadInput(f"The plan {path} has an unknown option '{key}'.{hint}")
        found[name] = _value(path, key, params[name], value)
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


def _value(path: Path, key: str, param: click.Parameter, value: Any) -> Any:
    """A value as the command line would give it: text, several texts, or yes and no."""
    if param.name in ("engine_options", "prices") and isinstance(value, dict):
        value = [f"{name}={setting}" for name, setting in value.items()]
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value)):
        raise BadInput(f"The plan {path}: '{key}' is a value or a list of values, not something nested.")
    if value is None or (isinstance(value, list) and None in value):
        raise BadInput(f"The plan {path}: '{key}' has no value. Leave it out, or give one.")
    if isinstance(param, click.Option) and param.is_flag:
        if not isinstance(value, bool):
            raise BadInput(f"The plan {path}: '{key}' is true or false, not {value!r:.60}.")
        # An option such as --no-verify stands for the opposite of what it sets.
        negative = param.flag_value is False and key.replace("-", "_") != param.name
        return value is not negative
    several = isinstance(param, click.Option) and param.multiple
    if isinstance(value, list):
        if not several and not isinstance(param.type, Listed):
            raise BadInput(f"The plan {path}: '{key}' takes one value, not a list.")
        return [str(one) for one in value]
    return [str(value)] if several else str(value)
