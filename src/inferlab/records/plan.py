"""The old place of `records.benchmark`, for imports that are being edited."""

from inferlab.records.benchmark import *  # noqa: F403
