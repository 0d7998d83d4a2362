"""Run a model and a changed copy of it on the same inputs, and say how far apart they are."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .. import protocol, scoring  # noqa: TID252


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """The sums of both models' outputs, with labels those of cross-entropy and right answers."""
    inputs, labels = protocol.unpack_sets(arguments, blocks)
    dense = outputs(arguments["dense"], inputs, arguments["threads"])
    changed = outputs(arguments["changed"], inputs, arguments["threads"])
    powers = scoring.powers(dense)
    answer: Dict[str, Any] = {"powers": powers, "changes": scoring.changes(dense, changed, scoring.finite(powers))}
    if labels is not None:
        classes = scoring.Classes(dense, labels)
        answer.update(score=classes.score(dense, labels), changed_score=classes.score(changed, labels))
    return answer, []


def outputs(model: str, inputs: List[Dict[str, Any]], threads: int = 0) -> List[Dict[str, Any]]:
    """What a model gives for each set of inputs, by name; on all cores where no number of threads is given."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs() if output.type.startswith("tensor(")]
    return [dict(zip(names, session.run(names, one))) for one in inputs]
