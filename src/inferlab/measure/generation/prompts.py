"""What engines generate behind: random token ids, prompts of a file as token ids, or sound; the same for all."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab.codec import parse_json, read_text
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.generation.cells import Clip
from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.model.confined import confined
from inferlab.records import Event, Listener
from inferlab.records.generation import Encoder, GenerationCell, GenerativeModel, PromptSet
from inferlab.worker import ONNXRUNTIME, Reply, Worker

# Numbers of the streams of random tokens.
CONTEXT, PROMPT, REQUEST = 1, 2, 4
# So far apart begin the processes in a list of prompts: a prime, so that they do not begin alike.
_APART = 7919


def random_tokens(cell: GenerationCell, vocabulary: int, stream: int, *numbers: int, length: int) -> Tokens:
    """Token ids [sequence, position]; the same for every engine, other ones for other numbers."""
    generator = np.random.default_rng([cell.seed, stream, *numbers])
    return generator.integers(0, vocabulary, (cell.batch_size, length), np.int64)


def batch_of_prompts(job: GenerationJob, process: int, repetition: int) -> Tokens:
    """The prompts [sequence, position] of one repetition; new ones until those of the user's own are used up."""
    cell = job.cell
    if not job.prompts:
        vocabulary = job.model.vocabulary
        return random_tokens(cell, vocabulary, PROMPT, process, repetition, length=cell.prompt_tokens)
    first = process * _APART + repetition * cell.batch_size
    return np.stack([job.prompts[(first + row) % len(job.prompts)] for row in range(cell.batch_size)])


def unseen_prompts(job: GenerationJob) -> Tokens:
    """Prompts [sequence, position] that nothing has seen, not even a server that ran before."""
    cell = job.cell
    return np.random.default_rng().integers(
        0, job.model.vocabulary, (cell.batch_size, cell.prompt_tokens), np.int64
    )


def request_prompts(job: GenerationJob, process: int, first: int, count: int) -> list[Tokens]:
    """The prompts [position] of so many requests; new ones until those of the user's own are used up."""
    if job.prompts:
        return [job.prompts[(process * _APART + first + number) % len(job.prompts)] for number in range(count)]
    return [
        np.random.default_rng([job.cell.seed, REQUEST, process, first + number]).integers(
            0, job.model.vocabulary, job.cell.prompt_tokens, np.int64
        )
        for number in range(count)
    ]


_MOST_PROMPTS = 100_000
_FORM = 'A line is an object with "prompt", a text, or "token_ids", a list of numbers.'


@dataclass(frozen=True, slots=True)
class _Line:
    """One prompt, and the number of its line."""

    number: int
    text: str | None
    token_ids: Tokens | None


def read_prompts(file: str, model: GenerativeModel, listener: Listener) -> tuple[PromptSet, tuple[Tokens, ...]]:
    """The prompts of a file as token ids; a bad line, or a tokenizer that is missing, is refused."""
    lines = _read_lines(file, model.vocabulary)
    texts = [line.text for line in lines if line.text is not None]
    tokenizer, seconds = "", 0.0
    made: list[Tokens] = []
    if texts:
        listener(Event("tokenizing", {"prompts": len(texts)}))
        tokenizer, seconds, made = _tokenize(file, model, texts)
    left = iter(made)
    prompts = tuple(next(left) if line.token_ids is None else line.token_ids for line in lines)
    for line, prompt in zip(lines, prompts, strict=True):
        if not len(prompt):
            raise BadInput(f"{file}, line {line.number}: the prompt has no tokens.")
        if model.context is not None and len(prompt) >= model.context:
            raise BadInput(
                f"{file}, line {line.number}: the prompt has {len(prompt)} tokens; the context of {model.source} "
                f"has {model.context}."
            )
    lengths = [len(one) for one in prompts]
    joined = hashlib.sha256()
    for one in prompts:
        joined.update(len(one).to_bytes(8, "little") + np.ascontiguousarray(one, "<i8").tobytes())
    return PromptSet(
        digest=joined.hexdigest()[:16],
        count=len(prompts),
        shortest_tokens=min(lengths),
        median_tokens=int(statistics.median(lengths)),
        longest_tokens=max(lengths),
        texts=len(texts),
        tokenizer=tokenizer,
        tokenize_s=seconds,
    ), prompts


def _read_lines(file: str, vocabulary: int) -> list[_Line]:
    try:
        text = read_text(Path(file))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"The prompts {file} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    found: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if len(found) >= _MOST_PROMPTS:
            raise BadInput(f"{file} has more than {_MOST_PROMPTS} prompts. Give fewer.")
        try:
            found.append(_line(number, parse_json(line), vocabulary))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file}, line {number}: {str(error).rstrip('.')}. {_FORM}") from error
    if not found:
        raise BadInput(f"{file} has no prompts. {_FORM}")
    return found


def _line(number: int, content: Any, vocabulary: int) -> _Line:
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    text, ids = content.get("prompt"), content.get("token_ids")
    if (text is None) == (ids is None):
        raise ValueError('it has neither or both of "prompt" and "token_ids"')
    if text is not None:
        if not isinstance(text, str) or not text:
            raise ValueError("its prompt is no text, or empty")
        return _Line(number, text, None)
    if not isinstance(ids, list) or not ids or not all(type(one) is int for one in ids):
        raise ValueError("its token_ids are no list of whole numbers")
    if not all(0 <= one < vocabulary for one in ids):
        raise ValueError(f"a token id is not within 0 to {vocabulary - 1}, the vocabulary of the model")
    return _Line(number, None, np.array(ids, np.int64))


def _tokenize(file: str, model: GenerativeModel, texts: Sequence[str]) -> tuple[str, float, list[Tokens]]:
    """What made the ids, in how many seconds, and the ids of each text."""
    launch = registry.launch_generator("llamacpp") if model.kind == "gguf" else ONNXRUNTIME
    arguments = {"model": model.path, "kind": model.kind}
    try:
        with Worker(launch) as worker:
            reply: Reply = worker.ask("task", [json.dumps(texts).encode()], task="tokenize", arguments=arguments)
            arrays = reply.arrays()
    except BadInput as error:
        reason = str(error).partition(": ")[2] or str(error)
        raise BadInput(
            f"The prompts in {file} are text, which cannot be tokenised: {reason.rstrip('.')}. "
            'Give "token_ids" instead.'
        ) from error
    ends = np.cumsum(arrays["lengths"])
    ids = [arrays["tokens"][end - length : end] for end, length in zip(ends, arrays["lengths"], strict=True)]
    return str(reply.data["tokenizer"]), float(reply.data["seconds"]), ids


# Sound for encoders: read from a WAV file, brought to a sampling rate, turned into what a model takes.

Samples = NDArray[np.float32]
# Shorter ones have not a frame in the encoders that inferlab knows.
_SHORTEST_S = 0.1
# Of the spectrum that Whisper reads: windows of 25 ms, one each 10 ms, at 16,000 samples per second.
_WINDOW, _HOP = 400, 160
_HIGHEST_HZ = 8000.0


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
