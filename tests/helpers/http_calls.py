"""How tests speak with the HTTP API: uploads in pieces, jobs followed to their end, refusals as sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.helpers.web_server import until

#: An id that nothing has.
ABSENT = "aaaaaaaaaa"
QUICK = {"engine": "fake", "num_cores": [1], "time_s": 0.3}
#: Measured for longer than any test takes.
LONG = {"engine": "fake", "num_cores": [1], "batch_sizes": [1, 2], "time_s": 600.0}
Event = tuple[str, dict[str, Any]]


def uploaded(http: httpx.Client, name: str, content: bytes) -> str:
    """Send a file in pieces, its length untold; returns the source that it is."""
    upload = http.post("/uploads").json()
    pieces = (content[start : start + 1000] for start in range(0, len(content), 1000))
    sent = http.put(f"/uploads/{upload['id']}/{name}", content=pieces)
    assert sent.status_code == 201, sent.text
    assert sent.json() == {"name": name, "size_bytes": len(content)}
    return str(upload["source"])


def events(http: httpx.Client, path: str) -> Iterator[Event]:
    """The events of an address, each with its name, as they come."""
    with http.stream("GET", path) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in response.iter_lines():
            head, _, rest = line.partition(": ")
            if head == "event":
                name = rest
            elif head == "data":
                yield name, json.loads(rest)


def ended(http: httpx.Client, queued: httpx.Response) -> dict[str, Any]:
    """The job that was queued, after it ended."""
    assert queued.status_code == 202, queued.text
    assert queued.headers["location"] == f"/api/v1/jobs/{queued.json()['id']}"
    *_, (name, job) = events(http, f"/jobs/{queued.json()['id']}/events")
    assert name == "end"
    return job


def measured(http: httpx.Client, project: str, form: dict[str, Any], what: str = "benchmarks") -> str:
    """The id of what a form asked for, measured."""
    job = ended(http, http.post(f"/projects/{project}/{what}", json=form))
    assert job["status"] == "done", job
    return str(job["entry_id"])


def running(http: httpx.Client, project: str, form: dict[str, Any]) -> str:
    """The id of a job that is being measured."""
    job = http.post(f"/projects/{project}/benchmarks", json=form).json()["id"]
    until(lambda: job_of(http, job)["entry_id"], "the job was not begun")
    return str(job)


def job_of(http: httpx.Client, job_id: str) -> dict[str, Any]:
    """A job as it is now."""
    found: dict[str, Any] = http.get(f"/jobs/{job_id}").json()
    return found


def cancel(http: httpx.Client, job_id: str) -> None:
    """Cancel a job, and wait until it has ended."""
    assert http.post(f"/jobs/{job_id}/cancel").status_code == 200
    until(lambda: job_of(http, job_id)["status"] == "cancelled", "the job was not cancelled")


def refused(response: httpx.Response, status: int) -> str:
    """The sentence of a refusal."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["detail"]
    return str(response.json()["detail"])
