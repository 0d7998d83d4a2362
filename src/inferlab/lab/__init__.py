"""The front door: what the command line, the pages and other people's code call."""

from inferlab.lab.lab import Lab, read_model

__all__ = ["Lab", "read_model"]
