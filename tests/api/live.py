"""A viewer of an execution that draws what it is sent, and checks that each frame fits the ones before."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.api.sse import Stream, watch
from tests.walks.stage import PATIENCE_SECONDS

from weft.api.frames import LiveChanges, LiveSnapshot
from weft.core.state import NodeState
from weft.views.live_states import LETTERS, RETRY_SCHEDULED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.conftest import Server

NAMES = {chr(letter): state.value for state, letter in LETTERS.items()} | {
    chr(RETRY_SCHEDULED): NodeState.QUEUED.value
}


class Drawing:
    """What a viewer has drawn."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.letters = ""
        self.generation = 0
        self.state = ""
        self.live = True
        self.frames: list[str] = []
        self.has_ended = False

    async def next(self) -> bool:
        """Draw the next frame; False: the stream has ended."""
        told = await self._stream.next()
        while told is not None and told.type is None:
            told = await self._stream.next()
        if told is None:
            return False
        assert not self.has_ended, "nothing comes after the end"
        assert told.id is None, "there is nothing to resume"
        assert told.type is not None
        self.frames.append(told.type)
        if told.type == "end":
            self.has_ended = True
            return True
        self._draw(told.type, told.data)
        return True

    def _draw(self, type_: str, data: dict[str, Any]) -> None:
        if type_ == "snapshot":
            LiveSnapshot.model_validate(data)
            self.letters, self.generation = data["states"], data["generation"]
        else:
            assert self.frames[0] == "snapshot"
            LiveChanges.model_validate(data)
            letters = list(self.letters)
            for index, letter in data["changes"]:
                letters[index] = letter
            self.letters = "".join(letters)
        self.state, self.live = data["state"], data["live"]
        drawn = dict.fromkeys(data["counts"], 0)
        for letter in self.letters:
            drawn[NAMES[letter]] += 1
        assert drawn == data["counts"]

    async def until(self, letters: str, state: str | None = None) -> None:
        """Draw until these are the letters, and the execution is in this state."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.letters != letters or state not in (None, self.state):
                assert await self.next(), f"it ended with {self.letters} {self.state}"

    async def to_the_end(self) -> None:
        """Draw until the stream has ended, with an end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.next():
                pass
        assert self.has_ended


@asynccontextmanager
async def drawing(server: Server, execution_id: str, *, key: str | None = None) -> AsyncIterator[Drawing]:
    """Watch an execution live; leaving the block closes the connection."""
    async with watch(server, f"/v1/executions/{execution_id}/live", key=key) as stream:
        assert stream.status == 200
        yield Drawing(stream)
