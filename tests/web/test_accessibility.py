"""Pages for everybody: contrast, names of controls, the keyboard, and narrow windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from inferlab.profiling.gains import with_estimate
from inferlab.records import Benchmark, Outcome
from inferlab.store import open_store
from inferlab.store.formats import content_of
from tests.helpers.profiles import a_loss_profile, a_profile
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import PLAN, save
from tests.helpers.web_server import Server, until
from tests.helpers.web_user import User

PROFILE = with_estimate(a_profile())
#: What follows the address of the project; the start of a page is seen by what is named.
PAGES = {
    "/": "new-project",
    "/new?source=demo:mlp": "model",
    "performance/{profile}": "layer-table",
    "performance/flops": "flops",
    "loss/{profile}": "layer-table",
    "optimization": "editor",
    "benchmarks": "ms-per-item",
    "settings": "facts",
}
# WCAG 2.2: 4.5 to 1, or 3 to 1 for large text. Text of charts is SVG, and on gradients nobody can tell.
_CONTRAST = """
const parse = (text) => {
  const found = text.match(/[\\d.]+/g).map(Number), scale = text.startsWith("color(") ? 255 : 1;
  return [...found.slice(0, 3).map((one) => scale * one), found[3] ?? 1];
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
const light = (color) => {
  const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  const [red, green, blue] = color.slice(0, 3).map((one) => linear(one / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const ground = (element) => {
  const layers = [];
  for (let one = element; one; one = one.parentElement) {
    const style = getComputedStyle(one);
    if (style.backgroundImage !== "none") return null;
    layers.push(parse(style.backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const opacity = (one) => one ? Number(getComputedStyle(one).opacity) * opacity(one.parentElement) : 1;
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.textContent.trim();
  const skipped = "svg, script, style, .q-icon, [aria-disabled=true], .disabled, :disabled";
  if (!text || element.closest(skipped)) continue;
  if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  const below = ground(element);
  if (!below) continue;
  const style = getComputedStyle(element), ink = parse(style.color);
  ink[3] *= opacity(element);
  const [high, low] = [light(over(ink, below)), light(below)].sort((a, b) => b - a);
  const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(style.fontSize);
  const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  const told = `${text.slice(0, 40)}: ${ratio.toFixed(2)} (${style.color} on ${below.slice(0, 3)})`;
  if (ratio < needed) bad.push(told);
}
return [...new Set(bad)];
"""


@pytest.fixture(scope="module")
def places(server: Server) -> Iterator[dict[str, str]]:
    """Addresses of all pages by what is seen on each, of a project that has something of everything."""
    with open_store(str(server.store)) as store:
        project = store.projects.add("Everything", "of each kind one", PROFILE.model).id
        theory = replace(
            PROFILE,
            performance=None,
            estimate=None,
            loss=a_loss_profile(method="approximated", items=0, findings=()),
        )
        entries = [
            store.add_document("profile", one.model.source, content_of(one), project_id=project)
            for one in (theory, PROFILE)
        ]
        runs = (steady_run(2.0), steady_run(2.1), steady_run(2.2))
        outcomes = tuple(Outcome(a_cell(batch_size=size), "done", runs) for size in (1, 2))
        store.projects.take(project, save(store, Benchmark(PLAN, PROFILE.model, outcomes)))
        found = {}
        for page in PAGES:
            inside = f"/projects/{project}/{page.format(profile=entries[1])}"
            found[page] = page if page.startswith("/") else inside
        yield found
        store.projects.remove(project)


@pytest.fixture
def user(browser: webdriver.Chrome, server: Server) -> Iterator[User]:
    yield User(browser, server.login)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _open(user: User, places: dict[str, str], page: str) -> None:
    user.open(places[page])
    user.see(PAGES[page])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_read_well_on_every_page(user: User, places: dict[str, str], scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    user.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    found = {}
    for page in PAGES:
        _open(user, places, page)
        found[page] = user.browser.execute_script(_CONTRAST)
    assert {page: bad for page, bad in found.items() if bad} == {}


def test_every_control_has_a_name(user: User, places: dict[str, str]) -> None:
    found = {}
    for page in PAGES:
        _open(user, places, page)
        tree: dict[str, Any] = user.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        controls = ("button", "link", "textbox", "checkbox", "switch", "slider", "combobox", "spinbutton", "tab")
        found[page] = [
            node["role"]["value"]
            for node in tree["nodes"]
            if not node["ignored"]
            and node["role"]["value"] in controls
            and not node.get("name", {}).get("value", "").strip()
        ]
    assert {page: nameless for page, nameless in found.items() if nameless} == {}


def test_nothing_vanishes_and_nothing_is_cut_off_in_a_narrow_window(user: User, places: dict[str, str]) -> None:
    narrow = {"width": 640, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    user.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    wider = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
    for page in PAGES:
        _open(user, places, page)
        assert (page, user.browser.execute_script(wider)) == (page, 0)
    _open(user, places, "performance/{profile}")
    items = [
        element.text.split("\n")[0]
        for element in user.browser.find_elements(By.CSS_SELECTOR, ".il-items .il-item")
    ]
    assert items == ["baseline", "FLOPS"]
    user.see("add-profile")
    _open(user, places, "/")
    row = user.read(f"project-{places['settings'].split('/')[2]}")
    for part in ("Everything", "13.3 MiB", "3.49 M", "1.05 ms", "1 benchmark, 2 profiles"):
        assert part in row
    labels = """return [...document.querySelectorAll('.il-projects tbody tr:first-child td')].map(
        (cell) => getComputedStyle(cell, '::before').content)"""
    assert user.browser.execute_script(labels)[1:4] == ['"Model"', '"Size"', '"Parameters"']
    _open(user, places, "benchmarks")
    # Numbers come first, what can be chosen once the card is opened.
    user.see("select-batch")
    width = "return document.querySelector('[data-testid=\"select-batch\"]').closest('.q-field').clientWidth"
    assert user.browser.execute_script(width) >= 100


def test_a_table_is_sorted_and_a_tooltip_read_by_the_keyboard(user: User, places: dict[str, str]) -> None:
    _open(user, places, "performance/{profile}")
    assert PROFILE.performance is not None
    script = """
        const heads = [...document.querySelectorAll('[data-testid="layer-table"] th')];
        heads.find((one) => one.textContent.replace("arrow_upward", "").trim() === "ms").focus();"""
    user.browser.execute_script(script)
    user.browser.switch_to.active_element.send_keys(Keys.ENTER)
    slowest = max(PROFILE.performance.layers, key=lambda layer: layer.ms)
    first = "return document.querySelector('[data-testid=\"layer-table\"] tbody tr[data-row]')?.dataset.row"
    until(lambda: user.browser.execute_script(first) == str(slowest.index), "Enter did not sort the table")
    user.browser.execute_script("document.querySelector('.il-budget [role=img]').focus()")
    shown = "return document.querySelector('.q-tooltip')?.innerText ?? ''"
    until(lambda: "loss" in user.browser.execute_script(shown), "the focus shows no tooltip")
    user.browser.switch_to.active_element.send_keys(Keys.TAB)
    until(lambda: not user.browser.execute_script(shown), "the tooltip stays")
