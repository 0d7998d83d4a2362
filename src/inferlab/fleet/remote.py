"""What runs on a node: tell what it is, take in files, measure; plain functions, no cluster in sight."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab import machine
from inferlab.codec import plain
from inferlab.engines import environments, registry
from inferlab.errors import BadInput, EngineFailed, InferlabError
from inferlab.fleet import parcels
from inferlab.fleet.parcels import Parcel
from inferlab.measure import cell, cells
from inferlab.measure.recommend import Search, recommend
from inferlab.model.inputs import digest
from inferlab.records import Cell, Event, Failure, Listener, Model, Plan, Recommendation
from inferlab.store.samples import PackedRun, pack_run, unpack_run
from inferlab.version import __version__


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """What a node says of itself."""

    version: str
    #: None where the node has no name of its own.
    name: str | None
    machine: Mapping[str, Any]
    usable_cores: int
    niceness: int


@dataclass(frozen=True, slots=True)
class Payload:
    """What measuring needs on a node: the model, the data, and engines that may be installed there."""

    model: Parcel
    data: Parcel | None
    #: Those whose licence the user agreed to.
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellOrder:
    """A cell to measure, with what it has already."""

    plan: Plan
    model: Model
    cell: Cell
    payload: Payload
    before: tuple[PackedRun, ...]
    live: bool


def describe() -> NodeDescription:
    """What this node is."""
    name = os.environ.get("INFERLAB_NODE")
    return NodeDescription(__version__, name, plain(machine.describe()), machine.usable_cores(), os.nice(0))


def lacking(payload: Payload) -> list[Parcel]:
    """What must be sent before this node can measure; what is here is checked."""
    return [
        parcel for parcel in (payload.model, payload.data) if parcel is not None and parcels.find(parcel) is None
    ]


def receive(parcel: Parcel, pieces: Iterator[bytes]) -> None:
    """Take in what was sent."""
    parcels.unpack(parcel, lambda: next(pieces, b""))


def install(engines: Sequence[str], listener: Listener) -> dict[str, str]:
    """Make the environments of engines that this node lacks; returns what went wrong, by engine."""
    problems = {}
    for name in engines:
        try:
            registry.launch(name)
            continue
        except registry.NotInstalled:
            listener(Event("node-install", {"engine": name}))
        except BadInput:
            continue  # the cell that needs it says so
        try:
            environments.install(name)
        except InferlabError as error:
            problems[name] = str(error)
    return problems


def measure(order: CellOrder, name: str, listener: Listener) -> Iterator[PackedRun | Failure]:
    """Measure a cell as this machine does for itself; what goes wrong with it is its last word."""
    with as_node(name):
        try:
            plan, model = here(order.plan, order.model, order.payload)
            job = cells.make_job(plan, model, order.cell, order.live)
            if digest(job.inputs[0]) != job.cell.input_digest:
                raise BadInput(
                    f"The node {name} generates other inputs than this machine. Install the same version of "
                    "NumPy on both, or give --input."
                )
            before = [unpack_run(*run) for run in order.before]
            for run in cell.measure(job, before, listener):
                yield pack_run(run)
        except (BadInput, EngineFailed) as error:
            yield cell.failure_of(error)


def search(search: Search, payload: Payload, name: str, listener: Listener) -> Recommendation | Failure:
    """Find the best configuration on this node."""
    with as_node(name):
        try:
            plan, model = here(search.plan, search.model, payload)
            return recommend(replace(search, plan=plan, model=model), listener)
        except (BadInput, EngineFailed) as error:
            return cell.failure_of(error)


def here(plan: Plan, model: Model, payload: Payload) -> tuple[Plan, Model]:
    """The plan and the model with the paths that they have on this node."""
    model = replace(model, path=str(_folder_of(payload.model)))
    return replace(plan, input_file=str(_folder_of(payload.data)) if payload.data else None), model


def _folder_of(parcel: Parcel) -> Path:
    # It was checked when the node was made ready.
    path = parcels.place(parcel) / parcel.main
    if not path.exists():
        raise BadInput(f"{path} was removed from this node while it was measured.")
    return path


@contextlib.contextmanager
def as_node(name: str) -> Iterator[None]:
    """Measure under a node's name, with the threads and the priority that a program here has by itself."""
    own = os.environ.get("INFERLAB_NODE")
    os.environ["INFERLAB_NODE"] = name
    machine.describe.cache_clear()
    if "OMP_NUM_THREADS" not in _environment_of_parent():
        # Not the user's wish: the cluster sets it in each of its workers.
        os.environ.pop("OMP_NUM_THREADS", None)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        yield
    finally:
        if own is None:
            del os.environ["INFERLAB_NODE"]
        else:
            os.environ["INFERLAB_NODE"] = own


def _environment_of_parent() -> set[str]:
    text = machine.read_text(Path(f"/proc/{os.getppid()}/environ"))
    return {pair.partition("=")[0] for pair in text.split("\0")}
