"""The stations of the simulation against the queues whose answers are known in closed form."""

from __future__ import annotations

import random
from math import exp
from statistics import fmean
from typing import TYPE_CHECKING

import pytest
from bench.stations import Disk, Machine, Process, Streams, Time

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stations import Step, Walk

CUSTOMERS = 20_000


def mean_stay(time: Time, ask: Callable[[random.Random], Step], *, arrivals_per_second: float) -> float:
    """Let customers come at random; give how long they stay in the mean."""
    draw = random.Random(7)
    stays = []

    def customer() -> Walk[None]:
        came_at = time.now
        yield ask(draw)
        stays.append(time.now - came_at)

    def arriving() -> Walk[None]:
        for _ in range(CUSTOMERS):
            yield time.pause(draw.expovariate(arrivals_per_second))
            time.start(customer())

    time.start(arriving())
    time.run()
    assert len(stays) == CUSTOMERS
    return fmean(stays)


def test_one_that_serves_in_turn_is_the_queue_m_m_1() -> None:
    time = Time()
    process = Process(Machine(time))
    stay = mean_stay(time, lambda draw: process.work(draw.expovariate(1.0)), arrivals_per_second=0.6)
    assert stay == pytest.approx(1 / (1.0 - 0.6), rel=0.06)


def test_with_equal_services_it_is_the_queue_m_d_1() -> None:
    time = Time()
    process = Process(Machine(time))
    stay = mean_stay(time, lambda _: process.work(1.0), arrivals_per_second=0.7)
    assert stay == pytest.approx(1 + 0.7 / (2 * (1 - 0.7)), rel=0.06)


@pytest.mark.parametrize("cores", [1, 2])
def test_cores_that_are_shared_keep_all_for_as_long_as_m_m_k_whatever_they_do(cores: int) -> None:
    # Under fair sharing only the mean of the services matters, so equal ones have to give the same.
    time = Time()
    machine = Machine(time, cores)
    load = 0.7
    stay = mean_stay(
        time, lambda _: lambda resume: machine.run(1.0, resume), arrivals_per_second=load * cores
    )
    assert stay == pytest.approx(1 / (1 - load**cores), rel=0.06)
    assert machine.used == pytest.approx(CUSTOMERS)


def test_a_disk_syncs_for_all_who_came_during_the_sync_before() -> None:
    time = Time()
    disk = Disk(time, 1.0)
    rate = 1.5
    stay = mean_stay(time, lambda _: disk.sync(), arrivals_per_second=rate)
    # Who finds it idle stays for one sync; who comes during one also waits for the rest of that.
    idle = exp(-rate)
    assert stay == pytest.approx(1 + 0.5 * rate / (rate + idle), rel=0.02)
    assert disk.syncs / time.now == pytest.approx(1 / (1 + idle / rate), rel=0.02)


def test_who_waits_on_streams_is_served_in_the_order_of_waiting() -> None:
    time = Time()
    streams: Streams[str] = Streams(time, 2)
    given = []

    def reader(name: str) -> Walk[None]:
        partition, entries = yield streams.wait(2)
        given.append((name, partition, entries))

    time.start(reader("first"))
    time.start(reader("second"))
    time.run()
    streams.put(1, ["a", "b", "c"])
    streams.put(0, ["d"])
    time.run()
    assert given == [("first", 1, ["a", "b"]), ("second", 1, ["c"])]
    assert len(streams) == 1


def test_what_is_walked_together_is_over_when_the_last_is() -> None:
    time = Time()
    over_at = []

    def alone(seconds: float) -> Walk[None]:
        yield time.pause(seconds)

    def both() -> Walk[None]:
        yield time.together([alone(1.0), alone(3.0)])
        over_at.append(time.now)

    time.start(both())
    time.run()
    assert over_at == [3.0]
