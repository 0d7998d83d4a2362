"""Does every reader end in success or in one sentence? Models, plans, recipes, results, exports, stores."""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fuzzing import readers

#: How many mutations of each kind are aimed at in the time.
AIMS = {
    "models": 100_000,
    "plans": 20_000,
    "recipes": 20_000,
    "results": 20_000,
    "exports": 20_000,
    "stores": 5_000,
}
# A process takes seconds to import all that it reads with.
_BATCH = 2000
# The worker itself stops a reader after 20 s, unless it hangs where no signal is heard.
_SILENT_S = 300
_COMMAND_EVERY = 997


@dataclass
class Tally:
    """What became of the mutations of one kind, and how many there were to be."""

    aim: int
    answers: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def main() -> None:
    """Run batches in fresh processes until the time or the number is reached; exit code 1 if there are faults."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--count", type=int, help="Mutations of each kind, in place of the usual numbers.")
    parser.add_argument("--only", action="append", choices=readers.kinds(), help="May be repeated.")
    parser.add_argument("--first", type=int, default=0, help="The number of the first mutation.")
    parser.add_argument("--faults", type=Path, default=Path("fuzz-faults"), help="Folder for what is at fault.")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="Read one file again, with --only KIND.")
    arguments = parser.parse_args()
    chosen = arguments.only or list(readers.kinds())
    if arguments.replay:
        print(readers.read(chosen[0], arguments.replay))
        return
    tallies = {kind: Tally(arguments.count or AIMS[kind]) for kind in chosen}
    deadline_s = time.monotonic() + 60 * arguments.minutes
    batches = _batches(chosen, arguments.count, arguments.first)
    threads = [
        threading.Thread(target=_work, args=(batches, tallies, deadline_s, arguments.faults))
        for _ in range(arguments.processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(_print(tallies, arguments.faults))


def _batches(chosen: list[str], count: int | None, first: int) -> queue.Queue[tuple[str, int, int]]:
    """All batches, every kind evenly spread, so that a short run has some of each."""
    failures = []
    for kind in chosen:
        aim = count or AIMS[kind]
        size = min(_BATCH, max(20, aim // 10))
        for start in range(0, aim, size):
            failures.append((start / aim, kind, first + start, min(size, aim - start)))
    waiting: queue.Queue[tuple[str, int, int]] = queue.Queue()
    for _, kind, start, size in sorted(failures):
        waiting.put((kind, start, size))
    return waiting


def _work(
    batches: queue.Queue[tuple[str, int, int]], tallies: dict[str, Tally], deadline_s: float, faults: Path
) -> None:
    while time.monotonic() < deadline_s:
        try:
            kind, start, count = batches.get_nowait()
        except queue.Empty:
            return
        end = start + count
        while start < end:
            start = _batch(kind, start, end - start, tallies[kind], faults)


def _batch(kind: str, start: int, count: int, tally: Tally, faults: Path) -> int:
    """One process; returns the number to go on with, which is behind the one that ended it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.fuzzing.worker", kind, str(start), str(count)]
    process = subprocess.Popen(
        [*command, "--command-every", str(_COMMAND_EVERY)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "INFERLAB_STORE": os.devnull, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None and process.stderr is not None
    last = {"at": start}
    watch = threading.Timer(_SILENT_S, process.kill)
    watch.start()
    for line in process.stdout:
        watch.cancel()
        watch = threading.Timer(_SILENT_S, process.kill)
        watch.start()
        message = json.loads(line)
        if "fault" in message:
            tally.answers[message["fault"]] += 1
            _keep(kind, message["seed"], message["fault"], message["details"], faults)
        else:
            last = message
    watch.cancel()
    process.wait()
    tally.seconds += time.monotonic() - began
    for name in ("success", "sentence"):
        tally.answers[name] += int(last.get(name, 0))
    if process.returncode == 0:
        return int(last["at"])
    name = f"process ended with {process.returncode}"
    tally.answers[name] += 1
    _keep(kind, last["at"], name, process.stderr.read()[-4000:], faults)
    return int(last["at"]) + 1


def _keep(kind: str, seed: int, name: str, details: str, faults: Path) -> None:
    faults.mkdir(parents=True, exist_ok=True)
    ending, content = readers.mutation(kind, seed)
    (faults / f"{kind}-{seed}.{ending}").write_bytes(content)
    (faults / f"{kind}-{seed}.txt").write_text(f"{name}\n{details}", errors="backslashreplace")


def _print(tallies: dict[str, Tally], faults: Path) -> int:
    print(
        f"{'kind':10} {'aim':>8} {'mutations':>10} {'success':>9} {'sentence':>9} {'faults':>7} {'per second':>11}"
    )
    wrong = 0
    for kind, tally in tallies.items():
        total, success, sentence = tally.answers.total(), tally.answers["success"], tally.answers["sentence"]
        bad = total - success - sentence
        wrong += bad
        rate = total / tally.seconds if tally.seconds else 0.0
        print(f"{kind:10} {tally.aim:10} {total:10} {success:10} {sentence:10} {bad:10} {rate:10.0f}")
        for name, count in tally.answers.items():
            if name not in ("success", "sentence"):
                print(f"  {count} × {name}")
    print(f"Faults are in {faults}." if wrong else "All ended in success or in one sentence.")
    if short := [kind for kind, tally in tallies.items() if tally.answers.total() < tally.aim]:
        print(f"The time was over before all {', '.join(short)} were read. Give more --minutes.")
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
