"""Recipes as YAML, written for people and read strictly."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from inferlab.codec import MOST_YAML_BYTES, parse_yaml, read_text
from inferlab.errors import BadInput
from inferlab.optimizing.options import check_recipe
from inferlab.records.optimization import RECIPE_FORMAT, Recipe
from inferlab.units import shortened

_HEAD = "# A recipe of inferlab; repeat it with: inferlab optimize MODEL --recipe FILE.yaml -o out.onnx\n"
_LIKE = "See docs/optimize.md for what a recipe looks like."


def dump(recipe: Recipe) -> str:
    """The recipe as text; what is empty is left out, all else is told, defaults too."""
    return _HEAD + yaml.safe_dump(_plain(recipe), sort_keys=False, allow_unicode=True, width=1000)


def load(path: str | Path) -> Recipe:
    """Read a recipe; what is odd in it is refused in a sentence with the file, the key and what is allowed."""
    try:
        text = read_text(Path(path), MOST_YAML_BYTES)
    except OSError as error:
        raise BadInput(f"The recipe {path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise BadInput(f"The recipe {path} cannot be read: {error}. {_LIKE}") from error
    return loads(text, str(path))


def loads(text: str, name: str) -> Recipe:
    """Read a recipe from its text; `name` is what messages call it."""
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise BadInput(f"The recipe {name} cannot be read: {error}. {_LIKE}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{name} is not a recipe: it must hold keys with values. {_LIKE}")
    if content.get("format") != RECIPE_FORMAT:
        raise BadInput(
            f"{name} is not a recipe that this version reads: its format is {content.get('format')!r:.60}, not "
            f"'{RECIPE_FORMAT}'. {_LIKE}"
        )
    try:
        recipe: Recipe = _record(Recipe, content, "")
        check_recipe(recipe)
    except BadInput as error:
        raise BadInput(f"The recipe {name}: {error}") from error
    if recipe.digest and not recipe.inferlab:
        raise BadInput(f"The recipe {name} is cut off: its last line, the version of inferlab, is missing.")
    return recipe


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        found = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {name: one for name, one in found.items() if not _empty(one)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _record(kind: Any, content: Any, place: str) -> Any:
    """A record out of keys and values, each of them known and of its type."""
    if not isinstance(content, dict):
        raise BadInput(f"{place.rstrip('.')} takes keys with values, not {_shown(content)}.")
    hints = _hints(kind)
    for key in content:
        if key not in hints:
            key = shortened(str(key), 60)
            near = difflib.get_close_matches(key, hints, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Allowed are {', '.join(hints)}."
            raise BadInput(f"there is no key '{place}{key}'. {hint}")
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in content:
            raise BadInput(f"{place}{field.name} is missing.")
    return kind(**{key: _value(hints[key], value, f"{place}{key}") for key, value in content.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, place: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _value(inner, value, place)
    if is_dataclass(hint):
        return _record(hint, value, f"{place}.")
    if origin is tuple:
        return _listed(arguments, value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise BadInput(f"{place} takes names with values, not {_shown(value)}.")
        return {key: _value(arguments[1], one, f"{place}.{key}") for key, one in value.items()}
    return _scalar(hint, value, place)


def _listed(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{place} is a list, not {_shown(value)}.")
    if arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], one, f"{place}[{at}]") for at, one in enumerate(value))
    if len(value) != len(arguments):
        raise BadInput(f"{place} has {len(arguments)} values, not {len(value)}.")
    return tuple(
        _value(hint, one, f"{place}[{at}]") for at, (hint, one) in enumerate(zip(arguments, value, strict=True))
    )


def _scalar(hint: Any, value: Any, place: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise BadInput(f"{place} is one of {', '.join(get_args(hint))}, not {_shown(value)}.")
        return value
    words = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    fits = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    if not fits or (hint is float and not math.isfinite(value)):
        raise BadInput(f"{place} is {words[hint]}, not {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
