"""`inferlab capacity`, as a user sees it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from inferlab.cli.capacity import command
from inferlab.measure import queueing
from inferlab.measure.queueing import meets, parse_objective
from inferlab.views import text
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear

# It sleeps: a machine with other work hardly delays that.
FIXED = ("-e", "fake", "--engine-option", "latency_us=5000", "-ncores", "1")
DOCUMENT = (Path(__file__).parent.parent.parent / "docs/capacity.md").read_text()


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("model") / "linear.onnx", "batch")


def starved(out: Path) -> bool:
    """Whether a process had so little of the CPU that no rate at all met the objective, as the result says."""
    found = json.loads(out.read_text()) if out.exists() else {"findings": [], "processes": []}
    waited = "waited-for-cpu" in [finding["code"] for finding in found["findings"]]
    return waited and any(process["reach"] == "none" for process in found["processes"])


def searched(inferlab_here: Run, out: Path, seconds: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Search for so many seconds, or for longer where it says that this machine is too busy for that."""
    while True:
        done = inferlab_here("capacity", *arguments, "-t", seconds, "-x", out)
        if seconds > 100 or ("did not end within" not in done.stderr and not starved(out)):
            return done
        seconds *= 2


@pytest.mark.alone
def test_a_server_of_fixed_services_is_found_to_bear_what_theory_says(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out, slo = tmp_path / "capacity.json", parse_objective("p95<20ms")
    done = searched(inferlab_here, out, 20, linear, *FIXED, "--slo", "p95 < 20 ms")
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    service_s = found["curve"][-1]["service"]["median"] / 1e3
    true_rate = queueing.highest_rate(np.array([service_s]), 1, partial(meets, slo), seed=1, requests=200_000)
    # Within 15 %, or, where the machine was disturbed and the result says so, within its interval or below.
    near = abs(found["max_rate"] / true_rate - 1) < 0.15
    low, high = found["interval"] or [0.0, 0.0]
    disturbed = {one["code"] for one in found["findings"]} & {
        "waited-for-cpu",
        "steal",
        "clock-changed",
        "throttled",
    }
    assert near or low < true_rate < high or (disturbed and 0 < found["max_rate"] < true_rate), found["processes"]
    assert 0 < found["predicted_rate"] < found["saturation_rate"] < 200
    headline = next(line for line in done.stdout.splitlines() if line.startswith("Highest rate"))
    assert re.fullmatch(
        r"Highest rate that meets p95<20ms: [\d.]+ requests/s"
        r" \((95% interval [\d.]+ to [\d.]+, |too noisy for an interval, )?\d process(es)?\)",
        headline,
    )
    assert "- highest rate that meets p95<20ms -" in done.stdout
    assert "Next: inferlab benchmark" in done.stderr
    assert "Process 1: requests arrive at" in done.stderr


def test_the_exported_file_has_all_that_the_answer_rests_on(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "capacity.json"
    done = searched(inferlab_here, out, 8, linear, *FIXED, "--slo", "mean<500ms", "--processes", "1", "-q")
    assert done.returncode == 0 and done.stderr == ""
    found = json.loads(out.read_text())
    assert found["format"] == "inferlab-capacity/1"
    assert found["slo"] == {"text": "mean<500ms", "statistic": "mean", "limit": 500.0}
    assert found["interval"] is None and len(found["processes"]) == 1
    assert found["max_rate"] == pytest.approx(found["processes"][0]["rate"])
    assert {"output_check", "findings", "cell", "machine", "versions", "model", "engine_settings"} <= set(found)
    assert "one-process-asked" in [one["code"] for one in found["findings"]]
    for rung in found["curve"]:
        assert set(rung["response"]) == set(rung["service"]) == {"mean", "median", "p90", "p95", "p99"}
        assert rung["service"]["mean"] > 0
        # What was given up has no response time, so there is no mean either.
        if rung["unserved_share"] > 0:
            assert rung["response"]["mean"] is None
        else:
            assert rung["response"]["mean"] >= rung["service"]["mean"]
        assert rung["requests"] >= 662 or rung["response"]["p99"] is None
    assert "no interval" in done.stdout


def test_an_objective_below_the_service_time_gets_no_rate_and_a_sentence(
    inferlab_here: Run, linear: Path, tmp_path: Path
) -> None:
    out = tmp_path / "none.json"
    done = inferlab_here("capacity", linear, *FIXED, "--slo", "p99<1ms", "-t", "3", "-x", out)
    assert done.returncode == 0, done.stderr
    assert re.search(r"No rate meets p99<1ms: even requests that come one by one take [\d.]+ ms", done.stdout)
    found = json.loads(out.read_text())
    assert (found["max_rate"], found["interval"], found["curve"]) == (0.0, None, [])


BAD_INPUT = [
    (["--slo", "p99<20 fortnights"], "p99<20ms"),
    (["--slo", ""], "cannot be read"),
    (["--slo", "p100<1ms"], "below p100"),
    (["--slo", "p99<0ms"], "limit of 0"),
    ([], "--slo"),
    (["--slo", "p99<20ms", "-t", "0"], "more than 0"),
    (["--slo", "p99<20ms", "--processes", "0"], "at least 1"),
    (["--slo", "p99<20ms", "-s", "sync"], "-s"),
    (["--slo", "p99<20ms", "--rate", "5"], "--rate"),
    (["--slo", "p99<20ms", "-x", "no/such/folder/out.json"], "does not exist"),
    (["--slo", "p99.9<20ms", "-t", "1"], "6636 requests"),
    (["--slo", "p99<20ms", "-t", "2", "--processes", "5"], "Give -t"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_INPUT, ids=[" ".join(row[0]) for row in BAD_INPUT])
def test_bad_input_gets_one_sentence_and_exit_code_2(
    inferlab_here: Run, linear: Path, arguments: list[str], said: str
) -> None:
    done = inferlab_here("capacity", linear, *FIXED, *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and done.stdout == "" and "Traceback" not in done.stderr


def test_an_engine_that_aborts_gives_exit_code_3_and_the_cause(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here(
        "capacity", linear, *FIXED, "--engine-option", "fail=abort", "--engine-option", "at=5", "--slo", "p99<9ms"
    )
    assert done.returncode == 3
    assert "SIGABRT" in done.stderr and "Traceback" not in done.stderr


def test_wrong_outputs_are_said_and_fail_when_strict(inferlab_here: Run, linear: Path) -> None:
    done = inferlab_here(
        "capacity", linear, *FIXED, "--engine-option", "outputs=zeros", "--slo", "p99<1ms", "-t", "2", "--strict"
    )
    assert done.returncode == 5
    assert "Output Check: WRONG" in done.stdout and "is meaningless" in done.stdout


@pytest.mark.parametrize("process", [1, 2])
def test_interrupting_keeps_the_processes_that_are_complete(
    environment: dict[str, str], linear: Path, process: int
) -> None:
    # Services so short that a busy machine, too, has the time for two processes.
    quick = ["-e", "fake", "--engine-option", "latency_us=1000", "-ncores", "1"]
    for seconds in (10, 40, 160):
        arguments = ["capacity", linear, *quick, "--slo", "mean<10ms", "-t", seconds, "--processes", "2"]
        running = subprocess.Popen(
            [str(Path(sys.executable).parent / "inferlab"), *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        if any(line.startswith(f"Process {process}: ") for line in running.stderr):
            break
        # This machine is so busy that the first process took all of the time.
        running.communicate()
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in stderr
    if process == 1:
        assert stdout == "" and "interrupted" in stderr
    else:
        assert "Highest rate" in stdout and "1 process)" in stdout
        assert "interrupted; of the processes, the 1 that" in stdout


def test_every_option_is_documented_and_no_other() -> None:
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    documented = set(re.findall(r"`(-{1,2}[\w-]+)`", "\n".join(re.findall(r"^\| (`-.*?) \|", DOCUMENT, re.M))))
    assert documented == real


def test_every_finding_of_the_search_is_documented() -> None:
    assert set(re.findall(r"^\| `([a-z][a-z-]+)` \|", DOCUMENT, re.M)) == set(text.CAPACITY_FINDINGS)
