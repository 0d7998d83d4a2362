"""Start a child process, speak with it, stop it, and say how it died."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from inferlab.child import protocol
from inferlab.errors import BadInput, EngineFailed, EngineHung, EngineRefused

_CHILD = Path(__file__).parent / "child" / "main.py"
_LONGEST_MESSAGE = 600

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


@dataclass(frozen=True, slots=True)
class Reply:
    """A child's answer."""

    data: dict[str, Any]
    blocks: list[bytes]

    def arrays(self) -> dict[str, Any]:
        """The NumPy arrays that came with it."""
        return protocol.unpack_arrays(self.data["arrays"], self.blocks)


class Worker:
    """A child process with one engine; a context manager that never leaves it behind."""

    def __init__(
        self,
        launch: Launch,
        cpus: Sequence[int] = (),
        patience_s: float = 300.0,
        tick: Callable[[], None] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        self._launch = launch
        self._patience_s = patience_s
        self._tick = tick
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by kill
        try:
            self._process = subprocess.Popen(
                [launch.interpreter, *(["-I", "-B"] if launch.isolated else []), str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **_QUIET, **launch.environment},
                pass_fds=descriptors,
                # A session of its own: Ctrl-C reaches only us, and we can stop all that the engine started.
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise BadInput(f"Engine '{launch.name}' cannot be started: {error}. See: inferlab engines") from error
        try:
            opened = self.ask("open", engine=dict(launch.reference), cpus=list(cpus))
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
        """Send a request without waiting, so that several children work at once."""
        try:
            protocol.send(cast(BinaryIO, self._process.stdin), {"do": do, **data}, blocks)
        except OSError:
            raise self._death(do) from None

    def wait(self, do: str, work_s: float = 0.0, patience_s: float | None = None) -> Reply:
        """Wait for the answer to a request that was sent."""
        limit_s = work_s + (self._patience_s if patience_s is None else patience_s)
        if not self._readable(limit_s):
            self.kill()
            raise EngineHung(
                f"Engine '{self._launch.name}' hung: no answer to '{do}' in {limit_s:g} s. "
                "It was stopped; --timeout sets how long to wait."
            )
        try:
            with _uninterrupted():
                data, received = protocol.receive(cast(BinaryIO, self._process.stdout))
        except protocol.Closed:
            raise self._death(do) from None
        if data["ok"]:
            return Reply(data, received)
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
        """Let the child end by itself, briefly, then end it and all that it started."""
        self.resume()
        try:
            protocol.send(cast(BinaryIO, self._process.stdin), {"do": "stop"})
            self._process.wait(timeout=5)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End the child and all that it started, at once."""
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                cast(BinaryIO, pipe).close()
        if not self._log.closed:
            self._log_text = self._read_log()
            self._log.close()

    def log_tail(self, lines: int = 5) -> str:
        """The last lines that the engine wrote."""
        text = self._log_text if self._log.closed else self._read_log()
        return "\n".join(text.strip().splitlines()[-lines:])

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _readable(self, limit_s: float) -> bool:
        """Wait for an answer. Blocks in the kernel: polling would take a core from the engine under test."""
        end = time.monotonic() + limit_s
        # Our pipe's buffer is empty between answers, so the kernel's word is enough.
        pipe = [cast(BinaryIO, self._process.stdout)]
        while True:
            left_s = end - time.monotonic()
            if left_s <= 0:
                return False
            step_s = left_s if self._tick is None else min(1.0, left_s)
            if select.select(pipe, [], [], step_s)[0]:
                return True
            if self._tick is not None:
                self._tick()

    def _death(self, do: str) -> EngineFailed:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.kill()
        name = self._launch.name
        how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += " (out of memory, or killed by hand)"
        tail = shorten(_last_words(self.log_tail(200)))
        return EngineFailed(
            f"Engine '{name}' died during '{do}': its process {how}." + (f" It said: {tail}" if tail else "")
        )

    def _refusal(self, data: dict[str, Any]) -> Exception:
        name, text = self._launch.name, shorten(str(data["text"]))
        if data["kind"] == "input":
            return BadInput(f"Engine '{name}': {text}.")
        if data["kind"] == "missing":
            return BadInput(f"Engine '{name}' cannot start: {text}. See: inferlab engines")
        if data["kind"] == "memory":
            return EngineFailed(f"Engine '{name}' ran out of memory: {text}")
        return EngineRefused(f"Engine '{name}' cannot run this model: {data['type']}: {text}")

    def _read_log(self) -> str:
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - 65536))
        return self._log.read().decode("utf-8", "replace")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until a message is read: half of one left in the pipe would spoil the next."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
