"""Fields that several forms have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from inferlab.errors import BadInput
from inferlab.records import Model
from inferlab.workspace.forms import usual_shapes


def number(
    label: str,
    name: str,
    changed: Callable[[], Awaitable[None] | None],
    value: float | None = None,
    props: str = "",
) -> ui.number:
    """A field for a number, which tells of a change when the user has stopped typing."""
    field = ui.number(label, value=value, min=0, on_change=changed)
    return field.props(f'stack-label debounce=300 {props} data-testid="{name}"')


def help_icon(text: str) -> None:
    """A sign whose words are shown to the pointer, to the keyboard, and told to who cannot see them."""
    with ui.icon("help_outline").props("tabindex=0 role=img") as icon:
        words = ui.tooltip(text)
    icon.props["aria-label"] = text
    icon.on("focus", js_handler=f"() => getElement({words.id}).show()")
    icon.on("blur", js_handler=f"() => getElement({words.id}).hide()")


def shapes_field(
    model: Model, value: str, changed: Callable[[], Awaitable[None] | None] = lambda: None
) -> ui.input:
    """A field for the shapes of a model's inputs, which says what they are where it is left empty."""
    usual = usual_shapes(model)
    told = f"Empty: guessed, such as {usual}" if usual else "Needed: the model does not say enough to guess them"
    field = ui.input("Input Shapes (optional)" if usual else "Input Shapes", value=value, on_change=changed)
    field.props('stack-label debounce=300 data-testid="input-shapes"').classes("il-with-hint")
    # Names of inputs are foreign text, which may have quotes in it.
    field.props["hint"] = told
    field.props["placeholder"] = usual or "[1,3,224,224] or name=[1,128],other=[1,128]"
    return field


def whole(value: float | None, what: str) -> int | None:
    """A whole number from 1; none where the field was left empty, which stands for what is usual."""
    if value is None:
        return None
    if value < 1 or value != int(value):
        raise BadInput(f"The {what} is a whole number from 1, not {value:g}.")
    return int(value)
