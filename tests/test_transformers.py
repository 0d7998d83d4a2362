"""The Benchmark classes: the seed's examples, INT8 beside FP32, training, and cells that fail."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.lab import read_model
from inferlab.records import Finding, ignore
from inferlab.transformers import (
    BenchmarkOutput,
    ExecutorBenchmark,
    ExecutorBenchmarkArguments,
    Measured,
    PyTorchBenchmark,
    PyTorchBenchmarkArguments,
    report,
)
from inferlab.transformers.models import names_of, opened
from inferlab.units import duration
from tests.helpers import berts

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DOCS = (Path(__file__).parent.parent / "docs/transformers.md").read_text()
SHORT: dict[str, Any] = {"time_s": 0.1, "repeat": 1}
SPEED = """\
====================       INFERENCE - SPEED - RESULT       ====================
--------------------------------------------------------------------------------
          Model Name             Batch Size     Seq Length     Time in s   |
--------------------------------------------------------------------------------
""".replace("|", "")
SIZE = """\
====================    INFERENCE - MODEL SIZE - RESULT     ====================
--------------------------------------------------------------------------------
                         Model Name                         Model Size in MB
--------------------------------------------------------------------------------
"""


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In the folder with all models, which stays as it was."""
    berts.int8(), berts.onnx_files()
    before = set(berts.folder().iterdir())
    monkeypatch.chdir(berts.folder())
    yield berts.folder()
    assert set(berts.folder().iterdir()) == before


def rows_of(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(file).read_text().splitlines()))


def run(code: str) -> Any:
    """Run an example and return its results."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names["results"]


def example(title: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    """An example of the documentation, that of the seed with another import and other models; measured briefly."""
    (code,) = [one for one in re.findall(r"```python\n(.*?)```", DOCS, re.S) if f" {title}," in one]
    kind = {"PyTorchBenchmark": PyTorchBenchmarkArguments, "ExecutorBenchmark": ExecutorBenchmarkArguments}[title]

    def brief(**given: Any) -> Any:
        return kind(**SHORT, **more, **given)

    monkeypatch.setattr(f"inferlab.transformers.{kind.__name__}", brief)
    return str(code)


def assert_both_tables(printed: str, names: list[str], lengths: list[int]) -> None:
    speed, size, *_ = printed.lstrip("\n").split("\n\n")
    assert speed.startswith(SPEED)
    assert size.startswith(SIZE)
    rows = [line.split() for line in speed[len(SPEED) :].splitlines()[:-1]]
    assert [row[:3] for row in rows] == [[name, "1", str(length)] for name in names for length in lengths]
    assert all(re.fullmatch(r"\d+(\.\d+)?", row[3]) for row in rows)
    assert [line.split()[0] for line in size[len(SIZE) :].splitlines()[:-1]] == names


def test_the_pytorch_example_prints_both_tables_and_int8_is_a_quarter_of_fp32(
    beside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A process takes seconds to import transformers: the outputs are checked in test_torch_folders.
    results = run(example("PyTorchBenchmark", monkeypatch, verify=False))
    names = ["bert-fp32", "bert-int8"]
    assert_both_tables(capsys.readouterr().out, names, [32, 64, 128])
    assert results.missing == ()
    assert list(results.time_inference_result) == names
    for found in results.time_inference_result.values():
        assert (found["bs"], found["ss"], list(found["result"][1])) == ([1], [32, 64, 128], [32, 64, 128])
    for summary in results.inference_summary.values():
        assert {cell.settings["head"] for cell in summary["result"][1].values()} == {0}
    assert results.memory_inference_result == results.time_train_result == results.train_summary == {}
    assert results.model_sizes["bert-fp32"] == (beside / "bert-fp32/model.safetensors").stat().st_size / 2**20
    assert 0.25 < results.model_sizes["bert-int8"] / results.model_sizes["bert-fp32"] < 0.28


def test_the_executor_example_prints_both_tables_and_its_results_are_as_documented(
    beside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(example("ExecutorBenchmark", monkeypatch))
    assert_both_tables(capsys.readouterr().out, ["fp32.onnx", "int8.onnx"], [32, 64, 128])
    (code,) = re.findall(r"```python\n(time_s = .*?)```", DOCS, re.S)
    exec(code, {"results": results})
    assert capsys.readouterr().out == "True match 1\nTrue ()\n"


def test_training_is_measured_refused_for_int8_and_not_stopped_by_a_model_that_cannot_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fp32, int8, empty = str(berts.fp32()), str(berts.int8()), str(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    args = PyTorchBenchmarkArguments(
        models=[empty, fp32, int8], batch_sizes=[2], sequence_lengths=[16], inference=False, training=True, **SHORT
    )
    results = PyTorchBenchmark(args).run()
    trained = results.train_summary[fp32]["result"][2][16]
    assert trained.time_s == results.time_train_result[fp32]["result"][2][16] > 0
    assert trained.iterations >= 3
    assert trained.losses[1] < trained.losses[0]
    memory = results.memory_train_result[fp32]["result"][2][16]
    # Weights, gradients and the optimiser's two moments.
    assert memory.megabytes >= memory.steady_megabytes > 4 * results.model_sizes[fp32]
    for name in (empty, int8):
        assert results.time_train_result[name]["result"] == {2: {16: "N/A"}}
        assert results.memory_train_result[name]["result"] == {2: {16: "N/A"}}
    reasons = {one.model: one.reason for one in results.missing}
    assert reasons.keys() == {empty, int8}
    assert reasons[int8].startswith("Training on an INT8 model is refused")
    assert "is not a Hugging Face model" in reasons[empty]
    assert results.model_sizes[empty] == "N/A"
    printed = capsys.readouterr().out
    assert "TRAIN - SPEED - RESULTS" in printed
    assert "TRAIN - MEMORY - RESULTS" in printed
    assert f"N/A: {int8}, training: Training on an INT8 model is refused" in printed


class Tagger(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A model of no library's, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(30, 16)
        self.drop = torch.nn.Dropout(0.5)
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, words: Any) -> Any:
        return self.layer(self.drop(self.table(words)))


def test_a_module_is_measured_and_trained_and_left_as_it_was() -> None:
    tagger = Tagger()
    args = PyTorchBenchmarkArguments(
        models=[tagger], batch_sizes=[1], sequence_lengths=[8], training=True, memory=False, verify=False, **SHORT
    )
    results = PyTorchBenchmark(args).run()
    assert results.missing == ()
    assert results.time_inference_result["Tagger"]["result"][1][8] > 0
    assert np.isfinite(results.train_summary["Tagger"]["result"][1][8].losses).all()
    assert (tagger.training, tagger.drop.training) == (True, True)


def test_a_module_of_transformers_travels_without_its_head() -> None:
    bert = transformers.BertForSequenceClassification(berts.config()).eval()
    with opened([bert], [None], base=True, training=False, listener=ignore) as (source,):
        model = read_model(source.path)
    assert (source.name, source.problem) == ("BertForSequenceClassification", "")
    dims = ("batch", "sequence")
    assert [(one.name, one.dims, one.below) for one in model.inputs] == [
        ("input_ids", dims, 1000), ("attention_mask", dims, None), ("token_type_ids", dims, 2)
    ]  # fmt: skip
    assert [output.name for output in model.outputs] == ["last_hidden_state", "pooler_output"]


def test_a_model_that_is_only_configured_gets_random_weights() -> None:
    with opened(["small"], [berts.config()], base=False, training=False, listener=ignore) as (source,):
        made = {one.name for one in Path(source.path).iterdir()}
    assert (source.name, source.kind, source.problem) == ("small", "transformers", "")
    assert made >= {"config.json", "model.safetensors"}


def test_an_id_that_cannot_be_fetched_is_said_to_be_neither_here_nor_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(text: str, listener: Any) -> Path:
        raise BadInput(f"hf:{text} cannot be fetched: there is no such repository.")

    monkeypatch.setattr("inferlab.model.hub.fetch_transformers", refuse)
    with opened(["org/name"], [None], base=False, training=False, listener=ignore) as (source,):
        assert source.problem == (
            "There is no folder or file 'org/name' here, and hf:org/name cannot be fetched: "
            "there is no such repository."
        )


def test_modules_of_one_class_have_different_names() -> None:
    assert names_of([Tagger(), "Tagger (2)", Tagger(), Tagger()]) == [
        "Tagger",
        "Tagger (2)",
        "Tagger (3)",
        "Tagger (4)",
    ]


def test_files_are_written_where_they_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(berts.onnx_files()[0])
    files: dict[str, Any] = {
        name: str(tmp_path / f"{name}.csv")
        for name in ("inference_time_csv_file", "inference_memory_csv_file", "env_info_csv_file", "log_filename")
    }
    args = ExecutorBenchmarkArguments(
        models=[model], batch_sizes=[1, 2], sequence_lengths=[8, 200], save_to_csv=True, env_print=True,
        log_print=True, **files, **SHORT,
    )  # fmt: skip
    results = ExecutorBenchmark(args, configs=[berts.config()]).run()
    assert {one.name for one in tmp_path.iterdir()} == {f"{name}.csv" for name in files}
    times = rows_of(files["inference_time_csv_file"])
    assert [(row["model"], row["batch_size"], row["sequence_length"]) for row in times] == [
        (model, "1", "8"), (model, "1", "200"), (model, "2", "8"), (model, "2", "200"),
    ]  # fmt: skip
    assert float(times[0]["result"]) == results.time_inference_result[model]["result"][1][8]
    assert float(times[0]["model_size_mb"]) == round(berts.onnx_files()[0].stat().st_size / 2**20, 3)
    too_long = "A sequence of 200 does not fit: max_position_embeddings of the configuration is 128."
    assert (times[1]["result"], times[1]["reason"]) == ("N/A", too_long)
    memories = rows_of(files["inference_memory_csv_file"])
    memory = results.memory_inference_result[model]["result"][1][8]
    assert float(memories[0]["result"]) == round(memory.megabytes, 3) > 0
    assert float(memories[0]["steady"]) == round(memory.steady_megabytes, 3) <= float(memories[0]["result"])
    environment = dict(csv.reader(Path(files["env_info_csv_file"]).read_text().splitlines()))
    assert {"inferlab_version", "onnxruntime_version", "cpu", "instruction_sets", "num_threads"} <= set(
        environment
    )
    printed = capsys.readouterr().out
    assert Path(files["log_filename"]).read_text() == printed
    assert f"- cpu: {environment['cpu']}" in printed
    assert f"N/A: {model}, inference at 1 × 200, 2 × 200: {too_long}" in printed


def test_an_engine_that_aborts_leaves_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(berts.onnx_files()[0])
    args = ExecutorBenchmarkArguments(
        models=[model], batch_sizes=[1], sequence_lengths=[8], engine="fake",
        engine_options={"fail": "abort", "at": "3"}, **SHORT,
    )  # fmt: skip
    results = ExecutorBenchmark(args).run()
    assert results.time_inference_result[model]["result"] == {1: {8: "N/A"}}
    assert "SIGABRT" in results.missing[0].reason
    printed = capsys.readouterr()
    assert "SIGABRT" in printed.out
    seconds = args.time_s
    assert printed.err.endswith(
        f"Measuring 1 cell of {seconds:g} s each: at least {duration(seconds)}, in 1 fresh process per cell, "
        "forked from 1 process that has imported fake.\n"
    )
    # As the named tuple of Hugging Face's.
    times, memories, train_times, train_memories, summary, train_summary = results
    assert times is results.time_inference_result and results[1] is memories is results.memory_inference_result
    assert (train_times, train_memories, train_summary, len(results)) == ({}, {}, {}, 6)
    assert summary is results.inference_summary


COUNTING = """
import os
from pathlib import Path

class Counting:
    packages = ()

    def prepare(self):
        Path(os.environ["COUNTED"], f"imported-{os.getpid()}").touch()

    def load(self, model, options):
        shape = options.shapes["input_ids"]
        Path(os.environ["COUNTED"], f"loaded-{os.getpid()}-by-{os.getppid()}-{shape}").touch()
        return {}

    def bind(self, inputs, stream=0):
        return lambda: None
"""


def test_every_cell_has_processes_of_its_own_and_the_engine_is_imported_once_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    counted = tmp_path / "counted"
    counted.mkdir()
    monkeypatch.setenv("COUNTED", str(counted))
    args = ExecutorBenchmarkArguments(
        models=[str(file) for file in berts.onnx_files()], batch_sizes=[1, 2], sequence_lengths=[8, 16], repeat=2,
        time_s=0.1, verify=False, engine=f"{tmp_path / 'counting.py'}:Counting",
    )  # fmt: skip
    results = ExecutorBenchmark(args).run()
    assert results.missing == ()
    assert {len(cell.process_times_s) for cell in cells_of(results)} == {2}
    names = [one.name for one in counted.iterdir()]
    loaded = [re.fullmatch(r"loaded-(\d+)-by-(\d+)-(.*)", name) for name in names if name.startswith("loaded")]
    forks = {one[1]: (one[3], one[2]) for one in loaded if one}
    # Two models of four cells in two processes each; no two processes of a cell come from the same one.
    assert len(forks) == len(loaded) == 16
    shapes = ["[1, 8]", "[1, 16]", "[2, 8]", "[2, 16]"]
    parents = sorted({parent for _, parent in forks.values()})
    assert Counter(forks.values()) == {(shape, parent): 2 for shape in shapes for parent in parents}
    # One for each of a cell's processes, and one for what is not measured.
    imported = {name.removeprefix("imported-") for name in names if name.startswith("imported")} - forks.keys()
    assert (len(parents), len(imported)) == (2, 3)
    assert imported >= set(parents)
    assert not any(Path(f"/proc/{one}").exists() for one in [*imported, *forks])


def cells_of(results: BenchmarkOutput) -> list[Measured]:
    found = results.inference_summary.values()
    return [cell for of in found for row in of["result"].values() for cell in row.values()]


def test_the_processes_of_pytorch_are_forked_from_those_that_have_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [str(berts.fp32()), str(berts.int8())]
    # Python runs this file whenever an interpreter starts; a fork does not.
    code = "import os, pathlib; pathlib.Path(os.environ['COUNTED'], str(os.getpid())).touch()"
    (tmp_path / "sitecustomize.py").write_text(code)
    counted = tmp_path / "counted"
    counted.mkdir()
    monkeypatch.setenv("COUNTED", str(counted))
    before = [one for one in [os.environ.get("PYTHONPATH")] if one]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *before]))
    args = PyTorchBenchmarkArguments(
        models=models, batch_sizes=[1], sequence_lengths=[8, 16], training=True, repeat=1, time_s=0.1
    )
    results = PyTorchBenchmark(args).run()
    assert [cell.check.status for cell in cells_of(results) if cell.check] == 4 * ["match"]
    # Each of the four inferences is checked with a reference, and two cells are trained: forks of one process on
    # the measured CPUs. Another one may say what PyTorch can do, unless an earlier test in this process has asked
    # it, and a third one confine the reading of models, unless it runs already.
    assert 1 <= len(list(counted.iterdir())) <= 3


def test_a_configuration_of_another_model_is_refused() -> None:
    model = str(berts.onnx_files()[0])
    args = ExecutorBenchmarkArguments(models=[model], batch_sizes=[1], sequence_lengths=[8], **SHORT)
    other = transformers.BertConfig()
    (missing,) = ExecutorBenchmark(args, configs=[other]).run().missing
    assert missing.reason == (
        "Its BertConfig is another model's: vocab_size is 30522, but the model's table has 1000 rows."
    )


def test_the_tables_have_the_layout_of_the_originals() -> None:
    fp32 = "distilbert-base-uncased-finetuned-sst-2-english"
    int8 = "Intel/distilbert-base-uncased-finetuned-sst-2-english-int8-static"
    times = {fp32: [0.017, 0.021, 0.029], int8: [0.01, 0.013, 0.017]}
    table = {
        name: {"bs": [1], "ss": [32, 64, 128], "result": {1: dict(zip((32, 64, 128), values, strict=True))}}
        for name, values in times.items()
    }
    rule = 80 * "-"
    assert [report.banner("INFERENCE - SPEED - RESULT"), *report.cells(table, "Time in s")] == [
        "\n====================       INFERENCE - SPEED - RESULT       ====================",
        rule,
        "          Model Name             Batch Size     Seq Length     Time in s   ",
        rule,
        "distilbert-base-uncased-finetu       1               32            0.017     ",
        "distilbert-base-uncased-finetu       1               64            0.021     ",
        "distilbert-base-uncased-finetu       1              128            0.029     ",
        "Intel/distilbert-base-uncased-       1               32             0.01     ",
        "Intel/distilbert-base-uncased-       1               64            0.013     ",
        "Intel/distilbert-base-uncased-       1              128            0.017     ",
        rule,
    ]
    assert [report.banner("INFERENCE - MODEL SIZE - RESULT"), *report.sizes({fp32: 255.45, int8: 65.0262})] == [
        "\n====================    INFERENCE - MODEL SIZE - RESULT     ====================",
        rule,
        "                         Model Name                         Model Size in MB",
        rule,
        "      distilbert-base-uncased-finetuned-sst-2-english             255.45    ",
        "     Intel/distilbert-base-uncased-finetuned-sst-2-engl           65.026    ",
        rule,
    ]
    assert list(report.sizes({"fp32.onnx": 255.466, "int8.onnx": 132.53}))[3:5] == [
        "                         fp32.onnx                               255.466    ",
        "                         int8.onnx                                132.53    ",
    ]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a/very/long/name-fp32", "a/very/long/name-int8"], ["…ong/name-fp32", "…ong/name-int8"]),
        (["one-model-of-many", "another-model"], ["one-model-of-m", "another-model"]),
        (["x" * 20 + "same-long-ends", "y" * 20 + "same-long-ends"], ["x" * 14, "y" * 14]),
        (
            ["a common beginning/A/a common end", "a common beginning/B/a common end"],
            ["a common beg…1", "a common beg…2"],
        ),
        (["same begins it", "same begins it and goes on"], ["same begins it", "…t and goes on"]),
    ],
)
def test_names_are_shortened_so_that_no_two_look_the_same(names: list[str], short: list[str]) -> None:
    assert list(report.shortened(names, 14).values()) == short


def test_wrong_outputs_and_noise_are_told_under_the_tables() -> None:
    wrong = Finding("output-mismatch", {"error": 0.5, "output": "logits"})
    noisy = [Finding("waited-for-cpu", {"share": one, "touched": 1, "windows": 2}) for one in (0.1, 0.3)]
    cells = {8: Measured(time_s=0.1, findings=(wrong, noisy[0])), 16: Measured(time_s=0.1, findings=(noisy[1],))}
    summary = {"m": {"bs": [1], "ss": [8, 16], "result": {1: cells}}}
    output = BenchmarkOutput({}, {}, {}, {}, summary, {}, {"m": 1.0}, ())
    first, second = report.notes(output)
    assert first.startswith("NOTE: m at 1 × 8: the outputs are WRONG (error 0.5 in 'logits')")
    assert second.startswith("NOTE: m: threads waited 30 % of the time for a CPU")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "models must be a list with something in it"),
        ({"models": "bert"}, "models must be a list"),
        ({"models": ["a", "a"]}, "models names a twice"),
        ({"models": ["a"], "batch_size": [1]}, "has no argument 'batch_size'. Did you mean 'batch_sizes'"),
        ({"models": ["a"], "no_memory": True}, "has no argument 'no_memory'. Write memory=False"),
        ({"models": ["a"], "batch_sizes": [0]}, "batch_sizes must be whole numbers of 1 or more, not 0"),
        ({"models": ["a"], "sequence_lengths": [8, 8]}, "sequence_lengths has a number twice"),
        ({"models": ["a"], "cuda": True}, "cuda=True is not possible: inferlab measures on the CPU"),
        ({"models": ["a"], "inference": False}, "inference and training are both False"),
        ({"models": ["a"], "repeat": 0}, "repeat must be a whole number of 1 or more"),
        ({"models": ["a"], "torchscript": True, "engine_options": {"mode": "eager"}}, "say the same thing"),
        ({"models": [torch.nn.Linear(1, 1)], "torchscript": True}, "torchscript=True does not go with the Linear"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        PyTorchBenchmarkArguments(**given)


def test_the_executor_is_only_for_inference() -> None:
    with pytest.raises(BadInput, match="ExecutorBenchmark is only used for inference"):
        ExecutorBenchmarkArguments(models=["a.onnx"], training=True)


def test_the_defaults_are_those_of_hugging_face() -> None:
    args = PyTorchBenchmarkArguments(models=["a"])
    assert (args.batch_sizes, args.sequence_lengths, args.repeat) == ([8], [8, 32, 128, 512], 3)
    assert (args.inference, args.speed, args.memory, args.multi_process) == (True, True, True, True)
    assert not any((args.training, args.save_to_csv, args.env_print, args.log_print, args.only_pretrain_model))
    assert re.fullmatch(r"inference_time_\d+\.csv", args.inference_time_csv_file)


def test_a_folder_for_files_that_is_not_there_is_refused_before_measuring(tmp_path: Path) -> None:
    file = str(tmp_path / "not there" / "times.csv")
    args = PyTorchBenchmarkArguments(models=["a"], save_to_csv=True, inference_time_csv_file=file)
    with pytest.raises(BadInput, match="of inference_time_csv_file does not exist"):
        PyTorchBenchmark(args).run()


def test_every_argument_is_documented_and_no_other() -> None:
    (section,) = re.findall(r"^## Arguments\n(.*?)^## ", DOCS, re.M | re.S)
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    real = PyTorchBenchmarkArguments.__dataclass_fields__.keys() | ExecutorBenchmarkArguments.__dataclass_fields__
    assert documented == real


def test_what_hugging_face_scripts_read_and_set_is_there() -> None:
    arguments = PyTorchBenchmarkArguments(
        models=["a", "b"], batch_sizes=[1], fp16_opt_level="O1", torch_xla_tpu_print_metrics=False
    )
    assert arguments.model_names == ["a", "b"]
    assert (arguments.is_gpu, arguments.n_gpu, arguments.device, arguments.device_idx) == (False, 0, "cpu", 0)
    assert arguments.do_multi_processing is True
    told = json.loads(arguments.to_json_string())
    assert (told["models"], told["batch_sizes"], told["fp16_opt_level"]) == (["a", "b"], [1], "O1")
    with pytest.raises(BadInput, match="fp16_opt_level='O2' is not possible"):
        PyTorchBenchmarkArguments(models=["a"], fp16_opt_level="O2")
    with pytest.raises(BadInput, match="torch_xla_tpu_print_metrics=True is not possible"):
        PyTorchBenchmarkArguments(models=["a"], torch_xla_tpu_print_metrics=True)


@pytest.mark.parametrize(("value", "said"), [(True, "Write inference=False."), (False, "Write inference=True.")])
def test_an_old_argument_is_answered_with_what_it_meant(value: bool, said: str) -> None:
    with pytest.raises(BadInput, match=f"has no argument 'no_inference'. {said}"):
        PyTorchBenchmarkArguments(models=["a"], no_inference=value)  # type: ignore[call-arg]
