"""Starts from heads files: the state that the segments lead to, or the segments themselves."""

from __future__ import annotations

import errno
from random import Random
from zlib import crc32

import msgspec
import pytest

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.apply.append_runs import RUN_BELOW
from logqueue.core.batch import JOINED_RECORDS_MAX
from logqueue.core.invariants import check
from logqueue.core.state import State
from logqueue.events import split_block
from logqueue.server.runtime import open_core, read_state
from logqueue.server.settings import Settings
from logqueue.server.storage import compaction, heads_files, heads_frames, payload_store
from logqueue.server.storage.heads_frames import HeadsFrame
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.log_follower import LogFollower
from tests.clock import ManualClock
from tests.core.world import START_MS, World, job, pack, wish
from tests.effort import IS_THOROUGH, scaled
from tests.portrait import portrait
from tests.sim.ledger import Ledger
from tests.sim.workload import Workload
from wal import Frame, WalCorrupt
from wal.testing.simfs import Op, SimFileSystem


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data leaves memory, and a heads file of any size is of use."""
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 20)
    monkeypatch.setattr(payload_store, "PAGE_BYTES", 64)
    monkeypatch.setattr(heads_files, "WINDOW_BYTES", 300)
    monkeypatch.setattr(heads_files, "SHARE_MAX", 3.0)


def text(number: int) -> str:
    """Data of one record, unlike that of all others."""
    return f"{number:06}" * 12


def filled(records: int = 60, *, each: int = 3, fs: SimFileSystem | None = None) -> World:
    """A queue over several segments, with a heads file beside each that is sealed."""
    world = World(fs)
    world.put(durability="fsync")
    for first in range(1, records + 1, each):
        world.write("q", *(job(text(n), tag=f"t{n}") for n in range(first, first + each)))
    world.step()
    world.write_heads()
    return world


def heads_of(fs: SimFileSystem) -> list[str]:
    return [path for path in fs.contents() if path.endswith(".heads")]


def overwrite(fs: SimFileSystem, path: str, content: bytes) -> None:
    file = fs.create(path)
    file.pwrite(content, 0)


def flip(fs: SimFileSystem, path: str, at: int, bit: int = 4) -> None:
    byte = fs.contents()[path][at]
    fs.open(path, writable=True).pwrite(bytes([byte ^ bit]), at)


def in_full(world: World, fs: SimFileSystem) -> set[str]:
    """The segments that the start of a world read whole."""
    sizes = {path: len(content) for path, content in fs.contents().items()}
    return {
        op.path
        for op in world.fs.history
        if op.kind == "pread" and op.path.endswith(".wal") and op.length == sizes[op.path]
        if "/jobs/" in op.path
    }


def started(fs: SimFileSystem) -> tuple[World, set[str]]:
    """A life on a copy of a disk, and the segments that it read whole when it began."""
    clone = fs.kill_clone()
    world = World(clone)
    read = in_full(world, fs)
    check(world.state)
    return world, read


def test_a_start_reads_the_segment_that_grows_and_no_other() -> None:
    world = filled()
    infos = world.engine.journal.jobs.segments()
    sealed = [info.path for info in infos[:-1]]
    assert heads_of(world.fs) == [path + ".heads" for path in sealed] and len(sealed) > 2
    again, read = started(world.fs)
    assert read == {infos[-1].path}
    assert portrait(again.state) == portrait(world.state)
    assert again.engine.journal.payloads.waiting == [infos[-1].id]
    assert sorted(again.engine.journal.heads.sizes) == [info.id for info in infos[:-1]]
    # As the log sees them, the segments are as if they had been read.
    assert again.engine.journal.jobs.segments()[:-1] == infos[:-1]
    again.write("q", job(text(61)))
    once_more, read = started(again.fs)
    assert portrait(once_more.state) == portrait(again.state) and not read & set(sealed)


@pytest.mark.parametrize("seed", range(scaled(4, 40)))
def test_the_same_day_with_and_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 4)
    world, workload = World(SimFileSystem(Random(seed))), Workload(seed, Ledger())
    workload.begin(world)
    workload.run(world, 50)
    world.step()
    world.write_heads()
    assert heads_of(world.fs)
    with_heads, read = started(world.fs)
    assert len(read) < len(world.engine.journal.jobs.segments())
    bare = world.fs.kill_clone()
    for path in heads_of(bare):
        bare.remove(path)
    without, _ = started(bare)
    assert portrait(with_heads.state) == portrait(without.state)
    for each in (with_heads, without):
        each.tidy()
    assert portrait(with_heads.state) == portrait(without.state)


def test_every_event_with_blocks() -> None:
    world = World()
    world.put("s", type="log", durability="fsync")
    world.put(durability="fsync", max_deliveries=1, dead_letter="dead")
    world.put_router("some", "s", "picked", filter="a")
    for n in range(12):
        world.write("s", job(text(n), tag="ab"[n % 2]), job("x"), job(text(100 + n), tag="a"))
        world.write("q", *(wish(text(n + m), key=f"k{(n + m) % 5}") for m in range(2)))
        world.write("q", wish("small", key=f"k{n % 5}"))
    world.forward()
    world.reject(*world.take(2))
    world.step()
    world.write_heads()
    again, _ = started(world.fs)
    again.tidy()
    bare = world.fs.kill_clone()
    for path in heads_of(bare):
        bare.remove(path)
    without, _ = started(bare)
    assert portrait(started(world.fs)[0].state) == portrait(without.state)


def test_what_a_later_version_has_added_is_kept() -> None:
    """Fields are added at the end of events; this version passes over those it does not know."""
    block = pack([job(text(n)) for n in range(40)])
    event = ev.RecordsAppended(7, 1, 1, 40, block, key="k")
    order, events = msgspec.msgpack.decode(ev.encode(3, [event, event]))
    for fields in events:
        fields.append("later")
    payload = msgspec.msgpack.encode([order, events])
    for each in (payload, ev.encode(3, [event, event])):
        short = heads_frames.shortened(Frame(1, 1, each, 100))
        head = split_block.split(block).head
        assert [fields[5] for fields in msgspec.msgpack.decode(short.payload)[1]] == [head, head]
        # The length of a head takes one byte, that of the block two.
        assert len(short.payload) == len(each) - 2 * (len(block) - len(head) + 1)
        first, second = (offset - 100 for _, offset, _ in short.left_out)
        for at in (first, second):
            assert each[at:].startswith(job(text(0))[0])
        assert second > first
    assert b"later" in heads_frames.shortened(Frame(1, 1, payload, 100)).payload


@pytest.mark.parametrize("later", [0, 1])
def test_what_a_later_version_has_added_to_small_appends_is_kept(later: int) -> None:
    frames: list[Frame] = []
    for number in (1, 2, 3):
        event = ev.RecordsAppended(7, 1, number, 1, pack([job(number)]))
        order, ((*fields,),) = msgspec.msgpack.decode(ev.encode(number, [event]))
        payload = msgspec.msgpack.encode([order, [[*fields, *["later"] * later]]])
        frames.append(Frame(number, 1, payload, 100 * number))
    entries = [*heads_frames.without_data(frames)]
    assert [entry.frames for entry in entries] == ([1, 1, 1] if later else [3])
    assert all(b"later" in entry.payload for entry in entries) is bool(later)


def test_staged_chunks_are_kept_whole() -> None:
    """A repeat is compared with all their bytes; what is beside them is left out."""
    world = World()
    world.put("s", type="log", durability="fsync")

    def stage(to: World, number: int) -> None:
        block = pack([job(text(number))])
        to.run(cmd.StageChunk("p", 1, "s", 0, "a", number, block, 1))

    for number in range(30):
        stage(world, number)
        world.write("s", job(text(100 + number)), job(text(200 + number)), key=f"k{number}")
    world.step()
    world.write_heads()
    infos = world.engine.journal.jobs.segments()
    assert len(heads_of(world.fs)) == len(infos) - 1 > 1
    entries = [entry for path in heads_of(world.fs) for entry in entries_of(world.fs, path)]
    assert any(text(7).encode() in entry.payload for entry in entries)
    assert not any(text(107).encode() in entry.payload for entry in entries)
    again, read = started(world.fs)
    assert read == {infos[-1].path} and portrait(again.state) == portrait(world.state)
    stage(again, 7)
    again.run(cmd.CommitEpoch("p", 1, (cmd.StagedAttempt(0, "a", 30, 30),)))
    last = [texts[0] for _, _, texts in again.records("s")][-30:]
    assert last == [job(text(n))[0] for n in range(30)]


# -- records written one by one --------------------------------------------------------------------


def entries_of(fs: SimFileSystem, path: str) -> list[HeadsFrame]:
    return heads_files._decode(fs.contents()[path])[1]


def alone(records: int, topics: str = "q", *, fs: SimFileSystem | None = None) -> World:
    """Records written one by one to topics in turn, at times of their own."""
    world = World(fs, segment_bytes=4096 * 12)
    for topic in topics:
        world.put(topic, durability="fsync")
    for n in range(records):
        world.write(topics[n % len(topics)], job(text(n), tag=f"t{n % 7}" if n % 3 else None))
        world.wait(n % 5)
    world.step()
    world.write_heads()
    return world


@pytest.mark.parametrize("topics", ["q", "qr"])
@pytest.mark.parametrize("split_from", [200, 1 << 20])
def test_appends_of_one_record_are_read_as_few(
    topics: str, split_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their data is gathered from their frames; or it is in the heads file, where it is little."""
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", split_from)
    world = alone(1500, topics)
    infos = world.engine.journal.jobs.segments()
    assert len(heads_of(world.fs)) == len(infos) - 1 > 2
    for info, path in zip(infos, heads_of(world.fs), strict=False):
        entries = entries_of(world.fs, path)
        assert sum(entry.frames for entry in entries) == info.last - info.first + 1
        # A tag or none is one form of records or another, so runs are short here.
        assert max(entry.frames for entry in entries) > 1
        assert all(
            entry.run is None or bool(entry.run.spans) is (split_from == 200 and entry.frames > 2)
            for entry in entries
        )
    again, read = started(world.fs)
    assert read == {infos[-1].path}
    assert portrait(again.state) == portrait(world.state)
    for topic in topics:
        assert again.records(topic) == world.records(topic)


def test_records_alike_are_read_256_at_a_time() -> None:
    world = World(segment_bytes=4096 * 30)
    world.put(durability="fsync")
    for n in range(3000):
        world.write("q", job(n))
        world.wait(n % 2)
    world.step()
    world.write_heads()
    (first, *_) = heads_of(world.fs)
    runs = [entry.frames for entry in entries_of(world.fs, first)]
    # First the topic, last what was appended since the last run that is full.
    assert runs[0] == 1 and set(runs[1:-1]) == {JOINED_RECORDS_MAX}
    again, _ = started(world.fs)
    assert again.records() == world.records()


def test_what_comes_between_two_appends_comes_between_them_at_a_start() -> None:
    """A claim is in the other log: what it has leased must not be appended with what follows."""
    world = World(segment_bytes=4096 * 4)
    world.put(durability="fsync", leases_durable=True)
    for n in range(300):
        world.write("q", job(n))
        if n % 7 == 0:
            world.claim(2)
        if n % 9 == 0:
            world.cancel(world.seqs()[-1])
    world.step()
    world.write_heads()
    again, read = started(world.fs)
    assert len(read) == 1 and portrait(again.state) == portrait(world.state)
    orders = [
        entry.run.order
        for path in heads_of(world.fs)
        for entry in entries_of(world.fs, path)
        if entry.run is not None
    ]
    assert orders == sorted(orders) and len(orders) > 20


@pytest.mark.parametrize("has_heads", [True, False])
def test_no_transaction_is_missed_by_who_waits_for_gaps_in_their_numbers(has_heads: bool) -> None:
    """A standby does; entries of several transactions say which they replace."""
    world = alone(900, "qrs")
    world.claim(3)
    for n in range(50):
        world.write("qr"[n % 2], job(n))
    world.step()
    disk = world.fs.kill_clone()
    for path in [] if has_heads else heads_of(disk):
        disk.remove(path)
    journal = Journal.open("data", segment_bytes_max=1 << 20, fs=disk)
    follower = LogFollower(journal, State(keeper=journal.payloads))
    follower.load()
    assert follower.held == 0 and follower.last_order == world.engine.journal.order - 1
    assert portrait(follower.state) == portrait(world.state)


def test_damage_costs_one_record_of_those_written_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 200)
    world = filled(each=1)
    again, _ = started(damaged(world, 20))
    topic = again.topic("q")
    assert topic.batch_of(20) is topic.batch_of(21)
    assert [seq for seq in range(1, 61) if seq not in topic.readable([seq])] == [20]
    assert topic.readable([19, 21]).keys() == {19, 21}


def test_a_file_of_the_version_before_is_read() -> None:
    """It has no runs."""
    world = filled(120, each=RUN_BELOW)
    before = portrait(world.state)
    for path in heads_of(world.fs):
        data = world.fs.contents()[path]
        header, entries = heads_files._decode(data)
        assert all(entry.run is None for entry in entries)
        body = msgspec.msgpack.encode([[e.offset, e.payload, e.left_out] for e in entries])
        body = b"\xdd" + len(entries).to_bytes(4, "big") + body[1 if len(entries) < 16 else 3 :]
        header = header._replace(body_bytes=len(body), body_sum=crc32(body))
        fields = bytearray(header.encode()[: heads_files._HEADER.size])
        fields[8:12] = (1).to_bytes(4, "little")
        overwrite(world.fs, path, bytes(fields) + crc32(fields).to_bytes(4, "little") + body)
    again, read = started(world.fs)
    assert len(read) == 1 and portrait(again.state) == before


# -- heads files that must not be used -------------------------------------------------------------


def test_a_flipped_bit_has_the_segment_read() -> None:
    world = filled(30)
    (first, *_), before = heads_of(world.fs), portrait(world.state)
    size = len(world.fs.contents()[first])
    for at in range(0, size, 1 if IS_THOROUGH else 17):
        disk = world.fs.kill_clone()
        flip(disk, first, at, 1 << at % 8)
        again, read = started(disk)
        assert first.removesuffix(".heads") in read, f"byte {at}"
        assert portrait(again.state) == before
    again.write_heads()
    assert heads_of(again.fs) == heads_of(world.fs), "it was written once more"
    assert len(started(again.fs)[1]) == 1


def test_a_heads_file_that_is_cut_or_continued() -> None:
    world = filled(30)
    first, before = heads_of(world.fs)[0], portrait(world.state)
    content = world.fs.contents()[first]
    changed = [content[:size] for size in range(0, len(content), 1 if IS_THOROUGH else 41)]
    for other in (*changed, content + b"\0", b"\0" * len(content)):
        disk = world.fs.kill_clone()
        overwrite(disk, first, other)
        again, read = started(disk)
        assert first.removesuffix(".heads") in read
        assert portrait(again.state) == before


def test_heads_files_of_other_segments_and_logs() -> None:
    world = filled()
    names, before = heads_of(world.fs), portrait(world.state)
    contents = world.fs.contents()
    swapped = world.fs.kill_clone()
    for path, other in zip(names, [*names[1:], names[0]], strict=True):
        overwrite(swapped, path, contents[other])
    again, read = started(swapped)
    assert {path.removesuffix(".heads") for path in names} <= read
    assert portrait(again.state) == before


def test_a_heads_file_of_another_life_of_the_same_log() -> None:
    """A backup was put back and has grown on: same log, same segments, same sizes."""
    lives = []
    begun = World()
    begun.put(durability="fsync")
    begun.step()
    for add in (0, 500):
        world = World(begun.fs.kill_clone())
        for n in range(1, 40):
            world.write("q", job(text(n + add)))
        world.step()
        world.write_heads()
        lives.append(world)
    old, new = lives
    sizes = [{p: len(c) for p, c in life.fs.contents().items()} for life in lives]
    assert sizes[0] == sizes[1], "nothing but the content tells them apart"
    disk = new.fs.kill_clone()
    for path in heads_of(disk):
        overwrite(disk, path, old.fs.contents()[path])
    again, _ = started(disk)
    assert portrait(again.state) == portrait(new.state)


def test_a_file_of_another_page_size(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(30)
    before = portrait(world.state)
    monkeypatch.setattr(payload_store, "PAGE_BYTES", 128)
    again, read = started(world.fs)
    assert {path.removesuffix(".heads") for path in heads_of(world.fs)} <= read
    assert portrait(again.state) == before


def test_damage_set_aside_ends_heads_files() -> None:
    world = filled()
    path = heads_of(world.fs)[1].removesuffix(".heads")
    disk = world.fs.kill_clone()
    flip(disk, path, disk.contents()[path].find(text(20).encode()[:12]))
    mended = World(disk, set_damage_aside=True)
    assert mended.engine.journal.jobs.losses and not heads_of(disk)
    mended.write_heads()
    assert portrait(started(mended.fs)[0].state) == portrait(mended.state)


# -- damage in what is not read --------------------------------------------------------------------


def damaged(world: World, number: int) -> SimFileSystem:
    disk = world.fs.kill_clone()
    wanted = text(number).encode()
    path, content = next(
        (path, content)
        for path, content in disk.contents().items()
        if path.endswith(".wal") and wanted in content
    )
    flip(disk, path, content.find(wanted))
    return disk


def test_damaged_data_is_found_late_and_costs_its_record() -> None:
    world = filled(each=1)
    again, _ = started(damaged(world, 20))
    topic = again.topic("q")
    assert [seq for seq in range(1, 61) if seq not in topic.readable([seq])] == [20]
    assert again.take(60) == [seq for seq in range(1, 61) if seq != 20]


def test_whoever_reads_everything_is_told_at_once() -> None:
    world = filled(each=1)
    disk = damaged(world, 20)
    with pytest.raises(WalCorrupt, match="checksum"):
        read_state(Settings(data_dir="data"), disk.kill_clone())
    with pytest.raises(WalCorrupt, match="checksum"):
        settings = Settings(data_dir="data", verify_at_start=True)
        open_core(settings, ManualClock(START_MS), fs=disk.kill_clone())


# -- writing and removing --------------------------------------------------------------------------


def test_hardly_any_data_gets_no_heads_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_files, "SHARE_MAX", 0.5)
    world = World(segment_bytes=4096 * 4)
    world.put(durability="fsync")
    for n in range(200):
        world.write("q", *(job(m) for m in range(60)), key=f"k{n}")
    world.put("large", durability="fsync")
    for n in range(30):
        world.write("large", job(text(n) * 40))
    world.step()
    world.write_heads()
    segments = {batch.segment for batch in world.topic("large").batches}
    with_heads = set(world.engine.journal.heads.sizes)
    assert with_heads and with_heads <= segments
    assert all(size < 4096 * 2 for size in world.engine.journal.heads.sizes.values())


def test_heads_files_go_with_their_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world = filled()
    overwrite(world.fs, "data/jobs/00000000000000000001.wal.heads.new", b"a draft of a killed life")
    world.delete(before=61)
    for _ in range(4):
        world.tidy()
    kept = {info.path for info in world.engine.journal.jobs.segments()}
    assert "data/jobs/00000000000000000001.wal" not in kept
    left = {path for path in world.fs.contents() if ".heads" in path}
    assert {path.removesuffix(".heads") for path in left} <= kept


KINDS = ["open", "pread", "create", "pwrite", "sync", "rename"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_refuses_costs_a_slower_start(kind: str) -> None:
    world = World()
    world.put(durability="fsync")
    for n in range(1, 40):
        world.write("q", job(text(n)))
    world.step()
    for _ in world.engine.journal.offload():
        pass
    before = portrait(world.state)

    def refuse(op: Op) -> OSError | None:
        return OSError(errno.ENOSPC, "no space") if op.kind == kind else None

    world.fs.fail_when(refuse)
    for _ in world.engine.journal.write_heads():
        pass
    world.fs.fail_when(lambda op: None)
    assert world.fs.failures and not [path for path in world.fs.contents() if ".heads" in path]
    assert world.engine.journal.jobs.failure is None
    again, _ = started(world.fs)
    assert portrait(again.state) == before
    again.write_heads()
    assert heads_of(again.fs), "the next life writes them"


def test_a_damaged_segment_gets_no_heads_file() -> None:
    world = World()
    world.put(durability="fsync")
    for n in range(1, 40):
        world.write("q", job(text(n)))
    world.step()
    info = world.engine.journal.jobs.segments()[1]
    flip(world.fs, info.path, info.bytes - 30)
    world.write_heads()
    assert info.path + ".heads" not in heads_of(world.fs)
    assert len(heads_of(world.fs)) == len(world.engine.journal.jobs.segments()) - 2


def test_writing_is_done_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_files, "STEP_FRAMES", 3)
    world = World()
    world.put(durability="fsync")
    for n in range(1, 60):
        world.write("q", job(text(n)), key=f"k{n}")
    world.step()
    for _ in world.engine.journal.offload():
        pass
    last = world.engine.journal.jobs.segments()[-1]
    steps = sum(1 for _ in world.engine.journal.write_heads())
    assert steps >= last.first // 3
