"""What a page that shows the progress costs: one measurement, with the page open and closed, interleaved."""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray
from selenium.webdriver.chrome.webdriver import WebDriver

from benchmarks import side_by_side as side
from inferlab.records import Run
from inferlab.store import open_store
from inferlab.store.entries import Stored
from tests.helpers.web_server import Server, ended, new_server, open_chromium, until

_MODEL = "demo:mobilenet_v2"
#: How long the page is open, and closed, at a time; what happens while it opens and closes is left out.
_TURN_S, _SETTLE_S = 5.0, 1.5
#: A turn that fell into the change of processes has fewer calls than a whole one.
_FEWEST_CALLS = 50


@dataclass(frozen=True, slots=True)
class Turn:
    """A time, on the clock that calls are measured with, in which the page was open, or closed."""

    opened: bool
    start_ns: int
    end_ns: int


def main(seconds: float = 600.0) -> None:
    """One core is measured; the server and the browser are kept on the other one."""
    with tempfile.TemporaryDirectory() as folder:
        server = new_server(Path(folder) / "server")
        server.start()
        browser = open_chromium(Path(folder) / "chromium")
        try:
            browser.get(server.login)
            _keep_off(server, browser)
            with server.client() as http:
                project = http.post("/projects", json={"name": "cost", "source": _MODEL}).raise_for_status().json()
                page = f"{server.url}/projects/{project['id']}/benchmarks"
                form = {"engine": "onnxruntime", "num_cores": [1], "scenario": "sync", "time_s": seconds}
                job = http.post(f"/projects/{project['id']}/benchmarks", json=form).raise_for_status().json()
                turns = _turns(http, job["id"], browser, page)
                entry = http.get(f"/jobs/{job['id']}").raise_for_status().json()["entry_id"]
            with open_store(str(server.store)) as store:
                stored = store.get(entry)
                assert isinstance(stored, Stored)
                (outcome,) = stored.benchmark.outcomes
        finally:
            browser.quit()
            ended(server)
    ratios = _ratios(outcome.runs, turns)
    side.report_paired("median, page open / page closed", ratios, "pairs of turns", "0.98 to 1.02")


def _turns(http: httpx.Client, job_id: str, browser: WebDriver, page: str) -> list[Turn]:
    """Open and close the page while a job is measured: ABBA, so that a drift favours neither."""
    until(lambda: http.get(f"/jobs/{job_id}").json()["status"] == "running", "the benchmark did not begin")
    turns = []
    for opened in itertools.cycle((True, False, False, True)):
        browser.get(page if opened else "about:blank")
        time.sleep(_SETTLE_S)
        start_ns = time.perf_counter_ns()
        time.sleep(_TURN_S)
        turns.append(Turn(opened, start_ns, time.perf_counter_ns()))
        job = http.get(f"/jobs/{job_id}").raise_for_status().json()
        if job["status"] != "running":
            assert job["status"] == "done", job
            break
    return turns


def _ratios(runs: Sequence[Run], turns: Sequence[Turn]) -> list[float]:
    """The median with the page open over that with it closed, for two turns after each other in one process."""
    ratios = []
    for run in runs:
        samples = [stream for window in run.windows for stream in window.streams]
        start_ns = np.concatenate([np.asarray(sample.starts_ns) for sample in samples])
        taken_ns = np.concatenate([np.asarray(sample.ends_ns) for sample in samples]) - start_ns
        # Turns are paired as they were taken: the first with the second, the third with the fourth.
        for turn, other in zip(turns[::2], turns[1::2], strict=False):
            medians = {each.opened: _median(start_ns, taken_ns, each) for each in (turn, other)}
            if all(medians.values()):
                ratios.append(medians[True] / medians[False])
    return ratios


def _median(start_ns: NDArray[np.int64], taken_ns: NDArray[np.int64], turn: Turn) -> float:
    """The median of the calls that began within a turn, 0 where there are too few."""
    within = taken_ns[(start_ns >= turn.start_ns) & (start_ns < turn.end_ns)]
    return float(np.median(within)) if len(within) >= _FEWEST_CALLS else 0.0


def _keep_off(server: Server, browser: WebDriver) -> None:
    """Bind the server and the browser, but not the process that measures, to the last CPU."""
    last = max(os.sched_getaffinity(0))
    assert server.process is not None
    for process in (server.process.pid, *_family(browser.service.process.pid)):
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {last})


def _family(process: int) -> list[int]:
    """A process and all that it started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(each for child in children for each in _family(int(child)))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="of measuring, the page open half of the time"
    )
    main(**vars(parser.parse_args()))
