"""`inferlab completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from inferlab.cli import unescaped

_INSTALL = {
    "bash": 'eval "$(inferlab completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(inferlab completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "inferlab completion fish | source    # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\n\n".join(("To switch it on:", "\b\n" + "\n".join(_INSTALL.values()))))
@click.argument("shell", type=click.Choice(tuple(_INSTALL)))
def command(shell: str) -> None:
    """Print the script with which SHELL completes inferlab's commands and options."""
    completion = get_completion_class(shell)
    assert completion is not None
    group = click.get_current_context().find_root().command
    script = completion(group, {}, "inferlab", "_INFERLAB_COMPLETE").source()
    click.echo(script, file=unescaped(sys.stdout))
