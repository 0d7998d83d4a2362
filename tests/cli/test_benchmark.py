"""`inferlab benchmark`, as a user sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.machine import usable_cores
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear

QUICK = ("-t", "0.2", "-w", "0", "--processes", "1")
DEEPSPARSE_KEYS = [
    "engine",
    "version",
    "orig_model_path",
    "model_path",
    "batch_size",
    "input_shapes",
    "num_cores",
    "scenario",
    "scheduler",
    "seconds_to_run",
    "num_streams",
    "benchmark_result",
    "fraction_of_supported_ops",
]
RESULT_KEYS = [
    "scenario",
    "items_per_sec",
    "seconds_ran",
    "iterations",
    "median",
    "mean",
    "std",
    "25.0%",
    "50.0%",
    "75.0%",
    "90.0%",
    "95.0%",
    "99.0%",
    "99.9%",
    "interval",
]


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return save_linear(tmp_path / "linear.onnx", "batch")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(
    ("scenario", "name"),
    [("sync", "singlestream"), ("async", "multistream"), ("elastic", "elastic"), ("offline", "offline")],
)
def test_it_prints_the_lines_that_deepsparse_printed_and_more(
    inferlab_here: Run, linear: Path, scenario: str, name: str, engine: str
) -> None:
    done = inferlab_here("benchmark", linear, "-s", scenario, "-e", engine, "-b", "3", *QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"Original Model Path: {linear}", "Batch Size: 3", f"Scenario: {name}"]
    for line, head in zip(
        lines[3:8],
        [
            "Throughput (items/sec)",
            "Latency Mean (ms/batch)",
            "Latency Median (ms/batch)",
            "Latency Std (ms/batch)",
        ],
        strict=False,
    ):
        assert re.fullmatch(re.escape(head) + r": \d+\.\d{4,}", line)
    assert re.fullmatch(r"Iterations: \d+", lines[7])
    rest = "\n".join(lines[8:])
    for head in ("Load Time", "First Inference", "Peak Memory", "Output Check: match"):
        assert head in rest
    assert "Generating input 'x', type = float32, shape = [3, 4]" in done.stderr
    assert f"Starting '{scenario}' performance measurements for 0.2 seconds" in done.stderr
    assert "Thread pinning to cores enabled" in done.stderr


def test_the_exported_file_has_deepsparses_keys_and_ours(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here("benchmark", linear, "--batch-size", "2", "-x", out, "-q", "--scenario", "sync", *QUICK)
    assert done.returncode == 0 and done.stderr == ""
    result = json.loads(out.read_text())
    assert set(DEEPSPARSE_KEYS) <= set(result)
    assert set(RESULT_KEYS) == set(result["benchmark_result"])
    assert result["format"] == "inferlab-benchmark/2"
    documented = (Path(__file__).parents[2] / "docs/benchmark.md").read_text()
    names = (
        set(result) - set(DEEPSPARSE_KEYS)
        | set(result["processes"][0])
        | set(result["processes"][0]["windows"][0])
    )
    assert [name for name in sorted(names) if f"`{name}" not in documented] == []
    assert (result["batch_size"], result["input_shapes"], result["scheduler"]) == (2, [[2, 4]], "single_stream")
    assert result["output_check"]["status"] == "match"
    numbers = result["benchmark_result"]
    assert numbers["items_per_sec"] == pytest.approx(2 * numbers["iterations"] / numbers["seconds_ran"])
    assert numbers["50.0%"] == pytest.approx(numbers["median"])
    assert f"Iterations: {numbers['iterations']}" in done.stdout


def test_percentiles_that_the_samples_do_not_carry_are_null(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-s", "sync", "-x", out, "-t", "0.3", "-w", "0",
        "--processes", "1", "--engine-option", "latency_us=10000",
    )  # fmt: skip
    assert done.returncode == 0
    numbers = json.loads(out.read_text())["benchmark_result"]
    assert numbers["99.0%"] is None and numbers["99.9%"] is None
    assert numbers["50.0%"] > 0
    assert "p99" not in done.stdout


def test_shapes_by_name_and_by_position_override_the_models(inferlab_here: Run, tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx", "N")
    for shapes in ("[7,4]", "x=[7,4]"):
        done = inferlab_here("benchmark", model, "-shapes", shapes, "-s", "sync", *QUICK)
        assert "Batch Size: 7" in done.stdout, done.stderr
        assert "shape = [7, 4]" in done.stderr


def test_a_fixed_batch_is_kept_unless_another_is_asked_for(inferlab_here: Run, tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx", 2)
    before = model.read_bytes()
    assert "Batch Size: 2" in inferlab_here("benchmark", model, "-s", "sync", *QUICK).stdout
    done = inferlab_here("benchmark", model, "-s", "sync", "-b", "5", *QUICK)
    assert "Batch Size: 5" in done.stdout
    assert "Output Check: match" in done.stdout
    assert "a copy rewritten for 5 was measured" in done.stdout
    assert model.read_bytes() == before


def test_a_batch_that_the_model_cannot_take_is_bad_input(inferlab_here: Run, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "two_rows"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(np.ones((2, 4), np.float32), "two_rows")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    done = inferlab_here("benchmark", path, "-b", "3", *QUICK)
    assert done.returncode == 2
    assert "fixes its batch size to 1; a copy rewritten for 3 was tried" in done.stderr
    assert "Traceback" not in done.stderr


def test_real_data_is_measured_and_its_rows_are_the_batch(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, x=np.arange(24, dtype=np.float32).reshape(6, 4), labels=np.zeros(6))
    assert "Batch Size: 6" in inferlab_here("benchmark", linear, "--input", data, "-s", "sync", *QUICK).stdout
    done = inferlab_here("benchmark", linear, "--input", data, "-b", "2", "-s", "sync", *QUICK)
    assert "Batch Size: 2" in done.stdout and "Reading input 'x'" in done.stderr


BAD_INPUT = [
    (["missing.onnx"], "missing.onnx"),
    (["{model}", "-b", "0"], "batch size"),
    (["{model}", "-b", "-1"], "batch size"),
    (["{model}", "-b", "many"], "many"),
    (["{model}", "-shapes", "[1,2"], "[1,2"),
    (["{model}", "-shapes", "[1,2,3]"], "x"),
    (["{model}", "-shapes", "z=[1,4]"], "z"),
    (["{model}", "-ncores", "4096"], "4096 cores"),
    (["{model}", "-ncores", "0"], "at least 1"),
    (["{model}", "-e", "abacus"], "abacus"),
    (["{model}", "-t", "0"], "more than 0"),
    (["{model}", "-t", "nan"], "more than 0"),
    (["{model}", "-w", "-1"], "The warm-up time must be at least 0 seconds and finite, not -1."),
    (["{model}", "-nstreams", "0"], "at least 1"),
    (["{model}", "-s", "sync", "-nstreams", "2"], "one stream"),
    (["{model}", "--stream-mode", "native"], "no streams of its own"),
    (["{model}", "-s", "server"], "--rate 50"),
    (["{model}", "--rate", "50"], "belongs to the scenario server, not to async"),
    (["{model}", "-s", "sync", "--rate", "50"], "belongs to the scenario server, not to sync"),
    (["{model}", "-s", "server", "--rate", "0"], "more than 0 requests per second"),
    (["{model}", "-s", "server", "--rate", "-1"], "more than 0 requests per second"),
    (["{model}", "-s", "server", "--rate", "nan"], "more than 0 requests per second"),
    (["{model}", "-s", "server", "--rate", "inf"], "finite"),
    (["{model}", "-s", "server", "--rate", "fast"], "fast"),
    (["{model}", "--instances", "0"], "instances must be at least 1"),
    (["{model}", "--instances", "-2"], "instances must be at least 1"),
    (["{model}", "--processes", "0"], "processes must be at least 1"),
    (["{model}", "--processes", "some"], "some"),
    (["{model}", "--precision", "0"], "between 0 and 100 %"),
    (["{model}", "--precision", "abc"], "not a share such as 1% or 0.01"),
    (["{model}", "--precision", "150%"], "between 0 and 100 %, not 150 %"),
    (["{model}", "--precision", "-1%"], "between 0 and 100 %"),
    (["{model}", "--precision", "nan"], "between 0 and 100 %"),
    (["{model}", "--precision", "%"], "not a share"),
    (["{model}", "--precision", "1%", "--processes", "3"], "contradict each other"),
    (["{model}", "--engine-option", "io_binding"], "KEY=VALUE"),
    (["{model}", "--engine-option", "speed=9"], "speed"),
    (["{model}", "--engine-option", "io_binding=2"], "io_binding"),
    (["{model}", "--input", "nothing.npz"], "nothing.npz"),
    (["{model}", "-x", "no/such/folder/out.json"], "does not exist"),
    (["{model}", "-x", "."], "is a folder"),
    (["{text}"], "ONNX"),
    (["{cut}"], "cut"),
    (["demo:nothing"], "mobilenet"),
    (["zoo:cv/classification/nothing"], "end of life"),
    (["http://example.invalid/model.onnx"], "https"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_INPUT, ids=[" ".join(row[0]) for row in BAD_INPUT])
def test_bad_input_gets_one_sentence_and_exit_code_2(
    inferlab_here: Run, linear: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("this is no model\n" * 10)
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(linear.read_bytes()[:-20])
    places = {"model": str(linear), "text": str(text), "cut": str(cut)}
    filled = [argument.format(**places) if "{" in argument else argument for argument in arguments]
    done = inferlab_here("benchmark", *filled, *(() if "-t" in arguments else ("-t", "0.2")))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_an_engine_that_aborts_gives_exit_code_3_and_the_cause(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "failed.json"
    done = inferlab_here("benchmark", linear, "-e", "fake", "--engine-option", "fail=abort", "-x", out, *QUICK)
    assert done.returncode == 3
    assert "SIGABRT" in done.stderr and "as ordered" in done.stderr and "Traceback" not in done.stderr
    failed = json.loads(out.read_text())
    assert failed["status"] == "failed" and failed["failure"]["code"] == "died"


def test_an_engine_that_hangs_gives_exit_code_3(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "--engine-option", "fail=hang", "--engine-option", "at=30",
        "--timeout", "1", *QUICK,
    )  # fmt: skip
    assert done.returncode == 3
    assert "hung" in done.stderr


def test_fast_but_wrong_is_said_on_the_result_and_fails_when_strict(inferlab_here: Run, linear: Path) -> None:
    wrong = ("benchmark", linear, "-e", "fake", "--engine-option", "outputs=zeros", *QUICK)
    done = inferlab_here(*wrong)
    assert done.returncode == 0
    assert "Output Check: WRONG" in done.stdout and "is meaningless" in done.stdout
    assert inferlab_here(*wrong, "--strict").returncode == 5


def test_outputs_that_cannot_be_compared_are_unchecked(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here("benchmark", linear, "-e", "fake", *QUICK)
    assert "Output Check: unchecked" in done.stdout
    assert "unchecked: --no-verify" in inferlab_here("benchmark", linear, "--no-verify", *QUICK).stdout


def test_a_users_own_engine_is_measured_and_checked(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    engine = tmp_path / "mine.py"
    engine.write_text(
        "class Mine:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [inputs['x'] * 2]\n"
    )
    done = inferlab_here("benchmark", linear, "-e", f"{engine}:Mine", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Output Check: match" in done.stdout


def interrupted(environment: dict[str, str], arguments: list[object], at: str) -> subprocess.CompletedProcess[str]:
    """Run `inferlab benchmark …` and press Ctrl-C a moment after a line of its log."""
    command = [str(Path(sys.executable).parent / "inferlab"), "benchmark", *map(str, arguments)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(at):
            break
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def test_interrupting_keeps_what_was_measured(environment: dict[str, str], linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.json"
    done = interrupted(environment, [linear, "-t", "600", "-w", "0", "-x", out], at="Starting")
    assert done.returncode == 130
    assert "interrupted after" in done.stdout and "Iterations: " in done.stdout
    part = json.loads(out.read_text())
    assert part["interrupted"] and part["benchmark_result"]["iterations"] > 0
    assert part["benchmark_result"]["interval"]["median"] is None


def test_interrupting_a_server_keeps_what_it_served(
    environment: dict[str, str], linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "part.json"
    arguments = [linear, "-e", "fake", "-s", "server", "--rate", "100", "-t", "600", "-w", "0", "-x", out]
    done = interrupted(environment, arguments, at="Starting")
    assert done.returncode == 130
    assert "interrupted after" in done.stdout
    part = json.loads(out.read_text())
    # The requests of the next ten minutes had not come yet, so they are not missing.
    assert part["benchmark_result"]["iterations"] > 0
    assert part["benchmark_result"]["unserved_share"] < 0.9
    assert "overloaded" not in {one["code"] for one in part["findings"]}


def test_interrupting_the_third_process_keeps_the_two_before_it(
    environment: dict[str, str], linear: Path, tmp_path: Path
) -> None:
    engine, out = tmp_path / "third.py", tmp_path / "part.json"
    # The third process that loads for measuring takes for ever to do so.
    engine.write_text(
        "import os, time\n"
        f"MARKS = {str(tmp_path)!r}\n"
        "class Third:\n"
        "    def load(self, model, options):\n"
        "        marks = [name for name in os.listdir(MARKS) if name.startswith('mark')]\n"
        "        open(os.path.join(MARKS, 'mark%d' % len(marks)), 'w').close()\n"
        "        time.sleep(600 if len(marks) == 2 else 0)\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [inputs['x'] * 2]\n"
    )
    arguments = [linear, "-e", f"{engine}:Third", "-s", "sync", "-t", "0.5", "-w", "0", "--processes", "5"]
    done = interrupted(environment, [*arguments, "-x", out], at=f"Loading the model on {engine}:Third, process 3")
    assert done.returncode == 130
    assert re.search(r"Latency Median 95% Interval .*\b2 processes", done.stdout)
    assert "Note: interrupted after" in done.stdout
    part = json.loads(out.read_text())
    assert (part["status"], part["interrupted"], len(part["processes"])) == ("cancelled", True, 2)
    assert part["benchmark_result"]["interval"]["median"] is not None
    assert "interrupted" in {one["code"] for one in part["findings"]}


def test_an_engine_that_dies_in_its_third_process_fails_and_keeps_the_two_before_it(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    engine, out = tmp_path / "third.py", tmp_path / "part.json"
    engine.write_text(
        "import os\n"
        f"MARKS = {str(tmp_path)!r}\n"
        "class Third:\n"
        "    def load(self, model, options):\n"
        "        self.marks = [name for name in os.listdir(MARKS) if name.startswith('mark')]\n"
        "        open(os.path.join(MARKS, 'mark%d' % len(self.marks)), 'w').close()\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [inputs['x'] * 2] if len(self.marks) < 2 else os.abort()\n"
    )
    arguments = [linear, "-e", f"{engine}:Third", "-s", "sync", "-t", "0.5", "-w", "0", "--processes", "5"]
    done = inferlab_here("benchmark", *arguments, "-x", out)
    assert done.returncode == 3
    assert "SIGABRT" in done.stderr and "Next:" not in done.stderr
    assert re.search(r"Latency Median 95% Interval .*\b2 processes", done.stdout)
    assert "Note: the engine failed in process 3; these numbers are of the 2 before it." in done.stdout
    part = json.loads(out.read_text())
    assert (part["status"], part["failure"]["code"], len(part["processes"])) == ("failed", "died", 2)
    assert not part["interrupted"]
    assert part["benchmark_result"]["iterations"] > 0
    assert "failed-later" in {one["code"] for one in part["findings"]}


def test_five_processes_share_the_time_and_give_an_interval(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-s", "sync", "-t", "5", "-w", "0.1", "--processes", "5", "-x", out,
        "--engine-option", "latency_us=10000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"Throughput 95% Interval \(items/sec\): \d.* to \d.* \(±.* %\) from 5 processes", done.stdout
    )
    assert re.search(r"Latency Median 95% Interval \(ms/batch\): \d.* from 5 processes", done.stdout)
    assert [line for line in done.stderr.splitlines() if line.startswith("Loading")] == [
        "Loading the model on fake",
        *(f"Loading the model on fake, process {number}" for number in (2, 3, 4, 5)),
    ]
    result = json.loads(out.read_text())
    numbers, processes = result["benchmark_result"], result["processes"]
    assert len(processes) == 5 and len({process["started_at"] for process in processes}) == 5
    medians = [process["median"] for process in processes]
    assert numbers["median"] == pytest.approx(np.exp(np.mean(np.log(medians))))
    low, high = numbers["interval"]["median"]
    assert min(medians) <= numbers["median"] <= max(medians) and low <= numbers["median"] <= high
    assert numbers["interval"]["level"] == 0.95
    assert numbers["items_per_sec"] == pytest.approx(
        np.exp(np.mean(np.log([process["items_per_sec"] for process in processes])))
    )
    windows = [window for process in processes for window in process["windows"]]
    # A second for each process, in windows of half a second.
    assert [len(process["windows"]) for process in processes] == [2] * 5
    assert numbers["iterations"] == sum(window["iterations"] for window in windows)
    assert numbers["seconds_ran"] == pytest.approx(sum(window["seconds"] for window in windows))
    for window in windows:
        assert window["canary_ns"] > 0 and window["median"] >= 10.0 and isinstance(window["disturbed_by"], list)
        if sys.platform.startswith("linux"):
            assert {"cpu_s", "involuntary_switches", "run_queue_wait_s"} <= set(window["counters"])
    for name, total in result["counters"].items():
        assert total == pytest.approx(sum(window["counters"].get(name, 0.0) for window in windows))


def test_one_process_has_no_interval_and_says_so(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here("benchmark", linear, "-s", "sync", "-x", out, *QUICK)
    assert "Interval" not in done.stdout
    assert "Note: only one process was measured, so there is no interval." in done.stdout
    result = json.loads(out.read_text())
    assert result["benchmark_result"]["interval"] == {"level": 0.95, "median": None, "items_per_sec": None}
    assert [one["code"] for one in result["findings"] if one["code"] == "one-process"] == ["one-process"]


def test_a_model_that_loads_longer_than_it_is_measured_has_one_process(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-t", "0.5", "-w", "0", "-x", out, "--engine-option", "load_s=0.6"
    )
    assert "so there is no interval: loading takes" in done.stdout
    assert len(json.loads(out.read_text())["processes"]) == 1


def test_a_steady_warm_up_ends_before_its_share(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    # Calls so long that a busy machine does not make them differ by 2 %.
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-s", "sync", "-t", "0.2", "-w", "30", "--processes", "1", "-x", out,
        "--engine-option", "latency_us=500000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(out.read_text())["processes"]
    assert 0 < process["warmup_seconds"] < 30


@pytest.mark.parametrize(("wanted", "reached"), [("50%", True), ("0.0001%", False)])
def test_a_precision_says_which_ended_it_the_interval_or_the_time(
    inferlab_here: Run, linear: Path, tmp_path: Path, wanted: str, reached: bool
) -> None:
    out = tmp_path / "result.json"
    time_s = "60" if reached else "0.5"
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-s", "sync", "--precision", wanted, "-t", time_s, "-w", "0", "-x", out,
        "--engine-option", "latency_us=10000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert len(result["processes"]) == 5
    assert result["precision"] == float(wanted.rstrip("%")) / 100
    assert ("not-precise" in {one["code"] for one in result["findings"]}) is not reached
    assert ("the interval is wider than" in done.stdout) is not reached
    said = "reached" if reached else "not reached within the time"
    assert re.search(rf"^Precision: ±[\d.e-]+ % {said}$", done.stdout, re.M)
    if reached:
        low, high = result["benchmark_result"]["interval"]["median"]
        assert high / low <= np.exp(2 * 0.5)
        assert result["benchmark_result"]["seconds_ran"] < 60


def test_a_server_tells_response_and_service(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here(
        "benchmark", linear, "-e", "fake", "-s", "server", "--rate", "100", "-t", "2", "-w", "0", "-x", out,
        "-ncores", "1", "--processes", "2", "--engine-option", "latency_us=1000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Scenario: server" in done.stdout
    assert re.search(r"^Rate \(requests/sec\): 100 due, .* % served$", done.stdout, re.M)
    assert re.search(r"^Service Percentiles \(ms/batch\): p75 .*, p90 ", done.stdout, re.M)
    result = json.loads(out.read_text())
    assert (result["scenario"], result["rate"], result["scheduler"]) == ("server", 100.0, "multi_stream")
    numbers = result["benchmark_result"]
    assert set(RESULT_KEYS) | {"service", "unserved_share"} == set(numbers)
    assert numbers["service"]["50.0%"] <= numbers["50.0%"]
    assert 0 <= numbers["unserved_share"] < 1
    # The first two seconds' worth of requests, the same each time the cell is measured.
    assert numbers["iterations"] <= 300


def test_a_server_without_requests_says_so(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab_here("benchmark", linear, "-e", "fake", "-s", "server", "--rate", "0.001", "-x", out, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Iterations: 0" in done.stdout
    assert "Note: no request arrived in 1 of 1 processes: 0.001 a second is too few" in done.stdout
    result = json.loads(out.read_text())
    assert result["benchmark_result"] is None
    assert (result["processes"][0]["median"], result["processes"][0]["items_per_sec"]) == (None, None)


@pytest.mark.parametrize(("batch", "expected"), [("N", 16), (3, 3)])
def test_offline_takes_a_large_batch_where_the_model_leaves_it_open(
    inferlab_here: Run, tmp_path: Path, batch: int | str, expected: int
) -> None:
    done = inferlab_here("benchmark", save_linear(tmp_path / "m.onnx", batch), "-s", "offline", *QUICK)
    assert done.returncode == 0, done.stderr
    assert f"Batch Size: {expected}\n" in done.stdout
    assert "Output Check: match" in done.stdout


def test_instances_are_measured_side_by_side(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    cores = usable_cores()
    done = inferlab_here("benchmark", linear, "-s", "sync", "--instances", cores, "-x", out, *QUICK)
    assert done.returncode == 0, done.stderr
    assert f"{cores} instances of 1 stream" in done.stdout or cores == 1
    result = json.loads(out.read_text())
    assert (result["instances"], result["num_streams"], result["num_cores"]) == (cores, 1, cores)
    assert result["output_check"]["status"] == "match"
    assert "streams-share-cores" not in {one["code"] for one in result["findings"]}


def test_more_instances_than_cores_are_said_to_take_turns(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here("benchmark", linear, "-s", "sync", "--instances", "3", "-ncores", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Note: 3 streams take turns on 1 core" in done.stdout


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_every_stream_mode_measures_the_streams_that_were_asked_for(
    inferlab_here: Run, linear: Path, tmp_path: Path, mode: str
) -> None:
    out = tmp_path / "r.json"
    done = inferlab_here("benchmark", linear, "-nstreams", "3", "--stream-mode", mode, "-x", out, *QUICK)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert (result["num_streams"], result["stream_mode"]) == (3, mode)
    assert result["output_check"]["status"] == "match"


@pytest.mark.parametrize("pinning", ["none", "core", "numa"])
def test_every_pinning_runs(inferlab_here: Run, linear: Path, pinning: str) -> None:
    done = inferlab_here("benchmark", linear, "-pin", pinning, "-ncores", "1", *QUICK)
    assert done.returncode == 0, done.stderr


def test_a_benchmark_leaves_the_home_folder_as_it_was(inferlab: Run, linear: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for engine in ("onnxruntime", "openvino"):
        done = inferlab("benchmark", linear, "-e", engine, *QUICK, HOME=str(home), INFERLAB_CACHE="")
        assert done.returncode == 0, done.stderr
    assert {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()} == {
        str(path.relative_to(home)) for path in (home / ".cache" / "inferlab").rglob("*") if path.is_file()
    }


def test_the_package_never_imports_an_engine_in_the_parent(environment: dict[str, str], linear: Path) -> None:
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('onnxruntime', 'openvino', 'torch', 'deepsparse', 'transformers'):\n"
        "            raise AssertionError('the parent imported ' + name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from inferlab import Lab, Plan\n"
        f"result = Lab().benchmark(Plan({str(linear)!r}, time_s=0.1, warmup_s=0, processes=1))\n"
        "print(result.outcomes[0].status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_found_out_before_measuring(
    inferlab: Run, linear: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    done = inferlab("benchmark", linear, "-x", folder / "out.json", *QUICK)
    assert done.returncode == 2 and "cannot be written" in done.stderr


def test_a_full_disk_costs_the_file_but_not_the_printed_result(inferlab: Run, linear: Path) -> None:
    done = inferlab("benchmark", linear, "-x", "/dev/full", *QUICK)
    assert done.returncode == 6
    assert "could not be written" in done.stderr and "Iterations" in done.stdout


def test_an_engine_whose_process_answers_nonsense_is_a_failed_cell(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    (tmp_path / "liar.py").write_text(
        "import fcntl, os, stat, time\n"
        "class Liar:\n"
        "    def load(self, model, options):\n"
        "        for pipe in range(3, 20):\n"
        "            try:\n"
        "                writable = fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_WRONLY\n"
        "                if writable and stat.S_ISFIFO(os.fstat(pipe).st_mode):\n"
        "                    os.write(pipe, bytes([255] * 8))\n"
        "            except OSError:\n"
        "                pass\n"
        "        time.sleep(600)\n"
    )
    done = inferlab_here("benchmark", linear, "-s", "sync", "-e", f"{tmp_path / 'liar.py'}:Liar", *QUICK)
    assert done.returncode == 3
    assert "the answer of its process announces 4,294,967,295 bytes of text" in done.stderr
    assert "Traceback" not in done.stderr
