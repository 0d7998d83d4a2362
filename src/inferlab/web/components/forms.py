"""Dialogs and forms: what asks for a job, its foot, and fields that several forms have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from nicegui import Client, ui
from nicegui.elements.mixins.value_element import ValueElement

from inferlab import machine
from inferlab.errors import BadInput, InferlabError
from inferlab.options import Flag, Option, Whole, Word, of_command
from inferlab.options.plan import PLAN
from inferlab.records import Model, Plan
from inferlab.records.generation import GenerativeModel
from inferlab.units import capitalized
from inferlab.web.desk import Changed, Desk
from inferlab.web.faults import LABELS, on_pages, sentence
from inferlab.web.shell import div, refilled, tag
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.requests import ONE_BY_ONE, has_sequence, own_batch_size, usual_shapes
from inferlab.workspace.versions import Version

R = TypeVar("R")


@contextmanager
def dialog(
    title: str, classes: str = "", client: Client | None = None, name: str = "", persistent: bool = False
) -> Iterator[ui.dialog]:
    """A dialog, open at once; `with` fills it. One that is persistent closes by its buttons only.

    It belongs to the page rather than to the part whose button opens it: that may be drawn again meanwhile.
    """
    content = (client or ui.context.client).content
    with (
        content,
        ui.dialog(value=True).props("persistent" if persistent else "") as opened,
        ui.card().classes(f"il-dialog {classes}").props(f'data-testid="{name}"' if name else ""),
    ):
        tag("h2", "il-dialog-title", title)
        yield opened
    opened.on("hide", opened.delete)


def close_button(opened: ui.dialog, name: str = "close") -> None:
    """The foot of a dialog that only shows something."""
    with div("il-dialog-actions"):
        ui.button("Close", on_click=opened.close).props(f'flat data-testid="{name}"')


class Foot:
    """The foot of a form: what it would do or what is wrong with it, and the button that does it.

    Made within the dialog; `run` does what was filled in, and the dialog closes when it succeeds. Why it did not
    is forgotten when something else is entered.
    """

    def __init__(
        self,
        dialog: ui.dialog,
        text: str,
        name: str,
        run: Callable[[], Awaitable[None]],
        color: str | None = "primary",
    ) -> None:
        self._dialog, self._run = dialog, run
        self._refused = False
        dialog.on("input", self._forget, [])
        self._estimate = ui.label("").classes("il-bench-estimate").props('data-testid="estimate"')
        self._error = ui.label("").classes("il-form-error").props('role=alert data-testid="error"')
        with div("il-dialog-actions"):
            ui.button("Cancel", on_click=dialog.close).props('flat data-testid="cancel-dialog"')
            self._go = ui.button(text, on_click=self.submit, color=color).props(f'data-testid="{name}"')

    def needs(self, field: ValueElement[Any], fits: Callable[[Any], bool] = bool) -> None:
        """Let the button be pressed only while the value of a field fits."""
        self._go.bind_enabled_from(field, "value", backward=fits)

    def tell(self, estimate: str, error: str) -> None:
        """Say what the form would do; with an error it cannot be sent."""
        self._estimate.set_text(estimate)
        self._error.set_text(on_pages(error))
        self._go.set_enabled(not error)

    def _forget(self) -> None:
        if self._refused:
            self._refused = False
            self._error.set_text("")

    async def submit(self) -> None:
        """Do it, as the button does."""
        self._error.set_text("")
        self._go.set_enabled(False)
        try:
            await self._run()
        except InferlabError as problem:
            self._refused = True
            self._error.set_text(sentence(problem))
            self._go.set_enabled(True)
        else:
            self._dialog.close()


class OptionForm:
    """Fields of options as they are declared, each made where it shall stand, and all read together."""

    def __init__(
        self, command: str, changed: Changed = lambda: None, declarations: Mapping[str, Option] = PLAN
    ) -> None:
        self._command, self._changed = command, changed
        options = of_command(declarations, command).items()
        self._options = {keyword: option for keyword, option in options if option.remote}
        #: By keyword.
        self.fields: dict[str, Any] = {}

    def number(self, keyword: str, value: float | None = None, props: str = "", label: str = "") -> ui.number:
        """A field for one number, which tells of a change when the user stops typing; empty is the default."""
        option = self._options[keyword]
        label = label or LABELS.get(keyword, option.title)
        field = ui.number(label, value=value, min=0, on_change=self._changed)
        field.props["placeholder"] = option.told_default(self._command)
        self.fields[keyword] = field
        name = keyword.replace("_", "-")
        return field.props(f'stack-label debounce=300 data-testid="{name}" {props}')

    def rest(self, laid_out: Sequence[str] = ()) -> None:
        """All options that have no field yet, folded away; of `laid_out` others have fields."""
        with ui.expansion("More options").classes("il-more-options").props('dense data-testid="more-options"'):
            for keyword in self._options:
                if keyword not in (*self.fields, *laid_out):
                    self.field(keyword)

    def field(self, keyword: str) -> None:
        """A field for an option as it is declared."""
        field = self._field(self._options[keyword])
        self.fields[keyword] = field.props(f'data-testid="option-{keyword}"')

    def _field(self, option: Option) -> ui.checkbox | ui.select | ui.input:
        label, default = option.title, option.default_of(self._command)
        if isinstance(option.kind, Flag):
            return ui.checkbox(label, value=default, on_change=self._changed).props("dense")
        field: ui.select | ui.input
        if isinstance(option.kind, Word) and option.kind.choices:
            field = ui.select(list(option.kind.choices), label=label, value=default, on_change=self._changed)
        else:
            field = ui.input(label, on_change=self._changed).props("stack-label debounce=300")
            field.props["placeholder"] = option.told_default(self._command)
        field.props["hint"] = option.help_of.get(self._command, option.help)
        return field

    def values(self) -> dict[str, Any]:
        """What was filled in, by keyword; refuses what cannot be read."""
        return {keyword: self._read(self._options[keyword], field.value) for keyword, field in self.fields.items()}

    def _read(self, option: Option, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = option.read(value.strip()) if value.strip() else None
            except ValueError as error:
                raise BadInput(f"{option.title}: {error}") from None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if isinstance(option.kind, Whole) and (value < 1 or value != int(value)):
                raise BadInput(f"The {option.label} is a whole number from 1, not {value:g}.")
            value = int(value) if isinstance(option.kind, Whole) else float(value)
            value = (value,) if option.swept else value
        return option.default_of(self._command) if value in (None, "") else value

    def cell(self, model: Model, plan: Plan = ONE_BY_ONE) -> None:
        """The core count, the batch size and, where the model leaves it open, the length of sequences."""
        most = len(machine.cores())
        self.number("num_cores", plan.num_cores[0] or machine.usable_cores(), f'suffix="of {most}"')
        self.number("batch_size", plan.batch_sizes[0] or own_batch_size(model))
        if has_sequence(model):
            self.number("sequence_length", plan.sequence_lengths[0])


def help_icon(text: str) -> None:
    """A sign whose words are shown to the pointer, to the keyboard, and told to who cannot see them."""
    with ui.icon("help_outline").props("tabindex=0 role=img") as icon:
        words = ui.tooltip(text)
    icon.props["aria-label"] = text
    # A page that scrolls to what has the focus would hide the words again.
    icon.on("focus", js_handler=f"() => setTimeout(() => getElement({words.id}).show(), 200)")
    icon.on("blur", js_handler=f"() => getElement({words.id}).hide()")


def shapes_field(model: Model, value: str, changed: Changed = lambda: None) -> ui.input:
    """A field for the shapes of a model's inputs, which says what they are where it is left empty."""
    usual = usual_shapes(model)
    hint = f"Empty: guessed, such as {usual}" if usual else "Needed: the model does not say enough to guess them"
    field = ui.input("Input shapes (optional)" if usual else "Input shapes", value=value, on_change=changed)
    field.props('stack-label debounce=300 data-testid="input-shapes"').classes("il-with-hint")
    # Names of inputs are foreign text, which may have quotes in it.
    field.props["hint"] = hint
    field.props["placeholder"] = usual or "[1,3,224,224] or name=[1,128],other=[1,128]"
    return field


_OPTION = """
<q-item v-bind="props.itemProps" :data-testid="'%s-' + props.opt.name">
  <q-item-section>
    <q-item-label>{{ props.opt.label }}</q-item-label>
    <q-item-label v-if="props.opt.caption" caption>{{ props.opt.caption }}</q-item-label>
  </q-item-section>
</q-item>
"""
_REASONS = {"gone": "its file is gone", "changed": "its file has changed"}


class ReasonSelect(ui.select):
    """A list whose options may have captions; those that cannot be chosen say why."""

    def __init__(
        self,
        name: str,
        label: str,
        titles: Mapping[str, str],
        value: str | None,
        refused: Mapping[str, str],
        captions: Mapping[str, str] | None = None,
    ) -> None:
        self._refused, self._captions = dict(refused), dict(captions or {})
        super().__init__(dict(titles), label=label, value=value)
        self.props('popup-content-class="il-options"').add_slot("option", _OPTION % name)

    def _update_options(self) -> None:
        super()._update_options()
        items: list[dict[str, Any]] = self._props["options"]
        for option, key in zip(items, self.options, strict=True):
            reason = self._refused.get(key, "")
            caption = reason or self._captions.get(key, "")
            option |= {"name": key or "original", "caption": caption, "disable": bool(reason)}


class EngineSelect(ReasonSelect):
    """Engines by their titles; its value is the name of one that can be chosen, or None where none can."""

    def __init__(
        self, choices: Sequence[EngineChoice] = (), label: str = "Engine", value: str | None = None
    ) -> None:
        super().__init__("engine", label, {}, None, {})
        self.offer(choices, value)

    def offer(self, choices: Sequence[EngineChoice], value: str | None = None) -> None:
        """Show other choices; the value stays where it can, else it is `value`, else the first that can be."""
        self._refused = {choice.name: choice.reason for choice in choices if choice.reason}
        possible = [choice.name for choice in choices if not choice.reason]
        chosen = next((name for name in (self.value, value, *possible) if name in possible), None)
        self.set_options({choice.name: choice.title for choice in choices}, value=chosen)


class VersionSelect(ReasonSelect):
    """Versions by their names, the original first; `chosen` is the id of one, or None for the model as it is."""

    def __init__(self, versions: Sequence[Version], value: str | None = None) -> None:
        names = {"": "Original", **{version.id: version.name for version in versions}}
        refused = {version.id: _REASONS[version.file] for version in versions if version.file != "there"}
        value = value if value in names else ""
        super().__init__("version-option", "Optimization version", names, value, refused)

    @property
    def chosen(self) -> str | None:
        """The id of the version that is chosen."""
        return str(self.value) if self.value else None


class EngineBoxes:
    """Engines to be ticked, one that can be chosen at once, by default the first; those that cannot say why."""

    def __init__(
        self, label: str, name: str, choices: Sequence[EngineChoice], changed: Changed, ticked: str = ""
    ) -> None:
        possible = [choice.name for choice in choices if not choice.reason]
        wanted = (ticked, ticked.partition("==")[0], *possible)
        first = next((engine for engine in wanted if engine in possible), None)
        self._boxes: dict[str, ui.checkbox] = {}
        with div("il-numbers", name="engines", role="group").props(f'aria-label="{label}"'):
            div("il-numbers-label", label)
            with div("il-checks"):
                for choice in choices:
                    box = ui.checkbox(choice.title, value=choice.name == first, on_change=changed)
                    box.props(f'dense data-testid="{name}-{choice.name}"').set_enabled(not choice.reason)
                    if choice.reason:
                        help_icon(capitalized(choice.reason))
                    else:
                        self._boxes[choice.name] = box

    @property
    def any_offered(self) -> bool:
        """Whether one of them can be chosen."""
        return bool(self._boxes)

    @property
    def values(self) -> tuple[str, ...]:
        """Those that are ticked."""
        return tuple(name for name, box in self._boxes.items() if box.value)


class NumberChips:
    """Made within the element that shall show it; `changed` is called when something else is chosen."""

    def __init__(
        self,
        label: str,
        name: str,
        offered: Sequence[int],
        value: int,
        most: int | None,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._name, self._most, self._changed = name, most, changed
        self._offered = sorted({*offered, value})
        self._usual = (self._offered, [value])
        self.values = [value]
        self._enabled = True
        with div("il-numbers", name=name, role="group").props(f'aria-label="{label}"'):
            div("il-numbers-label", label)
            self._row = div("il-numbers-row")
            with div("il-numbers-more"):
                self._multiple = ui.checkbox("Enable multiple", on_change=self._one_or_several).props(
                    f'dense data-testid="{name}-multiple"'
                )
            self._reason = ui.label("").classes("il-muted il-small")
        self._fill()

    def fix(self, values: Sequence[int], reason: str) -> None:
        """Show what cannot be chosen here, and why."""
        if self._enabled:
            self._usual = (self._offered, self.values)
        self._enabled, self.values, self._offered = False, list(values), sorted({*self._offered, *values})
        self._fill(reason)

    def free(self) -> None:
        """Let the user choose again, from what was chosen before."""
        if not self._enabled:
            self._enabled = True
            self._offered, self.values = self._usual
            self._fill()

    def _fill(self, reason: str = "") -> None:
        self._multiple.set_enabled(self._enabled)
        self._reason.set_text(reason)
        with refilled(self._row):
            for number in self._offered:
                chosen = number in self.values
                chip = tag("button", "il-choice", str(number), type="button")
                chip.classes("il-choice-on" if chosen else "")
                chip.props(f'aria-pressed="{str(chosen).lower()}" data-testid="{self._name}-{number}"')
                chip.props("" if self._enabled else "disabled")
                chip.on("click", partial(self._toggle, number), [])
            if self._enabled and (self._most is None or self._most > len(self._offered)):
                other = ui.input(placeholder="other").classes("il-choice-other")
                other.props(f'type=number min=1 data-testid="{self._name}-other"')
                other.on("keydown.enter", lambda: self._add(other.value), [])
                other.on("blur", lambda: self._add(other.value), [])

    async def _add(self, text: str | None) -> None:
        """Take a number that was typed in; what is none stays in the field."""
        if not (text or "").strip().isdigit():
            return
        number = int(str(text))
        if number < 1:
            return
        self._offered = sorted({*self._offered, number})
        if number not in self.values:
            await self._toggle(number)
        else:
            self._fill()

    async def _toggle(self, number: int) -> None:
        if not self._multiple.value:
            self.values = [number]
        elif number not in self.values:
            self.values = sorted([*self.values, number])
        elif len(self.values) > 1:
            self.values = [value for value in self.values if value != number]
        self._fill()
        await self._changed()

    async def _one_or_several(self) -> None:
        if not self._multiple.value and len(self.values) > 1:
            self.values = self.values[:1]
            self._fill()
            await self._changed()


async def engine_choices(desk: Desk, model: Model | GenerativeModel) -> list[EngineChoice]:
    """The engines for a model; asking them all takes some seconds the first time, which is said."""
    waiting = None
    if desk.workspace.engines.known is None:
        waiting = ui.notification("Checking which engines are available…", timeout=None, spinner=True)
    choices = await asyncio.to_thread(desk.workspace.engines.choices, model)
    if waiting is not None:
        waiting.dismiss()
    return choices


class RequestDialog(Generic[R]):
    """A dialog that asks for a job; it opens at once, and closes when `run` has done what was filled in.

    While it is filled in it says how long the job takes, or what is wrong with it.
    """

    def __init__(self, title: str, name: str, run: Callable[[R], Awaitable[None]], button: str = "Run") -> None:
        self._turn = 0
        with dialog(title, "il-bench-dialog", name=name, persistent=True) as self._dialog:
            self._fill()
            self._foot = Foot(self._dialog, button, button.lower(), lambda: run(self.form()))

    def form(self) -> R:
        """What was filled in; refuses what cannot be read."""
        raise NotImplementedError

    async def changed(self) -> None:
        """Show what follows from what is filled in: other fields, and how long it takes or what is wrong."""
        self._follow()
        self._turn += 1
        turn = self._turn
        try:
            estimate, error = await asyncio.to_thread(self._predicted, self.form()), ""
        except InferlabError as problem:
            estimate, error = "", str(problem)
        if turn == self._turn and not self._dialog.is_deleted:
            self._foot.tell(estimate, error)

    def _fill(self) -> None:
        """Make the fields."""
        raise NotImplementedError

    def _follow(self) -> None:
        """Show and disable what follows from other fields."""

    def _predicted(self, form: R) -> str:
        """How much there is to do, and about how long that takes; refuses what cannot be done."""
        raise NotImplementedError
