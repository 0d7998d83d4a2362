"""`inferlab serve`: projects, profiles and benchmarks as a web page on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from inferlab.cli.command import store_option

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])?(?:I?B)?")
_OPEN = "Let everyone on this machine in without a token; refused for addresses that other machines can reach."
_PRIVATE = "Let models be downloaded from this machine and from private networks, too."
_MOST = "Largest model to take, uploaded or downloaded, such as 500M."
_PORT = "Port to listen on.  [default: 8765, or the next that is free]"
_FOLDER = "Folder below which models may be opened by their path; may be repeated.  [default: the current one]"


class Bytes(click.ParamType[int]):
    """A size such as 500M or 4G, in binary units, or a number of bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it as a number of bytes."""
        size = _SIZE.fullmatch(str(value).strip().upper())
        if not size or not float(size[1]):
            self.fail(f"'{value}' is not a size such as 500M or 4G.", param, ctx)
        return round(float(size[1]) * (1 << 10 * "BKMGT".index(size[2] or "B")))


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help=_PORT)
@click.option(
    "--no-browser", "open_browser", is_flag=True, flag_value=False, default=True, help="Do not open the browser."
)
@click.option("--no-token", "needs_token", is_flag=True, flag_value=False, default=True, help=_OPEN)
@store_option
@click.option(
    "--folder",
    "folders",
    multiple=True,
    default=(".",),
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help=_FOLDER,
)
@click.option("--max-upload", "most_upload_bytes", type=Bytes(), default="4G", show_default=True, help=_MOST)
@click.option("--allow-private-downloads", "private_downloads", is_flag=True, help=_PRIVATE)
def command(**settings: Any) -> None:
    """Show projects, profiles and benchmarks as a web page, on the same store as the commands.

    The address that is printed carries a token, which the browser gets as a cookie. INFERLAB_TOKEN names another.
    """
    from inferlab.web.security import Settings
    from inferlab.web.serve import serve

    serve(Settings(**settings), click.echo)
