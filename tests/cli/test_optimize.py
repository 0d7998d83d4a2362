"""`inferlab optimize`, run as a user runs it."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from inferlab.codec import plain
from inferlab.model.onnx_file import read_onnx
from inferlab.optimizing import recipes
from inferlab.records.optimization import Distance, Quantization, Recipe
from inferlab.records.profile import ChangedCopy
from tests.cli.conftest import Run
from tests.helpers.perceptrons import perceptron

QUICK = ("-ncores", "1", "-q", "--measure", "none", "--no-save")


@pytest.fixture(scope="module")
def whole(inferlab_here: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """The digits pruned and in INT8, measured on two engines: what is printed, what is told, and the folder."""
    folder = tmp_path_factory.mktemp("optimize")
    done = inferlab_here(
        *("optimize", "demo:digits", "-o", folder / "out.onnx", "--sparsity", "0.5", "--int8", "static"),
        *("--data", "demo:digits", "--measure", "onnxruntime,openvino", "-t", "0.5", "-ncores", "1"),
        *("--name", "both", "-x", folder / "report.json", "--store", folder / "lab.db"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, folder


def test_what_is_printed_tells_both_models_the_cost_the_speed_and_the_layers(whole: tuple[str, str, Path]) -> None:
    printed, told, folder = whole
    for part in (
        "Model: demo:digits (29.9 k parameters, 118 KiB, FP32)",
        f"Optimised: {folder / 'out.onnx'} (",
        "INT8, ",
        "Recipe: pruned by magnitude, 50 % of every layer (2 layers); INT8, static, by channel, ranges from 128 "
        "items; graph cleaned up",
        "Output distance: 0.0",
        "on 540 items of your data)",
        "Accuracy: ",
        "Speed, measured interleaved with the original:",
        "onnxruntime ",
        "openvino ",
        "Changed layers:",
        "Note: left alone: ",
    ):
        assert part in printed, part
    for line in (
        "Cleaning up the graph",
        "Pruning 2 layers",
        "Running it against the original",
        "Saved as ",
        "Next: ",
    ):
        assert line in told, line


def test_the_report_has_all_of_it_and_the_store_shows_it_again(
    whole: tuple[str, str, Path], inferlab_here: Run
) -> None:
    printed, told, folder = whole
    report = json.loads((folder / "report.json").read_text())
    assert report["format"] == "inferlab-optimization/2" and report["name"] == "both"
    assert [one["engine"] for one in report["measured"]] == ["onnxruntime", "openvino"]
    assert report["recipe"]["data"] == "demo:digits" and report["distance"]["accuracy"] > 0.8
    entry = told.split("Saved as ")[1].split(":")[0]
    assert entry == report["id"]
    shown = inferlab_here("show", entry, "--store", folder / "lab.db")
    assert printed in shown.stdout
    listed = inferlab_here("history", "--store", folder / "lab.db").stdout
    assert listed.count("comparison") == 2 and "version" in listed and "demo:digits: both" in listed
    again = inferlab_here("rerun", entry, "--store", folder / "lab.db")
    assert again.returncode == 2 and f"{entry} is a version, not a benchmark." in again.stderr


def test_an_entry_travels_to_another_store_and_can_be_removed(
    whole: tuple[str, str, Path], inferlab_here: Run
) -> None:
    printed, told, folder = whole
    entry = told.split("Saved as ")[1].split(":")[0]
    inferlab_here("export", entry, "-o", folder / "version.jsonl", "--store", folder / "lab.db")
    inferlab_here("import", folder / "version.jsonl", "--store", folder / "other.db")
    assert printed in inferlab_here("show", entry, "--store", folder / "other.db").stdout
    assert inferlab_here("remove", entry, "--yes", "--store", folder / "other.db").returncode == 0
    # The model itself is the user's.
    assert (folder / "out.onnx").is_file()


def test_a_recipe_repeats_it_to_the_byte(whole: tuple[str, str, Path], inferlab_here: Run, tmp_path: Path) -> None:
    *_, folder = whole
    done = inferlab_here(
        "optimize", "demo:digits", "-o", tmp_path / "again.onnx", "--recipe", folder / "out.recipe.yaml", *QUICK
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.onnx").read_bytes() == (folder / "out.onnx").read_bytes()


def test_layers_and_limits_are_taken_from_the_command_line(inferlab_here: Run, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    done = inferlab_here(
        *("optimize", model.path, "-o", tmp_path / "out.onnx", "--sparsity", "0.9", "--scope", "global"),
        *("--layer", "l.*=0.25", "--layer", "first=0.5", "--exclude", "nobody|late", "--max", "0.8", *QUICK),
    )
    assert done.returncode == 0, done.stderr
    pruning = recipes.load(tmp_path / "out.recipe.yaml").pruning
    assert pruning is not None
    assert pruning.layers == {"first": 0.5, "middle": 0.8, "late": 0.25, "last": 0.25}
    assert "90 % zeros were requested, " in done.stdout and "(at most 80 % a layer)" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Nothing was asked for that would change the model. Give --sparsity, "),
        (("--sparsity", "1"), "pruning.sparsity is a share between 0 and 1, such as 0.8, not 1."),
        (("--scope", "global"), "The option scope says how to prune, but not how much"),
        (("--budget", "1", "--scope", "global"), "The option scope says how a sparsity is spread over the layers"),
        (("--layer", "middle=0.5", "--max", "0.4"), "The option maximum limits what a sparsity or budget gives"),
        (("--exclude", "a"), "The option exclude says what stays as it is, but nothing is asked for"),
        (("--per-tensor",), "The option per_tensor belongs to int8, weights_only or float, and none is given."),
        (("--int8", "static", "--float", "fp16"), "int8, weights_only and float contradict each other"),
        (("--layer", "middle"), "'middle' is not of the form NAME=LEVEL"),
        (("--layer", "middle=1.5"), "pruning.layers.middle is a sparsity from 0 to below 1, not 1.5."),
        (("--sparsity", "0.5", "--budget", "1"), "A sparsity and a loss budget contradict each other"),
        (("--sparsity", "0.5", "--min", "0.9", "--max", "0.1"), "pruning.minimum (0.9) is above"),
        (("--sparsity", "0.5", "--include", "zzz"), "The model has no layer 'zzz', which include names."),
        (("--pattern", "1:2:3"), "'1:2:3' is not a pruning pattern."),
        (("--float", "bf16"), "No ONNX file can be written in BF16"),
        (("--recipe", "none.yaml"), "The recipe none.yaml cannot be read: No such file or directory."),
        (("--sparsity", "0.5", "--recipe", "none.yaml"), "The option sparsity and a recipe contradict each other"),
        (("--sparsity", "0.5", "--data", "none.npz"), "none.npz"),
        (("--sparsity", "0.5", "--profile", "none.json"), "none.json cannot be read as a profile"),
        (("--sparsity", "0.5", "--measure", "nix"), "nix"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    options: tuple[str, ...], said: str, inferlab_here: Run, tmp_path: Path
) -> None:
    model = perceptron(tmp_path / "model")
    done = inferlab_here("optimize", model.path, "-o", tmp_path / "o.onnx", "-q", "--no-save", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_a_target_that_cannot_be_is_refused(inferlab_here: Run, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    for out, said in {
        model.path: "would be written over the model itself. Give -o another name.",
        tmp_path / "none" / "o.onnx": "does not exist. Make it first: mkdir -p ",
        tmp_path / "o.bin": "The output file must end in .onnx, not 'o.bin'.",
    }.items():
        done = inferlab_here("optimize", model.path, "-o", out, "--sparsity", "0.5", *QUICK)
        assert done.returncode == 2 and said in done.stderr
    assert read_onnx(Path(model.path), "").digest == model.digest


def test_a_cut_off_recipe_and_one_of_another_model_are_said(
    whole: tuple[str, str, Path], inferlab_here: Run, tmp_path: Path
) -> None:
    recipe = (whole[2] / "out.recipe.yaml").read_text()
    model = perceptron(tmp_path / "model")
    for text, said in {
        recipe[: recipe.index("inferlab: 0")]: "is cut off: its last line, the version of inferlab, is missing.",
        recipe[: recipe.index("2.weight") + 4]: "pruning.layers takes names with values, not '2.we'.",
        recipe: "The data in ",
        "".join(
            part for part in (recipe[: recipe.index("quantization:")], recipe[recipe.index("inferlab: 0") :])
        ): "The recipe was made for demo:digits: ",
    }.items():
        (tmp_path / "r.yaml").write_text(text)
        done = inferlab_here(
            *("optimize", model.path, "-o", tmp_path / "o.onnx", "--recipe", tmp_path / "r.yaml"), *QUICK
        )
        assert done.returncode == 2 and said in done.stderr
    assert not (tmp_path / "o.onnx").exists()


def test_weights_that_are_not_numbers_are_named(inferlab_here: Run, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model", middle=np.full((6, 6), np.nan, np.float32))
    for options in (("--sparsity", "0.5"), ("--sparsity", "0.5", "--scope", "global"), ("--int8", "dynamic")):
        done = inferlab_here("optimize", model.path, "-o", tmp_path / "o.onnx", *options, *QUICK)
        assert done.returncode == 2 and "'middle'" in done.stderr and "NaN" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_an_engine_that_fails_is_a_sentence_and_the_model_is_there(inferlab_here: Run, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    done = inferlab_here(
        *("optimize", model.path, "-o", tmp_path / "o.onnx", "--sparsity", "0.5", "-e", "fake", "-t", "0.5", "-q"),
        *("--engine-option", "fail=abort", "--no-save"),
    )
    assert done.returncode == 3
    assert "Note: fake: " in done.stdout and (tmp_path / "o.onnx").is_file()


def _start(arguments: list[object], environment: dict[str, str], most_bytes: int = -1) -> subprocess.Popen[str]:
    """The command in a process of its own, whose files may not grow beyond a size."""
    command = [str(Path(sys.executable).parent / "inferlab"), *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
    )


def _until(process: subprocess.Popen[str], part: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if part in line:
            return
    raise AssertionError(f"{part} was never said")


def test_a_disk_that_is_full_leaves_no_half_written_model(environment: dict[str, str], tmp_path: Path) -> None:
    # No file may grow beyond 64 KiB, which the digits' 118 do.
    done = _start(
        ["optimize", "demo:digits", "-o", tmp_path / "o.onnx", "--sparsity", "0.5", *QUICK],
        environment,
        most_bytes=65536,
    )
    _, told = done.communicate(timeout=120)
    assert done.returncode == 2 and "cannot be written to" in told and "File too large" in told
    assert list(tmp_path.iterdir()) == []


def test_a_kill_leaves_no_model(environment: dict[str, str], tmp_path: Path) -> None:
    arguments = ["optimize", "demo:digits", "-o", tmp_path / "o.onnx", "--sparsity", "0.5", "--no-save"]
    process = _start(arguments, environment)
    _until(process, "Running it against the original")
    process.kill()
    process.communicate(timeout=60)
    assert not [one.name for one in tmp_path.iterdir() if not one.name.startswith(".")]


def test_ctrl_c_while_measuring_keeps_the_model_and_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "lab.db"
    arguments = [
        "optimize",
        "demo:digits",
        "-o",
        tmp_path / "o.onnx",
        "--sparsity",
        "0.5",
        "-e",
        "fake,onnxruntime",
    ]
    process = _start([*arguments, "-t", "60", "--store", store], environment)
    _until(process, "Comparing interleaved")
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it was interrupted; what was done by then is kept." in printed
    assert (tmp_path / "o.onnx").is_file() and (tmp_path / "o.recipe.yaml").is_file()


def test_a_model_that_was_destroyed_is_a_warning_and_a_failure_under_strict(
    inferlab_here: Run, tmp_path: Path
) -> None:
    options = ("optimize", "demo:digits", "--sparsity", "0.75", "--pattern", "channel", "--measure", "none")
    done = inferlab_here(
        *options, "-o", tmp_path / "a.onnx", "--store", tmp_path / "lab.db", "-x", tmp_path / "a.json"
    )
    assert done.returncode == 0
    found = json.loads((tmp_path / "a.json").read_text())
    (finding,) = [one for one in found["findings"] if one["code"] == "outputs-far-off"]
    distance = found["distance"]["relative_power"]
    assert distance > 0.25
    assert finding["data"] == {"distance": distance, "generated": True, "limit": 0.25}
    said = (
        f"Warning: the outputs are far from the original's: the output distance of {distance:.3g} is above 0.25, "
        "so the model no longer works."
    )
    assert said in done.stdout
    strict = inferlab_here(*options, "-o", tmp_path / "b.onnx", "--no-save", "--strict")
    assert strict.returncode == 5
    labelled = inferlab_here(
        *(*options, "-o", tmp_path / "c.onnx", "--no-save", "--strict", "--data", "demo:digits")
    )
    assert labelled.returncode == 5
    assert "Warning: the accuracy fell from 99.3 % to " in labelled.stdout
    harmless = inferlab_here(
        *("optimize", "demo:digits", "--float", "fp16", "--measure", "none", "-o", tmp_path / "d.onnx"),
        *("--no-save", "--strict"),
    )
    assert harmless.returncode == 0
    assert "Warning" not in harmless.stdout


def test_a_layer_that_lost_inputs_is_not_said_to_be_left_alone(inferlab_here: Run, tmp_path: Path) -> None:
    """The middle layers of a residual block: the sum keeps their outputs, the layer before takes their inputs."""
    done = inferlab_here(
        *(
            "optimize",
            "demo:digits",
            "--sparsity",
            "0.5",
            "--pattern",
            "channel",
            "--measure",
            "none",
            "--no-save",
        ),
        *("-o", tmp_path / "a.onnx", "-x", tmp_path / "a.json", "--ends"),
    )
    assert done.returncode == 0
    found = json.loads((tmp_path / "a.json").read_text())
    last = found["layers"][-1]
    assert last["params_after"] < last["params"]
    reason = found["left_alone"][last["weight"]]
    said = "Note: only inputs were removed, with the channels of earlier layers, and all outputs stay: "
    assert f"{said}{last['weight']} ({reason})." in done.stdout
    assert f"left alone: {last['weight']}" not in done.stdout


def test_after_a_profile_its_estimate_is_made_by_the_command_that_is_named(
    inferlab_here: Run, tmp_path: Path
) -> None:
    model = perceptron(tmp_path / "model")
    profiled = inferlab_here(
        *("profile", model.path, "--no-loss", "--no-estimate", "-t", "0.3", "-ncores", "1"),
        *("--store", tmp_path / "lab.db", "-x", tmp_path / "plain.json"),
    )
    assert profiled.returncode == 0 and "Next:" not in profiled.stderr, profiled.stderr
    content = json.loads((tmp_path / "plain.json").read_text())
    performance = content["performance"]
    recipe = Recipe(
        quantization=Quantization("static", calibration_items=5, reduce_range=True), seed=7, shapes={"x": (1, 4)}
    )
    half = performance["ms_per_batch"] / 2
    copy = ChangedCopy(recipe, half, {}, Distance(0.01, 8, generated=True))
    performance |= {"copies": [plain(copy)], "int8_ms_per_batch": half}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(content))
    shown = inferlab_here("profile", file, "--budget", "0.2")
    (line,) = [line for line in shown.stderr.splitlines() if line.startswith("Next: ")]
    words = shlex.split(line.removeprefix("Next: "))
    assert words == [
        *("inferlab", "optimize", model.path, "-o", "optimized.onnx", "--profile", str(file), "--as-estimated"),
        *("--budget", "0.2", "-ncores", "1", "-b", "1"),
    ]
    words[words.index("-o") + 1] = str(tmp_path / "optimized.onnx")
    made = inferlab_here(*words[1:], "--measure", "none", "--no-save")
    assert made.returncode == 0, made.stderr
    found = recipes.load(tmp_path / "optimized.recipe.yaml")
    assert (found.quantization, found.seed) == (recipe.quantization, 7)
    for more, sentence in (
        (("--sparsity", "0.5"), "The option sparsity and as_estimated contradict each other"),
        (("--goal", "2x faster"), "The option goal and as_estimated contradict each other"),
        (("--budget", "0.001"), "Nothing that the profile tried gains within the loss budget of 0.001"),
    ):
        refused = inferlab_here(
            *(
                "optimize",
                model.path,
                "-o",
                tmp_path / "no.onnx",
                "--profile",
                file,
                "--as-estimated",
                *more,
                *QUICK,
            )
        )
        assert refused.returncode == 2 and sentence in refused.stderr, refused.stderr
    alone = inferlab_here("optimize", model.path, "-o", tmp_path / "no.onnx", "--as-estimated", *QUICK)
    assert alone.returncode == 2 and "makes what a profile estimates: name the profile" in alone.stderr
