"""A writer ships the logs of a server, chunk by chunk, and uploads what is sealed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest

from logqueue.replica import writing
from logqueue.replica.chain import LOGS, ChainEnd, LogPlace, chain_start, extended
from logqueue.replica.chunk import (
    Chunk,
    ChunkHeader,
    LogName,
    chunk_key,
    decode_chunk,
    encode_chunk,
)
from logqueue.replica.frame_source import JournalFrames
from logqueue.replica.manifest import WriterInfo, segment_key
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectMissing, StoredObject, StoreUnavailable
from logqueue.replica.reading import ReplicaDamaged, ReplicaReader
from logqueue.replica.restoring import restore
from logqueue.replica.takeover import _Attempt, create_replica, take_over
from logqueue.replica.writing import ReplicaWriter, WriterFenced
from logqueue.segments.index import decode_index
from logqueue.server.storage.journal import Journal
from logqueue.testing.simulated_store import Moment, SimulatedObjects, SimulatedStore, StoreCall
from tests.core.world import World
from tests.replica.small_logs import SmallLogs, make_frame
from tests.segments.histories import History
from wal import HEADER_BYTES, segment_ids
from wal.testing.simfs import SimFileSystem

ME = WriterInfo("me", "http://me")


class Clock:
    """Both clocks of a writer."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def ms(self) -> int:
        return int(self.now * 1000)


def frames_of(journal: Journal, kept_from: dict[LogName, int] | None = None) -> JournalFrames:
    return JournalFrames(journal.logs, journal.fs, lambda: {**(kept_from or {})})


def make(store: MemoryStore, journal: Journal) -> None:
    create_replica(store, journal.jobs.identity.hex(), journal.leases.identity.hex(), ME)


def start(
    store: MemoryStore,
    journal: Journal,
    clock: Clock,
    *,
    chunk_bytes_max: int = 8 << 20,
    who: WriterInfo = ME,
    readers_s: float = 0.0,
    received: list[Chunk] | None = None,
    keep_ms: int = 0,
    kept_from: dict[LogName, int] | None = None,
) -> ReplicaWriter:
    def receive(chunks: Sequence[Chunk], end: ChainEnd) -> None:
        if received is not None:
            received.extend(chunks)

    return ReplicaWriter(
        store,
        frames_of(journal, kept_from),
        take_over(store, who, None, receive),
        clock_ms=clock.ms,
        monotonic=clock,
        chunk_bytes_max=chunk_bytes_max,
        readers_s=readers_s,
        keep_ms=keep_ms,
    )


def chunks_of(store: MemoryStore, first: int = 1) -> list[Chunk]:
    found = []
    while True:
        try:
            found.append(decode_chunk(store.get(chunk_key(first)).data, first))
        except ObjectMissing:
            return found
        first += 1


def ship_all(writer: ReplicaWriter) -> int:
    count = 0
    while writer.ship():
        count += 1
    return count


@pytest.fixture(scope="module")
def world() -> World:
    return History(7).live(120)


def files_of(journal: Journal) -> dict[tuple[str, int], bytes]:
    """The bytes of all segments, without what is allocated ahead."""
    found = {}
    for name, log in journal.logs.items():
        for info in log.segments():
            file = journal.fs.open(info.path)
            found[name, info.id] = file.pread(info.bytes, 0)
            file.close()
    return {key: data for key, data in found.items() if len(data) > HEADER_BYTES}


def roll_leases(world: World) -> None:
    """Begin a new segment of the leases log, with frames."""
    journal = world.engine.journal
    journal.leases.roll()
    for _ in journal.checkpoint_leases(world.state, 1_000_000):
        pass
    world.step()
    journal.flush_leases()


@pytest.mark.parametrize("chunk_bytes_max", [1, 300, 2000, 1 << 20])
def test_the_chunks_are_the_segment_files(world: World, chunk_bytes_max: int) -> None:
    store, journal = MemoryStore("memory://one"), world.engine.journal
    make(store, journal)
    writer = start(store, journal, Clock(), chunk_bytes_max=chunk_bytes_max)
    assert writer.waiting_bytes > 0
    assert ship_all(writer) > 1 or chunk_bytes_max > 2000
    assert writer.waiting_bytes == 0
    assert writer.committed == {name: log.written for name, log in journal.logs.items()}
    built: dict[tuple[str, int], bytes] = {}
    end = ChainEnd()
    for chunk in chunks_of(store):
        end = extended(end, chunk)
        size = sum(run.bytes for run in chunk.header.runs)
        assert size <= chunk_bytes_max or len(chunk.header.runs) <= 2
        for run, data in zip(chunk.header.runs, chunk.data, strict=True):
            before = built.setdefault((run.log, run.segment), bytes(HEADER_BYTES))
            assert len(before) == run.offset
            built[run.log, run.segment] = before + data
    assert end == writer.end
    bodies = {key: data[HEADER_BYTES:] for key, data in files_of(journal).items()}
    assert {key: data[HEADER_BYTES:] for key, data in built.items()} == bodies


def test_frames_on_their_way_to_the_file_are_left_to_a_later_chunk() -> None:
    store, journal = MemoryStore("memory://buffered"), History(7).live(20).engine.journal
    make(store, journal)
    writer = start(store, journal, Clock())
    ship_all(writer)
    journal.jobs.append(b"not in the file yet", sync=False, wake=False)
    assert frames_of(journal).runs_after(writer.end.places, 1 << 20) == []


def test_a_chunk_is_copied_once_behind_the_read() -> None:
    store, journal = MemoryStore("memory://large"), World().engine.journal
    make(store, journal)
    for _ in range(16):
        journal.jobs.append(bytes(256 << 10), sync=False)
    while journal.jobs.step():
        pass
    writer = start(store, journal, Clock(), chunk_bytes_max=2 << 20)
    source = frames_of(journal)
    tracemalloc.start()
    try:
        runs = source.runs_after(writer.end.places, 2 << 20)
        header = ChunkHeader(1, "", "", 1, "me", 2, "", "frames", tuple(run for run, _ in runs))
        data, _ = encode_chunk(header, [part for _, part in runs])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 << 20 < len(data) < 2 << 20
    # What was read, which ends inside a frame, and the object.
    assert peak < (2 << 20) + len(data) + (64 << 10)


def test_sealed_segments_replace_chunks() -> None:
    world = History(11).live(60)
    store, journal, clock = MemoryStore("memory://two"), world.engine.journal, Clock()
    roll_leases(world)
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=700)
    ship_all(writer)
    while writer.tidy():
        clock.now += 3
    manifest = ReplicaReader(store).manifest().manifest
    assert manifest == writer.manifest
    files = files_of(journal)
    for log in LOGS:
        entries = [entry for entry in manifest.segments if entry.log == log]
        assert [entry.id for entry in entries] == [
            info.id for info in journal.logs[log].segments()[: len(entries)]
        ]
        assert entries[-1].id == writer.end.places[log].segment - 1
        assert writer.may_drop_before(log) == writer.end.places[log].segment
        for entry in entries:
            key = segment_key(log, entry.id)
            assert store.get(key).data == files[log, entry.id]
            index = decode_index(store.get(key + ".idx").data)
            assert (index.segment, index.last_frame) == (entry.id, entry.last)
            assert index.last_at == entry.at
    # What is left of the chunks goes on where the segments end; takeovers stay.
    assert manifest.start_chunk > 2
    left = [int(info.key.rpartition("/")[2]) for info in store.list("chunks/")]
    assert left == [1, *range(manifest.start_chunk, writer.end.number + 1)]
    end = chain_start(manifest)
    for chunk in chunks_of(store, manifest.start_chunk):
        end = extended(end, chunk)
    assert end == writer.end


def test_a_writer_goes_on_where_the_last_one_ended() -> None:
    rng = Random(1)
    world = History(3).live(20)
    store, journal, clock = MemoryStore("memory://three"), world.engine.journal, Clock()
    make(store, journal)
    for number in range(1, 6):
        received: list[Chunk] = []
        writer = start(store, journal, clock, who=WriterInfo(f"w{number}", ""), received=received)
        assert writer.epoch == number
        for step in range(5):
            world.put(f"topic-{number}-{step}", type="log", durability="fsync")
            world.step()
            assert writer.lag_ms == int((clock.now - writer._complete_as_of) * 1000)
            writer.ship()
            assert writer.lag_ms == 0
            clock.now += rng.random() * 3
            writer.tidy()
            writer.renew()
    assert writer.committed == {name: log.written for name, log in journal.logs.items()}


def test_a_writer_is_fenced_by_the_next_one(world: World) -> None:
    store, journal, clock = MemoryStore("memory://four"), world.engine.journal, Clock()
    make(store, journal)
    first = start(store, journal, clock)
    other = WriterInfo("other", "http://other")
    second = start(store, journal, clock, who=other)
    for step in (first.ship, first.ship_all, first.renew, first.tidy, first.hand_over):
        with pytest.raises(WriterFenced) as caught:
            step()
        assert caught.value.writer == other
    ship_all(second)
    assert second.committed == {name: log.written for name, log in journal.logs.items()}


def test_an_idle_writer_learns_of_the_next_one(world: World) -> None:
    store, journal, clock = MemoryStore("memory://five"), world.engine.journal, Clock()
    make(store, journal)
    first = start(store, journal, clock)
    ship_all(first)
    first.renew()
    start(store, journal, clock, who=WriterInfo("other", ""))
    assert not first.ship()
    with pytest.raises(WriterFenced):
        first.renew()


def test_a_writer_that_hands_over_has_committed_everything(world: World) -> None:
    store, journal, clock = MemoryStore("memory://six"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=500)
    writer.hand_over()
    assert ReplicaReader(store).manifest().manifest.is_released
    assert writer.committed == {name: log.written for name, log in journal.logs.items()}
    start(store, journal, clock, who=WriterInfo("next", ""))
    assert not ReplicaReader(store).manifest().manifest.is_released


def test_a_candidate_gets_its_turn_and_the_writer_goes_on_without_it(world: World) -> None:
    """Between the manifest and the takeover chunk a candidate may be slow, or die."""
    store, journal, clock = MemoryStore("memory://seven"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=300)
    assert writer.ship()
    slow = _Attempt(store, WriterInfo("slow", ""), lambda chunks, end: None, None)
    slow._begin_epoch()
    assert writer.ship()
    clock.now = 5
    writer.renew()
    # From now on every chunk leaves the candidate a second for its own.
    shipped = []
    for _ in range(40):
        clock.now += 0.25
        shipped.append(writer.ship())
    assert 9 <= shipped.count(True) <= 11
    assert writer.epoch == 1
    clock.now += 30
    assert writer.ship()
    assert writer.epoch == 3
    assert store.get(chunk_key(writer.end.number - 1)).data.find(b"takeover") > 0
    writer.renew()
    writer.ship_all()
    assert writer.committed == {name: log.written for name, log in journal.logs.items()}


def test_a_candidate_wins_against_a_writer_that_never_rests() -> None:
    """It must read the last chunk before it can take the next number, and a busy writer is faster:
    so that one, once it knows, leaves it the time."""
    store, clock, logs = MemoryStore("memory://busy"), Clock(), SmallLogs()
    create_replica(store, "aa" * 16, "bb" * 16, ME)
    taken = take_over(store, ME, None, lambda chunks, end: None)
    writer = ReplicaWriter(store, logs, taken, clock_ms=clock.ms, monotonic=clock)
    beats = 0

    def on_call(call: StoreCall, moment: Moment) -> None:
        """While the candidate waits for the store, the writer commits a chunk."""
        nonlocal beats
        clock.now += 0.02
        logs.append("jobs", make_frame("me", [1]))
        writer.ship()
        if clock.now > beats:
            beats += 1
            writer.renew()

    for _ in range(20):
        logs.append("jobs", make_frame("me", [1]))
        writer.ship()
    way = SimulatedStore(SimulatedObjects(store), on_call=on_call)
    received: list[int] = []
    take_over(
        way,
        WriterInfo("next", ""),
        None,
        lambda chunks, end: received.extend(chunk.header.number for chunk in chunks),
    )
    assert received == [*range(1, writer.end.number + 1)]
    assert sum(way.calls.values()) < 200
    clock.now += 2
    with pytest.raises(WriterFenced):
        writer.ship()


def test_all_is_shipped_whoever_waits(world: World) -> None:
    store, journal, clock = MemoryStore("memory://eight"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=300)
    _Attempt(store, WriterInfo("slow", ""), lambda chunks, end: None, None)._begin_epoch()
    writer.renew()
    writer.hand_over()
    assert writer.committed == {name: log.written for name, log in journal.logs.items()}


def test_a_log_that_stays_idle_does_not_keep_the_chunks() -> None:
    world = History(11).live(40)
    store, journal, clock = MemoryStore("memory://idle"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=900)
    writer.ship_all()
    while writer.tidy():
        clock.now += 3
    leases = writer.end.places["leases"]
    behind = writer.chunks_behind
    assert behind > 3
    # Both begin segments; nothing is written to one of them.
    journal.leases.roll()
    journal.flush_leases()
    journal.checkpoint(world.state, 1_000_000)
    world.step()
    writer.ship_all()
    assert not writer.ship()
    assert writer.end.places["leases"] == LogPlace(leases.segment + 1, HEADER_BYTES, leases.frame)
    while writer.tidy():
        clock.now += 3
    assert writer.chunks_behind < behind
    assert writer.chunks_behind <= 2
    # Who restores this has the same segments.
    fs = SimFileSystem(Random(1))
    restore(store, fs, "/restored", parallel=1)
    assert segment_ids(fs, "/restored/leases")[-1] == leases.segment + 1
    # And goes on in the new one.
    world.write("q", "more")
    world.claim(1)
    world.step()
    journal.flush_leases()
    writer.ship_all()
    assert writer.end.places["leases"].segment == leases.segment + 1
    assert writer.end.places["leases"].frame > leases.frame


Damage = Callable[[MemoryStore, str], None]


def is_missing(store: MemoryStore, key: str) -> None:
    store.delete([key])


def is_cut_short(store: MemoryStore, key: str) -> None:
    store.put(key, store.get(key).data[:-9])


def is_flipped(store: MemoryStore, key: str) -> None:
    data = store.get(key).data
    place = len(data) // 2
    store.put(key, data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])


def is_of_another_log(store: MemoryStore, key: str) -> None:
    chunk = decode_chunk(store.get(key).data, int(key[7:]))
    header = msgspec.structs.replace(chunk.header, log_id="ab" * 16)
    store.put(key, encode_chunk(header, chunk.data)[0])


def is_there_twice(store: MemoryStore, key: str) -> None:
    chunk = decode_chunk(store.get(key).data, int(key[7:]))
    header = msgspec.structs.replace(chunk.header, writer="another")
    store.put(key, encode_chunk(header, chunk.data)[0])


@pytest.mark.parametrize(
    "damage", [is_missing, is_cut_short, is_flipped, is_of_another_log, is_there_twice]
)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_damaged_chain_is_not_taken_over(world: World, damage: Damage, where: str) -> None:
    store, journal, clock = MemoryStore(f"memory://{damage}{where}"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock, chunk_bytes_max=3000)
    writer.ship_all()
    writer.renew()
    last = writer.end.number
    number = {"first": 2, "middle": last // 2, "last": last}[where]
    damage(store, chunk_key(number))
    named = chunk_key(number)
    if damage is is_there_twice:
        if where == "last":
            # It is as good as the one that the writer has put there, for all that is known.
            return
        named = chunk_key(number + 1)
    before = [info.key for info in store.list()]
    with pytest.raises(ReplicaDamaged, match=named):
        start(store, journal, clock, who=WriterInfo("next", ""))
    assert [info.key for info in store.list()] == before


def test_a_segment_with_other_bytes_is_not_listed() -> None:
    world = History(11).live(40)
    store, journal, clock = MemoryStore("memory://nine"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock)
    writer.ship_all()
    key = segment_key("jobs", journal.jobs.segments()[0].id)
    store.create(key, b"something else")
    with pytest.raises(ReplicaDamaged, match=key):
        writer.tidy()
    assert not writer.manifest.segments


def test_what_was_needless_for_long_enough_is_deleted() -> None:
    """The marks decide: what a state needed, and since when it no longer does."""
    world = History(11).live(60)
    store, journal, clock = MemoryStore("memory://ten"), world.engine.journal, Clock()
    kept: dict[LogName, int] = {}
    make(store, journal)
    writer = start(store, journal, clock, keep_ms=100_000, kept_from=kept)

    def tidied() -> list[int]:
        for _ in range(100):
            clock.now += 0.1
            if writer.ship() or writer.tidy():
                clock.now += 3
        return [entry.id for entry in writer.manifest.segments if entry.log == "jobs"]

    every = tidied()
    assert len(every) > 3
    kept["jobs"] = every[2]
    assert tidied() == every
    assert writer.manifest.kept_from == {"jobs": every[2]}
    marked_at = writer.manifest.marks[0].at
    clock.now += 60
    assert tidied() == every
    assert not writer.manifest.reaches_back_to
    clock.now += 60
    assert tidied() == every[2:]
    assert writer.manifest.reaches_back_to == marked_at
    there = {info.key for info in store.list("segments/jobs/")}
    assert there == {segment_key("jobs", id) + end for id in every[2:] for end in ("", ".idx")}


def test_many_small_chunks_do_not_fill_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In sync mode there may be hundreds in a second: a segment for each 1024 of them would be
    listed for the whole retention, in an object that is read every second."""
    monkeypatch.setattr(writing, "CHUNKS_BEHIND_MAX", 8)
    world = History(3).live(20)
    store, journal, clock = MemoryStore("memory://many"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock)
    for number in range(30):
        world.put(f"topic-{number}", type="log", durability="fsync")
        world.step()
        ship_all(writer)
        clock.now += 9
        assert not writer.wanted_rolls()
    clock.now += 60
    assert writer.wanted_rolls()


def test_a_segment_that_is_deleted_while_it_is_compared_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another server is the writer by then, and its collector has deleted it; or it is this one."""
    world = History(11).live(40)
    store, journal, clock = MemoryStore("memory://deleted"), world.engine.journal, Clock()
    make(store, journal)
    writer = start(store, journal, clock)
    writer.ship_all()
    first = journal.jobs.segments()[0]
    key = segment_key("jobs", first.id)
    store.create(key, files_of(journal)["jobs", first.id])
    get = store.get

    def deleted(wanted: str) -> StoredObject:
        if wanted == key:
            store.delete([key])
        return get(wanted)

    monkeypatch.setattr(store, "get", deleted)
    with pytest.raises(StoreUnavailable, match="was deleted meanwhile"):
        writer.tidy()
    monkeypatch.undo()
    while writer.tidy():
        clock.now += 3
    assert writer.manifest.segments[0].id == first.id
    assert get(key).data == files_of(journal)["jobs", first.id]
