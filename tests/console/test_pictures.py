"""The pictures of the console in docs/: those that the command takes, and not many bytes."""

from __future__ import annotations

from tests.console.pictures import FOLDER, MOST_BYTES, MOST_PICTURES, PICTURES


def test_the_pictures_in_docs_are_those_that_the_command_takes() -> None:
    found = {path.name: path.stat().st_size for path in FOLDER.glob("console-*")}
    assert found.keys() == {f"{picture.name}.png" for picture in PICTURES}, "run: ./dev console-pictures"
    assert len(found) <= MOST_PICTURES
    assert sum(found.values()) < MOST_BYTES
