"""What reads untrusted files runs in a process that can do nothing else, and whose end is a sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inferlab.child.confinement import support
from inferlab.errors import BadInput, NotThere
from inferlab.worker import time_limit
from tests.helpers import doors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "model.onnx"
    path.write_text("the model")
    (folder / "beside.txt").write_text("beside it")
    return path


def test_only_the_models_folder_can_be_read(model: Path, tmp_path: Path) -> None:
    if "files" in support():
        pytest.skip(support()["files"])
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    assert doors.read_text(model, model) == "the model"
    assert doors.read_text(model, model.with_name("beside.txt")) == "beside it"
    with pytest.raises(BadInput, match="PermissionError"):
        doors.read_text(model, secret)


def test_only_where_it_is_to_write_can_be_written(model: Path, tmp_path: Path) -> None:
    if "files" in support():
        pytest.skip(support()["files"])
    folder = tmp_path / "new" / "folder"
    assert doors.write_text(model, folder, folder / "a.txt") == 7
    for other in (tmp_path / "b.txt", model):
        with pytest.raises(BadInput, match="PermissionError"):
            doors.write_text(model, folder, other)
    assert (folder / "a.txt").read_text() == "written"
    assert model.read_text() == "the model"
    assert not (tmp_path / "b.txt").exists()


def test_there_is_no_network(model: Path) -> None:
    if "network" in support():
        pytest.skip(support()["network"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert doors.connect(model, server.getsockname()[1]) == "PermissionError"


@pytest.mark.parametrize(
    ("how", "error", "sentence"),
    [
        ("crash", BadInput, "model.onnx cannot be read: its reader was ended by SIGSEGV"),
        ("exit", BadInput, "model.onnx cannot be read: its reader ended with code 3"),
        ("memory", BadInput, "model.onnx takes more than 1.1 GB of memory to read"),
        ("damaged", BadInput, "The ONNX file .*model.onnx is damaged and cannot be read: its tail is missing"),
        ("not there", NotThere, "^There is no such thing.$"),
        ("fault", BadInput, "model.onnx cannot be read: KeyError: 'c'.*The details are in"),
    ],
)
def test_how_a_reader_ends_is_a_sentence(how: str, error: type[Exception], sentence: str, model: Path) -> None:
    with pytest.raises(error, match=sentence):
        doors.behave(model, how)
    assert doors.behave(model, "well") == "well"


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_a_reader_that_takes_too_long_is_ended_and_says_so(how: str, model: Path) -> None:
    with time_limit(1.0), pytest.raises(BadInput, match=r"model.onnx takes more than 1 s to read.*--timeout"):
        doors.behave(model, how)


def test_what_comes_back_has_the_type_that_was_announced(model: Path) -> None:
    np.testing.assert_array_equal(
        doors.double(model, np.arange(6).reshape(2, 3)), np.arange(0, 12, 2).reshape(2, 3)
    )
    with pytest.raises(BadInput, match="the answer of its reader is not valid"):
        doors.lie(model)


def test_every_call_has_a_process_of_its_own_also_from_many_threads(model: Path) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(doors.behave(model, "pid"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pids, parents = zip(*(answer.split() for answer in answers), strict=True)
    assert len(set(pids)) == 12
    assert len(set(parents)) == 1
    assert str(os.getpid()) not in {*pids, *parents}


def _python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _soon(happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.02)
    return False


_HANGING = """
    import sys, threading, time
    from pathlib import Path
    from tests.helpers import doors
    model = Path(sys.argv[1])
    print(doors.behave(model, "pid").split()[1], flush=True)
    threading.Timer(0.5, lambda: print("hangs", flush=True)).start()
    doors.behave(model, "hang")
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
def test_nothing_is_left_behind_when_the_caller_ends(number: signal.Signals, model: Path) -> None:
    with _python(_HANGING, str(model)) as caller:
        assert caller.stdout is not None
        server = int(caller.stdout.readline())
        assert caller.stdout.readline() == "hangs\n"
        children = Path(f"/proc/{server}/task/{server}/children")
        assert _soon(lambda: bool(children.read_text().split()))
        readers = [int(one) for one in children.read_text().split()]
        assert not _gone(server)
        caller.send_signal(number)
        assert _soon(lambda: all(map(_gone, [server, *readers])))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
def test_a_server_that_was_killed_is_replaced(model: Path) -> None:
    server = int(doors.behave(model, "pid").split()[1])
    os.kill(server, signal.SIGKILL)
    assert _soon(lambda: _gone(server))
    assert int(doors.behave(model, "pid").split()[1]) != server


def test_a_fork_of_the_caller_has_a_server_of_its_own(model: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from tests.helpers import doors
        model = Path(sys.argv[1])
        mine = doors.behave(model, "pid").split()[1]
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, doors.behave(model, "pid").split()[1].encode())
            os._exit(0)
        os.wait()
        print(mine, os.read(reader, 100).decode(), doors.behave(model, "pid").split()[1])
    """
    with _python(code, str(model)) as caller:
        output, errors = caller.communicate(timeout=120)
    mine, theirs, again = output.split()
    assert (mine == again, mine == theirs, errors) == (True, False, "")


def test_a_file_in_the_current_folder_is_not_imported_instead_of_ours(model: Path, tmp_path: Path) -> None:
    (tmp_path / "onnx.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    code = f"""
        import os, sys
        from tests.helpers import doors
        from pathlib import Path
        os.chdir({str(tmp_path)!r})
        print(doors.behave(Path(sys.argv[1]), "well"))
    """
    with _python(code, str(model)) as caller:
        assert caller.communicate(timeout=120) == ("well\n", "")
    assert not (tmp_path / "ran").exists()
