"""Profiles and versions under the keys and formats that they have since: plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# None of them can stand within any text of a document: there the quotes would be escaped.
_RENAMED = {
    '"unjoined_share":': '"unattributed_share":',
    '"foretold_speedup":': '"predicted_speedup":',
    '"foretold_error":': '"predicted_error":',
    '"format":"inferlab-profile/1"': '"format":"inferlab-profile/2"',
    '"format":"inferlab-optimization/1"': '"format":"inferlab-optimization/2"',
}


def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
    """Rename them in the documents; what lists show is derived from these afterwards."""
    for before, after in _RENAMED.items():
        execute(
            "UPDATE entry SET content = replace(content, :before, :after) WHERE kind IN ('profile', 'version')",
            before=before,
            after=after,
        )
