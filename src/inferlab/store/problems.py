"""What databases complain about, said in sentences."""

from __future__ import annotations

from inferlab.errors import BadInput, InferlabError, NotSaved


class NoStore(BadInput):
    """There is no such store, and whoever only wants to read must not make one."""


_DAMAGED = ("not a database", "malformed", "unsupported file format", "file is encrypted", "could not decode")


def sentence(label: str, error: BaseException, reached: bool = True) -> InferlabError:
    """A driver's error as one that says what happened to which store and what to do."""
    said = " ".join(str(error).split()) or type(error).__name__
    # PostgreSQL's own codes: lock not available, deadlock, disk full, read-only transaction or server.
    state = getattr(error, "sqlstate", None) or ""
    low = said.lower()
    # SQLite's own message can hold what is no UTF-8, out of a damaged file.
    if any(word in low for word in _DAMAGED) or isinstance(error, UnicodeError):
        return BadInput(
            f"The store {label} is damaged or no SQLite database ({said}). It was left as it is: move it away, "
            "then start anew or import an export."
        )
    if "is locked" in low or state in ("55P03", "40P01"):
        return NotSaved(
            f"The store {label} stayed locked by another program. Nothing was changed: end that program, "
            "or try again."
        )
    if "is full" in low or state == "53100":
        return NotSaved(
            f"The disk of the store {label} is full. What was saved before is intact; this was not saved. "
            "Make room."
        )
    if "readonly" in low or state == "25006":
        return NotSaved(f"The store {label} cannot be written to. Change its permissions or name another store.")
    if "disk i/o error" in low:
        return NotSaved(f"The disk of the store {label} refuses ({said}). It may be full or failing.")
    if "unable to open" in low:
        return BadInput(
            f"The store {label} cannot be opened ({said}). Check its permissions or name another store."
        )
    if state == "42501":
        return BadInput(
            f"The store {label} denies us what we need ({said}). Ask its owner for the right to do it."
        )
    if not reached:
        return BadInput(
            f"The store {label} cannot be reached ({said}). Check that the server runs, its address, "
            "user and password."
        )
    return InferlabError(f"The store {label} reports a fault: {said}")
