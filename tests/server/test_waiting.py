"""Many who wait, for jobs or for a change: each turn of the loop is for so many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from logqueue.core.commands import Claimer
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import ShuttingDown
from logqueue.server.engine import dispatcher, waitlist
from logqueue.server.engine.pending import Pending
from logqueue.server.engine.waiting_reads import READS_PER_TURN, WaitingReads
from logqueue.server.engine.waitlist import WAITING_PER_PASS_MAX, Waiting, Waitlist
from tests.core.world import World
from tests.server.memory import Memory, claimed, seqs


@pytest.fixture
def server() -> Iterator[Memory]:
    server = Memory()
    yield server
    server.close()


def test_reads_that_wait_for_one_topic_go_on_so_many_per_turn() -> None:
    async def scene() -> None:
        reads = WaitingReads(asyncio.get_running_loop())
        waiting = [reads.next_change("l") for _ in range(5 * READS_PER_TURN - 3)]
        other = reads.next_change("m")
        left = waiting[-1]
        left.cancel()
        await asyncio.sleep(0)
        reads.wake("l")
        per_turn, before = [], 0
        while before < len(waiting) - 1:
            done = sum(read.done() and not read.cancelled() for read in waiting)
            per_turn.append(done - before)
            before = done
            await asyncio.sleep(0)
        assert max(per_turn) <= READS_PER_TURN and len(per_turn) == 5
        assert not other.done() and [*reads.by_topic] == ["m"]
        other.cancel()
        await asyncio.sleep(0)
        assert not reads.by_topic

    asyncio.run(scene())


class Undecided:
    """As much of an answer as a waitlist looks at; counts how often."""

    looks = 0

    @property
    def is_decided(self) -> bool:
        """It is not."""
        Undecided.looks += 1
        return False


def waitlist_of(claims: int, ready: int) -> tuple[Waitlist, list[Waiting]]:
    """A waitlist of long polls."""
    world = World()
    world.put("q")
    if ready:
        world.fill(ready)
    line = Waitlist(cast(QueueTopic, world.topic("q")))
    waiting = [
        Waiting(Claimer(f"w{n}", 1, None, 0), n, True, cast(Pending[Any], Undecided()))
        for n in range(claims)
    ]
    for one in waiting:
        line.add(one)
    Undecided.looks = 0
    return line, waiting


@pytest.mark.parametrize("ready", [0, 3, 10_000])
def test_a_pass_looks_at_those_it_can_serve_however_many_wait(ready: int) -> None:
    line, waiting = waitlist_of(5000, ready)
    served = [member for member, _ in line.line()]
    assert served == waiting[: min(ready, WAITING_PER_PASS_MAX)]
    assert line.is_cut == (ready > WAITING_PER_PASS_MAX)
    assert Undecided.looks <= WAITING_PER_PASS_MAX + 1


def test_claims_whose_time_is_up_at_once_are_so_many_per_pass() -> None:
    line, waiting = waitlist_of(250, 0)
    for one in waiting:
        assert line.end_wait(one)
    assert not line.end_wait(waiting[0])
    sizes = []
    while line.has_timed_out:
        served = [member for member, _ in line.line()]
        sizes.append(len(served))
        for member in served:
            assert isinstance(member, Waiting) and not member.long_poll
            line.remove(member)
    assert (sizes, line.claims) == ([100, 100, 50], 0)


def test_many_claims_that_wait_end_each_in_its_way(
    server: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dispatcher, waitlist):
        monkeypatch.setattr(module, "WAITING_PER_PASS_MAX", 2)
    server.queue()
    served = [server.claim(f"w{n}", wait_ms=1000) for n in range(5)]
    server.append(1, 2, 3)
    assert [seqs(claimed(one)) for one in served[:3]] == [[1], [2], [3]]
    assert not any(one.is_over for one in served[3:])
    late = [server.claim(f"late{n}", wait_ms=1000) for n in range(7)]
    server.wait(1)
    assert [claimed(one) for one in [*served[3:], *late]] == [[]] * 9
    server.queue("gone")
    refused = [server.claim(f"w{n}", "gone", wait_ms=1000) for n in range(7)]
    server.call("DELETE", "topics/gone")
    assert {one.status for one in refused} == {404}
    ended = [server.claim(f"w{n}", wait_ms=1000) for n in range(7)]
    server.core._run(lambda: server.dispatcher.end_streams(ShuttingDown("the server stops")))
    server.wait(0)
    assert {one.status for one in ended} == {503} and server.dispatcher.claims_waiting == 0
