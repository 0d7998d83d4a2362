"""Run functions that read untrusted models in processes of their own, which can do nothing else.

A function with the decorator `confined` is a door: called in an ordinary process, its arguments are sent to a
process that is forked for this call, may read the model's folder, write where the function writes, has no network
and limited memory and time, and ends with its answer. Arguments and results travel as data by their type hints,
never as pickles: what comes back is not trusted either. Inside such a process doors are plain functions.

The processes are forked by a small server with one thread, started at the first call, that has imported what
readers need and never reads a model itself. It ends when its parent does, however that ends.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_type_hints

from inferlab import codec, errors
from inferlab.errors import BadInput, Damaged, InferlabError
from inferlab.files import new_folders
from inferlab.machine import CAN_FORK
from inferlab.settings import CONFINEMENT
from inferlab.worker import timeout_s

P = ParamSpec("P")
R = TypeVar("R")

#: What a reader may take beside a multiple of the sizes of its model's files.
BASE_MEMORY_BYTES = 1 << 30
_MEMORY_PER_BYTE = 6
_LARGEST_ANSWER = 1 << 30
_LONGEST_TEXT = 2000
_MOST_PROCESSES = 16
# What every reader needs, imported before the first fork, and what some modules import only when they run.
_FIRST = (
    *("inferlab.child.confinement", "inferlab.model.onnx_file"),
    *("inferlab.model.describe", "inferlab.model.structure"),
)
_BESIDE = {"inferlab.model.flops.count": ("inferlab.model.flops.formulas", "onnx.reference")}
_NAME_BYTES = 128
# poll's flag for an end that was closed, which not every system has.
_HANG_UP = getattr(select, "POLLRDHUP", 0)


@dataclass(frozen=True, slots=True)
class Call:
    """What a process is to do, and what it may do."""

    module: str
    name: str
    arguments: bytes
    #: What is read, as sentences name it.
    subject: str
    folder: str
    #: Where the caller finds its modules.
    paths: tuple[str, ...]
    #: None for all files and the network, where the user switched confinement off.
    read: tuple[str, ...] | None
    write: tuple[str, ...]
    memory_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: a result, or an error by its class and text."""

    result: bytes = b""
    error: str = ""
    text: str = ""
    #: The traceback of an error that is none of ours.
    details: str = ""


class _Thread(threading.local):
    """How a thread calls doors: in a forked process, in this process where the system cannot fork, or, within a
    door, as plain functions."""

    doors: Literal["forked", "here", "plain"] = "forked" if CAN_FORK else "here"


_thread = _Thread()
_lock = threading.Lock()
_control: socket.socket | None = None


def confined(*, reads: Sequence[str], writes: Sequence[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a door; `reads` and `writes` name the parameters that are models, files or folders."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def door(*args: P.args, **kwargs: P.kwargs) -> R:
            if _thread.doors == "plain":
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            with _targets([Path(bound.arguments[name]) for name in writes]) as folders:
                if _thread.doors == "forked":
                    return cast(R, _call(function, dict(bound.arguments), reads, folders))
                with _naming(_subject(bound.arguments, reads)), _doors("plain"):
                    return function(*bound.args, **bound.kwargs)

        return door

    return decorate


def in_this_process() -> contextlib.AbstractContextManager[None]:
    """Let doors run as plain functions in this thread: for tests that call them thousands of times."""
    return _doors("here")


@contextlib.contextmanager
def _doors(way: Literal["here", "plain"]) -> Iterator[None]:
    before, _thread.doors = _thread.doors, way
    try:
        yield
    finally:
        _thread.doors = before


@contextlib.contextmanager
def _naming(subject: str) -> Iterator[None]:
    """Turn a clause of what is wrong with a file into a sentence that names it."""
    try:
        yield
    except Damaged as error:
        raise damaged(subject, error) from error


def damaged(subject: str | Path, error: Exception) -> BadInput:
    """What is said of an ONNX file that holds what cannot be."""
    return BadInput(
        f"The ONNX file {subject} is damaged and cannot be read: {error}. Download or export it again."
    )


def _subject(arguments: Mapping[str, Any], reads: Sequence[str]) -> str:
    return _path(arguments[reads[0]]) if reads else "that the engine made of the model"


def _path(value: Any) -> str:
    return str(getattr(value, "path", value))


@contextlib.contextmanager
def _targets(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The folders that a door writes into, made before a process is confined to them; paths may name files."""
    folders = [path.parent if path.is_file() else path for path in paths]
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(new_folders(*folders))
        except OSError as error:
            raise BadInput(f"The copy cannot be written to {folders[0]}: {error.strerror or error}.") from error
        yield folders


def _call(
    function: Callable[..., Any], keywords: dict[str, Any], reads: Sequence[str], targets: list[Path]
) -> Any:
    subject = _subject(keywords, reads)
    sources = [_path(keywords[name]) for name in reads if keywords[name] is not None]
    sizes = [_size(keywords[name]) for name in reads]
    sizes += [len(value) for value in keywords.values() if isinstance(value, bytes)]
    memory_bytes = BASE_MEMORY_BYTES + _MEMORY_PER_BYTE * sum(sizes)
    patience_s = timeout_s()
    try:
        arguments = codec.encode(keywords)
    except UnicodeEncodeError:
        raise BadInput(f"{subject!r} cannot be read: its path is not text. Rename it.") from None
    readable = tuple(dict.fromkeys(file for source in sources for file in _readable(source)))
    call = Call(
        module=function.__module__,
        name=function.__qualname__,
        arguments=arguments,
        subject=subject,
        folder=str(Path.cwd()),
        paths=tuple(path for path in sys.path if path),
        read=None if os.environ.get(CONFINEMENT) == "off" else readable,
        write=tuple(map(str, targets)),
        memory_bytes=memory_bytes,
        cpu_s=patience_s + 10,
    )
    content = _exchange(codec.encode(call), call.module, patience_s, subject)
    answer = _understood(content, subject, memory_bytes)
    if not answer.error:
        try:
            return codec.decode(answer.result, _hints(function)["return"])
        except ValueError as error:
            raise BadInput(
                f"{subject} cannot be read: the answer of its reader is not valid ({error})."
            ) from error
    raise _error(answer, subject, memory_bytes)


def _error(answer: Answer, subject: str, memory_bytes: int) -> InferlabError:
    if answer.error == "MemoryError":
        return BadInput(
            f"{subject} takes more than {memory_bytes / 1e9:.1f} GB of memory to read, so it is refused."
        )
    kind = getattr(errors, answer.error, None)
    if isinstance(kind, type) and issubclass(kind, InferlabError) and kind is not errors.GoalNotReached:
        return kind(answer.text)
    # The last line: a reader met what it does not know. The file is to blame or we are; the details tell.
    return BadInput(
        f"{subject} cannot be read: {answer.error}: {answer.text}. It is damaged, or inferlab does not know "
        f"something in it. {errors.keep_text(answer.details)}"
    )


def _size(value: Any) -> int:
    """The size of a model with its data, or of a file."""
    if value is None:
        return 0
    size = getattr(value, "size_bytes", None)
    if isinstance(size, int):
        return size
    try:
        return Path(_path(value)).stat().st_size
    except OSError:
        return 0


def _readable(source: str) -> Iterator[str]:
    """What may be read of a model: its folder, where its data files are; of the home folder only its files."""
    path = Path(source)
    home = Path.home()
    for place in dict.fromkeys((path.absolute(), path.resolve())):
        folder = place if place.is_dir() else place.parent
        if not home.is_relative_to(folder):
            yield str(folder)
            continue
        with contextlib.suppress(OSError):
            yield from (entry.path for entry in os.scandir(folder) if entry.is_file())


@functools.lru_cache(maxsize=64)
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def _exchange(request: bytes, module: str, patience_s: float, subject: str) -> bytes:
    """Send a request to a process of its own; all that it answers, and at the end how it ended."""
    for attempt in (1, 2):
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    _hand_over(theirs, module)
                ours.settimeout(patience_s)
                ours.sendall(struct.pack("=Q", len(request)) + request)
                return _received(ours, time.monotonic() + patience_s)
            except TimeoutError:
                raise BadInput(
                    f"{subject} takes more than {patience_s:g} s to read, so it is refused. "
                    "--timeout sets how long to wait."
                ) from None
            except (BrokenPipeError, ConnectionResetError, EOFError):
                # The server was killed; another one takes its place.
                if attempt == 2:
                    raise InferlabError("The process that reads models cannot be started.") from None
                _forget()
            except OSError as error:
                raise InferlabError(f"The process that reads models cannot be started: {error}.") from error
    raise AssertionError("not reached")


def _received(ours: socket.socket, end: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        ours.settimeout(left_s)
        piece = ours.recv(1 << 20)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST_ANSWER:
            raise TimeoutError
    if size < 4:
        raise EOFError
    return b"".join(pieces)


def _understood(content: bytes, subject: str, memory_bytes: int) -> Answer:
    """The answer of a process, unless it died; the last four bytes are the server's, and say how it ended."""
    (status,) = struct.unpack("=i", content[-4:])
    if status == 0:
        with contextlib.suppress(ValueError):
            answer: Answer = codec.decode(content[:-4], Answer)
            return answer
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        raise BadInput(
            f"{subject} cannot be read: its reader was ended ({signal.Signals(-code).name}), it takes too much "
            f"memory (more than {memory_bytes / 1e9:.1f} GB) or time."
        )
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    raise BadInput(f"{subject} cannot be read: its reader {how}. The file is damaged or malicious.")


def _hand_over(theirs: socket.socket, module: str) -> None:
    """Give one end of a pair of sockets to the server, which forks a process for it."""
    with _lock:
        global _control
        if _control is None:
            _control = _start()
        socket.send_fds(_control, [module.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")], [theirs.fileno()])


def _start() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        package = str(Path(__file__).resolve().parent.parent.parent)
        paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        subprocess.Popen(
            # Without the current folder on its path (-P): it may hold files of the model's maker.
            [sys.executable, "-P", "-m", "inferlab.model.confined", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            # A session of its own: Ctrl-C reaches only us, and it ends when we hang up.
            start_new_session=True,
            # NumPy's thread pool would be threads that a confined process must not have.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
    return ours


def _forget() -> None:
    """Let the server end; the next call starts another one."""
    global _control
    with _lock:
        if _control is not None:
            _control.close()
            _control = None


def _after_fork() -> None:
    """A fork of ours needs a server of its own: this one ends with our parent."""
    global _lock
    _lock = threading.Lock()
    _forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def serve(control: socket.socket) -> None:
    """Fork a process for every socket that arrives; end them with their callers, and ourselves with our parent."""
    for name in _FIRST:
        importlib.import_module(name)
    # The first question makes onnx register its operators, which takes longer than most readers do.
    importlib.import_module("onnx.defs").has("Identity")
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    waiting.register(wake, select.POLLIN)
    calls: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor == wake.fileno():
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
            elif descriptor in calls:
                _end(calls[descriptor][0])
                waiting.unregister(descriptor)
            elif not _accept(control, calls, waiting):
                for pid, _ in calls.values():
                    _end(pid)
                return
        _reap(calls, waiting)


def _accept(control: socket.socket, calls: dict[int, tuple[int, socket.socket]], waiting: Any) -> bool:
    name, descriptors, _, _ = socket.recv_fds(control, _NAME_BYTES, 1)
    if not descriptors:
        return False
    _import(name.rstrip(b"\0").decode())
    call = socket.socket(fileno=descriptors[0])
    pid = os.fork()
    if pid == 0:
        _be_confined(call)
    calls[call.fileno()] = (pid, call)
    waiting.register(call, _HANG_UP)
    return True


def _import(module: str) -> None:
    """Import what a call needs before it has a process, so that the next ones have it too."""
    if module in sys.modules:
        return
    for name in (module, *_BESIDE.get(module, ())):
        with contextlib.suppress(Exception):  # the process itself says what is wrong
            importlib.import_module(name)
    gc.freeze()  # what is there stays: collecting it in every fork would copy its pages


def _reap(calls: dict[int, tuple[int, socket.socket]], waiting: Any) -> None:
    """Tell the callers of processes that ended how they did."""
    while calls:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        for descriptor, (child, call) in list(calls.items()):
            if child == pid:
                _end(pid)  # what it has started and left behind
                with contextlib.suppress(KeyError):
                    waiting.unregister(descriptor)
                with contextlib.suppress(OSError):
                    call.sendall(struct.pack("=i", status))
                call.close()
                del calls[descriptor]


def _end(pid: int) -> None:
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _be_confined(call: socket.socket) -> None:
    """The life of a forked process: read the request, give everything else up, answer, end."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_server()
        own = call.fileno()
        os.closerange(3, own)
        os.closerange(own + 1, 4096)
        _answer(call)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _die_with_server() -> None:
    """End when the server ends, also where it is killed (PR_SET_PDEATHSIG)."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _answer(call: socket.socket) -> None:
    with call.makefile("rb") as stream:
        (size,) = struct.unpack("=Q", stream.read(8))
        request: Call = codec.decode(stream.read(size), Call)
    try:
        answer = _run(request)
    except MemoryError:
        answer = Answer(error="MemoryError")
    except Exception as error:
        ours = isinstance(error, InferlabError)
        details = "" if ours else traceback.format_exc()[-20_000:]
        answer = Answer(error=type(error).__name__, text=str(error)[:_LONGEST_TEXT], details=details)
    call.sendall(codec.encode(answer))


def _run(request: Call) -> Answer:
    """Give everything up that the call does not need, then do what it asks for."""
    from inferlab.child.confinement import confine

    os.chdir(request.folder)
    # Behind our own: nothing of the caller's takes the place of what we import.
    sys.path += [path for path in request.paths if path not in sys.path]
    module = importlib.import_module(request.module)
    confine(
        {
            "read": request.read,
            "write": request.write,
            "network": request.read is None,
            "memory_bytes": request.memory_bytes,
            "cpu_s": request.cpu_s,
            "file_bytes": 4 * request.memory_bytes,
            "processes": _MOST_PROCESSES,
        }
    )
    _Thread.doors = "plain"  # for all threads of this process
    function = inspect.unwrap(getattr(module, request.name))
    hints = _hints(function)
    encoded: dict[str, Any] = codec.decode(request.arguments, dict[str, Any])
    arguments = {name: codec.decode(codec.encode(value), hints[name]) for name, value in encoded.items()}
    with _naming(request.subject):
        return Answer(result=codec.encode(function(**arguments)))


if __name__ == "__main__":
    # As the module that others import, not as __main__: there is one state.
    importlib.import_module("inferlab.model.confined").serve(socket.socket(fileno=int(sys.argv[1])))
