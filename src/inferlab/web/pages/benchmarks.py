"""The benchmarks of a project: cards newest first, what is being measured, and the dialog for more."""

from __future__ import annotations

import asyncio

from nicegui import html, ui

from inferlab.web import shell
from inferlab.web.components import card_items
from inferlab.web.components.benchmark_board import PAGE, Board
from inferlab.web.components.benchmark_dialog import open_dialog
from inferlab.web.components.card_actions import Deeds
from inferlab.web.components.card_faces import Shelf
from inferlab.web.desk import Desk
from inferlab.web.sections import project_page
from inferlab.web.settings import PAGE_TIMEOUT_S

_EMPTY = (
    "A benchmark measures how fast the model really runs: on an engine, at the core counts and batch sizes of "
    "your deployment, or on two engines in turns. What the command line measures of this model appears here too."
)


def register(desk: Desk) -> None:
    """Define the page."""
    shelf = Shelf(desk.workspace)

    @ui.page("/projects/{project_id}/benchmarks", response_timeout=PAGE_TIMEOUT_S)
    async def benchmarks(project_id: str) -> None:
        # Before the frame: what a page awaits later is sent to the browser after it, and painted later.
        listing = await asyncio.to_thread(card_items.read, desk.workspace, project_id, PAGE)
        async with project_page(desk, project_id, "benchmarks") as opened:
            project = opened.project

            async def add(against: str | None = None) -> None:
                # Not in the menu that was clicked: it is gone by then.
                with opened.frame.content:
                    await open_dialog(desk, project, deeds.shown, against)

            async def refresh() -> None:
                await board.refresh()

            deeds = Deeds(desk, refresh, add)
            with shell.titled("Benchmarks"):
                ui.button("Add Benchmark", icon="add", on_click=lambda: add()).props('data-testid="add-benchmark"')
            with html.div() as empty, shell.empty("Nothing was measured yet", _EMPTY):
                ui.button("Add Benchmark", on_click=lambda: add()).props("outline")
            board = Board(desk, project_id, listing, shelf, deeds.actions(), empty)
