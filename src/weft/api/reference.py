"""The API for readers: ``docs/openapi.json``, and ``docs/rest.md`` with every route and every shape of it.

``python -m weft.api.reference openapi.json`` and ``... rest.md`` write them; tests compare.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from weft.api.app import create_app
from weft.api.service import Service
from weft.clock import RealClock
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = """\
# REST

<!-- Written by `python -m weft.api.reference rest.md`; a test compares. -->

What a server answers to. The same for tools is [openapi.json](openapi.json); a server has it at
`/openapi.json`, and at `/docs` as a page (Swagger UI) that takes a key and sends calls.
[Clients](client.md) and [commands](commands.md) speak it for you.

- Bodies are JSON or YAML (`application/json`, `application/yaml`, `text/yaml`); answers are JSON. Unknown
  fields and query parameters are refused.
- Times are RFC 3339 in UTC with microseconds, `null` where it did not happen; ids are UUIDv7.
- A list comes in pages: `limit` items (1 to 500, by default 50), and `next_cursor` for the page behind;
  `null` at the end.
- Where a server has keys, each call needs `Authorization: Bearer KEY`, unless it says otherwise.
  A browser may [sign in](#post-v1session) instead: then a cookie stands for the key, and a call that is no
  `GET` needs `X-CSRF-Token`.
- Errors are `application/problem+json`; [errors](errors.md#problems) lists their codes by status. Every
  call that needs a key may answer EVERYWHERE; what else it may refuse with is below.

ROUTES

## Shapes

A field with `?` may be missing.

SHAPES"""

# What every route may answer that is not open to all.
_EVERYWHERE = ("401", "403", "429", "500", "503")
_PROBLEM = "application/problem+json"


def openapi_document() -> str:
    """Return the OpenAPI document of the whole API as text."""
    unused: Any = None
    # The service has a clock from the start; nothing else of the ports is used.
    ports: Any = SimpleNamespace(clock=RealClock())
    app = create_app(Service(settings=Settings(), ports=ports, registry=unused, feed=unused))
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


def rest_page() -> str:
    """Return the page of all routes and shapes."""
    document = json.loads(openapi_document())
    routes = [_tag(tag, document) for tag in document["tags"]]
    shapes = [_shape(name, schema) for name, schema in document["components"]["schemas"].items()]
    page = _PAGE.replace("EVERYWHERE", ", ".join(_EVERYWHERE))
    return page.replace("ROUTES", "\n".join(routes).strip()).replace("SHAPES", "\n".join(shapes))


def _tag(tag: dict[str, str], document: dict[str, Any]) -> str:
    operations = [
        _operation(f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    return f"## Calls: {tag['name']}\n\n{tag['description']}.\n\n" + "\n".join(operations)


def _operation(title: str, operation: dict[str, Any]) -> str:
    is_open = operation.get("security") == []
    parts = [f"### {title}\n", f"{operation['description']}{' It needs no key.' if is_open else ''}\n"]
    rows = [
        _row(f"`{one['name']}`", one["in"], _type(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", ())
        if one["in"] != "path"
    ]
    if rows:
        parts.append(_table(["parameter", "in", "type", ""], rows))
    if "requestBody" in operation:
        body = operation["requestBody"]
        content = body["content"]["application/json"]
        may = "" if body.get("required") else ", which may be missing"
        parts.append(f"Body: {_type(content['schema'])}{may}.\n")
        parts.append(f"```json\n{json.dumps(content['example'], ensure_ascii=False)}\n```\n")
    responses = operation["responses"]
    parts.append(_table(["answer", ""], list(_answers(responses))))
    refused = [status for status in responses if status >= "400" and status not in _EVERYWHERE]
    if refused:
        parts.append(f"Problems: {', '.join(refused)}.\n")
    return "\n".join(parts)


def _answers(responses: dict[str, Any]) -> Iterator[str]:
    for status, response in responses.items():
        content = response.get("content", {})
        if list(content) == [_PROBLEM]:
            continue
        shapes = [_type(one.get("schema", {})) for kind, one in content.items() if kind == "application/json"]
        others = [f"`{kind}`" for kind in content if kind not in ("application/json", _PROBLEM)]
        given = ", or ".join(shape for shape in (*shapes, *others) if shape)
        yield _row(status, response["description"].rstrip(".") + (f": {given}" if given else ""))


def _shape(name: str, schema: dict[str, Any]) -> str:
    text = f"### {name}\n\n{schema.get('description', '').replace('``', '`')}\n"
    required = set(schema.get("required", ()))
    rows = [
        _row(f"`{field}`{'' if field in required else ' ?'}", _type(of), of.get("description", ""))
        for field, of in schema.get("properties", {}).items()
    ]
    if not rows:
        return f"{text}\n{_type(schema)}.\n"
    return f"{text}\n{_table(['field', 'type', ''], rows)}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'])}"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case "null":
            return "`null`"
        case None:
            return "any JSON"
        case kind:
            return str(kind)


def _table(headings: list[str], rows: list[str]) -> str:
    return "\n".join([_row(*headings), "|---" * len(headings) + "|", *rows]) + "\n"


def _row(*cells: str) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


if __name__ == "__main__":
    import sys

    pages = {"openapi.json": openapi_document, "rest.md": rest_page}
    sys.stdout.write(pages[sys.argv[1]]())
