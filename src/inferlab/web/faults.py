"""What becomes of an exception: a sentence for whoever asked, the details in a file, a line for the terminal.

Sentences are answered as JSON, as a page of their own, or on the page that is open, in the words of the pages.
"""

from __future__ import annotations

import asyncio
import html
import logging
import re
import sys
import time
import traceback
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferlab.errors import BadInput, Conflict, InferlabError, NotSaved, NotThere, TooLarge, TooMany, keep
from inferlab.options.optimization import PROFILE
from inferlab.web.connections import note_answer

FAULT = "That did not work: an internal error of inferlab. Its details were saved where inferlab was started."
# What ends a request or a task without anything being wrong, or is said to the user elsewhere.
_EXPECTED = (asyncio.CancelledError, ClientDisconnect, InferlabError, HTTPException)
# A fault that returns with every tick of a timer is kept once in a while only.
_SILENT_S = 60.0
# The first that fits; what is none of these is a fault of ours.
_STATUSES: tuple[tuple[type[InferlabError], int], ...] = (
    (NotThere, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (TooMany, 429),
    (NotSaved, 503),
    (BadInput, 400),
)
_STARTS = ("http.response.start", "websocket.accept", "websocket.close")
_LATE = "inferlab did not make this page in time. Load it again."
_OURS = Path(__file__).parents[1]
_kept_at_s: dict[tuple[str, str, int], float] = {}


def sentence(error: Exception) -> str:
    """What a user of a page is told of an exception: our own errors speak for themselves, of others nothing is."""
    return on_pages(str(error)) if isinstance(error, InferlabError) else FAULT


def report(error: BaseException) -> None:
    """Keep the details of a fault and say on the terminal, in one line, where."""
    if isinstance(error, _EXPECTED):
        return
    places = traceback.extract_tb(error.__traceback__)
    where = (places[-1].filename, places[-1].lineno or 0) if places else ("", 0)
    key, now_s = (type(error).__name__, *where), time.monotonic()
    if now_s - _kept_at_s.get(key, -_SILENT_S) < _SILENT_S:
        return
    _kept_at_s[key] = now_s
    if _is_malformed_message(places):
        _say(f"a message on the page's connection was not valid and was ignored ({type(error).__name__}).")
        return
    _say(f"internal error ({type(error).__name__}: {error}). {keep(error)}")


def _is_malformed_message(places: traceback.StackSummary) -> bool:
    """Whether what a client sent on the page's WebSocket broke the libraries that read it, and no code of ours."""
    files = [Path(place.filename) for place in places]
    # Around them are our own checks of who may speak; what matters is what they called.
    read_at = next(
        (at for at, file in enumerate(files) if file.parent.name in ("engineio", "socketio")), len(files)
    )
    return read_at < len(files) and not any(file.is_relative_to(_OURS) for file in files[read_at:])


def _say(text: str) -> None:
    # Foreign text must neither take several lines nor steer the terminal.
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    sys.stderr.write(f"inferlab: {line}\n")
    sys.stderr.flush()


class Faults:
    """ASGI middleware: whatever the app raises becomes an answer of one sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app answer, or answer for it."""
        started = replaced = False

        async def watched(message: Message) -> None:
            nonlocal started, replaced
            if message["type"] == "http.response.start" and _is_foreign_fault(message):
                replaced = True
                await answer(scope["path"], 503, _LATE)(scope, receive, send)
            started = started or message["type"] in _STARTS
            if started:
                note_answer(scope)
            if not replaced:
                await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if scope["type"] not in ("http", "websocket"):
                raise
            report(error)
            if scope["type"] == "websocket" and not started:
                await send({"type": "websocket.close", "code": 1011, "reason": "a fault"})
            elif not started:
                await _answered(scope["path"], error)(scope, receive, send)


def _is_foreign_fault(start: Message) -> bool:
    """Whether this is NiceGUI's own page for a page that was not ready in time; it speaks to programmers."""
    return start["status"] >= 500 and "x-nicegui-content" in MutableHeaders(scope=start)


def _answered(path: str, error: Exception) -> Response:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return answer(path, status, str(error) if isinstance(error, InferlabError) else "")


def _wrong(error: RequestValidationError) -> str:
    """What of a request is not as it should be; not what was sent, which may be long, secret or no text."""
    sentences = []
    for fault in error.errors():
        place = ".".join(str(part) for part in fault["loc"] if part not in ("body", "query", "path"))
        sentences.append(f"{place or 'the body'}: {fault['msg']}")
    return f"{'; '.join(sentences[:5])}."


def handle(app: FastAPI) -> None:
    """Let an app answer errors in our manner; NiceGUI's own app has pages that show what was raised."""

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # Starlette's words for a status say nothing that ours do not.
        ours = error.detail if error.detail != _phrase(error.status_code) else ""
        response = answer(request.url.path, error.status_code, str(ours))
        response.headers.update(error.headers or {})
        return response

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        # pydantic takes our errors for its own where they come out of one of its checks.
        causes = [fault.get("ctx", {}).get("error") for fault in error.errors()]
        if ours := next((cause for cause in causes if isinstance(cause, InferlabError)), None):
            return _answered(request.url.path, ours)
        if is_api(request.url.path):
            return answer(request.url.path, 422, _wrong(error))
        return answer(request.url.path, 404)

    async def on_other(request: Request, error: Exception) -> Response:
        report(error)
        return _answered(request.url.path, error)

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(404, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(InferlabError, on_other)
    app.add_exception_handler(Exception, on_other)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


class OneLine(logging.Handler):
    """Libraries' errors, as one line on the terminal with the details in a file."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it only tells that work was cut short when the server stopped."""
        error = record.exc_info[1] if record.exc_info else None
        error = error or (record.msg if isinstance(record.msg, BaseException) else None)
        if error is not None:
            report(error)
        elif not record.getMessage().startswith("Cancel "):
            _say(record.getMessage())


def quiet_libraries() -> None:
    """Let libraries speak through `OneLine` only; those of the WebSocket print tracebacks by themselves."""
    logging.getLogger().addHandler(OneLine())
    for name in ("engineio.server", "socketio.server"):
        logging.getLogger(name).handlers.clear()


# Answers that need no page.

API = "/api"

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} – inferlab</title>
<style>
body {{ margin: 0; min-height: 100vh; display: grid; place-items: center;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  background: light-dark(#f5f6f8, #14171b); color: light-dark(#1d232a, #e3e7ec); }}
main {{ max-width: 34rem; padding: 2rem; }}
h1 {{ font-size: 1.25rem; font-weight: 600; margin: 0 0 .5rem; }}
p {{ margin: 0 0 1.25rem; color: light-dark(#5d6774, #9aa4b0); overflow-wrap: anywhere; }}
a {{ color: light-dark(#2368b5, #6cabee); }}
</style></head><body><main><h1>{title}</h1><p>{text}</p>{onward}</main></body></html>"""

_TITLES = {
    401: "A token is needed",
    403: "Refused",
    404: "Not found",
    405: "Refused",
    413: "Too large",
    421: "Refused",
    429: "Too many at once",
    431: "Too large",
    500: "Something went wrong",
}
_SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take such requests.",
    500: "This is an internal error of inferlab. Its details were saved where inferlab was started.",
}


def is_api(path: str) -> bool:
    """Whether a program asks rather than a person."""
    return path == API or path.startswith(f"{API}/")


def answer(path: str, status: int, sentence: str = "") -> Response:
    """One sentence to whoever asked for a path; without one, what the status says."""
    text = sentence or _SENTENCES.get(status, "This request cannot be answered.")
    # What is quoted in it may hold bytes that are no characters.
    text = text.encode("utf-8", "backslashreplace").decode()
    headers = {"Cache-Control": "no-store"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 429:
        headers["Retry-After"] = "60"
    if is_api(path):
        return JSONResponse({"detail": text}, status, headers)
    title = _TITLES.get(status, "This did not work")
    onward = '<a href="/">To the projects</a>' if status in (404, 500) else ""
    page = _PAGE.format(title=html.escape(title), text=html.escape(text), onward=onward)
    return HTMLResponse(page, status, headers)


def attachment(name: str) -> dict[str, str]:
    """The header of a file to be saved under a name; headers take Latin-1 only, so other letters are encoded."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in name)
    plain = plain.replace("\\", "_").replace('"', "_")
    encoded = quote(name.encode("utf-8", "replace"), safe="")
    more = "" if plain == name else f"; filename*=UTF-8''{encoded}"
    return {"Content-Disposition": f'attachment; filename="{plain}"{more}'}


# Sentences were written for the command line.

_FIELDS = (
    (r'Give its shape, for example: -shapes "(.+?)"', r"Give its shape in the field Input shapes, for example \1"),
    (
        r"other shapes are given with -shapes or --sequence_length",
        "give other shapes in the field Input shapes",
    ),
    (r"; --timeout sets how long to wait", ""),
    (r"Install it with: inferlab engines install \S+", "Install it under Engines on the start page."),
    (r"See: inferlab engines", "See Engines on the start page."),
    (r"See: inferlab history", "See Benchmarks."),
    (r"Measure it again: inferlab rerun( \S+)?", "Choose Re-run in its menu."),
    (r"Give an ONNX file; inferlab export writes one", "Make a project of its ONNX file"),
    (r"leave out --no-performance and --no-loss", "switch both on"),
    (r"Give a larger --budget", "Allow more loss"),
    (r"Name that file with --data", "Choose that file as the data file"),
)
#: What the field of an option is called on pages, by its keyword, where that is not its title.
LABELS = {
    "time": "Time (s)",
    "num_cores": "CPU cores",
    "num_streams": "Streams",
    "rate": "Requests per second",
    "data": "Data file",
    "levels": "Times of pruned copies",
    "int8": "INT8 copy",
    "roofline": "Roofline",
}
_OPTIONS = {
    flag: LABELS.get(keyword, PROFILE[keyword].title)
    for keyword in ("input_shapes", "sequence_length", "data", "int8", "levels", "roofline", "rate")
    for flag in PROFILE[keyword].flags
}
_OPTION = re.compile("|".join(rf"(?<![\w-]){re.escape(option)}(?![\w-])" for option in _OPTIONS))


def on_pages(text: str) -> str:
    """A sentence with the fields and buttons of the pages in place of options and commands."""
    for pattern, words in _FIELDS:
        text = re.sub(pattern, words, text)
    return _OPTION.sub(lambda option: _OPTIONS[option[0]], text)
