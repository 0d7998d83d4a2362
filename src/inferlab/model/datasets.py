"""What a model's outputs are judged on: sets of inputs, generated or the user's own, with or without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.child.scoring import IGNORED
from inferlab.errors import BadInput
from inferlab.model.inputs import array_names, make_inputs, read_arrays, read_data, take_rows
from inferlab.model.shapes import batch_axis, fixed_batch
from inferlab.records import Dim, Shape, TensorSpec
from inferlab.units import plural

Array = np.ndarray[Any, Any]

#: How many inputs are generated where the user has none.
ITEMS = 8
_ROWS_A_SET = 32


@dataclass(frozen=True, slots=True)
class Data:
    """Sets of inputs that a model accepts one after the other, and the labels of each set."""

    sets: tuple[Mapping[str, Array], ...]
    labels: tuple[Array, ...] | None
    #: How many items each set has.
    rows: tuple[int, ...]
    generated: bool

    @property
    def items(self) -> int:
        """How many items there are in all."""
        return sum(self.rows)


def generate_data(
    specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], items: int = ITEMS, seed: int = 0
) -> Data:
    """As many sets at these shapes as hold so many items; each set has a seed of its own."""
    sizes = [shapes[spec.name][axis] for spec in specs if (axis := batch_axis(spec, specs)) is not None]
    batch = sizes[0] if sizes else 1
    count = math.ceil(items / batch)
    sets = tuple(make_inputs(specs, shapes, seed + number) for number in range(count))
    return Data(sets, None, (batch,) * count, generated=True)


def load_data(
    path: str | Path, specs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch_size: int | None = None
) -> Data:
    """The user's .npz: all rows, in sets of `batch_size` or of the model's own; refused where anything is amiss.

    Rows that do not fill a last set are used if the model takes any batch size, and left out otherwise.
    """
    fixed, arrays, axes, rows = read_data(path, specs)
    labels = _labels(Path(path), {spec.name for spec in specs}, rows, outputs)
    if rows is None:
        return Data((arrays,), None if labels is None else (labels,), (1,), generated=False)
    own = fixed_batch(fixed)
    batch = own or batch_size or _even(rows)
    if rows < batch:
        raise BadInput(f"The data in {path} has {rows} rows, too few for a batch of {batch}. Give more of them.")
    used = rows // batch * batch if own else rows
    starts = range(0, used, batch)
    counts = tuple(min(batch, used - start) for start in starts)
    places = list(zip(starts, counts, strict=True))
    return Data(
        tuple(take_rows(arrays, axes, start, count) for start, count in places),
        None if labels is None else tuple(labels[start : start + count] for start, count in places),
        counts,
        generated=False,
    )


def _even(rows: int) -> int:
    """A size of sets that leaves no remainder, unless they would be much smaller for it."""
    fewest = math.ceil(rows / _ROWS_A_SET)
    count = next((count for count in range(fewest, 2 * fewest) if rows % count == 0), fewest)
    return math.ceil(rows / count)


def _labels(path: Path, inputs: set[str], rows: int | None, outputs: Sequence[TensorSpec]) -> Array | None:
    """The labels in the file, whole numbers, one for each row or for each of its tokens; None without them."""
    if "labels" not in array_names(path) or "labels" in inputs:
        return None
    try:
        labels = read_arrays(path, ["labels"])["labels"]
    except BadInput as error:
        raise BadInput(
            f"The labels in {path} cannot be read: {error.__cause__ or error}. Write them with numpy.savez."
        ) from error
    if labels.dtype.kind not in "iu":
        raise BadInput(
            f"The labels in {path} are {labels.dtype.name}. Give whole numbers: the classes, counted from 0."
        )
    if labels.ndim == 0 or (rows is not None and labels.shape[0] != rows):
        count = labels.shape[0] if labels.ndim else 1
        raise BadInput(
            f"The data in {path} has {plural(count, 'label')} for {plural(rows or 1, 'row')}. "
            "Give each row its label, in an array of as many."
        )
    labels = labels.astype(np.int64)
    counted = labels[labels != IGNORED]
    if not counted.size:
        raise BadInput(f"All labels in {path} are {IGNORED}, which stands for none. Give at least one.")
    if (counted < 0).any():
        raise BadInput(
            f"The labels in {path} go down to {counted.min()}. Classes count from 0; {IGNORED} stands for none."
        )
    classes = _most_classes(outputs)
    if classes is not None and counted.max() >= classes:
        raise BadInput(
            f"The labels in {path} go up to {counted.max()}, but no output of the model has more than "
            f"{classes} classes. Classes count from 0."
        )
    shapes = [spec.dims for spec in outputs if spec.dtype.startswith("float")]
    if shapes and None not in shapes and not any(_fits(dims, labels.shape[1:]) for dims in shapes if dims):
        raise BadInput(
            f"The labels in {path} have the shape {list(labels.shape)}, which no output of the model has classes "
            "for. Give one for each row, or one for each of its tokens or pixels."
        )
    return np.ascontiguousarray(labels)


def _fits(dims: Sequence[Dim], labels: Shape) -> bool:
    """Whether an output may have classes for labels whose shape is this beyond the rows.

    The classes come last, or second as in images, where dimensions of 1 need no labels of their own.
    """
    images = dims[2:]
    padded = (*labels, *[1] * (len(images) - len(labels)))
    return len(dims) > 1 and (_alike(dims[1:-1], labels) or (len(dims) > 2 and _alike(images, padded)))


def _alike(dims: Sequence[Dim], shape: Shape) -> bool:
    return len(dims) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, shape, strict=True)
    )


def _most_classes(outputs: Sequence[TensorSpec]) -> int | None:
    """The most classes that an output may have: its last dimension, or an image's second; None where unknown."""
    sizes: list[Any] = []
    for spec in outputs:
        if not spec.dtype.startswith("float"):
            continue
        if spec.dims is None:
            return None
        if len(spec.dims) > 1:
            sizes += [spec.dims[-1], spec.dims[1]]
    return max(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None
