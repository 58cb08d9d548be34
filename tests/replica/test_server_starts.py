"""A server and its replica: starts of all kinds, promises in sync mode, and who is refused when."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logqueue.core import commands as cmd
from logqueue.errors import Fenced, ReplicaUnavailable
from logqueue.model.config import TopicOptions
from logqueue.replica import writing
from logqueue.replica.memory_store import MemoryStore
from logqueue.server.runtime import Runtime
from logqueue.server.service import Phase
from logqueue.server.settings import Settings
from logqueue.server.storage.replica_start import ReplicaRefused
from logqueue.testing.simulated_store import NO_FAULTS, SimulatedObjects, StoreFaults
from tests.core.world import keyed, pack, wish
from tests.replica.fleet import Fleet, Machine, fleet_test
from wal import WalCorrupt


@fleet_test
async def test_a_burnt_machine_loses_nothing_in_sync_mode() -> None:
    fleet = Fleet()
    a = fleet.a
    a.start()
    await a.put()
    asked = a.append(1, 2)
    await a.write_disk()
    assert not asked.is_granted(), "the replica does not have it yet"
    await a.rest()
    assert asked.is_granted()
    a.burn()
    a.start()
    assert a.values() == [1, 2]
    assert a.replication.writer.epoch == 2


@fleet_test
async def test_a_reply_waits_for_the_disk_alone_in_async_mode() -> None:
    fleet = Fleet("async")
    a = fleet.a
    a.start()
    asked = a.append(1)
    await a.write_disk()
    assert asked.is_granted()
    a.burn()
    a.start()
    assert a.values() == []


@fleet_test
async def test_async_frames_are_shipped_after_their_lag() -> None:
    fleet = Fleet("async")
    a = fleet.a
    a.start()
    await a.rest()
    shipped = a.replication.stats.puts
    a.append(1)
    await a.write_disk()
    assert await a.ship() > 0
    assert a.replication.stats.puts == shipped
    fleet.time.pass_s(1.0)
    await a.ship()
    assert a.replication.stats.puts == shipped + 1
    assert a.replication.frames_behind == 0


@fleet_test
async def test_large_amounts_do_not_wait_for_the_lag() -> None:
    fleet = Fleet("async", replica_lag_ms=3_600_000, segment_max_bytes=1 << 30)
    a = fleet.a
    a.start()
    await a.rest()
    for _ in range(20):
        a.append("x" * 65_000)
        await a.write_disk()
    await a.ship()
    assert a.replication.writer.waiting_bytes < 1 << 20


@fleet_test
async def test_a_directory_that_is_ahead_is_uploaded() -> None:
    fleet = Fleet("async")
    a = fleet.a
    a.start()
    await a.rest()
    a.append(1)
    await a.write_disk()
    a.kill()
    a.start(replica_mode="sync")
    assert a.values() == [1]
    a.burn()
    a.start()
    assert a.values() == [1]


@fleet_test
async def test_what_a_power_cut_took_comes_back_from_the_replica() -> None:
    """Frames are shipped as soon as they are written, before they are synced."""
    fleet = Fleet()
    a = fleet.a
    a.start()
    await a.rest()
    runtime = a.runtime
    assert runtime is not None
    asked = a.append(1)
    await a.turn()
    log = runtime.engine.journal.jobs
    with log._lock:
        batches = log._committer._take()
    log._committer._round(batches, sync=False)
    a.replication.ship_all()
    synced = log.durable
    assert a.replication.progress.committed > synced
    await a.turn()
    assert not asked.is_granted(), "not synced"
    for _ in range(8):
        fs = a.fs
        a.cut_power()
        a.start()
        assert a.values() == [1]
        a.kill()
        a.fs = fs


@fleet_test
async def test_a_server_that_was_replaced_is_refused_with_what_is_at_stake() -> None:
    fleet = Fleet("async")
    a, b = fleet.a, fleet.b
    a.start()
    fleet.time.pass_s(2)
    await a.rest()
    a.append(1, 2)
    a.append(3)
    await a.write_disk()
    a.kill()
    before = a.fs.contents()
    b.start()
    b.append(9)
    fleet.time.pass_s(2)
    await b.rest()
    b.kill()
    with pytest.raises(ReplicaRefused) as refused:
        a.start()
    assert "with 3 records and 0 acks" in str(refused.value)
    assert "--discard-local" in str(refused.value)
    after = a.fs.contents()
    assert {p: d for p, d in after.items() if "LOCK" not in p} == {
        p: d for p, d in before.items() if "LOCK" not in p
    }
    a.runtime = None
    a.start(discard_local=True)
    assert a.values() == [9]
    kept = [path for path in a.fs.contents() if path.startswith("data/jobs.discarded-1/")]
    assert kept


@fleet_test
async def test_a_takeover_alone_is_enough_to_refuse() -> None:
    """The other server may have promised what its replica does not have."""
    fleet = Fleet("async")
    a, b = fleet.a, fleet.b
    a.start()
    fleet.time.pass_s(2)
    await a.rest()
    a.append(1)
    await a.write_disk()
    a.kill()
    b.start()
    b.kill()
    with pytest.raises(ReplicaRefused, match=r"another server \(http://b:4000\) has taken over"):
        a.start()


@fleet_test
async def test_a_server_that_lacks_what_another_has_written_catches_up() -> None:
    fleet = Fleet()
    a, b = fleet.a, fleet.b
    a.start()
    a.append(1)
    await a.rest()
    a.kill()
    b.start()
    for value in range(2, 200):
        b.append(value)
        await b.rest()
    b.kill()
    a.start()
    assert a.values() == [*range(1, 200)]


@fleet_test
async def test_logs_that_ran_without_the_replica_are_compared_again() -> None:
    """The note of the directory says nothing of frames that were written since."""
    fleet = Fleet()
    a = fleet.a
    a.start()
    a.append(1)
    await a.rest()
    await a.stop()
    files = a.fs.kill_clone()
    a.start()
    a.append(2)
    await a.rest()
    await a.stop()
    # The same directory, as it was before, goes on alone: its frames have the same numbers.
    a.fs = files
    a.start(replica=None, replica_mode="async")
    runtime = a.runtime
    assert runtime is not None
    a.append(3)
    await a.turn()
    while runtime.engine.journal.jobs.step():
        pass
    a.kill()
    with pytest.raises(ReplicaRefused, match="has other frames of the same numbers"):
        a.start()


@fleet_test
async def test_another_log_is_refused() -> None:
    fleet = Fleet()
    fleet.a.start()
    fleet.a.kill()
    fleet.b.start(replica=None, replica_mode="async")
    fleet.b.kill()
    with pytest.raises(ReplicaRefused, match="is the replica of another log"):
        fleet.b.start()


@fleet_test
async def test_a_store_that_cannot_be_reached_ends_the_start() -> None:
    fleet = Fleet()
    fleet.a.store.is_cut_off = True
    with pytest.raises(ReplicaRefused, match="cannot be reached or used"):
        fleet.a.start()


# -- while the replica is away ---------------------------------------------------------------------


@fleet_test
async def test_replies_that_wait_too_long_are_refused_and_changes_with_them() -> None:
    fleet = Fleet()
    a = fleet.a
    runtime = a.start()
    watch = runtime.replica_watch
    assert watch is not None
    await a.put()
    a.append(0)
    await a.rest()
    a.store.is_cut_off = True
    first = a.append(1)
    await a.write_disk()
    watch.tick()
    fleet.time.pass_s(6)
    await a.ship()
    second = a.append(2)
    await a.write_disk()
    watch.tick()
    fleet.time.pass_s(6)
    watch.tick()
    await a.turn()
    assert isinstance(first.refusal, ReplicaUnavailable)
    assert second.refusal is None, "it has waited for 6 s of 10"
    with pytest.raises(ReplicaUnavailable):
        runtime.service.require_ready()
    logged = runtime.engine.journal.jobs.appended
    third = a.append(3)
    await a.write_disk()
    assert isinstance(third.refusal, ReplicaUnavailable)
    assert "nothing was stored" in third.refusal.message
    assert runtime.engine.journal.jobs.appended == logged
    a.store.is_cut_off = False
    fleet.time.pass_s(1)
    watch.tick()
    await a.rest()
    assert second.is_granted()
    watch.tick()
    runtime.service.require_ready()
    fourth = a.append(4)
    await a.rest()
    assert fourth.is_granted()
    assert a.values() == [0, 1, 2, 4]


@fleet_test
async def test_an_async_server_works_on_and_says_when_it_is_too_far_behind() -> None:
    fleet = Fleet("async", replica_lag_max_ms=30_000)
    a = fleet.a
    runtime = a.start()
    await a.rest()
    a.store.is_cut_off = True
    for value in range(5):
        asked = a.append(value)
        await a.write_disk()
        assert asked.is_granted()
        fleet.time.pass_s(8)
        await a.ship()
        assert a.replication.state() == "behind"
        if value < 3:
            runtime.service.require_ready()
    with pytest.raises(ReplicaUnavailable) as late:
        runtime.service.require_ready()
    assert late.value.detail is not None
    assert late.value.detail["replica"]["state"] == "behind"
    a.store.is_cut_off = False
    fleet.time.pass_s(8)
    await a.ship()
    runtime.service.require_ready()
    assert a.replication.state() == "current"
    a.burn()
    a.start()
    assert a.values() == [*range(5)]


# -- fencing -------------------------------------------------------------------------------------


@fleet_test
async def test_a_zombie_says_yes_to_no_client() -> None:
    fleet = Fleet()
    a, b = fleet.a, fleet.b
    runtime = a.start()
    await a.put()
    a.append(1)
    await a.rest()
    waiting = a.append(2)
    await a.write_disk()
    b.start()
    b.append(3)
    await b.rest()
    fenced: list[bool] = []
    runtime.on_fenced = lambda: fenced.append(True)
    await a.ship()
    assert fenced == [True]
    assert isinstance(waiting.refusal, Fenced)
    assert runtime.service.phase is Phase.FENCED
    with pytest.raises(Fenced) as refused:
        a.append(4)
    assert refused.value.detail == {"writer": "http://b:4000"}
    assert await a.ship() > 100
    runtime.drain()
    await runtime.abort()
    assert b.values() == [1, 3]


@fleet_test
async def test_a_start_tries_a_store_that_fails_now_and_then_again() -> None:
    fleet = Fleet(faults=StoreFaults(lost_before=0.05, lost_after=0.05))
    a = fleet.a
    for seed in range(5):
        a.store.faults = StoreFaults(lost_before=0.05, lost_after=0.05)
        a.start()
        a.store.faults = NO_FAULTS
        await a.put()
        a.append(seed)
        await a.rest()
        assert a.values() == [*range(seed + 1)]
        a.kill()


@fleet_test
async def test_the_log_drops_nothing_that_the_replica_lacks() -> None:
    fleet = Fleet("async")
    a = fleet.a
    runtime = a.start()
    await a.put()
    a.store.is_cut_off = True
    for value in range(300):
        a.append("x" * 100 + str(value))
        await a.write_disk()
    a.ask(cmd.DeleteRecords("a", 290, None))
    await a.write_disk()

    def tidy() -> None:
        for _ in range(3):
            for _ in runtime.engine.tidy():
                pass

    journal = runtime.engine.journal
    journal.jobs_kept_from = journal.jobs.segment
    before = [info.id for info in journal.jobs.segments()]
    assert len(before) > 2
    assert not runtime.engine.segments.may_drop_before("jobs", before[-1])
    tidy()
    assert [info.id for info in journal.jobs.segments()][: len(before)] == before
    a.store.is_cut_off = False
    fleet.time.pass_s(10)
    while a.replication.frames_behind:
        await a.ship()
        fleet.time.pass_s(1)
    for _ in range(20):
        a.replication.tidy_step()
        fleet.time.pass_s(10)
    assert runtime.engine.segments.may_drop_before("jobs", before[-1])


@fleet_test
async def test_the_archive_may_be_the_history_of_the_replica() -> None:
    """What the log drops, and no moment of the retention needs, stays while its bounds allow."""
    url = "sim://replica"
    fleet = Fleet("async", replica_keep=60_000, archive_dir=url, archive_max_bytes=60_000)
    a = fleet.a
    runtime = a.start()
    await a.put()
    listed: list[int] = []
    sizes = set()
    for value in range(250):
        a.append("x" * 400 + str(value))
        a.ask(cmd.DeleteRecords("a", max(value - 2, 1), None))
        await a.rest()
        fleet.time.pass_s(4)
        kept = runtime.engine.journal.jobs.segments()[max(-4, -value // 8 - 1) :]
        runtime.engine.journal.jobs_kept_from = kept[0].id
        for _ in runtime.engine.tidy():
            await a.write_disk()
        while a.replication.tidy_step() == 0.0:
            pass
        listed = [e.id for e in a.replication.writer.manifest.segments if e.log == "jobs"]
        sizes.add(a.replication.writer.listed[1])
    local = runtime.engine.journal.jobs.segments()
    assert 1 < listed[0] < local[0].id, "the oldest have gone, and others that the log dropped stay"
    assert 30_000 < max(sizes) < 80_000
    history = runtime.engine.segments.history()
    assert history is not None
    manifest = a.replication.writer.manifest
    assert (history.segments, history.failures) == (len(manifest.segments), 0)
    assert history.arrived > history.segments
    assert 0 < manifest.reaches_back_to < fleet.time.clock.now_ms() - 60_000
    places = runtime.engine.segments.places("jobs")
    assert [p.is_archived for p in places] == [p.id <= listed[-1] for p in places]


def test_heartbeats_do_not_wait_for_large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow link a standby would take over from a writer that is only busy."""

    async def scene() -> None:
        fleet = Fleet("async", segment_max_bytes=1 << 26)
        a = fleet.a
        a.start()
        await a.put()
        await a.rest()
        create, put = a.store.create, a.store.put
        beats: list[float] = []
        sizes: list[int] = []

        def slow(key: str, data: bytes) -> str:
            fleet.time.pass_s(len(data) / (1 << 20))
            sizes.append(len(data))
            return create(key, data)

        def beat(key: str, data: bytes) -> None:
            beats.append(fleet.time.now_s)
            put(key, data)

        monkeypatch.setattr(a.store, "create", slow)
        monkeypatch.setattr(a.store, "put", beat)
        for value in range(30):
            a.append("x" * 1_000_000, value)
            await a.write_disk()
        while a.replication.frames_behind:
            fleet.time.pass_s(await a.ship())
        gaps = [later - earlier for earlier, later in pairwise(beats[4:])]
        assert len(beats) > 8 and max(gaps) <= 2.5
        assert sizes[0] > 5 << 20 > 2 << 20 > sizes[-2], "a chunk has one frame at least"
        # As soon as the link is fast again, few chunks are enough.
        monkeypatch.undo()
        for _ in range(8):
            a.append("y")
            await a.rest()
            fleet.time.pass_s(2)
        assert a.replication.writer.chunk_bytes_max == writing.CHUNK_BYTES_MAX

    asyncio.run(scene())


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_topics_that_the_replica_does_not_protect_are_named(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        a = Fleet("sync").a
        a.start()
        assert "of class disk, which is the default" in caplog.text
        await a.put("q", durability=durability)
        await a.rest()
        a.kill()
        caplog.clear()
        a.start()
        assert ("1 topics ('q', …) are of class disk" in caplog.text) == (durability == "disk")

    asyncio.run(scene())


@fleet_test
async def test_in_sync_mode_a_failed_disk_shows_only_what_the_replica_has() -> None:
    fleet = Fleet()
    a = fleet.a
    runtime = a.start()
    await a.put()
    a.append(1)
    await a.write_disk()
    assert not runtime._shows_the_synced()
    await a.rest()
    assert runtime._shows_the_synced()


# -- what is set aside ---------------------------------------------------------------------------


@fleet_test
async def test_damaged_logs_are_restored_when_asked_for() -> None:
    fleet = Fleet()
    a = fleet.a
    a.start()
    await a.put()
    for value in range(200):
        a.append(value)
        await a.rest()
    await a.stop()
    first = "data/jobs/00000000000000000001.wal"
    file = a.fs.open(first, writable=True)
    file.pwrite(b"\xff" * 64, 4200)
    file.sync()
    for heads in [path for path in a.fs.contents() if path.endswith(".heads")]:
        a.fs.remove(heads)
    files = a.fs.kill_clone()
    with pytest.raises(WalCorrupt):
        a.start()
    a.fs = files.kill_clone()
    a.start(discard_local=True)
    assert a.values() == [*range(200)]
    a.kill()
    # Without a replica to go on from, they stay where they are.
    b = fleet.b
    b.store.shared = SimulatedObjects()
    b.fs = files
    with pytest.raises(WalCorrupt):
        b.start(discard_local=True)


@fleet_test
async def test_leases_alone_are_not_worth_a_refusal() -> None:
    """They were never promised: a server whose lease log parted goes on from the replica."""
    fleet = Fleet()
    a, b = fleet.a, fleet.b
    a.start()
    await a.put("q", type="queue", leases_durable=True)
    a.append(1, 2, topic="q")
    await a.rest()
    claimed = a.ask(cmd.ClaimJobs("q", (cmd.Claimer("w", 1, 60_000),)))
    await a.write_disk()
    assert claimed.is_granted()
    a.kill()
    b.start()
    await b.rest()
    b.kill()
    a.start()
    assert a.state.queue("q").ready == 2
    assert [path for path in a.fs.contents() if "/leases.discarded-1/" in path]


@pytest.mark.parametrize("values", [(), (7, 8)])
def test_a_leases_log_that_was_set_aside_here_is_named(values: tuple[int, ...]) -> None:
    """Damage in the leases log alone was set aside by a start without the replica."""

    async def scene() -> None:
        fleet = Fleet()
        a = fleet.a
        a.start()
        await a.put("q", type="queue", leases_durable=True)
        await a.put()
        a.append(1, 2, topic="q")
        await a.rest()
        a.kill()
        for path in [path for path in a.fs.contents() if path.startswith("data/leases/")]:
            a.fs.remove(path)
        runtime = a.start(replica=None, replica_mode="async", set_damage_aside=True)
        if values:
            a.append(*values)
        await a.turn()
        while runtime.engine.journal.jobs.step():
            pass
        a.kill()
        if values:
            stake = "with 2 records and 0 acks.*its leases log is no longer.*--discard-local"
            with pytest.raises(ReplicaRefused, match=stake):
                a.start()
        # What only the leases log has was never promised: nothing is at stake without records.
        a.start(discard_local=bool(values))
        assert (a.state.queue("q").ready, a.values()) == (2, [])
        assert [path for path in a.fs.contents() if "/jobs.discarded-1/" in path]
        await a.rest()
        a.kill()
        a.start()

    asyncio.run(scene())


@fleet_test
async def test_a_fenced_server_leaves_its_directory_as_it_is() -> None:
    """One more frame, and the next start is refused: it would be one that only this machine has."""
    fleet = Fleet()
    a, b = fleet.a, fleet.b
    runtime = a.start()
    await a.put()
    await a.put("quick", durability="disk")
    a.append(1)
    await a.rest()
    b.start()
    await b.rest()
    fleet.time.pass_s(2)
    await a.ship()
    assert runtime.service.phase is Phase.FENCED
    journal, watch = runtime.engine.journal, runtime.replica_watch
    assert watch is not None
    appended = [log.appended for log in journal.logs.values()]
    a.store.is_cut_off = True
    for _ in range(5):
        fleet.time.pass_s(5)
        watch.tick()
        # What timers and background work do, and requests that were let in before.
        for topic in ("a", "quick"):
            records = [wish(2)]
            command = cmd.Append(topic, pack(records), 1, keyed=keyed(records))
            with pytest.raises(ReplicaUnavailable):
                runtime.engine.execute(command)
    assert [log.appended for log in journal.logs.values()] == appended
    runtime.drain()
    await runtime.abort()
    a.runtime = None
    a.store.is_cut_off = False
    a.start()
    assert a.values() == [1]


# -- with threads --------------------------------------------------------------------------------


class GatedStore(MemoryStore):
    """Creates nothing while its gate is shut."""

    def __init__(self) -> None:
        super().__init__("memory://gated")
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def create(self, key: str, data: bytes) -> str:
        if not self.gate.is_set():
            self.waiting.set()
            self.gate.wait(60)
        return super().create(key, data)


def test_a_store_that_does_not_answer_for_a_while(tmp_path: Path) -> None:
    store = GatedStore()
    settings = Settings(
        data_dir=str(tmp_path / "data"),
        replica="memory://gated",
        replica_mode="sync",
        replica_timeout_ms=200,
    )

    async def scene() -> None:
        runtime = Runtime(settings, open_store=lambda url: store)
        runtime.recover()
        dispatcher = runtime.begin()

        async def append(value: int) -> Any:
            append = cmd.Append("a", pack([wish(value)]), 1)
            pending = dispatcher.submit(append, lambda _, result, spent: result, None)
            await pending.ready()
            return pending.answer()

        options = msgspec.convert({"durability": "fsync"}, TopicOptions).resolved()
        made = dispatcher.submit(cmd.PutTopic("a", options), lambda _, r, s: r, None)
        await made.ready()
        assert (await append(1)).first_seq == 1
        store.gate.clear()
        late = asyncio.create_task(append(2))
        await asyncio.get_running_loop().run_in_executor(None, store.waiting.wait)
        with pytest.raises(ReplicaUnavailable, match="whether it will be there"):
            await late
        with pytest.raises(ReplicaUnavailable, match="nothing was stored"):
            await append(3)
        store.gate.set()
        assert runtime.replication is not None
        while runtime.replication.frames_behind:
            await asyncio.sleep(0.01)
        while runtime.engine.journal.unpromisable:
            await asyncio.sleep(0.01)
        assert (await append(4)).first_seq == 3
        runtime.drain()
        await runtime.stop()
        assert not runtime.replication.frames_behind

    asyncio.run(scene())


@fleet_test
async def test_the_archive_has_the_log_that_the_replica_has() -> None:
    """The machine burns, its archive is on another disk: what was sealed here alone is written
    otherwise by the next server, and that must not be taken for archived already."""
    fleet = Fleet("async", archive_dir="archive")
    a = fleet.a
    runtime = a.start()
    await a.put()
    a.append(*range(5))
    await a.rest()
    a.store.is_cut_off = True
    runtime.engine.journal.checkpoint(a.state, fleet.time.clock.now_ms())
    a.append(5)
    await a.write_disk()

    def archived(machine: Machine) -> list[str]:
        assert machine.runtime is not None
        core = machine.runtime._core
        assert core is not None
        assert core.archiver is not None
        for _ in core.archiver.steps(fleet.time.clock.now_ms()):
            pass
        return [path for path in machine.fs.contents() if path.startswith("archive/jobs/0")]

    assert not archived(a)
    a.store.is_cut_off = False
    fleet.time.pass_s(5)
    await a.rest()
    assert archived(a)


def test_logs_begin_segments_so_that_chunks_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CHUNKS_BEHIND_MAX", 8)
    monkeypatch.setattr(writing, "ROLL_EVERY_S", 4.0)

    async def scene() -> None:
        fleet = Fleet(segment_max_bytes=1 << 24)
        a = fleet.a
        runtime = a.start()
        assert runtime.replica_watch is not None
        await a.put("q", type="queue")
        most = 0
        for value in range(100):
            a.append(value, topic="q")
            await a.rest()
            a.ask(cmd.ClaimJobs("q", (cmd.Claimer("w", 1, 60_000),)))
            await a.rest()
            fleet.time.pass_s(4)
            a.replication.tidy_step()
            runtime.replica_watch.tick()
            most = max(most, a.replication.writer.chunks_behind)
        assert most < 20
        assert runtime.engine.journal.jobs.segment < 50, "no segment for nothing"
        # While the store is away, nothing is gained by more segments.
        a.store.is_cut_off = True
        before = runtime.engine.journal.jobs.segment, runtime.engine.journal.leases.segment
        for _ in range(20):
            a.replication.tidy_step()
            runtime.replica_watch.tick()
        after = runtime.engine.journal.jobs.segment, runtime.engine.journal.leases.segment
        assert after[0] - before[0] <= 1 and after[1] - before[1] <= 1

    asyncio.run(scene())
