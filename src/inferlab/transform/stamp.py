"""Write a copy of an ONNX model that carries notes in its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from inferlab.confined import confined
from inferlab.model.graph import parse_onnx
from inferlab.records import Model
from inferlab.transform.copies import target_of, write


@confined(reads=["model"], writes=["folder"])
def stamp(model: Model, folder: Path, metadata: Mapping[str, str]) -> Model:
    """Write a copy into `folder` with these notes in its metadata; an older note of the same name goes."""
    target = target_of(model, folder, "given notes")
    proto = parse_onnx(Path(model.path))
    kept = [one for one in proto.metadata_props if one.key not in metadata]
    proto.ClearField("metadata_props")
    proto.metadata_props.extend(kept)
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return write(proto, Path(model.path), target, "finished")
