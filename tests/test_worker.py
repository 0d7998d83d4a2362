"""Starting, speaking with, and losing child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab.child import protocol
from inferlab.child.loop import MOST_SAMPLES
from inferlab.errors import BadInput, EngineFailed, EngineHung, EngineRefused
from inferlab.records import TensorSpec
from inferlab.warm import kept_warm
from inferlab.worker import Launch, Worker, record_of, shorten
from tests.helpers.onnx_files import save_linear
from tests.helpers.workers import FAKE, load


def give(worker: Worker) -> None:
    heads, blocks = protocol.pack_arrays({"x": np.ones(1, np.float32)})
    worker.ask("inputs", blocks, arrays=heads)


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="states are read from /proc")


def state(pid: int) -> str:
    """One letter: R running, S sleeping, T stopped, Z dead but not yet missed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def becomes(pid: int, *states: str) -> bool:
    """Whether the process gets into one of the states before our patience ends."""
    for _ in range(300):
        if state(pid) in states:
            return True
        time.sleep(0.1)
    return False


def test_an_engine_that_aborts_is_named_with_its_signal_and_its_last_words() -> None:
    with Worker(FAKE) as worker, pytest.raises(EngineFailed) as caught:
        load(worker, {"fail": "abort"})
    assert str(caught.value) == (
        "Engine 'fake' died during 'load': its process was ended by SIGABRT. "
        "It said: fake: assertion failed, as ordered"
    )


def test_an_engine_that_dies_in_a_known_way_comes_with_advice() -> None:
    known = replace(FAKE, advice={"SIGABRT": "Try it without.", "SIGILL": "Another way to die."})
    with Worker(known) as worker, pytest.raises(EngineFailed, match=r"as ordered Try it without\.$"):
        load(worker, {"fail": "abort"})


def test_an_engine_that_exits_is_named_with_its_code() -> None:
    with Worker(FAKE) as worker, pytest.raises(EngineFailed, match=r"its process ended with code 7\."):
        load(worker, {"fail": "exit"})


def test_an_engine_that_hangs_is_stopped() -> None:
    with Worker(FAKE) as worker:
        with pytest.raises(EngineHung, match=r"no answer to 'load' in 0\.5 s"):
            load(worker, {"fail": "hang"}, patience_s=0.5)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_an_engine_that_raises_has_refused_the_model() -> None:
    with Worker(FAKE) as worker, pytest.raises(EngineRefused, match="RuntimeError: fake: refused, as ordered"):
        load(worker, {"fail": "raise"})


def test_an_engine_without_memory_has_failed() -> None:
    with Worker(FAKE) as worker, pytest.raises(EngineFailed, match="ran out of memory"):
        load(worker, {"fail": "memory"})


def test_an_unknown_option_is_bad_input_and_the_child_lives_on() -> None:
    with Worker(FAKE) as worker:
        with pytest.raises(BadInput, match="unknown option colour; it takes at, fail, latency_us"):
            load(worker, {"colour": "red"})
        assert load(worker, {})["settings"]["latency_us"] == 100.0


def test_an_engine_that_dies_in_the_middle_of_a_slice_is_noticed() -> None:
    with Worker(FAKE) as worker:
        load(worker, {"fail": "abort", "at": "5", "latency_us": "10"})
        give(worker)
        with pytest.raises(EngineFailed, match="died during 'slice'"):
            worker.ask("slice", start_ns=0, seconds=60.0, expected=None, most=MOST_SAMPLES, watch=[])


def test_a_slice_that_is_cut_short_keeps_what_it_has() -> None:
    with Worker(FAKE) as worker:
        load(worker, {"latency_us": "1000"})
        give(worker)
        worker.send("slice", start_ns=0, seconds=3600.0, expected=None, most=MOST_SAMPLES, watch=[])
        time.sleep(0.2)
        worker.cut_short()
        reply = worker.wait("slice", patience_s=30)
    assert len(reply.blocks[0]) == len(reply.blocks[1]) > 0


@LINUX
def test_a_slice_that_is_cut_short_before_it_begins_ends_with_its_first_call() -> None:
    with Worker(FAKE) as worker:
        load(worker, {"latency_us": "1000"})
        give(worker)
        worker.pause()
        assert becomes(worker.pid, "T")
        worker.send("slice", start_ns=0, seconds=3600.0, expected=None, most=MOST_SAMPLES, watch=[])
        worker.cut_short()
        worker.resume()
        reply = worker.wait("slice", patience_s=30)
        assert len(reply.blocks[0]) == 8
        # Only that one.
        again = worker.ask("slice", start_ns=0, seconds=0.2, expected=None, most=MOST_SAMPLES, watch=[])
    assert len(again.blocks[0]) > 8


def test_streams_in_one_child_answer_each_for_itself() -> None:
    with Worker(FAKE) as worker:
        load(worker, {"latency_us": "100"}, groups=3)
        give(worker)
        reply = worker.ask("slice", start_ns=0, seconds=0.05, expected=None, most=MOST_SAMPLES, watch=[])
    assert len(reply.blocks) == 6


def test_what_an_engine_prints_does_not_disturb_the_conversation(tmp_path: Path) -> None:
    engine = tmp_path / "loud.py"
    engine.write_text(
        "import os\n"
        "class Loud:\n"
        "    def load(self, model, options):\n"
        "        print('hello'); os.write(1, b'from C'); input_closed = open(0).read() == ''\n"
        "        return {'input_closed': input_closed}\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [inputs['x'] + 1]\n"
    )
    with Worker(Launch("loud", {"file": str(engine), "class": "Loud"})) as worker:
        assert load(worker, {})["settings"] == {"input_closed": True}
        give(worker)
        assert worker.ask("infer", stream=0, set=0).arrays()["y"].tolist() == [2.0]


def test_an_engine_is_closed_when_its_work_is_done(tmp_path: Path) -> None:
    engine, mark = tmp_path / "tidy.py", tmp_path / "closed"
    engine.write_text(
        "class Tidy:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def close(self):\n"
        f"        open({str(mark)!r}, 'w').close()\n"
    )
    with Worker(Launch("tidy", {"file": str(engine), "class": "Tidy"}, trusted=True)) as worker:
        load(worker, {})
    assert mark.exists()


def test_a_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from tests.helpers.workers import FAKE, load\n"
        "from inferlab.worker import Worker\n"
        "worker = Worker(FAKE)\n"
        "print(worker.pid, flush=True)\n"
        "load(worker, {'fail': 'hang'})\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert becomes(child, "gone", "Z")


@LINUX
def test_a_paused_child_stands_still_and_answers_when_it_goes_on() -> None:
    with Worker(FAKE) as worker:
        load(worker, {})
        worker.pause()
        assert becomes(worker.pid, "T")
        worker.send("describe")
        time.sleep(0.1)
        assert state(worker.pid) == "T"
        worker.resume()
        assert "onnx" in worker.wait("describe").data["kinds"]


@LINUX
def test_a_pause_stops_what_the_engine_started_too(tmp_path: Path) -> None:
    engine = tmp_path / "parent.py"
    engine.write_text(
        "import subprocess\n"
        "class Parent:\n"
        "    def load(self, model, options):\n"
        "        return {'pid': subprocess.Popen(['sleep', '600']).pid}\n"
    )
    with Worker(Launch("parent", {"file": str(engine), "class": "Parent"})) as worker:
        grandchild = load(worker, {})["settings"]["pid"]
        worker.pause()
        assert becomes(grandchild, "T")
        worker.resume()
        assert becomes(grandchild, "S", "R")
    assert becomes(grandchild, "gone", "Z")


@LINUX
def test_a_paused_child_that_is_closed_ends_by_itself(tmp_path: Path) -> None:
    engine, mark = tmp_path / "tidy.py", tmp_path / "closed"
    engine.write_text(
        "class Tidy:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def close(self):\n"
        f"        open({str(mark)!r}, 'w').close()\n"
    )
    with Worker(Launch("tidy", {"file": str(engine), "class": "Tidy"}, trusted=True)) as worker:
        load(worker, {})
        worker.pause()
        assert becomes(worker.pid, "T")
    assert mark.exists()
    assert worker._process.returncode == 0


@LINUX
def test_a_paused_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from tests.helpers.workers import FAKE, load\n"
        "from inferlab.worker import Worker\n"
        "worker = Worker(FAKE)\n"
        "worker.pause()\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert becomes(child, "T")
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert becomes(child, "gone", "Z")


def test_a_long_message_loses_its_middle() -> None:
    text = shorten("a" * 500 + "\n\n  " + "b" * 500, 90)
    assert text == "a" * 60 + " … " + "b" * 30


def test_the_child_runs_on_the_oldest_python_that_engines_need() -> None:
    import ast

    for path in sorted((Path(__file__).parent.parent / "src/inferlab/child").rglob("*.py")):
        assert ast.parse(path.read_text(), feature_version=(3, 8)), path


@LINUX
def test_forked_workers_are_like_new_ones() -> None:
    with kept_warm():
        with Worker(FAKE, [0]) as first:
            load(first, {"latency_us": "5000"})
            give(first)
            host, fork = first.pid, only_child(first.pid)
            first.send("slice", start_ns=0, seconds=100.0, expected=[0], most=100, watch=[], canary=False)
            time.sleep(0.1)
            first.cut_short()
            assert first.wait("slice").data["full"] is False
            first.pause()
            assert becomes(fork, "T")
        assert becomes(fork, "gone")
        with Worker(FAKE, [0]) as second:
            assert (second.pid, only_child(host) != fork) == (host, True)
            with pytest.raises(EngineHung):
                load(second, {"fail": "hang"}, patience_s=0.5)
        assert becomes(host, "gone")
        with Worker(FAKE, [0]) as third, pytest.raises(EngineFailed) as caught:
            load(third, {"fail": "abort"})
        assert "its process was ended by SIGABRT. It said: fake: assertion failed, as ordered" in str(caught.value)
        with Worker(FAKE, [0]) as fourth:
            load(fourth, {})
            assert fourth.pid != third.pid
    assert becomes(fourth.pid, "gone")


def only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@LINUX
def test_a_forked_worker_has_as_much_in_memory_as_a_new_one(tmp_path: Path) -> None:
    model = str(save_linear(tmp_path / "linear.onnx", 1))
    launch = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})
    with Worker(launch, [0]) as new:
        baseline = load(new, {}, model=model)["baseline_memory_bytes"]
    with kept_warm(), Worker(launch, [0]) as forked:
        assert load(forked, {}, model=model)["baseline_memory_bytes"] == pytest.approx(baseline, rel=0.05)
        assert forked.pid != only_child(forked.pid)


@LINUX
@pytest.mark.parametrize(("cpus", "imported"), [([], True), ([0], False)])
def test_forks_that_measure_nothing_find_more_modules_imported(
    tmp_path: Path, cpus: list[int], imported: bool
) -> None:
    engine = tmp_path / "knowing.py"
    engine.write_text(
        "import sys\n"
        "class Knowing:\n"
        "    def prepare(self):\n"
        "        pass\n"
        "    def load(self, model, options):\n"
        "        return {'imported': 'colorsys' in sys.modules}\n"
    )
    launch = Launch("knowing", {"file": str(engine), "class": "Knowing"})
    with kept_warm(modules={"knowing": ("colorsys",)}), Worker(launch, cpus) as worker:
        assert only_child(worker.pid)
        assert load(worker, {})["settings"] == {"imported": imported}


OWNER = """
import time
from inferlab.worker import Worker
from tests.helpers.workers import FAKE
worker = Worker(FAKE)
print(worker._host.scratch.path, flush=True)
time.sleep(600)
"""


def owner(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another inferlab that has a child; and the child's scratch folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@LINUX
def test_the_scratch_folder_of_who_was_killed_is_removed_and_of_who_lives_is_not(
    tmp_path: Path,
) -> None:
    killed, abandoned = owner(tmp_path)
    alive, used = owner(tmp_path)
    try:
        killed.kill()
        killed.wait()
        (abandoned / "locked").mkdir()
        (abandoned / "locked" / "file").write_text("left behind")
        (abandoned / "locked").chmod(0)
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "file").write_text("not ours")
        (tmp_path / f"{abandoned.name}-link").symlink_to(precious)
        (tmp_path / f"{abandoned.name}-file").write_text("not a folder")
        last, _ = owner(tmp_path)
        last.kill()
        last.wait()
        assert not abandoned.exists()
        assert used.is_dir()
        assert (precious / "file").read_text() == "not ours"
        assert (tmp_path / f"{abandoned.name}-file").read_text() == "not a folder"
    finally:
        for process in (killed, alive):
            process.kill()
            process.wait()


def test_a_scratch_folder_ends_with_its_child(tmp_path: Path) -> None:
    with Worker(FAKE) as worker:
        folder = Path(worker._host.scratch.path)
        assert folder.is_dir()
    assert not folder.exists()


def test_an_answer_becomes_a_record_and_one_that_describes_none_is_the_engines_fault() -> None:
    answer = {"name": "ids", "dtype": "int64", "dims": [1, "sequence", None], "kernel": "unknown here"}
    assert record_of(TensorSpec, answer, below=7) == TensorSpec("ids", "int64", (1, "sequence", None), 7)
    with pytest.raises(EngineFailed) as error:
        record_of(TensorSpec, {"name": "ids", "dtype": "int64"})
    expected = "An engine's process answered with what cannot be read: a TensorSpec lacks its dims."
    assert str(error.value) == expected
