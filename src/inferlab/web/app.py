"""The web app, put together: security, errors, static files, the HTTP API, and the pages."""

from __future__ import annotations

import importlib

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from inferlab.version import __version__
from inferlab.web import faults, theme
from inferlab.web.security import Guard
from inferlab.web.settings import DEFAULT_PORT, Settings, is_loopback
from inferlab.web.unopened import forget_unopened

#: Modules with `register(desk)`, which defines their pages.
PAGES: tuple[str, ...] = (
    "inferlab.web.pages.start",
    "inferlab.web.pages.new_project",
    "inferlab.web.pages.performance",
    "inferlab.web.pages.loss",
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
    app.mount("/static", theme.Static())
    theme.install()
    for name in PAGES:
        importlib.import_module(name).register(settings.desk)
    for each in (app, nicegui.app):
        faults.handle(each)
    # On one machine compressing takes longer than sending.
    near = is_loopback(settings.host)
    ui.run_with(
        app,
        title="inferlab",
        favicon=theme.STATIC / "favicon.svg",
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
