"""What pruning one weight does to a model's outputs, without a session for every weight and level.

The graph is cut into a few segments, each a session that is made once. A weight is tried in a session of only
what depends on it in its own segment, with the weight as an input and all others constant; then the segments
behind it follow.
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
    """One step: open a model with its first set of inputs, begin with other sets, or try one weight."""
    if arguments["step"] == "weight":
        return _kept["trial"].try_weight(arguments["weight"], arguments["levels"], arguments["limit"]), []
    inputs, labels = protocol.unpack_sets(arguments, blocks)
    if arguments["step"] == "begin":
        return _kept["trial"].begin(inputs, labels), []
    trial = _kept["trial"] = Trial(arguments["model"], arguments["weights"], arguments["threads"])
    trial.plan(inputs[0])
    answer = trial.begin(inputs, labels)
    answer.update(spans=trial.spans, missing=trial.missing)
    answer["bytes"] = trial.bytes_of_a_set() if arguments["probe"] else 0
    return answer, []


class Segment(NamedTuple):
    """A stretch of the graph as a session, with what it is fed and what it gives."""

    begin: int
    end: int
    session: Any
    needs: List[str]
    gives: List[str]


class Trial:
    """A model in segments, the dense model's values between them, and the weights to try."""

    def __init__(self, model: str, weights: Sequence[str], threads: int) -> None:
        import onnxruntime

        self._module = onnxruntime
        self._threads = threads
        self._constants: Values = {}
        self._parts = Parts(model)
        self._weights = weights
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
        count = max(1, min(_MOST_SEGMENTS, len(self._weights) // _LAYERS_A_SEGMENT))
        try:
            self._cut(count, inputs)
        except Exception:
            if count == 1:
                raise
            self._cut(1, inputs)
        self.spans, self.missing = {}, []
        for weight in self._weights:
            uses = self._parts.uses(weight) if self._parts.has(weight) else []
            ends = [number for number, segment in enumerate(self._segments) if uses and uses[0] < segment.end]
            if not ends:
                self.missing.append(weight)
                continue
            # A weight that other segments use as well is tried with all that follows in one piece.
            alone = uses[-1] < self._segments[ends[0]].end
            self.spans[weight] = [ends[0], ends[0] + 1 if alone else len(self._segments)]

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

    def try_weight(self, weight: str, levels: Sequence[float], limit: Optional[float]) -> Dict[str, Any]:
        """The sums that the outputs come to with the weight pruned to each level.

        Levels above the first whose relative power reaches the limit are not tried.
        """
        array, kind = self._parts.weight(weight), self._parts.type_of(weight)
        if pruning.count_nan(array):
            return {"nan": True, "levels": [None] * len(levels)}
        begin, end = self.spans[weight]
        nodes = self._nodes_of(weight)
        needs = [name for name in self._parts.needed_by(nodes) if name != weight]
        made = self._parts.made_by(nodes)
        gives = [name for segment in self._segments[begin:end] for name in segment.gives if name in made]
        if not gives:
            return {"nan": False, "levels": [self._sums(self._outputs)] * len(levels)}
        cached = self._fetch(begin, end)
        feeds = {**_feeds(cached[0], needs), weight: (kind, array.shape)}
        session = self._session(nodes, feeds, gives)
        # Levels nest, so two that leave as many weights are the same; those of zeros alone change nothing.
        by_count = {_nonzero(array): self._sums(self._outputs)}
        sums = []
        for level in levels:
            pruned = _pruned(array, level)
            left = _nonzero(pruned)
            if left not in by_count:
                value = self._value(pruned, kind)
                changed = [_run(session, [*needs, weight], gives, {**values, weight: value}) for values in cached]
                by_count[left] = self._sums(self._follow(changed, end))
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
        """What the weights of some segments need of the dense model, for every set; the last answer is kept."""
        if self._fetched[0] == (begin, end):
            return self._fetched[1]
        self._fetched = ((-1, -1), [])
        wanted = set()
        for weight, span in self.spans.items():
            if span == [begin, end]:
                wanted.update(set(self._parts.needed_by(self._nodes_of(weight))) - {weight})
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

    def _nodes_of(self, weight: str) -> List[int]:
        return self._parts.after(weight, self._segments[self.spans[weight][1] - 1].end)

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


def _pruned(array: Any, level: float) -> Any:
    copy = array.copy()
    copy.reshape(-1)[pruning.smallest(array, level)] = 0
    return copy
