"""What a model is fed: seeded random inputs that it accepts, the user's arrays (.npz), or sound (WAV)."""

from __future__ import annotations

import hashlib
import math
import os
import wave
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.shapes import batch_axis, dims_text, fixed_batch, with_rank
from inferlab.records import Shape, TensorSpec
from inferlab.records.generation import Encoder

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
Samples = NDArray[np.float32]
# Shorter ones have not a frame in the encoders that inferlab knows.
_SHORTEST_S = 0.1
# Of the spectrum that Whisper reads: windows of 25 ms, one each 10 ms, at 16,000 samples per second.
_WINDOW, _HOP = 400, 160
_HIGHEST_HZ = 8000.0


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


# Sound for encoders: read from a WAV file, brought to a sampling rate, turned into what a model takes.


@dataclass(frozen=True, slots=True)
class Clip:
    """Sound as an encoder takes it."""

    #: Of the samples at the encoder's rate.
    digest: str
    duration_s: float
    #: Samples [position], or the bands of a spectrum [band, frame].
    input: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Wav:
    rate: int
    channels: int
    duration_s: float
    frames: bytes


def read_clip(path: Path, encoder: Encoder | None, source: str) -> Clip:
    """Read a WAV file for an encoder; refuses what is no sound, too short or too long."""
    if encoder is None:
        raise BadInput(f"{source} has no encoder, so it takes no sound. Leave --audio out.")
    if encoder.takes == "tokens" or encoder.sampling_rate is None:
        raise BadInput(f"The encoder of {source} takes text, not sound. Leave --audio out.")
    if not path.is_file():
        raise BadInput(f"There is no file {path}. Give --audio the path of a WAV file.")
    longest_s = encoder.longest_s or math.inf
    wav = _read_wav(path, longest_s if math.isfinite(longest_s) else 1e9)
    if wav.duration_s < _SHORTEST_S:
        raise BadInput(f"{path} has {wav.duration_s:.2f} s of sound; give {_SHORTEST_S} s at least.")
    if wav.duration_s > longest_s:
        raise BadInput(
            f"{path} has {wav.duration_s:.1f} s of sound; {source} takes {longest_s:g} s at most. Cut it."
        )
    mixed = np.frombuffer(wav.frames, "<i2").reshape(-1, wav.channels).astype(np.float32).mean(axis=1)
    samples = resample(mixed / np.float32(32768), wav.rate, encoder.sampling_rate)
    fed = samples
    if encoder.takes == "features":
        fed = log_mel(samples, encoder.bands or 80, round(longest_s * encoder.sampling_rate))
    return Clip(hashlib.sha256(samples.tobytes()).hexdigest()[:16], wav.duration_s, np.ascontiguousarray(fed))


@confined(reads=["path"])
def _read_wav(path: Path, longest_s: float) -> _Wav:
    """The frames of a WAV file; none of one that is too long."""
    try:
        with wave.open(str(path), "rb") as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            if width != 2:
                raise BadInput(
                    f"{path} has samples of {8 * width} bits; inferlab reads 16-bit PCM. Convert it, for example "
                    "with: ffmpeg -i in.wav -c:a pcm_s16le out.wav"
                )
            if rate < 1:
                raise BadInput(f"{path} is damaged: it has {rate} samples per second.")
            count = file.getnframes()
            duration_s = count / rate
            frames = file.readframes(count) if duration_s <= longest_s else b""
    except (wave.Error, EOFError, OSError, ValueError) as error:
        reason = str(error) or "it is cut off"
        raise BadInput(f"{path} is not a WAV file that inferlab reads ({reason}). Give 16-bit PCM.") from error
    if duration_s <= longest_s and len(frames) != 2 * channels * count:
        raise BadInput(f"{path} is cut off: it has fewer samples than its header says.")
    return _Wav(rate, channels, duration_s, frames)


def resample(samples: Samples, rate: int, target_rate: int) -> Samples:
    """The same sound at another sampling rate, without what the new rate cannot carry."""
    if rate == target_rate:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(rate, target_rate)
    resampled: Any = resample_poly(samples, target_rate // common, rate // common)
    return np.asarray(resampled, np.float32)


def log_mel(samples: Samples, bands: int, length: int) -> Samples:
    """The spectrum [band, frame] as Whisper was trained on it; silence up to the length is added."""
    padded = np.zeros(length, np.float64)
    padded[: min(length, len(samples))] = samples[:length]
    padded = np.pad(padded, _WINDOW // 2, mode="reflect")
    window = np.hanning(_WINDOW + 1)[:-1]
    count = 1 + (len(padded) - _WINDOW) // _HOP
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][: count - 1]
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    spectrum = np.log10(np.maximum(_mel_filters(bands) @ power.T, 1e-10))
    spectrum = np.maximum(spectrum, spectrum.max() - 8.0)
    return np.asarray((spectrum + 4.0) / 4.0, np.float32)


def _mel_filters(bands: int) -> NDArray[np.float64]:
    """Triangles [band, frequency] that lie evenly on Slaney's scale, each of the same area."""
    # Even steps up to 1000 Hz, then 27 to a factor of 6.4.
    step_hz, knee_hz, growth = 200.0 / 3, 1000.0, math.log(6.4) / 27
    knee = knee_hz / step_hz
    highest = knee + math.log(_HIGHEST_HZ / knee_hz) / growth
    mels = np.linspace(0.0, highest, bands + 2)
    edges = np.where(mels < knee, mels * step_hz, knee_hz * np.exp(growth * (mels - knee)))
    frequencies = np.linspace(0.0, _HIGHEST_HZ, _WINDOW // 2 + 1)
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]
