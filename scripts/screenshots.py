"""Take the pictures of the web page that the README shows: python -m scripts.screenshots [FOLDER]."""

from __future__ import annotations

import html
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from selenium.webdriver.chrome.webdriver import WebDriver

from tests.helpers.web_server import ended, new_server, open_chromium

_IMAGES = Path(__file__).parent.parent / "docs" / "images"
_PATIENCE_S = 600.0
# Long enough for charts to be drawn and engines to be asked.
_SETTLE_S = 4.0


def main(folder: Path = _IMAGES, width: int = 1280, suffix: str = "") -> None:
    """Measure a few things on a server of its own, and take a picture of every main page, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        server = new_server(Path(home) / "server")
        server.start()
        browser = open_chromium(Path(home) / "chromium")
        try:
            with server.client() as http:
                pages = _measured(http)
            browser.get(server.login)
            for name, (address, height) in pages.items():
                for scheme in ("light", "dark"):
                    picture = folder / f"{name}{suffix}{'-dark' if scheme == 'dark' else ''}.png"
                    _take(browser, f"{server.url}{address}", picture, (width, height), scheme)
                    print(picture)
            _take_overview(browser, Path(home), folder, suffix)
        finally:
            browser.quit()
            ended(server)


_COMPARE = ("compare", "demo:mobilenet_v2", "-e", "onnxruntime,openvino", "-s", "sync", "-ncores", "1", "-t", "30")
_BENCHMARK = ("benchmark", "demo:mobilenet_v2", "-s", "sync", "-ncores", "1", "-t", "5")
_OVERVIEW = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; display: grid; grid-template-columns: 620px 660px; height: 560px; overflow: hidden; }}
pre {{ margin: 0; padding: 16px; font: 10.5px/1.5 "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  background: #14171b; color: #e3e7ec; }}
b {{ color: #6cabee; font-weight: 600; }}
img {{ width: 660px; display: block; }}
</style><body><pre>{text}</pre><img src="{picture}">"""


def _take_overview(browser: WebDriver, home: Path, folder: Path, suffix: str) -> None:
    """The command line and the page side by side: what two commands print, beside the cards of a project."""
    printed = []
    for command in (_BENCHMARK, _COMPARE):
        words = [sys.executable, "-m", "inferlab", *command, "--no-save", "-q"]
        ended = subprocess.run(words, check=True, capture_output=True, text=True)
        printed.append(f"<b>$ inferlab {shlex.join(command)}</b>\n{html.escape(ended.stdout)}")
    page = home / "overview.html"
    page.write_text(
        _OVERVIEW.format(text="\n".join(printed), picture=(folder / f"benchmarks{suffix}.png").as_uri())
    )
    picture = folder / f"overview{suffix}.png"
    _take(browser, page.as_uri(), picture, (1280, 560), "light")
    print(picture)


def _measured(http: httpx.Client) -> dict[str, tuple[str, int]]:
    """Fill the store; returns the address and the height of every picture."""
    project = _made(http, "/projects", {"name": "MobileNetV2", "source": "demo:mobilenet_v2"})
    _made(http, "/projects", {"name": "Digits", "source": "demo:digits", "description": "A small CNN, trained."})
    base = f"/projects/{project['id']}"
    jobs = [
        (f"{base}/profiles", {"engine": "onnxruntime", "levels": False, "int8": True, "time_s": 15}),
        (f"{base}/benchmarks", {"num_cores": [1, 2], "batch_sizes": [1, 8], "time_s": 5}),
        (
            f"{base}/benchmarks",
            {
                "engine": "openvino",
                "compare_engine": "onnxruntime",
                "num_cores": [1, 2],
                "batch_sizes": [1],
                "time_s": 60,
            },
        ),
    ]
    answers = [_ended(http, _made(http, address, form)) for address, form in jobs]
    entry = answers[0]["entry_id"]
    version = {"name": "INT8", "quantization": "static", "engines": ["onnxruntime"], "time_s": 20}
    version_id = _ended(http, _made(http, f"{base}/versions", version))["entry_id"]
    return {
        "start": ("/", 760),
        "new-project": ("/new", 760),
        "performance": (f"{base}/performance/{entry}", 1500),
        "loss": (f"{base}/loss/{entry}", 1100),
        "optimization": (f"{base}/optimization", 1100),
        "version": (f"{base}/optimization/{version_id}", 1100),
        "benchmarks": (f"{base}/benchmarks", 1100),
    }


def _made(http: httpx.Client, address: str, form: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = http.post(address, json=form).raise_for_status().json()
    return answer


def _ended(http: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + _PATIENCE_S
    while job["status"] in ("queued", "running"):
        assert time.monotonic() < end, "the job did not end"
        time.sleep(1.0)
        job = http.get(f"/jobs/{job['id']}").raise_for_status().json()
    return job


def _take(browser: WebDriver, url: str, picture: Path, size: tuple[int, int], scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get("about:blank")
    browser.get(url)
    time.sleep(_SETTLE_S)
    browser.save_screenshot(str(picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else _IMAGES)
