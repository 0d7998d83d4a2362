"""A command line with a button that copies it."""

from __future__ import annotations

import json

from nicegui import html, ui
from nicegui.element import Element

#: Copies what a JavaScript expression gives. In the browser itself, which may write to the clipboard only while it
#: handles a click; where the page comes from another machine without https, it keeps the newer way to itself.
COPY = """async () => {
  const text = %s;
  try { await navigator.clipboard.writeText(text); }
  catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  Quasar.Notify.create({ message: "Copied", timeout: 1500, position: "top" });
}"""


def command_line(text: str, name: str = "copy-command") -> Element:
    """A command as it is typed in a terminal, to be copied."""
    with html.div().classes("il-command") as whole:
        html.code(text)
        button = ui.button(icon="content_copy").props(f'flat dense round data-testid="{name}" aria-label="Copy"')
        with button:
            ui.tooltip("Copy")
    button.on("click", js_handler=COPY % json.dumps(text))
    element: Element = whole
    return element
