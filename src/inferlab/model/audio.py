"""Sound for encoders: read from a WAV file, brought to a model's sampling rate, and turned into what it takes."""

from __future__ import annotations

import hashlib
import math
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.records.generation import Encoder

Samples = NDArray[np.float32]

# Shorter ones have not a frame in the encoders that inferlab knows.
_SHORTEST_S = 0.1
# Of the spectrum that Whisper reads: windows of 25 ms, one each 10 ms, at 16,000 samples per second.
_WINDOW, _HOP = 400, 160
_HIGHEST_HZ = 8000.0


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
    taken = samples
    if encoder.takes == "features":
        taken = log_mel(samples, encoder.bands or 80, round(longest_s * encoder.sampling_rate))
    return Clip(hashlib.sha256(samples.tobytes()).hexdigest()[:16], wav.duration_s, np.ascontiguousarray(taken))


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
