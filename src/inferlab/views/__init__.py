"""Records for people: text, tables, files, reports and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from inferlab.views.results import Result


def write(record: Result, path: Path) -> None:
    """Write any result to a file, as JSON, CSV, Markdown or an HTML report, by the file's ending."""
    from inferlab.views import results  # late: whoever imports one view needs not all of them

    results.write(path, results.render(record, path.suffix.lower()))
