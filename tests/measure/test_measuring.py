"""Cells measured for real, with the scripted engine: what becomes of them as records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from inferlab import Lab, Plan, machine
from inferlab.measure import stats
from inferlab.measure.children import Children
from inferlab.measure.findings import find
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.stats import seconds, summarize
from inferlab.records import Event, Finding, Outcome, Run, Window
from inferlab.views.text import event
from tests.helpers.onnx_files import save_linear

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells who waited")


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("models") / "linear.onnx", "batch")


def measured(linear: Path, options: dict[str, str] | None = None, **fields: Any) -> Outcome:
    """The outcome of one cell on the scripted engine, sync on one core unless told otherwise."""
    wanted = {
        "scenarios": ("sync",),
        "num_cores": (1,),
        "time_s": 0.3,
        "warmup_s": 0.0,
        "processes": 1,
        "verify": False,
        **fields,
    }
    plan = Plan(str(linear), ("fake",), engine_options=tuple(sorted((options or {}).items())), **wanted)
    (outcome,) = Lab().benchmark(plan).outcomes
    assert outcome.status == "done", outcome.failure
    return outcome


def due_ns(run: Run) -> NDArray[np.int64]:
    """When the requests of a run were due that it served, from the first one on."""
    due = [np.asarray(stream.scheduled_ns, np.int64) for window in run.windows for stream in window.streams]
    found = np.sort(np.concatenate(due))
    return np.asarray(found - found[0], np.int64)


def test_every_process_measures_its_share_in_windows_of_half_a_second(linear: Path) -> None:
    outcome = measured(linear, {"latency_us": "5000"}, time_s=3.0, processes=2)
    assert [len(run.windows) for run in outcome.runs] == [3, 3]
    assert len({run.started_at for run in outcome.runs}) == 2
    summary = summarize(outcome.cell, outcome.runs)
    assert summary is not None and summary.median_ms.low is not None
    assert summary.iterations == sum(
        len(stream) for run in outcome.runs for window in run.windows for stream in window.streams
    )
    assert summary.seconds_ran == sum(seconds(window) for run in outcome.runs for window in run.windows)


def test_a_tiny_time_still_measures_one_call_in_one_window(linear: Path) -> None:
    outcome = measured(linear, {"latency_us": "20000"}, time_s=0.001)
    (window,) = outcome.runs[0].windows
    assert len(window.streams[0]) == 1
    assert "one-process" in [one.code for one in find(outcome.cell, outcome.runs)]


def test_a_warm_up_of_nothing_is_left_out(linear: Path) -> None:
    assert measured(linear, warmup_s=0.0).runs[0].warmup == ()


@pytest.mark.parametrize(
    ("fields", "processes"),
    [
        ({"time_s": 0.1, "processes": 1}, 1),
        ({"time_s": 0.4, "processes": 4}, 4),
        ({"time_s": 600.0, "processes": None, "precision": 0.9}, 5),
    ],
)
def test_every_process_may_warm_up_as_long_as_was_asked_whatever_the_time_and_the_processes(
    linear: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], processes: int
) -> None:
    allowed_s: list[float] = []
    told: list[Event] = []
    monkeypatch.setattr(Children, "warm_up", lambda self, seconds: allowed_s.append(seconds))
    plan = Plan(str(linear), ("fake",), ("sync",), (1,), **{"warmup_s": 2.0, "verify": False, **fields})
    (outcome,) = Lab().benchmark(plan, told.append).outcomes
    assert len(outcome.runs) == processes
    assert allowed_s == [2.0] * processes
    (said,) = [event(one) for one in told if one.code == "warming"]
    assert said == "Warming up each process until it is steady, 2 seconds at most"


def test_the_sample_limit_ends_a_process_early_and_is_said(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlab.measure.children.MOST_SAMPLES", 50)
    outcome = measured(linear, {"latency_us": "1000"}, time_s=60.0)
    assert [len(window.streams[0]) for window in outcome.runs[0].windows] == [50]
    assert "sample-limit" in [one.code for one in find(outcome.cell, outcome.runs)]


@pytest.mark.parametrize(("interrupt_at", "cut", "windows"), [(3, [True], 2), (6, [False, True], 5), (1, [], 0)])
def test_ctrl_c_between_two_windows_keeps_those_before_it(
    linear: Path, monkeypatch: pytest.MonkeyPatch, interrupt_at: int, cut: list[bool], windows: int
) -> None:
    measure, calls = Children.measure, iter(range(1, 100))

    def interrupted(self: Children, seconds: float) -> Window:
        if next(calls) == interrupt_at:
            raise KeyboardInterrupt
        return measure(self, seconds)

    monkeypatch.setattr(Children, "measure", interrupted)
    # Two processes of four windows each; the first window of the second one is the fifth.
    plan = Plan(str(linear), ("fake",), ("sync",), time_s=4.0, warmup_s=0.0, processes=2, verify=False)
    (outcome,) = Lab().benchmark(plan).outcomes
    assert outcome.status == "cancelled"
    assert [run.interrupted for run in outcome.runs] == cut
    assert sum(len(run.windows) for run in outcome.runs) == windows


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_streams_serve_one_queue_and_every_request_once(linear: Path, mode: Any) -> None:
    outcome = measured(
        linear,
        {"latency_us": "1000"},
        scenarios=("server",),
        rates=(200.0,),
        num_cores=(machine.usable_cores(),),
        num_streams=(3,),
        stream_mode=mode,
        time_s=1.0,
        processes=2,
    )
    for number, run in enumerate(outcome.runs):
        arrivals = poisson_arrivals(200.0, 0.5, seed=number)
        (window,) = run.windows
        assert run.stream_mode == mode and len(window.streams) == 3
        assert window.arrivals == len(arrivals)
        # Those that still waited when time was up are missing at the end, if any.
        assert np.array_equal(due_ns(run), (arrivals - arrivals[0])[: len(due_ns(run))])


def test_the_same_cell_gets_the_same_requests_and_another_seed_others(linear: Path) -> None:
    def due(seed: int) -> list[list[int]]:
        plan: dict[str, Any] = {"scenarios": ("server",), "rates": (100.0,), "time_s": 0.8, "processes": 2}
        outcome = measured(linear, {"latency_us": "100"}, seed=seed, **plan)
        return [due_ns(run).tolist() for run in outcome.runs]

    first, again, other = due(0), due(0), due(1)
    # Those that still waited when time was up are missing at the end, if any.
    for one, same in zip(first, again, strict=True):
        served = min(len(one), len(same))
        assert served > 5 and one[:served] == same[:served]
    assert first[0][:5] != first[1][:5]
    assert first[0][:5] != other[0][:5]


@pytest.mark.parametrize("rate", [800.0, 550.0])
def test_a_rate_above_what_can_be_served_is_called_overload(linear: Path, rate: float) -> None:
    # A call of 2 ms serves 500 requests a second at best. At 550 all are served in the end, but late.
    outcome = measured(
        linear, {"latency_us": "2000", "spin": "1"}, scenarios=("server",), rates=(rate,), time_s=1.0
    )
    (found,) = [one for one in find(outcome.cell, outcome.runs) if one.code == "overloaded"]
    assert found.data["rate"] == rate
    if rate == 800.0:
        assert found.data["share"] > 0.1
    summary = summarize(outcome.cell, outcome.runs)
    assert summary is not None and summary.items_per_sec.value < 505
    assert summary.service_percentiles_ms is not None
    # The 50th percentile is unknown where a busy machine served less than half.
    service = summary.service_percentiles_ms[50.0]
    assert service is not None and summary.median_ms.value > service >= 2.0


def test_a_rate_at_which_no_request_comes_is_measured_and_said(linear: Path) -> None:
    outcome = measured(linear, scenarios=("server",), rates=(0.001,), time_s=0.5, processes=2)
    assert summarize(outcome.cell, outcome.runs) is None
    assert Finding("no-requests", {"idle": 2, "processes": 2, "rate": 0.001}) in find(outcome.cell, outcome.runs)


def test_a_precision_is_not_sought_among_processes_without_requests(linear: Path) -> None:
    outcome = measured(linear, scenarios=("server",), rates=(0.001,), time_s=0.5, processes=None, precision=0.05)
    assert len(outcome.runs) == 5


def test_a_precision_ends_the_measuring_once_five_processes_agree(linear: Path) -> None:
    outcome = measured(linear, {"latency_us": "10000"}, time_s=60.0, processes=None, precision=0.5)
    assert len(outcome.runs) == 5
    assert stats.precise(outcome.cell, outcome.runs)
    assert not stats.time_is_up(outcome.cell, 5, outcome.runs[0].ready_s)
    assert "not-precise" not in [one.code for one in find(outcome.cell, outcome.runs)]


def test_a_precision_that_cannot_be_reached_ends_with_the_time(linear: Path) -> None:
    outcome = measured(linear, {"latency_us": "1000"}, time_s=0.5, processes=None, precision=1e-9)
    assert len(outcome.runs) == 5
    assert Finding("not-precise", {"wanted": 1e-9, "seconds": 0.5}) in find(outcome.cell, outcome.runs)


def save_int8(path: Path) -> Path:
    """y = 2·x, with x and the weight in eight bits."""
    constants: dict[str, NDArray[Any]] = {
        "scale": np.array(1 / 64, np.float32),
        "zero": np.array(0, np.int8),
        "weight": 127 * np.eye(4, dtype=np.int8),
        "weight_scale": np.array(2 / 127, np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["weight", "weight_scale", "zero"], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph(
        nodes, "int8", [x], [y], [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize(("factor", "codes"), [(2.0, []), (2.34, ["deviates"]), (3.0, ["output-mismatch"])])
def test_outputs_of_an_int8_model_that_are_off_are_said(tmp_path: Path, factor: float, codes: list[str]) -> None:
    engine = tmp_path / "scaling.py"
    engine.write_text(
        "class Scaling:\n"
        "    def load(self, model, options):\n"
        "        pass\n"
        "    def bind(self, inputs, stream=0):\n"
        f"        return lambda: [inputs['x'] * {factor}]\n"
    )
    plan = Plan(str(save_int8(tmp_path / "int8.onnx")), (f"{engine}:Scaling",), ("sync",), num_cores=(1,),
                time_s=0.1, warmup_s=0.0, processes=1)  # fmt: skip
    (outcome,) = Lab().benchmark(plan).outcomes
    assert outcome.status == "done", outcome.failure
    of_outputs = ("output-mismatch", "deviates", "unchecked")
    assert [one.code for one in find(outcome.cell, outcome.runs) if one.code in of_outputs] == codes


@LINUX
def test_instances_have_cores_of_their_own(linear: Path, tmp_path: Path) -> None:
    engine = tmp_path / "told.py"
    engine.write_text(
        "import os, time\n"
        "class Told:\n"
        "    def load(self, model, options):\n"
        "        cpus = sorted(os.sched_getaffinity(0))\n"
        f"        open(os.path.join({str(tmp_path)!r}, 'pid-%d' % os.getpid()), 'w').write(repr(cpus))\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: time.sleep(0.001)\n"
    )
    cores = machine.usable_cores()
    plan = Plan(str(linear), (f"{engine}:Told",), ("sync",), instances=(cores,), time_s=0.1, warmup_s=0.0,
                processes=1, verify=False)  # fmt: skip
    (outcome,) = Lab().benchmark(plan).outcomes
    assert outcome.status == "done", outcome.failure
    (run,) = outcome.runs
    assert len(run.windows[0].streams) == cores and run.stream_mode == "single"
    told = sorted(path.read_text() for path in tmp_path.glob("pid-*"))
    assert told == sorted(f"[{cpu}]" for cpu in machine.choose_cpus(cores, "core"))


@pytest.fixture
def hog() -> Iterator[int]:
    """Another program that never lets go of the first CPU that we would measure on."""
    (cpu,) = machine.choose_cpus(1, "core")
    code = f"import os; os.sched_setaffinity(0, [{cpu}]); print('busy', flush=True)\nwhile True: pass"
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "busy\n"
    yield cpu
    other.kill()
    other.communicate()


@pytest.mark.alone
@LINUX
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not tell who waited")
@pytest.mark.parametrize(("streams", "scenario"), [(1, "sync"), (1, "server"), (2, "elastic")])
def test_a_program_that_takes_the_cpu_is_noticed(linear: Path, hog: int, streams: int, scenario: Any) -> None:
    """Half the time in fact; a fifth is what nobody can call chance. Two streams in threads are noticed too."""
    fields: dict[str, Any] = {"rates": (300.0,)} if scenario == "server" else {}
    if streams > 1:
        fields |= {"num_streams": (streams,), "stream_mode": "threads"}
    outcome = measured(linear, {"latency_us": "2000", "spin": "1"}, scenarios=(scenario,), time_s=1.5, **fields)
    found = {one.code: one.data for one in find(outcome.cell, outcome.runs)}
    waited = found.get("waited-for-cpu" if streams == 1 else "waited-for-each-other")
    assert waited is not None and waited["share"] > 0.2
    assert waited["touched"] == waited["windows"] == len(outcome.runs[0].windows)
