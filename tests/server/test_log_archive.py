"""The log archive on a simulated disk: what comes in, what goes, what is refused, what fails."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from logqueue.segments.history import TOGETHER
from logqueue.segments.index import decode_index
from logqueue.server.storage import compaction
from logqueue.server.storage.archive import ArchiveLocked, ArchiveRefused, LogArchive
from logqueue.server.storage.segment_store import LOG_NAMES
from tests.clock import ManualClock
from tests.core.world import START_MS, Bounds, World
from tests.sim.archived import segments
from wal.format import SegmentHeader, encode_header
from wal.segment import segment_path
from wal.testing.simfs import Op, SimFileSystem

ALL = Bounds()


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def new_world(bounds: Bounds = ALL, fs: SimFileSystem | None = None) -> World:
    """A server with an archive and one queue."""
    world = World(fs, archive=bounds, clock=ManualClock(START_MS))
    if "q" not in world.state.topics:
        world.put(durability="fsync")
    return world


def work(world: World, rounds: int) -> None:
    """Jobs come, are done, and leave nothing but garbage; then the logs write all they have."""
    for _ in range(rounds):
        world.write("q", *["x" * 150] * 6)
        world.ack(*world.take(6))
        world.wait(10)
    world.step()


def ids(world: World, place: str, log: str = "jobs") -> list[int]:
    """The segments in the log (`data`) or the archive."""
    return [*segments(world.fs, log, place)]


def disk_full(op: Op) -> OSError | None:
    """The archive's disk is full; the log's is not."""
    if op.path.startswith("archive/") and op.kind in ("link", "pwrite", "create"):
        return OSError(errno.ENOSPC, "no space")
    return None


def links_fail_with(number: int) -> Callable[[Op], OSError | None]:
    """No file can have a second name."""
    return lambda op: OSError(number, "") if op.kind == "link" else None


# -- in --------------------------------------------------------------------------------------------


def test_what_is_sealed_is_archived_and_then_may_go() -> None:
    world = new_world()
    work(world, 6)
    sealed = ids(world, "data")[:-1]
    assert len(sealed) >= 3 and not ids(world, "archive")
    world.tidy()
    assert ids(world, "data")[0] == 1, "nothing is dropped that is not archived"
    world.keep()
    world.tidy()
    assert ids(world, "archive")[: len(sealed)] == sealed
    assert ids(world, "data")[0] > len(sealed)
    contents = world.fs.contents()
    for id in ids(world, "archive"):
        path = segment_path("archive/jobs", id)
        index = decode_index(contents[path + ".idx"])
        assert (index.segment, index.bytes) == (id, len(contents[path]))
    all_kept = [data for log in LOG_NAMES for data in segments(world.fs, log, "archive").values()]
    assert world.archive.archived == world.archive.count == len(all_kept)
    assert world.archive.bytes_total == sum(map(len, all_kept))


def test_history_of_leases_is_archived_before_it_goes() -> None:
    world = new_world()
    work(world, 60)
    world.keep()
    # What the jobs log said of topics is in its indexes now, and no longer in memory.
    world.kill()
    world.tidy()
    assert ids(world, "data", "leases")[0] == 1
    rolled = ids(world, "data", "leases")
    world.tidy()
    assert ids(world, "data", "leases") == rolled, "it does not begin anew again and again"
    world.keep()
    world.tidy()
    kept = ids(world, "archive", "leases")
    assert kept == [*range(1, kept[-1] + 1)] and ids(world, "data", "leases")[0] == kept[-1] + 1
    contents = world.fs.contents()
    index = decode_index(contents[segment_path("archive/leases", kept[0]) + ".idx"])
    (part,) = index.topics
    assert part.name == "q" and part.events > 0, "the jobs log told the name"


def test_a_segment_whose_successor_is_not_begun_is_not_taken() -> None:
    world = new_world()
    jobs = world.engine.journal.jobs
    jobs.roll()
    world.keep()
    assert not ids(world, "archive")
    world.step()
    world.keep()
    assert ids(world, "archive") == [1]


def test_names_left_by_a_killed_process_count_once_they_are_durable() -> None:
    world = new_world()
    work(world, 6)
    world.tidy()
    # Killed behind the links and before the sync of the directory.
    sealed = ids(world, "data")[:-1]
    for id in sealed:
        world.fs.link(*[segment_path(f"{place}/jobs", id) for place in ("data", "archive")])
    world.kill()
    world.tidy()
    assert ids(world, "data")[0] > 1, "these are archived"
    for seed in range(20):
        left = segments(world.fs.crash_clone(Random(seed)), "jobs")
        assert [*left] == [*range(1, max(left) + 1)]


def test_a_copy_where_no_link_can_be(caplog: pytest.LogCaptureFixture) -> None:
    for number in (errno.EXDEV, errno.EPERM, errno.ENOTSUP):
        world = new_world()
        world.fs.fail_when(links_fail_with(number))
        work(world, 6)
        world.keep()
        kept = segments(world.fs, "jobs", "archive")
        here = segments(world.fs, "jobs", "data")
        assert kept and all(here[id] == data for id, data in kept.items())
        assert world.archive.failures == 0 and not caplog.records


# -- when it fails ---------------------------------------------------------------------------------


def test_a_full_disk_in_the_archive(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is dropped, work goes on, it is told once, and all is well when there is space."""
    world = new_world()
    world.fs.fail_when(disk_full)
    with caplog.at_level(logging.WARNING):
        for round in range(4):
            work(world, 4)
            world.keep()
            world.tidy()
            assert ids(world, "data")[0] == 1 and not ids(world, "archive")
            assert world.archive.failures == round + 1
    assert [record.message for record in caplog.records] == [
        "archiving failed and is tried again; the log drops nothing meanwhile: [Errno 28] no space"
    ]
    frames = world.engine.journal.jobs.stats.frames
    for _ in range(3):
        world.tidy()
    assert world.engine.journal.jobs.stats.frames == frames, "waiting costs no frames"
    world.fs.fail_when(lambda op: None)
    world.keep()
    world.tidy()
    world.keep()
    world.tidy()
    assert ids(world, "data")[0] > 1 and ids(world, "archive")[0] == 1


def test_records_still_expire_while_archiving_fails() -> None:
    world = new_world()
    world.put("brief", type="log", durability="disk", ttl_ms=100)
    world.fs.fail_when(disk_full)
    work(world, 6)
    world.tidy()
    world.fill(3, "brief")
    world.wait(1000)
    world.tidy()
    assert world.state.topics["brief"].live == 0


@pytest.mark.parametrize("kind", ["sync_dir", "rename", "sync"])
def test_what_fails_is_done_anew(kind: str) -> None:
    world = new_world()
    work(world, 6)
    failed: list[Op] = []

    def once(op: Op) -> OSError | None:
        if op.kind == kind and op.path.startswith("archive") and not failed:
            failed.append(op)
            return OSError(errno.EIO, "bad")
        return None

    world.fs.fail_when(once)
    world.keep()
    assert failed and world.archive.failures == 1
    world.keep()
    assert ids(world, "archive") == ids(world, "data")[:-1]
    for seed in range(10):
        cut = world.fs.crash_clone(Random(seed))
        assert segments(cut, "jobs", "archive") == segments(world.fs, "jobs", "archive")
        assert not [path for path in cut.contents() if path.endswith(".new")]


def test_a_damaged_segment_gets_no_index(caplog: pytest.LogCaptureFixture) -> None:
    world = new_world()
    work(world, 6)
    world.keep(1)
    (id,) = ids(world, "archive")
    path = segment_path("archive/jobs", id)
    world.fs.open(path).pwrite(b"damage", 4096 + 200)
    world.keep()
    world.keep()
    assert path + ".idx" not in world.fs.contents()
    assert [r.message for r in caplog.records if "is damaged" in r.message], "it is told"
    assert sum("is damaged" in r.message for r in caplog.records) == 1


# -- out -------------------------------------------------------------------------------------------


def retired(bounds: Bounds) -> Iterator[World]:
    """A world that works and archives for a while."""
    world = new_world(bounds)
    for _ in range(12):
        work(world, 6)
        world.keep()
        world.tidy()
        world.keep()
        yield world


def test_the_oldest_go_when_there_is_too_much() -> None:
    bound = 40_000
    for world in retired(Bounds(max_bytes=bound)):
        here = ids(world, "data")
        only_archived = [id for id in ids(world, "archive") if id < here[0]]
        assert world.archive.bytes_total <= bound or not only_archived
        for log in ("jobs", "leases"):
            kept = ids(world, "archive", log)
            assert kept == [*range(kept[0], kept[-1] + 1)] if kept else True
    assert ids(world, "archive")[0] > 1
    indexes = [path for path in world.fs.contents() if path.endswith(".idx")]
    assert len(indexes) == world.archive.count, "indexes go with their segments"


def test_the_oldest_go_when_they_are_too_old() -> None:
    for world in retired(Bounds(max_age_ms=150)):
        kept = segments(world.fs, "jobs", "archive")
        here = ids(world, "data")
        for id in kept:
            index = decode_index(world.fs.contents()[segment_path("archive/jobs", id) + ".idx"])
            assert id >= here[0] or index.last_at >= world.now - 150
    assert ids(world, "archive")[0] > 1
    world.restart()
    world.wait(10_000)
    world.keep()
    assert min(ids(world, "archive")) == min(ids(world, "data")), "never what the log still has"


def test_letting_go_does_not_hurt_the_log() -> None:
    world = new_world()
    work(world, 3)
    world.keep()
    world.fs.remove(segment_path("archive/jobs", 1))
    world.kill()
    assert world.topic("q").head == 18


# -- whose it is -----------------------------------------------------------------------------------


def test_an_archive_of_another_log_is_refused() -> None:
    world = new_world()
    work(world, 6)
    world.keep()
    other = SimFileSystem(Random(7))
    for directory in ("archive", "archive/jobs", "data", "data/jobs"):
        other.mkdir(directory)
    stranger = bytearray(segments(world.fs, "jobs", "archive")[1])
    header = b"another log's name"[:16]
    stranger[:4096] = encode_header(SegmentHeader(1, 1, header))
    file = other.create(segment_path("archive/jobs", 1))
    file.pwrite(bytes(stranger), 0)
    file.sync()
    for name in ("00000000000000000002.wal.new", "00000000000000000009.wal", "x.idx"):
        other.create(f"archive/jobs/{name}").pwrite(b"left by a crash", 0)
    before = {path: data for path, data in other.contents().items() if "archive" in path}
    with pytest.raises(ArchiveRefused, match="holds the archive of another log"):
        new_world(fs=other)
    assert "archive/LOCK" not in other.locked
    after = {path: data for path, data in other.contents().items() if "archive" in path}
    assert after == before, "a refusal changes nothing"


def test_one_server_at_a_time_and_never_in_the_log_itself() -> None:
    world = new_world()
    journal = world.engine.journal
    with pytest.raises(ArchiveLocked, match="another server has the log archive archive"):
        LogArchive.open("archive", journal.fs, journal.logs)
    with pytest.raises(ArchiveRefused, match="is where the log itself is"):
        LogArchive.open("data", journal.fs, journal.logs)
    world.restart()


def test_what_the_log_never_had_is_put_aside(caplog: pytest.LogCaptureFixture) -> None:
    """The data directory was restored from an older backup."""
    world = new_world()
    work(world, 3)
    world.keep()
    world.step()
    backup = world.fs.kill_clone()
    work(world, 6)
    world.keep()
    newer = segments(world.fs, "jobs", "archive")
    for id, data in newer.items():
        file = backup.create(segment_path("archive/jobs", id))
        file.pwrite(data, 0)
        file.sync()
    again = World(backup, archive=ALL, clock=ManualClock(START_MS + 10_000))
    active = ids(again, "data")[-1]
    assert [*segments(again.fs, "jobs", "archive")] == [*range(1, active)]
    aside = [path for path in again.fs.contents() if path.endswith(".aside")]
    assert len(aside) == len([id for id in newer if id >= active]) > 0
    assert any("has no such segment" in record.message for record in caplog.records)
    work(again, 6)
    again.keep()
    assert ids(again, "archive") == ids(again, "data")[:-1]
    again.kill()


def test_a_missing_or_damaged_index_is_made_anew() -> None:
    world = new_world()
    work(world, 6)
    world.keep()
    first, second = [segment_path("archive/jobs", id) + ".idx" for id in (1, 2)]
    before = world.fs.contents()[first]
    world.fs.remove(first)
    orphan = world.fs.create(segment_path("archive/jobs", 99) + ".idx")
    orphan.pwrite(b"x", 0)
    orphan.sync()
    world.kill()
    world.keep()
    assert decode_index(world.fs.contents()[first]).crc32 == decode_index(before).crc32
    assert segment_path("archive/jobs", 99) + ".idx" not in world.fs.contents()
    world.fs.open(second).pwrite(b"x", 10)
    world.kill()
    places = {place.id: place for place in world.engine.segments.places("jobs")}
    found = world.look(places[2])
    assert found.index.segment == 2 and found.damage is None
    world.keep()
    assert decode_index(world.fs.contents()[second]) == found.index


# -- what somebody else has done to it -------------------------------------------------------------


@pytest.mark.parametrize("bounds", [ALL, Bounds(max_age_ms=150), Bounds(max_bytes=1)])
def test_files_that_somebody_removed_hold_nothing_up(bounds: Bounds) -> None:
    """An operator made space by hand: with index, without, and an index alone."""
    world = new_world()
    work(world, 6)
    world.keep(5)
    world.tidy()
    world.kill()
    world.bounds = bounds
    world.restart()
    removed = ids(world, "archive")[:3]
    for id, suffixes in zip(removed, [["", ".idx"], [""], [".idx"]], strict=True):
        for suffix in suffixes:
            path = segment_path("archive/jobs", id) + suffix
            if path in world.fs.contents():
                world.fs.remove(path)
    work(world, 6)
    for _ in range(3):
        world.keep()
        world.tidy()
    world.wait(1000)
    world.keep()
    assert world.archive.failures == 0
    here = ids(world, "data")
    assert set(ids(world, "archive")) >= set(here[:-1])
    if bounds != ALL:
        assert ids(world, "archive")[0] == here[0]


@pytest.mark.parametrize("bounds", [Bounds(max_age_ms=150), Bounds(max_bytes=1)])
def test_a_directory_that_is_not_there_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    """It may be on a disk that is not mounted just now."""
    world = new_world()
    work(world, 6)
    world.keep()
    world.tidy()
    world.bounds = bounds
    world.kill()
    world.wait(1000)
    count = world.archive.count

    def away(fs: SimFileSystem, *paths: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "not mounted", paths[-1])

    with monkeypatch.context() as patch:
        for name in ("open", "listdir", "remove", "link"):
            patch.setattr(SimFileSystem, name, away)
        world.keep()
    assert world.archive.failures > 0 and world.archive.count == count
    world.keep()
    assert ids(world, "archive")[0] == ids(world, "data")[0] > 1


def test_times_still_to_come_do_not_keep_what_is_old() -> None:
    """The clock was years ahead for a while."""
    world = new_world(Bounds(max_age_ms=150))
    work(world, 2)
    world.wait(10**9)
    work(world, 2)
    world.wait(-(10**9))
    for _ in range(6):
        work(world, 6)
        world.keep()
        world.tidy()
    world.wait(1000)
    world.keep()
    assert ids(world, "archive")[0] == ids(world, "data")[0] > 4


def test_segments_as_long_as_those_of_the_log_may_still_be_others() -> None:
    """A backup was restored, and the server ran for a while without the archive."""
    world = new_world()
    work(world, 3)
    world.step()
    backup = world.fs.kill_clone()
    work(world, 6)
    world.keep()
    newer = segments(world.fs, "jobs", "archive")
    again = World(backup, clock=ManualClock(START_MS + 10_000))
    work(again, 6)
    again.engine.shut_down()
    for id, data in newer.items():
        backup.mkdir("archive/jobs")
        file = backup.create(segment_path("archive/jobs", id))
        file.pwrite(data, 0)
        file.sync()
    last = World(backup, archive=ALL, clock=ManualClock(START_MS + 20_000))
    here = segments(backup, "jobs", "data")
    alike = [id for id, data in newer.items() if len(here.get(id, b"")) == len(data)]
    assert any(here[id] != newer[id] for id in alike), "else this shows nothing"
    last.keep()
    kept = segments(backup, "jobs", "archive")
    assert kept and all(here[id] == data for id, data in kept.items() if id in here)


def test_small_segments_share_their_syncs() -> None:
    world = World(segment_bytes=5000, archive=Bounds())
    world.put(type="log", durability="fsync")
    for _ in range(150):
        world.write("q", "x" * 500)
    segments = len(world.engine.journal.jobs.segments()) - 1
    assert segments > 140
    before = len(world.fs.history)
    world.keep()
    kinds = Counter(op.kind for op in world.fs.history[before:] if op.path.startswith("archive"))
    assert world.archive.archived == segments and kinds["link"] == segments
    # One for the names and one for the indexes of many; an index is synced itself.
    assert kinds["sync_dir"] <= 2 * (segments // TOGETHER + 1)
    assert kinds["sync"] == segments
    world.tidy()
    world.kill()
    assert all(kept.has_index for kept in world.archive.segments("jobs").values())


def test_a_segment_that_cannot_be_archived_does_not_block_those_before_it() -> None:
    world = World(segment_bytes=5000, archive=Bounds())
    world.put(type="log", durability="fsync")
    for _ in range(20):
        world.write("q", "x" * 500)
    seventh = world.engine.journal.jobs.segments()[6].id

    def fail(op: Op) -> OSError | None:
        bad = op.kind == "link" and op.path.endswith(f"{seventh:020d}.wal")
        return OSError(errno.EIO, "input/output error") if bad else None

    world.fs.fail_when(fail)
    for _ in range(2):
        world.keep()
        assert [*world.archive.segments("jobs")] == [1, 2, 3, 4, 5, 6]
    world.fs.fail_when(lambda op: None)
    world.keep()
    assert len(world.archive.segments("jobs")) == len(world.engine.journal.jobs.segments()) - 1
