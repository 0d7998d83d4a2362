"""The command, run in this process as the tests of the command line run it."""

from tests.cli.conftest import cache, environment, inferlab_here

__all__ = ["cache", "environment", "inferlab_here"]
