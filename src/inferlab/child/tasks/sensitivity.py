"""What changes of weights do to a model's outputs, without a session for every change and level.

The graph is cut into a few segments, each a session that is made once. A change is tried in a session of only
what depends on its weights in their own segments, with these as inputs and all others constant; then the segments
behind them follow.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import protocol, pruning, scoring  # noqa: TID252
from ..parts import BFLOAT16, Feeds, Parts  # noqa: TID252

Answer = Tuple[Dict[str, Any], List[Any]]
Values = Dict[str, Any]

_LAYERS_A_SEGMENT = 8
_MOST_SEGMENTS = 16

# What stays from one request to the next: the trial, its choice of classes, the arena.
_kept: Dict[str, Any] = {}


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """One step: open a model with its first set of inputs, begin with other sets, or try one change."""
    if arguments["step"] == "change":
        return _kept["trial"].try_change(arguments["change"], arguments["levels"], arguments["limit"]), []
    inputs, labels = protocol.unpack_sets(arguments, blocks)
    if arguments["step"] == "begin":
        return _kept["trial"].begin(inputs, labels), []
    changes = {name: Change(**change) for name, change in arguments["changes"].items()}
    trial = _kept["trial"] = Trial(arguments["model"], changes, arguments["threads"])
    trial.plan(inputs[0])
    answer = trial.begin(inputs, labels)
    answer.update(spans=trial.spans, missing=trial.missing)
    answer["bytes"] = trial.bytes_of_a_set() if arguments["probe"] else 0
    return answer, []


class Change(NamedTuple):
    """Weights that change together: their smallest elements become zero, or they stop reading some channels."""

    #: By name; of channels the axis that they stand on, and the stretches of it where they do.
    weights: Dict[str, Optional[Tuple[int, Sequence[Sequence[int]]]]]
    #: The channels in the order in which they go.
    order: Sequence[int]

    def at(self, weight: str, array: Any, level: float) -> Any:
        """A weight as it is at a level."""
        place = self.weights[weight]
        if place is None:
            copy = array.copy()
            copy.reshape(-1)[pruning.smallest(array, level)] = 0
            return copy
        gone = self.order[: pruning.channels_removed(len(self.order), level)]
        return pruning.without_channels(array, place[0], place[1], gone)


class Segment(NamedTuple):
    """A stretch of the graph as a session, with what it is fed and what it gives."""

    begin: int
    end: int
    session: Any
    needs: List[str]
    gives: List[str]


class Trial:
    """A model in segments, the dense model's values between them, and the changes to try."""

    def __init__(self, model: str, changes: Dict[str, Change], threads: int) -> None:
        import onnxruntime

        self._module = onnxruntime
        self._threads = threads
        self._constants: Values = {}
        self._parts = Parts(model)
        self._changes = changes
        self._segments: List[Segment] = []
        self._dense: List[Values] = []
        self._outputs: List[Values] = []
        self._powers: Dict[str, float] = {}
        self._labels: Optional[List[Any]] = None
        self._fetched: Tuple[Tuple[int, int], List[Values]] = ((-1, -1), [])
        self.spans: Dict[str, List[int]] = {}
        self.missing: List[str] = []

    def plan(self, inputs: Values) -> None:
        """Cut the graph, in one piece where values that are no tensors cross the cuts."""
        weights = sum(len(change.weights) for change in self._changes.values())
        count = max(1, min(_MOST_SEGMENTS, weights // _LAYERS_A_SEGMENT))
        try:
            self._cut(count, inputs)
        except Exception:
            if count == 1:
                raise
            self._cut(1, inputs)
        self.spans, self.missing = {}, []
        for name, change in self._changes.items():
            stored = all(self._parts.has(weight) for weight in change.weights)
            uses = self._parts.uses(change.weights) if stored else []
            within = [
                number
                for number, segment in enumerate(self._segments)
                if uses and uses[0] < segment.end and (number == 0 or self._segments[number - 1].end <= uses[-1])
            ]
            if within:
                self.spans[name] = [within[0], within[-1] + 1]
            else:
                self.missing.append(name)

    def begin(self, inputs: Sequence[Values], labels: Optional[List[Any]]) -> Dict[str, Any]:
        """Run the dense model on these sets, and keep what crosses the cuts."""
        self._fetched = ((-1, -1), [])
        self._dense = [self._as_values(values) for values in inputs]
        for segment in self._segments:
            for values in self._dense:
                values.update(_run(segment.session, segment.needs, segment.gives, values))
        self._outputs = [self._read(values) for values in self._dense]
        self._labels = labels
        self._powers = scoring.powers(self._outputs)
        answer: Dict[str, Any] = {"powers": self._powers}
        if labels is not None:
            if "classes" not in _kept:
                _kept["classes"] = scoring.Classes(self._outputs, labels)
            answer["score"] = _kept["classes"].score(self._outputs, labels)
            answer["classes"] = _kept["classes"].count
        return answer

    def try_change(self, name: str, levels: Sequence[float], limit: Optional[float]) -> Dict[str, Any]:
        """The sums that the outputs come to with a change at each level.

        Levels above the first whose relative power reaches the limit are not tried.
        """
        change = self._changes[name]
        arrays = {weight: self._parts.weight(weight) for weight in change.weights}
        if any(map(pruning.count_nan, arrays.values())):
            return {"nan": True, "levels": [None] * len(levels)}
        begin, end = self.spans[name]
        nodes = self._nodes_of(name)
        needs = [value for value in self._parts.needed_by(nodes) if value not in arrays]
        made = self._parts.made_by(nodes)
        gives = [value for segment in self._segments[begin:end] for value in segment.gives if value in made]
        if not gives:
            return {"nan": False, "levels": [self._sums(self._outputs)] * len(levels)}
        cached = self._fetch(begin, end)
        kinds = {weight: self._parts.type_of(weight) for weight in arrays}
        weights = {weight: (kinds[weight], array.shape) for weight, array in arrays.items()}
        session = self._session(nodes, {**_feeds(cached[0], needs), **weights}, gives)
        # Levels nest, so two that leave as many elements are the same; those of zeros alone change nothing.
        by_count = {sum(map(_nonzero, arrays.values())): self._sums(self._outputs)}
        sums = []
        for level in levels:
            changed = {weight: change.at(weight, array, level) for weight, array in arrays.items()}
            left = sum(map(_nonzero, changed.values()))
            if left not in by_count:
                fed = {weight: self._value(array, kinds[weight]) for weight, array in changed.items()}
                results = [_run(session, [*needs, *fed], gives, {**values, **fed}) for values in cached]
                by_count[left] = self._sums(self._follow(results, end))
            sums.append(by_count[left])
            loss = None if limit is None else scoring.relative_power(by_count[left], self._powers)
            if loss is not None and limit is not None and loss >= limit:
                break
        return {"nan": False, "levels": sums}

    def bytes_of_a_set(self) -> int:
        """The most that is kept for one set of inputs at a time: dense values, and what a trial makes of them."""
        crossing = sum(_bytes(value) for value in self._dense[0].values())
        most = 0
        for begin, end in sorted({tuple(span) for span in self.spans.values()}):
            cached = self._fetch(begin, end)[0]
            most = max(most, sum(_bytes(cached[name]) for name in cached.keys() - self._dense[0].keys()))
        self._fetched = ((-1, -1), [])
        return 2 * crossing + most

    def _follow(self, changed: Sequence[Values], end: int) -> List[Values]:
        """The outputs of all sets once the segments from `end` on have run on what changed.

        All sets go through a segment before the next: its weights are in the cache then.
        """
        for later in self._segments[end:]:
            for dense, values in zip(self._dense, changed):
                if any(name in values for name in later.needs):
                    values.update(_run(later.session, later.needs, later.gives, {**dense, **values}))
        # Outputs that did not change are the dense model's very own.
        return [{**outputs, **self._read(values)} for outputs, values in zip(self._outputs, changed)]

    def _sums(self, outputs: Sequence[Values]) -> scoring.Sums:
        if self._labels is None:
            return scoring.changes(self._outputs, outputs, scoring.finite(self._powers))
        classes: scoring.Classes = _kept["classes"]
        return classes.score(outputs, self._labels)

    def _cut(self, count: int, inputs: Values) -> None:
        """Make the segments; the values that reach each of them tell the types and shapes it is fed."""
        self._segments = []
        values = self._as_values(inputs)
        places = self._parts.cuts(count)
        for begin, end in zip(places, places[1:]):
            nodes = self._parts.moving(begin, end)
            made = self._parts.made_by(nodes)
            gives = sorted({*self._parts.read_later(made, end), *(made & set(self._parts.outputs))})
            if not gives:
                continue
            needs = self._parts.needed_by(nodes)
            session = self._session(nodes, _feeds(values, needs), gives)
            values.update(_run(session, needs, gives, values))
            self._segments.append(Segment(begin, end, session, needs, gives))

    def _fetch(self, begin: int, end: int) -> List[Values]:
        """What the changes of some segments need of the dense model, for every set; the last answer is kept."""
        if self._fetched[0] == (begin, end):
            return self._fetched[1]
        self._fetched = ((-1, -1), [])
        wanted = set()
        for name, span in self.spans.items():
            if span == [begin, end]:
                needs = self._parts.needed_by(self._nodes_of(name))
                wanted.update(set(needs) - self._changes[name].weights.keys())
        wanted -= self._dense[0].keys()
        cached = [dict(values) for values in self._dense]
        if wanted:
            nodes = self._parts.moving(self._segments[begin].begin, self._segments[end - 1].end)
            needs, gives = self._parts.needed_by(nodes), sorted(wanted)
            session = self._session(nodes, _feeds(cached[0], needs), gives)
            for values in cached:
                values.update(_run(session, needs, gives, values))
        self._fetched = ((begin, end), cached)
        return cached

    def _nodes_of(self, name: str) -> List[int]:
        return self._parts.after(self._changes[name].weights, self._segments[self.spans[name][1] - 1].end)

    def _as_values(self, inputs: Values) -> Values:
        return {name: self._module.OrtValue.ortvalue_from_numpy(value) for name, value in inputs.items()}

    def _value(self, array: Any, kind: int) -> Any:
        """A weight as sessions take it; it stays where it is."""
        value = self._module.OrtValue
        if kind == BFLOAT16:
            return value.ortvalue_from_numpy_with_onnx_type(array, kind)
        return value.ortvalue_from_numpy(array)

    def _read(self, values: Values) -> Values:
        """Those of the values that are outputs, as arrays."""
        return {name: values[name].numpy() for name in self._parts.outputs if name in values}

    def _session(self, nodes: Sequence[int], feeds: Feeds, gives: Sequence[str]) -> Any:
        """A session of some nodes; all sessions share their large constants."""
        model, lacking = self._parts.part(nodes, feeds, gives)
        for name in lacking:
            if name not in self._constants:
                self._constants[name] = self._value(self._parts.weight(name), self._parts.type_of(name))
        options = shared_options(self._module, self._threads)
        options.add_external_initializers(lacking, [self._constants[name] for name in lacking])
        return self._module.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def shared_options(module: Any, threads: int) -> Any:
    """Options of sessions that share one arena: each new one finds its memory warm."""
    if "arena" not in _kept:
        place = module.OrtMemoryInfo(
            "Cpu", module.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, module.OrtMemType.DEFAULT
        )
        module.create_and_register_allocator(place, None)
        _kept["arena"] = place
    options = module.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _run(session: Any, needs: Sequence[str], gives: Sequence[str], values: Values) -> Values:
    return dict(zip(gives, session.run_with_ort_values(gives, {name: values[name] for name in needs})))


def _feeds(values: Values, names: Sequence[str]) -> Dict[str, Tuple[int, List[int]]]:
    return {name: (values[name].element_type(), values[name].shape()) for name in names}


def _bytes(value: Any) -> int:
    return int(value.tensor_size_in_bytes())


def _nonzero(array: Any) -> int:
    import numpy

    return int(numpy.count_nonzero(array))
