"""How far outputs are from those of the dense model, or from the truth; as sums that add up over inputs."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from .engines.base import BadOption

#: A label that does not count.
IGNORED = -100
#: The relative power of a change that leaves nothing: two unrelated outputs of equal power are so far apart.
UNRELATED = 2.0
_LEAST_PROBABILITY = 1e-12

Outputs = Mapping[str, Any]
Sums = Optional[Dict[str, float]]


def powers(outputs: Sequence[Outputs]) -> Dict[str, float]:
    """The sum of squares of every output of real numbers; NaN where one of its elements is not finite."""
    found = {name: sum(_power(output[name]) for output in outputs) for name in _floats(outputs[0])}
    return {name: value if math.isfinite(value) else math.nan for name, value in found.items()}


def changes(dense: Sequence[Outputs], pruned: Sequence[Outputs], names: Iterable[str]) -> Sums:
    """The sum of squares of each output's change; None where shapes differ or a number is not finite."""
    found: Dict[str, float] = {}
    for name in names:
        found[name] = 0.0
        for one, other in zip(dense, pruned):
            if one[name].shape != other[name].shape:
                return None
            if one[name] is not other[name]:
                wide = other[name] if other[name].dtype.itemsize > 2 else other[name].astype("f4")
                found[name] += _power(wide - one[name])
    return found if all(map(math.isfinite, found.values())) else None


def relative_power(sums: Optional[Mapping[str, float]], dense: Mapping[str, float]) -> Optional[float]:
    """The mean over outputs of the change's power over the output's; an output of zeros has no scale."""
    if sums is None:
        return None
    shares = [change / dense[name] for name, change in sums.items() if dense[name] > 0]
    return sum(shares) / len(shares) if shares else None


def finite(sums: Mapping[str, float]) -> List[str]:
    """The outputs whose power is a number."""
    return [name for name, value in sums.items() if math.isfinite(value)]


class Classes:
    """The output that has the classes, and whether it gives probabilities or logits."""

    def __init__(self, outputs: Sequence[Outputs], labels: Sequence[Any]) -> None:
        import numpy

        most = max(int(label.max()) for label in labels)
        fitting = [
            name
            for name in _floats(outputs[0])
            if (rows := _rows(outputs[0][name], labels[0])) is not None and rows.shape[-1] > most
        ]
        if not fitting:
            raise BadOption(
                "no output has classes for the labels, which have the shape {} and go up to {}".format(
                    list(labels[0].shape), most
                )
            )
        self.name = fitting[0]
        values = outputs[0][self.name].astype("f8")
        rows = _rows(values, labels[0])
        self.count = int(rows.shape[-1])
        self.probabilities = bool((rows >= 0).all() and numpy.allclose(rows.sum(axis=-1), 1, atol=1e-3))

    def score(self, outputs: Sequence[Outputs], labels: Sequence[Any]) -> Sums:
        """Sums of the cross-entropy and of right answers over all labels that count; None where not finite."""
        import numpy

        total = {"entropy": 0.0, "right": 0, "count": 0}
        for output, truth in zip(outputs, labels):
            rows = _rows(output[self.name], truth)
            if rows is None or not numpy.isfinite(rows).all():
                return None
            counted = truth.reshape(-1) != IGNORED
            rows, wanted = rows.reshape(-1, rows.shape[-1])[counted].astype("f8"), truth.reshape(-1)[counted]
            logs = numpy.log(numpy.maximum(rows, _LEAST_PROBABILITY)) if self.probabilities else _log_softmax(rows)
            total["entropy"] -= float(logs[numpy.arange(len(wanted)), wanted].sum())
            total["right"] += int(numpy.count_nonzero(rows.argmax(axis=-1) == wanted))
            total["count"] += len(wanted)
        return total


def _floats(outputs: Outputs) -> List[str]:
    return [name for name, value in outputs.items() if value.dtype.kind == "f"]


def _power(values: Any) -> float:
    """The sum of squares in double precision, without a copy in it and without the threads of a dot product."""
    import numpy

    flat = values.reshape(-1)
    return float(numpy.einsum("i,i->", flat, flat, dtype="f8"))


def _rows(values: Any, labels: Any) -> Any:
    """The values with the classes last, one row for each label; None where they do not fit."""
    if values.ndim < 2 or labels.ndim < 1:
        return None
    if values.shape[:-1] == labels.shape:
        return values
    # Images: [n, classes, 1, 1] or [n, classes, height, width].
    if values.ndim > 2 and values.shape[:1] + values.shape[2:] == labels.shape + (1,) * (
        values.ndim - 1 - labels.ndim
    ):
        return values.reshape(values.shape[:2] + labels.shape[1:]).transpose(0, *range(2, labels.ndim + 1), 1)
    return None


def _log_softmax(rows: Any) -> Any:
    import numpy

    shifted = rows - rows.max(axis=-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=-1, keepdims=True))
