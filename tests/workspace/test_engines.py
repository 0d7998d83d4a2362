"""Which engines are known: asked once, and again when one was installed or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlab.engines import environments, registry
from inferlab.errors import BadInput
from inferlab.records import EngineInfo
from inferlab.workspace.engines import Engines, title


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A note of every time that all engines were asked, which takes seconds."""
    notes: list[str] = []

    def ask(releases: bool) -> list[EngineInfo]:
        notes.append("asked")
        return [EngineInfo("onnxruntime", "ready", kinds=("onnx",))]

    monkeypatch.setattr(registry, "list_engines", ask)
    return notes


def test_engines_are_asked_once_and_again_after_one_was_installed_elsewhere(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: dict[str, Path] = {}
    monkeypatch.setattr(environments, "interpreter_of", installed.get)
    engines = Engines()
    assert engines.known is None
    for _ in range(3):
        assert [one.name for one in engines.all()] == ["onnxruntime"]
    assert asked == ["asked"]
    installed["deepsparse"] = tmp_path
    for _ in range(3):
        engines.all()
    assert asked == ["asked", "asked"]


def test_only_known_engines_can_be_named(asked: list[str]) -> None:
    engines = Engines()
    assert engines.named("onnxruntime").state == "ready"
    with pytest.raises(BadInput, match=r"There is no engine 'my\.py:Mine'\. Known engines: onnxruntime\."):
        engines.named("my.py:Mine")


def test_a_release_is_called_by_its_engine_and_its_version() -> None:
    assert title("onnxruntime==1.22.1") == "ONNX Runtime 1.22.1"
    assert (title("onnxruntime"), title("tempo==1.0")) == ("ONNX Runtime", "tempo==1.0")
