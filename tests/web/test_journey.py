"""What a new user does first: from the upload of a model to a comparison of two engines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from selenium import webdriver

from tests.helpers.onnx_files import small_model
from tests.helpers.web_server import Server, left_the_machine, requested, until
from tests.helpers.web_user import Reader, newest

# Keeps every percentage that is shown from now on.
_WATCH = """
const cards = document.querySelector("[data-testid=cards]");
window.percentages = new Set();
const look = () => (cards.innerText.match(/\\d+ %/g) || []).forEach((one) => window.percentages.add(one));
new MutationObserver(look).observe(cards, {childList: true, subtree: true, characterData: true});
"""


def test_a_model_is_uploaded_profiled_and_compared_on_two_engines(
    browser: webdriver.Chrome, serving: Callable[..., Server], tmp_path: Path
) -> None:
    reader = Reader(browser, serving().login)
    _profile(reader, small_model(tmp_path / "own.onnx", width=64))
    project = reader.place.split("/")[2]
    reader.drawn("results-chart")

    reader.open(f"/projects/{project}/benchmarks")
    _compare(reader)
    (running,) = until(reader.cards, "the card did not appear")
    _add_and_cancel(reader, running)
    card = f"card-{newest(reader, [])}"
    assert reader.read(f"{card}/engines") == "ONNX Runtime vs OpenVINO"
    assert re.search(r"Batch size\s+1, 8\s+Core count\s+1, 2", reader.read(card))
    reader.drawn(f"{card}/chart")
    assert reader.read(f"{card}/verdict") in ("faster", "slower", "same", "inconclusive")
    assert len(browser.execute_script("return [...window.percentages]")) > 1

    entry = card.removeprefix("card-")
    reader.from_menu(entry, "export-html")
    saved: Path = browser.downloads / f"own.onnx-{entry}.html"  # type: ignore[attr-defined]
    until(saved.exists, "the comparison was not saved")
    places = re.findall(r">(\d cores?, batch \d)</option>", saved.read_text())
    assert sorted(places) == ["1 core, batch 1", "1 core, batch 8", "2 cores, batch 1", "2 cores, batch 8"]
    assert left_the_machine(requested(browser)) == []


def _profile(reader: Reader, model: Path) -> None:
    """A project of a file, with both profiles measured; ends at the performance profile."""
    reader.open("/")
    reader.click("new-project")
    reader.see("drop-zone")
    reader.give("files", model)
    reader.see("model", "Parameters")
    reader.click("next")
    reader.see("project-name")
    reader.click("next")
    reader.see("engine")
    reader.type("time", "0.2")
    reader.click("roofline")
    reader.click("run")
    reader.see("stage", "Profiling")
    reader.click("complete")
    assert re.fullmatch(r"/projects/[a-z2-7]{10}/performance/[a-z2-7]{10}", reader.at("/projects/"))


def _compare(reader: Reader) -> None:
    """Ask for a comparison of two engines at two core counts and two batch sizes."""
    reader.see("add-benchmark")
    reader.browser.execute_script(_WATCH)
    reader.click("add-benchmark")
    reader.see("estimate", "about")
    reader.click("enable-comparison")
    reader.choose("other-engine", "OpenVINO")
    for name in ("cores", "batches"):
        reader.click(f"{name}-multiple")
    reader.click("cores-1")
    reader.click("batches-8")
    reader.type("time", "1")
    reader.see("estimate", "4 comparisons of 2 core counts and 2 batch sizes")
    reader.click("run")
    reader.miss("benchmark-dialog")


def _add_and_cancel(reader: Reader, running: str) -> None:
    """Ask for a benchmark that waits behind what is running, cancel it, and put it away."""
    reader.click("add-benchmark")
    reader.see("estimate", "about")
    reader.click("run")
    waiting = until(lambda: next((card for card in reader.cards() if card != running), None), "no second card")
    reader.see(f"card-{waiting}/left", "1 job before it in the queue")
    reader.click(f"card-{waiting}/cancel")
    reader.see(f"card-{waiting}/ended", "Cancelled")
    reader.click(f"card-{waiting}/dismiss")
    reader.miss(f"card-{waiting}")
