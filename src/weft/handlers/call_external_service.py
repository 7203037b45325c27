"""``call_external_service``: one HTTP call; its output is the response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerKind, LargeOutput, NativeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.payload import Json

_SCALAR = {"type": ["string", "number", "boolean"]}

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "minLength": 1},
        "method": {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"},
        "headers": {
            "type": "object",
            # The name may still be a template; what it became is checked at the call.
            "patternProperties": {"^([!#$%&'*+.^_`|~0-9A-Za-z-]+|.*\\{\\{.*)$": _SCALAR},
            "additionalProperties": False,
        },
        "query": {
            "type": "object",
            "additionalProperties": {
                "type": ["string", "number", "boolean", "null", "array"],
                "items": _SCALAR,
            },
        },
        "body": True,
        "success_status": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": ["integer", "string"],
                "minimum": 100,
                "maximum": 599,
                "pattern": "^[1-5][xX][xX]$",
            },
        },
    },
    "additionalProperties": False,
}


async def call_external_service(config: Json, context: NativeContext) -> Json | LargeOutput:
    # Loaded at the first call: aiohttp takes longer than all of weft.
    from weft.handlers.http.exchange import exchange
    from weft.handlers.http.outgoing import make_request
    from weft.handlers.http.traced_call import traced_call

    request = make_request(
        url=config["url"],
        method=config.get("method"),
        headers=config.get("headers"),
        query=config.get("query"),
        body=config.get("body"),
        idempotency_key=context.idempotency_key,
    )
    wanted = config.get("success_status")
    is_success = is_2xx if wanted is None else success_of(wanted)
    outbound = context.outbound
    with traced_call(request, context) as (traced, add):
        received = await exchange(traced, outbound, is_success=is_success)
        add({"http.response.status_code": received.status})
    body, is_base64 = await outbound.off_loop(received.value) if received.is_large else received.value()
    output = {
        "status": received.status,
        "headers": received.headers,
        "body": body,
        "url": str(received.url),
    }
    if is_base64:
        output["body_encoding"] = "base64"
    return LargeOutput(output) if received.is_large else output


def is_2xx(status: int) -> bool:
    return status // 100 == 2


def success_of(wanted: list[int | str]) -> Callable[[int], bool]:
    """Return a predicate that tests a status against codes and classes such as ``2xx``."""
    codes = {item for item in wanted if isinstance(item, int)}
    classes = {int(item[0]) for item in wanted if isinstance(item, str)}
    return lambda status: status in codes or status // 100 in classes


HANDLER = Handler("call_external_service", HandlerKind.NATIVE, call_external_service, CONFIG_SCHEMA)
