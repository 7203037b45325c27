"""Whether what one function is annotated to return can be what another is annotated to take.

Only what is certain counts: an empty list is a list of anything, and a dict may have any keys.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from weft.handlers.types.decoding import MisfitError, decode_shape, kind_of
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
    Unsupported,
)

if TYPE_CHECKING:
    from weft.handlers.types.shape import Field, Shape

_KINDS = {
    type(None): frozenset({"null"}),
    bool: frozenset({"a boolean"}),
    int: frozenset({"a number"}),
    float: frozenset({"a number"}),
}
_STRING = frozenset({"a string"})
# Strings of these types have forms that no other of them reads, but for a date, which is a moment too.
_FORMS = frozenset({datetime, date, time, timedelta, UUID})
_MAX_DEPTH = 20


def why_not(returned: Shape, taken: Shape, depth: int = 0) -> str | None:
    """Return why no value of one type can be read as the other, or None if one may be."""
    returned, taken = _bare(returned), _bare(taken)
    if depth > _MAX_DEPTH or isinstance(returned, _OPEN) or isinstance(taken, _OPEN):
        return None
    if isinstance(returned, OneOf):
        return _if_all([why_not(member, taken, depth + 1) for member in returned.members])
    if isinstance(taken, OneOf):
        return _if_all([why_not(returned, member, depth + 1) for member in taken.members])
    if isinstance(returned, (Choice, Members)):
        return _why_no_value(returned, taken)
    written, read = _written(returned), _read(taken)
    if not written & read:
        return (
            f"{name_of(returned)} is {_any_of(written)} in JSON, and {name_of(taken)} needs {_any_of(read)}"
        )
    if isinstance(returned, Scalar) and isinstance(taken, Scalar):
        return _why_not_scalar(returned, taken)
    if isinstance(returned, FixedTuple):
        return _why_not_tuple(returned, taken, depth)
    if isinstance(returned, Record):
        return _why_not_record(returned, taken, depth)
    return None


def name_of(shape: Shape) -> str:
    """Name a shape for a message."""
    match _bare(shape):
        case Scalar(cls=cls) | Record(cls=cls) | Members(cls=cls) | Unsupported(cls=cls):
            return "None" if cls is type(None) else str(getattr(cls, "__name__", cls))
        case Model(annotation=annotation):
            return str(getattr(annotation, "__name__", annotation))
        case Items():
            return "a set" if getattr(shape, "is_set", False) else "a list"
        case FixedTuple(items=items):
            return f"a tuple of {len(items)}"
        case KeysAndValues():
            return "a dict"
        case Choice(values=values):
            return f"Literal[{', '.join(map(repr, values))}]"[:100]
        case OneOf(members=members):
            return " | ".join(name_of(member) for member in members)
    return "a value"


# Of these, nobody knows which JSON they are.
_OPEN = (Anything, Unsupported, NumpyValue)


def _bare(shape: Shape) -> Shape:
    while isinstance(shape, Constrained):
        shape = shape.inner
    return shape


def _if_all(reasons: list[str | None]) -> str | None:
    return reasons[0] if reasons and all(reasons) else None


def _any_of(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


def _written(shape: Shape) -> frozenset[str]:
    """Return the kinds of JSON that a shape is written as."""
    match shape:
        case Scalar(base=base):
            return _KINDS.get(base, _STRING)
        case Items() | FixedTuple():
            return frozenset({"an array"})
        case Record(is_array=True):
            return frozenset({"an array"})
        case Record() | KeysAndValues():
            return frozenset({"an object"})
        case Choice(values=values):
            return frozenset(kind_of(_plain(value)) for value in values)
        case Members(cls=cls):
            return frozenset(kind_of(_plain(member)) for member in cls)
        case Model(annotation=annotation) if _is_object_model(annotation):
            return frozenset({"an object"})
    return frozenset({"null", "a boolean", "a number", "a string", "an array", "an object"})


def _read(shape: Shape) -> frozenset[str]:
    if isinstance(shape, Scalar) and shape.base is Decimal:
        return frozenset({"a string", "a number"})
    return _written(shape)


def _is_object_model(annotation: Any) -> bool:
    # A root model is written as what it holds; a constrained type is no class.
    return (
        isinstance(annotation, type)
        and hasattr(annotation, "model_fields")
        and not getattr(annotation, "__pydantic_root_model__", False)
        and not _has_own_form(annotation)
    )


def _has_own_form(model: Any) -> bool:
    """True if a pydantic model reads or writes itself as something that its fields do not tell."""
    decorators = model.__pydantic_decorators__
    return bool(decorators.model_validators or decorators.model_serializers)


def _why_no_value(returned: Choice | Members, taken: Shape) -> str | None:
    values = returned.values if isinstance(returned, Choice) else list(returned.cls)
    reason: str | None = None
    for value in values:
        try:
            decode_shape(taken)(_plain(value))
        except MisfitError as misfit:
            reason = f"{name_of(returned)} has no value for {name_of(taken)}: {misfit.reason}"
        else:
            return None
    return reason


def _why_not_scalar(returned: Scalar, taken: Scalar) -> str | None:
    bases = (returned.base, taken.base)
    if bases[0] == bases[1] or not _FORMS.issuperset(bases) or bases == (date, datetime):
        return None
    return f"the text of {name_of(returned)} is not that of {name_of(taken)}"


def _why_not_tuple(returned: FixedTuple, taken: Shape, depth: int) -> str | None:
    if isinstance(taken, FixedTuple) and len(taken.items) != len(returned.items):
        return f"a tuple of {len(returned.items)} is no tuple of {len(taken.items)}"
    for index, item in enumerate(returned.items):
        if isinstance(taken, FixedTuple):
            reason = why_not(item, taken.items[index], depth + 1)
        else:
            reason = why_not(item, taken.item, depth + 1) if isinstance(taken, Items) else None
        if reason is not None:
            return f"[{index}]: {reason}"
    return None


def _why_not_record(returned: Record, taken: Shape, depth: int) -> str | None:
    if returned.is_array or (isinstance(taken, Record) and (taken.is_array or taken.cls is returned.cls)):
        return None
    written = {each.key: each for each in returned.fields}
    if isinstance(taken, KeysAndValues):
        pairs: list[tuple[Field, Shape]] = [(each, taken.value) for each in returned.fields]
    elif isinstance(taken, Record):
        if not returned.keeps_unknown:
            missing = [each.key for each in taken.fields if each.is_required and each.key not in written]
            if missing:
                return f"{name_of(returned)} has no {missing[0]!r}, which {name_of(taken)} needs"
        wanted = {each.key: each for each in taken.fields if each.is_argument}
        pairs = [(each, wanted[each.key].shape) for each in returned.fields if each.key in wanted]
    else:
        return None
    for each, shape in pairs:
        # A key of a typed dict may be missing.
        if each.is_required or not returned.keeps_unknown:
            reason = why_not(each.shape, shape, depth + 1)
            if reason is not None:
                return f".{each.key}: {reason}"
    return None


def _plain(value: Any) -> Any:
    return to_json(value, max_values=10_000, max_depth=100)
