"""The parts of a workflow declared in Python that running it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.core.payload import Json
    from weft.errors import Problem


class Declaration(ABC):
    """A workflow declared in Python, for those who run it; ``Workflow`` is the one."""

    @abstractmethod
    def document(self) -> dict[str, Json]:
        """Return the definition as it was declared, which may be no JSON, and is still the declaration's."""

    @abstractmethod
    def __weft_functions__(self) -> Mapping[str, Callable[..., Any]]:
        """Return the functions that ``python`` calls for this workflow, closures and lambdas too."""

    @abstractmethod
    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems, each problem of a node with the place where the node was declared."""
