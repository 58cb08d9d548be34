"""What blocks on the disk is done beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.model.config import TopicOptions
from logqueue.server.engine.background import leases_flushed
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.runtime import Runtime, open_core
from logqueue.server.settings import Settings
from logqueue.server.storage import compaction
from logqueue.server.storage import journal as journals
from logqueue.server.storage.housework import Housework
from tests.core.world import job, pack
from tests.portrait import portrait
from wal import Log, OsFileSystem
from wal.files import OsFile
from wal.log import ALLOCATION_STEP_BYTES

SEGMENT = 64 << 10


class Watched(OsFileSystem):
    """The disk, counting what the main thread does to it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, kind: str) -> None:
        """Count an operation."""
        if threading.current_thread() is threading.main_thread():
            self.counts[kind] += 1

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """See FileSystem."""
        return WatchedFile(self, super().open(path, writable=writable))

    def create(self, path: str) -> OsFile:
        """See FileSystem."""
        return WatchedFile(self, super().create(path))

    def remove(self, path: str) -> None:
        """See FileSystem."""
        self.note("remove")
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.note("sync_dir")
        super().sync_dir(path)


class WatchedFile(OsFile):
    """A file of it."""

    def __init__(self, disk: Watched, file: OsFile) -> None:
        super().__init__(file._fd, file._directory)
        self._disk = disk

    def sync(self) -> None:
        """See File."""
        self._disk.note("sync")
        super().sync()

    def allocate(self, offset: int, length: int) -> None:
        """See File."""
        self._disk.note("allocate")
        super().allocate(offset, length)


async def claimed(engine: Engine, dispatcher: Dispatcher, rounds: int) -> None:
    """Write, claim and ack in a loop's turns."""
    for _ in range(rounds):
        outcome = engine.execute(cmd.Append("q", pack([job("x" * 2000)] * 4), 4))
        await dispatcher.barrier.wait(outcome.written, outcome.durable)
        claimed = engine.execute(cmd.ClaimJobs("q", (cmd.Claimer("w", 4, None, 0),))).result
        engine.execute(cmd.AckJobs("q", "w", [found.seq for found in claimed.jobs[0]], None))
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small things are worth the trouble."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 1000)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 4 * SEGMENT)
    monkeypatch.setattr(journals, "LEASES_SEGMENT_BYTES_MAX", 6000)
    return iter(())


def test_the_loop_neither_syncs_nor_removes(tmp_path: Path) -> None:
    async def run() -> None:
        disk = Watched()
        settings = Settings(data_dir=str(tmp_path / "data"), segment_max_bytes=SEGMENT)
        runtime = Runtime(settings, fs=disk)
        runtime.recover()
        dispatcher, engine = runtime.begin(), runtime.engine
        config = TopicOptions(type="queue", durability="fsync", leases_durable=True)
        engine.execute(cmd.PutTopic("q", config))
        disk.counts.clear()
        await claimed(engine, dispatcher, 60)
        await leases_flushed(engine.journal)
        for _ in engine.tidy():
            await asyncio.sleep(0.001)
        journal = engine.journal
        assert journal.jobs.segments()[0].id > 1, "segments were dropped"
        assert journal.leases.stats.rotations > 2, "segments of the leases log were sealed"
        assert {"remove", "sync", "sync_dir"}.isdisjoint(disk.counts), disk.counts
        before = portrait(engine.state)["q"]["records"]
        runtime.drain()
        await runtime.stop()
        again = open_core(settings, engine.clock).engine
        check(again.state)
        assert portrait(again.state)["q"]["records"] == before
        again.close()

    asyncio.run(run())


def test_space_is_reserved_before_it_is_needed(tmp_path: Path) -> None:
    disk = Watched()
    log = Log.open(str(tmp_path), fs=disk)
    log.append(b"x" * 1000, sync=False)
    assert disk.counts["allocate"] == 1, "the first one has nothing to go by"
    helper = threading.Thread(target=lambda: None)
    for _ in range(40):
        log.append(b"x" * (400 << 10), sync=False)
        if log.is_short_of_space:
            helper = threading.Thread(target=log.reserve_ahead)
            helper.start()
            helper.join()
        log.step()
    assert log.bytes_total > 3 * ALLOCATION_STEP_BYTES
    assert disk.counts["allocate"] == 1
    log.close()
    assert Log.open(str(tmp_path)).appended == 41


def test_reserving_never_touches_a_sealed_segment(tmp_path: Path) -> None:
    log = Log.open(str(tmp_path))
    log.append(b"x", sync=False)
    log.step()
    sealed = log._active
    log.roll()
    log.step()
    size = Path(sealed.path).stat().st_size
    assert not sealed.reserve_ahead(size, size + ALLOCATION_STEP_BYTES)
    assert Path(sealed.path).stat().st_size == size
    log.close()
    log.reserve_ahead()


def test_housework_tells_what_went_wrong() -> None:
    def fail() -> None:
        raise OSError("no")

    housework = Housework()
    with pytest.raises(OSError):
        housework.begin_task("a", fail)
    housework.begin()
    with pytest.raises(OSError):
        for _ in housework.through("a", fail):
            pass
    done: list[int] = []
    for _ in housework.through("a", lambda: done.append(1)):
        pass
    assert done == [1]
    housework.end()
    housework.end()
