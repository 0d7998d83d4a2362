"""`inferlab.benchmark`, `.compare` and `.plot`, as a user of Python calls them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest

import inferlab
from inferlab import BadInput, BenchmarkResult
from inferlab.cli.benchmark import command as benchmark_command
from inferlab.cli.compare import command as compare_command
from inferlab.model import reading
from inferlab.options import check_keywords
from inferlab.options.plan import PLAN, Count, make_plan
from inferlab.records import Plan
from inferlab.store import Document
from inferlab.store.formats import content_of, record_of
from tests.helpers.answers import a_capacity
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome

#: Scripted, so that a busy machine does not matter.
QUICK: dict[str, Any] = {"engine": "fake", "scenario": "sync", "num_cores": 1, "time": 0.2, "warmup_time": 0}
DOCUMENTATION = (Path(__file__).parent.parent / "docs/api.md").read_text()
#: Options of the command line that are something else in Python, as docs/api.md says.
ELSEWHERE = {"export_path", "strict", "baseline", "no_save", "quiet", "dry_run", "resume", "plan", "yes", "layers"}


@pytest.fixture(scope="module")
def heard() -> list[tuple[float | None, str]]:
    return []


@pytest.fixture(scope="module")
def sweep(heard: list[tuple[float | None, str]], tmp_path_factory: pytest.TempPathFactory) -> BenchmarkResult:
    return inferlab.benchmark(
        "demo:digits",
        **QUICK,
        batch_size=[1, 2],
        processes=2,
        engine_option={"latency_us": 1000, "spin": False},
        store=tmp_path_factory.mktemp("stores") / "lab.db",
        progress=lambda fraction, text: heard.append((fraction, text)),
    )


def test_lists_make_a_sweep_that_is_measured(sweep: BenchmarkResult) -> None:
    assert [outcome.cell.batch_size for outcome in sweep.record.outcomes] == [1, 2]
    assert sweep.status == "done"
    assert [len(outcome.runs) for outcome in sweep.record.outcomes] == [2, 2]
    assert all(one.median_ms is not None and one.median_ms >= 1 for one in sweep)
    assert sweep.record.plan.engine_options == (("latency_us", "1000"), ("spin", "0"))


def test_progress_hears_what_the_log_would_say_and_how_far_it_is(
    sweep: BenchmarkResult, heard: list[tuple[float | None, str]]
) -> None:
    lines = [text for fraction, text in heard if fraction is None]
    assert any(line.startswith("Cell 1 of 2: fake, sync, 1 core, batch ") for line in lines)
    assert any(re.match(r" +\d+(\.\d+)? items/s, median ", line) for line in lines)
    assert all(0 <= fraction <= 1 for fraction, _ in heard if fraction is not None)


def test_what_was_saved_can_be_plotted_by_its_id(sweep: BenchmarkResult, tmp_path: Path) -> None:
    with inferlab.open_store(str(tmp_path / "lab.db")) as store:
        result = inferlab.benchmark("demo:digits", **QUICK, processes=1, store=store)
        figure = inferlab.plot(result.id, store=store)
        assert figure.layout.title.text.startswith("Latency of every batch over time")
        assert len(figure.data[0].x) == sum(
            len(s) for w in result.record.outcomes[0].runs[0].windows for s in w.streams
        )
        store.add_document("capacity", "a capacity", content_of(a_capacity()))
        (other,) = [one.id for one in store.history() if one.kind == "capacity"]
        with pytest.raises(
            BadInput, match=f"{other} is a capacity; benchmarks, generations, comparisons and searches have charts"
        ):
            inferlab.plot(other, store=store)


def test_without_a_store_nothing_is_saved(own_store: str) -> None:
    with inferlab.open_store() as store:
        before = len(store.history(limit=1000))
        result = inferlab.benchmark("demo:digits", **QUICK, processes=1, store=False)
        assert (result.id, len(store.history(limit=1000))) == ("", before)


def test_a_cell_that_fails_is_a_value_and_no_exception() -> None:
    result = inferlab.benchmark("demo:digits", **QUICK, engine_option={"fail": "abort"}, store=False)
    assert result.status == "failed" and result.median_ms is None
    assert "SIGABRT" in result.failures[0]


def test_two_arms_are_compared_in_turns_and_saved(tmp_path: Path) -> None:
    said: list[str] = []
    with inferlab.open_store(str(tmp_path / "lab.db")) as store:
        found = inferlab.compare(
            "demo:digits",
            engine="fake",
            scenario="sync",
            a_options={"engine_option": {"latency_us": 5000}},
            b_options={"engine_option": {"latency_us": 15000}},
            engine_option={"spin": 0},
            time=3,
            store=store,
            progress=lambda _, text: said.append(text),
        )
        (entry,) = store.history()
        document = store.get(entry.id)
        assert isinstance(document, Document)
        (stored,) = record_of(document).results  # type: ignore[union-attr]
        assert stored == found.record
        assert inferlab.plot(entry.id, store=store).data[0].y == inferlab.plot(found).data[0].y
    assert found.record.labels == (
        "engine_options=latency_us=5000 spin=0",
        "engine_options=latency_us=15000 spin=0",
    )
    assert isinstance(found, inferlab.ComparisonResult)
    assert 2 < found.ratio < 4 and found.record.pairs
    assert any(text.startswith("Pair 1: B takes ") for text in said)


def test_results_that_were_measured_before_are_compared_as_objects_files_and_ids(
    sweep: BenchmarkResult, tmp_path: Path
) -> None:
    sweep.save(tmp_path / "sweep.json")
    found = inferlab.compare(sweep[0], tmp_path / "sweep.json#2", store=False)
    assert isinstance(found, inferlab.ComparisonResult)
    assert found.record.pairs == () and found.record.times_ms[1] == pytest.approx(
        [median / 2 for median in _medians(sweep[1])]
    )
    assert found.record.labels[0] == "demo:digits, fake, sync, 1 core, batch 1"


def _medians(result: BenchmarkResult) -> list[float]:
    return [float(one) for one in result.rows()[0]["process_medians_ms"].split(";")]


def test_several_results_go_into_one_chart(sweep: BenchmarkResult, tmp_path: Path) -> None:
    sweep.save(tmp_path / "sweep.csv")
    other = a_sweep(an_outcome(engine="other", batch_size=1), an_outcome(engine="other", batch_size=2))
    figure = inferlab.plot(tmp_path / "sweep.csv", BenchmarkResult(other))
    assert [list(line.x) for line in figure.data] == [[1, 2], [1, 2]]
    assert len({line.name for line in figure.data}) == 2


def test_every_option_of_the_command_line_is_an_argument_or_documented_as_something_else() -> None:
    for command, function in ((benchmark_command, inferlab.benchmark), (compare_command, inferlab.compare)):
        flags = {
            max(param.opts, key=lambda flag: (flag.startswith("--"), -len(flag))).lstrip("-").replace("-", "_")
            for param in command.params
            if param.param_type_name == "option"
        }
        arguments = set(inspect.signature(function).parameters)
        expected = {"no_verify": "verify", "a": "a_options", "b": "b_options"}
        missing = {expected.get(flag, flag) for flag in flags} - arguments - ELSEWHERE - {"fail_if"}
        assert not missing
        assert all(f"`{name}`" in DOCUMENTATION for name in arguments - {"model", "a", "b", "unknown"})


def test_the_defaults_are_those_of_a_plan_and_of_the_command_line() -> None:
    assert make_plan("m", check_keywords("benchmark", PLAN, _defaults(inferlab.benchmark))) == Plan("m")
    for function, command in ((inferlab.benchmark, benchmark_command), (inferlab.compare, compare_command)):
        for name in ("time", "timeout", "seed"):
            (option,) = [param for param in command.params if f"--{name}" in param.opts]
            assert _defaults(function)[name] == option.default


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def refused() -> dict[str, Callable[[], Any]]:
    measure, compare = inferlab.benchmark, inferlab.compare
    saved = BenchmarkResult(a_sweep(an_outcome()))
    return {
        "benchmark() has no argument 'batchsize'. Did you mean 'batch_size'?": lambda: measure("m", batchsize=1),  # type: ignore[call-arg]
        "benchmark() has no argument 'shade'. It takes engine,": lambda: measure("m", shade=1),  # type: ignore[call-arg]
        "compare() has no argument 'processes'": lambda: compare("m", processes=5),
        "A model is a path, a URL or a name such as demo:resnet50, not a dict.": lambda: measure({}),
        "batch_size is a whole number, not '8' (str).": lambda: measure("m", batch_size="8"),  # type: ignore[arg-type]
        "batch_size is a whole number, not True (bool).": lambda: measure("m", batch_size=[1, True]),
        "batch_size is an empty list": lambda: measure("m", batch_size=[]),
        "time is a number, not '10' (str).": lambda: measure("m", time="10"),  # type: ignore[arg-type]
        "verify is True or False, not 1 (int).": lambda: measure("m", verify=1),  # type: ignore[arg-type]
        "engine is a word, not 3 (int).": lambda: measure("m", engine=3),  # type: ignore[arg-type]
        "seed must be at least 0, not -1.": lambda: measure("m", seed=-1),
        "timeout must be more than 0, not 0.": lambda: measure("m", timeout=0),
        "engine_option is a dictionary such as": lambda: measure("m", engine_option="a=1"),  # type: ignore[arg-type]
        "engine_option['a'] is text or a number, not [] (list).": lambda: measure("m", engine_option={"a": []}),
        "progress is a function of a fraction and a text, not a str": lambda: measure("m", progress="yes"),  # type: ignore[arg-type]
        "store is a path, a URL, an open store, None or False, not a int": lambda: measure("m", store=3),  # type: ignore[arg-type]
        "no-such-model.onnx": lambda: measure("no-such-model.onnx", store=False),
        "'sideways' is not possible here": lambda: measure("demo:digits", scenario="sideways", store=False),
        "a_options is a dictionary such as": lambda: compare("m", a_options=[1]),  # type: ignore[arg-type]
        "b_options has no argument 'time'. It takes model,": lambda: compare("m", b_options={"time": 3}),
        "margin is a number": lambda: compare("m", margin="1%"),  # type: ignore[arg-type]
        "margin must lie between 0 and 100 %": lambda: compare("demo:digits", margin=2.0, store=False),
        "engine is a word, not 4 (int).": lambda: compare("m", engine=4, store=False),  # type: ignore[arg-type]
        "Two engines are compared, not 3": lambda: compare("m", engine=["a", "b", "c"], store=False),
        "is compared with another one, not with a model": lambda: compare(saved, "demo:digits", store=False),
        "Results that were measured before are compared as they are: leave out engine.": lambda: compare(
            saved, saved, engine="openvino", store=False
        ),
        "This result has 2 cells. Compare two of them": lambda: compare(
            BenchmarkResult(a_sweep(an_outcome(), an_outcome(batch_size=2))), saved, store=False
        ),
        "Nothing was named to plot": lambda: inferlab.plot(),
        "A int cannot be plotted": lambda: inferlab.plot(3),  # type: ignore[arg-type]
        "A comparison has a chart of its own": lambda: inferlab.plot(a_comparison(1.5), saved),
        "x and y cannot be chosen": lambda: inferlab.plot(a_comparison(1.5), x="num_cores"),
    }


@pytest.mark.parametrize("sentence", list(refused()))
def test_bad_input_gets_one_sentence(sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        refused()[sentence]()


def test_all_that_is_exported_is_there() -> None:
    assert set(dir(inferlab)) == set(inferlab.__all__)
    assert all(getattr(inferlab, name) is not None for name in inferlab.__all__)


@pytest.fixture(scope="module")
def a_net() -> Any:
    """A small perceptron as an onnx.ModelProto."""
    return onnx.load(reading.build_demo("mlp"))


def test_a_model_in_memory_is_measured_like_a_file(a_net: Any) -> None:
    result = inferlab.benchmark(
        a_net, engine="onnxruntime", scenario="sync", time=0.1, processes=1, num_cores=1, store=False
    )
    assert result.status == "done"
    assert result.outputs_match is True
    # The file was there only as long as it was needed.
    assert not Path(result.record.model.path).exists()


def test_shapes_and_inputs_are_lists_dictionaries_and_arrays(a_net: Any) -> None:
    (name,) = [one.name for one in a_net.graph.input]
    size = a_net.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    options: dict[str, Any] = {"scenario": "sync", "time": 0.1, "processes": 1, "num_cores": 1, "store": False}
    shapes: list[Any] = [[[2, size]], [2, size], {name: (2, size)}, f"[2,{size}]"]
    found = [inferlab.benchmark(a_net, input_shapes=shape, **options) for shape in shapes]
    assert {one.record.outcomes[0].cell.shapes for one in found} == {((name, (2, size)),)}
    rows = np.arange(3 * size, dtype=np.float32).reshape(3, size) / size
    given = inferlab.benchmark(a_net, input={name: rows}, **options)
    assert given.status == "done"
    assert given.record.outcomes[0].cell.batch_size == 3
    assert given.record.outcomes[0].cell.input_digest != found[0].record.outcomes[0].cell.input_digest


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"input_shapes": []}, "input_shapes is empty"),
        ({"input_shapes": [["a"]]}, "input_shapes is a whole number"),
        ({"input_shapes": {1: [2]}}, "or a dictionary such as"),
        ({"input_shapes": 3}, "or a dictionary such as"),
        ({"input": {"x": object()}}, r"input\['x'\] is not an array of numbers or text but a object"),
        ({"input": {3: [1.0]}}, "3 is not a name"),
    ],
)
def test_shapes_and_inputs_that_are_none_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        inferlab.benchmark("demo:mlp", store=False, **options)


def test_a_module_travels_as_a_graph_and_needs_example_inputs() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    options: dict[str, Any] = {"scenario": "sync", "time": 0.1, "processes": 1, "num_cores": 1, "store": False}
    result = inferlab.benchmark(module, engine="torch", input_shapes=[[2, 4]], **options)
    assert result.status == "done", result.failures
    assert result.record.model.kind == "torch-export"
    with pytest.raises(BadInput, match="A module needs example inputs: give input_shapes"):
        inferlab.benchmark(module, engine="torch", **options)

    class Branching(torch.nn.Module):  # type: ignore[misc,name-defined]
        """What no graph can hold: a branch by the values."""

        def forward(self, x: Any) -> Any:
            return x if float(x.sum()) > 0 else -x

    with pytest.raises(BadInput, match=r"torch\.export cannot export this Branching: "):
        inferlab.benchmark(Branching(), engine="torch", input_shapes=[[2, 4]], **options)


def test_bad_input_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="There is no built-in model"):
        inferlab.benchmark("demo:nothing", store=False)


@pytest.mark.parametrize(
    "name", ["benchmark", "compare", "profile", "optimize", "recommend", "capacity", "doctor"]
)
def test_help_explains_every_argument(name: str) -> None:
    function = getattr(inferlab, name)
    told = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert f"\n    {parameter.name}: " in told


def test_the_package_is_typed_and_max_is_a_number_of_cores() -> None:
    assert (Path(inferlab.__file__).parent / "py.typed").is_file()
    assert Count == int | Literal["max"] | None
    assert inspect.signature(inferlab.benchmark).parameters["num_cores"].annotation == PLAN["num_cores"].type
    assert inferlab.benchmark.__annotations__["given"] == "Unpack[BenchmarkKeywords]"


def test_a_capacity_has_its_rate(tmp_path: Path) -> None:
    """An engine that takes 5 ms keeps 1 ms at no rate, which is found out at once."""
    result = inferlab.capacity(
        *("demo:mlp", "p99<1ms"),
        engine="fake",
        engine_option={"latency_us": 5000},
        num_cores=1,
        time=3.0,
        store=False,
    )
    assert isinstance(result, inferlab.CapacityResult)
    assert (result.max_rate, result.interval) == (0.0, None)
    assert result.to_dict()["max_rate"] == 0.0
    assert result.rows() == result.to_dict()["curve"]
    result.save(tmp_path / "capacity.json")
    assert (tmp_path / "capacity.json").read_text() == result.to_json()
    assert str(result) == result.table()
    with pytest.raises(BadInput, match=r"capacity\(\) has no argument 'rates'"):
        inferlab.capacity("demo:mlp", "median<1s", rates=3, store=False)  # type: ignore[call-arg]


def test_a_recommendation_has_its_configuration_and_what_was_tried() -> None:
    result = inferlab.recommend(
        "demo:mlp", engine="onnxruntime", num_cores=1, batch_size=[1, 2], num_streams=1, time=2.0, store=False
    )
    assert isinstance(result, inferlab.RecommendationResult)
    assert result.recommended is not None
    assert result.recommended["engine"] == "onnxruntime"
    assert result.recommended["batch_size"] in (1, 2)
    assert "onnxruntime" in result.code
    assert {row["batch_size"] for row in result.rows()} <= {1, 2}


def test_the_doctor_says_what_disturbs() -> None:
    result = inferlab.doctor(measure=False)
    assert isinstance(result, inferlab.DoctorResult)
    assert result.fit is all(row["state"] != "warn" for row in result.rows())
    assert result.verdict in result.table()


def test_two_sweeps_are_compared_cell_by_cell(tmp_path: Path) -> None:
    def swept(latency_us: int, *batch_sizes: int) -> inferlab.BenchmarkResult:
        return inferlab.benchmark(
            "demo:digits",
            engine="fake",
            scenario="sync",
            batch_size=batch_sizes,
            num_cores=1,
            time=0.1,
            warmup_time=0,
            processes=2,
            store=False,
            engine_option={"latency_us": latency_us},
        )

    before, after = swept(1000, 1, 2), swept(5000, 1, 2, 4)
    after.save(tmp_path / "after.json")
    found = inferlab.compare_sweeps(before, tmp_path / "after.json", store=False)
    assert isinstance(found, inferlab.ComparisonSweepResult)
    assert [row["cell"] for row in found.rows()] == ["batch size 1", "batch size 2"]
    assert all(one.ratio > 1.5 for one in found) and found[-1].ratio == found.rows()[-1]["ratio"]
    assert [failure.message for failure in found.record.failures] != []
    assert len(found[:1]) == 1 and "B is" in str(found)
    with pytest.raises(BadInput, match="Two results that were measured before"):
        inferlab.compare_sweeps(before, "demo:digits", store=False)
