"""What is shown of a value, declared once: its key, heading, unit and format; tables, files and axes read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inferlab.units import shortened
from inferlab.views.intervals import Ends, between, half_width, rounded

#: What stands where a value is not known.
UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a row: where it comes from, what it is called and how it is written."""

    #: The column of a CSV file; empty: not in files, because it only repeats what another field has.
    key: str
    #: The heading of its column.
    label: str
    get: Callable[[Any], Any]
    form: Callable[[Any], str] = str
    #: Both ends of its interval, which decide how many digits are shown.
    ends: Callable[[Any], Ends] | None = None
    #: Text, aligned to the left.
    left: bool = False
    #: What is longer is cut in its middle, but not in files.
    longest: int | None = None
    suffix: str = ""

    def of(self, part: Callable[[Any], Any]) -> Field:
        """The same of a part of other rows."""
        ends = self.ends
        return replace(
            self,
            get=lambda row: self.get(part(row)),
            ends=None if ends is None else lambda row: ends(part(row)),
        )

    def text(self, row: Any) -> str:
        """The value as it is shown."""
        value = self.get(row)
        if value is None:
            return UNKNOWN
        told = self.form(value) if self.ends is None else rounded(value, self.ends(row), self.form)
        return f"{told if self.longest is None else shortened(told, self.longest)}{self.suffix}"

    def values(self, row: Any) -> dict[str, Any]:
        """The value as files have it, with the ends of its interval, every digit kept."""
        if not self.key:
            return {}
        known = {self.key: self.get(row)}
        if self.ends is not None:
            low, high = self.ends(row) or (None, None)
            known |= {f"{self.key}_low": low, f"{self.key}_high": high}
        return known


def interval_of(field: Field, label: str = "95 % interval", form: Callable[[Any], str] | None = None) -> Field:
    """The column with both ends of a field's interval."""
    ends = field.ends
    assert ends is not None, "only what has an interval has this column"

    def told(row: Any) -> str | None:
        found = ends(row)
        return None if found is None or field.get(row) is None else between(found, form or field.form)

    return Field("", label, told)


def half_width_of(field: Field) -> Field:
    """The column with half the width of a field's interval, as a share."""
    ends = field.ends
    assert ends is not None, "only what has an interval has this column"
    return Field("", "±", lambda row: half_width(ends(row)) or None)
