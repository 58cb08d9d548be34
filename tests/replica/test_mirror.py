"""The segment files of a standby: the bytes of the writer, whatever interrupts their growth."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from logqueue.replica.mirror import MirrorDiverged, MirrorStale, ReplicaMirror
from logqueue.replica.object_store import StoreError
from logqueue.replica.reading import ReplicaReader
from logqueue.server.storage import compaction
from logqueue.server.storage.replica_note import begin_empty, has_logs
from logqueue.testing.simulated_store import SOME_FAULTS, SimulatedObjects, SimulatedStore
from tests.effort import scaled
from tests.replica.fleet import FleetTime, Machine, fleet_test
from wal import read_whole, segment_ids, segment_path
from wal.testing.simfs import SimCrash, SimFileSystem

SEEDS = range(scaled(6, 150))
LOGS = ("jobs", "leases")


class LocalCopy:
    """A mirror on a disk that may crash."""

    def __init__(self, shared: SimulatedObjects, time: FleetTime, seed: int) -> None:
        self.rng = Random(seed)
        self.fs = SimFileSystem(Random(seed))
        self.store = SimulatedStore(
            shared, caller="copy", seed=seed, faults=SOME_FAULTS, pause=time.pass_s
        )
        self.reader = ReplicaReader(self.store, pause=time.pass_s)
        self.restarts = 0
        self.mirror = ReplicaMirror(self.reader, self.fs, "data")

    def grow(self, *, may_crash: bool) -> bool:
        """Catch up, unless something comes between. Whether it has."""
        if may_crash:
            self.fs.crash_after(self.rng.randrange(40))
        try:
            if not has_logs(self.fs, "data"):
                begin_empty(self.fs, "data")
            for _ in self.mirror.catch_up():
                pass
        except StoreError:
            return False
        except MirrorStale:
            self.mirror.wipe()
            return False
        except SimCrash:
            self.restart()
            return False
        if may_crash:
            self.fs.crash_after(1 << 40)
        return True

    def restart(self) -> None:
        """As after a kill, or a power cut."""
        self.restarts += 1
        fs = self.fs
        is_kill = self.rng.random() < 0.5
        self.fs = fs.kill_clone() if is_kill else fs.crash_clone(Random(self.rng.random()))
        self.mirror = ReplicaMirror(self.reader, self.fs, "data")


def files(fs: SimFileSystem, log: str) -> dict[int, bytes]:
    """The segment files of a log, without the space behind their frames."""
    directory = f"data/{log}"
    found = {id: read_whole(fs, segment_path(directory, id)) for id in segment_ids(fs, directory)}
    return {id: data.rstrip(b"\0") for id, data in found.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_files_are_those_of_the_writer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    rng = Random(seed)

    async def scene() -> None:
        time, shared = FleetTime(), SimulatedObjects()
        a = Machine("a", shared, time, seed=seed)
        a.start()
        await a.put()
        copy = LocalCopy(shared, time, seed)
        grown = 0
        for _ in range(60):
            for number in range(rng.randrange(4)):
                a.append("x" * rng.choice((5, 300, 1500)), number)
            await a.rest()
            time.pass_s(rng.choice((0.1, 1.0, 30.0)))
            if rng.random() < 0.4:
                a.replication.tidy_step()
            if rng.random() < 0.05:
                await a.stop()
                a.start()
            if rng.random() < 0.6 and copy.grow(may_crash=rng.random() < 0.4):
                grown += 1
        await a.rest()
        while not copy.grow(may_crash=False):
            pass
        assert grown
        for log in LOGS:
            ours, theirs = files(copy.fs, log), files(a.fs, log)
            assert ours.keys() >= {id for id in theirs if id >= min(ours)}, log
            for id in ours.keys() & theirs.keys():
                assert ours[id] == theirs[id], f"{log} {id}"

    fleet_test(scene)()


@fleet_test
async def test_other_frames_are_refused_and_stay() -> None:
    time, shared = FleetTime(), SimulatedObjects()
    a = Machine("a", shared, time, mode="async")
    a.start()
    await a.put()
    time.pass_s(2)
    await a.rest()
    a.append("only here")
    await a.write_disk()
    disk = a.fs.kill_clone()
    before = files(disk, "jobs")
    mirror = ReplicaMirror(ReplicaReader(a.store, pause=time.pass_s), disk, "data")
    with pytest.raises(MirrorDiverged, match="frames up to"):
        for _ in mirror.catch_up():
            pass
    assert files(disk, "jobs") == before
    with suppress(MirrorDiverged):
        mirror.close()
