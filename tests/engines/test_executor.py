"""Intel's Neural Engine: the graph that it gets computes the same, and what it gets wrong is refused first.

Its native library needs AVX-512. Elsewhere all is tested but the inference itself: its compiler runs anywhere.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

from inferlab.child import protocol
from inferlab.child.engines.base import BadOption
from inferlab.child.engines.executor.graph import Bert, rewrite
from inferlab.cli.engines import command
from inferlab.engines import environments, registry
from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import EngineInfo, Plan
from inferlab.transformers import ExecutorBenchmark, ExecutorBenchmarkArguments
from inferlab.worker import Launch, Worker
from tests.helpers import berts

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Those of the exporter.
pytestmark = pytest.mark.filterwarnings("ignore")

Arrays = Mapping[str, Any]
Maker = Callable[..., Path]

LACKING = environments.why_not_here("executor")
needs_avx512 = pytest.mark.skipif(bool(LACKING), reason=LACKING)

SIZES = {"vocab_size": 100, "max_position_embeddings": 32}
SMALL = {**SIZES, "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
DISTIL = {**SIZES, "dim": 128, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}

# All of the engine but its native library.
COMPILED = """
import functools, os, tempfile
from inferlab_child.engines import executor

class Compiled(executor.Executor):
    def load(self, model, options):
        with tempfile.TemporaryDirectory() as folder:
            work = functools.partial(executor.compile_model, model, options.shapes, folder)
            made = executor.in_fork(work, "its compiler cannot compile the model")
            return dict(made, files=sorted(os.listdir(folder)), home=os.environ["HOME"])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Makes an ONNX file out of a class of transformers, as PyTorch's older exporter writes it; once for each."""
    folder = tmp_path_factory.mktemp("executor")
    known: dict[Any, Path] = {}

    def make(
        family: str = "Bert", head: str = "ForSequenceClassification", opset: int = 14, **changes: Any
    ) -> Path:
        key = (family, head, opset, *sorted(changes.items()))
        if key not in known:
            path = folder / f"{len(known)}.onnx"
            known[key] = _export(path, family, head, opset, changes)
        return known[key]

    return make


def _export(path: Path, family: str, head: str, opset: int, changes: Mapping[str, Any]) -> Path:
    torch.manual_seed(0)
    sizes = DISTIL if family == "DistilBert" else SMALL
    config = getattr(transformers, f"{family}Config")(**{**sizes, **changes}, attn_implementation="eager")
    module = getattr(transformers, f"{family}{head}")(config).eval()
    taken = [name for name in inspect.signature(module.forward).parameters if name in arrays(1, 1)]
    example = {name: torch.tensor(array) for name, array in arrays(2, 12).items() if name in taken}
    outputs = list(module(**example))
    axes = {name: {0: "batch", 1: "sequence"} for name in taken}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=False, opset_version=opset, input_names=list(example),
        output_names=outputs, dynamic_axes=axes,
    )  # fmt: skip
    return path


def arrays(batch: int, length: int) -> dict[str, Any]:
    """Inputs in an order that is not the engine's, with some padding."""
    random = np.random.default_rng(0)
    mask = np.ones((batch, length), np.int64)
    mask[0, length - length // 4 :] = 0
    return {
        "input_ids": random.integers(0, 100, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": random.integers(0, 2, (batch, length)),
    }


def computed(model: onnx.ModelProto, inputs: Arrays) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[Any] = session.run(None, {one.name: inputs[one.name] for one in session.get_inputs()})
    return found


def refusal(model: onnx.ModelProto) -> str:
    with pytest.raises(BadOption) as caught:
        rewrite(model)
    return str(caught.value)


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    for one in model.graph.input:
        one.name = names.get(one.name, one.name)
    for node in model.graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = names.get(name, name)
    return model


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("Bert", Bert(["input_ids", "token_type_ids", "attention_mask"], "logits", 2, 128, 32, True, False)),
        ("DistilBert", Bert(["input_ids", "attention_mask"], "logits", 2, 128, 32, True, False)),
        ("Electra", Bert(["input_ids", "token_type_ids", "attention_mask"], "logits", 2, 128, 32, True, False)),
    ],
    ids=["bert", "distilbert", "electra"],
)
def test_the_rewritten_graph_computes_exactly_the_same(made: Maker, family: str, expected: Bert) -> None:
    original, changed = onnx.load(made(family)), onnx.load(made(family))
    assert rewrite(changed) == expected
    assert [one.name for one in changed.graph.input] == expected.inputs
    assert {node.op_type for node in changed.graph.node}.isdisjoint({"Identity", "Where", "Expand", "Concat"})
    onnx.checker.check_model(changed)
    for batch, length in ((2, 16), (1, 32), (3, 5)):
        inputs = arrays(batch, length)
        for found, right in zip(computed(changed, inputs), computed(original, inputs), strict=True):
            np.testing.assert_array_equal(found, right)


def test_the_export_of_inferlab_itself_is_rewritten_too() -> None:
    original, changed = onnx.load(berts.onnx_files()[0]), onnx.load(berts.onnx_files()[0])
    found = rewrite(changed)
    assert (found.heads, found.hidden, found.positions) == (2, 128, 128)
    np.testing.assert_array_equal(computed(changed, arrays(2, 16))[0], computed(original, arrays(2, 16))[0])


def test_the_older_names_of_inputs_are_known_and_made_the_engines_own(made: Maker) -> None:
    model = renamed(onnx.load(made()), {"token_type_ids": "segment_ids", "attention_mask": "input_mask"})
    assert rewrite(model).inputs == ["input_ids", "segment_ids", "input_mask"]
    assert [one.name for one in model.graph.input] == ["input_ids", "token_type_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"num_attention_heads": 4},
            "it computes wrong results for attention heads of 32 features, without an error; only heads of 64 are "
            "right (hidden size 128 with 4 heads)",
        ),
        (
            {"hidden_size": 192, "num_attention_heads": 3},
            "it does not take the hidden size 192; it takes 128, 256, 384, 768, 1024",
        ),
        (
            {"opset": 17},
            "it takes models of opset 13 or 14, and this one has opset 17; export it again, for example with: "
            "inferlab export FOLDER -o model.onnx --opset 14",
        ),
        (
            {"hidden_act": "gelu_new"},
            "the model has a GELU by tanh (gelu_new, gelu_fast), which it cannot run; it runs GELU by erf",
        ),
        (
            {"head": "ForQuestionAnswering"},
            "it computes one output only, and the model has start_logits, end_logits; export it with one",
        ),
        ({"hidden_act": "sigmoid"}, "it does not know the operator Sigmoid; it runs only the BERT family"),
    ],
    ids=["heads", "hidden-size", "opset", "gelu", "outputs", "operator"],
)
def test_a_model_that_it_would_compute_wrongly_is_refused(
    made: Maker, changes: dict[str, Any], sentence: str
) -> None:
    assert refusal(onnx.load(made(**changes))) == sentence


@pytest.mark.parametrize(
    ("first", "second"), [("attention_mask", "token_type_ids"), ("input_ids", "token_type_ids")]
)
def test_inputs_under_each_others_names_are_refused(made: Maker, first: str, second: str) -> None:
    assert refusal(renamed(onnx.load(made()), {first: second, second: first})) == (
        "the model does not use the input 'token_type_ids' as its name says, so the inputs would be mixed up; "
        "export it with each input under its own name"
    )


def test_an_input_that_it_does_not_know_is_refused(made: Maker) -> None:
    assert refusal(renamed(onnx.load(made()), {"token_type_ids": "position_ids"})) == (
        "it does not know the input 'position_ids'; it takes input_ids, token_type_ids and attention_mask"
    )


def test_a_model_without_a_mask_is_refused() -> None:
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["y"])]
    ids, y = (helper.make_tensor_value_info(name, kind, None) for name, kind in (("input_ids", 7), ("y", 1)))
    table = numpy_helper.from_array(np.ones((4, 128), np.float32), "table")
    model = helper.make_model(
        helper.make_graph(nodes, "bag", [ids], [y], [table]), opset_imports=[helper.make_opsetid("", 14)]
    )
    assert refusal(model) == "it needs the input attention_mask, and the model has only input_ids"


def test_a_mask_that_means_the_opposite_is_refused(made: Maker) -> None:
    model = onnx.load(made())
    for node in model.graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = {"attention_mask": "upside_down"}.get(name, name)
    model.graph.node.insert(0, helper.make_node("Sub", ["one", "attention_mask"], ["upside_down"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "one"))
    assert refusal(model) == (
        "the model does not add its input 'attention_mask' to the attention as BERT does, and other masks give "
        "wrong results without an error"
    )


def compiled(executor: Launch, folder: Path, model: Path, length: int = 16) -> dict[str, Any]:
    (folder / "compiled.py").write_text(COMPILED)
    with Worker(replace(executor, reference={"file": str(folder / "compiled.py"), "class": "Compiled"})) as worker:
        return load(worker, model, length)


def load(
    worker: Worker, model: Path, length: int = 16, groups: Sequence[Sequence[int]] = ((),), threads: int = 1
) -> dict[str, Any]:
    settings: dict[str, Any] = worker.ask(
        "load", model=str(model), kind="onnx", groups=groups, layout="each", threads=threads, cores=threads,
        scheduler="single_stream", pinning="none", batch_size=2, outputs=[], options={},
        shapes={name: [2, length] for name in arrays(1, 1)},
    ).data["settings"]  # fmt: skip
    return settings


def test_its_compiler_takes_the_rewritten_graph_and_nothing_is_left_behind(
    executor: Launch, made: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("home", "work", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    # Of its own accord: confined, it would have another home.
    monkeypatch.setenv("INFERLAB_CONFINEMENT", "off")
    monkeypatch.chdir(tmp_path / "work")
    before = made().read_bytes()
    assert compiled(executor, tmp_path, made()) == {
        "inputs": ["input_ids", "token_type_ids", "attention_mask"],
        "output": "logits",
        "tokens": [],
        "gelu": "tanh",
        "operators": 24,
        "files": ["conf.yaml", "model.bin"],
        "home": str(tmp_path / "home"),
    }
    assert made().read_bytes() == before
    assert [list((tmp_path / name).iterdir()) for name in ("home", "work", "tmp")] == [[], [], []]


def test_its_compiler_takes_a_model_of_static_int8(executor: Launch, made: Maker, tmp_path: Path) -> None:
    assert compiled(executor, tmp_path, quantized(made(), tmp_path))["operators"] == 26


def quantized(model: Path, folder: Path) -> Path:
    """A copy in static INT8."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        left = iter([arrays(2, 16)])

        def get_next(self) -> Any:
            return next(self.left, None)

    quantize_static(model, folder / "int8.onnx", Reader(), QuantFormat.QDQ, op_types_to_quantize=["MatMul"])
    return folder / "int8.onnx"


def test_a_refusal_of_its_child_is_bad_input_in_one_sentence(
    executor: Launch, made: Maker, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        compiled(executor, tmp_path, made(), length=33)
    assert str(caught.value) == (
        "Engine 'executor': a sequence of 33 does not fit into the model's table of 32 positions."
    )
    with pytest.raises(BadInput) as caught:
        compiled(executor, tmp_path, berts.onnx_files()[1])
    assert str(caught.value) == (
        "Engine 'executor': it does not know the operator DynamicQuantizeLinear; it runs only the BERT family."
    )


@pytest.fixture
def old_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine without AVX-512, and what is said of it."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(environments, "cpu_info", lambda: {"model name": "Old CPU", "flags": "avx avx2 avx512f"})
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return "it needs the CPU instructions avx512bw, avx512vl, avx512dq, which this CPU (Old CPU) does not have"


def test_without_avx512_it_is_not_installed(old_cpu: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["install", "executor", "--yes"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == f"Engine 'executor' cannot be installed: {old_cpu}."
    assert (result.output, (tmp_path / "cache").exists()) == ("", False)
    assert registry.describe("executor") == EngineInfo(
        "executor",
        "missing",
        environment=str(tmp_path / "cache" / "environments" / "executor-1.4.2"),
        problem=f"cannot run here: {old_cpu}",
    )


def test_without_avx512_a_run_is_refused_even_where_it_is_installed(
    old_cpu: str, made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "interpreter_of", lambda name: Path("/bin/true"))
    sentence = f"Engine 'executor' cannot run here: {old_cpu}."
    with pytest.raises(BadInput) as caught:
        Lab().benchmark(Plan(model=str(made()), engines=("executor",), sequence_lengths=(16,)))
    assert str(caught.value) == sentence
    arguments = ExecutorBenchmarkArguments(
        models=[made()], engine="executor", sequence_lengths=[16], batch_sizes=[1], memory=False
    )
    results = ExecutorBenchmark(arguments).run()
    assert results.time_inference_result[str(made())]["result"] == {1: {16: "N/A"}}
    assert [one.reason for one in results.missing] == [sentence]


def test_with_avx512_it_is_only_not_installed(old_cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "avx2 avx512f avx512dq avx512bw avx512vl"
    monkeypatch.setattr(environments, "cpu_info", lambda: {"flags": flags})
    with pytest.raises(registry.NotInstalled) as caught:
        registry.launch("executor")
    assert str(caught.value) == (
        "Engine 'executor' is not installed. Install it with: inferlab engines install executor"
    )


@needs_avx512
@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        ({}, 1),
        ({"family": "DistilBert"}, 1),
        ({"family": "Electra"}, 1),
        ({"head": "ForTokenClassification"}, 1),
        ({"opset": 13}, 2),
    ],
    ids=["bert", "distilbert", "electra", "tokens", "opset-13-on-two-threads"],
)
def test_it_computes_what_onnx_runtime_computes(
    executor: Launch, made: Maker, kind: dict[str, Any], threads: int
) -> None:
    inputs = arrays(2, 16)
    settings, outputs = inferred(executor, made(**kind), inputs, threads)
    assert (settings["num_threads"], settings["graph_rewritten"], settings["gelu"]) == (threads, 1, "tanh")
    right = computed(onnx.load(made(**kind)), inputs)[0]
    assert outputs["logits"].shape == right.shape
    np.testing.assert_allclose(outputs["logits"], right, rtol=0, atol=1e-4)


@needs_avx512
def test_it_computes_int8_as_onnx_runtime_does_but_for_rounding(
    executor: Launch, made: Maker, tmp_path: Path
) -> None:
    inputs, int8 = arrays(2, 16), quantized(made(), tmp_path)
    right = computed(onnx.load(int8), inputs)[0]
    found = inferred(executor, int8, inputs)[1]["logits"]
    # A value that lies between two of the 255 steps may become either.
    np.testing.assert_allclose(found, right, rtol=0, atol=0.03 * float(np.abs(right).max()))


def inferred(
    executor: Launch, model: Path, inputs: Arrays, threads: int = 1
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the outputs of one inference."""
    heads, blocks = protocol.pack_arrays(inputs)
    with Worker(executor) as worker:
        settings = load(worker, model, threads=threads)
        worker.ask("inputs", blocks, arrays=heads)
        return settings, worker.ask("infer", stream=0, set=0).arrays()


@needs_avx512
def test_a_second_stream_in_the_same_process_is_refused(executor: Launch, made: Maker) -> None:
    with Worker(executor) as worker, pytest.raises(BadInput) as caught:
        load(worker, made(), groups=[[0], [min(1, (os.cpu_count() or 1) - 1)]])
    assert str(caught.value) == (
        "Engine 'executor': it serves one stream in each process; give --stream-mode processes."
    )


@needs_avx512
def test_it_is_measured_beside_onnx_runtime_with_right_outputs(
    executor: Launch, made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = registry.launch
    monkeypatch.setattr(registry, "launch", lambda name: executor if name == "executor" else original(name))
    plan = Plan(
        model=str(made()), engines=("executor", "onnxruntime"), sequence_lengths=(16,), time_s=0.2, warmup_s=0.1,
        processes=1,
    )  # fmt: skip
    outcomes = Lab().benchmark(plan).outcomes
    assert [(outcome.cell.engine, outcome.status) for outcome in outcomes] == [
        ("executor", "done"),
        ("onnxruntime", "done"),
    ]
    assert [run.check.status for outcome in outcomes for run in outcome.runs] == ["match", "match"]
