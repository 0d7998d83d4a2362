"""A page opened in a real browser, and what a script finds in it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, _NAMES)), "")
_QUIET = ("quic", "background-networking", "component-update", "sync", "gpu")
_TOLD = """<script>
{script}
document.body.innerHTML = "";
const told = document.createElement("pre");
told.id = "found";
told.textContent = JSON.stringify(found);
document.body.append(told);
</script></body>"""


def found_in(text: str, script: str, folder: Path) -> dict[str, Any]:
    """What the script leaves in its variable `found` after it ran in this page."""
    path = folder / "report.html"
    path.write_text(text.replace("</body>", _TOLD.replace("{script}", script)), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            *(f"--disable-{one}" for one in _QUIET),
            f"--user-data-dir={folder / 'user'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            path.as_uri(),
        ],
        env={"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert told, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found
