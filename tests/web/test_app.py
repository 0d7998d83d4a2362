"""The app as a whole: nothing that goes wrong inside shows its insides."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ROOT = Path(__file__).parents[2]
SORRY = "This is an internal error of inferlab. Its details were saved where inferlab was started."


@dataclass(frozen=True, slots=True)
class Faulty:
    url: str
    folder: Path

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path)

    def said(self) -> list[str]:
        """What the terminal shows."""
        return (self.folder / "stderr").read_text().splitlines()

    def kept(self) -> str:
        """What all files of details hold."""
        return "".join(file.read_text() for file in self.folder.glob("inferlab-fault-*.txt"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    folder = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.web.faulty_app", str(port)], cwd=folder, env=environment, stderr=stderr
        )
        found = Faulty(f"http://127.0.0.1:{port}", folder)
        try:
            _wait_for(found, process)
            yield found
        finally:
            process.terminate()
            process.wait()


def _wait_for(faulty: Faulty, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            faulty.get("/static/favicon.svg")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("\n".join(faulty.said()))


@pytest.mark.parametrize(
    ("path", "secret"), [("/sync", "in a page"), ("/async", "in an async page"), ("/api/v1/fault", "in the API")]
)
def test_a_fault_is_a_sentence_for_the_user_a_line_on_the_terminal_and_details_in_a_file(
    faulty: Faulty, path: str, secret: str
) -> None:
    response = faulty.get(path)
    assert response.status_code == 500
    assert SORRY in response.text
    assert "Secret" not in response.text and "Traceback" not in response.text and ".py" not in response.text
    assert response.headers["x-frame-options"] == "DENY"
    (line,) = [line for line in faulty.said() if secret + ")" in line]
    assert line.startswith(f"inferlab: internal error (Secret: {secret}). The details are in ")
    assert f"Secret: {secret}\n" in faulty.kept()


def test_what_the_user_gave_wrong_is_told_in_its_own_words_and_is_no_fault(faulty: Faulty) -> None:
    page, api = faulty.get("/refused"), faulty.get("/api/v1/refused")
    assert (page.status_code, api.status_code, api.json()) == (400, 400, {"detail": "There is no job 7."})
    assert "There is no project &lt;7&gt;." in page.text
    assert not [line for line in faulty.said() if "BadInput" in line]


@pytest.mark.parametrize("path", ["/nothing", "/number/x", "/static/nothing.css", "/_nicegui/nothing"])
def test_an_address_with_nothing_behind_it_is_a_calm_page(faulty: Faulty, path: str) -> None:
    response = faulty.get(path)
    assert response.status_code == 404
    assert "There is nothing at this address." in response.text
    assert '<a href="/">' in response.text


def test_an_address_of_the_api_with_nothing_behind_it_is_json(faulty: Faulty) -> None:
    response = faulty.get("/api/v1/nothing")
    assert (response.status_code, response.json()) == (404, {"detail": "There is nothing at this address."})


def test_a_page_that_takes_too_long_speaks_to_users_not_to_programmers(faulty: Faulty) -> None:
    response = faulty.get("/slow")
    assert response.status_code == 503
    assert "inferlab did not make this page in time." in response.text
    assert "response_timeout" not in response.text


def test_the_api_is_described_and_nothing_of_it_comes_from_another_host(faulty: Faulty) -> None:
    described = faulty.get("/api/v1/openapi.json").json()
    assert described["info"]["title"] == "inferlab"
    assert "/api/v1/number/{number}" in described["paths"]
    assert [faulty.get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")] == [404] * 3


def test_the_style_sheet_is_asked_for_once_and_for_all(faulty: Faulty) -> None:
    page = faulty.get("/").text
    address = page.split('rel="stylesheet" href="')[1].split('"')[0]
    assert faulty.get(address).headers["cache-control"] == "public, max-age=31536000, immutable"
    assert faulty.get("/static/inferlab.css").headers["cache-control"] == "no-cache"
    assert "tailwind" not in page


def test_the_server_writes_nothing_into_the_folder_that_it_is_started_in(faulty: Faulty) -> None:
    faulty.get("/")
    assert {one.name for one in faulty.folder.iterdir() if not one.name.startswith("inferlab-fault-")} == {
        "stderr"
    }


@pytest.mark.parametrize(
    ("name", "words", "details"),
    [
        ("refused", "The batch size <b>0</b> is too small.", ""),
        ("fault", "That did not work: an internal error of inferlab.", "Secret: in an event\n"),
        ("late", "That did not work: an internal error of inferlab.", "Secret: in a late event\n"),
    ],
)
def test_an_error_in_an_event_is_said_on_the_page(
    faulty: Faulty, browser: webdriver.Chrome, name: str, words: str, details: str
) -> None:
    browser.get(faulty.url)
    button = (By.XPATH, f"//button[.//span[text()='{name}']]")
    WebDriverWait(browser, 20).until(lambda found: found.find_elements(*button))[0].click()
    WebDriverWait(browser, 20).until(partial(_is_notified, words))
    assert "Secret" not in browser.page_source
    WebDriverWait(browser, 20).until(lambda _: details in faulty.kept())


def test_foreign_text_is_shown_as_it_stands(faulty: Faulty, browser: webdriver.Chrome) -> None:
    browser.get(faulty.url)
    WebDriverWait(browser, 20).until(lambda found: found.find_elements(By.TAG_NAME, "h1"))
    assert browser.title == "Fine <b>page</b> – inferlab"
    assert browser.find_element(By.CLASS_NAME, "il-crumbs").text == "Fine <b>page</b>"
    assert browser.find_element(By.CSS_SELECTOR, ".il-title .il-muted").text == "<i>not markup</i>"


def test_dark_follows_the_browser_until_the_user_chooses_and_is_remembered(
    faulty: Faulty, browser: webdriver.Chrome
) -> None:
    def is_dark() -> bool:
        WebDriverWait(browser, 20).until(lambda found: found.find_elements(By.CSS_SELECTOR, "button.il-tool"))
        dark, body = browser.execute_script(
            "return [document.documentElement.classList.contains('il-dark'),"
            " document.body.classList.contains('body--dark')]"
        )
        assert dark == body
        return bool(dark)

    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer("dark")
    browser.get(faulty.url)
    assert is_dark()
    browser.find_element(By.CSS_SELECTOR, "button.il-tool").click()
    assert not is_dark()
    browser.refresh()
    assert not is_dark()
    browser.find_element(By.CSS_SELECTOR, "button.il-tool").click()
    assert is_dark()
    prefer("light")
    browser.refresh()
    assert not is_dark()
    prefer("")


def test_the_browser_itself_blocks_requests_to_other_hosts(faulty: Faulty, browser: webdriver.Chrome) -> None:
    browser.get(faulty.url)
    blocked = browser.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', (e) => done([e.effectiveDirective, e.blockedURI]));"
        "fetch('http://other.example/').catch(() => 0);"
    )
    assert blocked == ["connect-src", "http://other.example/"]


def _is_notified(words: str, browser: webdriver.Chrome) -> bool:
    return any(
        words in element.text for element in browser.find_elements(By.CLASS_NAME, "q-notification__message")
    )
