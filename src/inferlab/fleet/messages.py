"""What nodes say to whoever lets them work."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.records import Event, Failure, Recommendation, Run


@dataclass(frozen=True, slots=True)
class Heard:
    """A node says what it does."""

    node: str
    event: Event


@dataclass(frozen=True, slots=True)
class Ready:
    """A node has the model, and the engines but for those with a problem."""

    node_id: str
    problems: dict[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """A process of the cell that a node measures is done."""

    node_id: str
    run: Run


@dataclass(frozen=True, slots=True)
class Ended:
    """The cell that a node measures is done, or failed."""

    node_id: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Crashed:
    """What measured on a node is gone, the node perhaps not."""

    node_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is gone."""

    node_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Found:
    """A node's answer to a search, or why there is none."""

    node_id: str
    answer: Recommendation | Failure


Message = Heard | Ready | Measured | Ended | Crashed | Lost | Found
