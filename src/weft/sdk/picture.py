"""A workflow and its executions as notebooks show them."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from weft.definition.validation import check
from weft.drawing.svg import draw_svg
from weft.errors import DefinitionError
from weft.handlers.registry import default_registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.payload import Json
    from weft.definition.plan import Plan

# A larger picture shows nothing to the eye, and would take seconds to draw.
MAX_DRAWN_NODES = 500


def draw_document(document: Json) -> str | None:
    """Draw a definition, or raise DefinitionError; None where it has too many nodes for a picture."""
    checked = check(document, handlers=default_registry(), named=False)
    if checked.plan is None:
        raise DefinitionError(checked.problems)
    return draw_plan(checked.plan)


def draw_plan(plan: Plan, states: Mapping[str, str] | None = None) -> str | None:
    """Draw a plan, its nodes coloured by their states; None where it has too many nodes for a picture."""
    if len(plan.nodes) > MAX_DRAWN_NODES:
        return None
    labels = {node.id: node.handler for node in plan.definition.nodes}
    return draw_svg(plan.graph, labels, title=plan.definition.name or "workflow", states=states)


def as_html(caption: str, svg: str | None) -> str:
    """Return HTML with a caption and the picture under it; only the caption if there is no picture."""
    text = f'<pre style="white-space:pre-wrap">{escape(caption)}</pre>'
    if svg is None:
        return text
    # As an image: inside the page, the picture's style sheet would be the whole notebook's.
    data = b64encode(svg.encode()).decode()
    return f'{text}<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}">'
