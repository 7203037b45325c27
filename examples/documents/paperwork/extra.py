"""What weft does not need and this example does comes with the extra ``documents``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft import NonRetryable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def needed() -> Iterator[None]:
    """Return what to do where a package is missing; to try again would not help."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NonRetryable(f"{error.name} is not installed: pip install 'weft[documents]'") from None
