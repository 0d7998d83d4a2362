"""`inferlab generate`, as a user sees it; a scripted engine waits instead of computing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import inferlab
from inferlab.cli.generate import command
from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import Event
from inferlab.records.generation import GenerationPlan
from inferlab.store import open_store
from inferlab.views import text
from tests.cli.conftest import Run

DOCUMENT = (Path(__file__).parent.parent.parent / "docs/generate.md").read_text()
QUICK = ("-e", "fake", "-ncores", "1", "-t", "0.02", "--processes", "2", "--prompt", "8", "--new", "4")
FAKE = ("generate", "demo:llama_tiny", *QUICK)
UNCHECKED = (*FAKE, "--no-verify")


def test_every_option_is_documented_and_no_other() -> None:
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    rows = re.findall(r"^\| (`-.*?) \|", DOCUMENT, re.M)
    assert {name for row in rows for name in re.findall(r"`(-{1,2}[\w-]+)`", row)} == real


def test_every_finding_of_a_generation_is_documented() -> None:
    assert set(re.findall(r"^\| `([a-z][a-z-]+)` \|", DOCUMENT, re.M)) == set(text.GENERATION_FINDINGS)


def test_a_dry_run_says_what_the_model_is_and_what_would_be_measured(inferlab_here: Run) -> None:
    done = inferlab_here(
        "generate", "demo:llama_tiny", "-e", "fake", "--prompt", "8,16", "-ncores", "1", "--dry-run"
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "Model: demo:llama_tiny",
        "Architecture: llama, 2 layers, 4 heads, 2 KV heads, context 2048, vocabulary 256",
        "Parameters: 107 k (F32 107 k in 21 tensors), 419 KiB",
        "Expected KV cache: 256 bytes per token in 16 bits",
        "1. fake, 1 core, batch 1, prompt 8, 64 new, depth 0",
        "2. fake, 1 core, batch 1, prompt 16, 64 new, depth 0",
        "2 cells, about 0.3 minutes, plus loading, warm-up and checks.",
    ]


def test_a_sweep_is_saved_listed_shown_and_exported(inferlab_here: Run, tmp_path: Path) -> None:
    store, out = str(tmp_path / "lab.db"), tmp_path / "out.json"
    done = inferlab_here(*UNCHECKED, "--depth", "0,16", "-b", "1,2", "--store", store, "-x", out)
    assert done.returncode == 0, done.stderr
    (entry_id,) = re.findall(r"Saved as (\w+): ", done.stderr)
    line = inferlab_here("history", "--store", store).stdout.splitlines()[1]
    _, _, *words, best, status = re.split(r"  +", line)[:9]
    assert words == ["generation", "demo:llama_tiny", "fake", "1", "1,2"]
    assert (re.fullmatch(r"TPOT [\d.]+ .s", best) is not None, status) == (True, "done")
    shown = inferlab_here("show", entry_id, "--store", store)
    assert shown.stdout.splitlines()[0] == f"Entry: {entry_id} (generation)"
    assert shown.stdout.split("\n\n", 1)[1] == done.stdout
    content = json.loads(out.read_text())
    assert content["format"] == "inferlab-generation/1"
    keys = ("engine", "prompt_tokens", "new_tokens", "depth", "batch_size", "num_cores", "status", "processes")
    assert [[one[key] for key in keys] for one in content["results"]] == [
        ["fake", 8, 4, depth, batch, 1, "done", 2] for depth in (0, 16) for batch in (1, 2)
    ]
    for one in content["results"]:
        for name in ("ttft_ms", "tpot_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "end_to_end_ms"):
            low, high = one[f"{name}_interval"]
            assert 0 < low <= one[name] <= high
        assert one["agreement"]["status"] == "unchecked"
        assert next(found["code"] for found in one["findings"]) == "unchecked"
    again = tmp_path / "again.json"
    assert inferlab_here("show", entry_id, "--store", store, "-x", again).returncode == 0
    assert json.loads(again.read_text()) == content
    for ending in ("csv", "md", "html"):
        file = tmp_path / f"out.{ending}"
        assert inferlab_here("show", entry_id, "--store", store, "-x", file).returncode == 0
        assert "fake" in file.read_text()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "eos_after=2",
            r"\d+ of \d+ sequences ended before 4 tokens, the shortest after 2: numbers are of the tokens that "
            r"were emitted\.",
        ),
        (
            "prefix_cache=1",
            r"a prompt that was seen before took [\d.]+ % of the time to its first token: the engine caches "
            r"prefixes\. Its numbers are of new prompts\.",
        ),
    ],
)
def test_planted_faults_are_found(inferlab_here: Run, option: str, said: str) -> None:
    slow = ("--engine-option", "latency_us=20000")
    done = inferlab_here(*UNCHECKED, "--no-save", "--engine-option", option, *slow)
    assert done.returncode == 0
    assert re.search(f"^Warning: {said}$", done.stdout, re.M)


def test_tokens_of_another_model_are_wrong_and_a_failure_under_strict(inferlab_here: Run, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    store = str(tmp_path / "lab.db")
    done = inferlab_here(*FAKE, "--strict", "--store", store)
    assert done.returncode == 5
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Agreement: ")]
    assert re.match(
        r"Agreement: WRONG: \d of 64 tokens, \d+ close choices; first 0 of 32 in a free generation;", line
    )
    assert "This speed is meaningless" in done.stdout
    assert done.stderr.splitlines()[-2].startswith("inferlab: strict: the agreement is WRONG: ")
    assert "wrong outputs" in inferlab_here("history", "--store", store).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("generate",), "No model was named. Try: inferlab generate demo:llama"),
        (("generate", "demo:llama_tiny", "--prompt", "0"), "The prompt length must be at least 1, not 0."),
        (
            ("generate", "demo:llama_tiny", "-e", "fake", "--prompt", "2048"),
            "A depth of 0, a prompt of 2048 and 64 new tokens are 2112 tokens; the context of demo:llama_tiny has "
            "2048. Give fewer.",
        ),
        (
            ("generate", "demo:llama_tiny", "-e", "onnxruntime"),
            "Engine 'onnxruntime' does not run models of kind gguf; it runs onnx, onnxruntime-genai, ort. See: "
            "inferlab engines",
        ),
        (
            (*UNCHECKED, "--engine-option", "fail=raise"),
            "Engine 'fake' cannot run this model: RuntimeError: fake: refused, as ordered",
        ),
    ],
)
def test_bad_input_is_one_sentence(inferlab_here: Run, arguments: tuple[str, ...], said: str) -> None:
    done = inferlab_here(*arguments)
    assert (done.returncode, done.stderr.splitlines()[-1 if "--no-verify" not in arguments else -2]) == (
        2,
        f"inferlab: {said}",
    )


def test_an_engine_that_dies_fails_its_cell_alone_and_is_told(inferlab_here: Run) -> None:
    done = inferlab_here(*UNCHECKED, "--no-save", "-q", "--engine-option", "fail=exit", "--engine-option", "at=3")
    assert done.returncode == 3
    assert done.stderr == "inferlab: Engine 'fake' died during 'generate': its process ended with code 7.\n"


def test_what_was_cut_off_goes_on_where_it_stopped(tmp_path: Path, inferlab_here: Run) -> None:
    url = str(tmp_path / "lab.db")
    plan = GenerationPlan(
        "demo:llama_tiny", ("fake",), (8,), (4,), (0, 8), num_cores=(1,), time_s=0.02, processes=2
    )
    loads = []

    def interrupting(event: Event) -> None:
        loads.append(event.code)
        # At the second process of the first cell: one event each for the cell and what became of it.
        if event.code == "generation-cell" and loads.count("generation-cell") == 2:
            raise KeyboardInterrupt

    with open_store(url) as store:
        with pytest.raises(KeyboardInterrupt):
            Lab(store).generate(GenerationPlan(**{**_fields(plan), "verify": False}), interrupting)
        (entry,) = store.history(5)
        assert sorted(entry.brief["statuses"]) == ["done", "pending"]
    done = inferlab_here("generate", "--resume", "--store", url)
    assert done.returncode == 0, done.stderr
    assert f"Saved as {entry.id}" in done.stderr
    assert done.stderr.count("Cell ") == 1
    with open_store(url) as store:
        assert store.history(5)[0].brief["statuses"] == ["done", "done"]
    assert inferlab_here("generate", "--resume", "--store", url).stderr == (
        f"inferlab: No generation is unfinished in the store {url}. See: inferlab history\n"
    )


def _fields(plan: GenerationPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in GenerationPlan.__dataclass_fields__}


def test_python_gets_the_same_result(tmp_path: Path) -> None:
    result = inferlab.generate(
        *("demo:llama_tiny",),
        engine="fake",
        prompt=[8, 16],
        new=4,
        num_cores=1,
        time=0.02,
        processes=2,
        verify=False,
        store=tmp_path / "lab.db",
    )
    assert (len(result), result.status, result.failures) == (2, "done", ())
    assert [row["prompt_tokens"] for row in result.rows()] == [8, 16]
    assert {finding.code for finding in result.findings} >= {"unchecked"}
    assert repr(result) == "<GenerationResult of demo:llama_tiny: 2 cells, done>"
    result.save(tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["results"] == json.loads(json.dumps(result.rows()))
    with pytest.raises(BadInput, match="has no argument 'num_streams'"):
        inferlab.generate("demo:llama_tiny", num_streams=2)  # type: ignore[call-arg]
