"""Numbers that a form asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from inferlab.errors import BadInput


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


def whole(value: float | None, what: str) -> int | None:
    """A whole number from 1; none where the field was left empty, which stands for what is usual."""
    if value is None:
        return None
    if value < 1 or value != int(value):
        raise BadInput(f"The {what} is a whole number from 1, not {value:g}.")
    return int(value)
