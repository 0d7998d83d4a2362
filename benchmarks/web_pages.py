"""How soon pages show what they are about: with 10,000 stored benchmarks, and of a model with 5,000 layers."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from selenium.webdriver.chrome.webdriver import WebDriver

from benchmarks.store_history import MODEL, fill
from inferlab.store import open_store
from inferlab.store.formats import content_of
from tests.helpers.profiles import a_profile, repeated
from tests.helpers.web_server import ended, new_server, open_chromium

_LAYERS = 5_000
_ROUNDS = 9
_PATIENCE_S = 60.0
# Tells when the first of some elements is there, by the browser's own clock.
_WATCH = """
window.shown = {};
const wanted = %s;
const look = () => { for (const one of wanted)
  if (!(one in window.shown) && document.querySelector(one)) window.shown[one] = performance.now(); };
new MutationObserver(look).observe(document, {childList: true, subtree: true});
"""
_INTO_VIEW = """
const area = document.querySelector(arguments[0]);
if (area) area.scrollIntoView(); else window.scrollTo(0, document.body.scrollHeight);
return area !== null && area.scrollHeight > 2 * area.clientHeight;
"""
_FOUND = """
const paints = performance.getEntriesByName('first-contentful-paint');
const shown = Object.values(window.shown || {});
return paints.length && shown.length ? [paints[0].startTime, Math.max(...shown)] : null;
"""
# How long each frame takes while a table is scrolled from its top to its end.
_SCROLL = """
const done = arguments[arguments.length - 1];
const area = document.querySelector(arguments[0]);
const frames = []; let last = performance.now(); let step = 0;
const next = (now) => {
  frames.push(now - last); last = now; step += 1;
  area.scrollTop = area.scrollHeight * step / 120;
  if (step < 120) requestAnimationFrame(next); else done(frames.slice(1));
};
requestAnimationFrame(next);
"""


def main(rounds: int = _ROUNDS) -> None:
    """Print medians and the slowest of fresh loads."""
    with tempfile.TemporaryDirectory() as folder:
        server = new_server(Path(folder) / "server")
        with open_store(str(server.store)) as store:
            fill(store)
            project = store.projects.add("ResNet-50", "", MODEL)
            short = a_profile()
            assert short.performance is not None
            deep = repeated(short, _LAYERS // len(short.performance.layers))
            content = content_of(deep)
            profile_id = store.add_document("profile", "deep", content, project_id=project.id)
            # What versions are predicted by must be profiles of the project's own model.
            own = store.projects.add("Deep", "", deep.model)
            store.add_document("profile", "deep", content, project_id=own.id)
        server.start()
        browser = open_chromium(Path(folder) / "chromium")
        try:
            browser.get(server.login)
            base = f"/projects/{project.id}"
            for name, address, element, aim in (
                ("start page", "/", "[data-testid^=project-]", 1.0),
                ("benchmarks page", f"{base}/benchmarks", "[data-testid^=card-]", 1.0),
                (
                    f"profile of {_LAYERS} layers",
                    f"{base}/performance/{profile_id}",
                    ".js-plotly-plot .barlayer",
                    2.0,
                ),
                (
                    f"versions of {_LAYERS} layers",
                    f"/projects/{own.id}/optimization",
                    "[data-testid=estimated-speedup]",
                    2.0,
                ),
            ):
                _report(name, aim, [_load(browser, f"{server.url}{address}", element) for _ in range(rounds)])
            browser.get(f"{server.url}{base}/performance/{profile_id}")
            _scroll(browser)
        finally:
            browser.quit()
            ended(server)


def _load(browser: WebDriver, url: str, element: str) -> dict[str, float]:
    """Seconds from the beginning of the navigation to the first paint, and to the first of the elements."""
    browser.get("about:blank")
    watch = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH % [element]})
    browser.get(url)
    end = time.monotonic() + _PATIENCE_S
    while not (frames := browser.execute_script(_FOUND)) and time.monotonic() < end:
        time.sleep(0.05)
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", watch)
    assert frames, f"{url} did not show {element}"
    return {"first paint": frames[0] / 1e3, "content": frames[1] / 1e3}


def _report(name: str, aim_s: float, loads: list[dict[str, float]]) -> None:
    for what in loads[0]:
        times = [load[what] for load in loads]
        print(
            f"{name:24} {what:12} {statistics.median(times):.2f} s, slowest {max(times):.2f} s  (aim: {aim_s:g})"
        )


def _scroll(browser: WebDriver) -> None:
    """Frames of 16.7 ms are what a screen shows; those above 50 ms are seen as jerks."""
    area = "[data-testid=layer-table] .il-scroll"
    end = time.monotonic() + _PATIENCE_S
    # It is made when it comes into view.
    while not browser.execute_script(_INTO_VIEW, area) and time.monotonic() < end:
        time.sleep(0.2)
    frames: list[float] = browser.execute_async_script(_SCROLL, area)
    slow = sum(frame > 50 for frame in frames)
    median = statistics.median(frames)
    frame_text = f"frame {median:.1f} ms, slowest {max(frames):.0f} ms, above 50 ms: {slow} of {len(frames)}"
    print(f"{f'scrolling {_LAYERS} rows':24} {frame_text}")


if __name__ == "__main__":
    main()
