"""The declared options of a plan as options of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from inferlab import kinds
from inferlab.cli.parameters import Listed, Share
from inferlab.errors import BadInput
from inferlab.kinds import Flag, Pairs, Word
from inferlab.options import PARAMETERS, PLAN, Group, Option
from inferlab.records import Plan

MODELS = """MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program
(.pt2), a TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""


#: Help of -x.
EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."


def plan_options(
    *groups: Group, without: Sequence[str] = (), single: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command these groups of a plan's options, except those (by keyword) that it has in its own way.

    With `single` it measures one cell: no option is shown to take a list, and none to be the scenario server.
    """
    wanted = [option for option in PLAN if option.group in groups and option.keyword not in without]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(wanted):
            command = _click_option(option, single)(command)
        return command

    return add


def _click_option(option: Option, single: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind, default = option.kind, option.default
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "default": default}
    if isinstance(kind, Flag):
        settings |= {"is_flag": True, "flag_value": not default}
    elif isinstance(kind, Pairs):
        settings["multiple"] = True
    else:
        settings["type"] = _click_type(option)
        settings["show_default"] = default not in (None, (None,), ())
    if option.swept:
        settings["default"] = None if default == (None,) else ",".join(map(kind.text, default))
    if single and option.single_metavar:
        settings["metavar"] = option.single_metavar
        settings["help"] = option.single_help or option.help
    return click.option(*option.flags, option.parameter, **settings)


def _click_type(option: Option) -> Any:
    kind = option.kind
    if option.is_list:
        return Listed(kind)
    match kind:
        case Word() if kind.choices:
            return click.Choice(kind.choices)
        case kinds.Share():
            return Share()
        case kinds.Whole():
            return int if kind.least is None else click.IntRange(min=int(kind.least))
        case kinds.Number():
            return float if kind.least is None else click.FloatRange(min=kind.least, min_open=kind.above)
    return str


def plan(given: Mapping[str, Any]) -> Plan:
    """The plan that the parameters of a command describe."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        option = PARAMETERS.get(name)
        if option is None:
            fields[name] = value
        elif isinstance(option.kind, Pairs):
            fields[option.field] = engine_options(value)
        else:
            fields[option.field] = (None,) if option.swept and value is None else value
    return Plan(**fields)


def engine_options(pairs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """KEY=VALUE options, in an order that does not depend on how they were given."""
    given = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"The engine option '{pair}' is not of the form KEY=VALUE.")
        given[key] = value
    return tuple(sorted(given.items()))
