from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.transform.patterns import in_blocks, in_groups, mask, parse_groups
from inferlab.transform.prune import ProductRows, prune
from tests.helpers.networks import Array, a_graph, random, saved, weights_of


@st.composite
def matrices(draw: st.DrawFn) -> Array:
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 23))
    numbers = draw(st.lists(st.integers(-9, 9), min_size=rows * columns, max_size=rows * columns))
    return np.array(numbers, np.float32).reshape(rows, columns)


def test_two_of_every_four_become_zero_the_smallest_and_of_equal_ones_the_first() -> None:
    rows = np.array([[4, -1, 2, -3, 1, 1, -1, 1], [0, 0, 0, 0, 8, 7, 6, -5]], np.float32)
    assert in_groups(rows, 2, 4).tolist() == [
        [False, True, True, False, True, True, False, False],
        [True, True, False, False, False, False, True, True],
    ]


def test_a_rest_that_is_shorter_than_a_group_loses_its_share_rounded_down() -> None:
    assert in_groups(np.array([[4, 3, 2, 1, 1, 2, 3]], np.float32), 2, 4).tolist() == [
        [False, False, True, True, True, False, False]
    ]
    assert in_groups(np.array([[4, 3, 2, 1, 1]], np.float32), 2, 4)[:, 4:].tolist() == [[False]]


@given(matrices(), st.integers(1, 7), st.integers(1, 7))
def test_every_group_has_exactly_n_zeros_and_keeps_its_largest(rows: Array, zeros: int, more: int) -> None:
    group = zeros + more
    chosen = in_groups(rows, zeros, group)
    for row, picked in zip(np.abs(rows), chosen, strict=True):
        for start in range(0, len(row), group):
            size = len(row[start : start + group])
            here = picked[start : start + group]
            assert here.sum() == (zeros if size == group else size * zeros // group)
            gone, kept = row[start : start + group][here], row[start : start + group][~here]
            assert not len(gone) or not len(kept) or gone.max() <= kept.min()


def test_blocks_of_four_go_by_their_mean_square_and_a_rest_is_a_smaller_block() -> None:
    rows = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 3, 0], [5, 0, 0, 0, 0, 0, 0, 1, 1, 1]], np.float32)
    # Mean squares: 1, 4, 4.5 and 6.25, 0.25, 1.
    assert in_blocks(rows, 0.4).tolist() == [[True] * 4 + [False] * 6, [False] * 4 + [True] * 4 + [False] * 2]
    assert in_blocks(rows, 0.5).tolist() == [[True] * 4 + [False] * 6, [False] * 4 + [True] * 6]
    assert not in_blocks(rows, 0).any()
    assert in_blocks(rows, 1).all()


@given(matrices(), st.floats(0, 1))
def test_blocks_are_whole_meet_the_level_within_half_a_block_and_the_largest_stay(
    rows: Array, level: float
) -> None:
    chosen = in_blocks(rows, level)
    assert abs(chosen.sum() - rows.size * level) <= 2
    energies: dict[bool, list[float]] = {True: [], False: []}
    for row, picked in zip(rows.astype(float), chosen, strict=True):
        for start in range(0, len(row), 4):
            here = picked[start : start + 4]
            assert here.all() or not here.any()
            energies[bool(here[0])].append(float(np.square(row[start : start + 4]).mean()))
    assert not energies[True] or not energies[False] or max(energies[True]) <= min(energies[False])


def test_bits_of_bfloat16_are_ordered_as_the_numbers_that_they_stand_for() -> None:
    rows = np.array([[4, -1, 2, -3, 1, 1, -8, 1]], np.float32)
    bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
    for level, pattern in ((0.5, "2:4"), (0.5, "block4"), (0.3, "unstructured")):
        assert mask(bits, level, pattern).tolist() == mask(rows, level, pattern).tolist()


def test_patterns_are_read_and_others_refused() -> None:
    assert parse_groups("2:4") == (2, 4)
    assert parse_groups("7:8") == (7, 8)
    assert parse_groups("unstructured") is None
    for wrong in ("4:2", "0:4", "4:4", "1:1000"):
        with pytest.raises(BadInput, match=f"{wrong} cannot be"):
            parse_groups(wrong)
    with pytest.raises(BadInput, match="'blocks' is not a pruning pattern"):
        parse_groups("blocks")


def rows_of(proto: ModelProto, name: str) -> list[list[int]]:
    stored = next(one for one in proto.graph.initializer if one.name == name)
    found: list[list[int]] = ProductRows(proto).rows(name, tuple(stored.dims)).tolist()
    return found


def product(kind: str, *dims: int, **attributes: Any) -> ModelProto:
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    return a_graph([node], {"w": random(*dims)}, ["n"])


def test_a_row_is_what_one_output_is_a_sum_over_with_the_input_channels_innermost() -> None:
    assert rows_of(product("Gemm", 2, 3, transB=1), "w") == [[0, 1, 2], [3, 4, 5]]
    assert rows_of(product("Gemm", 3, 2), "w") == [[0, 2, 4], [1, 3, 5]]
    assert rows_of(product("MatMul", 3, 2), "w") == [[0, 2, 4], [1, 3, 5]]
    # Weights of a convolution lie as [out, in, height, width].
    assert rows_of(product("Conv", 2, 2, 1, 2), "w") == [[0, 2, 1, 3], [4, 6, 5, 7]]
    # Those of a transposed one as [in, out, height, width].
    assert rows_of(product("ConvTranspose", 2, 2, 1, 1), "w") == [[0, 2], [1, 3]]
    assert rows_of(product("ConvTranspose", 4, 1, 1, 1, group=2), "w") == [[0, 1], [2, 3]]


def test_a_weight_is_found_in_its_product_behind_nodes_that_turn_it() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("Identity", ["t"], ["i"]),
        helper.make_node("MatMul", ["x", "i"], ["y"]),
    ]
    assert rows_of(a_graph(nodes, {"w": random(2, 3)}, ["n", 3]), "w") == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("pattern", ["2:4", "1:4", "block4"])
def test_a_model_is_pruned_by_a_pattern(tmp_path: Path, pattern: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    model = saved(a_graph(nodes, {"w": random(4, 8, 3, 3), "v": random(16, 6)}, [1, 8, 4, 4]), tmp_path / "a")
    level = 0.25 if pattern == "1:4" else 0.5
    pruned = weights_of(prune(model, {"w": level, "v": level}, tmp_path / "b", pattern))
    rows = np.moveaxis(pruned["w"], 1, -1).reshape(-1, 4)
    columns = pruned["v"].T.reshape(-1, 4)
    for groups in (rows == 0, columns == 0):
        if pattern == "block4":
            assert set(groups.sum(axis=1).tolist()) == {0, 4}
            assert groups.mean() == 0.5
        else:
            assert set(groups.sum(axis=1).tolist()) == {4 * level}


def test_a_level_of_zero_leaves_a_layer_out_and_one_that_contradicts_the_pattern_is_refused(
    tmp_path: Path,
) -> None:
    model = saved(product("MatMul", 8, 4), tmp_path / "a")
    assert prune(model, {"w": 0}, tmp_path / "b", "2:4").zero_fraction == 0
    with pytest.raises(BadInput, match=r"'w' cannot be pruned to 0\.8 with the pattern 2:4, which makes 0\.5"):
        prune(model, {"w": 0.8}, tmp_path / "c", "2:4")
    assert prune(model, {"w": 0.33}, tmp_path / "d", "1:3").zero_fraction == 8 / 32


def test_a_weight_of_no_product_has_no_rows(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = saved(a_graph(nodes, {"w": random(4, 8)}, [4, 8]), tmp_path / "a")
    with pytest.raises(BadInput, match="'w' goes into no convolution"):
        prune(model, {"w": 0.5}, tmp_path / "b", "2:4")
    assert not (tmp_path / "b").exists()
    assert prune(model, {"w": 0.5}, tmp_path / "b").zero_fraction == 0.5


def test_numbers_read_back_are_those_that_were_kept(tmp_path: Path) -> None:
    model = saved(product("MatMul", 8, 4), tmp_path / "a")
    before, after = weights_of(model)["w"], weights_of(prune(model, {"w": 0.5}, tmp_path / "b", "2:4"))["w"]
    np.testing.assert_array_equal(after[after != 0], before[after != 0])
    assert numpy_helper.from_array(after).dims == [8, 4]
