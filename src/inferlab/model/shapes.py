"""Which shapes inputs get: what the user wrote, what the model fixes, a rule for the rest, or by trying."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.files import whole_file
from inferlab.records import Dim, Model, Shape, TensorSpec
from inferlab.settings import cache_folder
from inferlab.units import plural
from inferlab.worker import ONNXRUNTIME, run_task

#: What open dimensions get of sequences and of pictures.
SEQUENCE, IMAGE, CHANNELS = 128, 224, 3
_ONE_SHAPE = re.compile(r"\s*(?:(?P<name>[^\[\],=]+?)\s*=\s*)?\[(?P<dims>[^\[\]]*)\]\s*(?P<end>,|$)")
_HINT = 'Write shapes as "[1,3,224,224]" for each input in order, or as "name=[1,384],other=[1,384]".'
# Changes with what is tried: what an older version remembered is then found again.
_VERSION = 1
_TRYING_S = 20.0
_PATIENCE_S = 120.0
# Tried where a model does not run with the usual ones. A second of sound has 16,000 samples; a chunk has 512.
_LENGTHS = (
    *(16000, 512, 256, 1024, 64, 32, 16, 80, 100, 400, 1536),
    *(2048, 3000, 4096, 8000, 32000, 48000, 8, 4, 2, 1),
)
_SOUND_LENGTHS = (16000, 512)
_SOUNDS = ("samples", "waveform", "wav", "audio", "speech", "signal", "pcm")
_SPECTRA = ("mel", "feat", "spec", "frames", "fbank")
# Text lines are low and wide.
_PICTURES = (
    *((48, 320), (32, 320), (640, 640), (320, 320), (512, 512), (256, 256), (160, 160), (112, 112), (96, 96)),
    *((64, 64), (64, 256), (32, 100), (32, 128), (48, 48), (32, 32), (28, 28), (24, 24), (12, 12), (1024, 1024)),
)
_LOW_PICTURE = 80


@dataclass(frozen=True, slots=True)
class ResolvedShapes:
    """A shape for every input; `rewrite_batch` is (old, new) where the model fixes another batch size."""

    shapes: dict[str, Shape]
    batch_size: int
    rewrite_batch: tuple[int, int] | None
    #: The inputs that leave more open than batch and sequence length, and were given no shape.
    guessed: tuple[str, ...] = ()


def parse_shapes(text: str, inputs: Sequence[TensorSpec]) -> dict[str, Shape]:
    """Read shapes as DeepSparse takes them, "[1,2],[3,4]" by position, or by name, "input_ids=[1,384]"."""
    pairs = list(_split(text))
    named = [name for name, _ in pairs if name]
    if named and len(named) < len(pairs):
        raise BadInput(f"The input shapes '{text}' mix names and positions. {_HINT}")
    if len(set(named)) < len(named):
        raise BadInput(f"The input shapes '{text}' give an input twice. {_HINT}")
    if len(pairs) > len(inputs):
        raise BadInput(
            f"{len(pairs)} input shapes were given, but the model has {plural(len(inputs), 'input')}: "
            f"{_names(inputs)}."
        )
    by_name = {spec.name: spec for spec in inputs}
    shapes = {}
    for (name, shape), by_position in zip(pairs, inputs, strict=False):
        spec = by_name.get(name) if name else by_position
        if spec is None:
            raise BadInput(f"The model has no input '{name}'. Its inputs are: {_names(inputs)}.")
        _check_fit(spec, shape, inputs)
        shapes[spec.name] = shape
    return shapes


def resolve(
    inputs: Sequence[TensorSpec],
    batch_size: int | None,
    sequence_length: int | None,
    overrides: Mapping[str, Shape],
) -> ResolvedShapes:
    """Give every input a shape; dimensions of one name are alike everywhere."""
    if batch_size is not None and batch_size < 1:
        raise BadInput(f"The batch size must be at least 1, not {batch_size}.")
    if sequence_length is not None and sequence_length < 1:
        raise BadInput(f"The sequence length must be at least 1, not {sequence_length}.")
    for spec in inputs:
        if spec.name in overrides:
            _check_fit(spec, overrides[spec.name], inputs)
        elif spec.dims is None:
            raise BadInput(
                f"The model does not say how many dimensions its input '{spec.name}' has. "
                f'Give its shape, for example: -shapes "{spec.name}=[1,128]"'
            )
    inputs = [with_rank(spec, len(overrides.get(spec.name, ()))) for spec in inputs]
    if sequence_length is not None:
        inputs = [spec if _is_picture(spec) else replace(spec, fitted=None) for spec in inputs]
    fixed = fixed_batch(inputs)
    batch = _choose_batch(inputs, batch_size, overrides)
    sizes = _sizes_of_names(inputs, overrides, batch, sequence_length or SEQUENCE)
    shapes = {}
    for spec in inputs:
        shapes[spec.name] = overrides.get(spec.name) or tuple(
            _size(spec, axis, dim, inputs, sizes, batch, sequence_length or SEQUENCE)
            for axis, dim in enumerate(spec.dims or ())
        )
    for spec in inputs:
        _check_sums(spec, shapes[spec.name], sizes)
    if sequence_length not in (None, SEQUENCE) and shapes == resolve(inputs, batch_size, None, overrides).shapes:
        raise BadInput(
            f"The sequence length {sequence_length} has no effect: no dimension of the inputs {_names(inputs)} is "
            "left open for it. Leave it out."
        )
    guessed = tuple(
        spec.name
        for spec in open_inputs(inputs)
        if spec.name not in overrides
        and (sequence_length is None or _is_picture(spec))
        and _is_worth_saying(spec, shapes[spec.name], inputs)
    )
    return ResolvedShapes(shapes, batch, None if fixed in (None, batch) else (fixed, batch), guessed)


def open_inputs(inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """The inputs that leave a dimension open which is neither the batch nor the length of a text."""
    return [spec for spec in inputs if any(is_open(spec, axis, inputs) for axis, _ in enumerate(spec.dims or ()))]


def is_open(spec: TensorSpec, axis: int, inputs: Sequence[TensorSpec]) -> bool:
    """Whether a dimension is open and neither the batch nor a text's length; a sequence of floats is a sound."""
    dim = (spec.dims or ())[axis]
    if isinstance(dim, int) or axis == batch_axis(spec, inputs):
        return False
    names = [] if dim is None else _names_in(dim)
    if any("batch" in name.lower() or name.lower().startswith(("past", "total")) for name in names):
        return False
    return _is_sound(spec, axis) or not any(_says_sequence(name) for name in names)


def _is_sound(spec: TensorSpec, axis: int) -> bool:
    is_float = spec.dtype.startswith("float") and "mask" not in spec.name.lower()
    return is_float and axis == 1 and len(spec.dims or ()) == 2


def _is_worth_saying(spec: TensorSpec, shape: Shape, inputs: Sequence[TensorSpec]) -> bool:
    """Whether a guess is more than the usual length of what the model itself calls a sequence."""
    return any(
        is_open(spec, axis, inputs) and not (_says_sequence(dim) and size == SEQUENCE)
        for axis, (dim, size) in enumerate(zip(spec.dims or (), shape, strict=True))
    )


def with_rank(spec: TensorSpec, rank: int) -> TensorSpec:
    """An input of unknown rank with the rank that was given for it: every dimension is open."""
    return spec if spec.dims is not None else replace(spec, dims=(None,) * rank)


def fixed_batch(inputs: Sequence[TensorSpec]) -> int | None:
    """The batch size that a model fixes: the first dimension of the first input that has one for the batch."""
    for spec in inputs:
        if spec.dims and not _names_batch(spec) and not _is_state(spec, inputs):
            return spec.dims[0] if isinstance(spec.dims[0], int) else None
    return None


def batch_axis(spec: TensorSpec, inputs: Sequence[TensorSpec]) -> int | None:
    """Which dimension of an input counts the items of a batch, if any does."""
    dims = spec.dims or ()
    for axis, dim in enumerate(dims):
        if isinstance(dim, str) and "batch" in dim.lower():
            return axis
    if not dims or _says_sequence(dims[0]):
        return None
    if _is_state(spec, inputs):
        return 1
    return 0 if not isinstance(dims[0], int) or dims[0] == fixed_batch(inputs) else None


def _is_state(spec: TensorSpec, inputs: Sequence[TensorSpec]) -> bool:
    """Whether an input looks like the state of a recurrent layer: layers × batch × width, beside a sequence."""
    dims = spec.dims or ()
    if len(dims) == 3 and dims[1] == 1 and isinstance(dims[0], int) and isinstance(dims[2], int):
        return any(_names_batch(other) for other in inputs if other is not spec)
    if [isinstance(dim, int) for dim in dims] != [True, False, True] or _says_sequence(dims[1]):
        return False
    first = next(other for other in inputs if other.dims)
    return spec is not first or any(
        _names_batch(other) or _is_free(other) for other in inputs if other is not spec
    )


def _names_batch(spec: TensorSpec) -> bool:
    return any(isinstance(dim, str) and "batch" in dim.lower() for dim in spec.dims or ())


def _is_free(spec: TensorSpec) -> bool:
    """Whether an input leaves its first dimension open, and not for a sequence."""
    first = spec.dims[0] if spec.dims else 0
    return not isinstance(first, int) and not _says_sequence(first)


def _choose_batch(inputs: Sequence[TensorSpec], batch_size: int | None, overrides: Mapping[str, Shape]) -> int:
    """The batch size: asked for, in the shapes that were given, fixed by the model, or 1."""
    axes = {spec.name: batch_axis(spec, inputs) for spec in inputs}
    batches = {
        spec.name: overrides[spec.name][axis]
        for spec in inputs
        if spec.name in overrides and (axis := axes[spec.name]) is not None
    }
    fixed = fixed_batch(inputs)
    batch = batch_size or next(iter(batches.values()), None) or fixed or 1
    for spec in inputs:
        size = batches.get(spec.name)
        if size is not None and size != batch and (batch_size or (spec.dims and isinstance(spec.dims[0], int))):
            reason = (
                f"the batch size is {batch}" if batch_size else f"'{next(iter(batches))}' has a batch of {batch}"
            )
            raise BadInput(
                f"The shape of the input '{spec.name}' has a batch of {size}, but {reason}. Make them the same."
            )
    if batch_size and batch_size != 1 and all(axis is None for axis in axes.values()) and inputs and not overrides:
        raise BadInput(
            f"The model has no batch dimension, so a batch size of {batch_size} cannot be set. "
            "Leave the batch size out."
        )
    return batch


def _sizes_of_names(
    inputs: Sequence[TensorSpec], overrides: Mapping[str, Shape], batch: int, sequence: int
) -> dict[str, int]:
    """A size for every symbolic name: out of the given shapes first, then by what the name or its place says."""
    sizes: dict[str, int] = {}
    for spec, axis, dim in _symbolic(inputs):
        if spec.name in overrides and _is_plain(dim):
            _bind(sizes, dim, overrides[spec.name][axis], spec)
    for spec, axis, dim in _symbolic(inputs):
        if spec.name in overrides and not _is_plain(dim):
            _solve(sizes, dim, overrides[spec.name][axis])
    places = sorted(_symbolic(inputs), key=lambda place: place[1] != 0)  # a batch stands in front somewhere
    for spec, axis, dim in places:
        for name in _names_in(dim):
            if name not in sizes and not name.lower().startswith("total_seq"):
                sizes[name] = _guess(spec, axis, name, inputs, batch, sequence)
    for name in [name for _, _, dim in places for name in _names_in(dim) if name not in sizes]:
        # As ONNX Runtime's generators name it: what is cached and what is new.
        sizes[name] = sizes.get("past_sequence_length", 0) + sizes.get("sequence_length", sequence)
    return sizes


def _size(
    spec: TensorSpec,
    axis: int,
    dim: Dim,
    inputs: Sequence[TensorSpec],
    sizes: Mapping[str, int],
    batch: int,
    sequence: int,
) -> int:
    if isinstance(dim, str):
        return _evaluate(dim, sizes)
    if isinstance(dim, int):
        return batch if axis == batch_axis(spec, inputs) else dim
    return _guess(spec, axis, "", inputs, batch, sequence)


def _guess(spec: TensorSpec, axis: int, name: str, inputs: Sequence[TensorSpec], batch: int, sequence: int) -> int:
    """The size of an unknown dimension, by its name and by where it stands."""
    dims = spec.dims or ()
    if "batch" in name.lower():
        return batch
    if axis == batch_axis(spec, inputs) and not _says_sequence(name):
        return batch
    if spec.fitted is not None and (not name or name == dims[axis]) and is_open(spec, axis, inputs):
        return spec.fitted[axis]
    if _says_sequence(name):
        return sequence
    if len(dims) == 4 and axis:
        channels_last = dims[3] in (1, 3, 4)
        return IMAGE if axis > 1 or channels_last else CHANNELS
    return sequence


def _is_picture(spec: TensorSpec) -> bool:
    return len(spec.dims or ()) == 4


def _says_sequence(dim: Dim) -> bool:
    return isinstance(dim, str) and "seq" in dim.lower()


def _symbolic(inputs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, int, str]]:
    for spec in inputs:
        for axis, dim in enumerate(spec.dims or ()):
            if isinstance(dim, str):
                yield spec, axis, dim


def _terms(dim: str) -> list[list[str]]:
    """A dimension such as "past + 2*new" as a sum of products; anything else is one plain name."""
    terms = [[factor.strip() for factor in term.split("*")] for term in dim.split("+")]
    usable = all(re.fullmatch(r"[\w.]+", factor) for term in terms for factor in term)
    return terms if usable else [[dim]]


def _is_plain(dim: str) -> bool:
    return _terms(dim) == [[dim]]


def _names_in(dim: str) -> list[str]:
    return [factor for term in _terms(dim) for factor in term if not factor.isdecimal()]


def _evaluate(dim: str, sizes: Mapping[str, int]) -> int:
    return sum(
        math.prod(int(factor) if factor.isdecimal() else sizes[factor] for factor in term) for term in _terms(dim)
    )


def _bind(sizes: dict[str, int], name: str, size: int, spec: TensorSpec) -> None:
    if sizes.setdefault(name, size) != size:
        raise BadInput(
            f"The given shapes contradict each other: '{name}' is {sizes[name]}, but {size} in the input "
            f"'{spec.name}'. Dimensions of one name have one size."
        )


def _solve(sizes: dict[str, int], dim: str, total: int) -> None:
    """Take the one name of a sum that is not known yet from its total, if it enters the sum once, by itself."""
    unknown = [name for name in _names_in(dim) if name not in sizes]
    if len(unknown) == 1 and unknown in _terms(dim):
        rest = total - _evaluate(dim, {**sizes, unknown[0]: 0})
        if rest > 0:
            sizes[unknown[0]] = rest


def _check_sums(spec: TensorSpec, shape: Shape, sizes: Mapping[str, int]) -> None:
    for dim, size in zip(spec.dims or (), shape, strict=bool(spec.dims)):
        if isinstance(dim, str) and _evaluate(dim, sizes) != size:
            raise BadInput(
                f"The given shapes contradict each other: '{dim}' is {_evaluate(dim, sizes)} by the other inputs, "
                f"but {size} in the input '{spec.name}'."
            )


def _split(text: str) -> Iterator[tuple[str, Shape]]:
    position = 0
    more = True
    while more:
        match = _ONE_SHAPE.match(text, position)
        if match is None:
            raise BadInput(f"The input shapes '{text}' cannot be read from '{text[position:]}' on. {_HINT}")
        yield match["name"] or "", _sizes(match["dims"], text)
        position, more = match.end(), match["end"] == ","


def _sizes(text: str, whole: str) -> Shape:
    if not text.strip():
        return ()
    sizes = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", part):
            raise BadInput(f"'{part.strip()}' in the input shapes '{whole}' is not a whole number. {_HINT}")
        if int(part) < 1:
            raise BadInput(f"A dimension must be at least 1, not {int(part)}, in the input shapes '{whole}'.")
        sizes.append(int(part))
    return tuple(sizes)


def _check_fit(spec: TensorSpec, shape: Shape, inputs: Sequence[TensorSpec]) -> None:
    if spec.dims is None:
        return
    if len(shape) != len(spec.dims):
        raise BadInput(
            f"The shape {list(shape)} has {plural(len(shape), 'dimension')}, but the input '{spec.name}' has "
            f"{len(spec.dims)}: {dims_text(spec.dims)}."
        )
    for axis, (size, dim) in enumerate(zip(shape, spec.dims, strict=True)):
        if isinstance(dim, int) and size != dim and axis != batch_axis(spec, inputs):
            raise BadInput(
                f"The shape {list(shape)} does not fit the input '{spec.name}': the model fixes its dimensions "
                f"as {dims_text(spec.dims)}, so dimension {axis} must be {dim}."
            )


def dims_text(dims: Sequence[Dim]) -> str:
    """Dimensions as sentences show them."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"


def _names(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"'{spec.name}'" for spec in inputs) or "none"


# Found by trying, where a model leaves more open than its batch and sequence length.


def with_fitted_shapes(model: Model) -> Model:
    """An ONNX model with a shape for every input that leaves more open than its batch and its sequence length."""
    if any(spec.dims is None for spec in model.inputs):
        return model
    file = cache_folder() / "shapes" / f"{model.digest}-v{_VERSION}.json"
    shapes = _cached_shapes(file, model)
    if shapes is None:
        shapes = _first_that_runs(model)
        if shapes is None:
            return model
        _cache_shapes(file, shapes)
    return replace(
        model, inputs=tuple(replace(spec, fitted=shapes.get(spec.name) or None) for spec in model.inputs)
    )


def _first_that_runs(model: Model) -> dict[str, Shape] | None:
    """The first candidate that runs; empty where none does, None where ONNX Runtime could not try."""
    tries = candidates(model.inputs)
    arguments = {
        "model": model.path,
        "inputs": [{"name": spec.name, "dtype": spec.dtype, "fill": _fill(spec)} for spec in model.inputs],
        "candidates": [{name: list(shape) for name, shape in shapes.items()} for shapes in tries],
        "seconds": _TRYING_S,
    }
    try:
        number = run_task(ONNXRUNTIME, "onnx_files.fit_shapes", arguments, patience_s=_PATIENCE_S)["number"]
    except (BadInput, EngineFailed):
        return None
    return {} if number is None else tries[number]


def _fill(spec: TensorSpec) -> int:
    if spec.known_values and len(spec.dims or ()) <= 1:
        return max(spec.known_values)
    return 1 if spec.below is None else min(1, spec.below - 1)


def _cached_shapes(file: Path, model: Model) -> dict[str, Shape] | None:
    """What was found for this model, if it still fits its inputs."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        shapes = {str(name): tuple(int(size) for size in shape) for name, shape in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    ranks = {spec.name: len(spec.dims or ()) for spec in model.inputs}
    fits = all(len(shape) == ranks.get(name) and min(shape, default=1) > 0 for name, shape in shapes.items())
    return shapes if fits else None


def _cache_shapes(file: Path, shapes: dict[str, Shape]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as target:
            target.write(json.dumps(shapes).encode())
    except OSError:
        return  # it is found again next time


def candidates(inputs: Sequence[TensorSpec]) -> list[dict[str, Shape]]:
    """Shapes to try one after the other, for one item: what `resolve` takes on its own first, usual ones next."""
    bare = [replace(spec, fitted=None) for spec in inputs]
    tries: list[dict[str, Shape]] = []
    for size in _tried_sizes(bare):
        specs = [replace(spec, fitted=_filled(spec, bare, size)) for spec in bare]
        shapes = resolve(specs, None, None, {}).shapes
        if shapes not in tries:
            tries.append(shapes)
    return tries


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What open dimensions get: of sequences and sounds, of pictures."""

    length: int
    height: int
    width: int
    channels: int


def _tried_sizes(inputs: Sequence[TensorSpec]) -> list[_Sizes]:
    opened = open_inputs(inputs)
    pictures = any(len(spec.dims or ()) >= 4 for spec in opened)
    names = " ".join(spec.name.lower() + " " + " ".join(map(str, spec.dims or ())).lower() for spec in opened)
    sound = any(word in names for word in _SOUNDS)
    spectrum = any(word in names for word in _SPECTRA)
    lengths = [*(_SOUND_LENGTHS if sound and not spectrum else ()), SEQUENCE, *_LENGTHS]
    sizes = [_Sizes(lengths[0], IMAGE, IMAGE, CHANNELS)]
    if pictures:
        fixed = next((spec for spec in opened if len(spec.dims or ()) == 4), None)
        low = fixed is not None and isinstance(height := (fixed.dims or ())[2], int) and height <= _LOW_PICTURE
        wide = [(height, width) for height, width in _PICTURES if (width > height) == low]
        rest = [(height, width) for height, width in _PICTURES if (width > height) != low]
        for channels in (CHANNELS, 1, 4):
            both = [*wide, *rest] if low else [(IMAGE, IMAGE), *_PICTURES]
            sizes += [_Sizes(lengths[0], height, width, channels) for height, width in both]
        sizes = sizes[1:] if low else sizes
    return sizes + [_Sizes(length, IMAGE, IMAGE, CHANNELS) for length in lengths]


def _filled(spec: TensorSpec, inputs: Sequence[TensorSpec], size: _Sizes) -> Shape:
    """A shape whose open dimensions have these sizes; others are as `resolve` finds them."""
    dims = spec.dims or ()
    channels_last = len(dims) == 4 and dims[3] in (1, 3, 4)
    names = ("height", "width", "channels") if channels_last else ("channels", "height", "width")
    shape = []
    for axis, dim in enumerate(dims):
        if not is_open(spec, axis, inputs):
            shape.append(dim if isinstance(dim, int) else 1)
        elif len(dims) == 4 and axis:
            shape.append(int(getattr(size, names[axis - 1])))
        elif (
            len(dims) == 3 and dims[2] in (1, 3, 4) and axis < 2 and all(not isinstance(d, int) for d in dims[:2])
        ):
            shape.append(size.height if axis == 0 else size.width)
        elif len(dims) == 3 and dims[0] in (1, 3) and axis and all(not isinstance(d, int) for d in dims[1:]):
            shape.append(size.height if axis == 1 else size.width)
        else:
            shape.append(size.length)
    return tuple(shape)
