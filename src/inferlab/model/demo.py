"""The built-in models: made here from seeded weights, without a download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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


def build(name: str, listener: Listener = ignore) -> Path:
    """Make a built-in model, unless it is in the cache already, and return its file."""
    if name not in NAMES:
        raise BadInput(f"There is no built-in model '{name}'. There are: {', '.join(NAMES)}.")
    if name == "digits":
        return _DATA / "digits.onnx"
    path = cache_folder() / "demo" / f"{name}-v{_VERSION}.onnx"
    if path.is_file():
        return path
    listener(Event("build", {"model": name}, 0.0))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(_make(name).SerializeToString())
    except OSError as error:
        raise BadInput(f"demo:{name} cannot be stored in {path.parent}: {error.strerror or error}.") from error
    listener(Event("build", {"model": name}, 1.0))
    return path


def digits_data() -> Path:
    """The held-back digits, as an .npz with `image` for the model and the true `labels`."""
    return _DATA / "digits.npz"


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
