"""From a syntax tree to closures over JSON values: the allow-list of the language.

What ``_VISITORS`` does not list does not compile: calls, other filters and tests, whatever a later Jinja may
add. The depth of the tree is bounded, and with it the stack of an evaluation; long chains (``a and b …``,
``a + b …``, ``a.b.c …``) become loops and may be as long as they like.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from jinja2 import nodes

from weft.errors import EvaluationError, ExpressionError
from weft.expressions import operators
from weft.expressions.budget import MAX_INTEGER_BITS, Budget
from weft.expressions.filters import FILTERS, Filter
from weft.expressions.operators import kind
from weft.expressions.path import (
    NodeFact,
    NodeOutput,
    ShortOutput,
    Word,
    execution_root,
    in_steps,
    input_root,
    key_text,
    nothing,
    slice_step,
    subscript,
    walk,
    whole_execution,
)
from weft.expressions.undefined import Undefined

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from weft.expressions.path import Run, Step
    from weft.expressions.scope import Scope
    from weft.expressions.syntax import PlainPath

MAX_DEPTH = 64

TESTS = ("defined", "none", "undefined")
EXECUTION_FIELDS = ("id", "workflow", "version", "generation", "labels", "created_at")
NODE_FIELDS = ("error", "output", "reason", "state")

# What may be undefined, so that an operand of it has to be asked. Operators and literals never are.
_MAYBE_UNDEFINED = (
    nodes.Name,
    nodes.Getattr,
    nodes.Getitem,
    nodes.CondExpr,
    nodes.Filter,
    nodes.And,
    nodes.Or,
)

_SYMBOLS: Mapping[type[nodes.Node], str] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
    nodes.Pow: "**",
}


class Compiler:
    """Turns the syntax tree of one expression into closures, and notes what it names."""

    def __init__(self, *, secrets_allowed: bool, words: Container[str] = ()) -> None:
        self.secrets_allowed = secrets_allowed
        self.words = words
        self.nodes: set[str] = set()
        self.secrets: set[str] = set()
        self.reads_input = self.reads_execution = False
        self.depth = 0

    def expression(self, tree: nodes.Expr) -> Run:
        """Compile a whole expression; only here may it be a secret."""
        match tree:
            case nodes.Getattr(node=nodes.Name(name="secrets"), attr=name):
                return self.secret(name)
            case nodes.Getitem(node=nodes.Name(name="secrets"), arg=nodes.Const(value=str(name))):
                return self.secret(name)
            case _:
                return self.visit(tree)

    def plain_path(self, path: PlainPath) -> Run:
        """Compile a plain path, as ``expression`` would."""
        if path.root == "secrets" and len(path.keys) == 1 and not path.or_none:
            return self.secret(path.keys[0])
        inner = self.root(path.root, path.keys, path.texts)
        if not path.or_none:
            return inner

        def run(scope: Scope, budget: Budget) -> Any:
            value = inner(scope, budget)
            return None if value.__class__ is Undefined else value

        return run

    def secret(self, name: str) -> Run:
        self.check_secrets_allowed()
        self.secrets.add(name)

        def run(scope: Scope, budget: Budget) -> Any:
            raise EvaluationError(f"secrets.{name} is known only to the worker that makes the call")

        return run

    def check_secrets_allowed(self) -> None:
        if not self.secrets_allowed:
            raise ExpressionError("secrets can be used only in the config of a node")

    def visit(self, node: nodes.Node) -> Run:
        """Compile a node of the tree; what it gives may be undefined."""
        compile_node = _VISITORS.get(type(node))
        if compile_node is None:
            raise ExpressionError(f"{type(node).__name__.lower()} is not part of the language")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError("it is nested too deeply")
        run = compile_node(self, node)
        self.depth -= 1
        return run

    def operand(self, node: nodes.Node) -> Run:
        """Compile a node that must give a value."""
        inner = self.visit(node)
        if not isinstance(node, _MAYBE_UNDEFINED):
            return inner

        def run(scope: Scope, budget: Budget) -> Any:
            value = inner(scope, budget)
            if value.__class__ is Undefined:
                raise value.error()
            return value

        return run

    # Literals

    def const(self, node: nodes.Const) -> Run:
        value = node.value
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise ExpressionError("a number is too large")
        if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise ExpressionError("a number has too many digits; the most is about 4,300")
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ExpressionError(
                    "a string holds half of a surrogate pair, which is no character"
                ) from None
        return lambda scope, budget: value

    def list_literal(self, node: nodes.List | nodes.Tuple) -> Run:
        elements = [self.operand(element) for element in node.items]

        def run(scope: Scope, budget: Budget) -> Any:
            budget.make_list(len(elements))
            return [element(scope, budget) for element in elements]

        return run

    def dict_literal(self, node: nodes.Dict) -> Run:
        pairs = [(self.operand(pair.key), self.operand(pair.value)) for pair in node.items]

        def run(scope: Scope, budget: Budget) -> Any:
            budget.make_list(len(pairs))
            built = {}
            for key_of, value_of in pairs:
                key = key_of(scope, budget)
                if not isinstance(key, str):
                    raise EvaluationError(f"{kind(key)} cannot be a key of an object: it takes a string")
                built[key] = value_of(scope, budget)
            return built

        return run

    # Paths

    def path(self, node: nodes.Expr) -> Run:
        tail: list[nodes.Getattr | nodes.Getitem] = []
        while isinstance(node, (nodes.Getattr, nodes.Getitem)):
            tail.append(node)
            node = node.node
        tail.reverse()
        keys: list[str | int] = []
        texts: list[str] = []
        for piece in tail:
            key = _constant_key(piece)
            if key is None:
                break
            keys.append(key)
            texts.append(f".{key}" if isinstance(piece, nodes.Getattr) else key_text(key))
        tail = tail[len(keys) :]
        if isinstance(node, nodes.Name):
            base = self.root(node.name, keys, texts)
            text = node.name
        else:
            text = self.text(node)
            base = walk(self.visit(node), keys, [text, *texts])
        if not tail:
            return base
        return in_steps(base, self.computed_steps(tail, "".join([text, *texts])))

    def computed_steps(self, tail: Sequence[nodes.Getattr | nodes.Getitem], text: str) -> list[Step]:
        """Compile the rest of a path, from its first key that is not a constant."""
        steps: list[Step] = []
        for piece in tail:
            if isinstance(piece, nodes.Getitem) and isinstance(piece.arg, nodes.Slice):
                bounds = [
                    self.operand(nodes.Const(None) if bound is None else bound)
                    for bound in (piece.arg.start, piece.arg.stop, piece.arg.step)
                ]
                shown = "[…]"
                steps.append(slice_step(bounds, (text, shown)))
            else:
                index, shown = self.index(piece)
                steps.append(subscript(index, (text, shown)))
            text += shown
        return steps

    def index(self, piece: nodes.Getattr | nodes.Getitem) -> tuple[Run, str]:
        if isinstance(piece, nodes.Getattr):
            return self.visit(nodes.Const(piece.attr)), f".{piece.attr}"
        is_no_key = isinstance(piece.arg, nodes.Const) and _constant_key(piece) is None
        if is_no_key or isinstance(piece.arg, nodes.Tuple):
            raise ExpressionError("a subscript takes one key, one position or one slice")
        return self.operand(piece.arg), f"[{self.text(piece.arg)}]"

    def root(self, name: str, keys: Sequence[str | int], texts: Sequence[str]) -> Run:
        """Compile a path of constant keys from its first name; a word wins over a node of that id."""
        if name in self.words:
            return walk(Word(name), keys, [name, *texts])
        match name:
            case "input":
                self.reads_input = True
                return walk(input_root, keys, [name, *texts])
            case "execution":
                self.reads_execution = True
                if keys and keys[0] not in EXECUTION_FIELDS:
                    raise ExpressionError(
                        f"execution has no {keys[0]!r:.80}; it has: {', '.join(EXECUTION_FIELDS)}"
                    )
                return walk(execution_root if keys else whole_execution, keys, [name, *texts])
            case "nodes":
                return self.long_form(keys, texts)
            case "secrets":
                self.check_secrets_allowed()
                raise ExpressionError(
                    "a secret stands alone: {{ secrets.NAME }}, or within a longer string; "
                    "it has no keys and takes no operators or filters"
                )
            case _:
                self.nodes.add(name)
                if keys and keys[0] == "output":
                    start = name + texts[0]
                    return walk(ShortOutput(NodeOutput(name, start)), keys[1:], [start, *texts[1:]])
                return walk(NodeOutput(name, name), keys, [name, *texts])

    def long_form(self, keys: Sequence[str | int], texts: Sequence[str]) -> Run:
        if not keys or not isinstance(keys[0], str):
            raise ExpressionError('nodes is followed by the id of a node, as in nodes["fetch"].output')
        if len(keys) < 2 or keys[1] not in NODE_FIELDS:
            raise ExpressionError(f"nodes{texts[0]} is followed by one of: .{', .'.join(NODE_FIELDS)}")
        node_id, field = keys[0], str(keys[1])
        self.nodes.add(node_id)
        start = "nodes" + texts[0] + texts[1]
        base = NodeOutput(node_id, start) if field == "output" else NodeFact(node_id, field, start)
        return walk(base, keys[2:], [start, *texts[2:]])

    def text(self, node: nodes.Node) -> str:
        """Write a node for a message: paths and literals as they were, the rest as dots."""
        pieces: list[str] = []
        while True:
            match node:
                case nodes.Getattr():
                    pieces.append(f".{node.attr}")
                    node = node.node
                case nodes.Getitem():
                    key = _constant_key(node)
                    pieces.append("[…]" if key is None else key_text(key))
                    node = node.node
                case nodes.Filter() if node.node is not None:
                    pieces.append(f"|{node.name}")
                    node = node.node
                case _:
                    break
        match node:
            case nodes.Name():
                pieces.append(node.name)
            case nodes.Const(value=str() | int() as value) if not pieces:
                pieces.append(json.dumps(value, ensure_ascii=False)[:80])
            case _:
                pieces.append("(…)")
        return "".join(reversed(pieces))

    # Operators

    def arithmetic(self, node: nodes.BinExpr) -> Run:
        # A chain leans to the left: unrolled, a sum of a thousand terms is as flat as one of two.
        rest: list[tuple[operators.Operator, Run]] = []
        left: nodes.Expr = node
        while isinstance(left, nodes.BinExpr) and type(left) in _SYMBOLS:
            rest.append((operators.ARITHMETIC[_SYMBOLS[type(left)]], self.operand(left.right)))
            left = left.left
        rest.reverse()
        first = self.operand(left)

        def run(scope: Scope, budget: Budget) -> Any:
            value = first(scope, budget)
            for compute, operand in rest:
                value = compute(value, operand(scope, budget), budget)
            return value

        return run

    def logic(self, node: nodes.And | nodes.Or) -> Run:
        """Compile ``and`` or ``or``, which give one of their operands, as in Python."""
        chain: list[nodes.Expr] = []
        left: nodes.Expr = node
        while isinstance(left, (nodes.And, nodes.Or)) and type(left) is type(node):
            chain.append(left.right)
            left = left.left
        last = self.visit(chain.pop(0))
        earlier = [self.operand(operand) for operand in (left, *reversed(chain))]
        ends_on = isinstance(node, nodes.Or)

        def run(scope: Scope, budget: Budget) -> Any:
            for operand in earlier:
                value = operand(scope, budget)
                if bool(value) is ends_on:
                    return value
            return last(scope, budget)

        return run

    def negation(self, node: nodes.Not) -> Run:
        operand = self.operand(node.node)
        return lambda scope, budget: not operand(scope, budget)

    def sign(self, node: nodes.Neg | nodes.Pos) -> Run:
        operand = self.operand(node.node)
        apply = operators.negate if isinstance(node, nodes.Neg) else operators.affirm
        return lambda scope, budget: apply(operand(scope, budget))

    def concatenation(self, node: nodes.Concat) -> Run:
        operands = [self.operand(operand) for operand in node.nodes]
        return lambda scope, budget: operators.concatenate(
            [operand(scope, budget) for operand in operands], budget
        )

    def comparison(self, node: nodes.Compare) -> Run:
        first = self.operand(node.expr)
        links = [(operators.COMPARISONS[link.op], self.operand(link.expr)) for link in node.ops]

        def run(scope: Scope, budget: Budget) -> Any:
            left = first(scope, budget)
            for compare, operand in links:
                right = operand(scope, budget)
                if not compare(left, right, budget):
                    return False
                left = right
            return True

        return run

    def conditional(self, node: nodes.CondExpr) -> Run:
        test, yes = self.operand(node.test), self.visit(node.expr1)
        if node.expr2 is not None:
            no = self.visit(node.expr2)
        else:
            missing = Undefined(
                f"{self.text(node.expr1)} if …", "the condition is false and there is no else"
            )
            no = nothing(missing)
        return lambda scope, budget: (yes if test(scope, budget) else no)(scope, budget)

    # Tests and filters

    def test(self, node: nodes.Test) -> Run:
        if node.name not in TESTS:
            raise ExpressionError(f"no test {node.name!r:.80}; the tests are: {', '.join(TESTS)}")
        if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            raise ExpressionError(f"the test {node.name} takes no argument (put parentheses around the test)")
        if node.name == "none":
            operand = self.operand(node.node)
            return lambda scope, budget: operand(scope, budget) is None
        inner, wanted = self.visit(node.node), node.name == "undefined"
        return lambda scope, budget: (inner(scope, budget).__class__ is Undefined) is wanted

    def filter(self, node: nodes.Filter) -> Run:
        known = FILTERS.get(node.name)
        if known is None:
            raise ExpressionError(f"no filter {node.name!r:.80}; the filters are: {', '.join(FILTERS)}")
        assert node.node is not None, "only a filter block, which is a statement, filters nothing"
        arguments = self.arguments(known, node)
        function, text = known.function, self.text(node)
        if known.lazy:
            inner = self.visit(node.node)
            return lambda scope, budget: function(
                inner(scope, budget),
                budget,
                **{name: partial(run, scope, budget) for name, run in arguments.items()},
            )
        operand = self.operand(node.node)

        def run(scope: Scope, budget: Budget) -> Any:
            given = {name: argument(scope, budget) for name, argument in arguments.items()}
            result = function(operand(scope, budget), budget, **given)
            return Undefined(text, result.why) if result.__class__ is Undefined else result

        return run

    def arguments(self, known: Filter, node: nodes.Filter) -> Mapping[str, Run]:
        """Match what a filter was given with the names of its parameters."""
        names = [parameter.name for parameter in known.parameters]
        given = [*zip(names, node.args, strict=False)]
        given += [(str(keyword.key), keyword.value) for keyword in node.kwargs]
        missing = {parameter.name for parameter in known.parameters if parameter.default is parameter.empty}
        fits = (
            len(node.args) <= len(names)
            and not (node.dyn_args or node.dyn_kwargs)
            and len({name for name, _ in given}) == len(given)
            and missing <= {name for name, _ in given} <= set(names)
        )
        if not fits:
            raise ExpressionError(f"these arguments do not fit the filter {known.signature}")
        compile_argument = self.visit if known.lazy else self.operand
        return {name: compile_argument(argument) for name, argument in given}

    # What Jinja has and the language has not

    def call(self, node: nodes.Call) -> Run:
        if isinstance(node.node, nodes.Getattr):
            raise ExpressionError(
                f"methods cannot be called: .{node.node.attr}(…); the filters are: {', '.join(FILTERS)}"
            )
        raise ExpressionError(
            f"nothing can be called: {self.text(node.node)}(…); the filters are: {', '.join(FILTERS)}"
        )


def _constant_key(piece: nodes.Getattr | nodes.Getitem) -> str | int | None:
    """The key of a step where it is written out."""
    match piece:
        case nodes.Getattr():
            return piece.attr
        case nodes.Getitem(arg=nodes.Const(value=str() | int() as key)) if not isinstance(key, bool):
            return key
        case nodes.Getitem(arg=nodes.Neg(node=nodes.Const(value=int() as key))) if not isinstance(key, bool):
            return -key
        case _:
            return None


_VISITORS: Mapping[type[nodes.Node], Callable[[Compiler, Any], Run]] = {
    nodes.Const: Compiler.const,
    nodes.List: Compiler.list_literal,
    nodes.Tuple: Compiler.list_literal,
    nodes.Dict: Compiler.dict_literal,
    nodes.Name: Compiler.path,
    nodes.Getattr: Compiler.path,
    nodes.Getitem: Compiler.path,
    **dict.fromkeys(_SYMBOLS, Compiler.arithmetic),
    nodes.And: Compiler.logic,
    nodes.Or: Compiler.logic,
    nodes.Not: Compiler.negation,
    nodes.Neg: Compiler.sign,
    nodes.Pos: Compiler.sign,
    nodes.Concat: Compiler.concatenation,
    nodes.Compare: Compiler.comparison,
    nodes.CondExpr: Compiler.conditional,
    nodes.Test: Compiler.test,
    nodes.Filter: Compiler.filter,
    nodes.Call: Compiler.call,
}
