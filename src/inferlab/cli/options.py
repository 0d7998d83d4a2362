"""Declared options as options of commands: their values, their help in groups, and `--plan FILE.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput
from inferlab.options.kinds import Flag, Word
from inferlab.options.option import GROUPS, Option, of_command, refuse_unknown
from inferlab.units import shortened

MODELS = """MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program
(.pt2), a TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""
BASELINE = "The cell that speed-ups refer to.  [default: the first]  May be repeated."
_LISTS = ("benchmark", "recommend", "generate")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Command(click.Command):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Declared options in their groups; what is the command's own stands with the output."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                groups[getattr(param, "group", "Output")].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class DeclaredValue(click.ParamType[Any]):
    """The record's value of an option, of text; what is no text is one already."""

    def __init__(self, option: Option) -> None:
        self.option, self.name = option, option.kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        if not isinstance(value, str | list):
            return value
        try:
            return self.option.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The words that it may be, for a shell that completes."""
        words = self.option.kind.choices if isinstance(self.option.kind, Word) else ()
        return [click.shell_completion.CompletionItem(word) for word in words if word.startswith(incomplete)]


class _DeclaredOption(click.Option):
    """An option of a command that was declared in `inferlab.options`."""

    def __init__(self, option: Option, command: str) -> None:
        self.declared, self.group = option, option.group
        default = option.default_of(command)
        told = option.told_default(command)
        text = option.help_of.get(command, option.help)
        if option.flags[0].startswith("--no-"):
            text = f"Do not {text[0].lower()}{text[1:]}"
        settings: dict[str, Any] = {"help": text + (f"  [default: {told}]" if told else ""), "default": default}
        if isinstance(option.kind, Flag):
            settings["is_flag"] = True
            settings |= {} if "/" in option.flags[0] else {"flag_value": not default}
        else:
            single = option.swept and command not in _LISTS
            of_one = Word.metavar if isinstance(option.kind, Word) and option.swept else option.kind.metavar
            settings["metavar"] = of_one if single else option.metavar or of_one
            repeated = option.many == "repeated"
            settings |= {"multiple": True, "default": None} if repeated else {"type": DeclaredValue(option)}
        super().__init__([*option.flags, option.keyword], **settings)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Of an option that is repeated, all values together."""
        found = super().process_value(ctx, value)
        if not self.multiple:
            return found
        try:
            return self.declared.read(found)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, self) from None


def declared_options(command: str, known: Mapping[str, Option]) -> Decorator:
    """Give a command all declared options that it takes."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        params = [_DeclaredOption(option, command) for option in of_command(known, command).values()]
        function.__click_params__ = [  # type: ignore[attr-defined]
            *getattr(function, "__click_params__", []),
            *reversed(params),
        ]
        return function

    return add


def given_options(ctx: click.Context, without: tuple[str, ...] = ()) -> list[str]:
    """The names of the options that the command line gives, but for these."""
    sources = {str(one.name): ctx.get_parameter_source(str(one.name)) for one in ctx.command.params}
    return [name for name, source in sources.items()
            if name not in without and source is not None and source.name == "COMMANDLINE"]  # fmt: skip


# --plan FILE.yaml: the options of a command from a file; what the command line says goes before it.

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
        help="Options from a file, by their long names; those given here take precedence.",
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
    found = {}
    for key, value in content.items():
        name = shortened(str(key), 60)
        if _plain(name) not in names:
            refuse_unknown(f"The plan {path}", [_plain(name)], sorted(longest), "option")
        param = names[_plain(name)]
        found[str(param.name)] = _value(path, name, param, value)
    return found


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _value(path: Path, key: str, param: click.Parameter, value: Any) -> Any:
    """A value as the command line would give it: text, several texts, or yes and no."""
    option: Option | None = getattr(param, "declared", None)
    several = isinstance(param, click.Option) and param.multiple
    if option and option.kind.whole and isinstance(value, dict):
        value = [f"{name}={setting}" for name, setting in value.items()]
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value)):
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
        return [str(one) for one in value]
    return [str(value)] if several else str(value)
