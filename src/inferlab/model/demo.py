"""The built-in models: made here from seeded weights, without a download."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.records import Event, Listener, ignore
from inferlab.settings import cache_folder

if TYPE_CHECKING:
    from onnx import ModelProto

# In the file names of the cache, so that a changed model never hides behind its older file.
# 1: the first.
_VERSION = 1
_DATA = Path(__file__).parent / "data"

#: Every built-in model, with what it is. Only `digits` is trained.
NAMES: dict[str, str] = {
    "mlp": "a perceptron of 64, 64 and 10 units: a few µs, mostly the engine's cost of a call",
    "mlp_medium": "a perceptron of 256, 256, 128, 128 and 10 units: about 15 µs on one core",
    "mobilenet_v1": "MobileNetV1 1.0 at 224 × 224: 4.2 million parameters",
    "mobilenet_v2": "MobileNetV2 1.0 at 224 × 224: 3.5 million parameters",
    "resnet50": "ResNet-50 at 224 × 224: 25.5 million parameters",
    "bert_base": "BERT-base, uncased: 12 layers of 768 units, 109 million parameters",
    "bert_3layer": "a BERT of 3 layers of 384 units: 17.4 million parameters",
    "digits": "a small CNN trained on scikit-learn's digits, with its held-back data",
}
#: Those that generate tokens (inferlab generate), in 32 bits: GGUF files, and folders with ONNX and safetensors.
GENERATIVE: dict[str, str] = {
    "llama": "a Llama of 6 layers of 288 units: 15.2 million parameters",
    "llama_tiny": "a Llama of 2 layers of 64 units: 0.1 million parameters",
    "bart": "an encoder–decoder (BART) of 3 and 3 layers of 256 units: 11.3 million parameters",
    "bart_tiny": "a BART of 2 and 2 layers of 64 units: 0.2 million parameters",
}


def build(name: str, listener: Listener = ignore) -> Path:
    """Make a built-in model, unless it is in the cache already, and return its file or folder."""
    if name not in NAMES and name not in GENERATIVE:
        raise BadInput(f"There is no built-in model '{name}'. There are: {', '.join((*NAMES, *GENERATIVE))}.")
    if name == "digits":
        return _DATA / "digits.onnx"
    ending = "gguf" if name in GENERATIVE else "onnx"
    path = cache_folder() / "demo" / f"{name}-v{_VERSION}.{ending}"
    if name.startswith("bart"):
        path = path.with_suffix("")
    if path.exists():
        return path
    listener(Event("build", {"model": name}, 0.0))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("bart"):
            _write_bart(name, path)
        else:
            with whole_file(path) as file:
                if name in GENERATIVE:
                    _write_llama(name, file)
                else:
                    file.write(_make(name).SerializeToString())
    except OSError as error:
        raise BadInput(f"demo:{name} cannot be stored in {path.parent}: {error.strerror or error}.") from error
    listener(Event("build", {"model": name}, 1.0))
    return path


def digits_data() -> Path:
    """The held-back digits, as an .npz with `image` for the model and the true `labels`."""
    return _DATA / "digits.npz"


def _write_llama(name: str, file: BinaryIO) -> None:
    from inferlab.model import demo_llama

    if name == "llama":
        demo_llama.write(file, layers=6, hidden=288, heads=6, kv_heads=6, feed_forward=768, vocabulary=16000)
    else:
        demo_llama.write(file, layers=2, hidden=64, heads=4, kv_heads=2, feed_forward=128, vocabulary=256)


def _write_bart(name: str, folder: Path) -> None:
    """Write a folder that appears whole."""
    from inferlab.model import demo_bart

    shape = demo_bart.Shape(2, 64, 4, 128, 256, 128)
    if name == "bart":
        shape = demo_bart.Shape(3, 256, 4, 1024, 8000, 1024)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        demo_bart.write(Path(scratch), shape)
        try:
            Path(scratch).rename(folder)
        except OSError:
            if not folder.is_dir():  # unless another process was faster
                raise


def _make(name: str) -> ModelProto:
    from inferlab.model import demo_networks

    makers: dict[str, Callable[[], ModelProto]] = {
        "mlp": lambda: demo_networks.mlp((64, 64, 10)),
        "mlp_medium": lambda: demo_networks.mlp((256, 256, 128, 128, 10)),
        "mobilenet_v1": demo_networks.mobilenet_v1,
        "mobilenet_v2": demo_networks.mobilenet_v2,
        "resnet50": demo_networks.resnet50,
        "bert_base": lambda: demo_networks.bert(layers=12, hidden=768, heads=12),
        "bert_3layer": lambda: demo_networks.bert(layers=3, hidden=384, heads=12),
    }
    return makers[name]()
