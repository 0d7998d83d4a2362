"""A really started server and a real Chromium, for tests, benchmarks and pictures of the pages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from inferlab.machine import node_name

CHROMIUM = "/usr/bin/chromium"
CHROMEDRIVER = "/usr/bin/chromedriver"
#: How long a test waits for something that will come; only a broken build takes so long.
PATIENCE_S = 60.0
_INFERLAB = str(Path(sys.executable).parent / "inferlab")
_T = TypeVar("_T")
# Without a graphics card, everything that moves on a page takes a core.
_STILL = """
const still = new CSSStyleSheet();
still.replaceSync("*, *::before, *::after { animation: none !important; transition: none !important; }");
document.adoptedStyleSheets = [still];
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@dataclass(slots=True)
class Server:
    """An `inferlab serve` with a store, a cache, uploads and folders of its own."""

    #: All that it keeps; `store` and `log` are in it.
    home: Path
    #: The folder below which it may open models.
    folder: Path
    #: What commands that share its store are started with.
    environment: dict[str, str]
    arguments: tuple[str, ...] = ()
    port: int = 0
    #: What it asks for; empty where it asks for none.
    token: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def store(self) -> Path:
        """Its store."""
        return self.home / "lab.db"

    @property
    def log(self) -> str:
        """What it printed so far, on both streams."""
        return (self.home / "serve.log").read_text(errors="replace")

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """The address of its HTTP API."""
        return f"{self.url}/api/v1"

    @property
    def login(self) -> str:
        """The address that it printed, with the token."""
        return f"{self.url}/?token={self.token}"

    @property
    def headers(self) -> dict[str, str]:
        """What programs send to be let in."""
        return {"Authorization": f"Bearer {self.token}"}

    def client(self) -> httpx.Client:
        """Speaks with its HTTP API: `client.get("/projects")`."""
        return httpx.Client(base_url=self.api, headers=self.headers, timeout=PATIENCE_S, trust_env=False)

    def start(self) -> None:
        """Start it, after the first time at the same port, and wait until it answers."""
        before = len(self.log) if (self.home / "serve.log").exists() else 0
        command = [_INFERLAB, "serve", "--no-browser", "--port", str(self.port)]
        with (self.home / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--folder", str(self.folder), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.home,
            )
        found = until(lambda: self._address(before), "the server did not say where it is")
        self.port, self.token = int(found[1]), found[2] or ""

    def _address(self, before: int) -> re.Match[str] | None:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended at once:\n{self.log}"
        return re.search(r"inferlab is at http://\S+?:(\d+)/(?:\?token=(\S+))?\n", self.log[before:])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)

    def runners(self) -> list[int]:
        """The processes that measure for it now."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                inherited = (entry / "environ").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"inferlab.web.runner" in words and f"INFERLAB_STORE={self.store}".encode() in inherited:
                found[int(entry.name)] = parent
        # A child that has not become an engine yet still looks like its parent.
        return [one for one, parent in found.items() if parent not in found]

    def command(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run an `inferlab` command on the same store."""
        return subprocess.run(
            [_INFERLAB, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=self.environment,
            cwd=self.home,
            **options,
        )


def until(found: Callable[[], _T | None], otherwise: str, patience_s: float = PATIENCE_S) -> _T:
    """Ask again and again until the answer is yes; `otherwise` says what did not happen."""
    end = time.monotonic() + patience_s
    pause_s = 0.02
    while not (answer := found()):
        assert time.monotonic() < end, otherwise
        time.sleep(pause_s)
        # Asking takes the CPU from what is waited for.
        pause_s = min(0.2, 1.2 * pause_s)
    return answer


def new_server(home: Path, arguments: Sequence[str] = (), folder: Path | None = None) -> Server:
    """A server that is not started yet, with nothing in its store."""
    own = folder or home / "folder"
    for each in (own, home / "data", home / "config"):
        each.mkdir(parents=True, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("INFERLAB_", "XDG_"))},
        "INFERLAB_STORE": str(home / "lab.db"),
        "INFERLAB_MODELS": str(home / "models"),
        "INFERLAB_CACHE": str(home / "cache"),
        # Its own measuring lock: whoever else measures on this machine, other test runs too, is not waited for.
        "INFERLAB_NODE": f"{node_name()}-{hashlib.sha256(bytes(home)).hexdigest()[:8]}",
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "INFERLAB_FAKE_ENGINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return Server(home, own, environment, tuple(arguments))


def ended(server: Server) -> None:
    """Stop a server, and see that nothing went wrong in it that nobody noticed."""
    if server.process is not None and server.process.poll() is None:
        server.stop()
    until(lambda: not server.runners(), "the runner lived longer than its server")
    assert "internal error" not in server.log


def open_chromium(home: Path) -> webdriver.Chrome:
    """A browser without a window, 1280 x 900; what it downloads lies in its `downloads`."""
    options = Options()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    downloads = home / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options, Service(CHROMEDRIVER))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _STILL})
    driver.downloads = downloads  # type: ignore[attr-defined]
    return driver


def requested(browser: webdriver.Chrome) -> list[str]:
    """The address of every request that the browser made since this was asked last, WebSockets included."""
    found = []
    for line in browser.get_log("performance"):  # type: ignore[no-untyped-call]
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
        elif message["method"] == "Network.webSocketCreated":
            found.append(message["params"]["url"])
    return found


def left_the_machine(addresses: Sequence[str]) -> list[str]:
    """Those of some addresses that are not on this machine."""
    here = re.compile(r"(data|blob|about|chrome|devtools|file):|(https?|wss?)://(127\.0\.0\.1|localhost)[:/]")
    return [each for each in addresses if not here.match(each)]
