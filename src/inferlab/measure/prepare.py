"""The old place of what `measure.cells` and `measure.check` have, for imports that are being edited."""

from inferlab.measure.cells import Job
from inferlab.measure.check import cache_outputs, read_cached

__all__ = ["Job", "cache_outputs", "read_cached"]
