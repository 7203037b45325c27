"""A definition made ready to run: its graph, its compiled expressions, the facts the engine asks often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.core.readiness import EARLY_RULES
from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.definition.gc_pause import collector_paused
from weft.definition.graph import Graph
from weft.definition.model import LATEST, WAIT, Definition, Node, TriggerRule, digest, read_definition
from weft.definition.schema import Schema
from weft.definition.waits import WaitKind, WaitRule, read_wait, without_literals
from weft.errors import DefinitionError, ExpressionError, Problem
from weft.expressions.expression import Expression, compile_expression
from weft.expressions.template import Template, compile_template, parent_outputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.payload import Json

# The words of the end of a poll: the output of the look that it is asked of.
POLL_WORDS = frozenset({"output"})
# The words of ``retry.when``: the failure that it is asked of (``core.judge.retry_words``).
RETRY_WORDS = frozenset({"error", "attempt", "attempt_seconds"})


@dataclass(slots=True)
class NodeExpressions:
    """The compiled expressions of a definition's nodes, by node."""

    # The config of every node, and the conditions of those that have one.
    templates: dict[str, Template] = field(default_factory=dict)
    conditions: dict[str, Expression] = field(default_factory=dict)
    # Of nodes that poll: the expression that is true of the last look.
    untils: dict[str, Expression] = field(default_factory=dict)
    # Of nodes with ``retry.when``, their own or that of the defaults: it is true of a failure that retries.
    retries: dict[str, Expression] = field(default_factory=dict)
    # The workflows that are written down in nodes which run them.
    workflows: dict[str, Plan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """The workflow that a node runs: a stored one, by its name, or one that is written down in the node."""

    # Of a stored one.
    name: str | None
    version: int | str
    # Of an inline one: ready to run, and as it was written down.
    plan: Plan | None
    document: bytes
    # From the moment at which the node is ready; None: it may take any time.
    timeout_seconds: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one definition that does not change from execution to execution."""

    definition: Definition
    digest: str
    graph: Graph
    nodes: Mapping[str, Node]
    # The config of every node, and the conditions of those that have one.
    templates: Mapping[str, Template]
    conditions: Mapping[str, Expression]
    # Those of polls, and those that say whether a failure retries.
    untils: Mapping[str, Expression]
    retries: Mapping[str, Expression]
    output: Template | None
    # Of the name of an execution's group.
    group: Template | None
    input_schema: Schema | None
    # The configs without a template, as the payloads they will always be.
    static_configs: Mapping[str, bytes]
    # Per node: the nodes that its condition, its config and its poll name.
    references: Mapping[str, frozenset[str]]
    # Per node: the nodes whose outcome it sees, its parents and those it names.
    visible_nodes: Mapping[str, Collection[str]]
    # Whether some node sees the outcomes of several.
    has_joins: bool
    # Whether some node may run while others before it have not settled.
    has_early_rules: bool
    # Whether attempts of some node are committed before their tasks exist.
    issues_attempts: bool
    # Per node that has any: the direct dependents that handle its failure.
    failure_handlers: Mapping[str, tuple[str, ...]]
    # The nodes whose outputs are the execution's, where the definition has no `output` of its own.
    output_ids: tuple[str, ...]
    has_one_output_node: bool
    # The wait nodes, and by the name of a signal those that wait for it, in the order of the definition.
    waits: Mapping[str, WaitRule]
    waits_by_signal: Mapping[str, tuple[str, ...]]
    # The nodes that run workflows.
    calls: Mapping[str, Call]


def compile_plan(document: Json, bounds: Bounds = DEFAULT_BOUNDS) -> Plan:
    """Make a plan of a document that passed validation, as stored definitions have.

    Raises DefinitionError where an expression does not compile: one that an earlier release accepted.
    """
    with collector_paused():
        return _compile(document, bounds)


def _compile(document: Json, bounds: Bounds) -> Plan:
    definition = read_definition(document)
    problems: list[Problem] = []
    expressions = NodeExpressions()
    # The nodes that take it from the defaults have it in common.
    by_source: dict[str, Expression] = {}
    for index, (written, node) in enumerate(zip(document["nodes"], definition.nodes, strict=True)):
        config = without_literals(node.config) if node.handler == WAIT else node.config
        template = compile_template(
            config, max_template_bytes=bounds.max_template_bytes, secrets_allowed=True
        )
        if isinstance(template, Template):
            expressions.templates[node.id] = template
        else:
            problems += _moved(template, f"/nodes/{index}/config")
        if "nodes" in written.get("workflow", ()):
            try:
                expressions.workflows[node.id] = _compile(written["workflow"], bounds)
            except DefinitionError as error:
                problems += _moved(error.problems, f"/nodes/{index}/workflow")
        at = f"/nodes/{index}"
        where = f"{at}/condition"
        try:
            if node.condition is not None:
                expressions.conditions[node.id] = compile_expression(node.condition)
            if node.poll is not None:
                where = f"{at}/poll/until"
                expressions.untils[node.id] = compile_expression(node.poll.until, words=POLL_WORDS)
            when = node.retry.when
            if when is not None:
                where = f"{at}/retry/when"
                if when not in by_source:
                    by_source[when] = compile_expression(when, words=RETRY_WORDS)
                expressions.retries[node.id] = by_source[when]
        except ExpressionError as error:
            problems.append(Problem(where, str(error)))
    output = None
    if definition.has_output:
        output = compile_template(definition.output, max_template_bytes=bounds.max_template_bytes)
        if isinstance(output, list):
            problems += _moved(output, "/output")
    group = None
    if definition.concurrency is not None:
        group = compile_template(definition.concurrency.group, max_template_bytes=bounds.max_template_bytes)
        if isinstance(group, list):
            problems += _moved(group, "/concurrency/group")
    if problems or isinstance(output, list) or isinstance(group, list):
        raise DefinitionError(problems)
    return assemble(
        document,
        definition,
        expressions,
        output=output,
        group=group,
        # Asked at a submit alone: an orchestrator that takes the plan up does not pay for it.
        input_schema=None if definition.input_schema is None else Schema(definition.input_schema),
        bounds=bounds,
    )


def assemble(
    document: Json,
    definition: Definition,
    expressions: NodeExpressions,
    *,
    output: Template | None,
    group: Template | None,
    input_schema: Schema | None,
    bounds: Bounds,
) -> Plan:
    """Build a plan from a definition and its parts that are compiled already."""
    nodes = {node.id: node for node in definition.nodes}
    templates = {
        **expressions.templates,
        **{
            node.id: parent_outputs(node.dependencies)
            for written, node in zip(document["nodes"], definition.nodes, strict=True)
            if node.handler == "output" and node.dependencies and "config" not in written
        },
    }
    graph = Graph(nodes, {node.id: node.dependencies for node in definition.nodes})
    references = {node_id: template.nodes for node_id, template in templates.items()}
    for of_nodes in (expressions.conditions, expressions.untils):
        for node_id, expression in of_nodes.items():
            references[node_id] |= expression.nodes
    has_early_rules = any(node.trigger_rule in EARLY_RULES for node in definition.nodes)
    visible_nodes = _visible_nodes(graph, references)
    output_nodes = tuple([node.id for node in definition.nodes if node.handler == "output"])
    waits = {node.id: read_wait(node.id, node.config) for node in definition.nodes if node.handler == WAIT}
    return Plan(
        definition=definition,
        digest=digest(document),
        graph=graph,
        nodes=nodes,
        templates=templates,
        conditions=expressions.conditions,
        untils=expressions.untils,
        retries=expressions.retries,
        output=output,
        group=group,
        input_schema=input_schema,
        static_configs={
            node_id: _static_config(nodes[node_id], bounds)
            for node_id, template in templates.items()
            if template.is_static
        },
        references=references,
        has_early_rules=has_early_rules,
        issues_attempts=any(node.is_issued for node in definition.nodes),
        visible_nodes=visible_nodes,
        has_joins=any(len(seen) > 1 for seen in visible_nodes.values()),
        failure_handlers=_failure_handlers(definition),
        output_ids=output_nodes or graph.leaves,
        has_one_output_node=len(output_nodes) == 1,
        waits=waits,
        waits_by_signal=_by_signal(waits),
        calls=_calls(document, expressions.workflows, bounds),
    )


def _calls(document: Json, inline: Mapping[str, Plan], bounds: Bounds) -> dict[str, Call]:
    found = {}
    for node in document["nodes"]:
        if "workflow" in node:
            workflow, timeout_seconds = node["workflow"], node.get("timeout_seconds")
            plan = inline.get(node["id"])
            found[node["id"]] = Call(
                name=workflow["name"] if plan is None else None,
                version=LATEST if plan is not None else workflow.get("version", LATEST),
                plan=plan,
                document=b"" if plan is None else _document(workflow, bounds),
                timeout_seconds=None if timeout_seconds is None else float(timeout_seconds),
            )
    return found


def _failure_handlers(definition: Definition) -> dict[str, tuple[str, ...]]:
    """Return by node the direct dependents that handle its failure."""
    found: dict[str, list[str]] = {}
    for node in definition.nodes:
        if node.trigger_rule is TriggerRule.ONE_FAILED:
            for parent in node.dependencies:
                found.setdefault(parent, []).append(node.id)
    return {node_id: tuple(handling) for node_id, handling in found.items()}


def _visible_nodes(graph: Graph, references: Mapping[str, frozenset[str]]) -> dict[str, Collection[str]]:
    """Return the nodes whose outcome each node sees: its parents, and those that it names."""
    found: dict[str, Collection[str]] = {}
    for name, parents in graph.parents.items():
        named = references[name]
        found[name] = parents if not named or named.issubset(parents) else named.union(parents)
    return found


def _by_signal(waits: Mapping[str, WaitRule]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node_id, rule in waits.items():
        if rule.kind is WaitKind.SIGNAL:
            found.setdefault(rule.name, []).append(node_id)
    return {name: tuple(node_ids) for name, node_ids in found.items()}


def _document(workflow: Json, bounds: Bounds) -> bytes:
    """Return an inline workflow as the text that a journal keeps of a definition."""
    limits = {"max_bytes": bounds.max_body_bytes, "max_depth": bounds.max_depth}
    return encode(workflow, max_values=MAX_DOCUMENT_VALUES, **limits)


def _static_config(node: Node, bounds: Bounds) -> bytes:
    """Return the config of a node without templates as the text that its tasks carry."""
    limits = {"max_bytes": bounds.max_body_bytes, "max_depth": bounds.max_depth}
    return encode(node.config, max_values=MAX_DOCUMENT_VALUES, **limits)


def _moved(problems: list[Problem], base: str) -> list[Problem]:
    return [Problem(base + problem.pointer, problem.message) for problem in problems]
