"""compare, capacity, recommend and rerun of models that generate; a scripted engine waits, real ones agree."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import inferlab
from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import Event
from inferlab.records.generation import GenerationPlan
from inferlab.store import open_store
from tests.cli.conftest import Run

SHORT = ("--prompt", "8", "--new", "4", "-ncores", "1")
FAKE = ("demo:llama_tiny", "-e", "fake", *SHORT, "--no-verify")
#: They sleep, so that a busy machine does not matter.
SLOWER = ("--a", "engine-option=latency_us=5000", "--b", "engine-option=latency_us=20000")
ENDINGS = ("json", "csv", "md", "html")


def test_an_arm_that_takes_longer_is_slower_and_the_gate_says_so(inferlab_here: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    for seconds in (4, 12, 36, 108):
        done = inferlab_here(
            *("compare", *FAKE, *SLOWER, "--metric", "ttft", "-t", seconds),
            *("--no-save", "--fail-if", "slower", "-x", out),
        )
        content = json.loads(out.read_text())
        if content["verdict"] != "inconclusive":
            break
    assert (done.returncode, content["verdict"], content["metric"]) == (1, "slower", "ttft"), done.stderr
    assert content["format"] == "inferlab-generation-comparison-file/1"
    assert 2 < content["ratio"] < 5
    assert content["tokens"]["alike"] == content["tokens"]["generations"] > 0
    assert done.stdout.splitlines()[0].startswith("A: engine_options=latency_us=5000: ")


def test_what_is_unchecked_is_a_failure_under_strict(inferlab_here: Run) -> None:
    done = inferlab_here("compare", *FAKE, *SLOWER, "-t", "1", "--no-save", "--strict")
    assert done.returncode == 5
    assert "inferlab: strict: the agreement is unchecked: --no-verify was given" in done.stderr


def test_each_is_listed_shown_exported_imported_and_measured_again(inferlab_here: Run, tmp_path: Path) -> None:
    store, slo = ("--store", tmp_path / "lab.db"), ("--slo", "ttft<2s,tpot<1s")
    commands = {
        "generation-comparison": ("compare", *FAKE, *SLOWER, "-t", "1"),
        "generation-capacity": ("capacity", *FAKE, *slo, "--attainment", "80%", "-t", "2"),
        "generation-recommendation": ("recommend", *FAKE, "-b", "1,2", *slo, "-t", "2"),
    }
    for kind, command in commands.items():
        made = tmp_path / f"{kind}.json"
        done = inferlab_here(*command, *store, "-x", made)
        assert done.returncode == 0, done.stderr
        lines = [re.split(r"  +", line) for line in inferlab_here("history", *store).stdout.splitlines()]
        entry_id = next(line[0] for line in lines if line[2] == kind)
        shown = inferlab_here("show", entry_id, *store)
        assert shown.stdout.splitlines()[0] == f"Entry: {entry_id} ({kind})"
        assert shown.stdout.split("\n\n", 1)[1] == done.stdout
        for ending in ENDINGS:
            file = tmp_path / f"{entry_id}.{ending}"
            assert inferlab_here("show", entry_id, *store, "-x", file).returncode == 0
            assert file.read_text()
        saved = json.loads((tmp_path / f"{entry_id}.json").read_text())
        assert {**saved, "id": ""} == {**json.loads(made.read_text()), "id": ""}
        assert inferlab_here("plot", entry_id, *store, "-o", tmp_path / "chart.html").returncode == 0
        bundle, other = tmp_path / f"{kind}.jsonl", ("--store", tmp_path / f"{kind}.db")
        assert inferlab_here("export", entry_id, *store, "-o", bundle).returncode == 0
        assert inferlab_here("import", bundle, *other).returncode == 0
        assert inferlab_here("show", entry_id, *other).stdout.split("\n\n", 1)[1] == done.stdout
        again = inferlab_here("rerun", entry_id, *store)
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[-1] != "" and f"({kind})" not in again.stdout
        newest = inferlab_here("history", *store).stdout.splitlines()[1]
        assert re.split(r"  +", newest)[2] == kind and entry_id not in newest


def test_a_comparison_that_was_cut_off_goes_on_by_its_id_with_the_same_cells_only(
    inferlab_here: Run, tmp_path: Path
) -> None:
    slow, plan = (
        GenerationPlan(
            "demo:llama_tiny",
            ("fake",),
            (8,),
            (4,),
            num_cores=(1,),
            engine_options=(("latency_us", latency_us),),
            verify=False,
        )
        for latency_us in ("20000", "5000")
    )

    def stop(event: Event) -> None:
        if event.code == "pair":
            raise KeyboardInterrupt

    with open_store(str(tmp_path / "lab.db")) as store:
        lab = Lab(store)
        cut = lab.compare_generations(slow, plan, "ttft", 6.0, listener=stop)
        assert (cut.interrupted, len(cut.log_ratios)) == (True, 1)
        with pytest.raises(BadInput, match=f"{cut.id} was begun on a machine with other cores"):
            lab.compare_generations(slow, replace(plan, depths=(8,)), "ttft", 6.0, entry_id=cut.id)
    out = tmp_path / "out.json"
    done = inferlab_here("generate", "--resume", cut.id, "--store", tmp_path / "lab.db", "-x", out)
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert (content["interrupted"], content["log_ratios"][0]) == (False, cut.log_ratios[0])
    assert len(content["log_ratios"]) > 1
    # What it went on with is no longer needed, and was never part of the file.
    assert "pairs" not in content
    with open_store(str(tmp_path / "lab.db")) as store:
        assert [entry.id for entry in store.history()] == [cut.id]
        assert Lab(store).saved_generation_result(cut.id).id == cut.id


def test_a_server_with_an_objective_and_no_rate_searches_the_highest(inferlab_here: Run) -> None:
    done = inferlab_here(
        "generate", *FAKE, "-s", "server", "--slo", "ttft<2s", "--attainment", "0.8", "-t", "2", "--no-save"
    )
    assert done.returncode == 0, done.stderr
    assert "Highest rate at which 80 % of the requests meet ttft<2s: " in done.stdout
    done = inferlab_here("generate", *FAKE, "-s", "server", "--slo", "ttft<2s", "--dry-run")
    assert (done.returncode, done.stderr) == (
        2,
        "inferlab: --dry-run shows cells, and a search for the highest rate has none: give a --rate.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", *FAKE, "-nstreams", "2"), "The option num_streams is not for models that generate tokens."),
        (("compare", *FAKE, "-s", "server"), "The option scenario is not for models that generate tokens."),
        (("compare", *FAKE, "--a", "instances=2"), "The option instances is not for models that generate tokens."),
        (("compare", *FAKE, "--layers"), "The layers of a model that generates tokens are not compared"),
        (
            ("compare", *FAKE, "--depth", "0,8", "-t", "1", "--new", "2040"),
            "A depth of 8, a prompt of 8 and 2040 new",
        ),
        (
            ("compare", *FAKE, "-b", "1,2", "--b", "batch_size=1"),
            "Both arms of a comparison need equally many core",
        ),
        (("compare", "demo:digits", "--metric", "ttft"), "The option metric is for models that generate tokens."),
        (("compare", "demo:digits", "-e", "llamacpp"), "demo:digits "),
        (("capacity", "demo:digits", "--slo", "ttft<1s"), "The objective 'ttft<1s' is for models that generate"),
        (("capacity", *FAKE, "--slo", "p99<20ms"), "The objective 'p99<20ms' cannot be read."),
        (("recommend", *FAKE, "-nstreams", "2"), "The option num_streams is not for models that generate tokens."),
        (
            ("recommend", "demo:llama_tiny", "-e", "fake", "--prompt", "4000"),
            "A depth of 0, a prompt of 4000 and 64 new tokens are 4064 tokens; the context of demo:llama_tiny has "
            "2048.",
        ),
    ],
)
def test_options_of_the_other_kind_and_bad_values_are_one_sentence(
    inferlab_here: Run, arguments: tuple[str, ...], said: str
) -> None:
    done = inferlab_here(*arguments, "--no-save")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"inferlab: {said}"), done.stderr


def test_several_cells_are_compared_one_by_one_each_saved_by_itself(inferlab_here: Run, tmp_path: Path) -> None:
    store, out = ("--store", tmp_path / "lab.db"), tmp_path / "out.json"
    done = inferlab_here(
        *("compare", *FAKE, *SLOWER, "--depth", "0,8", "-b", "1,2", "--metric", "ttft", "-t", "1"),
        *(*store, "-x", out),
    )
    assert done.returncode == 0, done.stderr
    cells = [f"batch {batch}, depth {depth}" for batch in (1, 2) for depth in (0, 8)]
    assert [line for line in done.stdout.splitlines() if line.startswith("Cell of A: ")] == [
        f"Cell of A: {cell}" for cell in cells
    ]
    content = json.loads(out.read_text())
    assert (content["format"], content["failures"]) == ("inferlab-generation-comparisons-file/1", [])
    assert [(one["arms"][1]["batch_size"], one["arms"][1]["depth"]) for one in content["results"]] == [
        *((1, 0), (1, 8), (2, 0), (2, 8))
    ]
    assert all(one["ratio"] > 1.5 for one in content["results"])
    entries = [line.split()[0] for line in inferlab_here("history", *store).stdout.splitlines()[1:]]
    assert {one["id"] for one in content["results"]} == set(entries) and len(entries) == 4


def test_saved_generations_are_compared_by_their_ids_and_files(inferlab_here: Run, tmp_path: Path) -> None:
    store, files = ("--store", tmp_path / "lab.db"), [tmp_path / "a.json", tmp_path / "b.json"]
    for file, latency_us in zip(files, (4000, 20000), strict=True):
        done = inferlab_here(
            *("generate", *FAKE, "--depth", "0,8", "--engine-option", f"latency_us={latency_us}"),
            *("-t", "0.1", "--processes", "2", *store, "-x", file),
        )
        assert done.returncode == 0, done.stderr
    lines = inferlab_here("history", *store).stdout.splitlines()
    b, a = (line.split()[0] for line in lines[1:3])
    out = tmp_path / "out.json"
    for names in ((a, b), (files[0], files[1]), (a, files[1])):
        done = inferlab_here("compare", *names, *store, "--metric", "ttft", "--fail-if", "slower", "-x", out)
        assert done.returncode in (1, 4), done.stderr
        content = json.loads(out.read_text())
        assert content["format"] == "inferlab-comparisons/1" and content["failures"] == []
        assert [one["metric"] for one in content["results"]] == ["ttft", "ttft"]
        assert all(one["ratio"] > 2 and one["level"] == 0.99 for one in content["results"])
        said = done.stdout
        assert "Compared: time to first token" in said and "depth 0 " in said and "depth 8 " in said
        assert f"A: {names[0]}" in said and "they hold for all 2 cells together, at 98 %" in said
    one = inferlab_here("compare", f"{a}#1", f"{files[1]}#1", *store)
    assert "ms (time per output token)" in one.stdout and "the tokens of one were not compared" in one.stdout
    assert inferlab_here("compare", a, a, *store, "--strict").returncode == 5
    content = json.loads(files[0].read_text())
    for result in content["results"]:
        del result["process_times_ms"]
    files[0].write_text(json.dumps(content))
    older = inferlab_here("compare", *files)
    assert (older.returncode, older.stderr) == (
        2,
        f"inferlab: {files[0]} does not say what each process took by tpot. Write it again with inferlab show ID "
        "-x, or compare another --metric.\n",
    )
    calls = tmp_path / "calls.json"
    inferlab_here(
        "benchmark", "demo:digits", "-e", "fake", "-t", "0.1", "--processes", "1", "--no-save", "-x", calls
    )
    mixed = inferlab_here("compare", calls, f"{b}#1", *store)
    assert (mixed.returncode, mixed.stderr) == (
        2,
        f"inferlab: {b}#1 is of a model that generates tokens, {calls} is of calls. They are not compared with "
        "each other.\n",
    )
    gate = inferlab_here("gate", "demo:llama_tiny", "--baseline", files[1])
    assert (gate.returncode, gate.stderr) == (
        2,
        f"inferlab: {files[1]} is of a model that generates tokens, and this takes benchmarks. What inferlab "
        "generate -x wrote is compared by: inferlab compare a.json b.json\n",
    )


def test_python_compares_searches_and_recommends_with_the_same_keywords(tmp_path: Path) -> None:
    short: dict[str, Any] = {
        "engine": "fake",
        "prompt": 8,
        "new": 4,
        "num_cores": 1,
        "verify": False,
        "time": 2,
        "store": False,
    }
    compared = inferlab.compare(
        "demo:llama_tiny", b_options={"engine_option": {"latency_us": 20000}}, metric="ttft", **short
    )
    assert isinstance(compared, inferlab.GenerationComparisonResult)
    assert compared.ratio > 2 and compared.to_dict()["verdict"] == compared.verdict
    found = inferlab.capacity("demo:llama_tiny", "ttft<2s", attainment=0.8, **short)
    assert isinstance(found, inferlab.GenerationCapacityResult)
    assert found.max_rate > 0 and [row["rate"] for row in found.rows()] == [one.rate for one in found.record.curve]
    best = inferlab.recommend("demo:llama_tiny", slo="ttft<2s", batch_size=[1, 2], **short)
    assert isinstance(best, inferlab.GenerationRecommendationResult)
    assert best.recommended is not None and best.recommended["engine"] == "fake" and len(best.rows()) == 2
    for result in (compared, found, best):
        assert result.table() == str(result) and result.plot().data
        for ending in ENDINGS:
            result.save(tmp_path / f"out.{ending}")
    with pytest.raises(BadInput, match="The option num_streams is not for models that generate tokens"):
        inferlab.compare("demo:llama_tiny", num_streams=2, **short)
    with pytest.raises(BadInput, match="'speed' is not possible here; it is one of ttft, tpot, "):
        inferlab.compare("demo:llama_tiny", metric="speed", **short)


def test_real_engines_choose_the_same_tokens(inferlab_here: Run, tmp_path: Path) -> None:
    for package in ("xllamacpp", "transformers", "gguf"):
        pytest.importorskip(package)
    out = tmp_path / "out.json"
    done = inferlab_here(
        *("compare", "demo:llama_tiny", "-e", "llamacpp,torch", *SHORT, "-t", "4", "--strict", "--no-save"),
        *("-x", out),
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert [one["engine"] for one in content["arms"]] == ["llamacpp", "torch"]
    assert [one["status"] for one in content["agreements"]] == ["match", "match"]
    assert content["tokens"]["alike"] == content["tokens"]["generations"]
