"""The dialogs that add profiles to a project."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry, Project
from inferlab.web.desk import Desk
from inferlab.web.components.advice import on_pages
from inferlab.web.components.profile_form import ProfileFields
from inferlab.web.components.version_select import VersionSelect
from inferlab.workspace.forms import ProfileForm

_TOLD = {
    "performance": "Measure where the time goes, at the batch size and core count that you will deploy with.",
    "loss": "Measure what pruning each layer alone costs, on your data or on generated inputs.",
}


async def open_performance(desk: Desk, project: Project) -> None:
    """Ask for another performance profile."""
    await _open(desk, project, "performance")


async def open_loss(desk: Desk, project: Project) -> None:
    """Ask for another loss profile."""
    await _open(desk, project, "loss")


async def _open(desk: Desk, project: Project, part: str) -> None:
    # Not where the button is: the navigation is drawn anew when profiles come and go.
    client = ui.context.client
    profiles = await asyncio.to_thread(desk.workspace.profiles, project.id)
    name = _free_name(profiles, part)
    filled = ProfileForm(performance_name=name, loss_name=name, input_shapes=project.input_shapes)
    versions = await asyncio.to_thread(desk.workspace.versions.of_project, project.id)

    async def add() -> None:
        problem.set_text("")
        try:
            form = replace(fields.form(), version=select.chosen)
            await asyncio.to_thread(desk.workspace.add_profile, project.id, form)
        except InferlabError as error:
            problem.set_text(on_pages(str(error)))
            return
        await desk.watch.refresh()
        dialog.close()

    card = 'data-testid="profile-dialog"'
    with client, ui.dialog(value=True) as dialog, ui.card().classes("il-dialog").props(card):
        html.h2(f"New {part.capitalize()} Profile").classes("il-dialog-title")
        html.p(_TOLD[part]).classes("il-muted")
        select = VersionSelect(versions).props('data-testid="version"')
        select.set_visibility(bool(versions))
        fields = ProfileFields(desk, project.model, part == "performance", part == "loss", filled)
        problem = ui.label("").classes("il-form-error").props('role=alert data-testid="error"')
        dialog.on("input", lambda: problem.set_text(""), [])
        with html.div().classes("il-dialog-actions"):
            ui.button("Cancel", on_click=dialog.close).props('flat data-testid="cancel-dialog"')
            ui.button("Add", on_click=add).props('data-testid="add"')
    dialog.on("hide", dialog.delete)


def _free_name(profiles: list[Entry], part: str) -> str:
    """A name that no profile of this kind has yet."""
    found = [one.brief[part] for one in profiles if one.brief.get(part)]
    # What is foretold from the weights is called Approximated, whatever name it was made under.
    taken = {str(one["name"]) for one in found if one.get("method") != "approximated"}
    if "baseline" not in taken:
        return "baseline"
    return next(name for number in range(2, len(taken) + 3) if (name := f"profile {number}") not in taken)
