"""The JSON Schema (2020-12) of a type: what JSON ``decoding`` makes a value of it from."""

from __future__ import annotations

import enum
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, assert_never
from uuid import UUID

import msgspec

from weft.handlers.types.encoding import to_json
from weft.handlers.types.shape import (
    Anything,
    Choice,
    Constrained,
    FixedTuple,
    Items,
    KeysAndValues,
    Members,
    Model,
    NumpyValue,
    OneOf,
    Record,
    Scalar,
    Shape,
    Unsupported,
)

if TYPE_CHECKING:
    from weft.core.payload import Json

_SCALARS: dict[type, dict[str, Json]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "string", "format": "duration"},
    Decimal: {"type": ["string", "number"]},
    UUID: {"type": "string", "format": "uuid"},
    PurePath: {"type": "string"},
}


def schema_of(*shapes: Shape) -> dict[str, Json]:
    """Return the JSON Schema that all the shapes together ask for; ``{}`` where every value fits."""
    writer = _SchemaWriter()
    parts: list[dict[str, Json]] = []
    for shape in shapes:
        part = writer.write(shape, is_root=len(shapes) == 1)
        # Where others ask for more, that the value is an object is said by them.
        if part not in (*parts, {}) and (part != {"type": "object"} or len(shapes) == 1):
            parts.append(part)
    root = {"allOf": parts} if len(parts) > 1 else parts[0] if parts else {}
    return {**root, "$defs": writer.definitions} if writer.definitions else root


class _SchemaWriter:
    def __init__(self) -> None:
        self.definitions: dict[str, Json] = {}
        self._names: dict[int, str] = {}

    def write(self, shape: Shape, *, is_root: bool = False) -> dict[str, Json]:
        match shape:
            case Anything() | Unsupported():
                return {}
            case Scalar():
                return dict(_SCALARS[shape.base])
            case NumpyValue():
                return {"type": "array"} if shape.is_array else {}
            case Items():
                return _without_empty({"type": "array", "items": self.write(shape.item)})
            case FixedTuple():
                count = len(shape.items)
                items = {"prefixItems": [self.write(item) for item in shape.items]} if count else {}
                return {"type": "array", **items, "minItems": count, "maxItems": count}
            case KeysAndValues():
                return _without_empty({"type": "object", "additionalProperties": self.write(shape.value)})
            case Record():
                return self._record(shape, is_root=is_root)
            case OneOf():
                members = [self.write(member) for member in shape.members]
                return {} if {} in members else {"anyOf": members}
            case Choice():
                return {"enum": [_plain(value) for value in shape.values]}
            case Members():
                if issubclass(shape.cls, enum.Flag):
                    return {"type": "integer"}
                return {"enum": [_plain(member) for member in shape.cls]}
            case Model():
                return self._model(shape.annotation)
            case Constrained():
                return {**self.write(shape.inner), **_constraints(shape.constraints)}
            case _:
                assert_never(shape)

    def _record(self, record: Record, *, is_root: bool) -> dict[str, Json]:
        name = self._names.get(id(record))
        if name is None:
            name = self._names[id(record)] = self._free_name(record.cls.__name__)
            # Taken now: a class that holds itself refers to the name.
            self.definitions[name] = {}
            self.definitions[name] = self._body(record)
            if is_root and not _refers(self.definitions, name):
                body: dict[str, Json] = self.definitions.pop(name)
                return body
        return {"$ref": f"#/$defs/{name}"}

    def _body(self, record: Record) -> dict[str, Json]:
        if record.is_array:
            return {"type": "array"}
        properties = {each.key: self.write(each.shape) for each in record.fields}
        required = [each.key for each in record.fields if each.is_required]
        if record.tag is not None:
            properties = {record.tag[0]: {"const": record.tag[1]}, **properties}
        return _without_empty(
            {
                "type": "object",
                "properties": properties,
                "required": required,
                **({"additionalProperties": False} if record.forbids_unknown else {}),
            }
        )

    def _model(self, annotation: Any) -> dict[str, Json]:
        try:
            adapter = sys.modules["pydantic"].TypeAdapter(annotation)
            schema: dict[str, Json] = adapter.json_schema(ref_template="#/$defs/{model}")
            own = schema.pop("$defs", {})
            if any(self.definitions.get(name, own[name]) != own[name] for name in own):
                # Two classes of one name: pydantic's go by another.
                schema = adapter.json_schema(ref_template="#/$defs/pydantic.{model}")
                own = {f"pydantic.{name}": body for name, body in schema.pop("$defs", {}).items()}
        except Exception:  # a type that pydantic has no schema for is checked by the call alone
            return {}
        self.definitions.update(own)
        return schema

    def _free_name(self, name: str) -> str:
        number, free = 1, name
        while free in self.definitions:
            number += 1
            free = f"{name}{number}"
        return free


def _without_empty(schema: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in schema.items() if value not in ({}, [])}


def _refers(schema: Json, name: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == f"#/$defs/{name}" or any(_refers(each, name) for each in schema.values())
    return isinstance(schema, list) and any(_refers(each, name) for each in schema)


def _plain(value: Any) -> Json:
    return to_json(value, max_values=10_000, max_depth=100)


def _constraints(hint: Any) -> dict[str, Json]:
    schema = msgspec.json.schema(hint)
    return {key: value for key, value in schema.items() if key not in ("items", "additionalProperties")}
