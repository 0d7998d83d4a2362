"""What a confined process can no longer do; each test confines a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from inferlab.child import confinement

MISSING = confinement.support()


def needs(*parts: str) -> pytest.MarkDecorator:
    lacking = [f"{part}: {MISSING[part]}" for part in parts if part in MISSING]
    return pytest.mark.skipif(bool(lacking), reason=f"not allowed here: {'; '.join(lacking)}")


def confined(policy: dict[str, Any], code: str, **environment: str) -> Any:
    """What a confined process gives as `answer`; `attempt` gives an exception's name instead of raising it."""
    program = (
        "import json, os, socket, subprocess, sys\n"
        "from inferlab.child import confinement\n"
        f"missing = confinement.confine(json.loads({json.dumps(json.dumps(policy))}))\n"
        "def attempt(step, *arguments):\n"
        "    try:\n"
        "        step(*arguments)\n"
        "    except Exception as error:\n"
        "        return type(error).__name__\n"
        "    return 'done'\n"
        f"{textwrap.dedent(code)}\n"
        "print(json.dumps(answer))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs("files")
def test_only_named_files_can_be_read_and_only_named_folders_written(tmp_path: Path) -> None:
    secret, given, out = tmp_path / "home" / "key", tmp_path / "model.onnx", tmp_path / "out"
    secret.parent.mkdir()
    out.mkdir()
    for file in (secret, given):
        file.write_text("text")
    answer = confined(
        {"read": [str(given)], "write": [str(out)]},
        f"""
        answer = [
            attempt(open, {str(given)!r}),
            attempt(open, {str(given)!r}, "a"),
            attempt(open, {str(secret)!r}),
            attempt(os.listdir, {str(tmp_path)!r}),
            attempt(open, {str(tmp_path / "new")!r}, "w"),
            attempt(os.unlink, {str(secret)!r}),
            attempt(os.rename, {str(secret)!r}, {str(out / "key")!r}),
            attempt(os.truncate, {str(secret)!r}, 0),
            attempt(open, {str(out / "new")!r}, "w"),
            attempt(open, "/etc/shadow"),
            attempt(os.listdir, "/etc"),
        ]
        """,
    )
    no = "PermissionError"
    assert answer[:10] == ["done", no, no, no, no, no, answer[6], no, "done", answer[9]]
    # EACCES, or EXDEV where the kernel's Landlock knows no moves between folders.
    assert answer[6] in (no, "OSError")
    assert answer[9] in (no, "FileNotFoundError")
    assert answer[10] == no
    assert secret.read_text() == given.read_text() == "text"
    assert not (tmp_path / "new").exists()


@needs("files")
def test_the_environment_of_other_processes_cannot_be_read() -> None:
    us = os.getpid()
    code = f'answer = [attempt(lambda: open("/proc/{us}/environ").read()), attempt(os.kill, {us}, 0)]'
    answer = confined({"read": [], "network": False}, code)
    assert answer[0] == "PermissionError"
    if confinement.landlock_abi() >= 6:
        assert answer[1] == "PermissionError"


@needs("files")
def test_what_a_confined_process_starts_is_confined_too(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    answer = confined(
        {"read": [], "network": False},
        f'answer = subprocess.run(["cat", {str(tmp_path / "key")!r}], capture_output=True, text=True).stdout',
    )
    assert answer == ""


@needs("network")
def test_no_socket_reaches_anything() -> None:
    answer = confined(
        {"read": [], "network": False},
        """
        families = [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK]
        answer = [attempt(socket.socket, family, kind) for family in families
                  for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        answer.append(attempt(socket.create_connection, ("127.0.0.1", 9)))
        answer.append(attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM))
        left, right = socket.socketpair()
        left.send(b"a pipe")
        answer.append(right.recv(10).decode())
        """,
    )
    assert answer == ["PermissionError"] * 10 + ["a pipe"]


@needs("network")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86-64 has a second set of numbers")
def test_neither_io_uring_nor_the_second_set_of_numbers_goes_around_the_filter() -> None:
    answer = confined(
        {"read": [], "network": False},
        """
        import ctypes
        call = ctypes.CDLL(None, use_errno=True).syscall
        # socket(AF_INET, SOCK_STREAM), as x86-64 and as x32; io_uring_setup
        answer = [(call(number, 2, 1, 0), ctypes.get_errno()) for number in (41, 0x40000000 | 41, 425)]
        """,
    )
    assert answer == [[-1, 1]] * 3


@needs("memory")
def test_memory_beyond_the_limit_is_refused() -> None:
    code = "answer = [attempt(bytearray, 100 << 20), attempt(bytearray, 600 << 20)]"
    assert confined({"memory_bytes": 500 << 20}, code) == ["done", "MemoryError"]


@needs("file_size")
def test_a_file_does_not_grow_beyond_the_limit(tmp_path: Path) -> None:
    code = f"""
    file = open({str(tmp_path / "endless")!r}, "wb", buffering=0)
    written = [attempt(file.write, bytes(1 << 16)) for _ in range(20)]
    answer = [written[0], written[-1]]
    """
    assert confined({"file_bytes": 1 << 20}, code) == ["done", "OSError"]
    assert (tmp_path / "endless").stat().st_size == 1 << 20


@needs("cpu")
def test_a_process_that_computes_for_ever_is_ended() -> None:
    program = "from inferlab.child.confinement import confine\nconfine({'cpu_s': 1})\nwhile True: pass"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode in (-24, -9)  # SIGXCPU


@needs("processes")
def test_processes_beyond_the_limit_are_refused() -> None:
    code = """
    for _ in range(30000):
        answer = attempt(subprocess.Popen, ["sleep", "5"])
        if answer != "done":
            break
    """
    assert confined({"processes": 0}, code) == "BlockingIOError"


@needs("privileges", "files")
def test_limits_cannot_be_raised_again() -> None:
    code = """
    import resource
    answer = attempt(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    """
    assert confined({"read": [], "file_bytes": 1 << 20}, code) == "ValueError"


@needs("out_of_memory")
def test_the_kernel_ends_a_confined_process_before_others() -> None:
    assert confined({}, "answer = open('/proc/self/oom_score_adj').read()") == "1000\n"


def test_a_policy_that_asks_for_nothing_confines_nothing(tmp_path: Path) -> None:
    code = f"""
    answer = [missing, attempt(open, {str(tmp_path / "new")!r}, "w"), attempt(socket.socket)]
    """
    assert confined({}, code)[1:] == ["done", "done"]


@needs("files")
def test_an_empty_entry_of_the_path_does_not_open_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    source = str(Path(confinement.__file__).parents[2])
    code = f"""
    os.chdir({str(tmp_path)!r})
    answer = attempt(open, "key")
    """
    program_path = f"{source}:{tmp_path}"
    assert confined({"read": []}, code, HOME=str(tmp_path), PYTHONPATH=program_path) == "PermissionError"
