"""Values of every type, and contexts, through the processes of every set-up."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.handlers.types import typed_flow
from tests.operation.serving import ROOT, WEFT, Api, serving
from tests.worker import asking
from tests.worker.test_facts import ASKING, check

from weft import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.celery.conftest import CeleryFleets
    from tests.fleet.conftest import Fleets

IMPORTS: dict[str, Any] = {"WEFT_IMPORTS": "tests.handlers.types.typed_flow,tests.worker.asking"}


async def pass_through(api: Api) -> None:
    """Run both workflows on a server, and hold what comes back against what was sent."""
    ended = await api.terminal(await api.start(typed_flow.flow.definition()))
    assert (ended["state"], ended["output"]) == ("COMPLETED", typed_flow.EXPECTED), ended["error"]
    await api.call("POST", "/v1/workflows", asking.flow.definition())
    labels = {"customer": "acme"}
    _, started, _ = await api.call(
        "POST", "/v1/workflows/asking/executions", {"input": {"order": 7}, "labels": labels}
    )
    ended = await api.terminal(started["id"])
    outputs: dict[str, Any] = {node["id"]: node["output"] for node in ended["nodes"]}
    for name in ASKING:
        if outputs[name] is None:  # it is too large for the list
            outputs[name] = (await api.get(f"/v1/executions/{ended['id']}/nodes/{name}"))["output"]
    check({name: outputs[name] for name in ASKING}, labels=labels, version=1)


def test_values_of_every_type_pass_through_run() -> None:
    result = run(typed_flow.flow)
    assert result.output == typed_flow.EXPECTED, str(result)


def test_values_of_every_type_pass_through_weft_run() -> None:
    file = ROOT / "tests/handlers/types/typed_flow.py"
    ended = subprocess.run(
        [*WEFT, "run", f"{file}:flow"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == typed_flow.EXPECTED


async def test_values_of_every_type_pass_through_weft_up(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings=IMPORTS) as (_, api):
        await pass_through(api)


async def test_values_of_every_type_pass_through_a_fleet(fleets: Fleets) -> None:
    async with fleets(**IMPORTS) as fleet:
        await fleet.start(workers=1)
        await pass_through(fleet.api)


@pytest.mark.parametrize("broker", ["redis"])
async def test_values_of_every_type_pass_through_celery(broker: str, celery_fleets: CeleryFleets) -> None:
    async with celery_fleets(broker) as fleet:
        await fleet.start(workers=0, **IMPORTS)
        await fleet.work(**IMPORTS)
        await pass_through(fleet.api)
