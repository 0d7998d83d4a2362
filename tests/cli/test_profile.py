"""`inferlab profile`, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.records.profile import LEVELS, level_key
from inferlab.store.formats import content_of
from tests.cli.conftest import Run
from tests.helpers.profiles import a_profile, with_copies

QUICK = ("-t", "1", "-ncores", "1", "-q")


@pytest.fixture(scope="module")
def whole(inferlab_here: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """What is printed and written of the digits: with their data, at two levels, in INT8, under the roofline."""
    folder = tmp_path_factory.mktemp("profile")
    file, page = folder / "profile.json", folder / "report.html"
    done = inferlab_here(
        *("profile", "demo:digits", "--data", "demo:digits", "--levels", "0.5,0.9", "--int8", "--roofline"),
        *("--performance-name", "first", "--loss-name", "held back"),
        *(*QUICK, "-x", file, "--html", page),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text()), page


def test_the_file_has_all_three_profiles_and_the_keys_that_people_parse(
    whole: tuple[str, dict[str, Any], Path],
) -> None:
    content = whole[1]
    assert content["format"] == "inferlab-profile/2"
    assert content["model"]["source"] == "demo:digits"
    performance = content["performance"]
    assert (performance["name"], performance["engine"], performance["batch_size"]) == ("first", "onnxruntime", 1)
    assert performance["num_cores"] == 1 and performance["instruction_sets"]
    assert performance["items_per_second"] > 0
    for layer in performance["layers"]:
        assert layer.keys() >= {"index", "id", "type", "weight", "nodes", "ms", "flops", "params", "pruned"}
        # What the engine put in by itself has no counterpart in a copy.
        assert list(layer["pruned"]) == (["0.5", "0.9"] if layer["nodes"] else [])
    assert sum(layer["ms"] for layer in performance["layers"]) == pytest.approx(performance["ms_per_batch"])
    assert performance["pruning"] == "zeroed" and list(performance["pruned"]) == ["0.5", "0.9"]
    assert performance["int8_ms_per_batch"] > 0
    assert performance["ceilings"]["fp32_gflops"] > 0
    assert content["flops"]["flops"] >= 2 * content["flops"]["macs"] > 0


def test_the_loss_profile_of_labelled_data_has_losses_and_accuracies_at_every_level(
    whole: tuple[str, dict[str, Any], Path],
) -> None:
    loss = whole[1]["loss"]
    assert (loss["name"], loss["method"], loss["metric"]) == ("held back", "one-shot with data", "cross-entropy")
    assert loss["dense_accuracy"] > 0.9
    for layer in loss["layers"]:
        assert list(layer["losses"]) == list(layer["accuracies"]) == [level_key(level) for level in LEVELS]


def test_what_is_printed_names_the_summary_the_types_the_layers_and_the_loss(
    whole: tuple[str, dict[str, Any], Path],
) -> None:
    printed = whole[0]
    for head in (
        *("Model: demo:digits (", "Performance profile: first", "Median time (ms/batch): ", "Layer summaries:"),
        *("Slowest layers", "Ceilings of this machine on 1 core: ", "FLOPS profile (theoretical, batch size 1): "),
        *(
            "Loss profile: held back (measured on ",
            "Dense: cross-entropy ",
            "Most sensitive layers:",
            "Estimate: ",
        ),
    ):
        assert head in printed
    assert "Pruned 0.9 (ms)" in printed and "INT8 (ms)" in printed


def test_the_report_is_one_file(whole: tuple[str, dict[str, Any], Path]) -> None:
    page = whole[2].read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "demo:digits" in page and "<script src=" not in page


def test_with_both_profiles_off_only_what_the_architecture_says_remains(
    inferlab_here: Run, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    done = inferlab_here("profile", "demo:mlp", "--no-performance", "--no-loss", "-q", "-x", file)
    assert done.returncode == 0, done.stderr
    content = json.loads(file.read_text())
    assert (content["performance"], content["loss"], content["estimate"]) == (None, None, None)
    assert "Loss profile" not in done.stdout
    assert "Estimate" not in done.stdout
    # 64 × 64 and 64 × 10 multiply-adds.
    assert content["flops"]["macs"] == 64 * 64 + 64 * 10


def test_a_profile_is_kept_listed_shown_and_read_again_for_another_budget(
    inferlab_here: Run, tmp_path: Path
) -> None:
    store = tmp_path / "lab.db"
    made = inferlab_here("profile", "demo:mlp", "--no-performance", "-q", "--store", store)
    assert made.returncode == 0, made.stderr
    listed = inferlab_here("history", "--store", store)
    (row,) = [line for line in listed.stdout.splitlines() if " profile " in line]
    entry_id = row.split()[0]
    shown = inferlab_here("show", entry_id, "--store", store)
    assert made.stdout.splitlines()[-1] in shown.stdout
    again = inferlab_here("profile", entry_id, "--store", store, "--budget", "0")
    assert "of a budget of 0)" in again.stdout or "of a budget of 0," in again.stdout
    for given, told in ((("-b", "4"), "--batch_size"), (("-t", "1"), "--time"), (("--data", "x"), "--data")):
        refused = inferlab_here("profile", entry_id, "--store", store, *given)
        assert refused.returncode == 2
        assert f"{told} would need a new one" in refused.stderr
    refused = inferlab_here("profile", entry_id, "--store", store, "--budget", "-1")
    assert (refused.returncode, "must be 0 or more, not -1" in refused.stderr) == (2, True)


def test_two_profiles_are_compared_layer_by_layer(inferlab_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    assert inferlab_here("profile", "demo:mlp", "--no-loss", *QUICK, "--no-save", "-x", file).returncode == 0
    done = inferlab_here(
        "profile", "demo:mlp", "-e", "openvino", "--no-loss", *QUICK, "--no-save", "--against", file
    )
    assert done.returncode == 0, done.stderr
    assert "A: baseline: onnxruntime, batch 1, 1 core: " in done.stdout
    assert "B: baseline: openvino, batch 1, 1 core: " in done.stdout
    assert "Note: they differ in engine: onnxruntime and openvino." in done.stdout
    assert "Layers by difference" in done.stdout


def test_an_engine_that_cannot_tell_layers_leaves_the_flops_profile_and_a_sentence(
    inferlab_here: Run, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    done = inferlab_here("profile", "demo:mlp", "-e", "fake", "--no-loss", *QUICK, "--no-save", "-x", file)
    assert done.returncode == 3
    assert "Note: Engine 'fake' does not report the times of its layers." in done.stdout
    content = json.loads(file.read_text())
    assert content["flops"]["macs"] == 64 * 64 + 64 * 10 and content["performance"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--levels", "1.5"], "A sparsity level lies between 0 and 1"),
        (["--levels", "much"], "'much' is not a number."),
        (["--budget", "-1"], "The loss budget must be 0 or more"),
        (["-t", "0"], "The measuring time must be more than 0 seconds"),
        (["--verify-estimate", "--no-performance"], "--verify-estimate needs the performance profile"),
        (["--int8", "--no-performance"], "belong to the performance profile, which is switched off"),
        (["--performance-name", "a", "--no-performance"], "--performance-name belongs to the performance profile"),
        (
            ["--data", "demo:digits", "--no-loss", "--no-estimate"],
            "--data is for the loss profile and the estimate, which are switched off",
        ),
        (["--data", "none.npz"], "There is no file none.npz"),
        (["-b", "1,2"], "this plan of demo:digits has 2"),
        (["-e", "nothing"], "There is no engine 'nothing'"),
        (["--against", "none.json"], "none.json cannot be read as a profile: No such file or directory."),
        (["-x", "no/such/p.json"], "does not exist"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(inferlab_here: Run, arguments: list[str], sentence: str) -> None:
    done = inferlab_here("profile", "demo:digits", *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert sentence in done.stderr


def test_data_that_do_not_fit_are_refused_before_anything_runs(inferlab_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, picture=np.zeros((4, 1, 8, 8), np.float32))
    done = inferlab_here("profile", "demo:digits", "--data", file)
    assert done.returncode == 2
    assert "does not fit the model: it lacks 'image'; the model has no input 'picture'" in done.stderr
    assert "Counting" not in done.stderr


def test_without_anything_to_verify_a_profile_is_made_all_the_same(inferlab_here: Run, tmp_path: Path) -> None:
    """Without copies and without times at sparsity levels there is no estimated model to make."""
    file = tmp_path / "p.json"
    # As it was written before, too.
    for option in ("--verify-estimate", "--verify"):
        done = inferlab_here("profile", "demo:mlp", *QUICK[:-1], "--no-estimate", "--no-save", option, "-x", file)
        assert done.returncode == 0, done.stderr
        assert "There is nothing to verify: nothing that was tried gains within the loss budget" in done.stderr
        content = json.loads(file.read_text())
        assert content["problems"] == []
        assert content["estimate"]["verified"] is None


@pytest.mark.parametrize("option", ["--no-verify", "--no-check"])
def test_outputs_are_not_checked_where_that_is_asked(inferlab_here: Run, tmp_path: Path, option: str) -> None:
    file = tmp_path / "p.json"
    done = inferlab_here("profile", "demo:mlp", "--no-loss", *QUICK, "--no-save", option, "-x", file)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["performance"]["output_check"]["status"] == "unchecked"


def test_the_help_shows_each_option_in_one_way_and_no_lists(inferlab_here: Run) -> None:
    shown = inferlab_here("profile", "--help").stdout
    assert "--no-verify" in shown
    assert "--verify-estimate" in shown
    assert "--no-check" not in shown
    assert "1,8,32" not in shown


def test_the_tables_of_layers_have_what_is_asked_for(inferlab_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(content_of(with_copies(a_profile()))))
    shown = inferlab_here("profile", file, "--summary", "channels-0.25")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("25 % of channels removed (ms)") == 2
    refused = inferlab_here("profile", file, "--summary", "0.9")
    assert refused.returncode == 2 and "has no times of layers called '0.9'. It has: baseline," in refused.stderr
