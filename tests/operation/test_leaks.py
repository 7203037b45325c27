"""Secrets on a server in one process: what its functions see of them, and where they are found afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import Server, serving
from tests.telling import ALLOW, KEPT, STAYS, TOKEN, check_absent, check_surroundings, function

from weft.masking import HIDDEN

if TYPE_CHECKING:
    from pathlib import Path

KEPT_HERE = {name: value for name, value in KEPT.items() if name != "WEFT_API_KEYS"}


async def test_functions_of_a_server_see_none_of_its_secrets_but_their_own(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in-a-file-0b52ce")
    of_files = {"WEFT_SECRET_FILED_FILE": str(file), "WEFT_CELERY_BROKER_URL": "redis://broker-a91d"}
    settings = {**KEPT_HERE, **STAYS, **ALLOW, **of_files}
    async with serving(tmp_path / "data", settings=settings) as (_, api):
        nodes = [
            function("surroundings", "granted", secrets=["TOKEN", "FILED"]),
            {
                **function("surroundings", "templated"),
                "config": {"function": "tests.telling:surroundings", "args": {}},
                "secrets": ["token"],
            },
            function("surroundings", "bare"),
        ]
        shown = await api.terminal(await api.start({"nodes": nodes}))
        assert shown["state"] == "COMPLETED", shown
        for name, secrets in (("granted", ["FILED", "TOKEN"]), ("templated", ["token"]), ("bare", [])):
            check_surroundings(shown["output"][name], kept={**KEPT_HERE, **of_files}, secrets=secrets)
        assert shown["output"]["granted"]["secrets"] == {"FILED": 16, "TOKEN": len(KEPT["WEFT_SECRET_TOKEN"])}


async def test_a_secret_that_was_not_granted_or_is_not_set_fails_the_node(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings={**KEPT_HERE, **ALLOW}) as (_, api):
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "not granted the secret 'TOKEN': add the name to the field `secrets`"),
            ({"secrets": ["NOT_SET"]}, "set WEFT_SECRET_NOT_SET"),
        ]
        for fields, words in cases:
            nodes = [function("leak", how="return", **fields)]
            shown = await api.terminal(await api.start({"nodes": nodes}))
            error = shown["nodes"][0]["error"]
            assert (error["code"], error["retryable"]) == ("bad_config", False)
            assert words in error["message"]


async def test_weft_run_filters_nothing(tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text(json.dumps({"nodes": [function("surroundings", secrets=["TOKEN"])]}))
    settings = {**KEPT_HERE, **STAYS, **ALLOW, "WEFT_DATABASE_URL": "postgresql://nowhere-51f2"}
    run = await Server.launch("run", "flow.json", "--data", "kept", settings=settings, folder=tmp_path)
    assert await run.ended() == 0
    again = await Server.launch("run", "flow.json", "--data", "kept", settings=settings, folder=tmp_path)
    assert await again.ended() == 0
    journal = b"".join(path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file())
    for name in settings:
        assert name.encode() in journal


async def test_a_secret_too_short_to_be_masked_is_named_at_the_start(tmp_path: Path) -> None:
    settings = {"WEFT_SECRET_PIN": "7q3", "WEFT_SECRET_LONG": "7q3-and-more", **ALLOW}
    async with serving(tmp_path / "data", settings=settings) as (server, _):
        (warning,) = server.events("secret.short")
        assert warning["level"] == "warning"
        assert "the secret PIN has under 4 characters" in warning["problem"]
        assert "7q3" not in json.dumps(server.log)
    (tmp_path / "flow.json").write_text(json.dumps({"nodes": [{"id": "a", "handler": "echo"}]}))
    run = await Server.launch("run", "flow.json", settings=settings, folder=tmp_path)
    assert await run.ended() == 0
    text = "\n".join(line["text"] for line in run.log)
    assert "weft: warning: the secret PIN has under 4 characters" in text
    assert "7q3" not in text


@pytest.mark.parametrize("logs", ["on", "off"])
async def test_a_secret_that_a_function_repeats_is_in_no_file_answer_or_line(
    tmp_path: Path, logs: str
) -> None:
    """F90: in every form, returned, raised, printed and logged."""
    settings = {**KEPT_HERE, **ALLOW, "WEFT_LOGS": logs}
    async with serving(tmp_path / "data", settings=settings) as (server, api):
        told = []
        for how in ("return", "raise"):
            nodes = [
                function("leak", how=how, secrets=["TOKEN"]),
                {"id": "b", "handler": "echo", "config": "{{ secrets.TOKEN }}", "dependencies": ["a"]},
            ]
            execution_id = await api.start({"nodes": nodes})
            told.append(await api.terminal(execution_id))
            told.append(await api.history(execution_id))
            told += [await api.get(f"/v1/executions/{execution_id}/nodes/{node}") for node in ("a", "b")]
            kept = await api.get(f"/v1/executions/{execution_id}/logs?limit=500")
            assert bool(kept["items"]) == (logs == "on")
            check_absent(json.dumps(kept, ensure_ascii=False))
        told.append(await api.get("/v1/dead-letters"))
        assert await server.stop() == 0
    assert [told[0]["state"], told[4]["state"]] == ["COMPLETED", "FAILED"]
    assert HIDDEN in str(told[0]["output"])
    assert HIDDEN in told[4]["nodes"][0]["error"]["details"]["traceback"]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    for path in files:
        check_absent(path.read_bytes())
    check_absent(json.dumps(told, ensure_ascii=False))
    # Whole, and each line as whoever reads it has it, with its escapes undone.
    log = "\n".join(json.dumps(line, ensure_ascii=False) for line in server.log)
    for text in (log, "\n".join(str(value) for line in server.log for value in line.values())):
        assert HIDDEN in text
        check_absent(text, TOKEN)
    assert server.events("function.printed")


async def test_what_a_function_prints_under_weft_run_has_no_secret_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text(
        json.dumps({"nodes": [function("leak", how="raise", secrets=["TOKEN"])]})
    )
    settings = {**KEPT_HERE, **ALLOW}
    run = await Server.launch("run", "flow.json", "--data", "kept", settings=settings, folder=tmp_path)
    assert await run.ended() == 1
    text = "\n".join(str(line.get("text", line)) for line in run.log)
    assert "in two *** writes" in text
    check_absent(text)
    for path in (tmp_path / "kept").rglob("*"):
        if path.is_file():
            check_absent(path.read_bytes())
