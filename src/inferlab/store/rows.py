"""Rows of entries, cells and runs: inserted, found, and what lists show of them derived again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inferlab.codec import dumps, parse_json, restored
from inferlab.errors import BadInput, InferlabError, NotThere
from inferlab.records import Cell, Estimate, Machine, Run, Status
from inferlab.store.database import Connection, Row, insert
from inferlab.version import __version__

Content = Mapping[str, Any]
Labels = Sequence[tuple[str, str]]
#: What lists show of the measured part of a profile, of its losses, and of a version's speed.
PERFORMANCE = ("name", "engine", "batch_size", "num_cores", "ms_per_batch", "ms_interval", "items_per_second",
                "items_interval", "measured_at")  # fmt: skip
LOSS = ("name", "method", "params", "average_sensitivity")
_VERSION = ("path", "digest", "size_bytes", "parameters", "zero_fraction", "precision")
MEASURED = ("engine", "num_cores", "batch_size", "original_ms", "ms", "speedup", "speedup_interval", "level",
             "verdict", "foretold_speedup", "foretold_error")  # fmt: skip
#: What lists show of the cells of a generation.
GENERATION = ("engine", "num_cores", "batch_size", "prompt_tokens", "new_tokens", "depth")
_COMPARISON = ("verdict", "ratio", "interval", "paired", "outputs_match")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 10
_SHORTEST_PREFIX = 4
#: How the stored failure of a cell begins whose machine went away, so that it can be measured again.
LOST = '{"code":"lost"'
#: The columns of a cell that are derived are called so, then after their field of a `CellEntry`.
CACHED = "cached_"


def stamp(time: datetime) -> str:
    """A moment as it is stored."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(stored: str) -> datetime:
    """The moment that `stamp` wrote; without a time zone it is none."""
    time = datetime.fromisoformat(stored)
    if time.tzinfo is None:
        raise ValueError(f"{stored!r:.40} has no time zone")
    return time


def texts(row: Row, names: Iterable[str]) -> None:
    """Refuse a row that has something else where text is expected, which SQLite would store."""
    for name in names:
        if not isinstance(row[name], str):
            raise ValueError(f"{name} is {row[name]!r:.40}, not text")


def safe(value: str) -> str:
    """Text that every database takes: paths may have bytes that are no characters, PostgreSQL refuses NUL."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def new_id() -> str:
    """A name that nothing has yet."""
    import secrets  # late: whoever only reads does not need it

    # Random rather than ordered by time: what was measured on one day would share its first characters.
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def now() -> str:
    """This moment as it is stored."""
    return stamp(datetime.now(UTC))


def insert_entry(
    connection: Connection,
    kind: str,
    title: str,
    digest: str,
    content: Mapping[str, Any],
    project_id: str | None = None,
    labels: Labels = (),
) -> str:
    """Insert an entry under a new id."""
    entry_id = new_id()
    values = {
        "id": entry_id,
        "created_at": now(),
        "kind": safe(kind),
        "title": safe(title),
        "model_digest": safe(digest),
        "inferlab_version": __version__,
        "node": own_name(),
        "note": "",
        "content": dumps(content),
        "project_id": project_id,
        "brief": brief_of(kind, content),
        "labels": labels_text(labels),
    }
    insert(connection, "entry", values)
    return entry_id


def labels_text(labels: Labels) -> str:
    """Labels as they are stored: by name, nothing where there are none."""
    return dumps({safe(name): safe(value) for name, value in sorted(dict(labels).items())}) if labels else ""


def read_labels(stored: Any) -> dict[str, str]:
    """What `labels_text` wrote; a ValueError where it is something else."""
    labels = parse_json(stored) if stored else {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("labels are names with texts")
    return labels


def own_name() -> str:
    """What entries of this machine have as their node."""
    import platform  # late: whoever only reads does not need it

    return safe(platform.node())


def find_id(connection: Connection, prefix: str, name: str) -> str:
    """The one id that begins so."""
    if len(prefix) < _SHORTEST_PREFIX:
        raise BadInput(f"An id is given by at least its first {_SHORTEST_PREFIX} characters, not {prefix!r}.")
    possible = len(prefix) <= _ID_LENGTH and set(prefix) <= set(_ALPHABET)
    # What begins so lies in this range, which the index finds.
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    query = "SELECT id FROM entry WHERE id >= :prefix AND id < :end LIMIT 2"
    ids = [row["id"] for row in connection.rows(query, prefix=prefix, end=end)] if possible else []
    if not ids:
        raise NotThere(f"The store {name} has nothing with the id {prefix!r}. See: inferlab history")
    if len(ids) > 1:
        raise BadInput(f"Several ids begin with {prefix!r}, such as {ids[0]} and {ids[1]}. Give more characters.")
    return str(ids[0])


def entry(connection: Connection, entry_id: str) -> Row | None:
    """All of an entry, if it is there."""
    entries = connection.rows("SELECT * FROM entry WHERE id = :id", id=entry_id)
    return entries[0] if entries else None


def newest_first(connection: Connection) -> list[tuple[str, str]]:
    """The ids of all entries, each with when it was made."""
    query = "SELECT id, created_at FROM entry ORDER BY created_at DESC, id DESC"
    return [(row["id"], row["created_at"]) for row in connection.rows(query)]


def remove_entry(connection: Connection, entry_id: str) -> None:
    """Remove an entry; its cells and runs go with it."""
    connection.rows("DELETE FROM entry WHERE id = :id", id=entry_id)


def insert_cell(connection: Connection, entry_id: str, position: int, cell: Cell, status: Status) -> int:
    """Insert a cell of an entry; returns its row."""
    values = {
        "entry_id": entry_id,
        "position": position,
        "cell_id": cell.id,
        "engine": safe(cell.engine),
        "status": status,
        "content": dumps(cell),
    }
    insert(connection, "cell", values)
    query = "SELECT cell.row FROM cell WHERE entry_id = :entry_id AND position = :position"
    return int(connection.rows(query, entry_id=entry_id, position=position)[0]["row"])


def insert_run(connection: Connection, cell_row: int, position: int, measured: Run) -> None:
    """Insert what one process measured of a cell."""
    from inferlab.store.samples import pack

    arrays: list[Any] = []
    values = {
        "cell_row": cell_row,
        "position": position,
        "started_at": safe(measured.started_at),
        "content": dumps(measured, arrays),
        "samples": pack(arrays),
    }
    insert(connection, "run", values)


def cells(connection: Connection, entry_id: str) -> list[Row]:
    """The cells of a benchmark, in the order of its plan."""
    return connection.rows("SELECT * FROM cell WHERE entry_id = :id ORDER BY position", id=entry_id)


def runs(connection: Connection, cell_row: int) -> list[Row]:
    """The runs of a cell, in the order in which they were saved."""
    return connection.rows("SELECT * FROM run WHERE cell_row = :cell_row ORDER BY position", cell_row=cell_row)


def cell_row(connection: Connection, benchmark_id: str, cell_id: str) -> int:
    """The cell's row, locked; of cells alike (a plan may name an engine twice), the first that is pending."""
    query = (
        "SELECT cell.row FROM cell WHERE entry_id = :entry_id AND cell_id = :cell_id "
        "ORDER BY CASE status WHEN 'pending' THEN 0 ELSE 1 END, position LIMIT 1"
    )
    alike = connection.rows(query + connection.lock, entry_id=benchmark_id, cell_id=cell_id)
    if not alike:
        raise InferlabError(f"The benchmark {benchmark_id} has no cell {cell_id}, or was removed meanwhile.")
    return int(alike[0]["row"])


def drop_cut_runs(connection: Connection, cell_row: int) -> None:
    """Remove the runs of a cell that the user cut short."""
    for run in runs(connection, cell_row):
        if parse_json(run["content"]).get("interrupted"):
            connection.rows("DELETE FROM run WHERE run.row = :row", row=run["row"])


# What lists show is derived, and kept beside what it is derived from, so that none need be opened.


def runs_of(connection: Connection, cell_row: int) -> Iterator[Run]:
    """The runs of a cell, in the order in which they were saved."""
    from inferlab.store.samples import unpack

    for row in runs(connection, cell_row):
        yield restored(Run, parse_json(row["content"]), unpack(row["samples"]))


def refresh(connection: Connection, cell_row: int) -> bool:
    """Derive what is shown of a cell from its runs again; says whether there are numbers."""
    cell = connection.rows("SELECT content FROM cell WHERE cell.row = :row", row=cell_row)
    if not cell:
        return False
    try:
        measured = list(runs_of(connection, cell_row))
    except ValueError:
        # Damaged runs must not keep a cell from being finished; whoever opens it is told.
        measured = []
    return keep_numbers(connection, cell_row, restored(Cell, parse_json(cell[0]["content"])), measured)


def keep_numbers(connection: Connection, cell_row: int, cell: Cell, measured: Sequence[Run]) -> bool:
    """Keep beside a cell what lists show of its runs; says whether there are numbers."""
    from inferlab.measure.stats import peak_memory_bytes, summarize

    try:
        summary = summarize(cell, measured)
    except (ValueError, ArithmeticError):
        # Nor must runs that no statistics can be made of, as by a clock that stood still.
        summary = None
    values = {
        **_numbers("items_per_sec", None if summary is None else summary.items_per_sec),
        **_numbers("median_ms", None if summary is None else summary.median_ms),
        "wrong": any(run.check.status == "mismatch" for run in measured),
        "peak_memory_bytes": peak_memory_bytes(measured),
        **(_origin(measured[0].versions, measured[0].machine) if measured else {}),
    }
    _update_cached(connection, cell_row, values)
    return summary is not None


def _origin(versions: Mapping[str, str], machine: Machine) -> dict[str, str]:
    """The engine's version and the kind of machine that measured a cell."""
    from inferlab.measure.stats import machine_kind, version_among

    return {"engine_version": safe(version_among(versions)), "machine": safe(machine_kind(machine))}


def refresh_origins(connection: Connection) -> None:
    """Derive from the runs of cells what versions before the fourth did not keep beside them."""
    query = "SELECT content FROM run WHERE cell_row = :row ORDER BY position"
    for cell in connection.rows("SELECT cell.row FROM cell WHERE status <> 'pending'"):
        try:
            contents = [parse_json(run["content"]) for run in connection.rows(query, row=cell["row"])]
            if not contents:
                continue
            origin = _origin(contents[0]["versions"], restored(Machine, contents[0]["machine"]))
            peaks = [content["peak_memory_bytes"] for content in contents if content["peak_memory_bytes"]]
            values = {**origin, "peak_memory_bytes": max(peaks, default=None)}
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # damaged, or of another hand: whoever opens it is told
        _update_cached(connection, cell["row"], values)


def _update_cached(connection: Connection, cell_row: int, values: Mapping[str, Any]) -> None:
    changes = ", ".join(f"{CACHED}{name} = :{name}" for name in values)
    connection.rows(f"UPDATE cell SET {changes} WHERE cell.row = :row", row=cell_row, **values)  # noqa: S608


def refresh_briefs(connection: Connection) -> None:
    """Derive what lists show of documents from their content again."""
    for row in connection.rows("SELECT id FROM entry WHERE kind <> 'benchmark'"):
        # One by one: all contents together may be more than the memory holds.
        (entry,) = connection.rows("SELECT kind, content, model_digest FROM entry WHERE id = :id", id=row["id"])
        try:
            content = parse_json(entry["content"])
        except (ValueError, TypeError, RecursionError):
            content = None
        if isinstance(content, dict):  # else it is damaged, and whoever opens it is told
            connection.rows(
                "UPDATE entry SET brief = :brief, model_digest = :digest WHERE id = :id",
                id=row["id"],
                brief=brief_of(entry["kind"], content),
                digest=entry["model_digest"] or digest_of(content),
            )


def _numbers(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def brief_of(kind: str, content: Content) -> str:
    """The brief of an entry as JSON; empty where lists need nothing beside its title and cells."""
    makers: dict[str, Callable[[Content], dict[str, Any]]] = {
        "profile": _profile,
        "comparison": _comparison,
        "benchmark": _benchmark,
        "version": _version,
        "generation": _generation,
        "generation-comparison": lambda record: _generation_cells(
            record["arms"], record["agreements"], record["interrupted"]
        ),
        "generation-capacity": lambda record: _generation_cells(
            [record["cell"]], [record["agreement"]], record["interrupted"]
        ),
        "generation-recommendation": lambda record: _generation(record["sweep"]),
    }
    try:
        brief = makers[kind](content) if kind in makers else {}
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        # Made by another version, by hand, or has no result yet: it is listed by its name or title.
        brief = {}
    if isinstance(content.get("name"), str):
        brief = {**brief, "name": content["name"]}
    return dumps(brief) if brief else ""


def digest_of(content: Content) -> str:
    """The digest of the model that a document is about; of two that are compared, the first; empty if unknown."""
    for part in (content.get("model"), *(_models(result) for result in _results(content)[:1])):
        if isinstance(part, Mapping) and isinstance(part.get("digest"), str):
            return str(part["digest"])
    return ""


def _results(content: Content) -> list[Content]:
    """The comparisons of a document that holds several, or the only one."""
    several = content.get("results")
    return (
        [result for result in several if isinstance(result, Mapping)] if isinstance(several, list) else [content]
    )


def _models(comparison: Content) -> Any:
    """The model of A; version 1 of comparisons had an object for each arm."""
    models, arm = comparison.get("models"), comparison.get("a")
    if isinstance(models, list):
        return models[0]
    return arm.get("model") if isinstance(arm, Mapping) else None


def _benchmark(content: Content) -> dict[str, Any]:
    return {"against": content["against"]} if content.get("against") else {}


def _profile(content: Content) -> dict[str, Any]:
    performance, loss = content.get("performance"), content.get("loss")
    return {
        "performance": {name: performance[name] for name in PERFORMANCE} if performance else None,
        "loss": {name: loss[name] for name in LOSS} if loss else None,
        "flops": (content.get("flops") or {}).get("flops"),
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }


def _comparison(content: Content) -> dict[str, Any]:
    first, *_ = results = _results(content)
    if "labels" not in first:
        labels = [first["a"]["label"], first["b"]["label"]]
        return {"labels": labels, "results": [{name: result[name] for name in _COMPARISON} for result in results]}
    return {"labels": first["labels"], "results": [_ratio(result) for result in results]}


def _ratio(comparison: Content) -> dict[str, Any]:
    ratio = comparison["ratio"]
    return {
        "verdict": comparison["verdict"],
        "ratio": ratio["value"],
        "interval": None if ratio["low"] is None else [ratio["low"], ratio["high"]],
        "paired": bool(comparison["log_ratios"]),
        "outputs_match": comparison["outputs_match"],
        **_pairs(comparison),
    }


def _pairs(comparison: Content) -> dict[str, Any]:
    """How much the pairs of a comparison differ, by which the next one knows what to expect."""
    logs, cells = comparison["log_ratios"], comparison.get("cells")
    if len(logs) < 2 or not cells or comparison["ratio"]["method"] != "moderated":
        return {}
    return {"pairs": len(logs), "pair_sd": statistics.stdev(logs), "num_cores": cells[0]["num_cores"]}


def _generation_cells(
    cells: Sequence[Content], agreements: Sequence[Content], interrupted: bool
) -> dict[str, Any]:
    return {
        **{name: list(dict.fromkeys(cell[name] for cell in cells)) for name in GENERATION},
        "statuses": ["cancelled" if interrupted else "done"],
        "wrong": [any(agreement["status"] == "mismatch" for agreement in agreements)],
    }


def _generation(content: Content) -> dict[str, Any]:
    outcomes = content["outcomes"]
    cells = [outcome["cell"] for outcome in outcomes]
    return {
        **{name: list(dict.fromkeys(cell[name] for cell in cells)) for name in GENERATION},
        "statuses": [outcome["status"] for outcome in outcomes],
        "wrong": [
            any(run["agreement"]["status"] == "mismatch" for run in outcome["runs"]) for outcome in outcomes
        ],
        "tpot_ms": [_tpot_ms(outcome["runs"]) if outcome["status"] == "done" else None for outcome in outcomes],
    }


def _tpot_ms(runs: Sequence[Content]) -> float | None:
    """The time per output token of a cell, as its summary has it; None where nothing was decoded."""
    logs = []
    for run in runs:
        times = [sequence["token_ns"] for each in run["repetitions"] for sequence in each["sequences"]]
        each_ms = [(ns[-1] - ns[0]) / (len(ns) - 1) / 1e6 for ns in times if len(ns) > 1]
        if not each_ms or statistics.median(each_ms) <= 0:
            return None
        logs.append(math.log(statistics.median(each_ms)))
    return math.exp(statistics.fmean(logs)) if logs else None


def _version(content: Content) -> dict[str, Any]:
    recipe, optimized = content["recipe"], content["optimized"]
    return {
        "name": content["name"],
        "optimized": {name: optimized[name] for name in _VERSION},
        "pattern": (recipe.get("pruning") or {}).get("pattern", ""),
        "scheme": (recipe.get("quantization") or {}).get("scheme", ""),
        "distance": content["distance"],
        "measured": [{name: layer[name] for name in MEASURED} for layer in content["measured"]],
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }
