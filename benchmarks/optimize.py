"""What optimised versions really gain and cost, next to what was predicted of them.

    python -m benchmarks.optimize [PART …] [--time SECONDS]

Parts: resnet50, bert (speed-ups by engine and recipe), trained (output distance of models with real weights),
accuracy (labelled digits before and after), goal (whether searches reach what they are asked for).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inferlab.errors import InferlabError
from inferlab.lab import Lab
from inferlab.optimizing.recipes import parse_goal
from inferlab.records import Plan
from inferlab.records.optimization import Measured, Optimization, Pruning, Quantization, Recipe, VersionOptions
from inferlab.records.profile import ProfileOptions
from inferlab.views import results
from inferlab.views.results import render
from tests.helpers.real_models import one as real_model

STATIC = Quantization("static")


@dataclass(frozen=True, slots=True)
class Arm:
    """A recipe, and the engines that it is measured on."""

    label: str
    recipe: Recipe
    engines: tuple[str, ...]


ARMS = (
    Arm("INT8", Recipe(quantization=STATIC), ("openvino", "onnxruntime")),
    Arm("80 % pruned", Recipe(pruning=Pruning(0.8)), ("deepsparse",)),
    Arm("90 % pruned", Recipe(pruning=Pruning(0.9)), ("deepsparse", "onnxruntime", "openvino")),
    Arm("80 % pruned, INT8", Recipe(pruning=Pruning(0.8), quantization=STATIC), ("deepsparse", "openvino")),
)
#: Tried on models with real weights, for their cost alone.
DISTANCES: Mapping[str, Recipe] = {
    "50 % of every layer": Recipe(pruning=Pruning(0.5)),
    "50 % by one threshold": Recipe(pruning=Pruning(0.5, "global")),
    "80 % of every layer": Recipe(pruning=Pruning(0.8)),
    "80 % by one threshold": Recipe(pruning=Pruning(0.8, "global")),
    "50 % in blocks of 4": Recipe(pruning=Pruning(0.5, pattern="block4")),
    "2:4": Recipe(pruning=Pruning(pattern="2:4")),
    "25 % of the channels": Recipe(pruning=Pruning(0.25, pattern="channel")),
    "INT8, dynamic": Recipe(quantization=Quantization("dynamic")),
    "INT8, static": Recipe(quantization=STATIC),
    "INT8, static, by tensor": Recipe(quantization=Quantization("static", per_channel=False)),
    "weights in INT8": Recipe(quantization=Quantization("weights")),
    "weights in INT4": Recipe(quantization=Quantization("weights", bits=4)),
    "FP16": Recipe(quantization=Quantization("fp16")),
}


def speeds(model: str, time_s: float) -> None:
    """Profiles first, then every recipe on its engines, held to what the profiles predicted."""
    print(f"\n{model}")
    print(
        "recipe             engine       size  zeros  distance  speed-up (interval)       verdict      predicted  "
        "off by"
    )
    with tempfile.TemporaryDirectory(prefix="inferlab-bench-") as name:
        folder = Path(name)
        profiles = {
            engine: _profiled(model, engine, time_s, folder)
            for engine in ("openvino", "onnxruntime", "deepsparse")
        }
        for arm in ARMS:
            for engine in arm.engines:
                optimization = _optimised(model, arm.recipe, folder, (engine,), time_s, profiles[engine])
                if optimization is None:
                    continue
                for measured in optimization.measured:
                    print(
                        f"{arm.label:18} {measured.engine:12} {_costs(optimization)}  {_speed(measured)}",
                        flush=True,
                    )
                for problem in optimization.problems:
                    print(f"{arm.label:18} {engine:12} {_costs(optimization)}  {problem[:90]}", flush=True)


def _profiled(model: str, engine: str, time_s: float, folder: Path) -> str | None:
    """The file of a profile with times in INT8, on deepsparse also at levels of pruning."""
    plan = Plan(model, engines=(engine,), scenarios=("sync",))
    sparse = engine == "deepsparse"
    try:
        profile = Lab().profile(
            plan, ProfileOptions(loss=False, levels=None if sparse else (0.9,), int8=True, time_s=time_s)
        )
    except InferlabError as error:
        print(f"{engine} has no profile: {error}")
        return None
    file = folder / f"{engine}.json"
    file.write_text(render(profile, ".json"))
    return str(file)


def _optimised(
    model: str,
    recipe: Recipe,
    folder: Path,
    engines: Sequence[str] = (),
    time_s: float = 10.0,
    profile: str | None = None,
    data: str | None = None,
) -> Optimization | None:
    options = VersionOptions(
        recipe,
        str(folder / "out.onnx"),
        data_file=data,
        engines=tuple(engines),
        time_s=time_s,
        performance_id=profile,
        loss_id=profile,
    )
    try:
        return Lab().optimize(Plan(model, engines=tuple(engines) or ("onnxruntime",)), options)
    except InferlabError as error:
        print(f"  not made: {str(error)[:100]}", flush=True)
        return None


def _costs(optimization: Optimization) -> str:
    power = math.nan if optimization.distance is None else optimization.distance.relative_power
    size = optimization.optimized.size_bytes / optimization.model.size_bytes
    return f"{100 * size:4.0f}%  {100 * (optimization.optimized.zero_fraction or 0):4.0f}%  {_number(power)}"


def _number(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:8.2g}"


def _speed(measured: Measured) -> str:
    ends = measured.speedup_interval
    interval = (
        "(no interval)" if ends is None else f"({ends[0]:.2f} to {ends[1]:.2f}, {100 * measured.level:.3g} %)"
    )
    text = f"{measured.speedup:5.2f}x {interval:18} {measured.verdict:12}"
    if measured.predicted_speedup is None or measured.predicted_error is None:
        return f"{text}  {'-':>8}"
    return f"{text}  {measured.predicted_speedup:7.2f}x  {100 * measured.predicted_error:+.1f}%"


def trained() -> None:
    """Output distance by recipe: a CNN that finds text, on pages of digits; a transformer, on random letters."""
    with tempfile.TemporaryDirectory(prefix="inferlab-bench-") as name:
        folder = Path(name)
        for model, data in (("ppocrv4_det", _pages(folder / "pages.npz")), ("g2p_bert", None)):
            print(f"\n{model}\nrecipe                    size  zeros  distance")
            for label, recipe in DISTANCES.items():
                optimization = _optimised(str(real_model(model)), recipe, folder, data=data)
                if optimization is not None:
                    print(f"{label:24} {_costs(optimization)}", flush=True)


def accuracy() -> None:
    """Accuracy before and after: our own CNN on digits, and one trained on MNIST on digits made like those."""
    with tempfile.TemporaryDirectory(prefix="inferlab-bench-") as name:
        folder = Path(name)
        for model, data in (
            ("demo:digits", "demo:digits"),
            (str(real_model("mnist_cntk")), _like_mnist(folder / "digits.npz")),
        ):
            print(f"\n{Path(model).name}\nrecipe                    size  zeros  distance  accuracy  before")
            for label, recipe in DISTANCES.items():
                optimization = _optimised(model, recipe, folder, data=data)
                if optimization is not None and optimization.distance is not None:
                    right = optimization.distance.accuracy, optimization.distance.original_accuracy
                    shares = "  ".join("-" if share is None else f"{100 * share:7.1f}%" for share in right)
                    print(f"{label:24} {_costs(optimization)}  {shares}", flush=True)


def _pages(path: Path) -> str:
    """Lines of dark digits on white pages of 320 × 320, in the scale that the model takes images in."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    digits = load_digits().images[:960].reshape(8, 4, 30, 8, 8)
    pages = np.ones((8, 320, 320))
    for page, lines in enumerate(digits):
        for number, line in enumerate(lines):
            ink = zoom(np.concatenate(list(line[:12]), axis=1), 3, order=1).clip(0, 16) / 16
            top = 20 + 76 * number
            pages[page, top : top + ink.shape[0], 16 : 16 + ink.shape[1]] -= ink
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    images = (pages[:, None] - mean[:, None, None]) / deviation[:, None, None]
    np.savez(path, x=images.astype(np.float32))
    return str(path)


def _like_mnist(path: Path) -> str:
    """Scikit-learn's digits as MNIST has them: 20 × 20 in the middle of 28 × 28, 0 to 255."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    large = [np.pad(np.clip(zoom(image.reshape(8, 8), 2.5, order=1), 0, 16), 4) for image in images[:500]]
    np.savez(
        path, Input3=np.stack(large)[:, None].astype(np.float32) * 255 / 16, labels=labels[:500].astype(np.int64)
    )
    return str(path)


def goal(time_s: float) -> None:
    """Whether a goal is reached, or what shows that it cannot be."""
    for model, data, engine, text, loss in (
        ("demo:digits", "demo:digits", "onnxruntime", "3x smaller", "1%"),
        ("demo:mobilenet_v2", None, "openvino", "1.3x faster", "5%"),
        ("demo:bert_3layer", None, "onnxruntime", "1.5x faster", "1%"),
    ):
        print(f"\n{model} on {engine}: {text} within {loss}")
        with tempfile.TemporaryDirectory(prefix="inferlab-bench-") as folder:
            options = VersionOptions(
                Recipe(),
                str(Path(folder) / "out.onnx"),
                data_file=data,
                engines=(engine,),
                time_s=time_s,
                goal=parse_goal(text, loss),
                search_s=20 * time_s,
            )
            front, version = Lab().reach(Plan(model, engines=(engine,)), options)
            print("\n".join(results.lines(front)))
            for measured in version.measured if version else ():
                print(f"measured again: {_speed(measured)}", flush=True)


def main(parts: Sequence[str] = (), time_s: float = 30.0) -> None:
    """Print the figures of these parts, or of all."""
    programs: dict[str, Callable[[], None]] = {
        "resnet50": lambda: speeds("demo:resnet50", time_s),
        "bert": lambda: speeds("demo:bert_3layer", time_s),
        "trained": trained,
        "accuracy": accuracy,
        "goal": lambda: goal(time_s),
    }
    for part in parts or programs:
        programs[part]()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["resnet50", "bert", "trained", "accuracy", "goal"])
    parser.add_argument("--time", type=float, default=30.0, dest="time_s", help="seconds of each comparison")
    arguments = parser.parse_args()
    main(arguments.parts, arguments.time_s)
