"""Folders of ONNX Runtime GenAI and of OpenVINO GenAI, given as they are: what is read, measured and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.measure.generation.cells import generation_cells
from inferlab.measure.generation.reference import engine_files, make_generation_job
from inferlab.model.generative import read_generative
from inferlab.model.reading import names_generative, read_model
from inferlab.records import ignore
from inferlab.records.generation import GenerationOutcome, GenerationPlan, TensorGroup
from inferlab.workspace.workspace import read_any

pytest.importorskip("onnxruntime_genai")
pytest.importorskip("openvino_genai")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

PLAN = GenerationPlan(
    "demo:llama_tiny",
    prompt_tokens=(12,),
    new_tokens=(5,),
    depths=(40,),
    num_cores=(1,),
    time_s=0.01,
    processes=1,
)
KINDS = ("onnxruntime-genai", "openvino-genai")
# The engines that run the same files without the package that they are made for.
PLAIN = {"onnxruntime-genai": "onnxruntime", "openvino-genai": "openvino"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the engines' own conversion makes of the same small model."""
    model = read_generative(PLAN.model)
    made = {}
    for kind in KINDS:
        plan = replace(PLAN, engines=(kind,))
        (cell,) = generation_cells(plan, model)
        made[kind] = tmp_path_factory.mktemp("folders") / kind
        with ExitStack() as stack:
            path, _ = stack.enter_context(engine_files(make_generation_job(plan, model, cell), ignore))
            shutil.copytree(path, made[kind], ignore=shutil.ignore_patterns("files.json", "fastest-*"))
    return made


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a folder, which a test may damage."""
    return lambda kind: shutil.copytree(folders[kind], tmp_path / kind)


def edited(folder: Path, name: str, edit: Callable[[dict[str, Any]], Any]) -> Path:
    file = folder / name
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))
    return folder


def refusal(source: Path, plan: GenerationPlan = PLAN) -> str:
    with pytest.raises(BadInput) as refused:
        Lab().generate(replace(plan, model=str(source)))
    return str(refused.value).replace(str(source), "FOLDER")


def token_ids(outcome: GenerationOutcome) -> tuple[int, ...]:
    assert outcome.failure is None, outcome.failure
    return outcome.runs[0].repetitions[0].sequences[0].token_ids


def test_what_a_folder_is_is_read_without_an_engine(folders: dict[str, Path]) -> None:
    weights = {
        # With the table of its rotary positions, 2048 × 8 × 2 numbers.
        "onnxruntime-genai": ("llama", TensorGroup("F32", 19, 139_584, 558_336)),
        "openvino-genai": ("LlamaForCausalLM", TensorGroup("F32", 32, 106_519, 426_076)),
    }
    for kind, (architecture, group) in weights.items():
        model = read_generative(str(folders[kind]))
        assert (model.kind, model.path, model.architecture) == (kind, str(folders[kind]), architecture)
        assert (model.layers, model.heads, model.kv_heads, model.context, model.vocabulary) == (2, 4, 2, 2048, 256)
        assert (model.kv_bytes_per_token(), model.tensors, model.precision) == (256.0, (group,), "F32")
        assert names_generative(str(folders[kind]))
        shown, generative = read_any(str(folders[kind]))
        assert (shown.kind, shown.digest, generative) == (kind, model.digest, model)


def test_a_folder_of_openvino_is_not_benchmarked_but_generated_with(folders: dict[str, Path]) -> None:
    path = folders["openvino-genai"]
    with pytest.raises(BadInput) as refused:
        read_model(str(path))
    assert str(refused.value) == (
        f"The folder {path} has an OpenVINO model: name its file openvino_model.xml. One that generates tokens is "
        f"measured with: inferlab generate {path}"
    )


@pytest.fixture(scope="module")
def expected() -> tuple[int, ...]:
    """The tokens that torch generates with the weights that the folders were made of."""
    (outcome,) = Lab().generate(replace(PLAN, engines=("torch",))).outcomes
    return token_ids(outcome)


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_engine_and_the_plain_one_generate_the_tokens_of_the_weights_it_was_made_of(
    folders: dict[str, Path], expected: tuple[int, ...], kind: str
) -> None:
    (own,) = Lab().generate(replace(PLAN, model=str(folders[kind]))).outcomes
    (plain,) = Lab().generate(replace(PLAN, model=str(folders[kind]), engines=(PLAIN[kind],))).outcomes
    assert own.cell.engine == kind
    for outcome in (own, plain):
        assert token_ids(outcome) == expected
        agreement = outcome.runs[0].agreement
        assert (agreement.status, agreement.agreeing, agreement.positions) == ("match", 64, 64)
        # OpenVINO GenAI does not tell its logits.
        if outcome is own and kind == "openvino-genai":
            assert agreement.kl_divergence is None
        else:
            assert agreement.kl_divergence == pytest.approx(0.0, abs=1e-4)
        assert agreement.reference.startswith(f"{PLAIN[kind]} ")
        assert "plain graph without a cache (no torch weights of it)" in agreement.reference
        assert agreement.reference.endswith("the same engine") == (outcome is plain)


def test_states_that_are_not_quantised_are_counted(folders: dict[str, Path]) -> None:
    options = (("KV_CACHE_PRECISION", "f32"),)
    plan = replace(PLAN, model=str(folders["openvino-genai"]), engines=("openvino",), engine_options=options)
    (outcome,) = Lab().generate(replace(plan, batch_sizes=(2,))).outcomes
    (run,) = outcome.runs
    assert (run.cache.formula_bytes, run.cache.engine_bytes, run.cache.dtype) == (512.0, 512.0, "f32")
    assert (run.agreement.status, run.agreement.positions, run.settings["cache"]) == ("match", 128, "state")


def test_what_a_folder_says_of_choosing_tokens_does_not_change_them(
    folder: Callable[[str], Path], expected: tuple[int, ...]
) -> None:
    changed = {"repetition_penalty": 5.0, "no_repeat_ngram_size": 1, "do_sample": True, "temperature": 9.0}
    path = edited(
        folder("onnxruntime-genai"), "genai_config.json", lambda config: config["search"].update(changed)
    )
    (outcome,) = Lab().generate(replace(PLAN, model=str(path))).outcomes
    assert token_ids(outcome) == expected


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            lambda model: model["decoder"].update(filename="../other/model.onnx"),
            "FOLDER cannot be read: its genai_config.json names the graph '../other/model.onnx', which is no file "
            "of the folder.",
        ),
        (
            lambda model: model["decoder"].update(filename="/etc/passwd"),
            "FOLDER cannot be read: its genai_config.json names the graph '/etc/passwd', which is no file of the "
            "folder.",
        ),
        (
            lambda model: model["decoder"].update(filename="other.onnx"),
            "FOLDER is incomplete: it has no other.onnx, which its genai_config.json names.",
        ),
        (
            lambda model: model.pop("decoder"),
            "FOLDER cannot be read: its genai_config.json has no section 'decoder'.",
        ),
        (
            lambda model: model.pop("context_length"),
            "FOLDER cannot be read: its genai_config.json has no context_length or no vocab_size.",
        ),
        (
            lambda model: model.update(vocab_size=300),
            "FOLDER cannot be read: its genai_config.json names a vocabulary of 300, and model.onnx has 256.",
        ),
        (
            lambda model: model.update(vision={"filename": "vision.onnx"}),
            "FOLDER has more parts than a decoder (vision), which inferlab generate does not run from an ONNX "
            "Runtime GenAI folder.",
        ),
        (
            lambda model: model["decoder"]["session_options"].update(custom_ops_library="evil.so"),
            "FOLDER asks for operators of its own (custom_ops_library), which is code: not loaded.",
        ),
        (
            lambda model: model["decoder"]["session_options"].update(provider_options=[{"cuda": {}}]),
            "FOLDER is built for cuda; inferlab measures on CPUs.",
        ),
    ],
)
def test_a_configuration_that_leads_astray_is_refused(
    folder: Callable[[str], Path], edit: Callable[[dict[str, Any]], Any], said: str
) -> None:
    path = edited(folder("onnxruntime-genai"), "genai_config.json", lambda config: edit(config["model"]))
    assert refusal(path) == said


def test_folders_that_are_cut_off_or_incomplete_are_refused(folder: Callable[[str], Path]) -> None:
    genai, openvino = map(folder, KINDS)
    data = genai / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-4096])
    assert "The model's data file 'model.onnx.data' is cut off" in refusal(genai)
    data.unlink()
    assert "'model.onnx.data', which is missing" in refusal(genai)
    (genai / "genai_config.json").write_text('{"model": ')
    assert refusal(genai).startswith("FOLDER/genai_config.json cannot be read: ")
    weights, graph = openvino / "openvino_model.bin", openvino / "openvino_model.xml"
    whole = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:-1])
    assert refusal(openvino) == (
        f"FOLDER/openvino_model.bin is cut off: it has {whole - 1} bytes, and openvino_model.xml names more. Copy "
        "it again."
    )
    weights.unlink()
    assert refusal(openvino) == (
        "FOLDER/openvino_model.xml lacks its weights: there is no openvino_model.bin beside it."
    )
    weights.write_bytes(bytes(whole))
    text = graph.read_text()
    graph.write_text(text[:-200])
    assert refusal(openvino).startswith("FOLDER/openvino_model.xml cannot be read: it is cut off or damaged (")
    graph.write_text(text.replace("ReadValue", "Result"))
    assert refusal(openvino) == (
        "FOLDER cannot generate: its openvino_model.xml keeps no keys and values. Export it for the task "
        "text-generation-with-past."
    )
    edited(openvino, "config.json", lambda config: config.update(architectures=["BertForMaskedLM"]))
    assert refusal(openvino) == (
        "FOLDER is a BertForMaskedLM, which does not generate text. Measure it with: inferlab benchmark "
        "FOLDER/openvino_model.xml"
    )
    (openvino / "config.json").unlink()
    assert refusal(openvino) == (
        "FOLDER has no config.json, which OpenVINO GenAI folders have. Measure the graph alone with: inferlab "
        "benchmark FOLDER/openvino_model.xml"
    )


def test_what_a_folder_cannot_do_is_refused_before_it_is_loaded(folders: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')
    for kind, path in folders.items():
        other = next(name for name in KINDS if name != kind)
        assert refusal(path, replace(PLAN, prompt_tokens=(2048,))) == (
            "A depth of 40, a prompt of 2048 and 5 new tokens are 2093 tokens; the context of FOLDER has 2048. "
            "Give fewer."
        )
        assert refusal(path, replace(PLAN, engines=(other,))).startswith(
            f"Engine '{other}' does not run models of kind {kind}; it runs gguf, {other}, transformers."
        )
        assert refusal(path, replace(PLAN, engine_options=(("weights", "int4"),))) == (
            f"FOLDER is a folder of {kind} already, with weights in F32. Leave the engine option weights out."
        )
        texts = replace(PLAN, prompts_file=str(prompts), prompt_tokens=GenerationPlan("").prompt_tokens)
        assert refusal(path, texts) == (
            f"The prompts in {prompts} are text, which cannot be tokenised: the folder has no tokenizer "
            '(tokenizer.json or another). Give "token_ids" instead.'
        )
