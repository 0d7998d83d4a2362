"""A server whose pages and requests fail in every way: `python -m tests.web.faulty_app PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from fastapi import APIRouter
from nicegui import ui

from inferlab.errors import BadInput
from inferlab.web import app, shell
from inferlab.web.faults import quiet_libraries
from inferlab.web.security import Settings


class Secret(Exception):
    """Its text must reach nobody but the file of details."""


def register(desk: Any) -> None:
    """The pages."""

    @ui.page("/")
    def fine() -> None:
        async def late() -> None:
            await asyncio.sleep(0)
            raise Secret("in a late event")

        with shell.frame("Fine <b>page</b>"):
            shell.titled("Fine", "<i>not markup</i>")
            ui.button("fault", on_click=lambda: _raise(Secret("in an event")))
            ui.button("late", on_click=late)
            ui.button("refused", on_click=lambda: _raise(BadInput("The batch size <b>0</b> is too small.")))

    @ui.page("/sync")
    def sync() -> None:
        raise Secret("in a page")

    @ui.page("/async")
    async def later() -> None:
        await asyncio.sleep(0)
        raise Secret("in an async page")

    @ui.page("/slow", response_timeout=0.1)
    async def slow() -> None:
        await asyncio.sleep(60)

    @ui.page("/refused")
    def refused() -> None:
        raise BadInput("There is no project <7>.")

    @ui.page("/number/{number}")
    def numbered(number: int) -> None:
        ui.label(str(number))


def router(desk: Any) -> APIRouter:
    """The requests."""
    routes = APIRouter()

    @routes.get("/fault")
    def fault() -> None:
        raise Secret("in the API")

    @routes.get("/refused")
    def refused() -> None:
        raise BadInput("There is no job 7.")

    @routes.get("/number/{number}")
    def numbered(number: int) -> int:
        return number

    return routes


def _raise(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    app.PAGES = app.ROUTERS = ("tests.web.faulty_app",)
    made = app.create(Settings(port=int(sys.argv[1])))
    quiet_libraries()
    uvicorn.run(made, port=int(sys.argv[1]), log_config=None)
