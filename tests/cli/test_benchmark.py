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

from tests.cli.conftest import Run

QUICK = ("-t", "0.2", "-w", "0")
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
]


def save_linear(path: Path, batch: int | str, width: int = 4, names: tuple[str, str] = ("x", "y")) -> Path:
    """y = x·W with W = 2·I, the batch fixed or symbolic."""
    weight = numpy_helper.from_array(2 * np.eye(width, dtype=np.float32), "W")
    x, y = names
    graph = helper.make_graph(
        [helper.make_node("MatMul", [x, "W"], [y])],
        "linear",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [batch, width])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return save_linear(tmp_path / "linear.onnx", "batch")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(
    ("scenario", "name"), [("sync", "singlestream"), ("async", "multistream"), ("elastic", "elastic")]
)
def test_it_prints_the_lines_that_deepsparse_printed_and_more(
    inferlab: Run, linear: Path, scenario: str, name: str, engine: str
) -> None:
    done = inferlab("benchmark", linear, "-s", scenario, "-e", engine, "-b", "3", *QUICK)
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


def test_the_exported_file_has_deepsparses_keys_and_ours(inferlab: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab("benchmark", linear, "--batch-size", "2", "-x", out, "-q", "--scenario", "sync", *QUICK)
    assert done.returncode == 0 and done.stderr == ""
    result = json.loads(out.read_text())
    assert set(DEEPSPARSE_KEYS) <= set(result)
    assert set(RESULT_KEYS) == set(result["benchmark_result"])
    assert result["format"] == "inferlab-benchmark/1"
    assert (result["batch_size"], result["input_shapes"], result["scheduler"]) == (2, [[2, 4]], "single_stream")
    assert result["output_check"]["status"] == "match"
    numbers = result["benchmark_result"]
    assert numbers["items_per_sec"] == pytest.approx(2 * numbers["iterations"] / numbers["seconds_ran"])
    assert numbers["50.0%"] == numbers["median"]
    assert f"Iterations: {numbers['iterations']}" in done.stdout


def test_percentiles_that_the_samples_do_not_carry_are_null(inferlab: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = inferlab(
        "benchmark", linear, "-e", "fake", "-s", "sync", "-x", out, "-t", "0.3", "-w", "0",
        "--engine-option", "latency_us=10000",
    )  # fmt: skip
    assert done.returncode == 0
    numbers = json.loads(out.read_text())["benchmark_result"]
    assert numbers["99.0%"] is None and numbers["99.9%"] is None
    assert numbers["50.0%"] > 0
    assert "p99" not in done.stdout


def test_shapes_by_name_and_by_position_override_the_models(inferlab: Run, tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx", "N")
    for shapes in ("[7,4]", "x=[7,4]"):
        done = inferlab("benchmark", model, "-shapes", shapes, "-s", "sync", *QUICK)
        assert "Batch Size: 7" in done.stdout, done.stderr
        assert "shape = [7, 4]" in done.stderr


def test_a_fixed_batch_is_kept_unless_another_is_asked_for(inferlab: Run, tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx", 2)
    before = model.read_bytes()
    assert "Batch Size: 2" in inferlab("benchmark", model, "-s", "sync", *QUICK).stdout
    done = inferlab("benchmark", model, "-s", "sync", "-b", "5", *QUICK)
    assert "Batch Size: 5" in done.stdout
    assert "Output Check: match" in done.stdout
    assert "a copy rewritten for 5 was measured" in done.stdout
    assert model.read_bytes() == before


def test_a_batch_that_the_model_cannot_take_is_bad_input(inferlab: Run, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 2])],
        [numpy_helper.from_array(np.array([1, 2, 2]), "shape")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    done = inferlab("benchmark", path, "-b", "3", *QUICK)
    assert done.returncode == 2
    assert "fixes its batch size to 1; a copy rewritten for 3 was tried" in done.stderr
    assert "Traceback" not in done.stderr


def test_real_data_is_measured_and_its_rows_are_the_batch(inferlab: Run, linear: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, x=np.arange(24, dtype=np.float32).reshape(6, 4), labels=np.zeros(6))
    assert "Batch Size: 6" in inferlab("benchmark", linear, "--input", data, "-s", "sync", *QUICK).stdout
    done = inferlab("benchmark", linear, "--input", data, "-b", "2", "-s", "sync", *QUICK)
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
    (["{model}", "-w", "-1"], "negative"),
    (["{model}", "-nstreams", "0"], "at least 1"),
    (["{model}", "-s", "sync", "-nstreams", "2"], "one stream"),
    (["{model}", "--stream-mode", "native"], "no streams of its own"),
    (["{model}", "--engine-option", "io_binding"], "KEY=VALUE"),
    (["{model}", "--engine-option", "speed=9"], "speed"),
    (["{model}", "--engine-option", "io_binding=2"], "io_binding"),
    (["{model}", "--input", "nothing.npz"], "nothing.npz"),
    (["{model}", "-x", "no/such/folder/out.json"], "does not exist"),
    (["{model}", "-x", "."], "is a folder"),
    (["{model}", "-x", "out.csv"], "JSON"),
    (["{text}"], "ONNX"),
    (["{cut}"], "cut"),
    (["demo:nothing"], "mobilenet"),
    (["zoo:cv/classification/nothing"], "end of life"),
    (["http://example.invalid/model.onnx"], "https"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_INPUT, ids=[" ".join(row[0]) for row in BAD_INPUT])
def test_bad_input_gets_one_sentence_and_exit_code_2(
    inferlab: Run, linear: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("this is no model\n" * 10)
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(linear.read_bytes()[:-20])
    places = {"model": str(linear), "text": str(text), "cut": str(cut)}
    filled = [argument.format(**places) if "{" in argument else argument for argument in arguments]
    done = inferlab("benchmark", *filled, "-t", "0.2") if "-t" not in arguments else inferlab("benchmark", *filled)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (Path("out.csv")).exists()


def test_an_engine_that_aborts_gives_exit_code_3_and_the_cause(
    inferlab: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "failed.json"
    done = inferlab("benchmark", linear, "-e", "fake", "--engine-option", "fail=abort", "-x", out, *QUICK)
    assert done.returncode == 3
    assert "SIGABRT" in done.stderr and "as ordered" in done.stderr and "Traceback" not in done.stderr
    failed = json.loads(out.read_text())
    assert failed["status"] == "failed" and failed["failure"]["code"] == "died"


def test_an_engine_that_hangs_gives_exit_code_3(inferlab: Run, linear: Path) -> None:
    done = inferlab(
        "benchmark", linear, "-e", "fake", "--engine-option", "fail=hang", "--engine-option", "at=30",
        "--timeout", "1", *QUICK,
    )  # fmt: skip
    assert done.returncode == 3
    assert "hung" in done.stderr


def test_fast_but_wrong_is_said_on_the_result_and_fails_when_strict(inferlab: Run, linear: Path) -> None:
    wrong = ("benchmark", linear, "-e", "fake", "--engine-option", "outputs=zeros", *QUICK)
    done = inferlab(*wrong)
    assert done.returncode == 0
    assert "Output Check: WRONG" in done.stdout and "worth nothing" in done.stdout
    assert inferlab(*wrong, "--strict").returncode == 5


def test_outputs_that_cannot_be_compared_are_unchecked(inferlab: Run, linear: Path) -> None:
    done = inferlab("benchmark", linear, "-e", "fake", *QUICK)
    assert "Output Check: unchecked" in done.stdout
    assert "unchecked: --no-verify" in inferlab("benchmark", linear, "--no-verify", *QUICK).stdout


def test_a_users_own_engine_is_measured_and_checked(inferlab: Run, linear: Path, tmp_path: Path) -> None:
    engine = tmp_path / "mine.py"
    engine.write_text(
        "class Mine:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [inputs['x'] * 2]\n"
    )
    done = inferlab("benchmark", linear, "-e", f"{engine}:Mine", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Output Check: match" in done.stdout


def test_interrupting_keeps_what_was_measured(environment: dict[str, str], linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.json"
    process = subprocess.Popen(
        [Path(sys.executable).parent / "inferlab", "benchmark", linear, "-t", "600", "-w", "0", "-x", out],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Starting"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted after" in stdout and "Iterations: " in stdout
    part = json.loads(out.read_text())
    assert part["interrupted"] and part["benchmark_result"]["iterations"] > 0


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_every_stream_mode_measures_the_streams_that_were_asked_for(
    inferlab: Run, linear: Path, tmp_path: Path, mode: str
) -> None:
    out = tmp_path / "r.json"
    done = inferlab("benchmark", linear, "-nstreams", "3", "--stream-mode", mode, "-x", out, *QUICK)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert (result["num_streams"], result["stream_mode"]) == (3, mode)
    assert result["output_check"]["status"] == "match"


@pytest.mark.parametrize("pinning", ["none", "core", "numa"])
def test_every_pinning_runs(inferlab: Run, linear: Path, pinning: str) -> None:
    done = inferlab("benchmark", linear, "-pin", pinning, "-ncores", "1", *QUICK)
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
        f"result = Lab().benchmark(Plan({str(linear)!r}, time_s=0.1, warmup_s=0))\n"
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
    assert done.returncode == 2
    assert "could not be written" in done.stderr and "Iterations" in done.stdout
