"""Mutations of our own files by structure: plans, recipes, results, exports, stores; deterministic by seed."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import json
import random
import sqlite3
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from inferlab.optimizing import recipes
from inferlab.records import Benchmark, Outcome
from inferlab.store import open_store
from inferlab.views import benchmark_file, results
from inferlab.views.results import render
from tests.helpers.comparisons import COMPARISON
from tests.helpers.profiles import a_profile
from tests.helpers.recipes import WHOLE
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, save

#: What stands where something else was expected.
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**64), 10**29, 10**40, 0.5, -0.0, 1e-320, 1e308, -1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        " ",
        "x",
        "-1",
        "1e999",
        "nan",
        "\x1b[31m\u202e",
        "\ud800",
        "\0",
        "é" * 3000,
    ),
    *("=1+1", "../../x", "2024-01-01", "[" * 200, "a;b=c", [], {}, [[]], [None], {"": None}, {"x": {}}, [1, "x"]),
    *("inferlab-benchmark/1", "inferlab-comparison/1", "inferlab-profile/1", "done", "failed", "mismatch"),
)
_YAML_ODD = (
    *(
        "&a [1]",
        "*a",
        "!!python/object:os.system x",
        "!!binary aGk=",
        "<<: {a: 1}",
        "? [1]\n: 2",
        "2024-01-01",
        "0x1f",
    ),
    *(
        "0o17",
        "1_000",
        "12:30:45",
        "~",
        "|\n  x",
        ">-\n y",
        "'",
        '"\\x1b"',
        "{",
        "}",
        "[",
        "]",
        "- - - - 1",
        "\t",
        "%TAG",
    ),
    *("---\na: 1\n---\nb: 2", "...", "1" * 5000, "-.inf", ".nan", "yes", "@x", "`x`", "\u2028", "a: b: c"),
)


def mutate(kind: str, seed: int) -> tuple[str, bytes]:
    """The ending and the content of the mutation with this number of a kind of file."""
    return _MAKERS[kind](random.Random(f"{kind} {seed}"))


def kinds() -> tuple[str, ...]:
    """The kinds of files that can be mutated."""
    return tuple(_MAKERS)


def _structure(value: Any, rng: random.Random) -> Any:
    """A copy with some places changed."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        places = list(_places(value))
        if not places:
            return rng.choice(_ODD)
        holder, key = rng.choice(places)
        try:
            _change(holder, key, value, rng)
        except RecursionError:
            return value  # deep enough
    return value


def _places(value: Any) -> Any:
    """Every place below a value: what holds it, and under which key."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _change(holder: Any, key: Any, whole: Any, rng: random.Random) -> None:
    match rng.randrange(9):
        case 0 | 1 | 2:
            holder[key] = copy.deepcopy(rng.choice(_ODD))
        case 3:
            del holder[key]
        case 4:
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"x": holder[key]}
        case 5:
            other, place = rng.choice(list(_places(whole)))
            holder[key] = copy.deepcopy(other[place])
        case 6 if isinstance(holder, dict):
            holder[rng.choice((f"{key}x", "", "format", "\x1b", str(key)[:-1]))] = holder.pop(key)
        case 7 if isinstance(holder, list):
            holder.extend(holder[:50] * rng.choice((1, 3)))
        case _:
            deep: Any = holder[key]
            for _ in range(rng.choice((2, 70, 150))):
                deep = [deep]
            holder[key] = deep


def _text(
    text: str, rng: random.Random, odd: tuple[str, ...] = ("[", "{", '"', ",", "\\", "null", "1" * 5000)
) -> bytes:
    """Text with some of it cut, doubled or replaced; seldom bytes that are no text."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        match rng.randrange(6):
            case 0:
                text = text[:at]
            case 1:
                text = text[:at] + rng.choice(odd) + text[at:]
            case 2:
                part = rng.choice(odd)
                text = text[:at] + part * min(rng.choice((2, 100, 20_000)), 3_000_000 // len(part)) + text[at:]
            case 3:
                text = text[: min(to, at + 40)] + text[at:]
            case 4:
                text = text[:at] + chr(rng.choice((0, 9, 13, 27, 0x85, 0x2028, 0xFEFF, 0x1F600))) + text[at:]
            case _:
                text = text[:at] + text[min(to, at + rng.choice((1, 10, 1000))) :]
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        at = rng.randrange(len(content) + 1)
        content = content[:at] + rng.choice((b"\xff", b"\xc3(", b"\0", b"\xed\xa0\x80")) + content[at:]
    return content


def _json(value: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.75:
        return json.dumps(_structure(value, rng)).encode()
    return _text(json.dumps(value), rng)


_PLAN = {
    "model": "model.onnx",
    "batch_size": [1, 8],
    "num_cores": "1-4",
    "scenario": ["sync", "async"],
    "engine": "onnxruntime,openvino",
    "engine_option": {"spinning": 0},
    "time": 3.5,
    "precision": "1%",
    "no_verify": True,
    "input_shapes": "[1,2],[3]",
    "price": {"c7i": 0.1},
    "cluster": "auto",
    "thread_pinning": "core",
    "seed": 0,
    "strict": True,
    "baseline": ["engine=openvino"],
}


def _plan(rng: random.Random) -> tuple[str, bytes]:
    return "yaml", _yaml(_PLAN, yaml.safe_dump(_PLAN), rng)


def _recipe(rng: random.Random) -> tuple[str, bytes]:
    text = recipes.dump(WHOLE)
    return "yaml", _yaml(yaml.safe_load(text), text, rng)


def _yaml(value: Any, text: str, rng: random.Random) -> bytes:
    if rng.random() < 0.6:
        # JSON is YAML too, and the other way of writing it takes long and has a limit of its own.
        changed = json.dumps(_structure(value, rng), ensure_ascii=rng.random() < 0.5)
        return changed.encode("utf-8", "surrogatepass")
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    key = lines[at].partition(":")[0]
    lines[at] = f"{key}: {rng.choice(_YAML_ODD)}"
    return "\n".join(lines).encode() if rng.random() < 0.5 else _text(text, rng, _YAML_ODD)


@lru_cache
def _results() -> dict[str, Any]:
    """What JSON files of ours hold, by kind."""
    both = Benchmark(
        PLAN,
        MODEL,
        tuple(
            Outcome(
                a_cell(batch_size=size, shapes=(("x", (size, 3)),)), "done", (steady_run(2.0), steady_run(2.1))
            )
            for size in (1, 2)
        ),
    )
    return {
        "one": results.content_of(Benchmark(PLAN, MODEL, both.outcomes[:1])),
        "both": results.content_of(both),
        "comparison": results.content_of(COMPARISON),
        "profile": json.loads(render(a_profile(), ".json")),
        "csv": render(both, ".csv"),
        "md": benchmark_file.hidden(both),
    }


def _result(rng: random.Random) -> tuple[str, bytes]:
    name = rng.choice(("one", "both", "one", "csv", "md", "comparison", "profile"))
    if name not in ("csv", "md"):
        return "json", _json(_results()[name], rng)
    text = _results()[name]
    if rng.random() < 0.5:
        return name, _text(
            text, rng, (",", '"', "\n", "'", "=1", "-->", "x" * 140_000, ";", "nan", "-1", "1e999", "'-")
        )
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    cells = lines[at].split(",")
    cells[rng.randrange(len(cells))] = str(rng.choice(_ODD))
    lines[at] = ",".join(cells)
    return name, "\n".join(lines).encode("utf-8", "surrogatepass")


@lru_cache
def _export_lines() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder, open_store(str(Path(folder) / "lab.db")) as store:
        save(store, a_benchmark())
        store.add_document("comparison", "a and b", results.content_of(COMPARISON))
        return [json.loads(line) for line in store.export()]


def _export(rng: random.Random) -> tuple[str, bytes]:
    lines = _structure(_export_lines()[:-1], rng) if rng.random() < 0.8 else list(_export_lines()[:-1])
    parts = [json.dumps(line).encode() + b"\n" for line in lines] if isinstance(lines, list) else [b"1\n"]
    if rng.random() < 0.15:
        parts[rng.randrange(len(parts))] = _text(parts[rng.randrange(len(parts))].decode(), rng) + b"\n"
    # Mostly with a checksum that is right: all else ends there.
    digest = hashlib.sha256(b"".join(parts)).hexdigest() if rng.random() < 0.95 else "0" * 64
    content = b"".join(parts) + json.dumps({"end": {"entries": len(parts) - 1, "sha256": digest}}).encode() + b"\n"
    if rng.random() < 0.3:
        content = gzip.compress(content, 1)
        if rng.random() < 0.5:
            content = content[: rng.randrange(len(content))]
        elif rng.random() < 0.5:
            at = rng.randrange(len(content))
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        return "jsonl.gz", content
    return "jsonl", content if rng.random() < 0.9 else content[: rng.randrange(len(content))]


@lru_cache
def _store_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.db"
        with open_store(str(path)) as store:
            save(store, a_benchmark())
            store.add_document("comparison", "a and b", results.content_of(COMPARISON))
            store.add_document("profile", "p", json.loads(render(a_profile(), ".json")))
        with sqlite3.connect(path) as raw:
            raw.execute("PRAGMA journal_mode = DELETE")
        raw.close()
        return path.read_bytes()


def _store(rng: random.Random) -> tuple[str, bytes]:
    content = bytearray(_store_bytes())
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 4, 64))):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return "db", bytes(content[: rng.randrange(len(content))] if rng.random() < 0.2 else content)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "lab.db"
        path.write_bytes(content)
        raw = sqlite3.connect(path)
        raw.execute("PRAGMA synchronous = OFF")
        for _ in range(rng.choice((1, 1, 2, 4))):
            table = rng.choice(("entry", "entry", "cell", "run"))
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            column = rng.choice([*columns, "content", "content"])
            rows = raw.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            number, value = rng.choice(rows)
            # Some of it the tables themselves refuse.
            with contextlib.suppress(sqlite3.Error, OverflowError):
                raw.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (_cell_value(value, rng), number))
        raw.commit()
        raw.close()
        return "db", path.read_bytes()


def _cell_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, str) and value.startswith("{") and rng.random() < 0.8:
        with contextlib.suppress(ValueError):  # one that was changed before
            return _json(json.loads(value), rng).decode("utf-8", "replace")
    if isinstance(value, bytes) and rng.random() < 0.7:
        at = rng.randrange(len(value) + 1)
        return value[:at] + bytes([rng.randrange(256)]) + value[at + rng.choice((0, 1, 5)) :]
    odd = rng.choice([*(value for value in _ODD if not isinstance(value, list | dict)), b"\xff\xfe", b""])
    return odd.encode("utf-8", "replace").decode() if isinstance(odd, str) else odd


_MAKERS = {"plans": _plan, "recipes": _recipe, "results": _result, "exports": _export, "stores": _store}
