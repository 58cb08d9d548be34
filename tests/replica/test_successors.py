"""A server that follows another one as the writer: when it may, and which seqs it gives out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from logqueue.core.reading import read
from logqueue.server.service import Phase
from logqueue.server.storage.replica_start import SEQS_LOST_MAX, ReplicaTaken
from tests.replica.fleet import Fleet, Machine, fleet_test


@fleet_test
async def test_two_servers_that_are_started_again_and_again_come_to_rest() -> None:
    """Neither is a standby, and a supervisor starts each of them whenever it has ended."""
    fleet = Fleet("async")
    machines = (fleet.a, fleet.b)
    refusals: list[str] = []

    def beat() -> None:
        for machine in machines:
            if machine.runtime is not None and machine.runtime.is_running:
                machine.replication.ship_step()

    fleet.time.meanwhile = beat

    async def supervise(rounds: int) -> int:
        for machine in machines * rounds:
            if machine.runtime is None:
                try:
                    machine.start()
                except ReplicaTaken as taken:
                    refusals.append(str(taken))
            fleet.time.pass_s(2)
            for other in machines:
                await other.turn()
                runtime = other.runtime
                if runtime is not None and runtime.service.phase is Phase.FENCED:
                    await runtime.abort()
                    other.runtime = None
        return sum(machine._starts for machine in machines)

    await supervise(10)
    assert (fleet.a.runtime is None, fleet.b.runtime is None) == (True, False)
    assert fleet.b.replication.writer.epoch == 2, "a, then b, and no other"
    assert len(refusals) == 9 and "http://b:4000" in refusals[0]
    assert "start this one with --standby" in refusals[0]
    # One that ends without a word is succeeded; one that is alone starts as ever.
    fleet.b.kill()
    await supervise(1)
    await supervise(10)
    assert fleet.a.replication.writer.epoch == 3 and fleet.b.runtime is None
    fleet.a.kill()
    fleet.a.start()
    assert fleet.a.replication.writer.epoch == 4
    # One that hands over is succeeded at once.
    assert fleet.a.runtime is not None
    await fleet.a.runtime.hand_over()
    fleet.a.runtime = None
    before = fleet.time.now_s
    fleet.b.start()
    assert fleet.time.now_s == before


LOSSES: dict[str, Callable[[Machine], None]] = {
    "no further loss": lambda machine: None,
    "killed": Machine.kill,
    "power cut": Machine.cut_power,
    "burnt": Machine.burn,
}


@pytest.mark.parametrize("then", LOSSES)
def test_no_seq_of_a_lost_tail_is_given_out_again(then: str) -> None:
    """Who has read the lost records would miss those that came in their places."""

    async def scene() -> None:
        fleet = Fleet("async")
        a, b = fleet.a, fleet.b
        a.start()
        await a.put()
        await a.put("q", type="queue")
        await a.put("none", durability="ephemeral")
        a.append(1, 2, 3)
        fleet.time.pass_s(2)
        await a.rest()
        lost = a.append(4, 5)
        await a.write_disk()
        assert lost.is_granted()
        a.burn()
        b.start()
        LOSSES[then](b)
        if b.runtime is None:
            b.start()
        assert b.state.topics["none"].head < SEQS_LOST_MAX
        assert b.state.topics["q"].head >= SEQS_LOST_MAX
        b.append("new")
        await b.rest()
        topic = b.state.topics["a"]
        now = fleet.time.clock.now_ms()
        page = read(topic, 5, now, records_max=10, bytes_max=1000)
        assert page.tombstone is not None
        assert (page.tombstone.gap_from, page.tombstone.gap_to) == (6, topic.head - 1)
        assert page.next_from_seq == topic.head >= 3 + SEQS_LOST_MAX
        assert b.values() == [1, 2, 3, "new"]
        # Restarts lose nothing more, and one that hands over has lost nothing.
        head = topic.head
        fleet.time.pass_s(31)
        await b.rest()
        b.replication.tidy_step()
        b.kill()
        b.start()
        await b.rest()
        assert b.runtime is not None
        await b.runtime.hand_over()
        b.runtime = None
        a.start()
        assert a.state.topics["a"].head == head

    asyncio.run(scene())


@fleet_test
async def test_in_sync_mode_no_seq_is_skipped() -> None:
    fleet = Fleet()
    a, b = fleet.a, fleet.b
    a.start()
    await a.put()
    a.append(1, 2)
    await a.rest()
    a.burn()
    b.start()
    assert b.state.topics["a"].head == 2
