"""What holds for all tests."""

from __future__ import annotations

import signal

# Started in the background (CI does it), we are told to ignore Ctrl-C, and so would be every command under test.
signal.signal(signal.SIGINT, signal.default_int_handler)
