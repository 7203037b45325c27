"""A greedy list schedule, held against one that is worked out tick by tick."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.views.schedule import NONE, ListSchedule, OpenGraph, list_schedule

Parents = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Parents, list[int]]:
    count = draw(st.integers(1, 12))
    parents = [
        sorted(draw(st.sets(st.integers(0, index - 1), max_size=3))) if index else []
        for index in range(count)
    ]
    order = draw(st.permutations(range(count)))
    # In a definition, nodes may come before those that they run after.
    shuffled: Parents = [[] for _ in range(count)]
    for index, of_it in enumerate(parents):
        shuffled[order[index]] = [order[parent] for parent in of_it]
    return shuffled, draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))


SLOTS = st.one_of(st.none(), st.integers(1, 4))


def opened(parents: Parents, **fields: object) -> OpenGraph:
    dependents: Parents = [[] for _ in parents]
    for index, of_it in enumerate(parents):
        for parent in of_it:
            dependents[parent].append(index)
    return OpenGraph(parents=parents, dependents=dependents, **fields)  # type: ignore[arg-type]


def by_ticks(
    parents: Parents,
    durations: list[int],
    slots: int | None,
    *,
    running: set[int] = frozenset(),  # type: ignore[assignment]
    settled: set[int] = frozenset(),  # type: ignore[assignment]
    due: dict[int, int] | None = None,
) -> dict[int, int]:
    """Work out the end of each node: look at every node at every tick, with nothing remembered but ends."""
    ends: dict[int, int] = {}
    left = {index: durations[index] for index in running}
    queue: list[int] = []
    seen: set[int] = set()
    now = 0
    while len(ends) + len(settled) < len(parents):
        progress = True
        while progress:
            progress = False
            for index in [index for index, ticks in left.items() if ticks == 0]:
                ends[index] = now
                del left[index]
                progress = True
            over = settled | ends.keys()
            for index, of_it in enumerate(parents):
                is_new = index not in seen | over | left.keys()
                if is_new and all(parent in over for parent in of_it) and (due or {}).get(index, 0) <= now:
                    queue.append(index)
                    seen.add(index)
                    progress = True
            while queue and (slots is None or len(left) < slots):
                index = queue.pop(0)
                left[index] = durations[index]
                progress = True
        left = {index: ticks - 1 for index, ticks in left.items()}
        now += 1
    return ends


def lengths(parents: Parents, durations: list[int]) -> list[int]:
    """Return the longest way to the end of each node."""
    found: dict[int, int] = {}
    while len(found) < len(parents):
        for index, of_it in enumerate(parents):
            if index not in found and all(parent in found for parent in of_it):
                found[index] = durations[index] + max((found[parent] for parent in of_it), default=0)
    return [found[index] for index in range(len(parents))]


def check_chain(schedule: ListSchedule, durations: list[int], due: dict[int, int] | None = None) -> None:
    """Each node of the chain started when the one before it ended, and the last ends with the schedule."""
    chain = schedule.chain()
    assert schedule.ends[chain[-1]] == schedule.end
    at = (due or {}).get(chain[0], 0)
    for index in chain:
        assert schedule.ends[index] == at + durations[index]
        at = schedule.ends[index]


@settings(deadline=None)
@given(graphs(), SLOTS)
def test_the_schedule_is_that_of_a_clock_that_ticks(
    graph: tuple[Parents, list[int]], slots: int | None
) -> None:
    parents, durations = graph
    durations = [duration + 1 for duration in durations]
    schedule = list_schedule(opened(parents, slots=slots), durations)
    assert dict(enumerate(schedule.ends)) == by_ticks(parents, durations, slots)
    check_chain(schedule, durations)


@settings(deadline=None)
@given(graphs(), SLOTS, st.data())
def test_so_it_is_from_the_middle_of_an_execution(
    graph: tuple[Parents, list[int]], slots: int | None, data: st.DataObject
) -> None:
    parents, durations = graph
    durations = [duration + 1 for duration in durations]
    settled: set[int] = set()
    for _ in parents:
        able = [i for i, of_it in enumerate(parents) if settled.issuperset(of_it) and i not in settled]
        if len(able) > 0 and data.draw(st.booleans()):
            settled.add(data.draw(st.sampled_from(able)))
    able = [i for i, of_it in enumerate(parents) if settled.issuperset(of_it) and i not in settled]
    running = data.draw(st.sets(st.sampled_from(able), max_size=slots)) if able else set()
    waiting = data.draw(st.sets(st.sampled_from(able))) - running if able else set()
    due = {index: data.draw(st.integers(1, 9)) for index in sorted(waiting)}
    fields = {"settled": settled, "running": running, "due": due, "slots": slots}
    schedule = list_schedule(opened(parents, **fields), durations)
    if len(settled) == len(parents):
        assert (schedule.end, schedule.last, schedule.chain()) == (0, NONE, [])
        return
    ends = by_ticks(parents, durations, slots, running=running, settled=settled, due=due)
    assert {index: schedule.ends[index] for index in ends} == ends
    check_chain(schedule, durations, due)


@settings(deadline=None)
@given(graphs(), SLOTS)
def test_no_schedule_beats_the_longest_way_or_the_work_and_greed_is_not_far_from_them(
    graph: tuple[Parents, list[int]], slots: int | None
) -> None:
    parents, durations = graph
    schedule = list_schedule(opened(parents, slots=slots), durations)
    longest = max(lengths(parents, durations))
    if slots is None:
        assert list(schedule.ends) == lengths(parents, durations)
    else:
        work = sum(durations)
        assert schedule.end >= max(longest, work / slots)
        assert schedule.end <= work / slots + longest * (1 - 1 / slots) + 1e-9
    check_chain(schedule, durations)


def test_a_node_that_needs_one_parent_starts_with_the_first_that_ends() -> None:
    parents = [[], [], [0, 1]]
    schedule = list_schedule(opened(parents, early={2}), [5, 3, 1])
    assert (list(schedule.ends), schedule.chain()) == ([5, 3, 4], [0])
    schedule = list_schedule(opened(parents, early={2}, ready={2}), [5, 3, 9])
    assert (schedule.ends[2], schedule.chain()) == (9, [2])


def test_a_long_chain_is_scheduled_in_a_loop() -> None:
    parents = [[index - 1] if index else [] for index in range(50_000)]
    schedule = list_schedule(opened(parents, slots=1), [1] * len(parents))
    assert (schedule.end, len(schedule.chain())) == (50_000, 50_000)
