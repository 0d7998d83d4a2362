"""An HTML report taken apart."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """A page taken apart: its own text and elements, scripts apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style" and data.strip():
            self.texts.append(data.strip())

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def all(self, tag: str) -> list[dict[str, str]]:
        return [given for name, given in self.elements if name == tag]


def own(text: str) -> str:
    """The page without Plotly's code."""
    return re.sub(r"<script>/\*\*.*?plotly\.js.*?</script>", "", text, flags=re.DOTALL)


def titles(text: str) -> list[str]:
    return re.findall(r"<h2 [^>]*>(.*?)</h2>", own(text))


def options(text: str, chart: str) -> list[list[str]]:
    """The values of a chart's selectors."""
    found = re.findall(rf'<select data-chart="{chart}">(.*?)</select>', text)
    return [re.findall(r'value="(.*?)"', one) for one in found]


def drawn(text: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data
