"""How long the commands take that list a store of 10,000 benchmarks and show one, Python's start included."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from array import array
from pathlib import Path

from benchmarks.startup import median_s
from inferlab import machine
from inferlab.codec import dumps, plain
from inferlab.records import Cell, Model, OutputCheck, Plan, Run, Samples, Window
from inferlab.store import open_store, rows
from inferlab.store.database import insert
from inferlab.store.samples import pack
from inferlab.store.store import Store

_ENTRIES, _CELLS, _RUNS, _CALLS = 10_000, 3, 5, 1_000
MODEL = Model("onnx", "demo:resnet50", "/cache/resnet50.onnx", "0" * 64, (), (), 102_000_000)


def main(rounds: int = 15) -> None:
    """Print medians of fresh processes, and what the store takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.db"
        began = time.perf_counter()
        with open_store(str(path)) as store:
            entry_id = fill(store)
            filled_s = time.perf_counter() - began
            began = time.perf_counter()
            entry_id = store.begin(Plan("demo:resnet50"), MODEL, [_cell(0)])
            for _ in range(20):
                store.add_run(entry_id, _cell(0).id, _run())
            added_ms = (time.perf_counter() - began) * 1e3 / 20
        size_bytes, samples = path.stat().st_size, _ENTRIES * _CELLS * _RUNS * _CALLS
        print(f"{_ENTRIES} benchmarks of {_CELLS} cells, {_RUNS} runs, {_CALLS} calls: filled in {filled_s:.0f} s")
        print(f"size of the store           {size_bytes / 1e6:.0f} MB, {size_bytes / samples:.1f} bytes a call")
        print(f"adding a run                {added_ms:.1f} ms")
        inferlab = str(Path(sys.executable).parent / "inferlab")
        opened = f"from inferlab.store import open_store; open_store({str(path)!r}).get({entry_id!r})"
        for name, command in (
            ("inferlab history", [inferlab, "history", "--store", str(path)]),
            ("a search that finds nothing", [inferlab, "history", "--store", str(path), "--model", "none"]),
            ("opening one benchmark", [sys.executable, "-c", opened]),
            ("inferlab show ID", [inferlab, "show", entry_id, "--store", str(path)]),
        ):
            print(f"{name:27} {median_s(command, rounds):.3f} s  (aim: at most 0.5)")


def fill(store: Store) -> str:
    """Insert the benchmarks in a few large transactions, past the calls that save one run at a time."""
    content, arrays = {"plan": plain(Plan("demo:resnet50")), "model": plain(MODEL)}, list[Samples]()
    measured, blob = dumps(plain(_run(), arrays)), b""
    blob = pack(arrays)
    entry_id = ""
    for _ in range(100):
        with store._database.writing() as connection:
            for _ in range(_ENTRIES // 100):
                entry_id = rows.insert_entry(connection, "benchmark", MODEL.source, MODEL.digest, content)
                for position in range(_CELLS):
                    insert(connection, "cell", {"entry_id": entry_id, **_cell_row(position)})
                for cell in rows.cells(connection, entry_id):
                    shared = {"cell_row": cell["row"], "started_at": "", "content": measured, "samples": blob}
                    for index in range(_RUNS):
                        insert(connection, "run", {**shared, "position": index})
    return entry_id


def _cell_row(position: int) -> dict[str, object]:
    numbers = {"cached_items_per_sec": 100.0, "cached_median_ms": 10.0, "cached_wrong": False}
    record = _cell(position)
    text = dumps(plain(record))
    return {
        "position": position,
        "cell_id": record.id,
        "engine": "fake",
        "status": "done",
        "content": text,
        **numbers,
    }


def _cell(seed: int) -> Cell:
    fixed = ("fake", "sync", 1, 1, 1, None, 1, (), "", (), "core", "auto", 10.0, 2.0, None, None, seed, True)
    return Cell("0" * 64, *fixed)  # type: ignore[arg-type]


def _run() -> Run:
    """Calls of about 10 ms, as an engine makes them."""
    source = random.Random(0)
    starts, ends, now = array("q"), array("q"), 10**15
    for _ in range(_CALLS):
        starts.append(now)
        ends.append(now + int(10e6 * source.lognormvariate(0.0, 0.01)))
        now = ends[-1] + source.randint(90, 260)
    window = Window((Samples(starts, ends),), {"wait_ns": 1e6, "involuntary_switches": 3.0}, 50_000)
    check = OutputCheck("match", 1e-6, "max", 1e-3, "onnxruntime")
    seen = machine.describe()
    return Run("", "", (window,), (), "single", 0.5, 0.1, 0.01, 1, 1, 100.0, check, {}, {}, "", seen, True, False)


if __name__ == "__main__":
    main()
