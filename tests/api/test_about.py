"""What a server shows of itself: its set-up and its settings, and no secret."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tests.api.test_auth import KEYS

from weft.api.schema_console import About
from weft.settings import PREFIX, read_settings, setting_names

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Serve, Server

PASSWORD = "hunter2-hunter2"


def by_name(about: Any) -> dict[str, Any]:
    return {setting["name"]: setting for setting in about["settings"]}


async def test_it_shows_versions_and_the_set_up(server: Server) -> None:
    about = (await server.get("/v1/about")).json
    About.model_validate(about, strict=True)
    assert (about["version"], about["python"]) == (version("weft"), platform.python_version())
    assert (about["journal"], about["store"], about["transport"]) == ("sqlite", "memory", "in-process")
    assert about["schema"]["have"] == about["schema"]["want"]
    assert about["schema"]["have"].startswith("00")
    assert (await server.get("/v1/about")).json["started_at"] == about["started_at"]


async def test_a_journal_in_memory_has_no_schema(serve: Serve) -> None:
    async with serve(data=None) as server:
        about = (await server.get("/v1/about")).json
    assert (about["journal"], about["schema"]) == ("memory", {"have": None, "want": None})


async def test_every_setting_is_there_with_its_source(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text("max_deliveries = 5\nworker_grace = '2s'\n")
    settings, _ = read_settings(
        flags={"worker_concurrency": 3, "worker_processes": None},
        environ={"WEFT_WORKER_GRACE": "4s", "WEFT_API_RATE_LIMIT": "30/minute"},
        folder=tmp_path,
    )
    async with serve(sources=settings.sources, worker_concurrency=3, worker_grace_seconds=4.0) as server:
        found = by_name((await server.get("/v1/about")).json)
    assert list(found) == [PREFIX + name.upper() for name in setting_names()]
    assert found["WEFT_WORKER_CONCURRENCY"] == {
        "name": "WEFT_WORKER_CONCURRENCY",
        "value": "3",
        "source": "flag",
        "default": "64",
        "doc": "tasks a worker has in hand at once",
    }
    assert (found["WEFT_WORKER_GRACE"]["value"], found["WEFT_WORKER_GRACE"]["source"]) == (
        "4 s",
        "environment",
    )
    assert found["WEFT_MAX_DELIVERIES"]["source"] == "file"
    assert found["WEFT_WORKER_PROCESSES"]["source"] == "default"


async def test_it_shows_no_key_and_no_password(serve: Serve) -> None:
    secrets = {
        "llm_api_key": PASSWORD,
        "celery_broker_url": f"amqp://weft:{PASSWORD}@broker/",
        "api_keys": KEYS,
    }
    async with serve(**secrets) as server:
        answer = await server.get("/v1/about", headers={"Authorization": f"Bearer {KEYS[0]}"})
    assert answer.status == 200
    text = answer.body.decode()
    assert not [secret for secret in (PASSWORD, *KEYS) if secret in text]
    found = by_name(answer.json)
    for name in ("WEFT_LLM_API_KEY", "WEFT_CELERY_BROKER_URL", "WEFT_API_KEYS"):
        assert found[name]["value"] == "***"
    assert found["WEFT_DATABASE_URL"]["value"] is None


async def test_it_is_shown_to_those_with_a_key_alone(serve: Serve) -> None:
    async with serve(api_keys=KEYS) as server:
        assert (await server.get("/v1/about")).status == 401


async def test_its_links_lead_to_pages_of_this_server(server: Server) -> None:
    for link in (await server.get("/v1/about")).json["links"]:
        assert (await server.get(link["url"])).status == 200, link
