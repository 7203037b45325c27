"""``llm_service``: one chat completion, in the dialect of OpenAI that most providers and servers speak.

Retries are the engine's: nothing here tries twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.core.payload import MAX_VALUES, Json, canonical, count_values, decoder_for, is_json
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.errors import HandlerError
from weft.handlers.contract import BadConfig, Handler, HandlerKind, NativeContext
from weft.handlers.http.failure import BadResponse
from weft.handlers.outcome import cut
from weft.masking import Mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.definition.schema import Schema
    from weft.handlers.http.outbound import Outbound
    from weft.handlers.http.response import Received
    from weft.tracing.contract import Attributes

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["role"],
                "properties": {"role": {"type": "string", "minLength": 1}},
            },
        },
        "system": {"type": "string"},
        "model": {"type": "string", "minLength": 1},
        "temperature": {"type": "number", "minimum": 0},
        "max_tokens": {"type": "integer", "minimum": 1},
        # Checked as the schema that it is: by validation, and once it is filled.
        "response_schema": True,
        "base_url": {"type": "string", "minLength": 1},
        "api_key": {"type": "string", "minLength": 1},
        # ``messages`` are the config's own; a reply in pieces would not be read.
        "extra": {"type": "object", "properties": {"messages": False, "stream": False}},
    },
    "if": {"required": ["messages"]},
    "then": {"properties": {"prompt": False}},
    "else": {"required": ["prompt"]},
    "additionalProperties": False,
}

_SHOWN_PROBLEMS = 10
_SHOWN_CHARACTERS = 2000
_KEPT_SCHEMAS = 256
# By their text; the oldest goes.
_SCHEMAS: dict[bytes, Schema] = {}


async def llm_service(config: Json, context: NativeContext) -> Json:
    # Loaded at the first call: aiohttp takes longer than all of weft.
    from weft.handlers.http.exchange import exchange
    from weft.handlers.http.outgoing import make_request
    from weft.handlers.http.traced_call import traced_call

    outbound = context.outbound
    schema = await _schema(config)
    key = _api_key(config, outbound)
    body = _body(config, outbound)
    request = make_request(
        url=_url(config, outbound),
        method="POST",
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        body=body,
        idempotency_key=context.idempotency_key,
    )
    mask = Mask([] if key is None else [key])
    try:
        asked = _asked(body)
        with traced_call(request, context, name=f"chat {body['model']}", attributes=asked) as (traced, add):
            received = await exchange(
                traced,
                outbound,
                is_success=lambda status: 200 <= status <= 299,
                trusted="base_url" not in config,
            )
            run = outbound.off_loop if received.is_large else _at_once
            output = await run(_output, received, schema is not None)
            add({"http.response.status_code": received.status, **_answered(output)})
            if schema is not None:
                await _require_fit(output, schema)
        return await run(mask.value, output)
    except HandlerError as error:
        # A provider may repeat the key, or a part of the request that holds it.
        raise _masked(error, mask) from None


async def _schema(config: Json) -> Schema | None:
    """Return the compiled response_schema, or raise BadConfig if the value is no schema or costs too much."""
    if "response_schema" not in config:
        return None
    from weft.definition.schema import compile_schema

    text = canonical(config["response_schema"])
    found = _SCHEMAS.get(text)
    if found is None:
        # In a thread: the cost of a large schema takes a while to count.
        made = await asyncio.to_thread(compile_schema, config["response_schema"])
        if isinstance(made, list):
            raise BadConfig(f"config at /response_schema{made[0].pointer}: {made[0].message}")
        _SCHEMAS[text] = found = made
        while len(_SCHEMAS) > _KEPT_SCHEMAS:
            del _SCHEMAS[next(iter(_SCHEMAS))]
    return found


def _api_key(config: Json, outbound: Outbound) -> str | None:
    if "api_key" in config:
        return str(config["api_key"])
    # The operator's key is for the operator's URL, not for one that a workflow names.
    return None if "base_url" in config else outbound.settings.llm_api_key


def _url(config: Json, outbound: Outbound) -> str:
    base: str = config.get("base_url", outbound.settings.llm_base_url)
    place, question_mark, query = base.partition("?")
    return f"{place.rstrip('/')}/chat/completions{question_mark}{query}"


def _body(config: Json, outbound: Outbound) -> dict[str, Json]:
    model = config.get("model", outbound.settings.llm_model)
    if model is None:
        raise BadConfig("no model: name one in the config, or let the operator set WEFT_LLM_MODEL")
    messages = config.get("messages") or [{"role": "user", "content": config["prompt"]}]
    if "system" in config:
        messages = [{"role": "system", "content": config["system"]}, *messages]
    body = {"model": model, "messages": messages}
    for name in ("temperature", "max_tokens"):
        if name in config:
            body[name] = config[name]
    if "response_schema" in config:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": config["response_schema"]},
        }
    return {**body, **config.get("extra", {})}


def _asked(body: Mapping[str, Json]) -> Attributes:
    """Return what the span of a call says of the request, by the conventions for generative AI."""
    return {
        "gen_ai.operation.name": "chat",
        # The dialect; who speaks it is in server.address.
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": str(body["model"]),
        "gen_ai.request.temperature": _number(body.get("temperature")),
        "gen_ai.request.max_tokens": _number(body.get("max_tokens")),
    }


def _answered(output: Mapping[str, Json]) -> Attributes:
    model, finish_reason, usage = output["model"], output["finish_reason"], output["usage"]
    return {
        "gen_ai.response.model": None if model is None else cut(str(model)),
        "gen_ai.response.finish_reasons": None if finish_reason is None else [cut(str(finish_reason))],
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
    }


def _number(value: Json) -> int | float | None:
    """Return a number; None for what is none: ``extra`` may hold anything."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


async def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _output(received: Received, has_schema: bool) -> dict[str, Json]:
    reply = _read(received)
    choice = reply["choices"][0]
    text = _text(choice["message"].get("content"))
    return {
        "text": text,
        "json": _json(text) if has_schema else None,
        "model": reply.get("model"),
        "finish_reason": choice.get("finish_reason"),
        "usage": _usage(reply.get("usage")),
    }


def _read(received: Received) -> dict[str, Any]:
    """Return a reply whose first choice has a message, or raise BadResponse."""
    try:
        reply = received.json()
    except (ValueError, RecursionError):
        raise BadResponse("the reply is not JSON", details=_excerpt(received.body)) from None
    match reply:
        case {"error": error} if error:
            raise BadResponse(
                "the reply is an error, although its status is a success", details={"error": error}
            )
        case {"choices": [{"message": {}}, *_]}:
            return dict(reply)
    raise BadResponse("the reply is no chat completion: it has no message", details=_excerpt(received.body))


def _json(text: str | None) -> Json:
    """Return the JSON value in the text, or raise BadResponse."""
    source = (text or "").encode()
    count = count_values(source, most=MAX_VALUES)
    if count > MAX_VALUES:
        raise BadResponse(f"the text is JSON of {count:,} values; the limit is {MAX_VALUES:,}")
    try:
        value = decoder_for(source).decode(source)
    except (ValueError, RecursionError):
        raise BadResponse("the text is not JSON, as response_schema wants it", details=_shown(text)) from None
    if not is_json(value, max_values=len(source) + 1, max_depth=DEFAULT_BOUNDS.max_depth):
        # A check of it would go as deep, on the stack of this process.
        limit = DEFAULT_BOUNDS.max_depth
        raise BadResponse(f"the text is JSON of more than {limit} levels", details=_shown(text))
    return value


async def _require_fit(output: Mapping[str, Json], schema: Schema) -> None:
    """Raise BadResponse if the value in a reply does not fit the schema."""
    from weft.validator.check import problems_of

    text: str = output["text"]
    problems = await problems_of(schema, output["json"], text.encode())
    if problems:
        raise BadResponse(
            f"the text does not fit response_schema: {problems[0]}",
            details={
                "problems": [
                    {"pointer": problem.pointer, "message": problem.message}
                    for problem in problems[:_SHOWN_PROBLEMS]
                ],
                **_shown(text),
            },
        )


def _text(content: Json) -> str | None:
    """Return the text of a message; some servers send the text in parts, and a tool call has none."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return None if content is None else str(content)


def _usage(usage: Json) -> dict[str, int | None]:
    usage = usage if isinstance(usage, dict) else {}
    counts = {
        name: count if isinstance(count := usage.get(theirs), int) else None
        for name, theirs in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
    }
    total = usage.get("total_tokens")
    if not isinstance(total, int):
        known = [count for count in counts.values() if count is not None]
        total = sum(known) if len(known) == len(counts) else None
    return {**counts, "total_tokens": total}


def _excerpt(body: bytes) -> dict[str, Json]:
    text = body[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
    return {"body": cut(text) + ("…" if len(body) > _SHOWN_CHARACTERS else "")}


def _shown(text: str | None) -> dict[str, Json]:
    if text is None or len(text) <= _SHOWN_CHARACTERS:
        return {"text": text if text is None else cut(text)}
    return {"text": cut(text[:_SHOWN_CHARACTERS]) + "…"}


def _masked(error: HandlerError, mask: Mask) -> HandlerError:
    """Mask the key in an error's text and details, and return the error."""
    error.args = (mask.text(str(error)),)
    details = getattr(error, "details", None)
    if details is not None:
        error.details = mask.value(details)  # type: ignore[attr-defined]
    return error


HANDLER = Handler(
    "llm_service", HandlerKind.NATIVE, llm_service, CONFIG_SCHEMA, schema_fields=("response_schema",)
)
