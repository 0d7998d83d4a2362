"""What can go wrong, each with the exit code that the command line gives it."""

from __future__ import annotations


class InferlabError(Exception):
    """A fault of ours: the base of every error that inferlab raises."""

    exit_code = 70


class BadInput(InferlabError):
    """What the user gave cannot be used; the message says what, which, and what to do next."""

    exit_code = 2


class EngineRefused(BadInput):
    """An engine answered that it cannot run this model in this way."""


class EngineFailed(InferlabError):
    """An engine's process aborted, hung, was killed or broke in the middle of its work."""

    exit_code = 3


class EngineHung(EngineFailed):
    """An engine's process did not answer for longer than our patience."""
