"""The child's entry point, started by its path: reads requests from a pipe, answers them, ends with its parent."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Any, BinaryIO, Dict, List, Tuple

# How engines written in C++ say it.
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|bad allocation|out of memory|not enough memory|cannot allocate memory|can't allocate memory"
    r"|failed to allocate memory",
    re.IGNORECASE,
)


def main() -> None:
    """Serve requests until told to stop or until the parent is gone."""
    package = _become_package()
    requests, answers = _private_pipes()
    from inferlab_child import processes, session

    assert package.__name__ == "inferlab_child"
    processes.die_with_parent()
    while True:
        processes.become_subreaper()
        child = session.Session()
        signal.signal(signal.SIGINT, lambda *_, child=child: child.cut_short())
        if not _serve(child, requests, answers):
            return
        # What is imported now, every session finds: each is a process of its own, forked from this one.
        if not processes.fork_for_each_session(requests, answers):
            return
        processes.die_with_parent()


def _serve(child: Any, requests: BinaryIO, answers: BinaryIO) -> bool:
    """Answer the requests of one session; True where it only prepared this process for later ones."""
    from inferlab_child import processes, protocol

    while True:
        try:
            message, blocks = protocol.receive(requests)
        except protocol.Closed:
            return False
        if message["do"] == "stop":
            child.close()
            sys.stdout.flush()
            sys.stderr.flush()
            if processes.have_children():
                processes.end_descendants(os.getpid())
            # An interpreter with PyTorch in it takes more than a second to take itself apart.
            os._exit(0)
        answer, out = _answer(child, message, blocks)
        protocol.send(answers, answer, out)
        if message["do"] == "prepare" and answer.get("forkable"):
            return True


def _answer(child: Any, message: Dict[str, Any], blocks: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    try:
        answer, out = child.handle(message, blocks)
        return {"ok": True, **answer}, out
    except Exception as error:
        kind = _kind(error)
        if kind == "engine":
            import traceback

            traceback.print_exc()  # into the log that the parent keeps
        text = str(error) or type(error).__name__
        return {"ok": False, "kind": kind, "type": type(error).__name__, "text": text}, []


def _kind(error: Exception) -> str:
    names = [kind.__name__ for kind in type(error).__mro__]
    if "BadOption" in names:
        return "input"
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        return "memory"
    return "missing" if isinstance(error, ImportError) else "engine"


def _become_package() -> Any:
    """Make this folder importable as the package `inferlab_child`, without its parent folder.

    Run by path, Python puts this folder first on the path, where our module names would hide others.
    """
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.util.spec_from_file_location(
        "inferlab_child", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["inferlab_child"] = package
    spec.loader.exec_module(package)
    return package


def _private_pipes() -> Tuple[BinaryIO, BinaryIO]:
    """Take standard input and output for ourselves: what an engine prints goes to the log instead."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(0, closefd=False)
    return requests, answers


if __name__ == "__main__":
    main()
