"""What a model is fed, and what its outputs are judged on: seeded random inputs, or the user's arrays (.npz)."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from inferlab.child.scoring import IGNORED
from inferlab.errors import BadInput
from inferlab.model.shapes import batch_axis, dims_text, fixed_batch, with_rank
from inferlab.records import Dim, Shape, TensorSpec
from inferlab.units import plural

Array = np.ndarray[Any, Any]

_NUMBERS = {
    "float16", "float32", "float64", "bool",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
}  # fmt: skip
#: So many entries an archive may have.
MOST_ARRAYS = 10_000
# Numbers, text and truth values; no objects, which are pickles.
_KINDS = frozenset("biufcSU")
_BLOCK = 1 << 24
# What zipfile and NumPy raise at an .npz file that is none, is cut off or damaged.
_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, TypeError, OverflowError, RecursionError),
)
#: How many inputs are generated where the user has none.
ITEMS = 8
_ROWS_A_SET = 32


def make_inputs(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], seed: int) -> dict[str, Array]:
    """Random inputs that a model accepts; the same seed gives the same bytes."""
    if seed < 0:
        raise BadInput(f"The seed must be 0 or more, not {seed}.")
    _refuse_what_memory_cannot_hold(specs, shapes)
    return {
        spec.name: np.ascontiguousarray(
            _make(spec, shapes[spec.name], np.random.default_rng([seed, index])), _dtype(spec)
        ).reshape(shapes[spec.name])
        for index, spec in enumerate(specs)
    }


def load_inputs(
    path: str | Path, specs: Sequence[TensorSpec], batch_size: int | None
) -> tuple[dict[str, Array], dict[str, Array], int]:
    """The user's data as two batches, and their size: by default the model's own, or all rows of the file.

    Without enough rows for a second batch it is the first again.
    """
    specs, arrays, axes, rows = read_data(path, specs)
    batch = batch_size or fixed_batch(specs) or rows or 1
    if rows is not None and rows < batch:
        raise BadInput(f"The data in {path} has {rows} rows, too few for a batch of {batch}. Give a smaller one.")

    def take(start: int) -> dict[str, Array]:
        return take_rows(arrays, axes, start, batch)

    enough = rows is not None and rows >= 2 * batch
    return take(0), take(batch if enough else 0), batch


def read_data(
    path: str | Path, specs: Sequence[TensorSpec]
) -> tuple[list[TensorSpec], dict[str, Array], dict[str, int | None], int | None]:
    """The user's data, found to fit: inputs of known rank, their arrays, each one's axis of rows, and how many."""
    pairs = [(with_rank(spec, value.ndim), value) for spec, value in _read_inputs(Path(path), specs)]
    fixed = [spec for spec, _ in pairs]
    axes = {spec.name: batch_axis(spec, fixed) for spec in fixed}
    arrays = {spec.name: _converted(value, spec, axes[spec.name], path) for spec, value in pairs}
    return fixed, arrays, axes, _rows(arrays, axes, path)


def take_rows(
    arrays: Mapping[str, Array], axes: Mapping[str, int | None], start: int, count: int
) -> dict[str, Array]:
    """So many rows of the data from a place on."""
    rows: dict[str, Array] = {}
    for name, value in arrays.items():
        axis = axes[name]
        part = value if axis is None else value[(slice(None),) * axis + (slice(start, start + count),)]
        rows[name] = np.ascontiguousarray(part).reshape(part.shape)
    return rows


def digest(inputs: Mapping[str, Array]) -> str:
    """A hash of the inputs' names, types, shapes and values."""
    total = hashlib.sha256()
    for name, value in inputs.items():
        total.update(f"{name}\0{value.dtype.str}\0{value.shape}\0".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()[:16]


def _make(spec: TensorSpec, shape: Shape, rng: np.random.Generator) -> Array:
    dtype = _dtype(spec)
    name = spec.name.lower()
    if dtype.kind == "U":
        return np.full(shape, "inferlab")
    if dtype.kind == "b" or "mask" in name:
        return np.ones(shape, dtype)
    if dtype.kind == "f":
        random = rng.random(shape, np.float64 if dtype.itemsize == 8 else np.float32)
        # Rounding to half precision must not reach 1.
        return np.asarray(np.minimum(random.astype(dtype), np.nextafter(dtype.type(1), dtype.type(0))))
    if len(shape) <= 1 and (values := _allowed(spec, dtype)):
        return np.full(shape, max(values), dtype)
    if spec.below is None and ("token_type" in name or "segment" in name):
        return np.zeros(shape, dtype)
    unbound = 256 if spec.dtype == "uint8" else 2
    below = min(spec.below or unbound, int(np.iinfo(dtype).max) + 1)
    return rng.integers(0, below, shape, np.int64).astype(dtype)


def _allowed(spec: TensorSpec, dtype: np.dtype[Any]) -> list[int]:
    """The values that the graph compares an input with and that it may have."""
    limits = np.iinfo(dtype)
    top = limits.max if spec.below is None else spec.below - 1
    return [value for value in spec.known_values if limits.min <= value <= min(top, limits.max)]


def _dtype(spec: TensorSpec) -> np.dtype[Any]:
    if spec.dtype == "string":
        return np.dtype("U8")
    if spec.dtype not in _NUMBERS:
        raise BadInput(
            f"The model's input '{spec.name}' has the type {spec.dtype}, which inferlab cannot make. "
            "Export the model with inputs of float32, another IEEE float, integers, bool or string."
        )
    return np.dtype(spec.dtype)


def _refuse_what_memory_cannot_hold(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape]) -> None:
    """Inputs are made twice, copied into a child and bound there: a quarter of the memory is the most."""
    limit = memory_limit()
    for spec in specs:
        size = math.prod(shapes[spec.name]) * _dtype(spec).itemsize
        if size > limit:
            raise BadInput(
                f"The input '{spec.name}' of shape {list(shapes[spec.name])} takes {size / 1e9:.3g} GB, more than "
                f"the machine's limit for inputs of {limit / 1e9:.3g} GB, a quarter of its memory. "
                "Give a smaller batch size or shape."
            )


def _read_inputs(path: Path, specs: Sequence[TensorSpec]) -> list[tuple[TensorSpec, Array]]:
    """The arrays of an .npz file in the order of the model's inputs."""
    if not path.is_file():
        raise BadInput(f"There is no file {path}. Give an .npz file with the model's inputs by name.")
    names = [spec.name for spec in specs]
    present = array_names(path)
    unknown = [name for name in present if name not in names and name != "labels"]
    missing = [name for name in names if name not in present]
    if unknown or missing:
        faults = [f"it lacks {', '.join(map(repr, missing))}"] if missing else []
        faults += [f"the model has no input {', '.join(map(repr, unknown))}"] if unknown else []
        raise BadInput(
            f"The data in {path} does not fit the model: {'; '.join(faults)}. The inputs are: {', '.join(names)}."
        )
    arrays = read_arrays(path, names)
    return [(spec, arrays[spec.name]) for spec in specs]


def _converted(value: Array, spec: TensorSpec, rows: int | None, path: str | Path) -> Array:
    """The data in the input's type, if it fits its type, its rank and its fixed dimensions but for the rows."""
    dims = spec.dims or ()
    fits = value.ndim == len(dims) and all(
        axis == rows or not isinstance(dim, int) or value.shape[axis] == dim for axis, dim in enumerate(dims)
    )
    if not fits:
        raise BadInput(
            f"The data for '{spec.name}' in {path} has the shape {list(value.shape)}, "
            f"which does not fit the model's {dims_text(dims)}."
        )
    if spec.dtype == "string":
        dtype = value.dtype if value.dtype.kind == "U" else np.dtype(str)
        fits = value.dtype.kind in "US"
    else:
        dtype = _dtype(spec)
        fits = np.can_cast(value.dtype, dtype, "same_kind")
    if fits:
        converted = value.astype(dtype)
        if dtype.kind not in "iu" or (converted == value).all():
            return np.ascontiguousarray(converted).reshape(value.shape)
    raise BadInput(
        f"The data for '{spec.name}' in {path} is {value.dtype.name}, which cannot become the model's "
        f"{spec.dtype} without loss. Convert it before saving."
    )


def _rows(arrays: Mapping[str, Array], axes: Mapping[str, int | None], path: str | Path) -> int | None:
    """How many items the data has, None where no input has a dimension for them."""
    counts = {name: value.shape[axis] for name, value in arrays.items() if (axis := axes[name]) is not None}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise BadInput(
            f"The inputs in {path} have different numbers of rows: {counts_text}. Give all of them the same."
        )
    if 0 in counts.values():
        raise BadInput(f"The data in {path} has no rows. Give at least one.")
    return next(iter(counts.values()), None)


def memory_limit() -> int:
    """How many bytes of data are taken into memory at most: a quarter of what the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 1 << 33


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _opened(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """These arrays of an .npz file; refused before they are read where they would take too much memory."""
    with _opened(path) as archive:
        try:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            left = memory_limit()
            arrays: dict[str, Array] = {}
            for name in names:
                with archive.open(entries[name]) as stream:
                    arrays[name] = _read_array(stream, path, name, left)
                left -= arrays[name].nbytes
            return arrays
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        with path.open("rb") as stream:
            start = stream.read(6)
        if not start.startswith(b"PK"):
            raise ValueError("it holds one array without a name" if start == b"\x93NUMPY" else "it is none")
        archive = zipfile.ZipFile(path)
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    names = archive.namelist()
    problem = ""
    if len(names) > MOST_ARRAYS:
        problem = f"it has {len(names):,} entries, more than the {MOST_ARRAYS:,} that are read"
    elif len({name.removesuffix(".npy") for name in names}) < len(names):
        problem = "two of its arrays have the same name"
    if problem:
        archive.close()
        raise _unreadable(path, problem)
    return archive


def _read_array(stream: IO[bytes], path: Path, name: str, limit: int) -> Array:
    """One array: its header says how many bytes follow, which are checked against the limit and then read."""
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"'{name}' is written in version {version[0]}.{version[1]} of NumPy's format")
    shape, by_columns, dtype = read_header(stream)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"'{name}' is an array of {dtype}, which is not read")
    size = math.prod(shape) * dtype.itemsize
    if size > limit or any(axis < 0 for axis in shape):
        raise BadInput(
            f"'{name}' in {path} of shape {list(shape)} takes {size / 1e9:.3g} GB; data may take "
            f"{memory_limit() / 1e9:.3g} GB here in all, a quarter of the memory. Give fewer rows."
        )
    # Block by block: what the header promises need not be there.
    blocks, left = [], size
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        blocks.append(block)
        left -= len(block)
    if left or stream.read(1):
        raise ValueError(f"'{name}' has {'fewer' if left else 'more'} bytes than its shape needs")
    if not size:
        return np.empty(shape, dtype)
    content = bytearray().join(blocks)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")


def _unreadable(path: Path, problem: object) -> BadInput:
    return BadInput(
        f"{path} cannot be read as an .npz file: {problem}. Write it with numpy.savez, inputs by name."
    )


# Data sets: sets of inputs, generated or the user's own, with or without labels.


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
