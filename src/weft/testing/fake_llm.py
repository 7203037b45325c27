"""A language model for tests and demonstrations: a real server on loopback that speaks OpenAI's dialect.

It repeats the prompt, or gives a value that fits the schema it was sent; a script makes it fail, one
behaviour per request::

    with FakeLLM() as llm:
        llm.script(rate_limited(1), failed(500), cut(), malformed(), reply("Hello."))
        settings = Settings(llm_base_url=llm.base_url, llm_model="fake")

``python -m weft.testing.fake_llm`` runs it on its own and prints its base URL; ``GET {base_url}/calls`` says
how many calls have come, and how many of them at most within a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import Any, TypeAlias

import msgspec

from weft.core.time import MICROSECONDS
from weft.testing.http_server import (
    Answer,
    Behaviour,
    HttpServer,
    Pieces,
    ReceivedRequest,
    Silence,
    encoded,
    json_answer,
)

MODEL = "fake-model"

_ECHO = "You said: "


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for a chat completion."""

    # When it had come: microseconds since 1970.
    at: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        messages = self.body.get("messages") or [{}]
        content = messages[-1].get("content")
        return content if isinstance(content, str) else msgspec.json.encode(content).decode()

    @property
    def schema(self) -> Any:
        """The schema that the reply shall fit; None where none was sent."""
        return self.body.get("response_format", {}).get("json_schema", {}).get("schema")


Turn: TypeAlias = Behaviour | Callable[[ChatRequest], Behaviour | Awaitable[Behaviour]]


# --- What it can do.


def reply(text: str, *, finish_reason: str = "stop", delay_seconds: float = 0.0) -> Turn:
    """Return a turn in which the model replies with this text."""
    return lambda request: _completion(
        request, text, finish_reason=finish_reason, delay_seconds=delay_seconds
    )


def echo(request: ChatRequest) -> Answer:
    """Repeat the prompt; where a schema was sent, give a value that fits it."""
    if request.schema is not None:
        return _completion(request, msgspec.json.encode(example_of(request.schema)).decode())
    return _completion(request, _ECHO + request.prompt)


def rate_limited(retry_after: float | datetime) -> Answer:
    """Answer 429, and ask to come back after so many seconds, or at that time in UTC."""
    wait = (
        format_datetime(retry_after, usegmt=True) if isinstance(retry_after, datetime) else f"{retry_after:g}"
    )
    return failed(429, "Rate limit reached", headers={"Retry-After": wait})


def failed(
    status: int, message: str = "It was told to fail", *, headers: dict[str, str] | None = None
) -> Answer:
    """Answer with a status and an error, as the dialect has it."""
    return json_answer({"error": {"message": message}}, status=status, headers=headers)


def hang() -> Silence:
    """Answer nothing at all."""
    return Silence()


def malformed() -> Answer:
    """Answer 200 with what is not JSON."""
    return Answer(200, b'{"choices": [{"message"', {"Content-Type": "application/json"})


def cut(text: str = "This reply is cut off in the middle.") -> Turn:
    """Break the connection in the middle of a reply."""

    def behave(request: ChatRequest) -> Pieces:
        whole = encoded(_completion(request, text))
        return Pieces([whole[: len(whole) // 2]])

    return behave


def drip(text: str = "slowly", *, pause_seconds: float = 1.0) -> Turn:
    """Send a reply byte by byte, with a pause after each."""

    def behave(request: ChatRequest) -> Pieces:
        whole = encoded(_completion(request, text))
        return Pieces((whole[at : at + 1] for at in range(len(whole))), pause_seconds)

    return behave


# --- The server.


class FakeLLM(HttpServer):
    def __init__(self, turn: Turn = echo, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Behave like ``turn`` wherever there is no script."""
        super().__init__(self._take, host=host, port=port)
        # In the order in which they came. Read it from any thread.
        self.requests: list[ChatRequest] = []
        self._turn = turn
        self._script: deque[Turn] = deque()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def script(self, *turns: Turn) -> None:
        """Behave like this at the next requests, one turn each."""
        self._script.extend(turns)

    def most_within(self, seconds: float = 1.0) -> int:
        """Return the largest number of requests that came within any stretch of so many seconds."""
        times = sorted(request.at for request in self.requests)
        first = most = 0
        for last, at in enumerate(times):
            while at - times[first] >= seconds * MICROSECONDS:
                first += 1
            most = max(most, last - first + 1)
        return most

    def _take(self, request: ReceivedRequest) -> Behaviour | Awaitable[Behaviour]:
        path = request.target.partition("?")[0]
        if request.method == "GET" and path.endswith("/models"):
            return json_answer({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if request.method == "GET" and path.endswith("/calls"):
            return json_answer({"calls": len(self.requests), "most_within_a_second": self.most_within(1.0)})
        if request.method != "POST" or not path.endswith("/chat/completions"):
            return failed(404, f"There is no {request.method} {path}")
        try:
            chat = ChatRequest(request.at, request.headers, msgspec.json.decode(request.body, type=dict))
        except msgspec.DecodeError:
            return failed(400, "The body is not a JSON object")
        self.requests.append(chat)
        turn = self._script.popleft() if self._script else self._turn
        return turn(chat) if callable(turn) else turn


def _completion(
    request: ChatRequest, text: str, *, finish_reason: str = "stop", delay_seconds: float = 0.0
) -> Answer:
    # A word is a token: near enough, and easy to tell beforehand.
    asked, said = len(request.prompt.split()), len(text.split())
    body = {
        "id": f"chatcmpl-{request.at}",
        "object": "chat.completion",
        "created": request.at // MICROSECONDS,
        "model": request.body.get("model", MODEL),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }
    return Answer(200, msgspec.json.encode(body), {"Content-Type": "application/json"}, delay_seconds)


def example_of(schema: Any) -> Any:
    """Return a value that fits a schema of the simple kind that models are sent."""
    if not isinstance(schema, dict):
        return None
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    if "enum" in schema:
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return example_of(schema[keyword][0])
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            return {name: example_of(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [example_of(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
        case "string":
            return "text".ljust(schema.get("minLength", 0), "t")[: schema.get("maxLength")]
        case "integer" | "number":
            return schema.get("minimum", min(1, schema.get("maximum", 1)))
        case "boolean":
            return True
        case _:
            return None


def main(arguments: list[str] | None = None) -> None:
    from weft.testing.standalone import serve

    serve(
        lambda host, port: FakeLLM(host=host, port=port),
        arguments,
        description="A language model that repeats the prompt.",
        path="/v1",
    )


if __name__ == "__main__":
    main()
