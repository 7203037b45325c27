"""The definition that an execution is made of, found by its name, and the input that it is given, checked."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.payload import MAX_VALUES, decode, encode, find_fault, pointer
from weft.definition.validation import check_input
from weft.errors import InputError, JournalError, NotFoundError, PayloadError, Problem, StoreError
from weft.journal.contract import DEFAULT_NAMESPACE, LATEST
from weft.validator.check import problems_in_process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from weft.core.payload import Json
    from weft.definition.bounds import Bounds
    from weft.definition.plan import Plan
    from weft.ports import Ports

    RunInThread: TypeAlias = Callable[..., Awaitable[Any]]

log = logging.getLogger("weft.orchestrator")

# Greater numbers are no versions of anything, and no integers of a database.
_MAX_VERSION = 2**62
# Of all inputs of a batch, so many problems are told.
MAX_PROBLEMS = 1000


class ResolvedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The source of executions: a plan, and the workflow and version that the plan belongs to."""

    plan: Plan
    # What the plan was made of; b"": the journal has it.
    document: bytes = b""
    workflow: str | None = None
    version: int | None = None


async def find_source(
    workflow: str, version: int | str, ports: Ports, *, namespace: str = DEFAULT_NAMESPACE
) -> ResolvedDefinition:
    """Find a stored version by its number, by an alias, or the latest; raises NotFoundError."""
    is_possible = isinstance(version, str) or 0 < version <= _MAX_VERSION
    found = await ports.journal.version(workflow, version, namespace=namespace) if is_possible else None
    if found is None:
        what = f"workflow {workflow[:200]!r}"
        if version != LATEST:
            what = f"version {str(version)[:200]!r} of {what}"
        raise NotFoundError(f"there is no {what}")
    plan = await ports.journal.plan(found.digest)
    if plan is None:
        raise JournalError(f"the journal has no definition {found.digest}, though a version names it")
    return ResolvedDefinition(plan=plan, workflow=workflow, version=found.version)


async def read_input(
    value: Json, plan: Plan, bounds: Bounds, *, run_in_thread: RunInThread | None = None
) -> bytes:
    """Make a value the input of an execution, or raise InputError with pointers into it.

    ``run_in_thread``: for a value that may be large. Where it could take long to find out whether it fits
    the schema, another process does.
    """
    schema = plan.input_schema
    if run_in_thread is None and (schema is None or schema.is_counted):
        payload, problems = _begin_input(value, plan, bounds)
    else:
        payload, problems = await (run_in_thread or asyncio.to_thread)(_begin_input, value, plan, bounds)
    if problems is None:
        assert schema is not None
        (problems,) = await problems_in_process(schema, [payload])
    if problems:
        raise InputError(problems)
    return payload


async def read_inputs(
    values: Sequence[Json], plan: Plan, bounds: Bounds, *, run_in_thread: RunInThread = asyncio.to_thread
) -> list[bytes]:
    """Make values the inputs of as many executions: all, or InputError with pointers into the list."""
    payloads: list[bytes]
    payloads, problems, unknown = await run_in_thread(_begin_inputs, values, plan, bounds)
    if unknown and not problems:
        assert plan.input_schema is not None
        found = await problems_in_process(plan.input_schema, [payloads[index] for index in unknown])
        for index, of_one in zip(unknown, found, strict=True):
            problems += [Problem(f"/{index}{problem.pointer}", problem.message) for problem in of_one]
    if problems:
        raise InputError(problems[:MAX_PROBLEMS])
    return payloads


def _begin_input(value: Json, plan: Plan, bounds: Bounds) -> tuple[bytes, list[Problem] | None]:
    """Encode an input, and list what is wrong with it; None: that could take long to find out."""
    try:
        payload = encode(value, max_bytes=bounds.max_payload_bytes, max_depth=bounds.max_depth)
    except PayloadError as error:
        if error.code == "too_large":
            return b"", [Problem("", str(error))]
        fault = find_fault(value, max_values=MAX_VALUES, max_depth=bounds.max_depth)
        return b"", [Problem(pointer(fault.path), fault.message)]
    # The schema checks the decoded payload, which nodes will read: a subclass of dict or str is plain there.
    return payload, check_input(plan, value if plan.input_schema is None else decode(payload), payload)


def _begin_inputs(
    values: Sequence[Json], plan: Plan, bounds: Bounds
) -> tuple[list[bytes], list[Problem], list[int]]:
    """Encode inputs; return them, what is wrong with some, and those of which that is not known."""
    payloads: list[bytes] = []
    problems: list[Problem] = []
    unknown: list[int] = []
    for index, value in enumerate(values):
        payload, found = _begin_input(value, plan, bounds)
        payloads.append(payload)
        if found is None:
            unknown.append(index)
            continue
        problems += [Problem(f"/{index}{problem.pointer}", problem.message) for problem in found]
        if len(problems) >= MAX_PROBLEMS:
            break
    return payloads, problems, unknown


async def incarnation_of(ports: Ports) -> str | None:
    """Return the incarnation of the store; None: the store is away."""
    try:
        return await ports.store.incarnation_id()
    except StoreError as error:
        log.warning("store.unavailable", extra={"error": str(error)})
        return None


def partitions_away(incarnation_id: str) -> set[int]:
    """Return the partitions that have no word in the incarnation of the store: they are away."""
    return {partition for partition, word in enumerate(incarnation_id.split(" ")) if not word}
