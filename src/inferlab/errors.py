"""What can go wrong, each with the exit code that the command line gives it."""

from __future__ import annotations


class InferlabError(Exception):
    """A fault of ours: the base of every error that inferlab raises."""

    exit_code = 70


class BadInput(InferlabError, ValueError):
    """What the user gave cannot be used; the message says what, which, and what to do next.

    It is a ValueError too, as Python programs expect of a wrong argument.
    """

    exit_code = 2


class Damaged(BadInput):
    """A file holds what cannot be; the message is a clause that says what, without the file's name."""


class NotThere(BadInput):
    """What the user named does not exist, or no longer."""


class Conflict(BadInput):
    """What the user asks for cannot be done with something in the state that it is in."""


class TooLarge(BadInput):
    """What the user sent is larger than what is taken."""


class NotSaved(InferlabError):
    """What was to be saved could not be written: a store or a disk that is full, locked or read-only."""

    exit_code = 6


class TooMany(BadInput):
    """The limit on how many there may be at once is reached."""


class EngineRefused(BadInput):
    """An engine answered that it cannot run this model in this way."""


class EngineFailed(InferlabError):
    """An engine's process aborted, hung, was killed or broke in the middle of its work."""

    exit_code = 3


class EngineDied(EngineFailed):
    """An engine's process ended; `signal` is the name of what ended it, empty where it ended by itself."""

    def __init__(self, message: str, signal: str) -> None:
        super().__init__(message)
        self.signal = signal


class EngineHung(EngineFailed):
    """An engine's process did not answer for longer than our patience."""


class GoalNotReached(InferlabError):
    """No recipe surely reaches the goal, or the chosen one missed it when it was measured again.

    `front` is all that was found, `version` the model that was made, where there is one.
    """

    exit_code = 1

    def __init__(self, message: str, front: object, version: object = None) -> None:
        super().__init__(message)
        self.front = front
        self.version = version


def keep(error: BaseException) -> str:
    """Keep the details of a fault of ours in a file, and say where."""
    import traceback

    return keep_text("".join(traceback.format_exception(error)))


def keep_text(details: str) -> str:
    """Keep the details of a fault in a file, and say where."""
    import tempfile

    from inferlab.units import escape_controls

    try:
        with tempfile.NamedTemporaryFile("w", prefix="inferlab-fault-", suffix=".txt", delete=False) as file:
            file.write(escape_controls(details))
    except OSError as problem:
        return f"Its details could not be kept: {problem}."
    return f"The details are in {file.name}; please report them."
