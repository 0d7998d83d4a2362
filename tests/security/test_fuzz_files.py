"""Plans, recipes, results, exports and stores that are mutated or crafted end in success or in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzzing import file_mutations, readers
from inferlab.codec import MOST_DEPTH, Unreadable, parse_json, parse_yaml
from inferlab.errors import BadInput
from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.runs import a_cell
from tests.helpers.stored import save_done

_COUNTS = {"plans": 300, "recipes": 150, "results": 150, "exports": 200, "stores": 60}


@pytest.mark.parametrize("kind", file_mutations.kinds())
def test_mutated_files_end_in_success_or_in_one_sentence(kind: str, tmp_path: Path) -> None:
    answers = {"success": 0, "sentence": 0}
    for seed in range(_COUNTS[kind]):
        ending, content = readers.mutation(kind, seed)
        path = tmp_path / f"mutation.{ending}"
        path.write_bytes(content)
        # Never a chart: one takes as long as a hundred files.
        answers[readers.read(kind, path, seed=1)] += 1
    # Mutations that no reader gets past would test nothing.
    assert answers["success"] > _COUNTS[kind] / 20 and answers["sentence"] > _COUNTS[kind] / 20


def test_the_same_seed_gives_the_same_file() -> None:
    for kind in ("plans", "recipes", "results"):
        assert [file_mutations.mutate(kind, seed) for seed in range(9)] == [
            file_mutations.mutate(kind, seed) for seed in range(9)
        ]


def test_the_long_program_counts_what_became_of_all(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "fuzz", "--count", "20", "--only", "plans", "--first", "1"]
    done = subprocess.run([*command, "--faults", str(tmp_path / "faults")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("plans"))
    _, aim, total, success, sentence, faults, _ = line.split()
    assert (int(aim), int(total), int(success) + int(sentence), faults) == (20, 20, 20, "0")
    assert done.stdout.splitlines()[-1] == "All ended in success or in one sentence."
    assert not (tmp_path / "faults").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested more than 64 levels deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 64 levels deep"),
        ("[" * 100_000, "nested more than 64 levels deep"),
        ("[" + "[]," * 2_000_001 + "1]", "more than 2,000,000 lists and objects"),
        ("[" + "9" * 5000 + "]", "a number of 5000 digits; at most 30 are read"),
    ],
)
def test_json_beyond_a_limit_is_refused_before_it_is_parsed(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        parse_json(text)


def test_json_within_the_limits_is_read_as_ever() -> None:
    deep = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    assert json.dumps(parse_json(deep)) == deep
    tricky = json.dumps({"a": ["[" * 1000, '\\"[', "}"] * 50, "n": 10**29, "x": [1e308, None]})
    assert parse_json(tricky) == json.loads(tricky) == parse_json(tricky.encode())


BILLION = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, one in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 20_000, "nested more than 64 levels deep"),
        ("a: " + "{a: " * 20_000, "nested more than 64 levels deep"),
        ("- " * 20_000 + "x", "nested more than 64 levels deep"),
        (BILLION, "references"),
        ("a: !!timestamp 2024-01-01", "has the tag"),
        ("a: " + "7" * 5000, "a number of 5000 digits; at most 30 are read"),
        ("a: [" + "1," * 2001 + "]", "more than 2,000 values"),
        ("x" * (2 << 20) + "y", "larger than 2 MiB"),
        ("a: [", "not valid YAML"),
    ],
)
def test_yaml_beyond_a_limit_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlab.codec.MOST_YAML_VALUES", 2000)  # as many as there may be take seconds
    with pytest.raises(Unreadable, match=said):
        parse_yaml(text)


def test_dates_in_yaml_are_text_and_numbers_are_those_of_yaml_1_2() -> None:
    assert parse_yaml("{a: 2024-01-01, b: 12:30, c: 1e-3, d: 010, e: .inf}") == {
        "a": "2024-01-01", "b": "12:30", "c": 0.001, "d": 10, "e": float("inf"),
    }  # fmt: skip


def _long_cell() -> str:
    ending, content = "csv", file_mutations._results()["csv"]
    assert ending == "csv"
    return str(content).replace("done", "x" * 140_000, 1)


def _nested_result() -> str:
    content = json.loads(json.dumps(file_mutations._results()["one"]))
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    return json.dumps({**content, "machine": deep})


FILES: dict[str, str | bytes] = {
    "deep.json": "[" * 100_000,
    "deeper.json": _nested_result(),
    "long.csv": _long_cell(),
    "digits.json": '{"format": ' + "1" * 5000 + "}",
    "bytes.json": b"\xff\xfe\0",
    "bytes.csv": b"format,model\n\xff,\xfe\n",
    "bytes.md": b"<!-- inferlab results\n\xff-->",
}


@pytest.mark.parametrize("name", FILES)
def test_no_command_that_reads_results_ends_in_a_fault(inferlab_here: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = FILES[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    commands = [("compare", path, path), ("plot", path, "-o", tmp_path / "chart.html"), ("import", path)]
    for command in [*commands, *([("profile", path)] if name.endswith(".json") else [])]:
        done = inferlab_here(*command, *(("--store", tmp_path / "new.db") if command[0] == "import" else ()))
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert str(path) in done.stderr
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch_size: " + "[" * 20_000, "it is nested more than 64 levels deep."),
        ("time: " + "1" * 5000, "it has a number of 5000 digits; at most 30 are read."),
        ("time: 2024-01-01", "'2024-01-01' is not a number"),
        (BILLION, "it has references (&name, *name), which are not read."),
        ("time: [1, 2]", "'time' takes one value, not a list."),
        ("strict: 7", "'strict' is true or false, not 7."),
        ("seed: 10000000000000000000000000000", "10000000000000000000000000000"),
    ],
)
def test_a_plan_beyond_a_limit_is_one_sentence(inferlab_here: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    done = inferlab_here("benchmark", "missing.onnx", "--plan", path)
    assert done.returncode == 2 and (said in done.stderr or "missing.onnx" in done.stderr)
    assert "Traceback" not in done.stderr


def test_no_verify_in_a_plan_turns_the_check_off(tmp_path: Path) -> None:
    from inferlab.cli.benchmark import command

    for key, value, verified in (
        ("no_verify", "true", False),
        ("no-verify", "false", True),
        ("verify", "false", False),
    ):
        path = tmp_path / "plan.yaml"
        path.write_text(f"{key}: {value}")
        with command.make_context("benchmark", ["m.onnx", "--plan", str(path)]) as context:
            assert context.params["verify"] is verified


def test_a_recipe_of_20000_brackets_is_one_sentence(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("format: inferlab-recipe/1\npruning: " + "[" * 20_000)
    done = inferlab_here("optimize", "demo:digits", "-o", tmp_path / "o.onnx", "--recipe", path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"inferlab: The recipe {path} cannot be read: it is nested more than 64 levels deep."
    )


def _export_of(entry: object) -> bytes:
    """A file with a right checksum."""
    lines = b"".join(
        json.dumps(one).encode() + b"\n"
        for one in ({"format": "inferlab-store/1", "inferlab_version": "1", "entries": 1}, entry)
    )
    end = {"end": {"entries": 1, "sha256": hashlib.sha256(lines).hexdigest()}}
    return lines + json.dumps(end).encode() + b"\n"


def test_a_small_file_that_stands_for_much_is_not_imported(inferlab_here: Run, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(_export_of({"id": "x" * (30 << 20)}), 9))
    assert bomb.stat().st_size < 40_000
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(_export_of({}))[:-20])
    for path, said in ((bomb, "it expands to more than 200 times its size"), (cut, "is damaged")):
        done = inferlab_here("import", path, "--store", tmp_path / "lab.db")
        assert done.returncode == 2 and said in done.stderr and "Nothing was imported." in done.stderr
    assert not (tmp_path / "lab.db").exists()


def test_samples_that_expand_to_far_more_than_samples_do_are_refused() -> None:
    import zlib

    from inferlab.store.samples import VERSION, unpack

    blob = bytes([VERSION]) + zlib.compress(bytes(200 << 20), 9)
    with pytest.raises(ValueError, match="they expand to more than"):
        unpack(blob)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entry SET content = CAST(x'ff' AS TEXT)",
        "UPDATE entry SET content = '{'",
        "UPDATE entry SET content = '[]'",
        "UPDATE entry SET content = replace(hex(zeroblob(50000)), '0', '[')",
        "UPDATE cell SET content = CAST(x'c328' AS TEXT)",
        "UPDATE cell SET content = 'null'",
        "UPDATE run SET content = '{}'",
        "UPDATE run SET samples = 'text'",
        "UPDATE entry SET title = x'00'",
        "UPDATE entry SET created_at = 'yesterday'",
    ],
)
def test_a_store_that_holds_what_is_no_text_or_no_json_is_bad_input(
    inferlab_here: Run, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "lab.db"
    with open_store(str(path)) as store:
        entry = save_done(store, a_cell())
    with sqlite3.connect(path) as raw:
        raw.execute(change)
    raw.close()
    codes = set()
    for command in (
        ("history",),
        ("show", entry),
        ("export", entry, "-o", tmp_path / "e.jsonl"),
        ("compare", entry, entry),
    ):
        done = inferlab_here(*command, "--store", path)
        codes.add(done.returncode)
        assert done.returncode in (0, 2), done.stderr
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1
    assert 2 in codes


def test_a_damaged_import_is_bad_input_whatever_the_types(tmp_path: Path) -> None:
    odd: tuple[object, ...] = (1, [], {}, {"id": 1}, {"id": "abcdefghij", "cells": 7})
    for entry in odd:
        path = tmp_path / "odd.jsonl"
        path.write_bytes(_export_of(entry))
        with open_store(str(tmp_path / "lab.db")) as store, pytest.raises(BadInput, match="Nothing was imported"):
            store.import_file(path)
