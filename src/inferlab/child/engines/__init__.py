"""The engines, each one file; an engine's own package is imported only when a model is loaded."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Dict

from .base import BadOption


def find(reference: Dict[str, str]) -> Any:
    """The engine class that a reference names: built in, from a module, or from a user's file."""
    if "builtin" in reference:
        module = importlib.import_module("." + reference["builtin"], __package__)
    elif "file" in reference:
        spec = importlib.util.spec_from_file_location("inferlab_user_engine", reference["file"])
        if spec is None or spec.loader is None:
            raise BadOption("{} is not a Python file".format(reference["file"]))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(reference["module"])
    try:
        return getattr(module, reference["class"])
    except AttributeError:
        raise BadOption("{} has no class {}".format(module.__name__, reference["class"])) from None
