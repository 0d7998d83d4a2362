"""A server that speaks the OpenAI protocol: completions, streamed, timed as their client sees them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import threading
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from .base import BadOption, LoadOptions, Options, WholeSequences

#: The variable with the server's address, which only the user names.
ADDRESS = "INFERLAB_SERVER"
_TIMEOUT_S = 300.0
_LONGEST_ANSWER = 1 << 20
_DONE = "[DONE]"
# Beyond the protocol: vLLM and llama-server take the first, one of them each other. An end-of-sequence token does
# not end a sequence, no prefix is taken from a cache, and token ids are told.
_EXTENSIONS = {"ignore_eos": True, "cache_prompt": False, "return_token_ids": True}
_TRIAL = (1, 2, 3)
# Of a server that tells no token ids: how many tokens there were.
_COUNTED_BY = {True: "counted by the server", False: "one for each event with text"}


class _Form(NamedTuple):
    """How this server is asked."""

    ids: bool
    extended: bool
    logprobs: bool
    #: Whether it says at the end how many tokens there were.
    usage: bool


class HttpServer(WholeSequences):
    """A client with a connection for each sequence; where and on what the server computes it does not know."""

    kinds = frozenset({"gguf", "transformers", "onnxruntime-genai", "openvino-genai"})
    capabilities = WholeSequences.capabilities | {"remote"}

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Find out what the server has and takes.

        Options: model (its name there), key_from (the variable with its key), prompt (auto, ids, text), logprobs.
        """
        given = Options(options.options)
        name = given.text("model", "")
        key_from = given.text("key_from", "")
        prompt = given.text("prompt", "auto", ("auto", "ids", "text"))
        logprobs = given.flag("logprobs", True)
        given.finish()
        self._address = _Address(os.environ[ADDRESS])
        self._headers = {"Content-Type": "application/json"}
        if key_from:
            if not os.environ.get(key_from):
                raise BadOption("key_from names the variable {}, which is not set".format(key_from))
            self._headers["Authorization"] = "Bearer " + os.environ[key_from]
        self._mine = threading.local()
        self._connections: List[http.client.HTTPConnection] = []
        self._version = ""
        self._name = self._find_model(name)
        self._text: Optional[Callable[[Any], str]] = None
        self._form, ids_by = self._find_form(model, options.kind, prompt, logprobs)
        return {
            "url": self._address.text,
            "model": self._name,
            "prompt": "token ids" if self._form.ids else "text",
            "ends": "ignored" if self._form.extended else "as the server likes",
            "token_ids": ids_by,
            **({} if ids_by != "none" else {"tokens": _COUNTED_BY[self._form.usage]}),
        }

    def versions(self) -> Dict[str, str]:
        """The server's, as it says itself."""
        return {"server": self._version}

    def generate(self, prompts: Any, new_tokens: int, emit: Callable[[int, int], None]) -> None:
        """A request for each sequence, all at once."""
        errors: List[BaseException] = []

        def run(row: int) -> None:
            try:
                self._complete(prompts[row], row, new_tokens, lambda token: emit(row, token))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(row,)) for row in range(1, len(prompts))]
        for thread in threads:
            thread.start()
        run(0)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def complete(self, prompt: Any, new_tokens: int, emit: Callable[[int], None]) -> None:
        """One request of several threads."""
        self._complete(prompt, 0, new_tokens, emit)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()

    def _complete(self, prompt: Any, row: int, new_tokens: int, emit: Callable[[int], None]) -> None:
        ids = self.behind_context(prompt, row).tolist()
        count, counted = 0, None
        for event in self._stream(self._body(self._form, ids, new_tokens)):
            counted = (_counted(event) if self._form.usage else None) or counted
            for choice in _choices(event):
                for token in _token_ids(choice) or [0] * bool(choice.get("text")):
                    count += 1
                    emit(token)
        if counted is not None:
            if count > counted:
                raise BadOption(
                    "the server streamed {} texts for {} tokens, so that no time of a token is known".format(
                        count, counted
                    )
                )
            # Those that came together with others: each of them is there when the last is.
            for _ in range(counted - count):
                emit(0)

    def _find_model(self, name: str) -> str:
        answer = self._ask("GET", "/models", None)
        models = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(models, list) or not all(isinstance(model, dict) and "id" in model for model in models):
            raise self._foreign("it lists no models")
        names = [str(model["id"]) for model in models]
        if name and name not in names:
            raise BadOption("the server has no model '{}'; it has {}".format(name, ", ".join(names) or "none"))
        if not name and len(names) != 1:
            raise BadOption(
                "the server has {} models ({}); name one with --engine-option model=NAME".format(
                    len(names), ", ".join(names)
                )
            )
        return name or names[0]

    def _find_form(self, model: str, kind: str, prompt: str, logprobs: bool) -> Any:
        """The best of the ways to ask that this server takes, and where its answers have token ids."""
        refusals: List[BadOption] = []
        for ids in {"auto": (True, False), "ids": (True,), "text": (False,)}[prompt]:
            if not ids:
                self._text = _detokenizer(model, kind)
            for extended in (True, False):
                form = _Form(ids, extended, logprobs=False, usage=False)
                try:
                    choices = self._try(form)
                except _Rejected as error:
                    if not error.is_about_form:
                        raise
                    refusals.append(error)
                    continue
                if any(_token_ids(choice) for choice in choices):
                    return form, "told"
                if logprobs and ids:
                    # Those of llama-server come with the probabilities, which take some time to sort.
                    with contextlib.suppress(_Rejected):
                        richer = form._replace(logprobs=True)
                        if any(_token_ids(choice) for choice in self._try(richer)):
                            return richer, "told with logprobs"
                # An event may have the text of several tokens: then only the server can count them.
                with contextlib.suppress(_Rejected):
                    counting = form._replace(usage=True)
                    if any(map(_counted, self._events(counting))):
                        return counting, "none"
                return form, "none"
        raise refusals[0]

    def _try(self, form: _Form) -> List[Dict[str, Any]]:
        choices = [choice for event in self._events(form) for choice in _choices(event)]
        if not choices:
            raise self._foreign("it streams no tokens")
        return choices

    def _events(self, form: _Form) -> List[Dict[str, Any]]:
        return list(self._stream(self._body(form, list(_TRIAL), 2)))

    def _body(self, form: _Form, ids: List[int], new_tokens: int) -> Dict[str, Any]:
        body: Dict[str, Any] = {
            "model": self._name,
            "prompt": ids if form.ids or self._text is None else self._text(ids),
            "max_tokens": new_tokens,
            "temperature": 0,
            "stream": True,
        }
        if form.extended:
            # With another salt vLLM finds nothing of other requests in its cache.
            body.update(_EXTENSIONS, cache_salt=uuid.uuid4().hex)
        if form.logprobs:
            body["logprobs"] = 1
        if form.usage:
            body["stream_options"] = {"include_usage": True}
        return body

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's own."""
        connection: Optional[http.client.HTTPConnection] = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._address.connect()
            self._connections.append(connection)
        return connection

    def _send(self, method: str, path: str, body: Optional[Dict[str, Any]]) -> http.client.HTTPResponse:
        """Send a request; once more where the server had closed a connection that was idle."""
        content = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            connection = self._connection()
            fresh = connection.sock is None
            try:
                connection.request(method, self._address.path + path, content, self._headers)
                response = connection.getresponse()
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if fresh or attempt == 2:
                    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    raise BadOption("no server answers at {}: {}".format(self._address.text, reason)) from None
        self._version = self._version or response.headers.get("Server", "")
        if response.status != 200:
            text = response.read(_LONGEST_ANSWER).decode("utf-8", "replace")
            connection.close()
            raise _Rejected(
                "the server refused {}{} with status {}: {}".format(
                    self._address.path, path, response.status, _message(text)
                ),
                response.status,
            )
        return response

    def _ask(self, method: str, path: str, body: Optional[Dict[str, Any]]) -> Any:
        try:
            return json.loads(self._send(method, path, body).read(_LONGEST_ANSWER))
        except ValueError:
            raise self._foreign("its answer is not JSON") from None

    def _stream(self, body: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
        """The events as they arrive."""
        response = self._send("POST", "/completions", body)
        kind = response.headers.get_content_type()
        if kind != "text/event-stream":
            response.close()
            raise self._foreign("it answers with {} in place of a stream".format(kind))
        try:
            while True:
                line = response.readline(_LONGEST_ANSWER)
                if not line:
                    return
                if not line.startswith(b"data:"):
                    continue
                text = line[5:].strip().decode("utf-8", "replace")
                if text == _DONE:
                    response.read()
                    return
                event = json.loads(text)
                if "error" in event:
                    raise BadOption("the server failed: {}".format(_message(text)))
                if not all(isinstance(choice, dict) for choice in _choices(event)):
                    raise TypeError
                yield event
        except (OSError, http.client.HTTPException):
            self._connection().close()
            raise BadOption("the server closed the connection within an answer") from None
        except (ValueError, AttributeError, TypeError):
            self._connection().close()
            raise self._foreign("its events are not those of completions") from None

    def _foreign(self, what: str) -> BadOption:
        return BadOption("{} does not speak the OpenAI protocol: {}".format(self._address.text, what))


class _Rejected(BadOption):
    """The server did not take a request."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        #: Whether another form of the same request might be taken.
        self.is_about_form = status in (400, 422)


class _Address:
    """Where the server is."""

    def __init__(self, text: str) -> None:
        parts = urllib.parse.urlsplit(text)
        self.text = text
        self.path = parts.path.rstrip("/")
        if not self.path.endswith("/v1"):
            self.path += "/v1"
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        try:
            self._port = parts.port
        except ValueError:
            raise BadOption("{} has no valid port".format(text)) from None

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, to that host alone: neither proxies nor redirections are followed."""
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)


def _choices(event: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The pieces of text of an event; none of one that only counts."""
    return list(event.get("choices") or ())


def _counted(event: Dict[str, Any]) -> Optional[int]:
    """How many tokens an event says that were generated so far; None where it does not."""
    usage = event.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def _token_ids(choice: Dict[str, Any]) -> List[int]:
    """The ids that an event tells: as vLLM has them, or llama-server beside its probabilities."""
    ids = choice.get("token_ids") or choice.get("tokens") or []
    if not ids:
        content = (choice.get("logprobs") or {}).get("content") or []
        ids = [entry["id"] for entry in content if isinstance(entry, dict) and "id" in entry]
    return [int(entry) for entry in ids if isinstance(entry, (int, float))]


def _message(text: str) -> str:
    """What a server says of an error, which is told in several ways."""
    try:
        error = json.loads(text)
        error = error.get("error", error)
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = text
    return " ".join(str(message).split())[:300].rstrip(".") or "no reason given"


def _detokenizer(model: str, kind: str) -> Callable[[Any], str]:
    """Token ids as text, by the tokenizer that comes with the model."""
    file = os.path.join(model, "tokenizer.json") if os.path.isdir(model) else ""
    if not file or not os.path.isfile(file):
        raise BadOption(
            "the server takes no token ids, and {} has no tokenizer.json to make text of them".format(
                os.path.basename(model)
            )
        )
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadOption(
            "the server takes no token ids; for text install the package tokenizers: "
            "pip install 'inferlab[transformers]'"
        ) from None
    tokenizer = Tokenizer.from_file(file)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
