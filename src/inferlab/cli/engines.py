"""`inferlab engines`: which engines there are, what each can do here, and how to get those that are missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from inferlab.cli import unescaped
from inferlab.cli.command import Log, agree
from inferlab.units import one_line, plural

if TYPE_CHECKING:
    from inferlab.engines.environments import InstalledEnvironment
    from inferlab.engines.specs import EnvironmentSpec
    from inferlab.records import EngineInfo

# Version 1: the first.
JSON_FORMAT = 1

_UNUSED = "Remove releases that were not used for so many days; 0 for all."
_HEADINGS = ("Engine", "Version", "State", "Runs", "Can", "Environment")


_json_option = click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")


@click.group("engines", invoke_without_command=True)
@_json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the engines, what each can do here, and how to install those that are missing.

    A release is named as onnxruntime==1.22.1.
    """
    if context.invoked_subcommand is None:
        _show(as_json)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also releases that were installed, and sizes.")
@_json_option
def list_(everything: bool, as_json: bool) -> None:
    """List the engines and, with --all, their installed releases and the size of each environment."""
    _show(as_json, everything)


def _show(as_json: bool, everything: bool = False) -> None:
    from inferlab.engines import environments, registry

    engines = registry.list_engines(releases=everything)
    folders = environments.installed() if everything else []
    if as_json:
        click.echo(_json(engines, folders))
        return
    (_draw_table if sys.stdout.isatty() else _print_table)(engines)
    if everything:
        click.echo("".join(f"\n{line}" for line in _size_lines(folders)))


@command.command("install")
@click.argument("name")
@click.option("--python", metavar="PATH", help="The interpreter to make the environment with.")
@click.option("--yes", is_flag=True, help="Agree to the licence without being asked.")
@click.option("--reinstall", is_flag=True, help="Make the environment again, even if it is complete.")
def install(name: str, python: str | None, yes: bool, reinstall: bool) -> None:
    """Install an engine that needs an environment of its own, or a release such as onnxruntime==1.22.1."""
    from inferlab.engines import environments, registry
    from inferlab.engines.specs import spec_of

    registry.refuse_extra(name)
    spec = spec_of(name)
    if environments.interpreter_of(name) and not reinstall:
        click.echo(f"Engine '{spec.name}' {spec.version} is already installed in {spec.folder}.")
        return
    environments.refuse_elsewhere(name)
    if spec.licence:
        _agree_to_licence(spec, yes)
    environments.install(name, python, listener=Log(quiet=False), reinstall=reinstall)
    click.echo(f"Engine '{spec.name}' {spec.version} is installed in {spec.folder}.")


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove an engine's own environments, or that of a release such as onnxruntime==1.22.1."""
    from inferlab.engines import environments

    for folder in environments.remove(name):
        click.echo(f"Removed {folder}.")


@command.command("prune")
@click.option("--unused-for", type=float, default=30.0, show_default=True, metavar="DAYS", help=_UNUSED)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(unused_for: float, dry_run: bool, yes: bool) -> None:
    """Remove the environments of releases that were not used for a while."""
    from inferlab.engines import environments

    old = environments.unused_for(unused_for)
    if not old:
        click.echo(f"No release was unused for {unused_for:g} days.", err=True)
        return
    for line in _size_lines(old):
        click.echo(line, err=not dry_run)
    if dry_run:
        return
    agree(f"Remove {plural(len(old), 'environment')}?", yes)
    for environment in old:
        for folder in environments.remove(environment.engine):
            click.echo(f"Removed {folder}.")


def _size_lines(environments: list[InstalledEnvironment]) -> list[str]:
    """What each environment takes, and all of them together."""
    import time

    now, total = time.time(), sum(folder.size_bytes for folder in environments)
    lines = [
        f"{folder.engine}: {folder.size_bytes / 1e6:.0f} MB, "
        f"used {max(0.0, now - folder.last_used) / 86400:.0f} days ago"
        for folder in environments
    ]
    return [*lines, f"Environments: {total / 1e6:.0f} MB in all."]


def _agree_to_licence(spec: EnvironmentSpec, yes: bool) -> None:
    """Show the licence, and ask on a terminal unless the user has agreed already."""
    click.echo(f"{spec.name} {spec.version}: {spec.licence}", err=True)
    click.echo(spec.licence_summary, err=True)
    click.echo(f"It takes about {spec.size_bytes / 1e6:.0f} MB in {spec.folder}.", err=True)
    agree(
        "Do you agree to the licence?",
        yes,
        f"Installing '{spec.name}' needs your agreement to its licence, and there is no terminal to ask on. "
        "Agree to it with: --yes",
        f"Engine '{spec.name}' was not installed, because its licence was not agreed to.",
    )


def _json(engines: list[EngineInfo], environments: list[InstalledEnvironment]) -> str:
    import json
    from dataclasses import asdict

    content: dict[str, object] = {"format": JSON_FORMAT, "engines": [asdict(engine) for engine in engines]}
    if environments:
        content["environments"] = [
            {"engine": folder.engine, "folder": str(folder.folder), "size_bytes": folder.size_bytes}
            for folder in environments
        ]
    return json.dumps(content, indent=2)


def _cells(engine: EngineInfo) -> tuple[str, ...]:
    runs, can = ", ".join(engine.kinds), ", ".join(engine.capabilities)
    environment = engine.environment if engine.state == "ready" else ""
    return tuple(cell or "-" for cell in (engine.name, engine.version, engine.state, runs, can, environment))


def _troubles(engines: list[EngineInfo]) -> list[str]:
    """A line for each engine that cannot run: why, and what mends it."""
    return [
        f"{engine.name}: {engine.problem}." + (f" To fix it: {engine.remedy}" if engine.remedy else "")
        for engine in engines
        if engine.state != "ready"
    ]


def _print_table(engines: list[EngineInfo]) -> None:
    from inferlab.views.tables import aligned

    lines = aligned([_HEADINGS, *map(_cells, engines)], range(len(_HEADINGS)))
    click.echo("\n".join([*lines, *(["", *_troubles(engines)] if _troubles(engines) else [])]))


def _draw_table(engines: list[EngineInfo]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*_HEADINGS, box=None, header_style="bold", pad_edge=False)
    colours = {"ready": "green", "missing": "yellow", "broken": "red"}
    for engine in engines:
        cells = map(one_line, _cells(engine))
        table.add_row(*(Text(cell, colours[engine.state] if cell == engine.state else "") for cell in cells))
    console = Console(file=unescaped(sys.stdout), highlight=False)
    console.print(table)
    for line in _troubles(engines):
        console.print(Text(one_line(line)), soft_wrap=True)
