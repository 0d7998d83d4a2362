"""Hostile engines, as a model that took over its engine would be: what they reach, what is left of them."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.child import confinement, protocol
from inferlab.errors import BadInput, EngineFailed, EngineHung
from inferlab.worker import Launch, Worker

MISSING = confinement.support()

ATTEMPT = """
import ctypes, fcntl, json, os, signal, socket, stat, struct, subprocess, sys, tempfile, time

def attempt(step, *arguments):
    try:
        step(*arguments)
    except Exception as error:
        return type(error).__name__
    return "done"

def answers():
    "The pipe to the parent."
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE
            if mode == os.O_WRONLY and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                return int(name)
        except OSError:
            continue

def left_behind(seconds):
    "A process that left our session and our family; its number."
    heard, said = os.pipe()
    if os.fork() == 0:
        os.setsid()
        process = os.fork()
        if process == 0:
            for descriptor in os.listdir("/proc/self/fd"):
                try:
                    os.close(int(descriptor))
                except OSError:
                    pass
            time.sleep(seconds)
            os._exit(0)
        os.write(said, str(process).encode())
        os._exit(0)
    return int(os.read(heard, 20))

class Hostile:
    def bind(self, inputs, stream=0):
        return lambda: [inputs["x"]]

    def load(self, model, options):
        model = options.options.get("model", model)
        return globals()["act"](model, options.options)
"""


def needs(*parts: str) -> pytest.MarkDecorator:
    lacking = [f"{part}: {MISSING[part]}" for part in parts if part in MISSING]
    return pytest.mark.skipif(bool(lacking), reason=f"not allowed here: {'; '.join(lacking)}")


def hostile(folder: Path, act: str, trusted: bool = False) -> Launch:
    """An engine that does `act` when it is to load a model."""
    file = folder / "engine" / "hostile.py"
    file.parent.mkdir(exist_ok=True)
    lines = "".join(f"    {line}\n" for line in act.strip().splitlines())
    file.write_text(f"{ATTEMPT}\ndef act(model, given):\n{lines}")
    return Launch("hostile", {"file": str(file), "class": "Hostile"}, trusted=trusted)


def request(model: Path | str, **options: str) -> dict[str, Any]:
    return {
        "model": str(model), "kind": "onnx", "groups": [[]], "layout": "each", "threads": 1, "cores": 1,
        "scheduler": "single_stream", "pinning": "none", "batch_size": 1, "shapes": {}, "options": options,
        "outputs": ["y"],
    }  # fmt: skip


def load(worker: Worker, model: Path | str = "none.onnx", **options: str) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = worker.ask("load", **request(model, **options)).data["settings"]
    return settings


def gone(pid: int) -> bool:
    """Whether a process ends before our patience does."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@needs("files")
def test_an_engine_reads_the_model_and_none_of_the_users_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("secret")
    (home / "other.onnx").write_text("secret")
    (home / "model.onnx").write_bytes(b"")
    act = f"""
return {{
    "model": attempt(open, model),
    "key": attempt(open, {str(home / ".ssh" / "id_rsa")!r}),
    "beside": attempt(open, {str(home / "other.onnx")!r}),
    "list": attempt(os.listdir, {str(home)!r}),
    "write": attempt(open, {str(home / "new")!r}, "w"),
    "overwrite": attempt(open, model, "r+"),
    "delete": attempt(os.unlink, model),
    "cat": subprocess.run(["cat", {str(home / ".ssh" / "id_rsa")!r}], stdout=subprocess.PIPE).stdout.decode(),
    "scratch": attempt(open, os.path.join(tempfile.mkdtemp(), "new"), "w"),
    "home": attempt(open, os.path.expanduser("~/.cached"), "w"),
}}
"""
    with Worker(hostile(tmp_path, act)) as worker:
        answer = load(worker, home / "model.onnx")
    no = "PermissionError"
    assert answer == {
        "model": "done", "key": no, "beside": no, "list": no, "write": no, "overwrite": no, "delete": no,
        "cat": "", "scratch": "done", "home": "done",
    }  # fmt: skip
    assert sorted(path.name for path in home.iterdir()) == [".ssh", "model.onnx", "other.onnx"]


@needs("files")
def test_data_that_a_model_keeps_in_other_files_is_read(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    def outside(name: str, file: str) -> TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=file)
        return tensor

    for name in ("weights.bin", "sub/constant.bin", "inner.bin", "other.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(4))
    inner = helper.make_graph([], "inner", [], [], initializer=[outside("v", "inner.bin")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=outside("c", "sub/constant.bin")),
        helper.make_node("If", ["x"], ["z"], then_branch=inner, else_branch=inner),
    ]
    graph = helper.make_graph(nodes, "g", [], [], initializer=[outside("w", "weights.bin"), outside("e", "../e")])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    act = f"""
names = ["model.onnx", "weights.bin", "sub/constant.bin", "inner.bin", "other.bin"]
return {{name: attempt(open, os.path.join({str(tmp_path)!r}, name)) for name in names}}
"""
    with Worker(hostile(tmp_path, act)) as worker:
        answer = load(worker, tmp_path / "model.onnx")
    assert answer == {
        "model.onnx": "done",
        "weights.bin": "done",
        "sub/constant.bin": "done",
        "inner.bin": "done",
        "other.bin": "PermissionError",
    }


@needs("network")
def test_an_engine_reaches_neither_the_network_nor_servers_of_this_machine(tmp_path: Path) -> None:
    act = """
port = int(given["port"])
return {
    "tcp": attempt(socket.create_connection, ("127.0.0.1", port)),
    "udp": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))),
    "unix": attempt(lambda: socket.socket(socket.AF_UNIX).connect(given["unix"])),
    "listen": attempt(lambda: socket.socket().bind(("127.0.0.1", 0))),
}
"""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "s"))
        local.listen()
        with Worker(hostile(tmp_path, act)) as worker:
            answer = load(worker, port=str(server.getsockname()[1]), unix=str(tmp_path / "s"))
    assert set(answer.values()) == {"PermissionError"}


@needs("memory")
def test_an_engine_that_eats_all_memory_has_failed_for_that_reason(tmp_path: Path) -> None:
    # Never touched, so nobody else suffers.
    act = """
import mmap
kept = []
while True:
    kept.append(mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
"""
    with (
        Worker(hostile(tmp_path, act)) as worker,
        pytest.raises(EngineFailed, match=r"Engine 'hostile' ran out of memory: \[Errno 12\]"),
    ):
        load(worker)


@needs("file_size")
def test_an_endless_file_ends(tmp_path: Path) -> None:
    act = """
with tempfile.TemporaryFile() as file:
    return {"small": attempt(file.truncate, 1 << 20), "large": attempt(file.truncate, 1 << 40)}
"""
    with Worker(hostile(tmp_path, act)) as worker:
        assert load(worker) == {"small": "done", "large": "OSError"}


@needs("files")
def test_an_engine_cannot_end_or_watch_its_parent(tmp_path: Path) -> None:
    act = """
parent = os.getppid()
return {
    "environ": attempt(lambda: open("/proc/{}/environ".format(parent)).read()),
    "memory": attempt(lambda: open("/proc/{}/mem".format(parent), "rb")),
    "signal": attempt(os.kill, parent, 0),
}
"""
    with Worker(hostile(tmp_path, act)) as worker:
        answer = load(worker)
    assert answer["environ"] == answer["memory"] == "PermissionError"
    if confinement.landlock_abi() >= 6:
        assert answer["signal"] == "PermissionError"


def test_an_engine_of_the_users_own_keeps_files_and_network_but_not_all_memory(tmp_path: Path) -> None:
    (tmp_path / "licence").write_text("text")
    act = f"""
import resource
return {{
    "file": attempt(open, {str(tmp_path / "licence")!r}),
    "socket": attempt(socket.socket),
    "home": os.path.expanduser("~"),
    "limited": resource.getrlimit(resource.RLIMIT_DATA)[1] != resource.RLIM_INFINITY,
}}
"""
    with Worker(hostile(tmp_path, act, trusted=True)) as worker:
        answer = load(worker)
    assert answer == {
        "file": "done",
        "socket": "done",
        "home": str(Path.home()),
        "limited": "memory" not in MISSING,
    }


def test_confinement_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_text("text")
    act = f'return {{"file": attempt(open, {str(tmp_path / "data")!r}), "socket": attempt(socket.socket)}}'
    monkeypatch.setenv("INFERLAB_CONFINEMENT", "off")
    with Worker(hostile(tmp_path, act)) as worker:
        assert load(worker) == {"file": "done", "socket": "done"}
    monkeypatch.setenv("INFERLAB_CONFINEMENT", "no")
    with pytest.raises(BadInput, match=r"INFERLAB_CONFINEMENT is 'no'\. Set it to off, or not at all"):
        Worker(hostile(tmp_path, act))


@pytest.mark.parametrize("end", ["close", "kill"])
def test_the_scratch_folder_is_removed_also_where_it_was_made_unreadable(tmp_path: Path, end: str) -> None:
    act = """
place = tempfile.mkdtemp()
open(os.path.join(place, "file"), "w").close()
os.chmod(place, 0)
return {"folder": tempfile.gettempdir()}
"""
    worker = Worker(hostile(tmp_path, act))
    folder = Path(str(load(worker)["folder"]))
    assert folder.is_dir()
    worker.close() if end == "close" else worker.kill()
    assert not folder.exists()


GARBAGE = {
    "huge text": ('struct.pack("<II", 0xFFFFFFF0, 0)', "announces 4,294,967,280 bytes of text and 0 blocks"),
    "many blocks": ('struct.pack("<II", 2, 0xFFFFFFFF)', "announces 2 bytes of text and 4,294,967,295 blocks"),
    "huge block": ('struct.pack("<IIQ", 2, 1, 1 << 60)', "announces blocks of 1,152,921,504,606,846,976 bytes"),
    "no JSON": ('struct.pack("<II", 4, 0) + b"oops"', "is not JSON: Expecting value"),
    "no text": ('struct.pack("<II", 4, 0) + bytes([255] * 4)', "is not JSON"),
    "deep JSON": ('struct.pack("<II", 1000000, 0) + b"[" * 1000000', "is not JSON"),
    "no object": ('struct.pack("<II", 2, 0) + b"[]"', "does not say whether the request was done"),
    "no answer": ('struct.pack("<II", 2, 0) + b"{}"', "does not say whether the request was done"),
    "noise": ("bytes(range(255, 99, -1))", "announces 4,244,504,319 bytes of text"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a_child_that_answers_nonsense_has_failed(tmp_path: Path, case: str) -> None:
    said, message = GARBAGE[case]
    act = f"pipe = answers()\ndata = {said}\nwhile data:\n    data = data[os.write(pipe, data):]\ntime.sleep(600)"
    with Worker(hostile(tmp_path, act)) as worker:
        with pytest.raises(EngineFailed, match=f"Engine 'hostile' failed during 'load': .*{message}"):
            load(worker)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('b"{\\"ok\\": true}"', "answered without 'load_s'"),
        ('b"{\\"ok\\": true, \\"arrays\\": [{\\"name\\": \\"y\\"}]}"', "answered without 'load_s'"),
    ],
)
def test_an_answer_without_what_it_must_have_is_a_failure(tmp_path: Path, said: str, message: str) -> None:
    act = f'os.write(answers(), struct.pack("<II", len({said}), 0) + {said})\ntime.sleep(600)'
    with Worker(hostile(tmp_path, act)) as worker, pytest.raises(EngineFailed, match=message):
        worker.ask("load", **request("none.onnx")).data["load_s"]


def test_arrays_that_do_not_fit_their_bytes_are_a_failure(tmp_path: Path) -> None:
    said = '{"ok": true, "arrays": [{"name": "y", "dtype": "<f4", "shape": [7]}]}'
    act = f"text = {said!r}.encode()\nos.write(answers(), struct.pack('<IIQ', len(text), 1, 4) + text + bytes(4))"
    with Worker(hostile(tmp_path, act)) as worker:
        reply = worker.ask("load", **request("none.onnx"))
    with pytest.raises(EngineFailed, match="answered with arrays that cannot be read"):
        reply.arrays()


HALF = 'os.write(answers(), struct.pack("<II", 100, 0) + b"{")\ntime.sleep(600)'


def test_half_a_message_does_not_hang_the_parent(tmp_path: Path) -> None:
    with Worker(hostile(tmp_path, HALF)) as worker:
        worker.send("load", **request("none.onnx"))
        with pytest.raises(EngineHung, match=r"no answer to 'load' in 2 s"):
            worker.wait("load", patience_s=2.0)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_ctrl_c_is_heard_in_the_middle_of_a_message(tmp_path: Path) -> None:
    with Worker(hostile(tmp_path, HALF)) as worker:
        worker.send("load", **request("none.onnx"))
        while not worker._incoming.begun:
            worker._read(0.05)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.wait("load", patience_s=600)


def test_a_message_that_ctrl_c_interrupted_is_read_on_to_its_end(tmp_path: Path) -> None:
    act = """
text = b'{"ok": true, "found": 7}'
pipe = answers()
os.write(pipe, struct.pack("<II", len(text), 0) + text[:9])
signal.signal(signal.SIGUSR1, lambda *_: os.write(pipe, text[9:]))
time.sleep(600)
"""
    with Worker(hostile(tmp_path, act)) as worker:
        worker.send("load", **request("none.onnx"))
        while not worker._incoming.begun:
            worker._read(0.05)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.wait("load", patience_s=600)
        time.sleep(0.5)
        os.kill(worker.pid, signal.SIGUSR1)
        assert worker.wait("load", patience_s=60).data["found"] == 7


def test_a_child_that_does_not_read_does_not_hang_the_parent(tmp_path: Path) -> None:
    heads, blocks = protocol.pack_arrays({"x": np.zeros(4 << 20, np.float32)})
    with Worker(hostile(tmp_path, "return {}"), patience_s=20) as worker:
        worker.pause()
        worker._patience_s = 1.0
        with pytest.raises(EngineHung, match="no answer to 'inputs' in 1 s"):
            worker.ask("inputs", blocks, arrays=heads)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found through /proc")


@LINUX
@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_an_engine_started_does_not_outlive_it_even_in_a_session_of_its_own(tmp_path: Path, end: str) -> None:
    worker = Worker(hostile(tmp_path, "return {'pid': left_behind(600)}"))
    pid = int(load(worker)["pid"])
    assert not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
    worker.close() if end == "close" else worker.kill()
    assert gone(pid)


@LINUX
def test_what_an_engine_started_does_not_outlive_it_even_where_it_crashes(tmp_path: Path) -> None:
    act = "sys.stderr.write('error: pid {} '.format(left_behind(600)))\nsys.stderr.flush()\nos.abort()"
    with Worker(hostile(tmp_path, act)) as worker, pytest.raises(EngineFailed, match=r"pid \d+") as caught:
        load(worker)
    pid = int(str(caught.value).rpartition("pid ")[2].split()[0])
    assert gone(pid)


@LINUX
def test_a_small_fork_bomb_is_ended(tmp_path: Path) -> None:
    act = """
def bomb(depth):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if depth:
                bomb(depth - 1)
            time.sleep(600)
bomb(3)
return {}
"""
    mark = ""
    with Worker(hostile(tmp_path, act)) as worker:
        load(worker)
        mark = worker._host.mark.strip("\0")
        time.sleep(0.5)
    assert [path for path in Path("/proc").glob("[0-9]*") if _carries(path, mark)] == []


def _carries(process: Path, mark: str) -> bool:
    try:
        alive = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return alive and mark.encode() in process.joinpath("environ").read_bytes()
    except OSError:
        return False
