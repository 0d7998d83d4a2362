from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.errors import BadInput
from inferlab.model.shapes import ResolvedShapes, candidates, open_inputs, parse_shapes, resolve
from inferlab.records import Dim, Shape, TensorSpec


def spec(name: str, *dims: Dim) -> TensorSpec:
    return TensorSpec(name, "float32", dims)


BERT = tuple(spec(name, "batch", "sequence") for name in ("input_ids", "attention_mask", "token_type_ids"))
IMAGE = (spec("x", 1, 3, 224, 224),)


# What the user writes


def test_shapes_by_position_are_read_as_deepsparse_reads_them() -> None:
    inputs = [spec(f"input{index}", None, None, None) for index in range(3)]
    assert parse_shapes("[1,2,3],[4,5,6],[7,8,9]", inputs) == {
        "input0": (1, 2, 3), "input1": (4, 5, 6), "input2": (7, 8, 9),
    }  # fmt: skip


def test_fewer_shapes_than_inputs_stand_for_the_first_ones() -> None:
    assert parse_shapes("[1,384]", BERT) == {"input_ids": (1, 384)}


def test_shapes_by_name_may_have_odd_names_and_spaces() -> None:
    inputs = [spec("onnx::Reshape_0", None), spec("a/b.c:0", None, None), spec("my input")]
    text = " a/b.c:0 = [ 1 , 384 ] , onnx::Reshape_0=[7],my input=[]"
    assert parse_shapes(text, inputs) == {"a/b.c:0": (1, 384), "onnx::Reshape_0": (7,), "my input": ()}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read"),
        ("1,384", "cannot be read"),
        ("[1,384", "cannot be read"),
        ("[1,384]]", "cannot be read"),
        ("[1,384],", "cannot be read"),
        ("[1,384] [1,384]", "cannot be read"),
        ("input_ids=1,384", "cannot be read"),
        ("=[1,384]", "cannot be read"),
        ("[1,x]", "'x' in the input shapes '\\[1,x\\]' is not a whole number"),
        ("[1,,2]", "'' in the input shapes"),
        ("[1,2.5]", "'2.5' in the input shapes"),
        ("[1,٣]", "is not a whole number"),
        ("[1,99999999999999999999]", "is not a whole number"),
        ("[0,384]", "at least 1, not 0"),
        ("[1,-384]", "at least 1, not -384"),
        ("[1,2],[1,2],[1,2],[1,2]", "4 input shapes were given, but the model has 3 inputs: 'input_ids'"),
        ("ids=[1,2]", "no input 'ids'. Its inputs are: 'input_ids', 'attention_mask', 'token_type_ids'"),
        ("[1,2,3]", "has 3 dimensions, but the input 'input_ids' has 2: \\[batch, sequence\\]"),
        ("[]", "has 0 dimensions"),
        ("[1,2],input_ids=[1,2]", "mix names and positions"),
        ("input_ids=[1,2],input_ids=[1,3]", "give an input twice"),
    ],
)
def test_shapes_that_cannot_be_used_get_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        parse_shapes(text, BERT)


def test_a_fixed_dimension_other_than_the_batch_cannot_be_changed() -> None:
    assert parse_shapes("[4,3,224,224]", IMAGE) == {"x": (4, 3, 224, 224)}
    with pytest.raises(BadInput, match="fixes its dimensions as \\[1, 3, 224, 224\\], so dimension 2 must be 224"):
        parse_shapes("[1,3,192,224]", IMAGE)


def test_a_fixed_first_dimension_that_is_no_batch_cannot_be_changed() -> None:
    with pytest.raises(BadInput, match="dimension 0 must be 2"):
        parse_shapes("state=[3,1,128]", [spec("x", None, 576), spec("state", 2, None, 128)])


names = st.text("abcXYZ_0.:/", min_size=1, max_size=8)
shapes = st.lists(st.integers(1, 10**6), max_size=5).map(tuple)


@given(st.dictionaries(names, shapes, min_size=1, max_size=5), st.booleans(), st.sampled_from([",", " , "]))
def test_what_is_written_is_read(wanted: dict[str, Shape], named: bool, comma: str) -> None:
    inputs = [TensorSpec(name, "float32", (None,) * len(shape)) for name, shape in wanted.items()]
    texts = ["[" + comma.join(map(str, shape)) + "]" for shape in wanted.values()]
    text = comma.join(f"{name}={one}" if named else one for name, one in zip(wanted, texts, strict=True))
    assert parse_shapes(text, inputs) == wanted


# What the inputs get


def test_symbolic_dimensions_get_batch_and_sequence() -> None:
    assert resolve(BERT, None, None, {}) == ResolvedShapes(
        dict.fromkeys([one.name for one in BERT], (1, 128)), 1, None
    )
    assert set(resolve(BERT, 4, 384, {}).shapes.values()) == {(4, 384)}


def test_a_given_shape_sets_dimensions_of_the_same_name_elsewhere() -> None:
    resolved = resolve(BERT, None, None, {"input_ids": (2, 384)})
    assert resolved.batch_size == 2
    assert set(resolved.shapes.values()) == {(2, 384)}


def test_given_shapes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match="'sequence' is 384, but 128 in the input 'attention_mask'"):
        resolve(BERT, None, None, {"input_ids": (1, 384), "attention_mask": (1, 128)})


def test_unnamed_dimensions_are_independent() -> None:
    inputs = [spec("a", None, None), spec("b", None, None)]
    assert resolve(inputs, None, None, {"a": (1, 5)}).shapes == {"a": (1, 5), "b": (1, 128)}
    assert resolve(inputs, None, None, {"a": (1, 5), "b": (7, 6)}).shapes == {"a": (1, 5), "b": (7, 6)}


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((), ()),
        (("N",), (2,)),
        (("unk__583", 32), (2, 32)),
        ((None, 3, None, None), (2, 3, 224, 224)),
        (("N", "C", "H", "W"), (2, 3, 224, 224)),
        ((None, None, None, 3), (2, 224, 224, 3)),
        (("N", 12, "past_sequence_length", 64), (2, 12, 128, 64)),
        ((None, None, 80), (2, 128, 80)),
        (("seq_len", "batch_size", 512), (128, 2, 512)),
        (("time", "batch", 80), (128, 2, 80)),
        (("batch", "past_sequence_length + sequence_length"), (2, 256)),
        (("batch", "past_sequence_length + 1"), (2, 129)),
        (("2*batch", 8), (4, 8)),
    ],
)
def test_unknown_dimensions_are_filled_by_name_and_place(dims: tuple[Dim, ...], shape: Shape) -> None:
    inputs = [spec("leading", "batch", 4), spec("x", *dims)]
    assert resolve(inputs, 2, None, {}).shapes["x"] == shape


def test_a_recurrent_state_has_its_batch_in_the_middle() -> None:
    silero = [spec("input", None, None), spec("state", 2, None, 128), spec("sr")]
    expected = {"input": (3, 512), "state": (2, 3, 128), "sr": ()}
    assert resolve(silero, 3, 512, {}) == ResolvedShapes(expected, 3, None)
    assert resolve(silero[::-1], 3, 512, {}).shapes == expected


def test_a_lone_sequence_with_a_fixed_batch_is_no_state() -> None:
    assert resolve([spec("mel", 1, None, 80)], None, None, {}).shapes == {"mel": (1, 128, 80)}


def test_a_cache_and_what_is_new_add_up() -> None:
    inputs = [
        spec("input_ids", "batch", "sequence_length"),
        spec("attention_mask", "batch", "past_sequence_length + sequence_length"),
        spec("past", "batch", 12, "past_sequence_length", 64),
        spec("total", "batch", "total_sequence_length"),
    ]
    given_shapes = {"input_ids": (1, 1), "attention_mask": (1, 33)}
    assert resolve(inputs, None, None, given_shapes).shapes == {
        "input_ids": (1, 1), "attention_mask": (1, 33), "past": (1, 12, 32, 64), "total": (1, 33),
    }  # fmt: skip
    with pytest.raises(BadInput, match="is 17 by the other inputs, but 33 in the input 'attention_mask'"):
        resolve(inputs, None, None, {**given_shapes, "past": (1, 12, 16, 64)})


def test_the_batch_of_a_model_that_fixes_it_is_kept_unless_another_is_asked_for() -> None:
    fixed = [spec("x", 2, 3, 8, 8), spec("mask", 2, 8), spec("scale", 5)]
    kept = {"x": (2, 3, 8, 8), "mask": (2, 8), "scale": (5,)}
    changed = {"x": (6, 3, 8, 8), "mask": (6, 8), "scale": (5,)}
    assert resolve(fixed, None, None, {}) == ResolvedShapes(kept, 2, None)
    assert resolve(fixed, 2, None, {}) == ResolvedShapes(kept, 2, None)
    assert resolve(fixed, 6, None, {}) == ResolvedShapes(changed, 6, (2, 6))
    assert resolve(fixed, None, None, {"x": (6, 3, 8, 8)}) == ResolvedShapes(changed, 6, (2, 6))
    with pytest.raises(BadInput, match="'mask' has a batch of 7, but 'x' has a batch of 6"):
        resolve(fixed, None, None, {"x": (6, 3, 8, 8), "mask": (7, 8)})


def test_a_batch_size_and_a_shape_that_differ_are_refused_with_both() -> None:
    with pytest.raises(BadInput, match="'input_ids' has a batch of 1, but the batch size is 8"):
        resolve(BERT, 8, None, {"input_ids": (1, 384)})


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(size: int) -> None:
    with pytest.raises(BadInput, match=f"batch size must be at least 1, not {size}"):
        resolve(BERT, size, None, {})
    with pytest.raises(BadInput, match=f"sequence length must be at least 1, not {size}"):
        resolve(BERT, None, size, {})


def test_a_batch_size_for_a_model_without_a_batch_is_refused() -> None:
    inputs = [spec("input", "sequence_length", 576), spec("h", 1, 1, 128)]
    assert resolve(inputs, 1, None, {}) == ResolvedShapes({"input": (128, 576), "h": (1, 1, 128)}, 1, None)
    with pytest.raises(BadInput, match="no batch dimension, so a batch size of 8"):
        resolve(inputs, 8, None, {})


# What a model leaves open


def tried(*inputs: TensorSpec) -> list[tuple[int, ...]]:
    """The shapes of the first input that are tried, in their order."""
    return [candidate[inputs[0].name] for candidate in candidates(inputs)]


@pytest.mark.parametrize(
    ("inputs", "first"),
    [
        (
            [spec("x", "batch", 3, None, None)],
            [(1, 3, 224, 224), (1, 3, 48, 320), (1, 3, 32, 320), (1, 3, 640, 640)],
        ),
        ([spec("x", "batch", 3, 48, "width")], [(1, 3, 48, 320), (1, 3, 48, 256)]),
        ([spec("x", None, None, None, 1)], [(1, 224, 224, 1), (1, 48, 320, 1)]),
        ([spec("input", "batch", "sequence")], [(1, 128), (1, 16000), (1, 512), (1, 256)]),
        ([spec("waveform", "batch", "n")], [(1, 16000), (1, 512), (1, 128)]),
        ([spec("mel", "batch", 80, "frames")], [(1, 80, 128), (1, 80, 16000)]),
    ],
)
def test_usual_shapes_are_tried_in_the_order_of_what_is_likely(
    inputs: list[TensorSpec], first: list[tuple[int, ...]]
) -> None:
    assert tried(*inputs)[: len(first)] == first


def test_a_channel_that_is_open_is_tried_as_colour_first() -> None:
    shapes = tried(spec("x", "batch", None, 32, 32))
    assert [shape[1] for shape in shapes] == [3, 1, 4]


def test_a_state_of_a_fixed_batch_of_one_is_no_batch_of_its_layers() -> None:
    inputs = [spec("input", "batch_size", 3, "frames", 160), spec("h0", 4, 1, 64)]
    assert resolve(inputs, None, None, {}).shapes == {"input": (1, 3, 224, 160), "h0": (4, 1, 64)}


def test_texts_batches_and_caches_are_not_open() -> None:
    ids = TensorSpec("ids", "int64", ("batch", "sequence"))
    cache = spec("past.0", "batch", 4, "past_sequence_length", 64)
    assert open_inputs([ids, cache, spec("x", "batch", 3, 32, 32)]) == []


def test_a_shape_that_was_seen_to_run_is_taken_unless_another_is_given() -> None:
    inputs = [replace(spec("x", "batch", "samples"), fitted=(1, 512)), spec("state", 2, "batch", 128)]
    assert resolve(inputs, 4, None, {}) == ResolvedShapes({"x": (4, 512), "state": (2, 4, 128)}, 4, None, ("x",))
    assert resolve(inputs, None, 300, {}) == ResolvedShapes({"x": (1, 300), "state": (2, 1, 128)}, 1, None)
    assert resolve(inputs, None, None, {"x": (1, 200)}) == ResolvedShapes(
        {"x": (1, 200), "state": (2, 1, 128)}, 1, None
    )


def test_an_input_of_unknown_rank_needs_a_shape() -> None:
    inputs = [TensorSpec("x", "float32", None)]
    assert resolve(inputs, None, None, {"x": (4, 5)}).shapes == {"x": (4, 5)}
    with pytest.raises(BadInput, match="-shapes"):
        resolve(inputs, None, None, {})


def test_a_model_without_inputs_has_no_shapes() -> None:
    assert resolve([], None, None, {}) == ResolvedShapes({}, 1, None)


dims = st.one_of(st.none(), st.integers(1, 9), st.sampled_from(["batch", "seq", "N", "T", "seq + 1", "p + seq"]))


@given(st.lists(st.lists(dims, max_size=5), max_size=4), st.one_of(st.none(), st.integers(1, 5)))
def test_every_input_gets_a_whole_shape_that_keeps_what_is_fixed(
    inputs: list[list[Dim]], batch: int | None
) -> None:
    specs = [spec(f"x{index}", *one) for index, one in enumerate(inputs)]
    try:
        resolved = resolve(specs, batch, 7, {})
    except BadInput as error:
        if "has no effect" not in str(error):
            assert "no batch dimension" in str(error)
            return
        resolved = resolve(specs, batch, None, {})
    for one in specs:
        shape = resolved.shapes[one.name]
        assert len(shape) == len(one.dims or ())
        assert all(size >= 1 for size in shape)
        for axis, (dim, size) in enumerate(zip(one.dims or (), shape, strict=True)):
            assert not isinstance(dim, int) or size == dim or (axis == 0 and resolved.rewrite_batch == (dim, size))


def test_a_sequence_length_that_changes_nothing_is_refused() -> None:
    fixed = [TensorSpec("x", "float32", ("batch", 4))]
    with pytest.raises(BadInput, match="sequence length 64 has no effect"):
        resolve(fixed, None, 64, {})
    assert resolve([TensorSpec("x", "int64", ("batch", "seq"))], None, 64, {}).shapes == {"x": (1, 64)}


def test_an_input_of_unknown_rank_takes_its_batch_from_the_given_shape() -> None:
    resolved = resolve([TensorSpec("x", "float32", None)], None, None, {"x": (3, 64)})
    assert (resolved.batch_size, resolved.shapes, resolved.rewrite_batch) == (3, {"x": (3, 64)}, None)
