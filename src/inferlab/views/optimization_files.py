"""An optimised version as a JSON file, and read again from one."""

from __future__ import annotations

from inferlab.records.optimization import FORMAT, Optimization
from inferlab.views.record_files import RecordFiles


def _check(version: Optimization) -> None:
    """Refuse what no measurement gives, and what views divide by; a ValueError says why."""
    if not all(one.ms > 0 and one.original_ms > 0 and one.speedup > 0 for one in version.measured):
        raise ValueError("a time is not more than 0")


_COMMAND = "inferlab optimize MODEL -o out.onnx -x version.json"
_FILES = RecordFiles(Optimization, FORMAT, "report of an optimised version", _COMMAND, _check)
content, to_json, from_content, load = _FILES.content, _FILES.to_json, _FILES.from_content, _FILES.load
