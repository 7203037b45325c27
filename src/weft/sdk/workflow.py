"""A workflow declared in Python: functions become nodes, and the whole becomes a definition.

Nothing of the engine is imported to declare one, so that a module full of workflows loads fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, overload

from weft.core.payload import MAX_DOCUMENT_VALUES, Json, decode, encode, find_fault, pointer
from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.model import ID_PATTERN, NAME_FORM, NAME_PATTERN, WAIT
from weft.definition.suggestion import Suggester
from weft.errors import DefinitionError, PayloadError, Problem
from weft.sdk import signature
from weft.sdk.declaration import Declaration
from weft.sdk.public import public

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from weft.sdk.declared_types import DeclaredTypes
    from weft.sdk.result import ExecutionResult

_Function = TypeVar("_Function", bound=Callable[..., Any])

FailurePolicy: TypeAlias = Literal["fail_fast", "continue"]
TriggerRule: TypeAlias = Literal[
    "none_failed_min_one_success", "none_failed", "all_success", "all_done", "one_success", "one_failed"
]
Delivery: TypeAlias = Literal["at_least_once", "at_most_once"]


@dataclass(frozen=True, slots=True)
class NodeReference:
    """A node that no function stands for; name it among the ``dependencies`` of others."""

    id: str


# The fields of a wait node that are not of its config.
_AROUND_WAIT = frozenset({"dependencies", "depends_on", "condition", "trigger_rule"})

Dependency: TypeAlias = str | NodeReference | Callable[..., Any]


class RetryOptions(TypedDict, total=False):
    base_delay_seconds: float
    multiplier: float
    max_delay_seconds: float
    jitter: float
    when: str


class CacheOptions(TypedDict):
    ttl_seconds: float


class _PollOptions(TypedDict, total=False):
    timeout_seconds: float


class PollOptions(_PollOptions):
    """Until when, how often and how long a node is run again."""

    until: str
    every_seconds: float


class NodeDefaults(TypedDict, total=False):
    timeout_seconds: float
    max_retries: int
    retry: RetryOptions
    queue: str
    resource_tag: str
    delivery: Delivery


class NodeOptions(NodeDefaults, total=False):
    """The fields of any node."""

    dependencies: Sequence[Dependency]
    depends_on: Sequence[Dependency]
    condition: str
    trigger_rule: TriggerRule
    cache: CacheOptions
    poll: PollOptions
    secrets: Sequence[str]


class _NotifyOptions(TypedDict, total=False):
    on: Sequence[Literal["failed", "completed", "dead_letter", "waiting"]]


class HandlerNodeOptions(NodeOptions, total=False):
    """The fields of a node whose handler is named."""

    config: Json


class WaitOptions(TypedDict, total=False):
    """The fields of a wait node, and of its config. Those that are given as text may be templates."""

    dependencies: Sequence[Dependency]
    depends_on: Sequence[Dependency]
    condition: str
    trigger_rule: TriggerRule
    seconds: float | str
    until: str
    signal: str
    event: str
    match: Mapping[str, Any]
    lookback_seconds: float | str
    prompt: str
    schema: Mapping[str, Any] | bool
    expires_seconds: float | str
    default: Json


class CallOptions(TypedDict, total=False):
    """The fields of a node that runs a workflow. ``timeout_seconds`` is for the whole of it."""

    version: int | str
    input: Json
    dependencies: Sequence[Dependency]
    depends_on: Sequence[Dependency]
    condition: str
    trigger_rule: TriggerRule
    timeout_seconds: float


class NotifyTarget(_NotifyOptions):
    """A URL that is told of executions."""

    url: str


class _ConcurrencyOptions(TypedDict, total=False):
    limit: int
    on_conflict: Literal["queue", "reject", "cancel_running"]


class ConcurrencyOptions(_ConcurrencyOptions):
    """The group of an execution, and how many of the group run at once."""

    group: str


class WorkflowFields(TypedDict, total=False):
    """The fields of a definition beside its name."""

    description: str
    input_schema: Mapping[str, Any]
    failure_policy: FailurePolicy
    timeout_seconds: float
    max_concurrency: int
    concurrency: ConcurrencyOptions
    notify: NotifyTarget | Sequence[NotifyTarget]
    defaults: NodeDefaults
    nodes: Sequence[Mapping[str, Any]]
    output: Json


class Workflow(Declaration):
    """A workflow under construction. Functions declared with ``@flow.node`` stay what they were."""

    @public
    def __init__(self, name: str, **fields: Unpack[WorkflowFields]) -> None:
        _refuse_unknown("Workflow()", fields, WorkflowFields)
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            raise DefinitionError([Problem("/name", f"a workflow's name is {NAME_FORM}, not {name!r:.80}")])
        self.name = name
        self._fields = {key: value for key, value in fields.items() if key != "nodes"}
        self._nodes: list[Mapping[str, Json]] = list(fields.get("nodes", ()))
        # Where each id that was declared here stands, and where in the source that was.
        self._positions: dict[str, int] = {}
        self._places: dict[int, str] = {}
        # The ids of a function's nodes, and the function behind a reference.
        self._ids: dict[Callable[..., Any], list[str]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        # Of the annotated functions; None: there is none.
        self._types: DeclaredTypes | None = None

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, nodes: {len(self._nodes)})"

    @overload
    def node(self, function: _Function, /) -> _Function: ...
    @overload
    def node(
        self, function: None = None, /, *, id: str = ..., **options: Unpack[NodeOptions]
    ) -> Callable[[_Function], _Function]: ...
    @overload
    def node(
        self, function: None = None, /, *, id: str, handler: str, **options: Unpack[HandlerNodeOptions]
    ) -> NodeReference: ...

    @public
    def node(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        id: str | None = None,  # noqa: A002 - the word of the interface
        handler: str | None = None,
        **options: Unpack[HandlerNodeOptions],
    ) -> Any:
        """Add a node: the decorated function, or with ``handler`` one of any handler.

        The function's name is the node's id, unless ``id`` gives another. A parameter named like a node that
        was declared before depends on it and receives its output, or None where it did not complete;
        ``dependencies`` adds more. ``input`` receives the execution's input, ``context`` the handler's
        context, and ``**others`` the outputs of the other parents. An annotated parameter receives a value of
        that type.

        Raises DefinitionError where the function cannot be a node's.
        """
        _refuse_unknown("node()", options, HandlerNodeOptions)
        if handler is not None:
            if id is None:
                raise self._fault(f"a node of the handler {handler!r} needs an id: node(id=…, handler=…)")
            fields = self._fields_of(options, f"node {id!r}")
            return self._add({"id": id, "handler": handler, **fields}, f"node {id!r}")
        if "config" in options:
            raise self._fault("config goes with a handler; a function has its parameters")

        @public
        def declare(function: _Function) -> _Function:
            self._add_function(function, id, options)
            return function

        return declare if function is None else declare(function)

    @public
    def wait(
        self,
        id: str,  # noqa: A002 - the word of the interface
        /,
        **options: Unpack[WaitOptions],
    ) -> NodeReference:
        """Add a node that waits: ``seconds``, ``until`` a time, for an answer, a ``signal`` or an ``event``.

        Its output is ``{"value", "by", "at", "expired"}``. The value of a wait for an answer fits ``schema``;
        after ``expires_seconds`` it is ``default``, or without one the node fails.
        """
        _refuse_unknown("wait()", options, WaitOptions)
        fields = self._fields_of(
            {name: value for name, value in options.items() if name in _AROUND_WAIT}, f"node {id!r}"
        )
        config = {name: value for name, value in options.items() if name not in _AROUND_WAIT}
        return self._add({"id": id, "handler": WAIT, "config": config, **fields}, f"node {id!r}")

    @public
    def call(
        self,
        id: str,  # noqa: A002 - the word of the interface
        workflow: str | Workflow | Mapping[str, Json],
        /,
        **options: Unpack[CallOptions],
    ) -> NodeReference:
        """Add a node that runs a workflow as an execution of its own: its output is that one's output.

        ``workflow``: the name of a stored one, with ``version`` its number or alias; or a ``Workflow`` or a
        definition, which becomes a part of this one as it is now. It sees its own ``input`` alone.
        """
        place = f"node {id!r}"
        _refuse_unknown("call()", options, CallOptions)
        fields = self._fields_of(options, place)
        called: Json
        if isinstance(workflow, str):
            version = {"version": fields.pop("version")} if "version" in fields else {}
            called = {"name": workflow, **version}
        elif "version" in fields:
            raise self._fault(f"{place}: version is for the name of a stored workflow")
        elif isinstance(workflow, Workflow):
            called = workflow.definition()
            self._take_over(workflow, place)
        else:
            called = dict(workflow)
        return self._add({"id": id, "workflow": called, **fields}, place)

    def _take_over(self, workflow: Workflow, place: str) -> None:
        """Know the functions of another workflow, which becomes a part of this one."""
        for reference, function in workflow.__weft_functions__().items():
            if self._functions.setdefault(reference, function) != function:
                raise self._fault(f"{place}: another function is {reference} in {self.name!r}")

    @public
    def definition(self) -> dict[str, Json]:
        """Return the definition as plain JSON, to be stored or sent; it is not checked yet."""
        document = self.document()
        bounds = DEFAULT_BOUNDS
        try:
            plain: dict[str, Json] = decode(
                encode(
                    document,
                    max_bytes=bounds.max_body_bytes,
                    max_depth=bounds.max_depth,
                    max_values=MAX_DOCUMENT_VALUES,
                )
            )
        except PayloadError as error:
            if error.code == "too_large":
                raise DefinitionError([Problem("", str(error))]) from None
            fault = find_fault(document, max_values=MAX_DOCUMENT_VALUES, max_depth=bounds.max_depth)
            raise DefinitionError(self.located([Problem(pointer(fault.path), fault.message)])) from None
        return plain

    def run(
        self,
        input: Json = None,  # noqa: A002 - the word of the interface
        *,
        data: str | PathLike[str] | None = None,
        progress: bool = False,
    ) -> ExecutionResult:
        """Run it in this process, to its end; see ``weft.run``."""
        from weft.sdk.run import run

        return run(self, input, data=data, progress=progress)

    async def execute(
        self,
        input: Json = None,  # noqa: A002 - the word of the interface
        *,
        data: str | PathLike[str] | None = None,
        progress: bool = False,
    ) -> ExecutionResult:
        """Run it in this process, on the running loop; see ``weft.execute``."""
        from weft.sdk.run import execute

        return await execute(self, input, data=data, progress=progress)

    # -- a Declaration, for those who run it -------------------------------------------------------

    def document(self) -> dict[str, Json]:
        fields = dict(self._fields)
        if "input_schema" not in fields and self._types is not None:
            schema = self._types.input_schema()
            if schema is not None:
                fields["input_schema"] = schema
        output = {"output": fields.pop("output")} if "output" in fields else {}
        return {"name": self.name, **fields, "nodes": self._nodes, **output}

    def __weft_functions__(self) -> Mapping[str, Callable[..., Any]]:
        return dict(self._functions)

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        return [Problem(problem.pointer, problem.message + self._where(problem)) for problem in problems]

    def _where(self, problem: Problem) -> str:
        tokens = problem.pointer.split("/")
        index = int(tokens[2]) if tokens[1:2] == ["nodes"] and tokens[2:] and tokens[2].isdecimal() else -1
        return f" ({self._places[index]})" if index in self._places else ""

    # -- for notebooks -----------------------------------------------------------------------------

    def _repr_svg_(self) -> str | None:
        from weft.sdk.picture import draw_document

        try:
            return draw_document(self.document())
        except DefinitionError:
            return None

    def _repr_html_(self) -> str:
        from weft.sdk.picture import as_html, draw_document

        try:
            return as_html(repr(self), draw_document(self.document()))
        except DefinitionError as error:
            return as_html(str(DefinitionError(self.located(error.problems))), None)

    # -- declaring ---------------------------------------------------------------------------------

    def _add_function(
        self, function: Callable[..., Any], node_id: str | None, options: Mapping[str, Any]
    ) -> None:
        if not callable(function):
            raise self._fault(f"node() takes a function, not {function!r:.80}")
        place = signature.place(function)
        if (what := signature.generator_kind(function)) is not None:
            raise self._fault(f"{place} is {what}, and a node returns one value: return a list instead")
        if node_id is None:
            node_id = str(getattr(function, "__name__", ""))
            if not ID_PATTERN.fullmatch(node_id):
                raise self._fault(f"{place}: its name cannot be a node's id; give it one with node(id=…)")
        fields = self._fields_of(options, place)
        parents = self._parents_of(function, fields, node_id)
        args, faults = signature.arguments(function, parents, self._positions)
        if not faults and signature.has_annotations(function):
            faults = self._declare_types(node_id, function, args, place)
        if faults:
            raise self._fault(*(f"{place}: {fault}" for fault in faults))
        config = {"function": self._refer(function, node_id), "args": args}
        self._add({"id": node_id, "handler": "python", "config": config, **fields}, place)
        ids = self._ids.setdefault(function, [])
        if node_id not in ids:
            ids.append(node_id)

    def _declare_types(
        self, node_id: str, function: Callable[..., Any], args: Mapping[str, str], place: str
    ) -> list[str]:
        """Note the types of a node's function, and return what is wrong with them."""
        from weft.sdk.declared_types import DeclaredTypes

        if self._types is None:
            self._types = DeclaredTypes()
        return self._types.add(node_id, function, args, place)

    def _parents_of(
        self, function: Callable[..., Any], fields: dict[str, Json], node_id: str
    ) -> Sequence[str]:
        """Return the parents of a function's node: those that were given, and those its parameters name."""
        key = "depends_on" if "depends_on" in fields else "dependencies"
        given = list(fields.get(key) or ())
        # Both spellings on one node are a problem that validation names.
        others = fields.get("dependencies") or () if key == "depends_on" else ()
        named = [
            name
            for name in signature.names_of_parents(function)
            if name in self._positions and name != node_id and name not in given and name not in others
        ]
        if named:
            fields[key] = [*given, *named]
        return [*given, *others, *named]

    def _refer(self, function: Callable[..., Any], node_id: str) -> str:
        """Return a reference that means this function alone: closures of one function share a name."""
        reference = signature.reference(function)
        if self._functions.setdefault(reference, function) != function:
            reference = f"{reference}#{node_id}"
            self._functions[reference] = function
        return reference

    def _fields_of(self, options: Mapping[str, Any], place: str) -> dict[str, Json]:
        fields = dict(options)
        for key in ("dependencies", "depends_on"):
            if key in fields:
                given = fields[key]
                if isinstance(given, str) or not isinstance(given, Sequence):
                    raise self._fault(f"{place}: {key} is a list of functions and ids, not {given!r:.80}")
                fields[key] = [self._id_of(dependency, place) for dependency in given]
        if callable(fields.get("condition")):
            raise self._fault(f'{place}: a condition is an expression, such as "fetch.status == 200"')
        return fields

    def _id_of(self, dependency: Dependency, place: str) -> str:
        if isinstance(dependency, str):
            return dependency
        if isinstance(dependency, NodeReference):
            return dependency.id
        if not callable(dependency):
            raise self._fault(f"{place}: a dependency is a function or an id, not {dependency!r:.80}")
        ids = self._ids.get(dependency, [])
        if len(ids) > 1:
            which = ", ".join(map(repr, ids))
            raise self._fault(f"{place}: {signature.place(dependency)} is several nodes; say which: {which}")
        if not ids:
            raise self._fault(
                f"{place}: {signature.place(dependency)} is not a node of {self.name!r}; declare it first"
            )
        return ids[0]

    def _add(self, node: dict[str, Json], place: str) -> NodeReference:
        node_id = node["id"]
        position = self._positions.get(node_id)
        if position is None:
            position = self._positions[node_id] = len(self._nodes)
            self._nodes.append(node)
        elif hasattr(sys, "ps1"):
            # At a prompt or in a notebook, a cell that runs again means its node anew.
            self._nodes[position] = node
        else:
            raise self._fault(f"{place}: the id {node_id!r} is taken by {self._places[position]}")
        self._places[position] = place
        return NodeReference(node_id)

    def _fault(self, *messages: str) -> DefinitionError:
        return DefinitionError([Problem(f"/nodes/{len(self._nodes)}", message) for message in messages])


def _refuse_unknown(what: str, given: Mapping[str, object], known: type) -> None:
    """Refuse a misspelled field where it stands, as a signature would."""
    fields = known.__annotations__
    for name in given:
        if name not in fields:
            hint = Suggester().hint(name, fields) or f"; it knows {', '.join(sorted(fields))}"
            raise TypeError(f"{what} has no field {name!r}{hint}")
