"""The one language of conditions and templates.

The syntax is Jinja's, and Jinja's parser reads it (``syntax``); nothing is ever rendered or run by Jinja. Its
tree is compiled, over an allow-list of node types, to calls that know JSON values and nothing else
(``compiler``, ``path``, ``operators``, ``filters``): no expression and no data can reach Python. Cost is
bounded when the source is read, and by a ``Budget`` that each operation pays from before it runs.

Something undefined is a value that travels along paths, through ``default`` and through the branches of
``a if c else b``. Wherever a real value is needed, it is an error that names the path as it was written.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from weft.errors import ExpressionError
from weft.expressions.budget import Budget
from weft.expressions.compiler import Compiler
from weft.expressions.syntax import parse, plain_path
from weft.expressions.undefined import Undefined

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.expressions.path import Run
    from weft.expressions.scope import Scope

# Only short sources are worth keeping, and they bound what the cache can hold.
_CACHED_EXPRESSIONS = 8_192
_LONGEST_CACHED_SOURCE = 512

NO_NAMES: frozenset[str] = frozenset()


class Expression(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A compiled expression, and the nodes and secrets it names.

    An expression with a secret is that secret alone: its value is known to the worker, and never here.
    """

    source: str
    nodes: frozenset[str]
    secrets: frozenset[str]
    # Returns the value or an Undefined, as one of several expressions that share a budget.
    run: Run
    # Whether the expression names the input of the execution, and the execution itself.
    reads_input: bool = False
    reads_execution: bool = False

    def evaluate(self, scope: Scope) -> Json:
        """Return the value; raises EvaluationError if a value is undefined, of a wrong kind or too large."""
        budget = Budget(allowance=scope.allowance)
        value = self.run(scope, budget)
        if value.__class__ is Undefined:
            raise value.error()
        if budget.multiplied:
            budget.spend_tree(value)
        return value


def compile_expression(
    source: str, *, secrets_allowed: bool = False, words: frozenset[str] = NO_NAMES
) -> Expression:
    """Compile one expression, written without braces; raises ExpressionError, naming what does not fit.

    ``words``: names that mean something in this place; they win over nodes of that id.
    """
    if len(source) <= _LONGEST_CACHED_SOURCE:
        return _compile_cached(source, secrets_allowed, words)
    return _compile(source, secrets_allowed, words)


def _compile(source: str, secrets_allowed: bool, words: frozenset[str]) -> Expression:
    compiler = Compiler(secrets_allowed=secrets_allowed, words=words)
    try:
        plain = plain_path(source)
        run = compiler.plain_path(plain) if plain is not None else compiler.expression(parse(source))
    except ExpressionError as error:
        shown = source.strip()
        raise ExpressionError(f"{shown if len(shown) <= 80 else shown[:79] + '…'}: {error}") from None
    names, secrets = (frozenset(named) if named else NO_NAMES for named in (compiler.nodes, compiler.secrets))
    return Expression(source, names, secrets, run, compiler.reads_input, compiler.reads_execution)


# A definition of fifty thousand nodes repeats its expressions.
_compile_cached = lru_cache(maxsize=_CACHED_EXPRESSIONS)(_compile)
