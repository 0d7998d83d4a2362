"""What is known of an engine on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is known of an engine here: whether it runs, and if not, what to do."""

    name: str
    state: Literal["ready", "missing", "broken"]
    version: str = ""
    kinds: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    environment: str = "inferlab's own"
    #: Why it cannot run, and the command that mends it.
    problem: str = ""
    remedy: str = ""
