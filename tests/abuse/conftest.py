"""What is attacked: one server, and a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.abuse.bystander import one_server, whole_fleet
from tests.fleet.conftest import fleets as fleets
from tests.fleet.conftest import migrated as migrated

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.abuse.bystander import Abused, Target
    from tests.fleet.conftest import Fleets


@pytest.fixture(params=["server", "fleet"])
def abused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Abused:
    """Return a way to have a target; each test runs on one server, and on a fleet."""
    # A test on one server does not start the servers of a fleet.
    fleets: Fleets | None = request.getfixturevalue("fleets") if request.param == "fleet" else None

    def have(**settings: str) -> AbstractAsyncContextManager[Target]:
        if fleets is None:
            return one_server(tmp_path_factory.mktemp("abused"), settings)
        return whole_fleet(fleets, settings)

    return have
