"""What a writer says while its store fails: a replica that lacks frames is not current."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from logqueue.replica.frame_source import FramesMissing, JournalFrames
from logqueue.replica.manifest import HEARTBEAT_KEY, MANIFEST_KEY, ReplicaManifest
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectMissing
from logqueue.replica.reading import ReplicaReader
from logqueue.replica.takeover import take_over
from logqueue.replica.upkeep import ManifestLost
from logqueue.testing.simulated_store import SimulatedObjects
from tests.replica.fleet import FleetTime, Machine, fleet_test
from tests.replica.test_writing import ME, Clock, make, start
from tests.segments.histories import History


def machine(mode: str) -> Machine:
    """A server on a disk of its own."""
    return Machine("a", SimulatedObjects(), FleetTime(), mode=mode)


@fleet_test
async def test_a_writer_without_work_says_that_its_store_is_away() -> None:
    """Looking for frames and finding none says nothing of the store."""
    a = machine("async")
    a.start()
    await a.rest()
    a.store.is_cut_off = True
    for _ in range(40):
        a.time.pass_s(0.3)
        await a.ship()
        if a.replication.stats.put_failures:
            assert a.replication.state() == "behind"
    assert a.replication.stats.put_failures > 5
    a.store.is_cut_off = False
    for _ in range(5):
        a.time.pass_s(1)
        await a.ship()
    assert a.replication.state() == "current"


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_no_chunk_is_added_to_a_replica_that_was_removed(mode: str) -> None:
    @fleet_test
    async def scene() -> None:
        a = machine(mode)
        a.start()
        await a.put()
        await a.rest()
        objects = a.store.shared.objects
        manifest = objects.get(MANIFEST_KEY).data
        objects.delete([MANIFEST_KEY, HEARTBEAT_KEY])
        a.time.pass_s(1)
        await a.ship()
        asked = a.append(1)
        last = a.replication.writer.end.number
        for _ in range(10):
            await a.write_disk()
            a.time.pass_s(0.4)
            await a.ship()
        assert a.replication.writer.end.number == last
        assert a.replication.state() == "behind"
        assert "manifest" in a.replication.stats.last_error
        assert asked.is_granted() is (mode == "async")
        with pytest.raises(ObjectMissing):
            objects.get(HEARTBEAT_KEY)
        objects.create(MANIFEST_KEY, manifest)
        for _ in range(5):
            a.time.pass_s(1)
            await a.ship()
        assert asked.is_granted()
        assert a.replication.state() == "current"

    scene()


@fleet_test
async def test_frames_that_cannot_be_read_are_reported() -> None:
    a = machine("async")
    a.start()
    await a.rest()
    source = a.replication.writer._source
    assert isinstance(source, JournalFrames)

    def fail(*args: object) -> None:
        raise FramesMissing("frame 7 is not there")

    a.append(1)
    await a.write_disk()
    source.runs_after = fail  # type: ignore[assignment,method-assign]
    a.time.pass_s(3)
    await a.ship()
    assert a.replication.state() == "behind"
    assert a.replication.stats.last_error == "frame 7 is not there"


def test_a_change_replaces_the_version_that_it_was_made_of() -> None:
    """A candidate did not come: the writer begins a new epoch in one thread, while the other one
    makes a manifest of the epoch before."""
    journal = History(3).live(20).engine.journal
    store, clock = MemoryStore("memory://two-threads"), Clock()
    make(store, journal)
    writer = start(store, journal, clock)

    def changed(manifest: ReplicaManifest) -> ReplicaManifest:
        if manifest.epoch == 1:
            again = take_over(store, ME, writer.end, lambda chunks, end: None)
            writer._upkeep.adopt(again.stored)
        return msgspec.structs.replace(manifest, is_released=True)

    with suppress(ManifestLost):
        writer._upkeep.change(changed)
    assert ReplicaReader(store).manifest().manifest.epoch == 2
