from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.model.inputs import digest, load_inputs, make_inputs
from inferlab.records import Dim, TensorSpec


def spec(name: str, dtype: str, *dims: Dim, below: int | None = None, known: tuple[int, ...] = ()) -> TensorSpec:
    return TensorSpec(name, dtype, dims, below, known)


def make(one: TensorSpec, shape: tuple[int, ...] = (50, 50), seed: int = 0) -> Any:
    return make_inputs([one], {one.name: shape}, seed)[one.name]


# Made inputs


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    specs = [spec("a", "float32", "n"), spec("b", "float32", "n"), spec("c", "int64", "n", below=1000)]
    sizes = {"a": (9,), "b": (9,), "c": (9,)}
    first, again, other = (make_inputs(specs, sizes, seed) for seed in (3, 3, 4))
    assert digest(first) == digest(again) != digest(other)
    assert not np.array_equal(first["a"], first["b"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_lie_between_zero_and_one_in_their_own_type(dtype: str) -> None:
    made = make(spec("x", dtype), (300, 300))
    assert made.dtype == dtype
    assert made.flags.c_contiguous
    assert 0 <= made.min() < 0.01
    assert 0.99 < made.max() < 1


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "bool"])
def test_masks_are_ones(dtype: str) -> None:
    made = make(spec("attention_mask", dtype, below=1))
    assert made.dtype == dtype
    assert made.all()
    assert made.max() == 1


def test_indices_use_all_rows_of_their_table_and_no_more() -> None:
    assert set(make(spec("input_ids", "int64", below=30)).ravel()) == set(range(30))


def test_integers_without_a_bound_are_small_and_bytes_are_bytes() -> None:
    assert set(make(spec("x", "int32")).ravel()) == {0, 1}
    assert set(make(spec("x", "uint8")).ravel()) == set(range(256))


def test_a_bound_above_the_types_largest_value_does_no_harm() -> None:
    assert make(spec("x", "int8", below=1000)).max() <= 127


def test_token_types_are_zero_unless_their_table_is_known() -> None:
    assert not make(spec("token_type_ids", "int64")).any()
    assert set(make(spec("segment_ids", "int64", below=2)).ravel()) == {0, 1}


def test_a_switch_takes_the_largest_value_that_the_graph_knows() -> None:
    rate = spec("sr", "int64", known=(8000, 16000))
    assert make(rate, ()) == 16000
    assert make(rate, ()).shape == ()
    assert make(rate, (2,)).tolist() == [16000, 16000]
    assert make(rate, (2, 2)).max() < 2
    assert make(spec("sr", "int64", below=9000, known=(8000, 16000)), ()) == 8000


def test_scalars_stay_scalars() -> None:
    assert make(spec("x", "float32"), ()).shape == ()


def test_bools_are_true_and_strings_are_text() -> None:
    assert make(spec("x", "bool")).all()
    assert make(spec("x", "string"), (2,)).tolist() == ["inferlab", "inferlab"]


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "float8e4m3fn", "int4"])
def test_types_that_cannot_be_made_are_refused(dtype: str) -> None:
    with pytest.raises(BadInput, match=f"'x' has the type {dtype}"):
        make(spec("x", dtype))


def test_inputs_larger_than_memory_and_negative_seeds_are_refused() -> None:
    with pytest.raises(BadInput, match="takes 4e\\+09 GB, more than the machine's"):
        make(spec("x", "float32"), (10**9, 10**9))
    with pytest.raises(BadInput, match="seed must be 0 or more"):
        make(spec("x", "float32"), seed=-1)


# The user's own data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.npz"


X = spec("x", "float32", "batch", 2)


def test_all_rows_are_the_batch_and_labels_are_left_out(file: Path) -> None:
    np.savez(file, x=np.arange(6.0).reshape(3, 2), labels=np.arange(3))
    first, second, batch = load_inputs(file, [X], None)
    assert (batch, list(first)) == (3, ["x"])
    assert first["x"].dtype == np.float32
    assert first["x"].tolist() == second["x"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_second_batch_is_the_next_rows_where_there_are_enough(file: Path) -> None:
    np.savez(file, x=np.arange(10.0).reshape(5, 2))
    first, second, batch = load_inputs(file, [X], 2)
    assert (batch, first["x"].tolist(), second["x"].tolist()) == (2, [[0, 1], [2, 3]], [[4, 5], [6, 7]])
    first, second, batch = load_inputs(str(file), [X], 3)
    assert first["x"].tolist() == second["x"].tolist()


def test_a_fixed_batch_is_taken_from_the_front(file: Path) -> None:
    np.savez(file, x=np.zeros((5, 2), "f"))
    first, _, batch = load_inputs(file, [spec("x", "float32", 1, 2)], None)
    assert (first["x"].shape, batch) == ((1, 2), 1)


def test_states_are_cut_along_their_own_batch_and_scalars_stay_whole(file: Path) -> None:
    specs = [X, spec("state", "float32", 2, None, 4), spec("sr", "int64")]
    state = np.arange(2 * 3 * 4, dtype="f").reshape(2, 3, 4)
    np.savez(file, x=np.zeros((3, 2), "f"), state=state, sr=np.int64(16000))
    first, second, _ = load_inputs(file, specs, 1)
    assert np.array_equal(first["state"], state[:, :1])
    assert np.array_equal(second["state"], state[:, 1:2])
    assert first["state"].flags.c_contiguous
    assert first["sr"] == second["sr"] == 16000


@pytest.mark.parametrize(
    ("arrays", "batch", "sentence"),
    [
        ({"y": np.zeros((1, 2))}, None, "it lacks 'x'; the model has no input 'y'. The inputs are: x"),
        ({"x": np.zeros((1, 3))}, None, "shape \\[1, 3\\], which does not fit the model's \\[batch, 2\\]"),
        ({"x": np.zeros(2)}, None, "shape \\[2\\]"),
        ({"x": np.zeros((3, 2))}, 4, "has 3 rows, too few for a batch of 4"),
        ({"x": np.zeros((0, 2))}, None, "has no rows"),
        ({"x": np.zeros((1, 2), complex)}, None, "is complex128, which cannot become the model's float32"),
        ({"x": np.array([["a", "b"]])}, None, "cannot become the model's float32"),
        ({"x": np.array([[None, None]], object)}, None, "cannot be read as an .npz file"),
    ],
)
def test_data_that_does_not_fit_is_refused(file: Path, arrays: Any, batch: int | None, sentence: str) -> None:
    np.savez(file, **arrays)
    with pytest.raises(BadInput, match=sentence):
        load_inputs(file, [X], batch)


def test_integers_are_narrowed_only_where_nothing_is_lost(file: Path) -> None:
    narrow = [spec("x", "int32", "batch")]
    np.savez(file, x=np.array([1, 2]))
    assert load_inputs(file, narrow, None)[0]["x"].dtype == np.int32
    np.savez(file, x=np.array([1, 2**40]))
    with pytest.raises(BadInput, match="without loss"):
        load_inputs(file, narrow, None)


def test_inputs_with_different_numbers_of_rows_are_refused(file: Path) -> None:
    np.savez(file, a=np.zeros((2, 1)), b=np.zeros((3, 1)))
    with pytest.raises(BadInput, match="'a' 2, 'b' 3"):
        load_inputs(file, [spec("a", "float32", "batch", 1), spec("b", "float32", "batch", 1)], None)


def test_a_file_that_is_missing_cut_off_or_no_npz_gets_a_sentence(file: Path) -> None:
    with pytest.raises(BadInput, match="There is no file"):
        load_inputs(file, [X], None)
    np.savez_compressed(file, x=np.random.default_rng(0).random((40, 2)))
    content = file.read_bytes()
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(BadInput, match="cannot be read as an \\.npz file"):
            load_inputs(file, [X], None)
    damaged = bytearray(content)
    damaged[200] ^= 255
    file.write_bytes(damaged)
    with pytest.raises(BadInput, match="cannot be read as an \\.npz file"):
        load_inputs(file, [X], None)
    file.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(BadInput, match="it is none"):
        load_inputs(file, [X], None)
    np.save(file.with_suffix(".npy"), np.zeros((1, 2)))
    with pytest.raises(BadInput, match="one array without a name"):
        load_inputs(file.with_suffix(".npy"), [X], None)


def test_the_digest_knows_names_types_shapes_and_values() -> None:
    base = {"x": np.arange(4)}
    others: list[dict[str, Any]] = [
        {"y": np.arange(4)},
        {"x": np.arange(4.0)},
        {"x": np.arange(4).reshape(2, 2)},
        {"x": np.arange(1, 5)},
    ]
    assert len({digest(base), *(digest(other) for other in others)}) == 5
    assert len(digest(base)) == 16


def test_data_for_an_input_of_unknown_rank_has_its_batch_in_front(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(6, dtype=np.float32).reshape(3, 2))
    first, second, batch = load_inputs(path, [TensorSpec("x", "float32", None)], 1)
    assert (batch, first["x"].tolist(), second["x"].tolist()) == (1, [[0.0, 1.0]], [[2.0, 3.0]])
