"""Every problem of a definition at once, each with its pointer, before anything is stored.

A check has three steps. The first walks the document field by field and compiles the expressions it meets.
The second looks at all nodes together: dependencies, cycles, and whether each node that an expression names
runs before it. The third, where nothing was found, puts the plan together. What is wrong in one place is
reported and left out, and the check goes on with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from weft.core.payload import MAX_DOCUMENT_VALUES, Json, decode, encode, find_fault, pointer
from weft.core.readiness import EARLY_RULES
from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.definition.fields import (
    CALL_FIELDS,
    DEFINITION_FIELDS,
    NODE_FIELDS,
    Rule,
    kind,
    shown,
    unknown_field,
)
from weft.definition.gc_pause import collector_paused
from weft.definition.graph import find_cycles, not_ancestors
from weft.definition.model import (
    DEFAULT_TIMEOUT_SECONDS,
    ID_PATTERN,
    LANE_PATTERN,
    SLEEP,
    WAIT,
    Delivery,
    is_number,
    read_definition,
    sleep_seconds,
)
from weft.definition.plan import POLL_WORDS, RETRY_WORDS, NodeExpressions, Plan, assemble
from weft.definition.schema import Schema, compile_schema, quick_problems
from weft.definition.suggestion import Suggester
from weft.definition.waits import wait_problems, without_literals
from weft.errors import ExpressionError, PayloadError, Problem
from weft.expressions.expression import NO_NAMES, Expression, compile_expression
from weft.expressions.template import Template, compile_template

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

# Words that an expression reads as something else than a node.
RESERVED_IDS = {
    "nodes": "all nodes",
    "execution": "facts about the execution",
    "secrets": "the secrets of a worker",
    "input": "the execution's input",
}

# The fields that a wait node may have: it is no attempt that could fail, time out or take a worker.
WAIT_FIELDS = frozenset(
    {"id", "handler", "config", "dependencies", "depends_on", "condition", "trigger_rule"}
)

# Few bytes are enough to make a problem: a document full of them is not read to its end.
MAX_PROBLEMS = 10_000
# How many handlers, or nodes of a cycle, a message lists.
_MAX_LISTED = 20


class HandlerCatalogue(Protocol):
    """The handlers that a definition may name: those of this process, and those of living workers."""

    def knows(self, name: str) -> bool:
        """True if there is a handler of this name."""

    def names(self) -> list[str]:
        """List all handlers, sorted."""

    def problems(self, name: str, config: Json) -> list[Problem]:
        """List what the handler cannot use in a config, with pointers into it.

        Templates are still unfilled: a string that holds one passes wherever any value could.
        """


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: problems, or else a plan and its layers."""

    problems: list[Problem]
    warnings: list[Problem]
    plan: Plan | None
    layers: list[list[str]]


def check(
    document: Json,
    *,
    handlers: HandlerCatalogue,
    bounds: Bounds = DEFAULT_BOUNDS,
    named: bool = True,
    resource_limits: Collection[str] | None = None,
    just_read: bool = False,
    pace: Callable[[], None] | None = None,
) -> Checked:
    """Find every problem of a definition, in the order of the document; never raises, whatever it is given.

    ``named=False`` lets a definition do without a name. A resource tag outside ``resource_limits`` is a
    warning; where the limits are not known (None), no tag is. ``just_read``: the document comes from
    ``read_json`` or ``read_yaml``, and nobody else holds it. ``pace`` is called again and again, and raises
    CompileBudgetError to end a check that has taken too long.
    """
    with collector_paused():
        if not just_read:
            try:
                # The round trip gives a value of plain JSON types that nobody else holds: the plan keeps it.
                document = decode(
                    encode(
                        document,
                        max_bytes=bounds.max_body_bytes,
                        max_depth=bounds.max_depth,
                        max_values=MAX_DOCUMENT_VALUES,
                    )
                )
            except PayloadError as error:
                return Checked([_problem_of(document, error, bounds)], [], None, [])
        check = _Check(document, handlers, bounds, named=named, resource_limits=resource_limits)
        check.pace = pace or check.pace
        return check.run()


def _problem_of(document: Json, error: PayloadError, bounds: Bounds) -> Problem:
    if error.code == "too_large":
        return Problem("", str(error))
    fault = find_fault(document, max_values=MAX_DOCUMENT_VALUES, max_depth=bounds.max_depth)
    return Problem(pointer(fault.path), fault.message)


def check_input(plan: Plan, value: Json, payload: bytes) -> list[Problem] | None:
    """List what keeps a value from being the input of an execution, with pointers into it.

    None: whether it fits the schema could take long to find out. ``payload``: the value as JSON.
    """
    if not isinstance(value, dict):
        return [Problem("", f"the input must be an object, not {kind(value)}")]
    if plan.input_schema is None:
        return []
    found = quick_problems(plan.input_schema, value, payload)
    return in_document_order(found, value) if found else found


class CompileBudgetError(Exception):
    """Ends a check that takes more CPU than it may."""


class _TooManyError(Exception):
    """Ends a check that has found ``MAX_PROBLEMS`` problems."""


@dataclass(slots=True)
class _Draft:
    """The fields of one node that could be read so far."""

    index: int
    id: str | None = None
    dependencies: Sequence[Json] = ()
    dependencies_at: str | None = None
    # Positions of those dependencies that exist.
    parents: list[int] = field(default_factory=list)
    config: Template | None = None
    condition: Expression | None = None
    until: Expression | None = None
    retry_when: Expression | None = None
    # Of a node that runs a workflow, perhaps one that is written down in it.
    is_call: bool = False
    workflow: Plan | None = None
    # The nodes that its expressions name, as far as they compile.
    names: frozenset[str] = frozenset()


class _Check:
    """One check of one document."""

    def __init__(
        self,
        document: Json,
        handlers: HandlerCatalogue,
        bounds: Bounds,
        *,
        named: bool,
        resource_limits: Collection[str] | None,
    ) -> None:
        self.document = document
        self.handlers = handlers
        self.bounds = bounds
        self.named = named
        self.resource_limits = resource_limits
        self.problems: list[Problem] = []
        self.suggester = Suggester()
        self.known_handlers: dict[str, bool] = {}
        self.drafts: list[_Draft] = []
        # Where each id stands first.
        self.positions: dict[str, int] = {}
        self._hyphenated: Mapping[str, str] | None = None
        self.output: Template | None = None
        self.names_in_output: frozenset[str] = frozenset()
        self.group: Template | None = None
        self.input_schema: Schema | None = None
        # Of the defaults, for the nodes that do not say otherwise.
        self.retry_when: Expression | None = None
        # Of workflows that are written down in nodes.
        self.inner_warnings: list[Problem] = []
        self.pace: Callable[[], None] = lambda: None

    def run(self) -> Checked:
        if not isinstance(self.document, dict):
            message = f"a definition must be an object, not {kind(self.document)}"
            return Checked([Problem("", message)], [], None, [])
        rest = []
        try:
            self._read_definition()
            if self._read_nodes() and self._join_dependencies():
                self._check_references()
        except _TooManyError:
            rest = [Problem("", f"there may be more; a check ends after {MAX_PROBLEMS:,} problems")]
        except CompileBudgetError as error:
            where = f"/nodes/{self.drafts[-1].index}" if self.drafts else ""
            self.problems.append(Problem(where, str(error)))
        if self.problems:
            problems = in_document_order(self.problems, self.document) + rest
            return Checked(problems, self._warnings(), None, [])
        plan = assemble(
            self.document,
            read_definition(self.document),
            self._expressions(),
            output=self.output,
            group=self.group,
            input_schema=self.input_schema,
            bounds=self.bounds,
        )
        return Checked([], self._warnings(), plan, plan.graph.layers())

    def _expressions(self) -> NodeExpressions:
        found = NodeExpressions()
        for draft in self.drafts:
            assert draft.id is not None
            assert draft.config is not None
            found.templates[draft.id] = draft.config
            if draft.condition is not None:
                found.conditions[draft.id] = draft.condition
            if draft.until is not None:
                found.untils[draft.id] = draft.until
            if draft.is_call:
                if draft.workflow is not None:
                    found.workflows[draft.id] = draft.workflow
                continue
            retry_when = draft.retry_when or self.retry_when
            if retry_when is not None:
                found.retries[draft.id] = retry_when
        return found

    def _report(self, where: str, message: str) -> None:
        self.problems.append(Problem(where, message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _TooManyError

    def _report_all(self, at: str, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self._report(at + problem.pointer, problem.message)

    # Step 1: field by field.

    def _read_fields(
        self, holder: Mapping[str, Json], fields: Mapping[str, Rule], *, required: Iterable[str], at: str
    ) -> set[str]:
        """Report what is wrong with the fields of an object by themselves, and name those that are right."""
        for name in required:
            if name not in holder:
                self._report(at, f"{name} is missing")
        right = set()
        for name, value in holder.items():
            rule = fields.get(name)
            if rule is None:
                self._report(at + pointer((name,)), unknown_field(name, fields, self.suggester))
                continue
            faults = rule(value)
            if not faults:
                right.add(name)
            for where, message in faults:
                self._report(f"{at}/{name}{where}", message)
        return right

    def _read_definition(self) -> None:
        document = self.document
        required = ("name", "nodes") if self.named else ("nodes",)
        right = self._read_fields(document, DEFINITION_FIELDS, required=required, at="")
        if "defaults" in right:
            self._read_default_retry(document["defaults"])
        if "concurrency" in right:
            self._read_group(document)
        if "input_schema" in document:
            schema = compile_schema(document["input_schema"])
            if isinstance(schema, list):
                self._report_all("/input_schema", schema)
            else:
                self.input_schema = schema
        if "output" in document:
            self.output, self.names_in_output = self._template(
                document["output"], "/output", secrets_allowed=False
            )

    def _read_group(self, document: Mapping[str, Json]) -> None:
        """Compile the name of an execution's group, which is known before the execution is there."""
        at = "/concurrency/group"
        self.group, names = self._template(document["concurrency"]["group"], at, secrets_allowed=False)
        for name in sorted(names):
            self._report(at, f"{shown(name)} is no name here: a group sees the input of its execution")
        if self.group is not None and self.group.reads_execution:
            self._report(at, "a group sees the input of its execution, and nothing else of it")
        if "name" not in document:
            self._report("/concurrency", "needs a name: all versions of a workflow count together")

    def _read_default_retry(self, defaults: Mapping[str, Json]) -> None:
        """Compile the ``retry.when`` of the defaults, which sees no node: all of them have it."""
        source = defaults.get("retry", {}).get("when")
        if source is None:
            return
        at = "/defaults/retry/when"
        self.retry_when = self._condition(source, at, RETRY_WORDS)
        if self.retry_when is not None and self.retry_when.nodes:
            name = shown(min(self.retry_when.nodes))
            known = ", ".join(sorted(RETRY_WORDS))
            self._report(at, f"{name} is no name here: in defaults it sees {known}, input and execution")

    def _read_nodes(self) -> bool:
        """Read each node, and say whether there are nodes to go on with."""
        if "nodes" not in self.document:
            return False
        nodes = self.document["nodes"]
        if not isinstance(nodes, list):
            self._report("/nodes", f"must be a list, not {kind(nodes)}")
            return False
        if not nodes:
            self._report("/nodes", "a workflow needs at least one node")
            return False
        if len(nodes) > self.bounds.max_nodes:
            # Nothing is said about the nodes themselves: reading so many is what the limit prevents.
            self._report("/nodes", f"{len(nodes):,} nodes; the limit is {self.bounds.max_nodes:,}")
            return False
        for index, node in enumerate(nodes):
            draft = _Draft(index)
            self.drafts.append(draft)
            if isinstance(node, dict):
                self._read_node(node, draft)
            else:
                self._report(f"/nodes/{index}", f"a node must be an object, not {kind(node)}")
        return True

    def _read_node(self, node: Mapping[str, Json], draft: _Draft) -> None:
        at = f"/nodes/{draft.index}"
        self.pace()
        if "workflow" in node:
            self._read_call(node, draft, at)
            return
        right = self._read_fields(node, NODE_FIELDS, required=("id", "handler"), at=at)
        # An id that is only misspelled is still what other nodes mean by it.
        if isinstance(node.get("id"), str):
            self._read_id(node, draft, at)
        if "handler" in right:
            self._read_handler(node, at)
            if node["handler"] == SLEEP:
                self._check_sleep(node, at)
        is_wait = node.get("handler") == WAIT
        if is_wait:
            self._check_wait(node, at)
        config = node.get("config", {})
        # No worker reads the config of a wait, and secrets are filled in by workers alone.
        draft.config, draft.names = self._template(
            without_literals(config) if is_wait else config, f"{at}/config", secrets_allowed=not is_wait
        )
        if "poll" in right:
            self._read_poll(node, draft, at)
        if "retry" in right and "when" in node["retry"]:
            draft.retry_when = self._condition(node["retry"]["when"], f"{at}/retry/when", RETRY_WORDS)
            draft.names |= draft.retry_when.nodes if draft.retry_when is not None else frozenset()
        self._read_place(node, right, draft, at)
        retries = node["max_retries"] if "max_retries" in right else 0
        if retries > 0 and node.get("delivery", self._default("delivery")) == Delivery.AT_MOST_ONCE:
            self._report(f"{at}/max_retries", "must be 0 or left out: at_most_once allows no retries")

    def _read_place(self, node: Mapping[str, Json], right: Collection[str], draft: _Draft, at: str) -> None:
        """Read what a node runs behind, and under which condition."""
        if "condition" in right:
            draft.condition = self._condition(node["condition"], f"{at}/condition")
            draft.names |= draft.condition.nodes if draft.condition is not None else frozenset()
        self._read_dependencies(node, draft, at)
        rule = node["trigger_rule"] if "trigger_rule" in right else None
        if rule in EARLY_RULES and draft.dependencies_at is not None and not draft.dependencies:
            self._report(f"{at}/trigger_rule", f"{rule} needs dependencies; this node has none")

    def _read_call(self, node: Mapping[str, Json], draft: _Draft, at: str) -> None:
        """Read a node that runs a workflow; one that is written down in it is checked as a definition is."""
        draft.is_call = True
        if "handler" in node:
            self._report(f"{at}/handler", "a node has a handler or a workflow, and this one has both")
        fields = {name: value for name, value in node.items() if name != "handler"}
        right = self._read_fields(fields, CALL_FIELDS, required=("id",), at=at)
        if isinstance(node.get("id"), str):
            self._read_id(node, draft, at)
        draft.config, draft.names = self._template(
            node.get("input", {}), f"{at}/input", secrets_allowed=False
        )
        if "workflow" in right and "nodes" in node["workflow"]:
            inner = _Check(
                node["workflow"],
                self.handlers,
                self.bounds,
                named=False,
                resource_limits=self.resource_limits,
            )
            inner.pace = self.pace
            checked = inner.run()
            self._report_all(f"{at}/workflow", checked.problems)
            self.inner_warnings += [
                Problem(f"{at}/workflow{warning.pointer}", warning.message) for warning in checked.warnings
            ]
            draft.workflow = checked.plan
        self._read_place(node, right, draft, at)

    def _check_sleep(self, node: Mapping[str, Json], at: str) -> None:
        """Report seconds that are longer than the timeout: nothing else of either is looked at here."""
        config = node.get("config")
        seconds = config.get("seconds") if isinstance(config, dict) else None
        given = self._default("timeout_seconds") if "timeout_seconds" not in node else node["timeout_seconds"]
        timeout_seconds = DEFAULT_TIMEOUT_SECONDS if given is None else given
        if is_number(seconds) and is_number(timeout_seconds) and seconds >= 0 and timeout_seconds > 0:
            try:
                sleep_seconds(seconds, timeout_seconds)
            except ValueError as fault:
                self._report(f"{at}/config/seconds", str(fault))

    def _read_poll(self, node: Mapping[str, Json], draft: _Draft, at: str) -> None:
        """Compile the end of a poll, and report nodes that cannot be run again and again."""
        draft.until = self._condition(node["poll"]["until"], f"{at}/poll/until", POLL_WORDS)
        if draft.until is not None:
            draft.names |= draft.until.nodes
        if node.get("handler") == SLEEP:
            self._report(f"{at}/poll", "a sleep has nothing to look at")
        if node.get("delivery", self._default("delivery")) == Delivery.AT_MOST_ONCE:
            self._report(f"{at}/poll", "at_most_once allows one start, and a poll may need many")

    def _check_wait(self, node: Mapping[str, Json], at: str) -> None:
        """Report what a wait node may not have, and what is wrong with its config."""
        for name in node:
            if name in NODE_FIELDS and name not in WAIT_FIELDS:
                self._report(f"{at}/{name}", f"a wait node has no {name}: nothing runs while it waits")
        self._report_all(f"{at}/config", wait_problems(node.get("config", {})))

    def _default(self, name: str) -> Json:
        defaults = self.document.get("defaults")
        return defaults.get(name) if isinstance(defaults, dict) else None

    def _read_id(self, node: Mapping[str, Json], draft: _Draft, at: str) -> None:
        node_id = node["id"]
        if node_id in RESERVED_IDS and not (node_id == "input" and node.get("handler") == "input"):
            unless = ", or use the handler input" if node_id == "input" else ""
            meaning = RESERVED_IDS[node_id]
            self._report(f"{at}/id", f"{node_id!r} means {meaning} in expressions; choose another id{unless}")
        draft.id = node_id
        first = self.positions.setdefault(node_id, draft.index)
        if first != draft.index:
            self._report(f"{at}/id", f"the id {shown(node_id)} is taken by /nodes/{first}")

    def _read_handler(self, node: Mapping[str, Json], at: str) -> None:
        name = node["handler"]
        known = self.known_handlers.get(name)
        if known is None:
            known = self.known_handlers[name] = self.handlers.knows(name)
        if not known:
            names = self.handlers.names()
            listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
            hint = self.suggester.hint(name, names) or f"; known are {listed}"
            self._report(f"{at}/handler", f"there is no handler {shown(name)}{hint}")
        elif "config" in node:
            self._report_all(f"{at}/config", self.handlers.problems(name, node["config"]))
        else:
            for problem in self.handlers.problems(name, {}):
                self._report(at, f"config is missing: {problem.message}")

    def _read_dependencies(self, node: Mapping[str, Json], draft: _Draft, at: str) -> None:
        if "dependencies" in node and "depends_on" in node:
            self._report(f"{at}/depends_on", "another spelling of dependencies: use one of the two")
        name = "depends_on" if "depends_on" in node and "dependencies" not in node else "dependencies"
        dependencies = node.get(name, [])
        if not isinstance(dependencies, list):
            self._report(f"{at}/{name}", f"must be a list of node ids, not {kind(dependencies)}")
            return
        draft.dependencies = dependencies
        draft.dependencies_at = f"{at}/{name}"

    def _template(
        self, value: Json, at: str, *, secrets_allowed: bool
    ) -> tuple[Template | None, frozenset[str]]:
        """Compile a value, and name the nodes it names: where one string is wrong, those of the others."""
        limit = self.bounds.max_template_bytes
        template = compile_template(
            value, max_template_bytes=limit, secrets_allowed=secrets_allowed, pace=self.pace
        )
        if isinstance(template, Template):
            return template, template.nodes
        self._report_all(at, template)
        return None, frozenset().union(*[names for _, names in self._names_in(value)])

    def _names_in(self, value: Json) -> Iterator[tuple[str, frozenset[str]]]:
        """Name the nodes that each string of a value names, with a pointer to it.

        A template knows its names but not their places; only a definition with problems pays for those.
        """
        for path, text in _strings(value):
            template = compile_template(
                text,
                max_template_bytes=self.bounds.max_template_bytes,
                secrets_allowed=True,
                pace=self.pace,
            )
            if isinstance(template, Template) and template.nodes:
                yield pointer(path), template.nodes

    def _condition(self, source: str, at: str, words: frozenset[str] = NO_NAMES) -> Expression | None:
        size = len(source.encode())
        if size > self.bounds.max_template_bytes:
            self._report(at, f"{size:,} bytes; the limit is {self.bounds.max_template_bytes:,}")
            return None
        try:
            return compile_expression(source, words=words)
        except ExpressionError as error:
            self._report(at, str(error))
            return None

    # Step 2: all nodes together.

    def _join_dependencies(self) -> bool:
        """Find the node that each dependency means, and the cycles; say whether they are few enough."""
        count = sum([len(draft.dependencies) for draft in self.drafts])
        if count > self.bounds.max_edges:
            self._report("/nodes", f"{count:,} dependencies in all; the limit is {self.bounds.max_edges:,}")
            return False
        for draft in self.drafts:
            seen: set[str] = set()
            for index, name in enumerate(draft.dependencies):
                fault = self._fault_of_dependency(name, draft, seen)
                if fault is None:
                    draft.parents.append(self.positions[name])
                else:
                    self._report(f"{draft.dependencies_at}/{index}", fault)
                if isinstance(name, str):
                    seen.add(name)
        for cycle in find_cycles([draft.parents for draft in self.drafts]):
            names: list[str] = [self.drafts[index].id or "" for index in cycle]
            draft = self.drafts[cycle[0]]
            closing = draft.dependencies.index(names[-2])
            self._report(f"{draft.dependencies_at}/{closing}", f"a cycle: {_arrows(names)}")
        return True

    def _fault_of_dependency(self, name: Json, draft: _Draft, seen: Collection[str]) -> str | None:
        if not isinstance(name, str):
            return f"must be the id of a node, not {kind(name)}"
        if name in seen:
            return f"{shown(name)} is listed twice"
        if name == draft.id:
            return f"{shown(name)} cannot depend on itself"
        if name not in self.positions:
            return f"there is no node {shown(name)}{self.suggester.hint(name, self.positions)}"
        return None

    def _check_references(self) -> None:
        """Report each name in an expression that is no node, or in a node none that runs before it."""
        faults: dict[int, dict[str, str]] = {}
        pairs: set[tuple[int, int]] = set()
        for draft in self.drafts:
            for name in sorted(draft.names):
                position = self.positions.get(name)
                if position is None:
                    faults.setdefault(draft.index, {})[name] = self._no_such_node(name)
                elif name == draft.id:
                    message = f"{shown(name)} is this node itself, which has no output yet"
                    faults.setdefault(draft.index, {})[name] = message
                else:
                    pairs.add((draft.index, position))
        parents = [draft.parents for draft in self.drafts]
        failed = not_ancestors(parents, pairs)
        # A node that runs later cannot become a dependency: say so, rather than advise a cycle.
        unrelated = not_ancestors(parents, {(position, index) for index, position in failed})
        for index, position in failed:
            name = self.drafts[position].id or ""
            if (position, index) in unrelated:
                message = f"{shown(name)} does not run before this node; add it to its dependencies"
            else:
                message = f"{shown(name)} runs after this node, so it has no output yet"
            faults.setdefault(index, {})[name] = message

        for index, of_node in sorted(faults.items()):
            draft, node = self.drafts[index], self.document["nodes"][index]
            for where, expression in (
                ("condition", draft.condition),
                ("poll/until", draft.until),
                ("retry/when", draft.retry_when),
            ):
                if expression is not None:
                    for name in sorted(expression.nodes & of_node.keys()):
                        self._report(f"/nodes/{index}/{where}", of_node[name])
            name = "input" if "workflow" in node else "config"
            self._report_names(node.get(name, {}), of_node, f"/nodes/{index}/{name}")
        unknown = {n: self._no_such_node(n) for n in sorted(self.names_in_output) if n not in self.positions}
        if unknown:
            self._report_names(self.document["output"], unknown, "/output")

    def _report_names(self, value: Json, faults: Mapping[str, str], at: str) -> None:
        """Report the names in a value that are at fault, each at the string it stands in."""
        for where, names in self._names_in(value):
            for name in sorted(names & faults.keys()):
                self._report(at + where, faults[name])

    def _no_such_node(self, name: str) -> str:
        hyphenated = self._hyphenated_ids().get(name)
        if hyphenated is not None:
            return f"there is no node {shown(name)}; an id with a hyphen is written nodes['{hyphenated}']"
        return f"there is no node {shown(name)}{self.suggester.hint(name, self.positions)}"

    def _hyphenated_ids(self) -> Mapping[str, str]:
        """Find an id by its part before a hyphen: `my-id.x` reads as `my` minus `id.x`."""
        if self._hyphenated is None:
            self._hyphenated = {known.partition("-")[0]: known for known in self.positions if "-" in known}
        return self._hyphenated

    # Warnings.

    def _warnings(self) -> list[Problem]:
        """Name each resource tag without a limit once, where it stands first."""
        if self.resource_limits is None:
            return self.inner_warnings
        holders = {"/defaults": self.document.get("defaults")}
        holders.update((f"/nodes/{d.index}", self.document["nodes"][d.index]) for d in self.drafts)
        places: dict[str, str] = {}
        for at, holder in holders.items():
            tag = holder.get("resource_tag") if isinstance(holder, dict) else None
            if isinstance(tag, str) and LANE_PATTERN.fullmatch(tag) and tag not in self.resource_limits:
                places.setdefault(tag, f"{at}/resource_tag")
        warnings = [
            Problem(where, f"no limit is configured for {tag!r}, so it is unlimited")
            for tag, where in places.items()
        ]
        return in_document_order(warnings + self.inner_warnings, self.document)


def _arrows(names: Sequence[str]) -> str:
    names = [name if ID_PATTERN.fullmatch(name) else shown(name) for name in names]
    if len(names) > _MAX_LISTED:
        left_out = f"… {len(names) - _MAX_LISTED:,} more …"
        names = [*names[: _MAX_LISTED - 2], left_out, *names[-2:]]
    return " -> ".join(names)


def _strings(value: Json) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Walk the strings of a value that may hold templates, each with its path: keys of objects too."""
    stack: list[tuple[tuple[str | int, ...], Json]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, dict):
            for key in reversed(item):
                stack += [((*path, key), item[key]), ((*path, key), key)]
        elif isinstance(item, list):
            stack += [((*path, index), item[index]) for index in reversed(range(len(item)))]


def in_document_order(problems: list[Problem], document: Json) -> list[Problem]:
    """Sort problems by where they stand; those of one place stay in the order they were found."""
    ranks: dict[int, dict[str, int]] = {}

    def place(problem: Problem) -> tuple[int, ...]:
        places = []
        holder = document
        for token in problem.pointer.split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(holder, dict):
                rank = ranks.get(id(holder))
                if rank is None:
                    rank = ranks[id(holder)] = {name: position for position, name in enumerate(holder)}
                # What is missing comes after what is there.
                places.append(rank.get(key, len(rank)))
                holder = holder.get(key)
            elif isinstance(holder, list) and key.isdecimal() and int(key) < len(holder):
                places.append(int(key))
                holder = holder[int(key)]
            else:
                break
        return tuple(places)

    return sorted(problems, key=place)
