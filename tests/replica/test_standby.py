"""A standby in one process with its writer: what it shows, when it takes over, what it survives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError, NotWriter, ReplicaUnavailable
from logqueue.model.schedule import ScheduleOptions
from logqueue.replica.chunk import chunk_key
from logqueue.replica.object_store import StoreRefused
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.runtime import Runtime
from logqueue.server.service import Phase
from logqueue.server.standby import Standby
from logqueue.server.storage import compaction
from logqueue.server.storage.log_follower import LogFollower
from logqueue.server.storage.log_replay import OrderViolated
from logqueue.server.storage.replica_start import ReplicaStart
from logqueue.testing.simulated_store import SimulatedObjects
from tests.core.world import pack, wish
from tests.portrait import portrait
from tests.replica.fleet import FleetTime, Machine, fleet_test
from wal.testing.simfs import SimFileSystem

TURNS_MAX = 60_000
"""Of a millisecond at least: a bound for what hangs, with room for a busy machine."""


class Pair:
    """A writer `a`, and servers that were started as standbys."""

    def __init__(self, mode: str = "sync", **settings: Any) -> None:
        self.time = FleetTime()
        self.shared = SimulatedObjects()
        self.a = Machine("a", self.shared, self.time, mode=mode, **settings)
        self.coming: dict[str, asyncio.Task[None]] = {}

    def standby(self, name: str, fs: SimFileSystem | None = None, **settings: Any) -> Machine:
        """Start a standby, on a disk; it comes up beside the test."""
        machine = Machine(name, self.shared, self.time)
        machine.fs = fs or machine.fs
        machine.runtime = runtime = machine.made(standby=True, standby_poll_ms=1, **settings)

        async def come_up() -> None:
            await runtime.come_up()
            runtime.begin()

        self.coming[name] = asyncio.get_running_loop().create_task(come_up())
        return machine

    async def until(self, is_so: Callable[[], object]) -> None:
        """Let everything that is due be done, until something holds."""
        for _ in range(TURNS_MAX):
            if is_so():
                return
            for task in self.coming.values():
                if task.done():
                    task.result()
            await asyncio.sleep(0.001)
        raise AssertionError("it does not come to that")

    async def end(self) -> None:
        """Stop following."""
        for task in self.coming.values():
            task.cancel()
        await asyncio.gather(*self.coming.values(), return_exceptions=True)
        self.coming.clear()


def runtime_of(machine: Machine) -> Runtime:
    """The server that runs there."""
    assert machine.runtime is not None
    return machine.runtime


def phase(machine: Machine) -> Phase:
    """Its phase."""
    return runtime_of(machine).service.phase


def shown(machine: Machine, topic: str = "a") -> list[Any]:
    """What a standby shows of a topic."""
    engine = runtime_of(machine).service.engine
    if engine is None or topic not in engine.state.topics:
        return []
    found = engine.state.topics[topic].batches
    return [texts[0] for batch in found for _, _, texts in batch.records()]


async def polled(pair: Pair, machine: Machine) -> None:
    """Let a standby look at the replica a few times."""
    enough = machine.store.calls.get("get", 0) + 8
    await pair.until(lambda: machine.store.calls.get("get", 0) > enough)


async def watched(pair: Pair, machine: Machine) -> None:
    """Let time pass with a standby that looks at the replica all the while."""
    for _ in range(6):
        pair.time.pass_s(1)
        if not runtime_of(machine).is_following:
            return
        await polled(pair, machine)


def state_of(machine: Machine) -> object:
    """What a standby says of the replica."""
    following = runtime_of(machine).service.lifecycle.following
    return following.status()["state"] if following is not None else None


def refusal_of(machine: Machine) -> LogqueueError:
    """What a change gets."""
    with pytest.raises(LogqueueError) as refused:
        runtime_of(machine).service.require_writer()
    return refused.value


@fleet_test
async def test_a_standby_shows_what_the_writer_has_committed() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    for number in range(5):
        pair.a.append(number, topic="a")
        await pair.a.rest()
    await pair.until(lambda: len(shown(b)) == 5)
    engine = runtime_of(b).service.engine
    assert engine is not None
    assert portrait(engine.state) == portrait(pair.a.state)
    assert engine.journal.order == runtime_of(pair.a).engine.journal.order
    refusal = refusal_of(b)
    assert isinstance(refusal, NotWriter)
    assert refusal.detail == {"writer": "http://a:4000"}
    await pair.end()


@fleet_test
async def test_the_live_feed_of_a_standby_goes_on_when_it_takes_over() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    pair.a.append(0)
    await pair.a.rest()
    b = pair.standby("b")
    await pair.until(lambda: len(shown(b)) == 1)
    stats = runtime_of(b).stats
    frames = stats.watch(None)
    await anext(frames)
    full = await anext(frames) + await anext(frames)
    assert b'"phase":"standby","role":"standby"' in full and b'"head_seq":1,' in full
    pair.a.append(1)
    await pair.a.rest()
    await pair.until(lambda: len(shown(b)) == 2)
    pair.time.pass_s(1)
    await stats.second()
    change = await anext(frames)
    assert change.startswith(b"event: change") and b'"head_seq":2,' in change
    assert b'"appended":0.' in change
    promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=True))
    await pair.until(promoted.done)
    await stats.second()
    full = await anext(frames) + await anext(frames)
    assert full.startswith(b"event: full") and b'"phase":"ready","role":"writer"' in full
    assert b'"head_seq":2,' in full
    await frames.aclose()
    await pair.end()


@fleet_test
async def test_a_command_that_gets_past_the_door_changes_nothing() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    asked = b.append("x")
    await b.turn()
    assert isinstance(asked.refusal, NotWriter)
    assert not shown(b)
    await pair.end()


@fleet_test
async def test_a_standby_that_is_asked_takes_over_and_the_writer_is_fenced() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    pair.a.append(1)
    await pair.a.rest()
    await pair.until(lambda: len(shown(b)) == 1)
    promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=True))
    await pair.until(promoted.done)
    assert promoted.result() == 2
    assert phase(b) is Phase.READY
    assert b.values() == [1]
    pair.time.pass_s(2)
    asked = pair.a.append(2)
    await pair.a.rest()
    assert not asked.is_granted()
    assert phase(pair.a) is Phase.FENCED


@fleet_test
async def test_a_writer_that_hands_over_has_committed_everything() -> None:
    pair = Pair("async", replica_lag_ms=3_600_000)
    pair.a.start()
    await pair.a.put()
    asked = pair.a.append(1, 2, 3)
    await pair.a.write_disk()
    assert asked.is_granted()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    assert await runtime_of(pair.a).hand_over() == 1
    assert runtime_of(b).is_following
    # It finds that the writer has released the log, and need not ask it.
    await pair.until(lambda: len(shown(b)) == 3)
    promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=False))
    await pair.until(promoted.done)
    assert b.values() == [1, 2, 3]


@fleet_test
async def test_only_what_commits_keeps_a_writer_from_handing_over() -> None:
    """What must not be deleted, say, needs a key with more rights, and no takeover waits for it."""
    pair = Pair("async")
    a = pair.a
    a.start()
    await a.put()
    await a.rest()
    a.store.is_cut_off = True
    pair.time.pass_s(2)
    await a.ship()
    with pytest.raises(ReplicaUnavailable):
        await runtime_of(a).hand_over()
    a.store.is_cut_off = False
    with pytest.MonkeyPatch.context() as patch:

        def refuse() -> bool:
            raise StoreRefused("no permission to delete")

        patch.setattr(a.replication.writer, "tidy", refuse)
        a.replication.tidy_step()
    pair.time.pass_s(2)
    await a.ship()
    assert a.replication.stats.last_error == "no permission to delete"
    assert await runtime_of(a).hand_over() == 1


@fleet_test
async def test_a_writer_that_has_ended_is_not_asked_in_vain() -> None:
    """It has handed over to a call before, or its reply was lost: the replica says so."""

    async def rest(self: Standby) -> None:
        await self._wake.wait()
        self._wake.clear()

    pair = Pair("async", replica_lag_ms=3_600_000)
    pair.a.start()
    await pair.a.put()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Standby, "_rest", rest)
        b = pair.standby("b")
        await pair.until(lambda: phase(b) is Phase.STANDBY)
        pair.a.append(1, 2, 3)
        await pair.a.write_disk()
        await runtime_of(pair.a).hand_over()
        promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=False))
        await pair.until(promoted.done)
        assert promoted.result() == 2
    assert b.values() == [1, 2, 3]


@fleet_test
async def test_only_a_heartbeat_that_stops_makes_a_standby_take_over() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b", auto_promote=5000)
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    for _ in range(8):
        await pair.a.rest()
        pair.a.replication.writer.renew()
        pair.time.pass_s(1)
        await polled(pair, b)
        assert phase(b) is Phase.STANDBY
    # Time that passes while the store is away says nothing.
    b.store.is_cut_off = True
    await polled(pair, b)
    assert state_of(b) == "behind"
    b.store.is_cut_off = False
    await pair.until(lambda: state_of(b) == "current")
    await polled(pair, b)
    assert phase(b) is Phase.STANDBY
    await watched(pair, b)
    await pair.until(lambda: phase(b) is Phase.READY)
    assert b.replication.writer.epoch == 2


@fleet_test
async def test_a_copy_of_the_directory_of_a_running_writer_follows_it() -> None:
    """It says that it is the directory of the last writer, and has what is not committed yet."""
    pair = Pair("async", replica_lag_ms=60_000)
    a = pair.a
    a.start()
    await a.put()
    a.append(1)
    await a.rest()
    pair.time.pass_s(31)
    a.replication.tidy_step()
    a.append(2, 3)
    await a.write_disk()
    copy = a.fs.kill_clone()
    pair.time.meanwhile = a.replication.writer.renew
    b = pair.standby("b", fs=copy)
    gets = b.store.calls.get("get", 0) + 60
    await pair.until(lambda: b.store.calls.get("get", 0) > gets)
    assert phase(b) is Phase.RECOVERING and phase(a) is Phase.READY
    pair.time.pass_s(61)
    await a.ship()
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    assert len(shown(b)) == 3 and a.replication.writer.epoch == 1
    await pair.end()
    # The same copy after the writer has ended without a word: this is all there is of it.
    pair.time.meanwhile = lambda: None
    a.append(4)
    await a.write_disk()
    last = a.fs.kill_clone()
    a.kill()
    c = pair.standby("c", fs=last)
    await pair.until(lambda: phase(c) is Phase.READY)
    assert c.values() == [1, 2, 3, 4]


@fleet_test
async def test_a_standby_that_cannot_take_over_now_follows_again() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    bring_up = ReplicaStart.bring_up

    def cut_off(self: ReplicaStart) -> None:
        b.store.is_cut_off = True
        bring_up(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaStart, "bring_up", cut_off)
        promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=True))
        await pair.until(promoted.done)
    assert isinstance(promoted.exception(), NotWriter)
    assert "cannot be reached" in str(promoted.exception())
    assert not pair.coming["b"].done()
    b.store.is_cut_off = False
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    again = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=True))
    await pair.until(again.done)
    assert again.result() == 2
    await pair.until(lambda: phase(b) is Phase.READY)


@fleet_test
async def test_a_standby_that_starts_without_the_store_may_be_promoted_later() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    pair.a.append(1)
    await pair.a.rest()
    disk = pair.a.fs.kill_clone()
    pair.a.kill()
    b = pair.standby("b", fs=disk)
    b.store.is_cut_off = True
    loop = asyncio.get_running_loop()
    await pair.until(lambda: runtime_of(b).is_following)
    for _ in range(2):
        promoted = loop.create_task(runtime_of(b).promote(None, force=True))
        await pair.until(promoted.done)
        assert isinstance(promoted.exception(), NotWriter)
        await pair.until(lambda: runtime_of(b).is_following)
    b.store.is_cut_off = False
    promoted = loop.create_task(runtime_of(b).promote(None, force=True))
    await pair.until(promoted.done)
    assert promoted.result() == 2
    await pair.until(lambda: phase(b) is Phase.READY)
    assert b.values() == [1]


@fleet_test
async def test_of_two_standbys_the_slower_one_follows_the_faster() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b, c = pair.standby("b"), pair.standby("c")
    await pair.until(lambda: phase(b) is phase(c) is Phase.STANDBY)
    pair.a.kill()
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(runtime_of(m).promote(None, force=True)) for m in (b, c)]
    await pair.until(lambda: all(task.done() for task in asked))
    outcomes = [task.exception() for task in asked]
    assert [type(error) for error in outcomes].count(type(None)) == 1
    assert [isinstance(error, NotWriter) for error in outcomes].count(True) == 1
    winner, loser = (b, c) if outcomes[0] is None else (c, b)
    winner.append("new")
    await winner.rest()
    await pair.until(lambda: len(shown(loser)) == 1)
    assert phase(loser) is Phase.STANDBY
    await pair.end()


@fleet_test
async def test_a_standby_of_nothing_becomes_the_first_writer() -> None:
    pair = Pair()
    b, c = pair.standby("b", auto_promote=5000), pair.standby("c")
    await pair.until(lambda: b.store.calls.get("get", 0) > 3)
    assert phase(b) is Phase.RECOVERING
    await watched(pair, b)
    await pair.until(lambda: phase(b) is Phase.READY)
    await b.put()
    await pair.until(lambda: phase(c) is Phase.STANDBY)
    await pair.end()


@fleet_test
async def test_what_was_collected_meanwhile_comes_from_segments() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    b.store.is_cut_off = True
    for number in range(40):
        pair.a.append("x" * 1000, number)
        await pair.a.rest()
    for _ in range(8):
        pair.time.pass_s(120)
        while pair.a.replication.tidy_step() == 0.0:
            pass
    assert chunk_key(3) not in {info.key for info in pair.shared.objects.list("chunks/")}
    b.store.is_cut_off = False
    await pair.until(lambda: len(shown(b)) == 80)
    assert phase(b) is Phase.STANDBY
    await pair.end()


@fleet_test
async def test_transactions_that_come_too_late_are_replayed() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    first = runtime_of(b).service.engine
    add = LogFollower.add
    refusals: list[int] = []

    def late(self: LogFollower, entries: Any) -> None:
        if not refusals:
            refusals.append(1)
            raise OrderViolated("too late")
        add(self, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogFollower, "add", late)
        pair.a.append(1)
        await pair.a.rest()
        await pair.until(lambda: len(shown(b)) == 1)
    assert refusals
    assert runtime_of(b).service.engine is not first
    await pair.end()


@fleet_test
async def test_claims_are_seen_and_time_acts_as_far_as_the_log_goes() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put("q", type="queue", leases_durable=True)
    pair.a.append(1, 2, topic="q")
    pair.a.ask(cmd.ClaimJobs("q", (cmd.Claimer("w", 1, 5000),)))
    await pair.a.rest()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    engine = runtime_of(b).service.engine
    assert engine is not None
    assert engine.queue_now("q").queue.leased == 1
    pair.time.pass_s(60)
    # The writer may have extended it in what is still to come.
    assert engine.queue_now("q").queue.leased == 1
    pair.a.append(3, topic="q")
    await pair.a.rest()
    await pair.until(lambda: len(shown(b, "q")) == 3)
    assert engine.queue_now("q").queue.leased == 0
    await pair.end()


# -- a replica that is gone ----------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_replica_that_is_gone_is_not_made_again_by_itself(restarts: bool) -> None:
    """A directory that is no longer mounted on this machine has no manifest, and the writer, on
    another machine, still has it: a second replica of the same log would be a fork."""

    @fleet_test
    async def scene() -> None:
        pair = Pair()
        pair.a.start()
        await pair.a.put()
        b = pair.standby("b", auto_promote=5000)
        await pair.until(lambda: phase(b) is Phase.STANDBY)
        pair.a.append(1)
        await pair.a.rest()
        await pair.until(lambda: len(shown(b)) == 1)
        b.store.shared = SimulatedObjects()
        if restarts:
            await pair.end()
            b.fs = b.fs.kill_clone()
            b.runtime = runtime = b.made(standby=True, standby_poll_ms=1, auto_promote=5000)
            pair.coming["b"] = asyncio.get_running_loop().create_task(runtime.come_up())
            await polled(pair, b)
        await watched(pair, b)
        assert not [*b.store.shared.objects.list()]
        with pytest.raises(NotWriter) as refused:
            await runtime_of(b).promote(None, force=False)
        assert "is gone" in refused.value.message
        b.store.shared = pair.shared
        await pair.until(lambda: len(shown(b)) == 1)
        await pair.end()

    scene()


@fleet_test
async def test_old_logs_that_nothing_follows_are_set_aside() -> None:
    pair = Pair(replica_keep=1)
    a = pair.a
    a.start()
    await a.put(cap_records=20, discard="old")
    a.append("old")
    await a.rest()
    disk = a.fs.kill_clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SLACK_BYTES", 500)
        for number in range(60):
            a.append("x" * 1000, number)
            await a.rest()
            for _ in runtime_of(a).engine.tidy():
                await a.write_disk()
            pair.time.pass_s(60)
            while a.replication.tidy_step() == 0.0:
                pass
    b = pair.standby("b", fs=disk)
    await pair.until(lambda: phase(b) is Phase.STANDBY)
    assert len(shown(b)) == 20
    assert b.fs.listdir("data/jobs.discarded-1")
    await pair.end()


@fleet_test
async def test_only_the_writer_fires_schedules_and_the_next_writer_continues() -> None:
    pair = Pair()
    pair.a.start()
    await pair.a.put()
    options = ScheduleOptions(
        "a", b'{"data":1}', pack([wish(1)]), every_ms=3_600_000, catch_up="all"
    )
    made = pair.a.ask(cmd.PutSchedule("s", options))
    await pair.a.rest()
    assert made.is_granted()
    b = pair.standby("b")
    await pair.until(lambda: phase(b) is Phase.STANDBY and schedules_of(b))
    pair.time.pass_s(2 * 3600)
    firing = dispatcher_of(b).firing
    assert firing.next_look() is None and firing.step() == ()
    assert dispatcher_of(pair.a).firing.step(1)
    await pair.a.rest()
    await pair.until(lambda: len(shown(b)) == 1)
    promoted = asyncio.get_running_loop().create_task(runtime_of(b).promote(None, force=True))
    await pair.until(promoted.done)
    dispatcher_of(b).firing.step()
    await pair.until(lambda: len(shown(b)) == 2)
    times = [json.loads(texts[3])["scheduled_for"] for texts in texts_of(b)]
    assert times[1] - times[0] == 3_600_000
    dispatcher_of(pair.a).firing.step()
    await pair.end()


def dispatcher_of(machine: Machine) -> Dispatcher:
    """What decides there, or follows."""
    dispatcher = runtime_of(machine).service.lifecycle.dispatcher
    assert dispatcher is not None
    return dispatcher


def schedules_of(machine: Machine) -> int:
    """How many schedules a standby knows."""
    engine = runtime_of(machine).service.engine
    return len(engine.state.schedules) if engine is not None else 0


def texts_of(machine: Machine) -> list[tuple[bytes, ...]]:
    """The records of the topic `a`."""
    batches = machine.state.topics["a"].batches
    return [texts for batch in batches for _, _, texts in batch.records()]
