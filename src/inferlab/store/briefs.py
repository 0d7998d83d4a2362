"""What lists show of an entry, derived from its content and kept beside it so that none need be opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.codec import dumps

Content = Mapping[str, Any]
# Of the measured part of a profile.
_PERFORMANCE = ("name", "engine", "batch_size", "num_cores", "ms_per_batch", "ms_interval", "items_per_second",
                "items_interval", "measured_at")  # fmt: skip
_LOSS = ("name", "method", "params", "average_sensitivity")
_VERSION = ("path", "digest", "size_bytes", "parameters", "zero_fraction", "precision")
_MEASURED = ("engine", "num_cores", "batch_size", "original_ms", "ms", "speedup", "speedup_interval", "level",
             "verdict", "foretold_speedup", "foretold_error")  # fmt: skip
_COMPARISON = ("verdict", "ratio", "interval", "paired", "outputs_match")


def brief_of(kind: str, content: Content) -> str:
    """The brief of an entry as JSON; empty where lists need nothing beside its title and cells."""
    make = {
        "profile": _profile,
        "comparison": _comparison,
        "benchmark": _benchmark,
        "version": _version,
    }.get(kind)
    try:
        brief = make(content) if make else {}
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        # Made by another version, by hand, or has no result yet: it is listed by its name or title.
        brief = {}
    if isinstance(content.get("name"), str):
        brief = {**brief, "name": content["name"]}
    return dumps(brief) if brief else ""


def digest_of(content: Content) -> str:
    """The digest of the model that a document is about; of two that are compared, the first; empty if unknown."""
    for part in (content.get("model"), *(_models(one) for one in _results(content)[:1])):
        if isinstance(part, Mapping) and isinstance(part.get("digest"), str):
            return str(part["digest"])
    return ""


def _results(content: Content) -> list[Content]:
    """The comparisons of a document that holds several, or the only one."""
    several = content.get("results")
    return [one for one in several if isinstance(one, Mapping)] if isinstance(several, list) else [content]


def _models(comparison: Content) -> Any:
    """The model of A; version 1 of comparisons had an object for each arm."""
    models, arm = comparison.get("models"), comparison.get("a")
    if isinstance(models, list):
        return models[0]
    return arm.get("model") if isinstance(arm, Mapping) else None


def _benchmark(content: Content) -> dict[str, Any]:
    return {"against": content["against"]} if content.get("against") else {}


def _profile(content: Content) -> dict[str, Any]:
    performance, loss = content.get("performance"), content.get("loss")
    return {
        "performance": {name: performance[name] for name in _PERFORMANCE} if performance else None,
        "loss": {name: loss[name] for name in _LOSS} if loss else None,
        "flops": (content.get("flops") or {}).get("flops"),
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }


def _comparison(content: Content) -> dict[str, Any]:
    first, *_ = results = _results(content)
    if "labels" not in first:
        labels = [first["a"]["label"], first["b"]["label"]]
        return {"labels": labels, "results": [{name: one[name] for name in _COMPARISON} for one in results]}
    return {"labels": first["labels"], "results": [_ratio(one) for one in results]}


def _ratio(comparison: Content) -> dict[str, Any]:
    ratio = comparison["ratio"]
    return {
        "verdict": comparison["verdict"],
        "ratio": ratio["value"],
        "interval": None if ratio["low"] is None else [ratio["low"], ratio["high"]],
        "paired": bool(comparison["log_ratios"]),
        "outputs_match": comparison["outputs_match"],
    }


def _version(content: Content) -> dict[str, Any]:
    recipe, made = content["recipe"], content["optimized"]
    return {
        "name": content["name"],
        "optimized": {name: made[name] for name in _VERSION},
        "pattern": (recipe.get("pruning") or {}).get("pattern", ""),
        "scheme": (recipe.get("quantization") or {}).get("scheme", ""),
        "distance": content["distance"],
        "measured": [{name: one[name] for name in _MEASURED} for one in content["measured"]],
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }
