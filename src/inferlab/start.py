"""The first lines that run: from here on Ctrl-C ends the command without a word, until there is work to save."""

# What `signal` is made of; that one makes enumerations first, which takes longer than all of this.
import _signal  # type: ignore[import-not-found, unused-ignore]
import os


def main() -> None:
    """Run the command line; nothing of it is imported before Ctrl-C is handled."""
    # Whoever started us in the background may have told us to ignore it.
    heard = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if heard:
        _signal.signal(_signal.SIGINT, _leave)
    try:
        from inferlab.cli import main as run

        run()
    finally:
        # All is saved and printed: what Python does at its end can be cut short as well.
        if heard:
            _signal.signal(_signal.SIGINT, _leave)


def _leave(number: int, frame: object) -> None:
    """End at once: nothing was begun, or all is done."""
    os._exit(130)
