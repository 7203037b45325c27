"""Whether a database still has all commits that the fleet has seen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from weft.incarnation import Incarnation, Server, surviving_id

SEEN = Incarnation(id="a", line="7/1", started="10", position=100)
SAME = Server(line="7/1", started="10", position=120, relaxed=False, row=("a", "7/1", "10"))
RESTARTED = replace(SAME, started="20")
CRASHED = replace(SAME, started="20", row=None)


@pytest.mark.parametrize(
    ("case", "server", "survivor"),
    [
        ("nothing happened", SAME, "a"),
        ("a restart in good order", RESTARTED, "a"),
        ("crash recovery with a synchronous disk", CRASHED, "a"),
        ("crash recovery without", replace(CRASHED, relaxed=True), None),
        ("crash recovery without, and the server process lived", replace(SAME, relaxed=True, row=None), None),
        ("a promoted standby", replace(CRASHED, line="7/2", position=130), None),
        ("another server", replace(CRASHED, line="8/1"), None),
        ("a restored copy of a running server", replace(CRASHED, position=99), None),
        ("a restored copy of a stopped server", replace(RESTARTED, position=99), None),
        ("a copy from before the last restart", replace(RESTARTED, row=("a", "7/1", "5")), None),
        ("a virtual machine set back to a snapshot", replace(SAME, position=99), None),
        ("another process has compared", replace(SAME, row=("b", "7/1", "10")), "b"),
        ("another process has compared a standby", replace(SAME, line="7/2", row=("b", "7/2", "10")), "b"),
    ],
)
def test_what_survives(case: str, server: Server, survivor: str | None) -> None:
    assert surviving_id(server, SEEN) == survivor, case


def test_with_nothing_seen_the_mark_of_a_peer_counts_and_no_earlier_one() -> None:
    assert surviving_id(SAME, None) == "a"
    assert surviving_id(RESTARTED, None) is None
    assert surviving_id(CRASHED, None) is None
