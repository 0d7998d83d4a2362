"""Whether the server's memory stays where it is while pages and the API are polled for half an hour."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import httpx

from tests.helpers.web_server import Server, ended, new_server

_CLIENTS = 10
_PAUSE_S = 0.2
_ADDRESSES = ("/", "/new", "/api/v1/projects", "/api/v1/jobs", "/api/v1/system")
#: Nothing of what happens in the first minutes is growth: pages stay for a while after they were asked for.
_SETTLE_SHARE = 0.2
_AIM_SHARE = 0.05


def main(minutes: float = 30.0) -> None:
    """Poll from this machine only, and print the resident memory of the server as time goes by."""
    with tempfile.TemporaryDirectory() as folder:
        server = new_server(Path(folder) / "server")
        server.start()
        try:
            with server.client() as http:
                http.post("/projects", json={"name": "memory", "source": "demo:mlp"}).raise_for_status()
            samples = asyncio.run(_poll_all(server, minutes * 60.0))
        finally:
            ended(server)
    settled = [mib for second, mib in samples if second >= _SETTLE_SHARE * minutes * 60.0] or [samples[-1][1]]
    growth = settled[-1] / settled[0] - 1.0
    print(
        f"from {settled[0]:.0f} to {settled[-1]:.0f} MiB, most {max(mib for _, mib in samples):.0f} MiB; "
        f"growth {growth:+.1%}  (aim: below {_AIM_SHARE:.0%})"
    )


async def _poll_all(server: Server, seconds: float) -> list[tuple[float, float]]:
    start_s = time.monotonic()
    end_s = start_s + seconds
    samples: list[tuple[float, float]] = []
    every_s = max(5.0, seconds / 60.0)
    async with httpx.AsyncClient(headers=server.headers, timeout=60.0, trust_env=False) as http:
        polling = [asyncio.create_task(_poll(http, server, end_s)) for _ in range(_CLIENTS)]
        while time.monotonic() < end_s:
            samples.append((time.monotonic() - start_s, _resident_mib(server)))
            polls = sum(task.done() for task in polling)
            assert not polls, "a client gave up"
            print(f"{samples[-1][0]:6.0f} s  {samples[-1][1]:6.0f} MiB", flush=True)
            await asyncio.sleep(min(every_s, max(0.0, end_s - time.monotonic())))
        counts = await asyncio.gather(*polling)
    samples.append((time.monotonic() - start_s, _resident_mib(server)))
    print(f"{sum(counts)} requests")
    return samples


async def _poll(http: httpx.AsyncClient, server: Server, end_s: float) -> int:
    """One client, address after address; returns how many requests were answered."""
    count = 0
    while time.monotonic() < end_s:
        for address in _ADDRESSES:
            response = await http.get(f"{server.url}{address}")
            assert response.status_code == 200, f"{address}: {response.status_code}"
            count += 1
            await asyncio.sleep(_PAUSE_S)
    return count


def _resident_mib(server: Server) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    main(**vars(parser.parse_args()))
