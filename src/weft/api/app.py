"""The REST API as one ASGI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from weft.api import (
    about,
    batches,
    console,
    dead_letters,
    executions,
    fleet,
    health,
    inbound,
    letter_groups,
    live,
    logs,
    openapi,
    overview,
    page,
    problem,
    session,
    stream,
    timeline,
    topology,
    triggers,
    waits,
    workflows,
)
from weft.api.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from weft.api.service import Service

# In the order in which a request is compared with them.
_NOUNS = (
    executions,
    waits,
    workflows,
    about,
    batches,
    triggers,
    # Before the letters: groups are no letter's id.
    letter_groups,
    dead_letters,
    fleet,
    overview,
    inbound,
    stream,
    live,
    logs,
    timeline,
    topology,
    session,
    health,
    page,
    console,
)


def create_app(service: Service) -> FastAPI:
    """Make the application that serves one engine."""
    app = _create(service, _NOUNS)
    console.install(app)
    return app


def create_health_app(service: Service) -> FastAPI:
    """Make the application of a process without the API: whether it is well, and what it counts."""
    return _create(service, (health,))


def _create(service: Service, nouns: Sequence[ModuleType]) -> FastAPI:
    app = _Weft(
        title="weft",
        version=version("weft"),
        summary="A durable workflow engine: a DAG of calls and functions, run exactly as drawn.",
        # Its own pages come from page.py: they work without the network. A path with a slash too many is
        # no path of ours, rather than a redirect that a client may follow without its key or body.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for noun in nouns:
        # The routes themselves, not copies of them: the gateway asks which of them will serve a request.
        app.router.routes.extend(noun.router.routes)
    problem.install(app)
    app.user_middleware.append(Middleware(Gateway, service=service, routes=app.router.routes))
    app.state.service = service
    return app


class _Weft(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = openapi.describe(self)
        return self.openapi_schema
