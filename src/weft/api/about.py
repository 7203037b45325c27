"""The versions, the set-up and the settings of a server, each setting with where its value came from."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from weft.api.answer import answer
from weft.api.schema import answers
from weft.api.schema_console import About
from weft.api.service import service_of
from weft.core.time import rfc3339
from weft.settings import show_settings

if TYPE_CHECKING:
    from weft.settings import Settings

router = APIRouter(tags=["fleet"])

_LINKS = (
    ("The API, with a form for each call", "/docs"),
    ("The API as OpenAPI", "/openapi.json"),
    ("Readiness", "/readyz"),
    ("Metrics", "/metrics"),
)


@router.get("/v1/about", operation_id="getAbout", responses=answers(200, About))
async def about(request: Request) -> Response:
    """Show versions, the set-up and the settings of the API process that answers; no key and no password."""
    service = service_of(request)
    settings, schema = service.settings, await service.ports.catalog.schema()
    return answer(
        {
            "version": request.app.version,
            "python": ".".join(map(str, sys.version_info[:3])),
            "started_at": rfc3339(service.started_at),
            "journal": schema.database,
            "store": "memory" if settings.redis_url is None else "redis",
            "transport": _transport(settings),
            "durability": settings.durability,
            "schema": {"have": schema.have, "want": schema.want},
            "settings": [asdict(one) for one in show_settings(settings)],
            "links": [{"title": title, "url": url} for title, url in _LINKS],
        }
    )


def _transport(settings: Settings) -> str:
    if settings.transport == "celery":
        return "celery"
    return "in-process" if settings.redis_url is None else "redis"
