"""Servers that speak the OpenAI protocol: llama-server as the wheel has it, and one that tells no token ids."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from inferlab.lab import Lab
from inferlab.measure.generation.stats import generation_findings
from inferlab.records.generation import Generation, GenerationOutcome, GenerationPlan
from tests.helpers.real_models import one

SERVER = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.hostnames, parameters.port = ["127.0.0.1"], 0
parameters.n_ctx, parameters.n_parallel, parameters.warmup = 1024, 2, False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
print("listening at", server.listening_address, flush=True)
sys.stdin.read()
"""
PLAN = GenerationPlan("demo:llama_tiny", prompt_tokens=(12,), new_tokens=(6,), time_s=0.01, processes=1)


@pytest.fixture(scope="module")
def llama_server() -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    command = [sys.executable, "-c", SERVER, str(one("smollm2", ".gguf"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        lines = iter(server.stdout)
        address = next(line.split()[-1] for line in lines if line.startswith("listening at"))
        # What it logs must not fill the pipe.
        threading.Thread(target=lambda: [None for _ in lines], daemon=True).start()
        yield address
        server.kill()


def test_llama_server_is_measured_by_its_address_and_its_tokens_are_checked(llama_server: str) -> None:
    pytest.importorskip("transformers")
    plan = replace(PLAN, model=str(one("smollm2", ".gguf")), engines=(llama_server,), batch_sizes=(2,))
    sweep = Lab().generate(plan)
    (outcome,) = sweep.outcomes
    assert outcome.failure is None
    (run,) = outcome.runs
    assert run.settings["token_ids"] == "told with logprobs" and run.settings["prompt"] == "token ids"
    assert (run.agreement.status, run.agreement.positions) == ("match", 128)
    sequences = [sequence for repetition in run.repetitions for sequence in repetition.sequences]
    assert {(len(sequence.token_ids), sequence.finish_reason) for sequence in sequences} == {(6, "length")}
    codes = {finding.code for finding in generation_findings(sweep.model, outcome)}
    assert "remote-server" in codes and "prefix-cached" not in codes
    assert run.loaded_memory_bytes is None


class TextOnly(BaseHTTPRequestHandler):
    """Streams a text for each token, and no ids; what it does not know of the request it refuses."""

    def do_GET(self) -> None:
        self._answer("application/json", json.dumps({"data": [{"id": "some"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "ignore_eos" in body:
            self.send_error(422, "ignore_eos is not known")
            return
        self._stream(body, [{"choices": [{"text": " a"}]}] * body["max_tokens"])

    def _stream(self, body: dict[str, Any], choices: list[dict[str, Any]]) -> None:
        events = [json.dumps(choice) for choice in choices]
        self._answer("text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]))

    def _answer(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class Merges(TextOnly):
    """Streams the texts of two tokens at a time, and at the end how many tokens there were where that is asked."""

    most = 6

    def _stream(self, body: dict[str, Any], choices: list[dict[str, Any]]) -> None:
        told = {"choices": [], "usage": {"completion_tokens": min(self.most, len(choices))}}
        super()._stream(body, choices[::2] + [told] * ("stream_options" in body))


class Splits(Merges):
    """Counts fewer tokens than it streams texts."""

    most = 2


@contextmanager
def serving(kind: type[TextOnly]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def text_only() -> Iterator[str]:
    with serving(TextOnly) as address:
        yield address


def test_tokens_whose_texts_come_together_are_counted_by_the_server() -> None:
    with serving(Merges) as address:
        sweep = Lab().generate(replace(PLAN, engines=(address,), verify=False))
    (outcome,) = sweep.outcomes
    assert outcome.failure is None
    assert outcome.runs[0].settings["tokens"] == "counted by the server"
    assert {(len(one.token_ids), one.finish_reason) for one in sequences_of(outcome)} == {(6, "length")}
    assert "ended-early" not in {finding.code for finding in generation_findings(sweep.model, outcome)}


def test_a_server_that_counts_fewer_tokens_than_texts_is_not_measured() -> None:
    with serving(Splits) as address:
        (outcome,) = Lab().generate(replace(PLAN, engines=(address,), verify=False)).outcomes
    assert outcome.failure is not None
    assert (
        "the server streamed 3 texts for 2 tokens, so that no time of a token is known" in outcome.failure.message
    )


def test_a_server_that_tells_no_token_ids_is_measured_unchecked_and_not_called_wrong(text_only: str) -> None:
    pytest.importorskip("transformers")
    sweep = Lab().generate(replace(PLAN, engines=(text_only,)))
    (outcome,) = sweep.outcomes
    assert outcome.failure is None
    agreement = outcome.runs[0].agreement
    assert (agreement.status, agreement.detail) == (
        "unchecked",
        "the server does not say which tokens it chose",
    )
    assert outcome.runs[0].settings["ends"] == "as the server likes"
    assert outcome.runs[0].settings["tokens"] == "one for each event with text"
    assert {len(sequence.token_ids) for sequence in sequences_of(outcome)} == {6}


def test_where_no_server_answers_the_sentence_says_which_address() -> None:
    (outcome,) = Lab().generate(replace(PLAN, engines=("http://127.0.0.1:9",), verify=False)).outcomes
    assert outcome.failure is not None
    assert "no server answers at http://127.0.0.1:9: " in outcome.failure.message


def sequences_of(outcome: GenerationOutcome) -> list[Generation]:
    return [each for run in outcome.runs for repetition in run.repetitions for each in repetition.sequences]
