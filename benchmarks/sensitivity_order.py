"""Does the order of layers by sensitivity agree with really pruning each layer and counting errors?

Small networks of three architectures are trained on scikit-learn's digits, each with a split of its own. The
truth of a layer is its mean number of errors on the held-back digits, over all levels, in really pruned copies
that ONNX Runtime runs. Of every two layers of a network, a profile should put the one with fewer errors first.
Needs torch and scikit-learn.
"""

from __future__ import annotations

import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs
from inferlab.model.inputs import Data, load_data
from inferlab.model.onnx_file import read_onnx
from inferlab.model.shapes import resolve
from inferlab.profiling.loss import approximate, curve_area, measure
from inferlab.records import Model
from inferlab.records.profile import LEVELS, LossProfile
from inferlab.transform.prune import prune

EPOCHS = 40
BATCH = 32
#: Two layers are clearly apart if one makes more than so many times the errors of the other.
APART = 1.2
CAPPED, PLAIN, POWER, APPROXIMATED = WAYS = (
    "sensitivity, with the cap",
    "plain area, without the cap",
    "relative power, without labels",
    "approximated",
)


def cnn() -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def convolutions() -> nn.Module:
    """Three convolutions, the mean of what they found, and one dense layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def perceptron() -> nn.Module:
    """Four dense layers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(),
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


ARCHITECTURES: tuple[Callable[[], nn.Module], ...] = (cnn, convolutions, perceptron)


MEAN = "their mean over the levels"
#: Two means of errors, of the dense model first and then at every level. The levels lie closer to each other the
#: higher they are, so the plain mean is mostly of high ones; the area weighs them as the sensitivity does.
TRUTHS: dict[str, Callable[[list[int]], float]] = {
    MEAN: lambda counts: sum(counts[1:]) / len(LEVELS),
    "the area under their curve": lambda counts: (
        counts[0] + known(curve_area(LEVELS, [count - counts[0] for count in counts[1:]]))
    ),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two layers of a network: how many times the errors of the better the worse makes, and who put them right."""

    architecture: str
    ratio: float
    right: frozenset[str]


def main(seeds: int = 6, first: int = 1) -> None:
    """Print how many pairs of layers each way puts right, of each architecture and of all networks together."""
    torch.set_num_threads(1)
    found: dict[str, list[Pair]] = {truth: [] for truth in TRUTHS}
    for make in ARCHITECTURES:
        for seed in range(first, first + seeds):
            with tempfile.TemporaryDirectory() as folder:
                for truth, pairs in compare(make, seed, Path(folder)).items():
                    found[truth] += pairs
    for truth, pairs in found.items():
        print(f"\n## errors: {truth}; pairs of equal errors have no order and are left out")
        for make in ARCHITECTURES:
            show(make.__name__, [pair for pair in pairs if pair.architecture == make.__name__])
        show(f"all {seeds * len(ARCHITECTURES)} networks", pairs)
        for chosen, what in ((pairs, "all pairs"), (apart(pairs), "those clearly apart")):
            only_capped = sum(CAPPED in one.right and PLAIN not in one.right for one in chosen)
            only_plain = sum(PLAIN in one.right and CAPPED not in one.right for one in chosen)
            print(f"of {what}, right only with the cap: {only_capped}, only without it: {only_plain}")


def compare(make: Callable[[], nn.Module], seed: int, folder: Path) -> dict[str, list[Pair]]:
    """All pairs of a network's layers that have an order by errors, for each truth."""
    model, data = trained(make, seed, folder)
    counted = costs(model, resolve(model.inputs, 1, None, {}).shapes)
    profile = measure(model, counted, data)
    scores = judged(model, counted, data, profile)
    counts = {weight: errors(model, data, weight, folder / "pruned") for weight in scores[CAPPED]}
    wrong = {truth: {weight: mean(count) for weight, count in counts.items()} for truth, mean in TRUTHS.items()}
    shown = (
        f"{wrong[MEAN][one]:.1f} ({scores[CAPPED][one]:.3f}, {scores[PLAIN][one]:.3f})" for one in wrong[MEAN]
    )
    print(
        f"# {make.__name__} {seed}: {profile.dense_accuracy:.1%} right of {data.items}; "
        f"mean errors of each layer (sensitivity, plain area): {', '.join(shown)}",
        flush=True,
    )
    return {truth: list(in_pairs(make.__name__, one, scores)) for truth, one in wrong.items()}


def in_pairs(
    architecture: str, wrong: Mapping[str, float], scores: Mapping[str, Mapping[str, float]]
) -> Iterator[Pair]:
    """Every two layers whose errors differ."""
    for one, other in combinations(wrong, 2):
        if wrong[one] != wrong[other]:
            better, worse = sorted((one, other), key=wrong.__getitem__)
            # A tie of a score is no order, so it does not count as right.
            right = frozenset(way for way in WAYS if scores[way][better] < scores[way][worse])
            yield Pair(architecture, wrong[worse] / wrong[better] if wrong[better] else math.inf, right)


def trained(make: Callable[[], nn.Module], seed: int, folder: Path) -> tuple[Model, Data]:
    """A network that the seed decides, as ONNX, and the 30 % of the digits that it never saw."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    x, held, y, held_labels = train_test_split(images, labels, test_size=0.3, random_state=seed, stratify=labels)
    torch.manual_seed(seed)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    given, wanted = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(wanted)).split(BATCH):
            loss = nn.functional.cross_entropy(network(given[chosen]), wanted[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter calls itself old
        torch.onnx.export(
            network.eval(),
            (given[:1],),
            str(folder / "model.onnx"),
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    np.savez(folder / "held.npz", image=held, labels=held_labels)
    model = read_onnx(folder / "model.onnx", make.__name__)
    return model, load_data(folder / "held.npz", model.inputs, model.outputs)


def judged(model: Model, counted: Costs, data: Data, profile: LossProfile) -> dict[str, dict[str, float]]:
    """What each way says of each weight: the less, the better it can be pruned."""
    assert not profile.left_out, profile.left_out
    plain = {layer.weight: known(curve_area(LEVELS, layer.losses.values())) for layer in profile.layers}
    return {
        CAPPED: sensitivities(profile),
        PLAIN: plain,
        POWER: sensitivities(measure(model, counted, replace(data, labels=None))),
        APPROXIMATED: sensitivities(approximate(model, counted)),
    }


def sensitivities(profile: LossProfile) -> dict[str, float]:
    """The sensitivity of each weight."""
    return {layer.weight: known(layer.sensitivity) for layer in profile.layers}


def known(value: float | None) -> float:
    """The value, which must be there."""
    assert value is not None
    return value


def errors(model: Model, data: Data, weight: str, folder: Path) -> list[int]:
    """The wrong answers of really pruned copies: with the weight dense, then at every level."""
    assert data.labels is not None
    images = np.concatenate([one["image"] for one in data.sets])
    labels = np.concatenate(data.labels)
    counts = []
    for level in (0.0, *LEVELS):
        session = onnxruntime.InferenceSession(
            prune(model, {weight: level}, folder).path, providers=["CPUExecutionProvider"]
        )
        answers: Any = session.run(None, {"image": images})[0]
        counts.append(int((answers.argmax(axis=-1) != labels).sum()))
    return counts


def apart(pairs: Iterable[Pair]) -> list[Pair]:
    """Those whose errors are clearly apart."""
    return [pair for pair in pairs if pair.ratio > APART]


def show(what: str, pairs: list[Pair]) -> None:
    """Print a table of how many of all pairs, and of those clearly apart, each way puts right."""
    print(f"{what:32}{'all pairs':>18}{f'more than {APART - 1:.0%} apart':>26}")
    for way in WAYS:
        cells = []
        for chosen in (pairs, apart(pairs)):
            right = sum(way in one.right for one in chosen)
            cells.append(f"{right} of {len(chosen)}, {right / max(len(chosen), 1):.0%}")
        print(f"  {way:30}{cells[0]:>18}{cells[1]:>26}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
