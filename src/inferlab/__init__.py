"""inferlab: how fast a model runs on a CPU, on which engine, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferlab.version import __version__

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.model.export import export_to_onnx
    from inferlab.records import Plan

__all__ = ["Lab", "Plan", "__version__", "export_to_onnx"]

_WHERE = {"Lab": "inferlab.lab", "Plan": "inferlab.records", "export_to_onnx": "inferlab.model.export"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import inferlab` stays quick."""
    if name not in _WHERE:
        raise AttributeError(f"module 'inferlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
