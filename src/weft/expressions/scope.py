"""The scope of an expression: the input, the execution, the nodes that have settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.core.payload import Json
    from weft.expressions.budget import Allowance


class NodeValue(msgspec.Struct, frozen=True, gc=False):
    """A settled node, as an expression sees it."""

    state: str
    output: Json = None
    error: Json = None
    reason: str | None = None

    @property
    def completed(self) -> bool:
        return self.state == "COMPLETED"


class Scope(msgspec.Struct, gc=False):
    """All that an expression sees. A node that ``nodes`` does not know has not settled."""

    # With ``_decode`` it is a payload still, which is read when an expression names it: few of them do.
    _input: Any
    execution: Mapping[str, Json]
    nodes: Mapping[str, NodeValue]
    _decode: Callable[[Any], Json] | None = None
    # How many steps the caller waits for; None: as many as an evaluation may take.
    allowance: Allowance | None = None
    # The values of the words that the expression was compiled with.
    words: Mapping[str, Json] | None = None

    @property
    def input(self) -> Json:
        if self._decode is not None:
            self._input = self._decode(self._input)
            self._decode = None
        return self._input
