"""Mutated ONNX files end in success or in one sentence, in every reader of ours; none hangs or dies."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzzing import readers
from benchmarks.fuzzing.onnx_mutations import mutate, seed_models
from inferlab.errors import InferlabError
from inferlab.model.confined import in_this_process
from inferlab.model.flops import count
from inferlab.model.onnx_file import digest_of, read_onnx, rewrite
from inferlab.model.shapes import resolve
from inferlab.records import Model
from inferlab.transform.copies import stamp
from inferlab.transform.prune import prune

_SEEDS = 120


@pytest.fixture(autouse=True)
def _readers_here() -> Iterator[None]:
    with in_this_process(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _attempt(reader: Any, *arguments: Any) -> Any:
    """What a reader answers; None where it refused with the exit code of bad input or of a failed cell."""
    try:
        return reader(*arguments)
    except InferlabError as error:
        assert error.exit_code in (2, 3), f"{reader.__name__}: {error}"
        assert str(error).strip()
        return None


@pytest.mark.parametrize("name", sorted(seed_models()))
def test_every_reader_survives_mutated_models(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_trace(*_: Any) -> Any:
        raise InferlabError("not traced here")

    monkeypatch.setattr(count, "trace", no_trace)
    path, out = tmp_path / "model.onnx", tmp_path / "out"
    (tmp_path / "data.bin").write_bytes(bytes(8192))
    content = seed_models()[name]
    read = 0
    for seed in range(_SEEDS):
        path.write_bytes(mutate(content, seed))
        model = _attempt(read_onnx, path, "model.onnx")
        assert (_attempt(digest_of, path) is None) or model is None or digest_of(path) == model.digest
        shapes = model and _attempt(resolve, model.inputs, None, None, {})
        if model is None or shapes is None:
            continue
        read += 1
        counted = _attempt(count.costs, model, shapes.shapes)
        _attempt(rewrite, model, out, (1, 2), 8, False, True)
        _attempt(stamp, model, out, {"key": "value"})
        levels = {node.weight: 0.5 for node in (counted.nodes if counted else ()) if node.prunable}
        if levels:
            _attempt(prune, model, levels, out)
            _attempt(prune, model, levels, out, "block4")
    # Mutations that no reader gets past would test nothing.
    assert read > _SEEDS / 5


@pytest.mark.parametrize("change", readers.CHANGES.values(), ids=lambda change: change.__name__)
def test_what_makes_changed_copies_survives_mutated_models(
    change: Callable[[Model, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    (tmp_path / "data.bin").write_bytes(bytes(8192))
    copies = 0
    with readers.quick_engines():
        for number, content in enumerate(seed_models().values()):
            for seed in range(3):
                path.write_bytes(mutate(content, seed))
                model = _attempt(read_onnx, path, "model.onnx")
                folder = tmp_path / f"{number}-{seed}"
                if model is not None:
                    _attempt(change, model, folder)
                copies += folder.exists() and any(folder.iterdir())
    assert copies > 0


@pytest.mark.parametrize("name", sorted(seed_models()))
def test_the_models_that_are_mutated_are_sound(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(seed_models()[name])
    model = read_onnx(path, name)
    assert count.costs(model, resolve(model.inputs, None, None, {}).shapes).nodes


def test_the_same_seed_gives_the_same_bytes() -> None:
    content = seed_models()["control"]
    assert [mutate(content, seed) for seed in range(20)] == [mutate(content, seed) for seed in range(20)]
    assert len({mutate(content, seed) for seed in range(200)}) > 150
