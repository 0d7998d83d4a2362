"""A really started server and a real Chromium, shared by all tests of the pages and of the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver

from tests.helpers.web_server import Server, ended, left_the_machine, new_server, open_chromium, requested


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of all tests that need none of their own; its store fills with what they do."""
    found = new_server(tmp_path_factory.mktemp("server"))
    found.start()
    yield found
    ended(found)


@pytest.fixture
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start servers of a test's own: `serving("--max-upload", "1M")`."""
    started: list[Server] = []

    def start(*arguments: str, folder: Path | None = None) -> Server:
        found = new_server(tmp_path_factory.mktemp("own-server"), arguments, folder)
        started.append(found)
        found.start()
        return found

    yield start
    for each in started:
        ended(each)


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """Speaks with the HTTP API of the shared server: `http.get("/projects")`."""
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The one browser of all tests; `browser` cleans it up before each."""
    driver = open_chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser with one empty tab of 1280 x 900; what it downloads lies in `browser.downloads`."""
    first, *others = chromium.window_handles
    for each in others:
        chromium.switch_to.window(each)
        chromium.close()
    chromium.switch_to.window(first)
    chromium.get("about:blank")
    chromium.set_window_size(1280, 900)
    for kind in ("performance", "browser"):
        chromium.get_log(kind)  # type: ignore[no-untyped-call]
    yield chromium
    assert left_the_machine(requested(chromium)) == [], "a page asked another host for something"
