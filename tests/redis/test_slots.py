"""Which server of a cluster has a key, as the server itself would say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.servers.redis_cluster import RedisCluster

from weft.redis.address import Address
from weft.redis.connection import Redis
from weft.redis.keys import Keys, bucket_key, window_key
from weft.redis.slots import read_slots, slot_of, slot_of_key

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(servers=1) as cluster:
        yield cluster


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(TEXT, st.text("{}ab", max_size=8)), min_size=20, max_size=200))
async def test_the_slot_of_any_key_is_the_one_the_server_says(cluster: RedisCluster, keys: list[str]) -> None:
    redis = Redis(cluster.url)
    assert await redis.run([("CLUSTER", "KEYSLOT", key) for key in keys]) == [slot_of_key(k) for k in keys]
    await redis.close()


async def test_all_keys_of_a_partition_and_all_of_a_tag_are_in_one_slot(cluster: RedisCluster) -> None:
    redis = Redis(cluster.url)
    for keys in (Keys(0), Keys(7, prefix="other")):
        names = [
            keys.server,
            keys.incarnation_id,
            keys.results,
            keys.execution("x}1"),
            keys.lane("a{b}", "c", 3),
        ]
        slots = await redis.run([("CLUSTER", "KEYSLOT", name) for name in names])
        assert set(slots) == {slot_of(keys.tag)}
    for tag in ("api", "a}b", "{a}", "}", "ä b"):
        bucket = bucket_key(tag)
        names = [bucket, f"{bucket}:line", f"{bucket}:released", f"{bucket}:places"]
        assert set(await redis.run([("CLUSTER", "KEYSLOT", name) for name in names])) == {slot_of_key(bucket)}
        window = window_key(tag)
        assert await redis.call("CLUSTER", "KEYSLOT", window) == slot_of_key(window)
    await redis.close()


def test_a_server_that_does_not_know_its_own_address_is_the_one_that_was_asked() -> None:
    asked = Address("outside", 7000)
    reply = [[0, 5460, [b"", 7000, b"id1"]], [5461, 16383, [b"10.0.0.2", 7001, b"id2"], [b"10.0.0.3", 7002]]]
    assert read_slots(reply, asked) == [(0, 5460, asked), (5461, 16383, Address("10.0.0.2", 7001))]
