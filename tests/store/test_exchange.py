"""Files that travel between stores."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.store import open_store
from inferlab.store.store import Store
from tests.helpers.runs import a_cell
from tests.helpers.stored import a_benchmark, save, save_done


def _exported(store: Store, path: Path, ids: list[str] | None = None) -> Path:
    path.write_bytes(b"".join(store.export(ids)))
    return path


def test_what_was_exported_is_imported_as_it_was_on_another_database(
    store: Store, other_url: str, tmp_path: Path
) -> None:
    ids = [save(store, a_benchmark()), store.add_document("capacity", "é \0", {"rate": float("inf")})]
    store.note(ids[0], "mine")
    file = _exported(store, tmp_path / "lab.jsonl")
    with open_store(other_url) as other:
        assert other.import_file(file) == ids
        assert [other.get(one) for one in ids] == [store.get(one) for one in ids]
        assert [(entry.id, entry.note) for entry in other.history()] == [(ids[1], ""), (ids[0], "mine")]
        # The numbers of the history are derived again.
        assert other.history() == store.history()
        assert b"".join(other.export()) == file.read_bytes()


def test_labels_travel_and_find_their_entries(store: Store, other_url: str, tmp_path: Path) -> None:
    benchmark = a_benchmark()
    cells = [outcome.cell for outcome in benchmark.outcomes]
    odd = (("branch", 'fea"t%re/_'), ("commit", "abc"))
    marked = store.begin(benchmark.plan, benchmark.model, cells, labels=odd)
    main = store.add_document("capacity", "m", {}, labels=(("branch", "main"),))
    store.add_document("capacity", "m", {})
    file = _exported(store, tmp_path / "lab.jsonl")
    with open_store(other_url) as other:
        other.import_file(file)
        for each in (store, other):
            assert each.get(marked).labels == each.entry(marked).labels == dict(odd)
            assert [one.id for one in each.history(labels=odd[:1])] == [marked]
            assert [one.id for one in each.history(labels=[("branch", "main")])] == [main]
            assert each.history(labels=[("branch", "mai%")]) == []


def test_a_file_of_a_version_without_labels_is_imported_again(store: Store, tmp_path: Path) -> None:
    save_done(store, a_cell())
    lines = [json.loads(line) for line in _exported(store, tmp_path / "new.jsonl").read_text().splitlines()]
    del lines[1]["labels"]
    old = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    lines[-1]["end"]["sha256"] = hashlib.sha256(old).hexdigest()
    (tmp_path / "old.jsonl").write_bytes(old + json.dumps(lines[-1]).encode() + b"\n")
    assert store.import_file(tmp_path / "old.jsonl") == []


def test_only_what_is_wanted_is_exported_and_gzip_is_read(store: Store, other_url: str, tmp_path: Path) -> None:
    first, second = save_done(store, a_cell()), save_done(store, a_cell())
    file = tmp_path / "lab.jsonl.gz"
    file.write_bytes(gzip.compress(b"".join(store.export([second[:6], second]))))
    with open_store(other_url) as other:
        assert other.import_file(file) == [second]
        with pytest.raises(BadInput, match="has nothing"):
            other.export([first])


def test_importing_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    first = save(store, a_benchmark())
    file = _exported(store, tmp_path / "lab.jsonl")
    store.note(first, "a note of mine")
    assert store.import_file(file) == []
    assert store.get(first).note == "a note of mine"


def test_other_content_under_the_same_id_is_refused_and_nothing_is_imported(store: Store, tmp_path: Path) -> None:
    new = save_done(store, a_cell())
    pending = save(store, a_benchmark())
    file = _exported(store, tmp_path / "lab.jsonl")
    store.finish_cell(pending, store.unfinished(pending)[0], "done")
    store.remove(new)
    with pytest.raises(BadInput, match=f"other content under the id {pending}.*Nothing was imported"):
        store.import_file(file)
    assert [entry.id for entry in store.history()] == [pending]


def _resealed(lines: list[bytes]) -> bytes:
    body = b"".join(lines[:-1])
    return body + json.dumps({"end": {"sha256": hashlib.sha256(body).hexdigest()}}).encode()


def _changed(change: Callable[[Any], None]) -> Callable[[list[bytes]], bytes]:
    """Change an entry and seal the file again."""

    def changed(lines: list[bytes]) -> bytes:
        value = json.loads(lines[-2])
        change(value)
        return _resealed([*lines[:-2], json.dumps(value).encode() + b"\n", lines[-1]])

    return changed


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda lines: b"", "does not begin as one"),
        (lambda lines: b"\x00\xff\xfe binary", "not a complete file"),
        (lambda lines: b'{"format": "inferlab-benchmark/2"}', "does not begin as one"),
        (lambda lines: b'["a list"]', "does not begin as one"),
        (lambda lines: lines[0].replace(b"store/1", b"store/9"), "its format is inferlab-store/9"),
        (lambda lines: b"".join(lines[:-1]), "its end is missing"),
        (lambda lines: b"".join(lines)[:-9], "not a complete file"),
        (lambda lines: b"".join(lines).replace(b'"sync"', b'"sink"'), "checksum"),
        (lambda lines: gzip.compress(b"".join(lines))[:-20], "is damaged"),
        (lambda lines: gzip.compress(b"".join(lines))[:50] + b"xx", "is damaged"),
        (_changed(lambda value: value.update(id="../../etc")), "is not an entry"),
        (_changed(lambda value: value.update(title=3)), "should have text"),
        (_changed(lambda value: value["content"].pop("plan")), "plan"),
        (_changed(lambda value: value["cells"][0].update(status="odd")), "cannot be 'odd'"),
        (_changed(lambda value: value["cells"][0]["runs"][0].update(samples="AQ==")), "damaged samples"),
        (_changed(lambda value: value["cells"][0]["runs"][0]["content"].pop("windows")), "lacks its windows"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_whole(
    tmp_path: Path, damage: Callable[[list[bytes]], bytes], reason: str
) -> None:
    file = tmp_path / "file"
    with open_store(str(tmp_path / "a.db")) as source, open_store(str(tmp_path / "b.db")) as target:
        ids = [save_done(source, a_cell()) for _ in range(2)]
        file.write_bytes(damage(list(source.export(ids))))
        with pytest.raises(BadInput, match=reason):
            target.import_file(file)
        assert target.history() == []


def test_a_file_of_the_first_version_is_still_read(store: Store) -> None:
    # Made by inferlab 0.1.0 and never again: if this fails, a record got a field without a default.
    ids = store.import_file(Path(__file__).parent / "version_1.jsonl")
    assert [store.get(one).id for one in ids] == ids
    benchmark, document = store.history()[::-1]
    assert [(cell.status, cell.runs) for cell in benchmark.cells] == [
        ("done", 3),
        ("failed", 0),
        ("cancelled", 1),
        ("pending", 1),
    ]
    assert benchmark.cells[2].median_ms == pytest.approx(1.0)
    assert (document.kind, document.title) == ("comparison", "A against B")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a.db")) as store, pytest.raises(BadInput, match="No such file"):
        store.import_file(tmp_path / "missing")
    with open_store(str(tmp_path / "a.db")) as store, pytest.raises(BadInput, match="Is a directory"):
        store.import_file(tmp_path)
