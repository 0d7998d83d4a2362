"""What a user does with a page: look, click, type; each waits until it can be done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.helpers.web_server import until

_T = TypeVar("_T")


class User:
    """Somebody in front of a browser who has the printed address; things are found by their `data-testid`."""

    def __init__(self, browser: webdriver.Chrome, login: str) -> None:
        self.browser = browser
        self.home, _, self._token = login.partition("/?token=")

    def open(self, path: str) -> None:
        """Go to a page; the first time with the token, which the server takes out of the address."""
        token, self._token = self._token, ""
        more = f"{'&' if '?' in path else '?'}token={token}" if token else ""
        self.browser.get(f"{self.home}{path}{more}")

    @property
    def place(self) -> str:
        """The address, without the server."""
        return self.browser.current_url.removeprefix(self.home)

    def at(self, beginning: str) -> str:
        """Wait for a page whose address begins so; returns the whole."""
        return until(
            lambda: self.place if self.place.startswith(beginning) else None, f"never came to {beginning}"
        )

    def see(self, name: str, text: str = "") -> WebElement:
        """Wait until something is there to be seen, with this text in it."""
        return until(
            lambda: self._still(lambda: next((one for one in self._shown(name) if text in one.text), None)),
            f"never saw {name} {text!r} at {self.place}",
        )

    def read(self, name: str, text: str = "") -> str:
        """What something says, as soon as it has this text in it."""
        found = until(
            lambda: self._still(lambda: [one.text for one in self._shown(name) if text in one.text]),
            f"never saw {name} {text!r} at {self.place}",
        )
        return found[0]

    def miss(self, name: str) -> None:
        """Wait until something is not to be seen."""
        until(lambda: self._still(lambda: not self._shown(name)), f"{name} did not go away at {self.place}")

    def sees(self, name: str) -> bool:
        """Whether something is to be seen right now."""
        return bool(self._still(lambda: bool(self._shown(name))))

    def can_click(self, name: str) -> bool:
        """Whether a button takes clicks."""
        return not self.asked(name, "disabled")

    def click(self, name: str, text: str = "") -> None:
        """Click on something as soon as it takes clicks."""

        def clicked() -> bool:
            one = self.see(name, text)
            if not self._is_connected() or not one.is_enabled() or one.get_attribute("aria-disabled") == "true":
                return False
            one.click()
            return True

        until(lambda: self._still(clicked), f"{name} takes no clicks at {self.place}")

    def type(self, name: str, text: str) -> None:
        """Put a text into a field in place of what is there."""
        self.press(name, Keys.CONTROL + "a", Keys.DELETE, text)
        until(lambda: self.value(name) == text, f"{name} did not take {text!r}")

    def press(self, name: str, *keys: str) -> None:
        """Press keys in a field, or on what takes keys."""

        def pressed() -> bool:
            one = self.see(name)
            if not self._is_connected():
                return False
            for each in keys:
                one.send_keys(each)
            return True

        until(lambda: self._still(pressed), f"{name} takes no keys at {self.place}")

    def value(self, name: str) -> str:
        """What stands in a field."""
        return self.asked(name, "value")

    def is_on(self, name: str) -> bool:
        """Whether a switch or a box is on."""
        return self.asked(name, "aria-checked") == "true"

    def give(self, name: str, *files: object) -> None:
        """Choose files, as in the browser's own dialog, which cannot be seen."""
        # Nobody finds a file sooner than a page is connected.
        until(lambda: self.browser.execute_script("return window.did_handshake"), "the page was never connected")
        found = self.browser.find_elements(By.CSS_SELECTOR, f'[data-testid="{name}"]')
        found[0].send_keys("\n".join(map(str, files)))

    def asked(self, name: str, attribute: str) -> str:
        """An attribute of something that is to be seen, empty where it has none."""
        found = until(
            lambda: self._still(lambda: [one.get_attribute(attribute) or "" for one in self._shown(name)]),
            f"never saw {name} at {self.place}",
        )
        return found[0]

    def painted(self, name: str, style: str, within: str = "") -> str:
        """How something is painted, or the first of what a selector finds in it."""
        script = """
            const found = arguments[1] ? arguments[0].querySelector(arguments[1]) : arguments[0];
            return found && getComputedStyle(found).getPropertyValue(arguments[2]);"""
        found: str = until(
            lambda: self._still(lambda: self.browser.execute_script(script, self.see(name), within, style)),
            f"{name} has no {style} at {self.place}",
        )
        return found

    def _is_connected(self) -> bool:
        """Whether a page has reached its server: until then it may load itself again and forget what was done."""
        return bool(self.browser.execute_script("return window.did_handshake !== false"))

    def _shown(self, name: str) -> list[WebElement]:
        found = self.browser.find_elements(By.CSS_SELECTOR, f'[data-testid="{name}"]')
        return [one for one in found if one.is_displayed()]

    @staticmethod
    def _still(ask: Callable[[], _T]) -> _T | None:
        """An answer, or none where what was asked has just been painted again."""
        try:
            return ask()
        except StaleElementReferenceException:
            return None


_MENU_S = 10.0


class Reader(User):
    """A user who looks at things within things: `card-ID/chart`."""

    def _shown(self, name: str) -> list[WebElement]:
        path = " ".join(f'[data-testid="{part}"]' for part in name.split("/"))
        return [element for element in self.browser.find_elements(By.CSS_SELECTOR, path) if element.is_displayed()]

    def cards(self) -> list[str]:
        """What the cards are called, from the top."""
        script = """
            const cards = document.querySelectorAll('[data-testid^="card-"]');
            return [...cards].map((card) => card.dataset.testid.slice("card-".length));"""
        found: list[str] = self.browser.execute_script(script)
        return found

    def drawn(self, name: str) -> None:
        """Wait for a chart with axes."""
        until(
            lambda: self._still(lambda: self.see(name).find_elements(By.CSS_SELECTOR, ".xaxislayer-above")),
            f"{name} was never drawn",
        )

    def choose(self, name: str, text: str) -> None:
        """Choose what is called so from a list."""

        def chosen() -> bool:
            self._unfold(name)
            options = self.browser.find_elements(By.CSS_SELECTOR, ".q-menu .q-item:not(.disabled)")
            wanted = [option for option in options if option.is_displayed() and option.text.split("\n")[0] == text]
            if wanted:
                wanted[0].click()
            return bool(wanted)

        until(lambda: self._still(chosen), f"{name} does not offer {text}")
        self._folded()

    def offered(self, name: str, option: str) -> WebElement:
        """What a list offers, whether or not it can be chosen; the list stays open."""

        def found() -> WebElement | None:
            self._unfold(name)
            return next(iter(self._shown(option)), None)

        return until(lambda: self._still(found), f"{name} does not offer {option}")

    def _unfold(self, name: str) -> None:
        # A dialog that has just come takes the focus, and closes a list that was opened too soon.
        if not self._lists():
            self.click(name)

    def fold(self) -> None:
        """Close the list that is open."""
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        self._folded()

    def _folded(self) -> None:
        # One that is fading away still takes clicks.
        until(lambda: not self._lists(), "the list stays open")

    def _lists(self) -> list[WebElement]:
        found = self._still(
            lambda: [
                element
                for element in self.browser.find_elements(By.CLASS_NAME, "q-menu")
                if element.is_displayed()
            ]
        )
        return found or []

    def from_menu(self, entry_id: str, item: str) -> None:
        """Choose from the menu of a card."""

        def opened() -> bool:
            # A card that is painted again takes its menu along.
            self.click(f"card-{entry_id}/menu")
            with contextlib.suppress(AssertionError):
                return until(lambda: self.sees(item), "the menu did not open", _MENU_S)
            return False

        until(opened, f"{item} is not in the menu")
        self.click(item)
        self._folded()


def newest(reader: Reader, before: list[str]) -> str:
    """The card that was not there before, once it has an entry and nothing is measured any more."""

    def found() -> str | None:
        if reader.sees("progress"):
            return None
        fresh = [card for card in reader.cards() if card not in before]
        return fresh[0] if fresh and reader.sees(f"card-{fresh[0]}/menu") else None

    return until(found, "no new benchmark was measured")
