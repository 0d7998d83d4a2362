"""How the documentation is built: `make docs`. Nothing is fetched while it is built or read."""

from __future__ import annotations

import sys
from pathlib import Path

from inferlab.version import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "inferlab"
author = "the inferlab authors"
copyright = "2026, the inferlab authors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "openapi_page",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"

smartquotes = False

html_theme = "furo"
html_title = f"inferlab {__version__}"
html_copy_source = False
copybutton_prompt_text = "$ "
