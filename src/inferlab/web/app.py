"""The web app, put together: security, errors, static files, the HTTP API, and the pages."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from inferlab.version import __version__
from inferlab.views.charts.frame import ACCENT
from inferlab.web import faults
from inferlab.web.connections import forget_unopened
from inferlab.web.security import DEFAULT_PORT, Guard, Settings, is_loopback

STATIC = Path(__file__).parent / "static"


def install() -> None:
    """Give all pages of this process the style sheet, the colours and the usual shape of their controls."""
    from nicegui import app, ui

    styles = f'<link rel="stylesheet" href="{address("inferlab.css")}">'
    ui.add_head_html(f'<script src="{address("page.js")}"></script>\n{styles}', shared=True)
    # Also for dialogs that come later: a script that is added to a page which is shown already does not run.
    ui.add_head_html(f'<script defer src="{address("upload.js")}"></script>', shared=True)
    app.config.vue_config_script += "inferlabTheme.show();\n"
    app.colors(
        # White on it, and it on white, are read well: more than 4.5 to 1.
        primary="#2368b5",
        secondary="#5d6774",
        accent=ACCENT,
        dark="#1c2126",
        dark_page="#14171b",
        positive="#2c8a57",
        negative="#b3261e",
        info=ACCENT,
        warning="#b7791f",
    )
    ui.button.default_props("unelevated no-caps")
    for field in (ui.input, ui.number, ui.select, ui.textarea):
        field.default_props("outlined dense")
    ui.tabs.default_props("no-caps align=left dense indicator-color=primary")


@cache
def address(name: str) -> str:
    """The address of a static file, with a mark of its content: it may be cached for ever."""
    mark = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={mark}"


class Static(StaticFiles):
    """Our static files: whoever asks with the mark of the content need not ask again."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, with how long it may be cached."""
        response = await super().get_response(path, scope)
        marked = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if marked else "no-cache"
        return response


#: Modules with `register(desk)`, which defines their pages.
PAGES: tuple[str, ...] = (
    "inferlab.web.pages.start",
    "inferlab.web.pages.new_project",
    "inferlab.web.pages.profiles",
    "inferlab.web.pages.optimization",
    "inferlab.web.pages.benchmarks",
    "inferlab.web.pages.trends",
    "inferlab.web.pages.project_settings",
)
#: Modules with `router(desk)`, which returns routes of the HTTP API.
ROUTERS: tuple[str, ...] = ("inferlab.web.api",)

API = "/api/v1"
# A page that lost its connection for longer is loaded again, and what was typed into it is gone.
_RECONNECT_S = 20.0


def create(settings: Settings) -> FastAPI:
    """The app of this process; NiceGUI knows only one, so it can be made only once."""
    import nicegui
    from nicegui import ui

    # The usual page for the documentation is loaded from another host.
    app = FastAPI(
        title="inferlab", version=__version__, openapi_url=f"{API}/openapi.json", docs_url=None, redoc_url=None
    )
    for name in ROUTERS:
        app.include_router(importlib.import_module(name).router(settings.desk), prefix=API)
    app.mount("/static", Static())
    install()
    for name in PAGES:
        importlib.import_module(name).register(settings.desk)
    for each in (app, nicegui.app):
        faults.handle(each)
    # On one machine compressing takes longer than sending.
    near = is_loopback(settings.host)
    ui.run_with(
        app,
        title="inferlab",
        favicon=STATIC / "favicon.svg",
        dark=None,
        language="en-GB",
        binding_refresh_interval=0.5,
        reconnect_timeout=_RECONNECT_S,
        gzip_middleware_factory=None if near else GZipMiddleware,
        tailwind=False,
        show_welcome_message=False,
    )
    nicegui.app.on_startup(forget_unopened)
    if settings.desk is not None:
        nicegui.app.on_startup(settings.desk.open)
        nicegui.app.on_shutdown(settings.desk.close)
    app.add_middleware(faults.Faults)
    # The last one added is the first one asked.
    app.add_middleware(
        Guard,
        host=settings.host,
        port=settings.port or DEFAULT_PORT,
        token=settings.token,
        most_upload_bytes=settings.most_upload_bytes,
    )
    return app
