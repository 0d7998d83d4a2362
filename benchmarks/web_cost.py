"""What a page that shows the progress costs what it shows: medians with the page open over closed."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import httpx
from selenium.webdriver.chrome.webdriver import WebDriver

from benchmarks import side_by_side as side
from tests.web.serving import Server, ended, new_server, open_chromium

_MODEL = "demo:mobilenet_v2"
_TIME_S = 10.0
_PATIENCE_S = 300.0


def main(rounds: int = 12) -> None:
    """One core is measured; the server and the browser are kept on the other one."""
    with tempfile.TemporaryDirectory() as folder:
        server = new_server(Path(folder) / "server")
        server.start()
        browser = open_chromium(Path(folder) / "chromium")
        try:
            _keep_off(server, browser)
            with httpx.Client(base_url=server.api, timeout=60.0, trust_env=False) as http:
                project = http.post("/projects", json={"name": "cost", "source": _MODEL}).raise_for_status().json()
                page = f"{server.url}/projects/{project['id']}/benchmarks"
                _measure(http, project["id"])  # the model is built and its reference computed

                def opened() -> float:
                    browser.get(page)
                    return _measure(http, project["id"])

                def closed() -> float:
                    browser.get("about:blank")
                    return _measure(http, project["id"])

                found = side.ratios(opened, closed, rounds)
            side.report("median, page open / page closed", found, "0.98 to 1.02")
            print(f"median of the ratios {statistics.median(found):.4f}")
        finally:
            browser.quit()
            ended(server)


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


def _measure(http: httpx.Client, project_id: str) -> float:
    """The median, in milliseconds, of a benchmark that the server's runner measures on one core."""
    form = {"engine": "onnxruntime", "num_cores": [1], "batch_sizes": [1], "scenario": "sync", "time_s": _TIME_S}
    job = http.post(f"/projects/{project_id}/benchmarks", json=form).raise_for_status().json()
    end = time.monotonic() + _PATIENCE_S
    while job["status"] in ("queued", "running"):
        assert time.monotonic() < end, "the benchmark did not end"
        time.sleep(1.0)
        job = http.get(f"/jobs/{job['id']}").raise_for_status().json()
    assert job["status"] == "done", job
    card = http.get(f"/benchmarks/{job['entry_id']}").raise_for_status().json()
    return float(card["arms"][0]["cells"][0]["numbers"]["ms_per_batch"]["value"])


if __name__ == "__main__":
    main()
