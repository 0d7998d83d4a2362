"""`inferlab compare`, as a user sees it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inferlab.cli.compare import command
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear

DOCUMENTATION = (Path(__file__).parent.parent.parent / "docs/compare.md").read_text()
#: Two scripted arms, the second with twice the latency; they sleep, so that a busy machine does not matter.
TWICE = (
    "-e",
    "fake",
    "-s",
    "sync",
    "--a",
    "engine-option=latency_us=10000",
    "--b",
    "engine-option=latency_us=20000",
)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("models") / "linear.onnx", "batch")


def compared(
    inferlab_here: Run, out: Path, *arguments: object, pairs: int | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Compare for as long as this machine takes to decide, or until it was quiet enough to need so few pairs."""
    for seconds in (12, 24, 48, 96):
        done = inferlab_here("compare", *arguments, "-t", seconds, "-x", out)
        content = json.loads(out.read_text())
        if content["verdict"] != "inconclusive" and content["pairs"] == (pairs or content["pairs"]):
            break
    return done, content


def test_an_arm_of_twice_the_time_is_slower_and_the_gate_says_regressed(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    gate = ("--fail-if", "slower")
    done, content = compared(inferlab_here, tmp_path / "out.json", linear, *TWICE, *gate, pairs=2)
    assert done.returncode == 1, done.stderr
    assert content["verdict"] == "slower"
    assert 1.6 < content["ratio"] < 2.2
    assert content["interval"][0] <= content["ratio"] <= content["interval"][1]
    assert content["pairs"] == len(content["log_ratios"]) == len(content["a"]["times_ms"]) >= 2
    assert content["method"] == "moderated" and content["spread"]["prior"]["freedom"] == 2.0
    assert (content["paired"], content["metric"], content["format"]) == (True, "median", "inferlab-comparison/1")
    assert content["outputs_match"] is None and "no outputs in common" in content["output_detail"]
    (verdict,) = [line for line in done.stdout.splitlines() if line.startswith("Verdict: ")]
    # So large a difference is clear at the first look.
    assert (content["pairs"], content["level"]) == (2, 0.995)
    level = "99.5%"
    assert re.match(rf"Verdict: slower \(B takes [12]\.\d+ of A's time, {level} interval .*; outputs not", verdict)


def test_without_a_gate_a_comparison_that_ran_exits_with_0(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here("compare", linear, *TWICE, "-t", "6", "-q")
    assert (done.returncode, done.stderr) == (0, "")


def test_equal_arms_are_the_same_within_a_wide_margin_and_the_gate_holds(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    same = ("-e", "fake", "-s", "sync", "--engine-option", "latency_us=20000", "--margin", "90%")
    done, _ = compared(inferlab_here, tmp_path / "out.json", linear, *same, "--fail-if", "slower")
    assert done.returncode == 0, done.stdout
    assert "Verdict: same (" in done.stdout and "margin 90 %" in done.stdout
    assert "Both arms are the same" in done.stderr


def test_too_little_time_is_inconclusive_and_says_what_would_settle_it(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    done = inferlab_here("compare", linear, *TWICE, "-t", "0.1", "--fail-if", "slower", "-x", out)
    assert done.returncode == 4
    content = json.loads(out.read_text())
    assert (content["verdict"], content["interval"], content["pairs"]) == ("inconclusive", None, 1)
    assert content["settle_seconds"] > content["seconds"]
    assert "too few processes for an interval" in done.stdout
    assert re.search(r"^About .* would settle it\.$", done.stdout, re.M)


def test_two_engines_are_compared_with_their_outputs(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = inferlab_here("compare", linear, "-e", "onnxruntime,openvino", "-ncores", "1", "-t", "1", "-x", out)
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert (content["a"]["label"], content["b"]["label"]) == ("onnxruntime", "openvino")
    assert content["outputs_match"] is True and content["output_error"] < 1e-5
    assert content["a"]["output_check"]["status"] == content["b"]["output_check"]["status"] == "match"
    assert content["metric"] == "throughput"
    assert "outputs match (largest error" in done.stdout


def test_wrong_outputs_stand_on_the_line_of_the_verdict_and_fail_under_strict(
    inferlab_here: Run, linear: Path
) -> None:
    wrong = ("--a", "engine=onnxruntime", "--b", "engine=fake", "--b", "engine-option=outputs=zeros")
    done = inferlab_here("compare", linear, *wrong, "-t", "1", "-ncores", "1", "--strict")
    assert done.returncode == 5
    assert re.search(r"^Verdict: \w+ \(.*outputs DIFFER", done.stdout, re.M)


def test_two_models_are_compared_by_position(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    other = save_linear(tmp_path / "other.onnx", "batch", names=("x", "z"))
    done = inferlab_here("compare", linear, other, "-s", "sync", "-ncores", "1", "-t", "1", "-q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(f"A: {linear}: ")
    assert done.stdout.splitlines()[1].startswith(f"B: {other}: ")
    # The outputs have other names, so they are compared by position.
    assert "outputs match (largest error 0)" in done.stdout


def test_different_batch_sizes_are_compared_by_the_item(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    arms = ["-e", "fake", "-s", "sync", "--engine-option", "latency_us=20000"]
    arms += ["--a", "batch_size=1", "--b", "batch-size=4"]
    done, content = compared(inferlab_here, tmp_path / "out.json", linear, *arms)
    assert done.returncode == 0, done.stderr
    assert content["verdict"] == "faster" and 0.2 < content["ratio"] < 0.31
    assert content["output_detail"] == "the arms have different inputs"


def benchmark(inferlab_here: Run, model: Path, out: Path, latency_us: int, processes: int) -> Path:
    fake = ("-e", "fake", "-s", "sync", "--engine-option", f"latency_us={latency_us}")
    done = inferlab_here("benchmark", model, *fake, "-t", "0.5", "-w", "0", "--processes", processes, "-x", out)
    assert done.returncode == 0, done.stderr
    return out


def test_several_batch_sizes_are_compared_one_by_one(inferlab_here: Run, linear: Path, tmp_path: Path) -> None:
    out, several = tmp_path / "out.json", (linear, *TWICE, "-b", "1,2", "-ncores", "1")
    done = inferlab_here("compare", *several, "-t", "1", "-x", out)
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert (content["format"], content["failures"]) == ("inferlab-comparisons/1", [])
    assert [one["b"]["cell"]["batch_size"] for one in content["results"]] == [1, 2]
    assert all(one["ratio"] > 1.5 for one in content["results"])
    refused = inferlab_here("compare", *several, "--layers")
    assert (refused.returncode, refused.stderr) == (
        2,
        "inferlab: The layers of one cell are compared: give one value of each option, or leave out --layers.\n",
    )


def test_saved_results_are_compared_unpaired_and_it_says_so(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    a = benchmark(inferlab_here, linear, tmp_path / "a.json", 2000, 3)
    b = benchmark(inferlab_here, linear, tmp_path / "b.json", 6000, 3)
    out = tmp_path / "out.json"
    done = inferlab_here("compare", a, b, "--fail-if", "slower", "-x", out)
    assert done.returncode == 1, done.stdout
    content = json.loads(out.read_text())
    assert (content["verdict"], content["paired"], content["pairs"]) == ("slower", False, 0)
    assert content["method"] == "welch"
    assert "unpaired, 3 and 3 processes" in done.stdout
    assert "engine options: {'latency_us': '2000'} and {'latency_us': '6000'}" in done.stdout
    assert "were not measured interleaved" in done.stdout


@pytest.fixture(scope="module")
def of_one_process(inferlab_here: Run, linear: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return benchmark(inferlab_here, linear, tmp_path_factory.mktemp("results") / "one.json", 2000, 1)


def test_saved_results_of_one_process_have_no_interval(inferlab_here: Run, of_one_process: Path) -> None:
    done = inferlab_here("compare", of_one_process, of_one_process, "--fail-if", "slower")
    assert done.returncode == 4
    assert "Verdict: inconclusive (B takes 1.0000 of A's time, too few processes" in done.stdout
    assert "\nWhat would settle it cannot be told from so few processes: measure both interleaved" in done.stdout


def test_results_of_the_first_version_are_still_read(
    inferlab_here: Run, of_one_process: Path, tmp_path: Path
) -> None:
    content = json.loads(of_one_process.read_text())
    del content["processes"], content["benchmark_result"]["interval"], content["instances"], content["rate"]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(content | {"format": "inferlab-benchmark/1"}))
    done = inferlab_here("compare", old, of_one_process)
    assert done.returncode == 0, done.stderr
    assert "B takes 1.0000 of A's time" in done.stdout


BAD = [
    (["one.onnx", "two.onnx", "three.onnx"], "Two models are compared, not 3"),
    (["MODEL", "-e", "onnxruntime,openvino,torch"], "Two engines are compared, not 3"),
    (["MODEL", "--a", "num_cores"], "'num_cores' is not of the form OPTION=VALUE"),
    (["MODEL", "--a", "colour=red"], "An arm has no option 'colour'; it takes"),
    (["MODEL", "--b", "num_cores=many"], "num_cores=many: 'many' is not a whole number"),
    (["MODEL", "--b", "num_cores=99"], "99 cores were asked for"),
    (["MODEL", "--b", "scenario=sideways"], "sideways"),
    (["MODEL", "--b", "thread_pinning=glue"], "glue"),
    (["MODEL", "--b", "scenario=server"], "Arms of the scenario server get the same requests"),
    (["MODEL", "--b", "rate=5"], "An arm has no option 'rate'"),
    (["MODEL", "--margin", "0"], "The margin must lie between 0 and 100 %"),
    (["MODEL", "--margin", "wide"], "'wide' is not a share"),
    (["MODEL", "-t", "0"], "more than 0 seconds"),
    (["MODEL", "-t", "nan"], "more than 0 seconds"),
    (["MODEL", "--fail-if", "blue"], "'blue' is not"),
    (["MODEL", "result.json"], "A saved result is compared with another one"),
    (["result.json", "result.json", "--layers"], "Layers are those of models that are measured now"),
    (["nowhere.json", "nowhere.json"], "cannot be read: No such file"),
    (["BROKEN", "BROKEN"], "is not JSON"),
    (["FOREIGN", "FOREIGN"], "was not written by inferlab benchmark"),
    (["MODEL", "-e", "fake,nonsense"], "nonsense"),
    ([], "Missing argument"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_bad_input_gets_one_sentence(
    inferlab_here: Run, linear: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "foreign.json").write_text('{"format": "somebody else"}')
    names = {"MODEL": linear, "BROKEN": tmp_path / "broken.json", "FOREIGN": tmp_path / "foreign.json"}
    done = inferlab_here("compare", *[names.get(argument, argument) for argument in arguments])
    assert done.returncode == 2, done.stdout
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_engine_that_dies_ends_the_comparison_with_its_cause(inferlab_here: Run, linear: Path) -> None:
    dies = ("-e", "fake", "--b", "engine-option=fail=abort", "--b", "engine-option=at=5")
    done = inferlab_here("compare", linear, *dies, "-t", "5")
    assert done.returncode == 3
    assert "died" in done.stderr and "SIGABRT" in done.stderr


def test_ctrl_c_keeps_the_pairs_that_are_complete(
    environment: dict[str, str], linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    # Equal arms and next to no margin: nothing is clear before it is interrupted.
    equal = ["-e", "fake", "-s", "sync", "-ncores", "1", "--engine-option", "latency_us=1000", "--margin", "0.1%"]
    arguments = ["compare", linear, *equal, "-t", "40", "-x", out]
    command_line = [str(Path(sys.executable).parent / "inferlab"), *map(str, arguments)]
    running = subprocess.Popen(
        command_line, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("Pair 3"):
            break
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    stdout, _ = running.communicate()
    assert running.returncode == 130
    content = json.loads(out.read_text())
    assert content["interrupted"] and content["pairs"] >= 3
    assert "it was interrupted" in stdout


def test_every_option_of_compare_is_documented_and_no_other() -> None:
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    rows = "\n".join(re.findall(r"^\| (`-.*?) \|", DOCUMENTATION, re.M))
    documented = set(re.findall(r"`(-{1,2}[\w-]+)`", rows))
    common = {name for name in real if f"`{name}`" in (DOCUMENTATION.split("as in [benchmark]")[0])}
    assert documented | common == real


def test_the_help_offers_nothing_that_is_refused(inferlab_here: Run) -> None:
    shown = " ".join(inferlab_here("compare", "--help").stdout.split())
    for values in ("50,100", "1,8,32", "1,2,max", "32,128", " 1,2 "):
        assert values not in shown
    assert "-b, --batch_size N" in shown
