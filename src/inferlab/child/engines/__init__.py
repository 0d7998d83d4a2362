"""The engines, each one file; an engine's own package is imported only when a model is loaded."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any, Dict, Type

from .base import BadOption, Engine


def find(reference: Dict[str, str]) -> Type[Engine]:
    """The engine class that a reference names: built in, from a module, or from a user's file.

    One that is not derived from Engine gets its defaults for what it does not define.
    """
    if "builtin" in reference:
        module = __package__ + "." + reference["builtin"]
    elif "file" in reference:
        module = _load_file(reference["file"])
    else:
        module = reference["module"]
    kind = find_name(module, reference["class"])
    return kind if issubclass(kind, Engine) else types.new_class(kind.__name__, (kind, Engine))


def find_name(module: str, name: str) -> Any:
    """What a module calls by this name."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise BadOption("{} has no class {}".format(module, name)) from None


def _load_file(path: str) -> str:
    """Import a user's file, and give the name of the module that it becomes."""
    spec = importlib.util.spec_from_file_location("inferlab_user_engine", path)
    if spec is None or spec.loader is None:
        raise BadOption("{} is not a Python file".format(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return spec.name
