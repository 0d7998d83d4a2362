"""A Sphinx directive, `http-api`, that lists every address of the HTTP API from its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from fastapi import FastAPI
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from inferlab.web import api


class HttpApi(SphinxDirective):
    """Sections by noun, an address each, then the fields of everything that is sent and answered."""

    def run(self) -> list[nodes.Node]:
        """Let the MyST parser read the page that was made."""
        lines = StringList(list(page(description())), source="OpenAPI")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def description() -> dict[str, Any]:
    """The OpenAPI description of all routes."""
    app = FastAPI()
    app.include_router(api.router(None))
    return app.openapi()


def page(openapi: dict[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    addresses: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            addresses.setdefault(route["tags"][0], []).append((method.upper(), path, route))
    for noun, routes in addresses.items():
        yield from (f"## {noun.capitalize()}", "")
        for method, path, route in routes:
            yield from _address(method, path, route)
    yield from ("## Fields", "")
    for name, schema in sorted(openapi["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _address(method: str, path: str, route: dict[str, Any]) -> Iterator[str]:
    yield from (f"### `{method} {path}`", "", f"{route['summary']}. {route.get('description', '')}".strip(), "")
    for parameter in route.get("parameters", ()):
        told = parameter.get("description", "")
        yield f"- `{parameter['name']}` ({parameter['in']}, {_type(parameter['schema'])}): {told}".rstrip(": ")
    if "requestBody" in route:
        content = route["requestBody"]["content"]
        yield f"- body: {', '.join(_type(one['schema']) for one in content.values() if 'schema' in one)}"
    for status, answer in route["responses"].items():
        shapes = [_type(one["schema"]) for one in answer.get("content", {}).values() if one.get("schema")]
        if status.startswith("2"):
            yield f"- {status}: {', '.join(shapes) or answer['description']}"
    yield ""


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"### {name}", "", schema.get("description", ""), "")
    if "properties" not in schema:
        yield from (f"`{_type(schema)}`", "")
        return
    yield from ("| field | type | meaning |", "|---|---|---|")
    needed = schema.get("required", ())
    for field, shape in schema["properties"].items():
        told = shape.get("description", "").replace("|", "\\|").replace("\n", " ")
        kind = _type(shape).replace("|", "\\|")
        yield f"| `{field}`{'' if field in needed else ' (optional)'} | {kind} | {told} |"
    yield ""


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        name = shape["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in shape or "oneOf" in shape:
        return " or ".join(_type(one) for one in shape.get("anyOf", shape.get("oneOf")))
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if "const" in shape:
        return f"`{shape['const']}`"
    if shape.get("type") == "array":
        return f"list of {_type(shape.get('items', {}))}"
    if isinstance(shape.get("additionalProperties"), dict):
        return f"object of {_type(shape['additionalProperties'])}"
    return str(shape.get("type", "any"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls it once."""
    app.add_directive("http-api", HttpApi)
    return {"parallel_read_safe": True}
