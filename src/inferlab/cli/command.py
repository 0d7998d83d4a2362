"""What commands share: declared options and --plan FILE.yaml; the store, log and file of those that measure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.terminal import Log, show_blocks
from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput, NotSaved
from inferlab.options import GROUPS, Flag, Option, Word, of_command, refuse_unknown
from inferlab.units import shortened

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records import OutputCheck
    from inferlab.records.generation import Agreement
    from inferlab.store.store import Store
    from inferlab.views.results import Result, View
    from inferlab.views.tables import Block

MODELS = """MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program
(.pt2), a TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""
MODELS_OF_BOTH_KINDS = f"""{MODELS} Or one that generates tokens: a GGUF file, a Hugging Face folder, ONNX with
past and present, demo:llama, demo:bart; see inferlab generate."""
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; what a command that measures needs is made of it: where to save and show, releases of engines."""
        left = super().parse_args(ctx, args)
        if "no_save" in ctx.params and not ctx.resilient_parsing:
            take = ctx.params.pop
            work = Work(
                take("store_url"),
                take("no_save"),
                take("quiet"),
                take("export_path"),
                take("yes"),
                take("label", None) or (),
            )
            work.need_engines([*(ctx.params.get("engine") or ()), *(ctx.params.get("measure") or ())])
            ctx.params["work"] = work
        return left


class DeclaredValue(click.ParamType[Any]):
    """The record's value of an option, of text; what is no text is one already."""

    name = "value"

    def __init__(self, option: Option) -> None:
        self.option = option

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


def given_values(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the command line gives, by keyword."""
    given = given_options(ctx)
    return {name: value for name, value in values.items() if name in given}


def given_options(ctx: click.Context, without: tuple[str, ...] = ()) -> list[str]:
    """The names of the options that the command line gives, but for these."""
    sources = {str(param.name): ctx.get_parameter_source(str(param.name)) for param in ctx.command.params}
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


# Of commands that measure.

_STORE = "A path or postgresql:// URL.  [default: $INFERLAB_STORE, or your own store]"
_EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."

store_option = click.option("--store", "store_url", metavar="URL", help=_STORE)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
export_option = click.option("-x", "--export_path", type=click.Path(path_type=Path), help=_EXPORT)
yes_option = click.option(
    "--yes",
    is_flag=True,
    help="Install releases of engines that are named, such as onnxruntime==1.22.1, without asking.",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5)."
)


@contextmanager
def opened(store_url: str | None, make: bool = False) -> Iterator[Store]:
    """The store that a command reads or changes; one that is not there is made only where that is wanted."""
    from inferlab.store import open_store

    with open_store(store_url, make) as store:
        yield store


class Work:
    """One measurement of a command: where it is saved, what is said on the way, and how it ends."""

    def __init__(
        self,
        store_url: str | None,
        no_save: bool,
        quiet: bool,
        export_path: Path | None = None,
        yes: bool = False,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.log = Log(quiet)
        self._yes, self._labels = yes, labels
        self._store_url, self._no_save, self._export_path = store_url, no_save, export_path
        if export_path:
            from inferlab.views import results

            results.check_writable(export_path)

    def need_engines(self, engines: Iterable[str]) -> None:
        """Install the releases among these engines that are missing, after a question or with --yes."""
        releases = [name for name in dict.fromkeys(engines) if "==" in name]
        if not releases:
            return
        from inferlab.engines import environments, registry
        from inferlab.engines.specs import spec_of
        from inferlab.records import is_release

        missing = [name for name in releases if is_release(name) and not environments.interpreter_of(name)]
        if not missing:
            return
        size_mb = sum(spec_of(name).size_bytes for name in missing) / 1e6
        if not self._yes:
            if not sys.stdin.isatty():
                raise registry.NotInstalled(
                    missing[0], f"inferlab engines install {missing[0]}, or give --yes to install it on first use"
                )
            question = f"Install {', '.join(missing)}? That takes about {size_mb:.0f} MB."
            if not click.confirm(question, err=True, default=True):
                raise registry.NotInstalled(missing[0], f"inferlab engines install {missing[0]}")
        for name in missing:
            environments.install(name, listener=self.log)

    def agree_to_releases(self, engine: str, count: int, versions: Sequence[str]) -> None:
        """Ask once whether so many of these releases may be installed, where any is missing."""
        from inferlab.engines import environments
        from inferlab.engines.specs import spec_of

        names = [f"{engine}=={version}" for version in versions]
        missing = [name for name in names if not environments.interpreter_of(name)]
        if not missing or self._yes:
            return
        count = min(count, len(missing))
        needed = BadInput(
            f"Up to {count} releases of {engine} are needed that are not installed, such as {missing[0]}. Install "
            "those that turn out to be needed with: --yes"
        )
        if not sys.stdin.isatty():
            raise needed
        size_mb = count * spec_of(missing[0]).size_bytes / 1e6
        if not click.confirm(f"Install up to {count} releases of {engine}, about {size_mb:.0f} MB?", err=True):
            raise needed
        self._yes = True

    @contextmanager
    def lab(self) -> Iterator[Lab]:
        """The laboratory, on the store that results are saved in."""
        from inferlab.lab import Lab
        from inferlab.lab.labels import entry_labels
        from inferlab.store import saving_store

        with self.log:
            if self._no_save:
                yield Lab()
                return
            with saving_store(self._store_url, self.log) as store:
                yield Lab(store, labels=entry_labels(self._labels))

    def show(self, record: Result, blocks: Iterable[Block] | None = None) -> None:
        """Print a result, and write it to the file that was named."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks() if blocks is None else blocks)
        if self._export_path:
            self.write(self._export_path, record)

    @staticmethod
    def show_more(record: Result) -> None:
        """Print a result beside the one that was asked for."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks())

    def write(self, path: Path, record: Result, ending: str = "", done: str = "Saved to") -> None:
        """Write a result that was measured; where that fails it is said, and the rest goes on."""
        from inferlab.views import results

        try:
            results.write(path, results.render(record, ending or path.suffix.lower()))
        except NotSaved as error:
            self.log.warn_unsaved(str(error))
        else:
            self.log.say(f"{done} {path}")

    def write_view(self, view: View, json_values: Callable[[], Any]) -> None:
        """Write what has a view but is no entry of the store to the file that was named, where one was."""
        if self._export_path is None:
            return
        from inferlab.views import results

        text = results.render_view(view, self._export_path.suffix.lower(), json_values)
        results.write(self._export_path, text)
        self.log.say(f"Saved to {self._export_path}")

    def say_saved(self, entry_id: str) -> None:
        """Say under which name a result was saved, if it was."""
        if entry_id and self.log.all_saved:
            self.log.say(f"Saved as {entry_id}: inferlab show {entry_id}")

    def exit_code(self, code: int) -> int:
        """The command's own code, or 6 where it is 0 and something was not saved."""
        return code or (0 if self.log.all_saved else NotSaved.exit_code)


def strict_code(check: OutputCheck) -> int:
    """The exit code under --strict: 5 where outputs do not match, which is said."""
    from inferlab.views.text import output_check

    if check.status == "match":
        return 0
    click.echo(f"inferlab: strict: the output check is {output_check(check)}", err=True)
    return 5


def strict_agreement(agreements: Iterable[Agreement]) -> int:
    """The exit code under --strict: 5 where tokens are not those of the reference, which is said."""
    from inferlab.views.generation import agreement_text

    for agreement in agreements:
        if agreement.status != "match":
            click.echo(f"inferlab: strict: the agreement is {agreement_text(agreement)}", err=True)
            return 5
    return 0


def measures(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that measures the options of saving and showing; it gets them as `work`."""
    no_save = click.option("--no-save", is_flag=True, help="Do not save the result in the store.")
    for option in (export_option, quiet_option, no_save, store_option, yes_option):
        function = option(function)
    return function
