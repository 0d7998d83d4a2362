"""How pages find entries, and what they call them: as a user did, else by what was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from inferlab.errors import NotThere
from inferlab.store.entries import Entry
from inferlab.store.formats import GENERATION
from inferlab.store.store import Store
from inferlab.workspace.engines import title
from inferlab.workspace.requests import last_part

#: What entries are called that have no name of their own and are no benchmark.
DOCUMENTS = {
    "capacity": "Capacity",
    "recommendation": "Recommendation",
    "generation-comparison": "Comparison of generation",
    "generation-capacity": "Capacity of generation",
    "generation-recommendation": "Recommendation for generation",
}


def entry_of(store: Store, entry_id: str, kinds: Collection[str], called: str) -> Entry:
    """The entry with this id; not there where it is of another kind than those that are `called` so."""
    entry = store.entry(entry_id)
    if entry.kind not in kinds:
        raise NotThere(f"{entry_id} is a {entry.kind}, not a {called}.")
    return entry


def given_name(entry: Entry) -> str:
    """The name that a user or a form gave an entry; empty where it has none."""
    if entry.kind == "profile":
        parts = (entry.brief.get("performance"), entry.brief.get("loss"))
        return next((str(part["name"]) for part in parts if part), "")
    return str(entry.brief.get("name") or "")


def name_of(entry: Entry, model: str = "") -> str:
    """What an entry is called: its own name, else "ResNet-50 on OpenVINO, 2 cores, batch 1".

    `model` stands for the model's name; by default it is the last part of its source.
    """
    # The title of a comparison has both of its sides.
    about = model or ("" if entry.kind == "comparison" else last_part(entry.title))
    return given_name(entry) or (f"{about} on " if about else "") + measured_on(entry)


def reference_to(entry: Entry) -> str:
    """What tells an entry from others of its project: its own name, else what and when was measured."""
    return given_name(entry) or f"{measured_on(entry)}, {entry.created_at.astimezone():%d %b %H:%M}"


def measured_on(entry: Entry) -> str:
    """The engines, core counts and batch sizes of an entry."""
    if entry.kind in DOCUMENTS:
        return DOCUMENTS[entry.kind]
    cells = [cell.cell for cell in entry.cells]
    if entry.kind == GENERATION:
        return _generated_on(entry.brief)
    labels = entry.brief.get("labels")
    # The card of a comparison shows B, which is compared with A.
    names = [title(labels[1]), title(labels[0])] if labels else [title(cell.engine) for cell in cells]
    words = [" vs ".join(dict.fromkeys(names)) or entry.kind]
    if cells:
        cores = _listed(cell.num_cores for cell in cells)
        words += [
            f"{cores} {'core' if cores == '1' else 'cores'}",
            f"batch {_listed(cell.batch_size for cell in cells)}",
        ]
    return ", ".join(words)


def _generated_on(brief: Mapping[str, Any]) -> str:
    """The engines, core counts and batch sizes of a generation."""
    words = [" vs ".join(map(title, brief.get("engine", ()))) or "Generation"]
    if cores := brief.get("num_cores"):
        words.append(f"{_listed(cores)} {'core' if cores == [1] else 'cores'}")
    if batches := brief.get("batch_size"):
        words.append(f"batch {_listed(batches)}")
    return ", ".join([*words, "generation"])


def _listed(values: Iterable[int]) -> str:
    *others, last = map(str, sorted(set(values)))
    return f"{', '.join(others)} and {last}" if others else last
