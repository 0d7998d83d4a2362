"""Answers that need no page: a refusal or a fault, in one sentence, as HTML or as JSON."""

from __future__ import annotations

import html
from urllib.parse import quote

from starlette.responses import HTMLResponse, JSONResponse, Response

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
    500: "This is a fault of inferlab itself. Its details were kept where inferlab was started.",
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
