"""Keyword arguments as a plan: the options of the command line by their long names, checked one by one."""

from __future__ import annotations

import difflib
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inferlab.errors import BadInput
from inferlab.optimizing.recipe import Options
from inferlab.records import Plan

Check = Callable[[str, Any], Any]


def _refuse(name: str, wanted: str, value: Any) -> BadInput:
    return BadInput(f"{name} is {wanted}, not {value!r} ({type(value).__name__}).")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise _refuse(name, "a whole number", value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise _refuse(name, "a number", value)


def _word(name: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise _refuse(name, "a word", value)


def _path(name: str, value: Any) -> str:
    if isinstance(value, str | os.PathLike) and (path := os.fspath(value)) and isinstance(path, str):
        return path
    raise _refuse(name, "a path", value)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _refuse(name, "True or False", value)


def _options(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Engine options; engines read 1 and 0 for yes and no."""
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        raise _refuse(name, "a dictionary such as {'spinning': 0}", value)
    for key, one in value.items():
        if not isinstance(one, str | numbers.Real):
            raise _refuse(f"{name}[{key!r}]", "text or a number", one)
    return tuple(sorted((key, str(int(one) if isinstance(one, bool) else one)) for key, one in value.items()))


def _maybe(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _most(name: str, value: Any) -> int | None:
    """A number, or all that there are."""
    return None if value is None or value == "max" else _whole(name, value)


def _above(check: Check, least: float, open_end: bool = False) -> Check:
    def checked(name: str, value: Any) -> Any:
        found = check(name, value)
        if found < least or (open_end and found == least):
            raise BadInput(f"{name} must be {'more than' if open_end else 'at least'} {least:g}, not {found:g}.")
        return found

    return checked


def _each(check: Check) -> Check:
    """One value or several: a plan is the product of them all."""

    def checked(name: str, value: Any) -> tuple[Any, ...]:
        several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        found = tuple(dict.fromkeys(check(name, one) for one in (value if several else (value,))))
        if not found:
            raise BadInput(f"{name} is an empty list: give at least one value.")
        return found

    return checked


def shapes(name: str, value: Any) -> dict[str, tuple[int, ...]] | list[tuple[int, ...]]:
    """Shapes by name, or in the order of the inputs; a single list of numbers is the shape of the only input."""
    wanted = "text, a list such as [[1, 3, 224, 224]], or a dictionary such as {'x': [1, 3, 224, 224]}"

    def shape(one: Any) -> tuple[int, ...]:
        if isinstance(one, str | bytes | Mapping) or not isinstance(one, Iterable):
            raise _refuse(name, wanted, value)
        return tuple(_above(_whole, 1)(name, size) for size in one)

    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and key for key in value):
            raise _refuse(name, wanted, value)
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise _refuse(name, wanted, value)
    several = list(value)
    if several and all(isinstance(one, numbers.Integral) for one in several):
        several = [several]
    if not several:
        raise BadInput(f"{name} is empty: give at least one shape.")
    return [shape(one) for one in several]


def _shape_text(name: str, value: Any) -> str:
    """Shapes as the command line takes them."""
    if isinstance(value, str):
        return _word(name, value)
    found = shapes(name, value)
    if isinstance(found, dict):
        return ",".join(f"{key}={_dims(one)}" for key, one in found.items())
    return ",".join(map(_dims, found))


def _dims(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _machine_types(name: str, value: Any) -> tuple[str, ...]:
    """One word, several, or none."""
    return () if value is None or value == () else _each(_word)(name, value)


def _prices(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise _refuse(name, "a dictionary such as {'c7i': 0.0892}", value)
    checked = _above(_number, 0, open_end=True)
    return tuple((_word(name, key), checked(f"{name}[{key!r}]", one)) for key, one in value.items())


#: What a cell is made of: for each keyword, the plan's field and what it must be.
CELL: dict[str, tuple[str, Check]] = {
    "engine": ("engines", _each(_word)),
    "batch_size": ("batch_sizes", _each(_maybe(_whole))),
    "sequence_length": ("sequence_lengths", _each(_maybe(_above(_whole, 1)))),
    "num_cores": ("num_cores", _each(_most)),
    "scenario": ("scenarios", _each(_word)),
    "num_streams": ("num_streams", _each(_most)),
    "instances": ("instances", _each(_whole)),
    "input_shapes": ("input_shapes", _maybe(_shape_text)),
    "thread_pinning": ("thread_pinning", _word),
    "stream_mode": ("stream_mode", _word),
    "engine_option": ("engine_options", _options),
}
#: Where a benchmark is measured.
CLUSTER: dict[str, tuple[str, Check]] = {
    "cluster": ("cluster", _maybe(_word)),
    "on": ("on", _machine_types),
    "nodes": ("nodes", _above(_whole, 1)),
    "price": ("prices", _prices),
    "wait": ("wait_s", _above(_number, 0)),
}
#: All keywords.
KEYWORDS: dict[str, tuple[str, Check]] = {
    **CELL,
    **CLUSTER,
    "rate": ("rates", _each(_maybe(_number))),
    "input": ("input_file", _maybe(_path)),
    "seed": ("seed", _above(_whole, 0)),
    "verify": ("verify", _flag),
    "timeout": ("patience_s", _maybe(_above(_number, 0, open_end=True))),
    "time": ("time_s", _number),
    "warmup_time": ("warmup_s", _number),
    "processes": ("processes", _maybe(_whole)),
    "precision": ("precision", _maybe(_number)),
}


def plan(model: str, given: Mapping[str, Any]) -> Plan:
    """The plan that these keywords describe; what is no keyword of a plan is passed over."""
    fields = {KEYWORDS[name][0]: KEYWORDS[name][1](name, given[name]) for name in KEYWORDS if name in given}
    return Plan(model, **fields)


def model_name(value: Any) -> str:
    """The name of a model, as a user of Python gives it."""
    if isinstance(value, str | os.PathLike) and (name := os.fspath(value)) and isinstance(name, str):
        return name
    raise BadInput(f"A model is a path, a URL or a name such as demo:resnet50, not a {type(value).__name__}.")


def number(name: str, value: Any) -> float:
    """A number that is not part of a plan."""
    return _number(name, value)


def levels(value: Any) -> tuple[float, ...] | None:
    """Levels of pruning: some numbers, "all", "none", or None for what suits the engine."""
    if value is None:
        return None
    if isinstance(value, str) and value in ("all", "none"):
        from inferlab.records.profile import LEVELS

        return LEVELS if value == "all" else ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _refuse("levels", "a list such as [0.6, 0.9], 'all' or 'none'", value)
    return tuple(dict.fromkeys(_number("levels", one) for one in value))


def path(name: str, value: Any) -> str | None:
    """A file that is not part of a plan, or none."""
    return None if value is None else _path(name, value)


def flag(name: str, value: Any) -> bool:
    """A switch that is not part of a plan."""
    return _flag(name, value)


def words(name: str, value: Any) -> tuple[str, ...]:
    """One word or several."""
    found: tuple[str, ...] = _each(_word)(name, value)
    return found


def whole(name: str, value: Any) -> int:
    """A whole number that is not part of a plan."""
    return _whole(name, value)


def _some_words(name: str, value: Any) -> tuple[str, ...]:
    return () if isinstance(value, tuple) and not value else words(name, value)


def _levels_by_name(name: str, value: Any) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _refuse(name, "a dictionary such as {'conv1.weight': 0.9}", value)
    return {key: _number(f"{name}[{key!r}]", one) for key, one in value.items()}


#: The options of an optimisation, and what each must be.
_OPTIMIZATION: dict[str, Check] = {
    "sparsity": _maybe(_number),
    "scope": _word,
    "pattern": _word,
    "layers": _levels_by_name,
    "include": _some_words,
    "exclude": _some_words,
    "minimum": _number,
    "maximum": _number,
    "ends": _flag,
    "budget": _maybe(_number),
    "int8": _maybe(_word),
    "weights_only": _maybe(_whole),
    "float": _maybe(_word),
    "keep_sensitive": _whole,
    "per_tensor": _flag,
    "cleanup": _flag,
    "recipe": _maybe(_path),
}


def optimization(given: Mapping[str, Any]) -> Options:
    """What is to be done to a model by these keywords."""
    return Options(**{name: check(name, given[name]) for name, check in _OPTIMIZATION.items()})


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keywords that a function does not have; the sentence names the nearest."""
    there = list(known)
    for name in given:
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"It takes {', '.join(there)}."
        raise BadInput(f"{function} has no argument '{name}'. {hint}")
