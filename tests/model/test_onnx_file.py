from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.model.onnx_file import read_onnx, rewrite
from inferlab.model.onnx_graph import external_files
from inferlab.records import Model

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, kind: int = F, dims: Sequence[int | str | None] | None = (1, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def weight(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def proto(
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[onnx.ValueInfoProto] = (),
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", list(inputs) or [value("x")], list(outputs) or [value("y")], list(weights)
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **more)


def relu() -> ModelProto:
    return proto([helper.make_node("Relu", ["x"], ["y"])])


@pytest.fixture
def read(tmp_path: Path) -> Callable[[ModelProto], Model]:
    def save_and_read(model: ModelProto) -> Model:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return read_onnx(path, "as written")

    return save_and_read


Read = Callable[[ModelProto], Model]


# What a model is


def test_a_model_is_read_with_its_source_path_digest_and_size(read: Read, tmp_path: Path) -> None:
    model = read(relu())
    content = (tmp_path / "model.onnx").read_bytes()
    assert (model.kind, model.source, model.path) == ("onnx", "as written", str(tmp_path / "model.onnx"))
    assert (model.digest, model.size_bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert (model.opset, model.parameters, model.zero_fraction) == (17, 0, None)
    assert (model.precision, model.quantization, model.random) == ("FP32", "", False)


def test_dimensions_are_sizes_names_or_unknowns(read: Read) -> None:
    x = value("x", dims=(0, -1, "?", "", None, "batch", "past + 1", 7))
    assert read(proto([helper.make_node("Relu", ["x"], ["y"])], [x])).inputs[0].dims == (
        None, None, None, None, None, "batch", "past + 1", 7,
    )  # fmt: skip


def test_a_scalar_has_no_dimensions_and_a_missing_shape_is_none(read: Read) -> None:
    model = read(proto([helper.make_node("Add", ["a", "b"], ["y"])], [value("a", dims=()), value("b", dims=None)]))
    assert [spec.dims for spec in model.inputs] == [(), None]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("FLOAT", "float32"), ("DOUBLE", "float64"), ("FLOAT16", "float16"), ("BFLOAT16", "bfloat16"),
     ("INT64", "int64"), ("UINT8", "uint8"), ("BOOL", "bool"), ("STRING", "string"), ("COMPLEX64", "complex64")],
)  # fmt: skip
def test_element_types_have_numpys_names(read: Read, kind: str, name: str) -> None:
    model = proto([helper.make_node("Identity", ["x"], ["y"])], [value("x", TensorProto.DataType.Value(kind))])
    assert read(model).inputs[0].dtype == name


def test_initializers_that_are_listed_as_inputs_are_no_inputs(read: Read) -> None:
    model = proto(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x"), value("w", dims=(4, 4))],
        weights=[weight("w", np.ones((4, 4), "f"))],
    )
    assert [spec.name for spec in read(model).inputs] == ["x"]


def test_an_input_that_is_no_tensor_is_refused(read: Read) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", F, (1, 4))
    model = proto([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], [sequence])
    with pytest.raises(BadInput, match="'s' is of the kind sequence; only tensors"):
        read(model)


def test_an_output_that_is_no_tensor_is_kept(read: Read) -> None:
    sequence = helper.make_tensor_sequence_value_info("y", F, None)
    model = read(proto([helper.make_node("SequenceConstruct", ["x"], ["y"])], outputs=[sequence]))
    assert (model.outputs[0].dtype, model.outputs[0].dims) == ("sequence", None)


def test_parameters_are_counted_in_initializers_constants_sparse_tensors_and_subgraphs(read: Read) -> None:
    inner = weight("inner", np.ones((2, 5), "f"))
    branch = helper.make_graph([helper.make_node("Identity", ["inner"], ["o"])], "b", [], [value("o")], [inner])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse", F, [2], [1.0, 2.0]), helper.make_tensor("at", I64, [2], [0, 5]), [3, 4]
    )
    model = proto(
        [
            helper.make_node("Constant", [], ["c"], value=weight("", np.ones(7, "f"))),
            helper.make_node("Constant", [], ["scalar"], value_float=1.0),
            helper.make_node("Reshape", ["x", "shape"], ["r"]),
            helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
        ],
        weights=[weight("w", np.ones((3, 3), "f")), weight("shape", np.array([1, 4])), weight("flag", True)],
    )
    model.graph.sparse_initializer.append(sparse)
    assert read(model).parameters == 9 + 7 + 2 * 10 + 12
    assert read(model).zero_fraction == 10 / (9 + 20 + 12)


def test_random_operators_and_training_dropout_make_a_model_random(read: Read) -> None:
    assert read(proto([helper.make_node("RandomNormalLike", ["x"], ["y"])])).random
    for training, expected in ((True, True), (False, False)):
        dropout = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])
        constants = [weight("ratio", np.float32(0.5)), weight("training", np.array(training))]
        assert read(proto([dropout], weights=constants)).random is expected
    assert not read(proto([helper.make_node("Dropout", ["x"], ["y"])])).random


# Zeros


def zeros_of(read: Read, tensor: TensorProto, *extra: TensorProto, node: NodeProto | None = None) -> float | None:
    return read(proto([node or helper.make_node("Relu", ["x"], ["y"])], weights=[tensor, *extra])).zero_fraction


def test_vectors_do_not_count_as_sparse(read: Read) -> None:
    assert zeros_of(read, weight("w", np.eye(4, dtype="f")), weight("bias", np.zeros(100, "f"))) == 0.75


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, F, TensorProto.DOUBLE])
@pytest.mark.parametrize("raw", [False, True])
def test_zeros_are_counted_in_every_float_type(read: Read, kind: int, raw: bool) -> None:
    numbers = [0.0, -0.0, 1.5, -2.0]
    tensor = helper.make_tensor("w", kind, [2, 2], numbers)
    if raw:
        bits = "<f2" if kind == TensorProto.FLOAT16 else "<f8" if kind == TensorProto.DOUBLE else "<f4"
        data = np.array(numbers, bits)
        content = data.view("<u2")[1::2].tobytes() if kind == TensorProto.BFLOAT16 else data.tobytes()
        tensor = TensorProto(name="w", data_type=kind, dims=[2, 2], raw_data=content)
    assert zeros_of(read, tensor) == 0.5


def test_a_quantised_weight_is_zero_where_it_equals_its_zero_point(read: Read) -> None:
    node = helper.make_node("MatMulInteger", ["x", "w", "", "zp"], ["y"])
    w = weight("w", np.array([[128, 0], [128, 128]], np.uint8))
    assert zeros_of(read, w, weight("zp", np.uint8(128)), node=node) == 0.75
    assert zeros_of(read, w, weight("zp", np.array([128, 0], np.uint8)), node=node) == 0.75
    along_rows = helper.make_node("DequantizeLinear", ["w", "s", "zp"], ["y"], axis=0)
    assert zeros_of(read, w, weight("zp", np.array([0, 128], np.uint8)), node=along_rows) == 0.75


def test_four_bit_weights_are_counted_one_by_one(read: Read) -> None:
    packed = TensorProto(name="w", data_type=TensorProto.INT4, dims=[1, 3], raw_data=bytes([0x10, 0x00]))
    model = read(proto([helper.make_node("DequantizeLinear", ["w", "s"], ["y"])], weights=[packed]))
    assert (model.parameters, model.zero_fraction, model.precision) == (3, 2 / 3, "INT4")


# Precision


def quantized(*operators: str) -> list[NodeProto]:
    inputs = {"QLinearMatMul": ["x", "s", "z", "w", "s", "z", "s", "z"]}
    return [
        helper.make_node(name, inputs.get(name, ["x", "w"]), [f"y{index}"]) for index, name in enumerate(operators)
    ]


@pytest.mark.parametrize(
    ("operators", "dtype", "precision", "quantization"),
    [
        (["MatMul"], "float32", "FP32", ""),
        (["MatMul"], "float16", "FP16", ""),
        (["MatMul"], "float64", "FP64", ""),
        (["QuantizeLinear", "DequantizeLinear", "MatMul"], "int8", "INT8", "QDQ"),
        (["QuantizeLinear", "DequantizeLinear", "MatMul"], "float32", "INT8", "QDQ"),
        (["QuantizeLinear", "QLinearMatMul", "DequantizeLinear"], "int8", "INT8", "QOperator"),
        (["DynamicQuantizeLinear", "MatMulInteger", "Cast"], "uint8", "INT8", "integer operators"),
        (["DequantizeLinear", "MatMul"], "int8", "INT8", "int8 weights"),
        (["Cast", "MatMul"], "uint8", "INT8", "int8 weights"),
    ],
)
def test_precision_follows_from_operators_and_weights(
    read: Read, operators: list[str], dtype: str, precision: str, quantization: str
) -> None:
    model = read(proto(quantized(*operators), weights=[weight("w", np.ones((4, 4), dtype))]))
    assert (model.precision, model.quantization) == (precision, quantization)


def test_weights_packed_for_matmulnbits_are_int4_and_counted_unpacked(read: Read) -> None:
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", bits=4, K=32, N=8)
    model = read(proto([node], weights=[weight("w", np.zeros((8, 1, 16), np.uint8))]))
    assert (model.precision, model.parameters, model.zero_fraction) == ("INT4", 256, None)


# Bounds of integer inputs


def ids(name: str = "x") -> onnx.ValueInfoProto:
    return value(name, I64, ("batch", "sequence"))


def table(rows: int, name: str = "table") -> TensorProto:
    return weight(name, np.ones((rows, 2), "f"))


def limits(read: Read, nodes: Sequence[NodeProto], weights: Sequence[TensorProto], **more: Any) -> Any:
    spec = read(proto(nodes, [ids()], weights=weights, **more)).inputs[0]
    return spec.below, spec.known_values


def test_an_index_stays_below_the_rows_of_its_smallest_table(read: Read) -> None:
    nodes = [
        helper.make_node("Gather", ["words", "x"], ["a"]),
        helper.make_node("Gather", ["other", "x"], ["y"], axis=1),
    ]
    assert limits(read, nodes, [table(100, "words"), weight("other", np.ones((200, 30), "f"))]) == (30, ())


def test_an_index_is_followed_through_operators_that_keep_its_values(read: Read) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.INT32),
        helper.make_node("Unsqueeze", ["a", "axes"], ["b"]),
        helper.make_node("Concat", ["b", "b"], ["c"], axis=0),
        helper.make_node("Clip", ["c"], ["d"]),
        helper.make_node("DequantizeLinear", ["table", "scale"], ["floats"]),
        helper.make_node("Gather", ["floats", "d"], ["y"]),
    ]
    weights = [weight("table", np.ones((50, 2), np.int8)), weight("scale", np.float32(1)), weight("axes", [0])]
    assert limits(read, nodes, weights) == (50, ())


def test_an_offset_lowers_the_bound(read: Read) -> None:
    nodes = [helper.make_node("Add", ["two", "x"], ["a"]), helper.make_node("Gather", ["table", "a"], ["y"])]
    assert limits(read, nodes, [table(50), weight("two", np.array(2))]) == (48, ())


def test_a_cast_to_bool_ends_the_search(read: Read) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.BOOL),
        helper.make_node("Cast", ["a"], ["b"], to=I64),
        helper.make_node("Gather", ["table", "b"], ["y"]),
    ]
    assert limits(read, nodes, [table(50)]) == (None, ())


def branch(name: str, nodes: list[NodeProto], output: str, inputs: Sequence[str] = ()) -> GraphProto:
    return helper.make_graph(nodes, name, [value(one, I64, None) for one in inputs], [value(output, dims=None)])


def test_an_index_is_followed_into_branches_and_out_of_them(read: Read) -> None:
    then = branch("then", [helper.make_node("Gather", ["table", "x"], ["t"])], "t")
    other = branch("else", [helper.make_node("Identity", ["x"], ["e"])], "e")
    nodes = [
        helper.make_node("If", ["flag"], ["out"], then_branch=then, else_branch=other),
        helper.make_node("Gather", ["small", "out"], ["y"]),
    ]
    flag = weight("flag", np.array(True))
    assert limits(read, nodes[:1], [table(40), flag]) == (40, ())
    assert limits(read, nodes, [table(40), table(30, "small"), flag]) == (30, ())


def test_an_index_is_followed_into_a_loop(read: Read) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["still"]), helper.make_node("Identity", ["carried"], ["next"]),
         helper.make_node("Gather", ["table", "carried"], ["row"])],
        "body",
        [value("i", I64, ()), value("go", TensorProto.BOOL, ()), value("carried", I64, None)],
        [value("still", TensorProto.BOOL, ()), value("next", I64, None), value("row", dims=None)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["rounds", "", "x"], ["last", "y"], body=body)
    assert limits(read, [loop], [table(40), weight("rounds", np.array(3))]) == (40, ())


def test_an_index_is_followed_into_a_function_of_the_model(read: Read) -> None:
    function = helper.make_function(
        "ours", "Embed", ["where", "what"], ["out"],
        [helper.make_node("Gather", ["what", "where"], ["out"])], [helper.make_opsetid("", 17)],
    )  # fmt: skip
    call = helper.make_node("Embed", ["x", "table"], ["y"], domain="ours")
    assert limits(read, [call], [table(40)], functions=[function]) == (40, ())


def test_a_one_hot_bounds_its_indices(read: Read) -> None:
    nodes = [helper.make_node("OneHot", ["x", "depth", "values"], ["y"])]
    assert limits(read, nodes, [weight("depth", np.array(9)), weight("values", np.array([0, 1]))]) == (9, ())


def test_the_fused_embedding_bounds_words_and_segments(read: Read) -> None:
    node = helper.make_node(
        "EmbedLayerNormalization", ["x", "s", "words", "positions", "segments", "g", "b"], ["y", "m"],
        domain="com.microsoft",
    )  # fmt: skip
    tables = [table(70, "words"), table(512, "positions"), table(2, "segments")]
    model = read(proto([node], [ids("x"), ids("s")], weights=tables))
    assert [spec.below for spec in model.inputs] == [70, 2]


def test_constants_that_an_input_is_compared_with_are_known_values(read: Read) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_int=16000),
        helper.make_node("Equal", ["x", "c"], ["a"]),
        helper.make_node("Equal", ["low", "x"], ["y"]),
    ]
    assert limits(read, nodes, [weight("low", np.array(8000))]) == (None, (8000, 16000))


def test_a_one_hot_written_as_a_comparison_bounds_its_input(read: Read) -> None:
    assert limits(read, [helper.make_node("Equal", ["x", "all"], ["y"])], [weight("all", np.arange(257))]) == (
        257,
        (),
    )


# Data in other files


def with_data(folder: Path, location: str = "weights.bin", offset: int = 0, length: int = 64) -> Path:
    tensor = TensorProto(name="w", data_type=F, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=text)
    path = folder / "model.onnx"
    model = proto([helper.make_node("MatMul", ["x", "w"], ["y"])], weights=[tensor])
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_counts_in_size_zeros_and_digest(tmp_path: Path) -> None:
    path, data = with_data(tmp_path, offset=4), tmp_path / "weights.bin"
    data.write_bytes(b"\1" * 4 + np.eye(4, dtype="<f4").tobytes())
    model = read_onnx(path, "")
    both = path.read_bytes() + data.read_bytes()
    assert (model.size_bytes, model.digest) == (len(both), hashlib.sha256(both).hexdigest())
    assert (model.parameters, model.zero_fraction) == (16, 0.75)
    assert external_files(onnx.load(path, load_external_data=False), tmp_path) == [data]


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'weights.bin', which is missing from .*Put it beside"):
        read_onnx(with_data(tmp_path), "")


def test_external_data_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = with_data(tmp_path, offset=8)
    (tmp_path / "weights.bin").write_bytes(bytes(70))
    with pytest.raises(
        BadInput, match=r"'weights\.bin' is cut off: it has 70 bytes, but the weight 'w' ends at 72"
    ):
        read_onnx(path, "")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "C:\\secret.bin", "link"]
)
def test_external_data_outside_the_folder_is_not_read(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(BadInput, match="outside its folder"):
        read_onnx(with_data(folder, location), "")


def test_a_linked_model_may_have_its_linked_data_beside_the_linked_file(tmp_path: Path) -> None:
    """Hugging Face's cache: snapshots/model.onnx and its data are links into blobs/."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    with_data(blobs).rename(blobs / "aaa")
    (blobs / "bbb").write_bytes(bytes(64))
    (snapshot / "model.onnx").symlink_to(blobs / "aaa")
    (snapshot / "weights.bin").symlink_to(blobs / "bbb")
    assert read_onnx(snapshot / "model.onnx", "").zero_fraction == 1.0


def test_a_model_above_two_gigabytes_is_read_through_its_data_file(tmp_path: Path) -> None:
    rows = 2_200_000_000 // 4000
    tensor = TensorProto(name="w", data_type=F, dims=[rows, 1000], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(rows * 4000)  # a file with a hole takes no room on the disk
    path = tmp_path / "model.onnx"
    path.write_bytes(
        proto([helper.make_node("Gather", ["w", "x"], ["y"])], [ids()], weights=[tensor]).SerializeToString()
    )
    model = read_onnx(path, "")
    assert (model.parameters, model.zero_fraction, model.inputs[0].below) == (rows * 1000, 1.0, rows)
    assert model.size_bytes > 2_200_000_000


# Files that are no models


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"hello\n", "is not an ONNX model"),
        (b"<!DOCTYPE html><html></html>", "is not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        (b"\x08\x08\x12\x07", "is cut off or damaged"),
        (b"\x08\x08", "is cut off or damaged"),
    ],
)
def test_bytes_that_are_no_model_get_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=sentence):
        read_onnx(path, "")


def test_a_missing_file_and_a_folder_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no file"):
        read_onnx(tmp_path / "none.onnx", "")
    with pytest.raises(BadInput, match="is not a file"):
        read_onnx(tmp_path, "")


def rich() -> bytes:
    model = proto(
        [helper.make_node("Gather", ["table", "x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])],
        [ids()],
        weights=[table(8), weight("w", np.ones((2, 4), "f"))],
    )
    del model.opset_import[1]  # without its last field a model with two would still be whole
    return bytes(model.SerializeToString())


def test_a_file_cut_off_anywhere_gets_a_sentence(tmp_path: Path) -> None:
    content, path = rich(), tmp_path / "model.onnx"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(BadInput):
            read_onnx(path, "")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(rich()) - 1), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_damaged_file_is_read_or_refused_but_never_breaks_us(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(rich())
    for place, byte in changes:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(content)
    try:
        read_onnx(path, "")
    except BadInput as error:
        assert str(path) in str(error) or "The model" in str(error)


# Changed copies


def test_a_rewritten_batch_changes_inputs_and_outputs_but_no_weights(read: Read, tmp_path: Path) -> None:
    original = proto(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "z"], ["y"])],
        [value("x", dims=(2, 4)), value("z", dims=(1, 4)), value("w", dims=(2, 4))],
        [value("y", dims=(2, 4))],
        [weight("w", np.ones((2, 4), "f"))],
    )
    original.graph.value_info.append(value("a", dims=(2, 4)))
    model = read(original)
    before = Path(model.path).read_bytes()
    copy = rewrite(model, tmp_path / "copy", (2, 5), None, copy_data=False)
    changed = read_onnx(copy, "")
    assert [spec.dims for spec in (*changed.inputs, *changed.outputs)] == [(5, 4), (1, 4), (5, 4)]
    assert not onnx.load(copy).graph.value_info
    assert onnx.load(copy).graph.input[2].type.tensor_type.shape.dim[0].dim_value == 2
    assert Path(model.path).read_bytes() == before


def test_a_rewritten_batch_changes_reshapes_that_fix_it(read: Read, tmp_path: Path) -> None:
    import onnxruntime

    original = proto(
        [
            helper.make_node("Reshape", ["x", "flat"], ["a"]),
            helper.make_node("Reshape", ["b", "shape"], ["c"]),
            helper.make_node("Add", ["a", "c"], ["d"]),
            helper.make_node("Constant", [], ["last"], value=weight("last", np.array([1, 2, 3]))),
            helper.make_node("Reshape", ["d", "last"], ["y"]),
        ],
        [value("x", dims=(1, 2, 3))],
        [value("y", dims=(1, 2, 3))],
        [
            weight("flat", np.array([1, -1])),
            weight("b", np.arange(6, dtype="f")),
            # That of a weight is not the batch's.
            weight("shape", np.array([1, 6])),
        ],
    )
    model = read(original)
    copy = rewrite(model, tmp_path / "copy", (1, 4), None, copy_data=False)
    items = np.random.default_rng(0).random((4, 2, 3), np.float32)
    (changed,) = onnxruntime.InferenceSession(copy).run(None, {"x": items})
    session = onnxruntime.InferenceSession(model.path)
    one_by_one = [session.run(None, {"x": items[number : number + 1]})[0] for number in range(4)]
    np.testing.assert_array_equal(changed, np.concatenate(one_by_one))


@pytest.mark.parametrize(("newest", "expected"), [(7, 7), (8, 8), (10, 8), (None, 8)])
def test_the_ir_version_is_only_ever_lowered(
    read: Read, tmp_path: Path, newest: int | None, expected: int
) -> None:
    copy = rewrite(read(relu()), tmp_path / "copy", None, newest, copy_data=True)
    assert onnx.load(copy).ir_version == expected


@pytest.mark.parametrize("copied", [False, True])
def test_data_files_stand_beside_the_copy(tmp_path: Path, copied: bool) -> None:
    data = tmp_path / "sub" / "weights.bin"
    data.parent.mkdir()
    data.write_bytes(bytes(64))
    model = read_onnx(with_data(tmp_path, "sub/weights.bin"), "")
    for _ in range(2):  # a second copy replaces the first
        copy = rewrite(model, tmp_path / "copy", None, 7, copied)
    placed = copy.parent / "sub" / "weights.bin"
    assert placed.read_bytes() == data.read_bytes()
    assert placed.samefile(data) is not copied
