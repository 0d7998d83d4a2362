"""What commands share: declared options, what they print and ask, the store, the file and the exit code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from inferlab.cli import unescaped
from inferlab.errors import BadInput, InferlabError, NotSaved
from inferlab.options import GROUPS, Flag, Option, Word, of_command
from inferlab.units import one_line, plural, shortened

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.records import Event, Outcome, OutputCheck
    from inferlab.records.generation import Agreement, GenerationOutcome, GenerationPlan
    from inferlab.store.store import Store
    from inferlab.views.results import Result, View
    from inferlab.views.tables import Block

MODELS = """MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program
(.pt2), a TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""
MODELS_OF_BOTH_KINDS = f"""{MODELS} Or one that generates tokens: a GGUF file, a Hugging Face folder, ONNX with
past and present, demo:llama, demo:bart; see inferlab generate."""
_BASELINE = "The cell that speed-ups refer to.  [default: the first]  May be repeated."
_LISTS = ("benchmark", "recommend", "generate")
_BAR = 24

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
            names = [
                name for name in ("store_url", "no_save", "quiet", "export_path", "yes") if name in ctx.params
            ]
            work = Work(
                **{name: ctx.params.pop(name) for name in names}, labels=ctx.params.pop("label", None) or ()
            )
            work.need_engines([*(ctx.params.get("engine") or ()), *(ctx.params.get("measure") or ())])
            ctx.params["work"] = work
        return left


class DeclaredValue(click.ParamType[Any]):
    """The record's value of an option, of text; what is no text is one already."""

    def __init__(self, option: Option) -> None:
        self.option, self.name = option, option.kind.metavar

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
        default_words = option.told_default(command)
        text = option.help_of.get(command, option.help)
        if option.flags[0].startswith("--no-"):
            text = f"Do not {text[0].lower()}{text[1:]}"
        if default_words:
            text += f"  [default: {default_words}]"
        settings: dict[str, Any] = {"help": text, "default": default}
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
        values = super().process_value(ctx, value)
        if not self.multiple:
            return values
        try:
            return self.declared.read(values) if values else self.declared.default
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


def given_flags(ctx: click.Context) -> dict[str, str]:
    """The options that the command line gives, by parameter: each as its longest flag."""
    return {
        str(param.name): max(param.opts, key=len)
        for param in ctx.command.params
        if (source := ctx.get_parameter_source(str(param.name))) and source.name == "COMMANDLINE"
    }


def given_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the command line gives, by keyword."""
    flags = given_flags(click.get_current_context())
    return {name: value for name, value in values.items() if name in flags}


class WritableFile(click.Path):
    """A path to which a file can be written: refused before anything is measured, not after."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check it."""
        from inferlab.views.results import check_writable

        path: Any = super().convert(value, param, ctx)
        check_writable(path)
        return path


_STORE = "A path or postgresql:// URL.  [default: $INFERLAB_STORE, or your own store]"
_EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."
_YES = "Install releases of engines that are named, such as onnxruntime==1.22.1, without asking."

store_option = click.option("--store", "store_url", metavar="URL", help=_STORE)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Only the result and errors.")
export_option = click.option("-x", "--export_path", type=WritableFile(), help=_EXPORT)
yes_option = click.option("--yes", is_flag=True, help=_YES)
strict_option = click.option(
    "--strict", is_flag=True, help="Outputs that do not match are a failure (exit code 5)."
)
baseline_option = click.option("--baseline", multiple=True, metavar="OPTION=VALUE", help=_BASELINE)


def _read_plan(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from inferlab.cli.plan_file import read_plan

        ctx.default_map = {**(ctx.default_map or {}), **read_plan(path, ctx.command.params)}


plan_option = click.option(
    "--plan",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_plan,
    metavar="FILE.yaml",
    help="Options from a file, by their long names; those given here take precedence.",
)


def measures(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that measures the options of saving and showing; it gets them as `work`."""
    no_save = click.option("--no-save", is_flag=True, help="Do not save the result in the store.")
    for option in (export_option, quiet_option, no_save, store_option, yes_option):
        function = option(function)
    return function


def resumed(ctx: click.Context, model: str | None, resume: str | None, example: str, *beside: str) -> bool:
    """Whether a sweep is resumed: all that it measures is fixed then, so other options than these are refused."""
    if resume is None:
        if model is None:
            raise BadInput(f"No model was named. Try: inferlab {example}")
        return False
    beside = ("resume", "quiet", "strict", "export_path", "store_url", "no_save", *beside)
    for name in (name for name in given_flags(ctx) if name not in beside):
        raise BadInput(f"--resume continues what was planned, so {name} cannot be given with it.")
    return True


def token_request(
    command: str, model: str, slo: str | None, values: Mapping[str, Any]
) -> tuple[GenerationPlan, dict[str, Any]] | None:
    """The plan and all values of a search that is about generating tokens; None where it is about other models."""
    from inferlab.lab.lab import concerns_tokens
    from inferlab.options.generation import GENERATION, generation_values, make_generation_plan

    given = given_values(values)
    if not concerns_tokens([model], given, slo or ""):
        return None
    values = generation_values(command, {**given, "slo": GENERATION["slo"].check(slo)})
    return make_generation_plan(model, values), values


@contextmanager
def opened(store_url: str | None, make: bool = False) -> Iterator[Store]:
    """The store that a command reads or changes; one that is not there is made only where that is wanted."""
    from inferlab.store import open_store

    with open_store(store_url, make) as store:
        yield store


def show_blocks(blocks: Iterable[Block], below: bool = False) -> None:
    """Print a result, perhaps below another: drawn by rich on a terminal, plain text elsewhere."""
    from inferlab.views import tables

    if below:
        click.echo()
    if not sys.stdout.isatty():
        for line in tables.text(blocks):
            click.echo(line)
        return
    from rich.console import Console

    sys.stdout.flush()
    tables.draw(blocks, Console(file=unescaped(sys.stdout), highlight=False))


def show_plan(labels: Sequence[str], time_s: float, rest: str) -> int:
    """Print the cells that would be measured, and how long that takes at least."""
    for number, label in enumerate(labels, 1):
        click.echo(f"{number}. {label}")
    click.echo(f"{plural(len(labels), 'cell')}, about {len(labels) * time_s / 60:.1f} minutes, plus {rest}.")
    return 0


def agree(
    question: str,
    yes: bool,
    unattended: InferlabError
    | str = "Nothing was removed: there is no terminal to ask on. Agree to it with: --yes",
    refused: InferlabError | str = "Nothing was removed.",
    default: bool = False,
) -> None:
    """Ask on a terminal, unless the user agreed already; raises where nobody can be asked or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(unattended) if isinstance(unattended, str) else unattended
    if not click.confirm(question, err=True, default=default):
        raise BadInput(refused) if isinstance(refused, str) else refused


def sweep_code(outcomes: Sequence[Outcome] | Sequence[GenerationOutcome]) -> int:
    """The exit code of a sweep; why it is not 0 is said."""
    states, first = [outcome.status for outcome in outcomes], outcomes[0]
    code, problem = 0, ""
    if len(states) == 1 and first.failure:
        code, problem = 2 if first.failure.code == "refused" else 3, first.failure.message
    elif "cancelled" in states or "pending" in states:
        code, problem = 130, "" if first.runs else "interrupted before anything was measured"
        if len(states) > 1:
            ended = states.count("done") + states.count("failed")
            problem = f"interrupted after {ended} of {len(states)} cells"
    elif "failed" in states:
        code, problem = 3, f"{states.count('failed')} of {len(states)} cells failed"
    if problem:
        click.echo(f"inferlab: {problem}", err=True)
    return code


def strict_code(checks: Iterable[OutputCheck | Agreement]) -> int:
    """The exit code under --strict: 5 where outputs or tokens are not those of the reference, which is said."""
    for check in checks:
        if check.status != "match":
            from inferlab.records import OutputCheck
            from inferlab.views import text

            what = (
                f"output check is {text.output_check(check)}"
                if isinstance(check, OutputCheck)
                else f"agreement is {text.agreement_text(check)}"
            )
            click.echo(f"inferlab: strict: the {what}", err=True)
            return 5
    return 0


class Log:
    """A listener. One plain line, rewritten about once a second: anything richer would cost the measured cores."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self._open_line = False
        self._last = ""
        self._unsaved: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_line()

    def __call__(self, event: Event) -> None:
        """Show one event: a line when something new begins, then how far it is."""
        if event.code == "unsaved":
            self.warn_unsaved(f"the result is not saved: {event.data['reason']}")
            return
        if self._quiet:
            return
        if event.fraction is not None:
            if self.live:
                self._rewrite(event)
            return
        from inferlab.views.text import event as prose  # late: --help must not wait for all that it needs

        line = prose(event)
        if line and line != self._last:
            self._last = line
            self.say(line)

    def say(self, line: str) -> None:
        """Write one line, unless quiet."""
        if not self._quiet:
            self._end_line()
            click.echo(line, err=True)

    @property
    def all_saved(self) -> bool:
        """Whether nothing that was to be saved is lost so far."""
        return not self._unsaved

    def warn_unsaved(self, reason: str) -> None:
        """Say, each reason once and also when quiet, that something was to be saved and is not."""
        if reason not in self._unsaved:
            self._unsaved.append(reason)
            self._end_line()
            click.echo(f"inferlab: {reason}", err=True)

    def _rewrite(self, event: Event) -> None:
        filled = round(_BAR * (event.fraction or 0.0))
        stage = event.code
        if "nodes" in event.data:
            from inferlab.views.text import progress

            # What does not fit into the line would scroll the screen with each rewriting.
            stage = shortened(one_line(progress(event)), max(10, shutil.get_terminal_size().columns - _BAR - 9))
        _style(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {event.fraction:4.0%} {stage}\033[K")
        self._open_line = True

    def _end_line(self) -> None:
        if self._open_line:
            _style("\r\033[K")
            self._open_line = False


def _style(text: str) -> None:
    stream = unescaped(sys.stderr)
    stream.write(text)
    stream.flush()


class Work:
    """One measurement of a command: where it is saved, what is said on the way, and how it ends."""

    def __init__(
        self,
        store_url: str | None,
        quiet: bool,
        export_path: Path | None,
        yes: bool,
        no_save: bool = False,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.log = Log(quiet)
        self._yes, self._labels = yes, labels
        self._store_url, self._no_save, self._export_path = store_url, no_save, export_path

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
        install = f"inferlab engines install {missing[0]}"
        agree(
            f"Install {', '.join(missing)}? That takes about {size_mb:.0f} MB.",
            self._yes,
            registry.NotInstalled(missing[0], f"{install}, or give --yes to install it on first use"),
            registry.NotInstalled(missing[0], install),
            default=True,
        )
        for name in missing:
            environments.install(name, listener=self.log)

    def agree_to_releases(self, engine: str, count: int, versions: Sequence[str]) -> None:
        """Ask once whether so many of these releases may be installed, where any is missing."""
        from inferlab.engines import environments
        from inferlab.engines.specs import spec_of

        names = [f"{engine}=={version}" for version in versions]
        missing = [name for name in names if not environments.interpreter_of(name)]
        if not missing:
            return
        count = min(count, len(missing))
        size_mb = count * spec_of(missing[0]).size_bytes / 1e6
        refusal = (
            f"Up to {count} releases of {engine} are needed that are not installed, such as {missing[0]}. Install "
            "those that turn out to be needed with: --yes"
        )
        agree(f"Install up to {count} releases of {engine}, about {size_mb:.0f} MB?", self._yes, refusal, refusal)
        self._yes = True

    @contextmanager
    def lab(self) -> Iterator[Lab]:
        """The laboratory, on the store that results are saved in."""
        from inferlab.lab.lab import open_lab

        with self.log, open_lab(False if self._no_save else self._store_url, self._labels, self.log) as lab:
            yield lab

    def say_resume(self, entry_id: str) -> None:
        """Say how to go on with a generation, or what is made of some, that was cut off."""
        if entry_id:
            self.log.say(f"Next: inferlab generate --resume {entry_id}")

    def show(self, record: Result, blocks: Iterable[Block] | None = None) -> None:
        """Print a result, and write it to the file that was named."""
        from inferlab.views import results

        show_blocks(results.view_of(record).blocks() if blocks is None else blocks)
        if self._export_path:
            self.write(self._export_path, record)

    def write(self, path: Path, record: Result, ending: str = "", verb: str = "Saved to") -> None:
        """Write a result that was measured; where that fails it is said, and the rest goes on."""
        from inferlab.views import results

        try:
            results.write(path, results.render(record, ending or path.suffix.lower()))
        except NotSaved as error:
            self.log.warn_unsaved(str(error))
        else:
            self.log.say(f"{verb} {path}")

    def write_view(self, view: View) -> None:
        """Write what has a view but is no entry of the store to the file that was named, where one was."""
        if self._export_path:
            from inferlab.views import results

            results.write(self._export_path, results.render_view(view, self._export_path.suffix.lower()))
            self.log.say(f"Saved to {self._export_path}")

    def say_saved(self, entry_id: str) -> None:
        """Say under which name a result was saved, if it was."""
        if entry_id and self.log.all_saved:
            self.log.say(f"Saved as {entry_id}: inferlab show {entry_id}")

    def exit_code(self, code: int) -> int:
        """The command's own code, or 6 where it is 0 and something was not saved."""
        return code or (0 if self.log.all_saved else NotSaved.exit_code)
