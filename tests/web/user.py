"""What a user does with a page: look, click, type; each waits until it can be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.web.serving import until

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
            if not one.is_enabled() or one.get_attribute("aria-disabled") == "true":
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
        # Nobody finds a file sooner than a page is connected; until then it may load itself once more.
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

    def _shown(self, name: str) -> list[WebElement]:
        found = self.browser.find_elements(By.CSS_SELECTOR, f'[data-testid="{name}"]')
        return [one for one in found if one.is_displayed()]

    @staticmethod
    def _still(ask: Callable[[], _T]) -> _T | None:
        """An answer, or none where what was asked has just been painted anew."""
        try:
            return ask()
        except StaleElementReferenceException:
            return None
