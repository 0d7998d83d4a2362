"""A Ray cluster: reach or start it, ask its nodes, let them work, hear what they say, let it go again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from inferlab.codec import restored
from inferlab.errors import BadInput, InferlabError
from inferlab.fleet import remote
from inferlab.fleet.nodes import (
    Crashed,
    Ended,
    ListedNode,
    Lost,
    Measured,
    Message,
    Node,
    Progress,
    Ready,
    SearchAnswer,
    node_names,
)
from inferlab.fleet.parcels import Packed, Parcel
from inferlab.fleet.remote import CellOrder, NodeDescription, Payload
from inferlab.measure.recommend import Search
from inferlab.records import Event, Failure, Listener, Machine
from inferlab.store.samples import unpack_run
from inferlab.version import __version__

# A node that does not answer so long is not there for us.
_ANSWER_S = 60.0
# So long work may take to stop by itself before its process is ended.
_GRACE_S = 3.0
_HEAR_S = 0.5
# The last word of a node on a cell: a stream that Ray cut off also ends.
_END = "end"
# What a node tells besides how far it is.
_WORTH_TELLING = ("reference", "waiting", "unlocked", "node-install", "round", "finals")
# Resources that every node has, hence no names of types.
_COMMON = ("CPU", "GPU", "memory", "object_store_memory")


class Cluster:
    """A Ray cluster that was joined."""

    def __init__(self, ray: Any) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray, self._strategy = ray, NodeAffinitySchedulingStrategy
        here = self._at(ray.get_runtime_context().get_node_id())
        self._ear = ray.remote(_EventCollector).options(**here, num_cpus=0).remote()
        self._heard_at = 0.0
        #: What each node does now.
        self._work: dict[str, _Answer | _Stream] = {}
        self._names: dict[str, str] = {}
        self._gone: set[str] = set()
        self._sent: dict[str, list[Any]] = {}

    # Who is there.

    def listed(self) -> list[ListedNode]:
        """The nodes that are alive, as far as is known: the cluster itself may notice later what was lost."""
        return [
            _listed_node(node) for node in self._ray.nodes() if node["Alive"] and node["NodeID"] not in self._gone
        ]

    def ask(self, listed: Sequence[ListedNode], listener: Listener) -> list[Node]:
        """What these nodes are, by name; one that does not answer is left out, and told of."""
        names = node_names(self.listed())
        describe = self._ray.remote(remote.describe)
        tasks = {node.id: describe.options(**self._at(node.id), num_cpus=0).remote() for node in listed}
        deadline = time.monotonic() + _ANSWER_S
        answering = []
        for node in listed:
            try:
                description: NodeDescription = self._ray.get(
                    tasks[node.id], timeout=max(0.0, deadline - time.monotonic())
                )
            except self._ray.exceptions.GetTimeoutError:
                listener(Event("node-silent", {"node": node.host, "cause": f"no answer in {_ANSWER_S:g} s"}))
                continue
            except self._ray.exceptions.RayError as error:
                listener(Event("node-silent", {"node": node.host, "cause": first_line(error)}))
                continue
            _refuse_other_version(node.host, description.version)
            machine = restored(Machine, description.machine)
            name = description.name or names.get(node.id, node.host)
            answering.append(
                Node(node.id, name, node.cpus, machine, description.usable_cores, description.niceness)
            )
        # Always the same of several, so that a plan that goes on does so where it began.
        return sorted(answering, key=lambda node: node.name)

    def start(self, machine_types: Sequence[str], count: int, wait_s: float) -> None:
        """Ask for so many nodes of types that the cluster lacks, which an autoscaler starts, and wait for them."""
        from ray.util.placement_group import placement_group, remove_placement_group

        # Places on nodes of their own: tasks would all have their turn on one that is there. All types at once,
        # held until all are there: otherwise those that come first are stopped for being idle.
        places = [
            placement_group([{machine_type: 1}] * count, strategy="STRICT_SPREAD")
            for machine_type in machine_types
        ]
        names_by_ref = {place.ready(): name for name, place in zip(machine_types, places, strict=True)}
        try:
            _, missing = self._ray.wait(list(names_by_ref), num_returns=len(names_by_ref), timeout=wait_s)
        finally:
            for place in places:
                remove_placement_group(place)
        if missing:
            name = names_by_ref[missing[0]]
            raise BadInput(
                f"The cluster lacks nodes of type {name}, and they were not started within {wait_s:g} s. "
                f"Start one with ray start --resources '{{\"{name}\": 1}}', or wait longer with --wait."
            )

    # Work.

    def make_ready(self, node: Node, packed: Sequence[Packed], payload: Payload) -> None:
        """Let a node check what it has of the payload, send what it lacks, and install engines."""

        def send(missing: list[Parcel]) -> list[Message]:
            sent = [(parcel, self._pieces(parcel, packed)) for parcel in missing]
            ref = self._task(_prepare, node).remote(sent, payload.engines, node.name, self._ear)
            self._work[node.id] = _Answer(ref, lambda problems: [Ready(node.id, problems)])
            return []

        self._work[node.id] = _Answer(self._task(remote.lacking, node).remote(payload), send)

    def measure(self, node: Node, order: CellOrder) -> None:
        """Let a node measure a cell."""
        answers = self._task(_measure, node, num_returns="streaming").remote(order, node.name, self._ear)
        self._work[node.id] = _Stream(answers, node.id)

    def search(self, node: Node, search: Search, payload: Payload) -> None:
        """Let a node find the best configuration; it answers with what it found."""
        ref = self._task(_search, node).remote(search, payload, node.name, self._ear)
        self._work[node.id] = _Answer(ref, lambda answer: [SearchAnswer(node.id, answer)])

    def wait(self, timeout_s: float) -> list[Message]:
        """What the nodes say within this time."""
        messages: list[Message] = []
        owners = {work.ref: node_id for node_id, work in self._work.items()}
        if owners:
            ready, _ = self._ray.wait(list(owners), num_returns=1, timeout=timeout_s)
            if ready:
                # All others that are ready by now, without waiting.
                ready, _ = self._ray.wait(list(owners), num_returns=len(owners), timeout=0)
            for ref in ready:
                messages += self._taken(owners[ref])
        if time.monotonic() - self._heard_at > _HEAR_S:
            messages += self._heard()
        return messages

    def _taken(self, node_id: str) -> list[Message]:
        """What one node says, after which it may have nothing more to do."""
        errors = self._ray.exceptions
        work = self._work.pop(node_id)
        try:
            messages, more = work.take(self._ray)
        except errors.TaskCancelledError:
            return []
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            return [Crashed(node_id, self._death(node_id, error))]
        except errors.RayTaskError as error:
            ours = isinstance(error.cause, InferlabError)
            cause = str(error.cause) if ours else f"{_last_line(error)}."
            return [
                Ended(node_id, Failure("died", f"inferlab failed on the node {self._names[node_id]}: {cause}"))
            ]
        except errors.RayError as error:
            self._gone.add(node_id)
            return [Lost(node_id, self._death(node_id, error))]
        if more:
            self._work[node_id] = work
        return messages

    def _death(self, node_id: str, error: Exception) -> str:
        return f"The node {self._names[node_id]} was lost: {first_line(error)}"

    def _heard(self) -> list[Message]:
        self._heard_at = time.monotonic()
        try:
            events = self._ray.get(self._ear.take.remote(), timeout=_ANSWER_S)
        except self._ray.exceptions.RayError:
            return []  # progress only
        return [Progress(node, event) for node, event in events]

    def cancel(self) -> list[Message]:
        """Stop all work: politely at first, then by ending its processes; hands over what was measured by then."""
        for work in self._work.values():
            self._ray.cancel(work.ref, force=False)
        streams = {work.end: node_id for node_id, work in self._work.items() if isinstance(work, _Stream)}
        ended: list[Any] = []
        if streams:
            ended, _ = self._ray.wait(list(streams), num_returns=len(streams), timeout=_GRACE_S)
        messages: list[Message] = []
        for node_id in [streams[ref] for ref in ended]:
            # Only of what has ended: a stream that was cut off may keep its reader waiting for ever.
            while node_id in self._work:
                messages += self._taken(node_id)
        for work in self._work.values():
            self._ray.cancel(work.ref, force=True)
        self._work.clear()
        return messages

    def _task(self, function: Callable[..., Any], node: Node, **options: Any) -> Any:
        """A function that will run on a node; it takes all CPUs, which keeps other tasks of the cluster away."""
        self._names[node.id] = node.name
        return self._ray.remote(function).options(
            **self._at(node.id), num_cpus=node.cpus, max_retries=0, **options
        )

    def _at(self, node_id: str) -> dict[str, Any]:
        return {"scheduling_strategy": self._strategy(node_id, soft=False)}

    def _pieces(self, parcel: Parcel, packed: Sequence[Packed]) -> list[Any]:
        """References to the content of a parcel, which nodes fetch from each other as well as from us."""
        if parcel.digest not in self._sent:
            (whole,) = (parcel_packed for parcel_packed in packed if parcel_packed.parcel == parcel)
            self._sent[parcel.digest] = [self._ray.put(piece) for piece in whole.pieces()]
        return self._sent[parcel.digest]


class _Answer:
    """One answer that a node will give, and what it means."""

    def __init__(self, ref: Any, then: Callable[[Any], list[Message]]) -> None:
        self.ref, self._then = ref, then

    def take(self, ray: Any) -> tuple[list[Message], bool]:
        """What it says, and whether more will come."""
        return self._then(ray.get(self.ref)), False


class _Stream:
    """The runs of a cell, one by one, and perhaps a failure."""

    def __init__(self, ref: Any, node_id: str) -> None:
        self.ref, self._node_id = ref, node_id
        #: Ready when nothing more will come.
        self.end = ref.completed()
        self._failure: Failure | None = None

    def take(self, ray: Any) -> tuple[list[Message], bool]:
        """What it says, and whether more will come."""
        try:
            item = ray.get(next(self.ref))
        except StopIteration:
            return [Crashed(self._node_id, "What it measured was cut off.")], False
        if item == _END:
            return [Ended(self._node_id, self._failure)], False
        if isinstance(item, Failure):
            self._failure = item
            return [], True
        return [Measured(self._node_id, unpack_run(*item))], True


class _EventCollector:
    """Collects what nodes tell until it is taken; Ray makes a process of it."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Event]] = []

    def tell(self, node: str, event: Event) -> None:
        """Add something."""
        self._events.append((node, event))

    def take(self) -> list[tuple[str, Event]]:
        """All that was told since."""
        events, self._events = self._events, []
        return events


# What a node runs; Ray finds these by their names there.


def _prepare(sent: list[tuple[Parcel, list[Any]]], engines: Sequence[str], name: str, ear: Any) -> dict[str, str]:
    import ray

    for parcel, pieces in sent:
        remote.receive(parcel, (ray.get(piece) for piece in pieces))
    return remote.install(engines, _teller(name, ear))


def _measure(order: CellOrder, name: str, ear: Any) -> Iterator[Any]:
    yield from remote.measure(order, name, _teller(name, ear))
    yield _END


def _search(search: Search, payload: Payload, name: str, ear: Any) -> Any:
    return remote.search(search, payload, name, _teller(name, ear))


def _teller(name: str, ear: Any) -> Listener:
    def tell(event: Event) -> None:
        if event.fraction is not None or event.code in _WORTH_TELLING:
            ear.tell.remote(name, event)

    return tell


def _listed_node(node: dict[str, Any]) -> ListedNode:
    resources = {name for name in node["Resources"] if name not in _COMMON and not name.startswith("node:")}
    labels = {key: value for key, value in (node.get("Labels") or {}).items() if key != "ray.io/node-id"}
    offers = {*resources, *labels.values(), *(f"{key}={value}" for key, value in labels.items())}
    return ListedNode(
        node["NodeID"], node["NodeManagerHostname"], node["Resources"].get("CPU", 0.0), frozenset(offers)
    )


def _refuse_other_version(host: str, version: str) -> None:
    if version != __version__:
        raise BadInput(
            f"The node {host} has inferlab {version}, and this is {__version__}: their numbers may differ. "
            f"Install the same there: pip install 'inferlab[fleet]=={__version__}'"
        )


def first_line(error: Exception) -> str:
    """The first sentence of what Ray says of an error."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text.split(". ")[0].rstrip(".") + "."


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__


# Joining.

# How long a machine may take to accept a connection, Ray to answer, and how often it is asked: by itself Ray tries
# for minutes, and says nothing of it.
_CONNECT_S = 5.0
_HASTE = {"RAY_gcs_server_port_wait_time_s": "2", "RAY_py_gcs_connect_timeout_s": "5"}
_UNAUTHENTICATED = ("Unauthenticated", "InvalidAuthToken", "AuthenticationError")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextlib.contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """The cluster at an address; 'local' starts one on this machine, which ends with us."""
    try:
        import ray
    except ImportError:
        raise BadInput(
            "A cluster is reached through Ray, which is not installed. "
            "Install it with: pip install 'inferlab[fleet]'"
        ) from None
    if address.startswith("ray://"):
        raise BadInput(
            "Ray's client (ray://) cannot pass on results one by one. Run inferlab on a machine of the cluster, "
            "with --cluster auto; from elsewhere: ray job submit -- inferlab benchmark …"
        )
    mine = not ray.is_initialized()
    with contextlib.redirect_stdout(_WithoutRay(sys.stdout)):
        try:
            if mine:
                _init(ray, address)
            yield Cluster(ray)
        finally:
            if mine:
                ray.shutdown()


def _init(ray: Any, address: str) -> None:
    os.environ.update(_QUIET)
    if address not in ("local", "auto"):
        _refuse_deaf(address)
    if address != "local":
        for name, value in _HASTE.items():
            os.environ.setdefault(name, value)
    # Ray's processes stand back for others by default, and so would what is measured.
    own = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}} if address == "local" else {}
    polite = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, namespace="inferlab", logging_level=logging.CRITICAL, log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.AuthenticationError) as error:
        if _is_unauthenticated(error):
            raise BadInput(
                f"The Ray cluster at '{address}' asks for a token, and this machine gave none or a wrong one. Put "
                "the head's ~/.ray/auth_token here in the same place, and set RAY_AUTH_MODE=token."
            ) from error
        raise BadInput(
            f"There is no Ray cluster to join at '{address}': {first_line(error)} On a machine of the cluster "
            "give --cluster auto; --cluster local starts one here."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, polite)


def _refuse_deaf(address: str) -> None:
    """Refuse an address at which nothing answers, before Ray tries for minutes to reach it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(
            f"'{address}' is not the address of a Ray cluster. Write it as HOST:6379, or give auto on a machine "
            "of the cluster."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        cause = "no answer" if isinstance(error, TimeoutError) else str(getattr(error, "strerror", "") or error)
        raise BadInput(
            f"There is no Ray cluster to join at '{address}': {cause[:1].lower()}{cause[1:]}. Look at the head's "
            "address and port; on a machine of the cluster give --cluster auto; --cluster local starts one here."
        ) from error


def _is_unauthenticated(error: BaseException) -> bool:
    """Whether Ray failed for want of a token: it hides that behind other errors."""
    seen: BaseException | None = error
    while seen is not None:
        if any(word in f"{type(seen).__name__}: {seen}" for word in _UNAUTHENTICATED):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class _WithoutRay:
    """Standard output without what Ray's own threads write to it: only results go there."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._out.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)
