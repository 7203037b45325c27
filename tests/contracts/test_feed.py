"""The feeds, held against their contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.feed.memory import MemoryFeed
from weft.testing.feed_contract import FeedContract

if TYPE_CHECKING:
    from weft.feed.contract import Feed


class TestMemoryFeed(FeedContract):
    @pytest.fixture
    def feed(self) -> Feed:
        return MemoryFeed(held_events=self.HELD_EVENTS)
