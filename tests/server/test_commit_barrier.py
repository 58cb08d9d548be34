"""The commit barrier: who may leave when the log has come how far."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import pytest

from logqueue.errors import Fenced, LogqueueError, ReplicaUnavailable, StorageReadOnly
from logqueue.server.engine import commit_barrier
from logqueue.server.engine.commit_barrier import CommitBarrier


@dataclass
class Positions:
    """What the barrier looks at of a log."""

    written: int = 0
    durable: int = 0
    failure: BaseException | None = None

    @property
    def progress(self) -> Positions:
        """See `Log`."""
        return self

    def wake(self) -> None:
        """The barrier asks for a round."""


def released(log: Positions, steps: list[tuple[int, int]], written: int, durable: int) -> list[int]:
    """At which steps of the log's advance a waiter has been released."""

    async def scene() -> list[int]:
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        seen: list[int] = []
        taken: list[tuple[int, int]] = []
        barrier.when(written, durable, lambda failure: seen.append(len(taken)))
        for step in steps:
            taken.append(step)
            log.written, log.durable = step
            barrier.notify()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return seen

    return asyncio.run(scene())


@pytest.mark.parametrize(("written", "durable"), [*product((0, 1, 2, 3), (0, 1, 2))])
def test_released_once_both_positions_are_reached(written: int, durable: int) -> None:
    steps = [(1, 0), (1, 1), (2, 1), (3, 1), (3, 3)]
    expected = next(
        (n for n, (w, d) in enumerate([(0, 0), *steps]) if w >= written and d >= durable), None
    )
    assert released(Positions(), steps, written, durable) == [expected]


def test_replies_that_are_held_back_are_counted() -> None:
    async def scene() -> list[int]:
        barrier = CommitBarrier(cast(Any, Positions(2, 1)), asyncio.get_running_loop())
        counts = []
        for written, durable in ((2, 1), (2, 2), (1, 0), (3, 0)):
            barrier.when(written, durable, lambda failure: None)
            counts.append(barrier.held_back)
        return counts

    assert asyncio.run(scene()) == [0, 1, 1, 2]


def test_a_failure_is_told_to_everybody() -> None:
    async def scene() -> list[LogqueueError | None]:
        log = Positions()
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        told: list[LogqueueError | None] = []
        barrier.when(1, 0, told.append)
        barrier.when(1, 1, told.append)
        log.failure = OSError("gone")
        barrier.notify()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return told

    told = asyncio.run(scene())
    assert [type(failure) for failure in told] == [StorageReadOnly] * 2


@pytest.mark.parametrize("failure", [None, OSError("gone")])
def test_an_advance_while_a_waiter_is_between_the_heaps_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, failure: OSError | None
) -> None:
    """The committer's thread advances at the worst moment: it sees the waiter in neither heap."""

    async def scene() -> list[LogqueueError | None]:
        log = Positions()
        found: list[LogqueueError | None] = []
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        barrier.when(2, 1, found.append)
        pushed = heapq.heappush

        def push(heap: list[Any], entry: Any) -> None:
            if failure is None:
                log.written = 2
            log.failure = failure
            barrier.notify()
            pushed(heap, entry)

        monkeypatch.setattr(commit_barrier, "heappush", push)
        log.written = log.durable = 1
        barrier.notify()
        for _ in range(4):
            await asyncio.sleep(0)
        return found

    told = asyncio.run(scene())
    assert [type(found) for found in told] == [type(None) if failure is None else StorageReadOnly]


def test_the_committer_never_looks_into_a_heap() -> None:
    """Its thread may be stopped between two looks, and the heap be empty at the second."""

    class Shy(list[Any]):
        def __bool__(self) -> bool:
            raise AssertionError("the committer looks into a heap")

    async def scene() -> None:
        barrier = CommitBarrier(cast(Any, Positions(5, 5)), asyncio.get_running_loop())
        barrier._written, barrier._durable = Shy(), Shy()
        barrier.notify()

    asyncio.run(scene())


@pytest.mark.parametrize("is_told", [False, True])
def test_no_waiter_overtakes_one_whose_position_is_reached(is_told: bool) -> None:
    async def scene() -> list[int]:
        log = Positions()
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        order: list[int] = []
        barrier.when(1, 1, lambda failure: order.append(1))
        barrier.when(1, 0, lambda failure: order.append(2))
        barrier.when(2, 0, lambda failure: order.append(4))
        log.written = log.durable = 1
        if is_told:
            barrier.notify()
        barrier.when(1, 1, lambda failure: order.append(3))
        log.written = 2
        barrier.notify()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return order

    assert sorted(order := asyncio.run(scene())) == [1, 2, 3, 4]
    assert order.index(3) == 2 and order[3] == 4


def test_who_is_ahead_is_first_of_those_that_are_released_together() -> None:
    async def scene() -> list[int]:
        log = Positions()
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        order: list[int] = []
        barrier.when(0, 1, lambda failure: order.append(1))
        barrier.when(0, 2, lambda failure: order.append(4))
        barrier.when(0, 2, lambda failure: order.append(2), is_ahead=True)
        barrier.when(0, 1, lambda failure: order.append(3), is_ahead=True)
        log.written = log.durable = 2
        barrier.notify()
        await asyncio.sleep(0)
        return order

    assert asyncio.run(scene()) == [2, 3, 1, 4]


@pytest.mark.parametrize(("written", "rounds"), [(0, 1), (1, 1), (2, 0)])
def test_the_log_is_woken_once_and_only_for_what_it_has_not_written(
    written: int, rounds: int
) -> None:
    """What is written is being synced already, or is not going to be."""

    async def scene() -> int:
        woken: list[int] = []
        log = Positions(written)
        log.wake = lambda: woken.append(1)  # type: ignore[method-assign]
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        barrier.when(0, 2, lambda failure: None)
        barrier.when(2, 0, lambda failure: None)
        barrier.wake_log()
        assert len(woken) == rounds, "at once, and not in the next turn of the loop"
        await asyncio.sleep(0)
        return len(woken)

    assert asyncio.run(scene()) == rounds


# -- refused positions ---------------------------------------------------------------------------


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_positions_that_are_refused() -> None:
    """What waits for the disk alone, or for a later position, goes on waiting."""

    async def scene() -> None:
        log = Positions(written=5, durable=1)
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        found: dict[str, LogqueueError | None] = {}
        barrier.when(2, 2, lambda failure: found.update(old=failure))
        barrier.when(4, 4, lambda failure: found.update(new=failure))
        barrier.when(6, 0, lambda failure: found.update(disk=failure))
        refusal = ReplicaUnavailable("away")
        barrier.refuse_through(3, refusal)
        assert found == {"old": refusal}
        barrier.when(3, 3, lambda failure: found.update(later=failure))
        assert found == {"old": refusal, "later": refusal}
        barrier.when(7, 0, lambda failure: found.update(disk_later=failure))
        log.written = log.durable = 7
        barrier.notify()
        await settle()
        nothing = {"new": None, "disk": None, "disk_later": None}
        assert found == {"old": refusal, "later": refusal, **nothing}
        barrier.when(3, 3, lambda failure: found.update(later=failure))
        assert found["later"] is None, "it is durable by now"

    asyncio.run(scene())


def test_what_is_durable_by_now_is_not_refused() -> None:
    async def scene() -> list[LogqueueError | None]:
        log = Positions(written=2, durable=0)
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        found: list[LogqueueError | None] = []
        barrier.when(1, 1, found.append)
        barrier.when(2, 2, found.append)
        log.durable = 1
        barrier.refuse_through(2, ReplicaUnavailable("away"))
        return found

    assert [type(f) for f in asyncio.run(scene())] == [type(None), ReplicaUnavailable]


def test_everything_is_refused_for_ever() -> None:
    async def scene() -> list[LogqueueError | None]:
        log = Positions(written=1, durable=1)
        barrier = CommitBarrier(cast(Any, log), asyncio.get_running_loop())
        found: list[LogqueueError | None] = []
        barrier.when(2, 0, found.append)
        barrier.when(2, 2, found.append)
        barrier.refuse_through(commit_barrier.NEVER, Fenced("another server"))
        barrier.when(3, 0, found.append)
        log.written = log.durable = 3
        barrier.notify()
        await settle()
        return found

    assert [type(f) for f in asyncio.run(scene())] == [Fenced] * 3
