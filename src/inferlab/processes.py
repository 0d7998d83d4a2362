"""Start the processes that workers speak with: new ones, or forks of one that has imported the engine."""

from __future__ import annotations

import contextlib
import os
import select
import site
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from inferlab.child import protocol
from inferlab.errors import BadInput
from inferlab.scratch import Scratch

_CHILD = Path(__file__).parent / "child" / "main.py"
# Carried by all that a child starts, so that it is found even where the child itself is gone.
_MARK = "INFERLAB_CHILD"
# A process that takes longer to import an engine is no help.
_PREPARE_S = 120.0

# Engines that write into the user's home folder or call home are told not to.
_QUIET = {
    "ORT_DISABLE_TELEMETRY": "1",
    "NM_DISABLE_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # NumPy's own thread pool would only stand in the engine's way.
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Where engines and their libraries write unasked; a confined one finds a folder of its own there.
_HOMES = (
    "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HF_HOME", "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "NUMBA_CACHE_DIR", "MPLCONFIGDIR",
)  # fmt: skip
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a child for one engine."""

    #: As the user wrote it; for messages.
    name: str
    #: {"builtin": …}, {"module": …} or {"file": …}, with "class".
    reference: Mapping[str, str]
    interpreter: str = sys.executable
    #: The engine lives in an environment of its own, into which none of our packages may leak.
    isolated: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    #: The engine writes into the model file or beside it, so it gets a copy in a folder of its own.
    writes_model: bool = False
    #: The newest ONNX IR version that the engine reads.
    newest_ir: int | None = None
    #: A program of the user's own: it gets limits, but keeps the user's files and the network.
    trusted: bool = False
    #: Models, files and folders that it reads beside those that its first request names.
    reads: tuple[str, ...] = ()
    #: Folders that it writes beside its scratch folder and those that its first request names.
    writes: tuple[str, ...] = ()
    #: What to try where its process is ended by a signal, by the signal's name.
    advice: Mapping[str, str] = field(default_factory=dict)


class Host(NamedTuple):
    """A process that was started, and what it was given."""

    process: subprocess.Popen[bytes]
    #: Its home and its temporary files; removed when it ends.
    scratch: Scratch
    #: What it writes to its standard output and error.
    log: BinaryIO
    #: NAME=VALUE in the environment of all that it starts.
    mark: str


def start(launch: Launch, confined: bool, descriptors: Sequence[int] = ()) -> Host:
    """A new process for an engine; it waits for requests."""
    mark = f"{_MARK}={uuid.uuid4().hex}"
    scratch = Scratch()
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed by clean_up
    name, _, value = mark.partition("=")
    try:
        process = subprocess.Popen(
            [launch.interpreter, *(["-I", "-B"] if launch.isolated else []), str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **_QUIET, **_places(scratch.path, confined), **launch.environment, name: value},
            pass_fds=descriptors,
            # A session of its own: Ctrl-C reaches only us, and we can stop all that the engine started.
            start_new_session=True,
        )
    except OSError as error:
        log.close()
        scratch.remove()
        raise BadInput(f"Engine '{launch.name}' cannot be started: {error}. See: inferlab engines") from error
    return Host(process, scratch, cast(BinaryIO, log), f"\0{mark}")


def clean_up(host: Host) -> None:
    """Remove what an ended process leaves behind."""
    host.scratch.remove()
    for pipe in (host.process.stdin, host.process.stdout):
        with contextlib.suppress(OSError):
            cast(BinaryIO, pipe).close()
    host.log.close()


def _end(host: Host) -> None:
    host.process.kill()
    host.process.wait()
    clean_up(host)


@contextmanager
def kept_warm(kinds: Sequence[str] = (), copies: int = 1) -> Iterator[None]:
    """Inside it, every worker is a fork of a process that has imported its engine, not a new process.

    `kinds` are those of the models to come. For each engine and choice of CPUs there are up to `copies` such
    processes that take turns: processes forked from one and the same share its layout of memory. An engine that
    starts threads while it is imported cannot be forked and gets new processes, as always.
    """
    global _warm
    before, _warm = _warm, _Warm(list(kinds), copies)
    try:
        yield
    finally:
        ending, _warm = _warm, before
        for host in ending.idle:
            _end(host)


def lend(launch: Launch, cpus: Sequence[int], confined: bool) -> Host | None:
    """A process to fork from, where there is one."""
    return None if _warm is None else _warm.lend(launch, cpus, confined)


def give_back(host: Host) -> None:
    """Let the next worker fork from this process: its last fork has ended well."""
    if _warm is None:
        _end(host)
        return
    host.scratch.empty()
    host.log.seek(0)
    host.log.truncate()
    _warm.idle.append(host)


class _Warm:
    """The processes that have imported an engine, by engine and CPUs."""

    def __init__(self, kinds: list[str], copies: int) -> None:
        self._kinds, self._copies = kinds, copies
        self._hosts: dict[tuple[Any, ...], list[Host]] = {}
        self._unforkable: set[str] = set()
        #: Those that no worker uses, the one that waits longest first.
        self.idle: list[Host] = []

    def lend(self, launch: Launch, cpus: Sequence[int], confined: bool) -> Host | None:
        """A new one while there are few, else the one that waits longest, if any."""
        if launch.name in self._unforkable:
            return None
        hosts = self._hosts.setdefault((launch.name, launch.interpreter, confined, *cpus), [])
        hosts[:] = [host for host in hosts if host.process.returncode is None]
        # Without CPUs of its own nothing is measured, so that the layout of memory does not matter.
        if len(hosts) < (self._copies if cpus else 1):
            host = start(launch, confined)
            if self._prepare(host, launch, cpus):
                hosts.append(host)
                return host
            self._unforkable.add(launch.name)
            _end(host)
            return None
        waiting = [host for host in self.idle if host in hosts]
        if not waiting:
            return None
        self.idle.remove(waiting[0])
        return waiting[0]

    def _prepare(self, host: Host, launch: Launch, cpus: Sequence[int]) -> bool:
        """Let a new process import the engine; whether it can be forked then."""
        requests, answers = cast(BinaryIO, host.process.stdin), cast(BinaryIO, host.process.stdout)
        wanted = {"do": "prepare", "engine": dict(launch.reference), "cpus": list(cpus), "kinds": self._kinds}
        try:
            protocol.send(requests, wanted)
            if not select.select([answers], [], [], _PREPARE_S)[0]:
                return False
            return bool(protocol.receive(answers)[0].get("forkable"))
        except (OSError, protocol.Closed):
            return False


_warm: _Warm | None = None


def _places(scratch: str, confined: bool) -> dict[str, str]:
    """Where the child finds its home and its temporary files: in a folder of its own."""
    places = dict.fromkeys(_TEMPORARY, scratch)
    if confined:
        places.update(dict.fromkeys(_HOMES, scratch))
        # Packages that the user installed for himself are found by his home folder otherwise.
        places["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE", site.getuserbase())
    return places
