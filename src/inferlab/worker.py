"""Start a child process, speak with it, stop it, and say how it died."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import site
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol, Self, TypeVar, cast

from inferlab.child import processes, protocol
from inferlab.codec import restored
from inferlab.errors import BadInput, EngineDied, EngineFailed, EngineHung, EngineRefused
from inferlab.files import Scratch
from inferlab.settings import CONFINEMENT

#: What --timeout is where nobody gives it. Steps that are known to take long then have a longer one of their own.
DEFAULT_S = 300.0
_CHILD = Path(__file__).parent / "child" / "main.py"
# Carried by all that a child starts, so that it is found even where the child itself is gone.
_MARK = "INFERLAB_CHILD"
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
_LONGEST_MESSAGE = 600
_CHUNK_BYTES = 1 << 20
# Threads count as processes, and engines start several for each core.
_MOST_PROCESSES = 8192
_OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|(cannot|can't|failed to) allocate memory", re.I)
T = TypeVar("T")
_timeout_s: ContextVar[float | None] = ContextVar("timeout_s", default=None)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Let every step within take so long at most; None stands for each step's own."""
    token = _timeout_s.set(seconds)
    try:
        yield
    finally:
        _timeout_s.reset(token)


def timeout_s(default_s: float = DEFAULT_S) -> float:
    """How long a step may take: as the user said, or else as long as is usual for it."""
    current = _timeout_s.get()
    return default_s if current is None else current


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
    #: The engine runs files of its own format, which it makes of the model (`measure/conversion.py`).
    converts: bool = False
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
    #: Options of the engine with which it survives quantised models that end it by SIGILL on this CPU.
    safe_options: Mapping[str, str] = field(default_factory=dict)


#: Engines that inferlab itself uses to read, check and change models.
ONNXRUNTIME = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})
OPENVINO = Launch("openvino", {"builtin": "openvino", "class": "OpenVino"})
TORCH = Launch("torch", {"builtin": "torch", "class": "Torch"})


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


def _places(scratch: str, confined: bool) -> dict[str, str]:
    """Where the child finds its home and its temporary files: in a folder of its own."""
    places = dict.fromkeys(_TEMPORARY, scratch)
    if confined:
        places.update(dict.fromkeys(_HOMES, scratch))
        # Packages that the user installed for himself are found by his home folder otherwise.
        places["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE", site.getuserbase())
    return places


def clean_up(host: Host) -> None:
    """Remove what an ended process leaves behind."""
    host.scratch.remove()
    for pipe in (host.process.stdin, host.process.stdout):
        with contextlib.suppress(OSError):
            cast(BinaryIO, pipe).close()
    host.log.close()


def end_host(host: Host) -> None:
    """End a process and remove what it leaves behind."""
    host.process.kill()
    host.process.wait()
    clean_up(host)


class ForkPool(Protocol):
    """Processes that have imported an engine and are forked for each worker; see `warm.py`."""

    def lend(self, launch: Launch, cpus: Sequence[int], confined: bool) -> Host | None:
        """A process to fork from, where there is one."""

    def give_back(self, host: Host) -> None:
        """Let the next worker fork from this process: its last fork has ended well."""


#: Where workers come from inside `kept_warm`; None: each is a new process.
pool: ForkPool | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A child's answer."""

    data: dict[str, Any]
    blocks: list[bytes]

    def arrays(self) -> dict[str, Any]:
        """The NumPy arrays that came with it."""
        try:
            return protocol.unpack_arrays(self.data["arrays"], self.blocks)
        except (TypeError, ValueError, KeyError) as error:
            raise EngineFailed(
                f"An engine's process answered with arrays that cannot be read: {error}."
            ) from error


def record_of(kind: type[T], answer: Mapping[str, Any], /, **known: Any) -> T:
    """The record that a child's answer describes, together with what is known of it here."""
    try:
        return restored(kind, {**answer, **known})
    except ValueError as error:
        raise EngineFailed(f"An engine's process answered with what cannot be read: {error}.") from error


class _Answer(dict[str, Any]):
    """An answer's data; what is not in it is the child's fault, not ours."""

    def __missing__(self, key: str) -> Any:
        raise EngineFailed(f"An engine's process answered without '{key}'.")


class Worker:
    """A child process with one engine; a context manager that never leaves it behind."""

    def __init__(
        self,
        launch: Launch,
        cpus: Sequence[int] = (),
        patience_s: float | None = None,
        tick: Callable[[], None] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._launch = launch
        self._patience_s = patience_s = timeout_s() if patience_s is None else patience_s
        self._tick = tick
        self._incoming = protocol.Incoming()
        #: An answer that was read to its end; it waits here if Ctrl-C comes before it is handed over.
        self._arrived: tuple[dict[str, Any], list[bytes]] | None = None
        self._unanswered = False
        #: The fork that this was has ended, and the process that it came from is another worker's by now.
        self._returned = False
        policy = _policy(launch, patience_s)
        confined = policy is not None and policy["files"]
        self._lent = None if descriptors or pool is None else pool.lend(launch, cpus, confined)
        self._host = self._lent or start(launch, confined, descriptors)
        self._process = self._host.process
        if policy is not None:
            policy["write"] = [self._host.scratch.path, *launch.writes]
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(cast(BinaryIO, pipe).fileno(), False)
        try:
            opened = self.ask(
                "open",
                engine=dict(launch.reference),
                cpus=list(cpus),
                policy=policy,
                environment=dict(launch.environment),
            )
        except BaseException:
            self.kill()
            raise
        self.harness_ns = float(opened.data["harness_ns"])
        self.pinned = bool(opened.data["pinned"])

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """The pipe of its answers: whoever waits for several children can select them."""
        return cast(BinaryIO, self._process.stdout).fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, do: str, blocks: Sequence[Any] = (), work_s: float = 0.0, **data: Any) -> Reply:
        """Send a request and wait for its answer, for `work_s` of expected work and our patience beyond."""
        self.send(do, blocks, **data)
        return self.wait(do, work_s)

    def send(self, do: str, blocks: Sequence[Any] = (), **data: Any) -> None:
        """Send a request without waiting for its answer, so that several children work at once."""
        self._unanswered = True
        try:
            self._write(do, protocol.encode({"do": do, **data}, blocks), self._patience_s)
        except OSError:
            raise self._death(do) from None
        except BaseException:
            self.kill()  # half a message is in the pipe
            raise

    def wait(self, do: str, work_s: float = 0.0, patience_s: float | None = None) -> Reply:
        """Wait for the answer to a request that was sent."""
        limit_s = work_s + (self._patience_s if patience_s is None else patience_s)
        try:
            whole = self._read(limit_s)
        except protocol.Closed:
            raise self._death(do) from None
        except protocol.BadFrame as error:
            self.kill()
            raise EngineFailed(
                f"Engine '{self._launch.name}' failed during '{do}': the answer of its process {error}. "
                "It was stopped."
            ) from None
        if not whole:
            raise self._hung(do, limit_s)
        assert self._arrived is not None
        (data, received), self._arrived = self._arrived, None
        self._unanswered = False
        if data["ok"]:
            return Reply(_Answer(data), received)
        raise self._refusal(data)

    def cut_short(self) -> None:
        """Ask the slice that is running to end now; its answer still comes."""
        self._process.send_signal(signal.SIGINT)

    def pause(self) -> None:
        """Stop the child and all that it started, so that it leaves the CPUs to others."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused child go on."""
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Let the child end by itself, briefly, then end it and all that it started.

        One that still owes an answer is ended at once: it would not listen.
        """
        if self._process.returncode is None and not self._unanswered and not self._returned:
            self.resume()
            with contextlib.suppress(OSError, EngineFailed, subprocess.TimeoutExpired, protocol.Closed):
                self._write("stop", protocol.encode({"do": "stop"}), 5.0)
                if self._lent is None:
                    self._process.wait(timeout=5)
                elif self._read(5.0) and not processes.descendants_of(self._process.pid):
                    self._log_text, self._returned = self._read_log(), True
                    (end_host if pool is None else pool.give_back)(self._lent)
        self.kill()

    def kill(self) -> None:
        """End the child and all that it started, at once."""
        if self._returned:
            return
        # A child that ended by itself as it was told has ended all that it started. The number of one whose end
        # was noticed may be another's by now, so it gets no signal.
        if self._process.returncode is None:
            self._signal_all(signal.SIGSTOP)
            if self._has_ended(0):
                processes.end_marked(self._host.mark)
            else:
                processes.end_descendants(self._process.pid)
            self._signal_all(signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        elif self._process.returncode != 0:
            processes.end_marked(self._host.mark)
        if not self._host.log.closed:
            self._log_text = self._read_log()
        clean_up(self._host)

    def log_tail(self, lines: int = 5) -> str:
        """The last lines that the engine wrote."""
        text = self._log_text if self._returned or self._host.log.closed else self._read_log()
        return "\n".join(text.strip().splitlines()[-lines:])

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _read(self, limit_s: float) -> bool:
        """Read an answer to its end, if it comes in time. Ctrl-C may come at any moment and loses no byte.

        Blocks in the kernel: polling would take a core from the engine under test.
        """
        end = time.monotonic() + limit_s
        pipe = cast(BinaryIO, self._process.stdout).fileno()
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        while self._arrived is None:
            left_s = end - time.monotonic()
            if left_s <= 0:
                return False
            step_s = left_s if self._tick is None else min(1.0, left_s)
            if not waiting.poll(step_s * 1000):
                if self._tick is not None:
                    self._tick()
                continue
            # Ctrl-C waits until bytes that were read are noted: lost ones would spoil the message.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
            try:
                count = os.readv(pipe, [self._incoming.space()[:_CHUNK_BYTES]])
                if count == 0:
                    raise protocol.Closed
                if self._incoming.advance(count):
                    whole, self._incoming = self._incoming, protocol.Incoming()
                    self._arrived = whole.message()
            except BlockingIOError:
                continue
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return True

    def _write(self, do: str, parts: Sequence[Any], limit_s: float) -> None:
        """Write a message to its end, if the child reads it in time."""
        end = time.monotonic() + limit_s
        pipe = cast(BinaryIO, self._process.stdin)
        if pipe.closed:
            raise BrokenPipeError
        waiting = select.poll()
        waiting.register(pipe.fileno(), select.POLLOUT)
        for part in parts:
            left = memoryview(part)
            while left:
                if not waiting.poll(max(0.0, end - time.monotonic()) * 1000):
                    raise self._hung(do, limit_s)
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(pipe.fileno(), left[:_CHUNK_BYTES]) :]

    def _hung(self, do: str, limit_s: float) -> EngineHung:
        self.kill()
        return EngineHung(
            f"Engine '{self._launch.name}' hung: no answer to '{do}' in {limit_s:g} s. "
            "It was stopped; --timeout sets how long to wait."
        )

    def _has_ended(self, limit_s: float) -> bool:
        """Whether the child ends within a time; its number stays its own until kill() takes note of the end."""
        if not hasattr(os, "waitid"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=limit_s)
            return self._process.returncode is not None
        end = time.monotonic() + limit_s
        while True:
            try:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return True
            except ChildProcessError:
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.005)

    def _death(self, do: str) -> EngineDied:
        by_itself = self._has_ended(5.0)
        self.kill()
        code = self._process.returncode if by_itself else 0
        name = self._launch.name
        how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += " (out of memory, or killed by hand)"
        elif code < 0 and _OUT_OF_MEMORY.search(self.log_tail(200)):
            how += " (out of memory)"
        elif code == -signal.SIGXCPU:
            how += " (it took more CPU time than such a task may)"
        tail = shorten(_last_words(self.log_tail(200)))
        ended_by = signal.Signals(-code).name if code < 0 else ""
        advice = self._launch.advice.get(ended_by, "")
        return EngineDied(
            f"Engine '{name}' died during '{do}': its process {how}."
            + (f" It said: {tail}" if tail else "")
            + (f" {advice}" if advice else ""),
            ended_by,
        )

    def _refusal(self, data: dict[str, Any]) -> Exception:
        name, text, kind = self._launch.name, shorten(str(data.get("text"))), data.get("kind")
        if kind == "input":
            return BadInput(f"Engine '{name}': {text}.")
        if kind == "missing":
            return BadInput(f"Engine '{name}' cannot start: {text}. See: inferlab engines")
        if kind == "memory":
            return EngineFailed(f"Engine '{name}' ran out of memory: {text}")
        return EngineRefused(f"Engine '{name}' cannot run this model: {data.get('type')}: {text}")

    def _read_log(self) -> str:
        log = self._host.log
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, end - 65536))
        return log.read().decode("utf-8", "replace")


def run_task(
    launch: Launch,
    task: str,
    arguments: Mapping[str, Any],
    blocks: Sequence[Any] = (),
    patience_s: float | None = None,
    cpus: Sequence[int] = (),
) -> dict[str, Any]:
    """Let a child of its own do a task of `child/tasks` (MODULE, or MODULE.FUNCTION); what it answers."""
    with Worker(launch, cpus, patience_s) as worker:
        return worker.ask("task", blocks, task=task, arguments=arguments).data


def _policy(launch: Launch, patience_s: float) -> dict[str, Any] | None:
    """How the child confines itself before it reads a model; None where the user switched that off."""
    switch = os.environ.get(CONFINEMENT, "on") or "on"
    if switch not in ("on", "off"):
        raise BadInput(f"{CONFINEMENT} is '{switch}'. Set it to off, or not at all.")
    if switch == "off":
        return None
    return {
        "files": not launch.trusted,
        "read": list(launch.reads),
        "writes_model": launch.writes_model,
        # The machine's: an engine may take all of it, but asking for more is a fault of the model's.
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "processes": _MOST_PROCESSES,
        # For tasks that measure nothing. Measuring has none: it takes all the cores for as long as the user says,
        # and its requests have the clock on the wall.
        "cpu_s": patience_s * (os.cpu_count() or 1),
    }


def _last_words(log: str) -> str:
    """What an engine said at its end: the lines that name a fault where there are some, before any backtrace."""
    lines = log.splitlines()
    telling = [line for line in lines if re.search(r"assert|error|abort|fatal|exception|terminat", line, re.I)]
    return "\n".join(telling[-3:] or lines[-5:])


def shorten(text: str, most: int = _LONGEST_MESSAGE) -> str:
    """An engine's message on one line, its middle left out where it is long."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"
