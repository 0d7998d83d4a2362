"""The store as commands name and open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from inferlab.cli.progress import Log

if TYPE_CHECKING:
    from inferlab.store.store import Store

_STORE = "A path or postgresql:// URL.  [default: $INFERLAB_STORE, or your own store]"


def store_option(command: Any) -> Any:
    """Give a command the option --store."""
    return click.option("--store", "store_url", metavar="URL", help=_STORE)(command)


def saving_options(command: Any) -> Any:
    """Give a command that measures the options --store and --no-save."""
    add: Callable[[Any], Any] = click.option(
        "--no-save", is_flag=True, help="Do not save the result in the store."
    )
    return store_option(add(command))


@contextmanager
def opened(store_url: str | None, make: bool = False) -> Iterator[Store]:
    """The store that a command reads or changes; one that is not there is made only where that is wanted."""
    from inferlab.store import open_store

    with open_store(store_url, make) as store:
        yield store


def saving(store_url: str | None, no_save: bool, log: Log) -> AbstractContextManager[Store | None]:
    """The store to save results in, or None."""
    from inferlab.store import saving_store

    return nullcontext() if no_save else saving_store(store_url, log)
