"""Ask before something is lost."""

from __future__ import annotations

import sys

import click

from inferlab.errors import BadInput


def agree(question: str, yes: bool) -> None:
    """Ask on a terminal, unless the user agreed already; refuses where nobody can be asked or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput("Nothing was removed: there is no terminal to ask on. Agree to it with: --yes")
    if not click.confirm(question, err=True):
        raise BadInput("Nothing was removed.")
