"""MNN: what it computes, what it converts and remembers, what it refuses, and what it tells of its layers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from inferlab.child import processes
from inferlab.cli.engines import command
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed
from inferlab.lab import Lab
from inferlab.measure import conversion as conversions
from inferlab.measure.cell import prepare_cell
from inferlab.measure.cells import jobs
from inferlab.measure.children import Children
from inferlab.measure.conversion import Conversion, Converted, converted
from inferlab.measure.findings import find
from inferlab.measure.recommend import deployment
from inferlab.model.reading import read_model
from inferlab.records import Candidate, Event, Outcome, Plan, Recommendation, Run, ignore
from inferlab.records.optimization import Pruning, Recipe, VersionOptions
from inferlab.records.profile import ProfileOptions
from inferlab.store import open_store
from inferlab.views import command as programs
from inferlab.worker import Launch
from inferlab.workspace.engines import Engines
from inferlab.workspace.entries import code_sample
from inferlab.workspace.workspace import Workspace
from tests.helpers import networks

pytest.importorskip("MNN")

Array = networks.Array
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
two_cpus = pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")

# An engine that converts by copying, slowly, and counts how often.
COPYING = """
import os, shutil, time
class Copying:
    def convert(self, model, folder, options):
        shutil.copy(model, os.path.join(folder, "copy.txt"))
        if options.get("fail"):
            raise RuntimeError("half of it was written")
        if options.get("link"):
            os.symlink("/etc/hostname", os.path.join(folder, "link.txt"))
            return [{"file": "link.txt", "options": {}}]
        time.sleep(0.2)
        with open(model + ".count", "a") as out:
            out.write("x")
        return [{"file": "copy.txt", "options": {}}]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that only this test has."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("INFERLAB_CACHE", str(folder))
    return folder


def zeroed(values: Array, share: float) -> Array:
    return np.where(np.random.default_rng(5).random(values.shape) < share, np.float32(0), values)


def network(folder: Path, zeros: float = 0.0, dims: Sequence[int | str] = ("batch", 16, "height", 16)) -> Path:
    """Two convolutions with an activation, and a classifier; batch and height are free."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="activation"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="second"),
        helper.make_node("GlobalAveragePool", ["c2"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w3"], ["m"], name="classify"),
        helper.make_node("Add", ["m", "b3"], ["y"], name="bias"),
    ]
    weights = {
        "w1": zeroed(networks.random(32, 16, 3, 3) * np.float32(0.1), zeros),
        "b1": networks.random(32),
        "w2": zeroed(networks.random(32, 32, 1, 1), zeros),
        "w3": zeroed(networks.random(32, 10), zeros),
        "b3": networks.random(10),
    }
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(networks.a_graph(nodes, weights, dims), folder / "net.onnx")
    return folder / "net.onnx"


def plan_of(model: Path, options: Mapping[str, str] | None = None, **changes: Any) -> Plan:
    usual: dict[str, Any] = {
        "scenarios": ("sync",), "num_cores": (1,), "batch_sizes": (2,), "input_shapes": "[2,16,12,16]",
        "time_s": 0.1, "warmup_s": 0.01, "processes": 1,
    }  # fmt: skip
    given = tuple((options or {}).items())
    return Plan(str(model), engines=("mnn",), engine_options=given, **{**usual, **changes})


def measured(plan: Plan, events: list[Event] | None = None) -> Outcome:
    (outcome,) = Lab().benchmark(plan, ignore if events is None else events.append).outcomes
    return outcome


def run_of(outcome: Outcome) -> Run:
    assert outcome.status == "done", outcome.failure
    assert outcome.runs[0].check.status == "match", outcome.runs[0].check
    return outcome.runs[0]


def codes(events: Sequence[Event]) -> list[str]:
    return [event.code for event in events if event.code in ("converting", "choosing", "chosen")]


def converted_files(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "converted").rglob("*.mnn"))


def test_it_computes_what_onnxruntime_computes_with_free_batch_and_height(tmp_path: Path, cache: Path) -> None:
    model = network(tmp_path / "model")
    events: list[Event] = []
    run = run_of(measured(plan_of(model), events))
    assert run.check.metric == "max" and run.check.error is not None and run.check.error < 1e-5
    assert (run.settings["gelu"], run.settings["winograd"]) == ("exact", 2)
    assert run.settings["sparse"] == "auto:off"
    assert (run.settings["precision"], run.settings["weights"], run.settings["num_threads"]) == ("FP32", "fp32", 1)
    assert codes(events) == ["converting"]
    assert converted_files(cache) == ["dense.mnn"]
    assert run.versions["mnn"].count(".") == 2
    # Nothing beside the user's file.
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]
    events.clear()
    run_of(measured(plan_of(model, input_shapes="[3,16,9,16]", batch_sizes=(3,)), events))
    assert codes(events) == []


def test_of_a_pruned_model_both_ways_are_measured_once_and_the_faster_is_remembered(
    tmp_path: Path, cache: Path
) -> None:
    model = network(tmp_path / "model", zeros=0.9)
    events: list[Event] = []
    first = run_of(measured(plan_of(model), events))
    assert codes(events) == ["converting", "choosing", "chosen"]
    (chosen,) = [event.data for event in events if event.code == "chosen"]
    assert set(chosen["ms"]) == {"dense", "sparse"}
    assert first.settings["sparse"] == {"dense": "auto:off", "sparse": "auto:on"}[chosen["chosen"]]
    assert converted_files(cache) == ["dense.mnn", "sparse.mnn"]
    events.clear()
    assert run_of(measured(plan_of(model), events)).settings == first.settings
    assert codes(events) == []
    settings = {
        sparse: run_of(measured(plan_of(model, {"sparse": sparse}), events)).settings for sparse in ("on", "off")
    }
    assert codes(events) == ["converting", "converting"]
    assert settings["on"]["sparse"] == "on"
    assert settings["on"]["file_bytes"] < 0.5 * settings["off"]["file_bytes"]


def test_a_model_with_a_fixed_batch_is_rewritten_and_converted_again(tmp_path: Path, cache: Path) -> None:
    model = network(tmp_path / "model", dims=(1, 16, 12, 16))
    for batch in (1, 4):
        run_of(measured(plan_of(model, batch_sizes=(batch,), input_shapes=None)))
    assert converted_files(cache) == ["dense.mnn", "dense.mnn"]


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ({"weights": "int8"}, "INT8"),
        ({"weights": "int8", "memory": "low"}, "INT8"),
        ({"weights": "fp16"}, "FP16"),
        ({"precision": "normal"}, "FP32"),
    ],
)
def test_weights_in_fewer_bits_are_an_option_and_judged_as_such(
    tmp_path: Path, options: dict[str, str], precision: str
) -> None:
    run = run_of(measured(plan_of(network(tmp_path / "model"), options)))
    assert run.settings["precision"] == precision
    assert run.settings["file_bytes"] < {"INT8": 12_000, "FP16": 18_000, "FP32": 40_000}[precision]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sparse": "maybe"}, "Engine 'mnn': sparse=maybe is not possible; sparse takes auto, on, off."),
        (
            {"speed": "1"},
            "Engine 'mnn': unknown option speed; it takes gelu, lstm, memory, precision, sparse, weights, "
            "winograd.",
        ),
        ({"sparse": "on", "weights": "int8"}, "Engine 'mnn': sparse=on needs weights=fp32"),
    ],
)
def test_an_option_that_it_does_not_have_is_refused(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    told: list[Event] = []
    plan, store = plan_of(network(tmp_path / "model"), options), open_store(str(tmp_path / "lab.db"))
    with pytest.raises(BadInput) as refused:
        Lab(store).benchmark(plan, told.append)
    assert str(refused.value).startswith(sentence)
    # Before anything is converted, and nothing is saved.
    assert codes(told) == [] and list(store.history()) == []
    # Beside an engine that has it, it is what became of a cell.
    (outcome,) = (
        outcome
        for outcome in Lab().benchmark(replace(plan, engines=("mnn", "fake"))).outcomes
        if outcome.cell.engine == "mnn"
    )
    assert outcome.failure is not None and outcome.failure.message.startswith(sentence)


def test_sparse_kernels_that_no_layer_has_zeros_enough_for_are_a_finding(tmp_path: Path, cache: Path) -> None:
    found = {
        zeros: find(outcome.cell, outcome.runs)
        for zeros in (0.0, 0.9)
        if run_of(outcome := measured(plan_of(network(tmp_path / str(zeros), zeros), {"sparse": "on"})))
    }
    assert {zeros: "no-sparse-layers" in [one.code for one in findings] for zeros, findings in found.items()} == {
        0.0: True,
        0.9: False,
    }
    assert converted_files(cache) == ["sparse.mnn", "sparse.mnn"]


def test_what_its_converter_does_not_support_is_refused_in_a_sentence(tmp_path: Path, cache: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("StringNormalizer", ["x"], ["y"])],
        "text",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [3])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
    )
    path = tmp_path / "text.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    outcome = measured(plan_of(path, batch_sizes=(None,), input_shapes=None))
    assert outcome.failure is not None
    assert outcome.failure.message == (
        "Engine 'mnn': its converter does not support StringNormalizer of this model."
    )
    assert [path.name for path in (cache / "converted").iterdir()] == ["lock"]


def test_a_quantised_model_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    weight = networks.random(8, 4, 3, 3).astype(np.int8)
    onnx.save(networks.a_graph(nodes, {"w": weight}, (1, 4, 8, 8)), tmp_path / "int8.onnx")
    outcome = measured(plan_of(tmp_path / "int8.onnx", batch_sizes=(None,), input_shapes=None))
    assert outcome.failure is not None
    assert outcome.failure.message == (
        "Engine 'mnn': its converter does not support ConvInteger of this model; "
        "give it the FP32 model, and weights=int8 for weights in INT8."
    )


def test_an_lstm_that_its_converter_cannot_take_apart_stays_whole(tmp_path: Path) -> None:
    weights = {"w": networks.random(1, 16, 3), "r": networks.random(1, 16, 4)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4)]
    onnx.save(networks.a_graph(nodes, weights, (5, 1, 3)), tmp_path / "lstm.onnx")
    plan = plan_of(tmp_path / "lstm.onnx", batch_sizes=(None,), input_shapes=None)
    way = run_of(measured(plan)).settings["lstm"]
    assert run_of(measured(replace(plan, engine_options=(("lstm", "whole"),)))).settings["lstm"] == "whole"
    taken_apart = measured(replace(plan, engine_options=(("lstm", "loop"),)))
    # MNN 3.6.1 crashes on it; a later version may not.
    assert way == ("whole" if taken_apart.failure else "loop")
    if taken_apart.failure:
        assert taken_apart.failure.message.startswith("Engine 'mnn': its converter crashes on this model (signal")


@two_cpus
@pytest.mark.parametrize("scenario", ["async", "elastic"])
def test_several_streams_run_side_by_side(tmp_path: Path, scenario: str) -> None:
    plan = plan_of(network(tmp_path / "model"), scenarios=(scenario,), num_cores=(2,), num_streams=(2,))
    run = run_of(measured(plan))
    assert len(run.windows[0].streams) == 2
    assert run.stream_mode == {"async": "processes", "elastic": "threads"}[scenario]
    assert run.settings["num_threads"] == {"async": 1, "elastic": 2}[scenario]


def test_its_layers_are_joined_with_the_nodes_that_they_compute(tmp_path: Path) -> None:
    model = network(tmp_path / "model")
    performance = Lab().profile(plan_of(model), ProfileOptions(loss=False, time_s=0.2)).performance
    assert performance is not None and performance.problems == ()
    layers = {layer.id: layer for layer in performance.layers}
    assert {name: (layers[name].type, layers[name].nodes) for name in ("c1", "c2", "m")} == {
        "c1": ("Conv", ("c1", "r1")),
        "c2": ("Conv", ("c2",)),
        "m": ("MatMul", ("f", "m", "y")),
    }
    assert layers["c1"].weight == "w1"
    # What copies and reorders tensors is the engine's own.
    assert {layer.type for layer in performance.layers if not layer.nodes} == {"Raster"}


def test_a_profile_says_how_it_computes_in_int8_where_it_runs_no_quantised_copy(tmp_path: Path) -> None:
    wanted = ProfileOptions(loss=False, int8=True, estimate=False, time_s=0.2)
    performance = Lab().profile(plan_of(network(tmp_path / "model")), wanted).performance
    assert performance is not None and performance.problems == (
        "INT8 was not measured: mnn runs no copy that is quantised already. It quantises the model itself with "
        "--engine-option weights=int8, which no estimate includes: inferlab benchmark times it.",
    )


def test_it_refuses_to_impose_sparsity(tmp_path: Path) -> None:
    (job,) = jobs(plan_of(network(tmp_path / "model")), read_model(str(tmp_path / "model" / "net.onnx")))
    with (
        prepare_cell(job, ignore) as prepared,
        Children(prepared) as fresh,
        pytest.raises(BadInput, match="mnn cannot impose sparsity; prune a copy of the model"),
    ):
        fresh.layers(0.01, 0.9)


def deployed(program: str, folder: Path, x: Array) -> Any:
    """What a program that deploys a model computes, in a process and a folder of its own."""
    (folder / "deployed.py").write_text(
        program.partition("\nif __name__")[0]
        + "\nx = numpy.load('x.npy')\nnumpy.save('y.npy', stream(load([]))({'x': x})[0])\n"
    )
    np.save(folder / "x.npy", x)
    done = subprocess.run([sys.executable, "deployed.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "y.npy")


@pytest.mark.parametrize("sparse", ["auto:on", "off"])
def test_the_program_that_deploys_it_computes_the_same(tmp_path: Path, sparse: str) -> None:
    path = network(tmp_path / "model", zeros=0.9)
    model = read_model(str(path))
    (job,) = jobs(plan_of(path), model)
    made = programs.program(Candidate("mnn", 1, 1, 2), deployment(job, decided={"sparse": sparse}))
    x = networks.random(2, 16, 12, 16)
    assert ("--detectSparseSpeedUp" in made) == (sparse == "auto:on")
    # As a person would write it.
    assert '            "--bizCode", "inferlab", "--useGeluApproximation", "0"' in made and "*[" not in made
    np.testing.assert_allclose(
        deployed(made, tmp_path, x), networks.run_onnxruntime(model, {"x": x})[0], rtol=1e-4, atol=1e-5
    )


def test_the_code_of_a_version_is_converted_in_the_way_that_was_measured_to_be_faster(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", [f"x{n}" if n else "x", f"w{n}"], [f"x{n + 1}"]) for n in range(2)]
    nodes.append(helper.make_node("Relu", ["x2"], ["y"]))
    # With so many zeros sparse kernels take a fraction of the time, on every machine.
    weights = {f"w{number}": networks.random(256, 256, 1, 1) for number in range(2)}
    onnx.save(networks.a_graph(nodes, weights, (1, 256, 14, 14)), tmp_path / "net.onnx")
    pruned = tmp_path / "pruned.onnx"
    recipe = Recipe(pruning=Pruning(sparsity=0.98, ends=True))
    with open_store(str(tmp_path / "lab.db")) as store:
        workspace = Workspace(store, [tmp_path])
        workspace.engines = Engines((registry.describe("mnn"),))
        wanted = VersionOptions(recipe, str(pruned), engines=(), time_s=1.0)
        version = Lab(store).optimize(Plan(str(tmp_path / "net.onnx")), wanted)
        before = code_sample(workspace, version.id, "mnn").text
        run = run_of(measured(plan_of(pruned, num_cores=(None,), batch_sizes=(None,), input_shapes=None)))
        after = code_sample(workspace, version.id, "mnn").text
    # As it stands in the list, not in the note.
    flag, note = '"0", "--detectSparseSpeedUp", "1"', "# Dense: sparse weights"
    assert flag not in before and note in before
    assert (flag in after) == (run.settings["sparse"] == "auto:on") and note not in after
    x = networks.random(1, 256, 14, 14)
    expected = networks.run_onnxruntime(read_model(str(pruned)), {"x": x})[0]
    for text in (before, after):
        np.testing.assert_allclose(deployed(text, tmp_path, x), expected, rtol=1e-4, atol=1e-4)


def test_converting_does_not_count_against_the_time_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost_s = time.monotonic, 0.0
    monkeypatch.setattr("inferlab.measure.exploration.time.monotonic", lambda: real() + lost_s)
    convert = conversions._convert

    def slowly(*arguments: Any) -> None:
        nonlocal lost_s
        convert(*arguments)
        lost_s += 1000.0

    monkeypatch.setattr(conversions, "_convert", slowly)
    events: list[Event] = []
    plan = plan_of(network(tmp_path / "model"), num_streams=(1,))
    found = Lab().recommend(plan, time_s=300.0, listener=events.append)
    assert isinstance(found, Recommendation) and lost_s == 1000.0
    assert codes(events) == ["converting"]
    # Three processes are what a search takes at most of one candidate; one, where the time is up.
    assert [len(contender.rounds) for contender in found.contenders] == [3]
    assert found.seconds > 1000


def test_it_is_installed_as_an_extra() -> None:
    assert registry.describe("mnn").state == "ready"
    result = CliRunner().invoke(command, ["install", "mnn"])
    assert str(result.exception) == (
        "Engine 'mnn' lives beside inferlab, without an environment of its own. "
        "Install it with: pip install 'inferlab[mnn]'"
    )


# A conversion that is cut off leaves neither half a file nor a process.

CONVERTING = """
import sys
from pathlib import Path
from inferlab.engines import registry
from inferlab.measure.conversion import Conversion, converted
from inferlab.records import ignore
wanted = Conversion(registry.launch("mnn"), Path(sys.argv[1]), {}, ["digest"], [], 60.0)
with converted(wanted, lambda file: 0.0, ignore):
    pass
"""


@contextmanager
def hanging_conversion(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that converts a file which never comes to an end, and all that it has started."""
    os.mkfifo(folder / "endless.onnx")
    # So that whoever opens it to read waits for bytes, not for somebody who might write them.
    writing = os.open(folder / "endless.onnx", os.O_RDWR)
    arguments = [sys.executable, "-c", CONVERTING, str(folder / "endless.onnx")]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            # The confined process of the engine, and the fork of it that converts.
            while len(started := processes.descendants_of(process.pid)) < 2:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            yield process, started
        finally:
            process.kill()
            os.close(writing)


def runs(process: int) -> bool:
    """Whether a process is there and has not ended: where nobody asks how it ended, it stays a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(processes: Sequence[int]) -> None:
    deadline = time.monotonic() + 60
    while any(runs(process) for process in processes):
        assert time.monotonic() < deadline, processes
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_conversion_that_is_interrupted_or_killed_leaves_no_process(
    tmp_path: Path, cache: Path, number: signal.Signals
) -> None:
    with hanging_conversion(tmp_path) as (process, started):
        process.send_signal(number)
        process.wait()
        wait_until_gone(started)
    left = [path.name for path in (cache / "converted").iterdir() if path.name != "lock"]
    # Who is killed cannot clean up; the next conversion does.
    assert [name.startswith(".inferlab-") for name in left] == ([True] if number == signal.SIGKILL else [])


def test_a_converted_model_that_does_not_fit_on_the_disk_is_a_sentence_and_not_kept(
    tmp_path: Path, cache: Path
) -> None:
    weights = {"w": networks.random(1024, 1024)}
    path = tmp_path / "large.onnx"
    onnx.save(networks.a_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], weights, (1, 1024)), path)
    # The system refuses what is written beyond a megabyte, as a full disk does.
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
    done = subprocess.run([sys.executable, "-c", limit + CONVERTING, str(path)], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "inferlab.errors.BadInput: Engine 'mnn': the converted model cannot be written: File too large; "
        "INFERLAB_CACHE names another folder."
    )
    assert [path.name for path in (cache / "converted").iterdir()] == ["lock"]


# What is converted is kept, whatever the engine.


@pytest.fixture
def conversion(tmp_path: Path) -> Conversion:
    (tmp_path / "copying.py").write_text(COPYING)
    (tmp_path / "model.txt").write_text("a model")
    launch = Launch("copying", {"file": str(tmp_path / "copying.py"), "class": "Copying"}, trusted=True)
    return Conversion(launch, tmp_path / "model.txt", {}, ["digest"], [], patience_s=60.0)


def never(_: Converted) -> float:
    raise AssertionError("one file needs no measuring")


def test_nothing_is_converted_twice_at_once(conversion: Conversion, tmp_path: Path) -> None:
    texts: list[str] = []

    def convert() -> None:
        with converted(conversion, never, ignore) as file:
            texts.append(file.path.read_text())

    threads = [threading.Thread(target=convert) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["a model"] * 3
    assert (tmp_path / "model.txt.count").read_text() == "x"


def test_what_a_killed_conversion_left_behind_is_removed_and_never_taken(
    conversion: Conversion, cache: Path
) -> None:
    for _ in ("when it converts again", "when it finds what was converted"):
        abandoned = cache / "converted" / ".inferlab-0123"
        abandoned.mkdir(parents=True)
        (abandoned / "copy.txt").write_text("half")
        with converted(conversion, never, ignore) as file:
            assert file.path.read_text() == "a model"
        assert not abandoned.exists()


@pytest.mark.parametrize(
    ("option", "error", "sentence"),
    [("fail", BadInput, "half of it was written"), ("link", EngineFailed, "wrote no file that can be loaded")],
)
def test_a_conversion_that_fails_leaves_nothing(
    conversion: Conversion, cache: Path, option: str, error: type[Exception], sentence: str
) -> None:
    failing = replace(conversion, options={option: "1"})
    with pytest.raises(error, match=sentence), converted(failing, never, ignore):
        pass
    assert [path.name for path in (cache / "converted").iterdir()] == ["lock"]


def test_the_cache_lets_go_of_what_was_used_longest_ago_but_not_of_what_is_in_use(
    conversion: Conversion, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferlab.measure.conversion._CACHE_BYTES", 10)
    first, second, third = (replace(conversion, identity=[name]) for name in "abc")
    with converted(first, never, ignore) as in_use:
        with converted(second, never, ignore) as gone:
            pass
        with converted(third, never, ignore) as newest:
            pass
        assert [file.path.exists() for file in (in_use, gone, newest)] == [True, False, True]


def test_a_cache_that_cannot_be_written_is_a_sentence(conversion: Conversion, cache: Path) -> None:
    cache.write_text("a file, not a folder")
    with (
        pytest.raises(
            BadInput, match=r"cannot be converted for 'copying' in .*: Not a directory\. INFERLAB_CACHE"
        ),
        converted(conversion, never, ignore),
    ):
        pass
