"""How a user gets in: by the address that was printed, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from inferlab.web.serve import _TO_THE_PAGE
from tests.helpers.web_server import Server, until
from tests.helpers.web_user import User


@pytest.fixture
def stranger(browser: webdriver.Chrome, server: Server) -> Iterator[webdriver.Chrome]:
    """A browser that was never here."""
    browser.get(f"{server.url}/static/favicon.svg")
    browser.delete_all_cookies()
    yield browser
    browser.delete_all_cookies()


def test_without_the_token_a_page_says_how_to_get_in(stranger: webdriver.Chrome, server: Server) -> None:
    stranger.get(server.url)
    said = stranger.find_element(By.TAG_NAME, "main").text
    assert said.startswith("A token is needed\nOpen inferlab with the whole address that it printed")


def test_the_printed_address_lets_in_for_good_and_does_not_stay(
    stranger: webdriver.Chrome, server: Server
) -> None:
    user = User(stranger, server.login)
    user.open("/")
    user.see("new-project")
    assert stranger.current_url == f"{server.url}/"
    # The page is alive: its WebSocket was let in as well.
    until(lambda: stranger.execute_script("return window.did_handshake"), "the page was never connected")
    assert stranger.execute_script("return document.cookie") == ""
    user.open("/new")
    user.see("drop-zone")


def test_a_file_on_this_machine_leads_in(stranger: webdriver.Chrome, server: Server, tmp_path: Path) -> None:
    page = tmp_path / "open.html"
    page.write_text(_TO_THE_PAGE.format(url=server.login))
    stranger.get(page.as_uri())
    User(stranger, server.url).see("new-project")
    assert stranger.current_url == f"{server.url}/"
