"""What 50 clients get while a job runs: answers by status, and how long the start page and the API take."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from tests.helpers.web_server import Server, ended, new_server, until

_MODEL = "demo:mobilenet_v2"
#: Between two requests of one client, as a program polls.
_PAUSE_S = 1.0
_AIM_S = 2.0


@dataclass(slots=True)
class Answers:
    """What came back from one kind of address."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


def main(clients: int = 50, seconds: float = 60.0) -> None:
    """Poll the start page, the queue, the projects and the job in turn, from this machine only."""
    with tempfile.TemporaryDirectory() as folder:
        server = new_server(Path(folder) / "server")
        server.start()
        try:
            with server.client() as http:
                project = http.post("/projects", json={"name": "load", "source": _MODEL}).raise_for_status().json()
                form = {"engine": "onnxruntime", "num_cores": [1], "scenario": "sync", "time_s": seconds + 60}
                job = http.post(f"/projects/{project['id']}/benchmarks", json=form).raise_for_status().json()["id"]
                running = f"/jobs/{job}"
                until(lambda: http.get(running).json()["status"] == "running", "the benchmark did not begin")
                by_address = asyncio.run(_poll_all(server, ("/projects", "/jobs", running), clients, seconds))
                assert http.get(running).json()["status"] == "running"
                http.post(f"{running}/cancel").raise_for_status()
        finally:
            ended(server)
    for name, answers in by_address.items():
        _report(name, answers)
    worst = sum(
        count for answers in by_address.values() for status, count in answers.statuses.items() if status >= "5"
    )
    print(f"answers of 500 and above, and none at all: {worst}  (aim: 0)")


async def _poll_all(
    server: Server, addresses: tuple[str, ...], clients: int, seconds: float
) -> dict[str, Answers]:
    by_address = {"/": Answers(), "API": Answers()}
    end_s = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(headers=server.headers, timeout=60.0, trust_env=False, limits=limits) as http:
        await asyncio.gather(
            *(_poll(http, server, addresses, number, end_s, by_address) for number in range(clients))
        )
    return by_address


async def _poll(
    http: httpx.AsyncClient,
    server: Server,
    addresses: tuple[str, ...],
    number: int,
    end_s: float,
    by_address: dict[str, Answers],
) -> None:
    """One client: every fourth request is for the start page; clients begin at different ones."""
    places = ("/", *addresses)
    for address in itertools.islice(itertools.cycle(places), number % len(places), None):
        if time.monotonic() > end_s:
            return
        answers = by_address["/" if address == "/" else "API"]
        start_s = time.perf_counter()
        try:
            response = await http.get(f"{server.url}/" if address == "/" else f"{server.api}{address}")
            answers.statuses[str(response.status_code)] += 1
        except httpx.HTTPError as error:
            answers.statuses[type(error).__name__] += 1
        answers.seconds.append(time.perf_counter() - start_s)
        await asyncio.sleep(_PAUSE_S)


def _report(name: str, answers: Answers) -> None:
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(answers.statuses.items()))
    p50, p99 = np.percentile(answers.seconds, (50, 99))
    aim = f"  (aim of p99: {_AIM_S:g})" if name == "/" else ""
    print(f"{name:4} {statuses}; p50 {p50:.3f} s, p99 {p99:.3f} s, slowest {max(answers.seconds):.3f} s{aim}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of polling")
    main(**vars(parser.parse_args()))
