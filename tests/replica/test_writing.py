"""A writer ships the logs of a server, chunk by chunk, and uploads what is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from logqueue.replica.chain import LOGS, ChainEnd, chain_start, extended
from logqueue.replica.chunk import Chunk, LogName, chunk_key, decode_chunk
from logqueue.replica.frame_source import JournalFrames
from logqueue.replica.manifest import WriterInfo, segment_key
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectMissing
from logqueue.replica.reading import ReplicaReader
from logqueue.replica.takeover import create_replica, take_over
from logqueue.replica.writing import ReplicaWriter, WriterFenced
from logqueue.segments.index import decode_index
from logqueue.server.storage.journal import Journal
from tests.core.world import World
from tests.segments.histories import History
from wal import HEADER_BYTES

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
    return JournalFrames(journal.logs, journal.fs, lambda: kept_from or {})


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
) -> ReplicaWriter:
    def receive(chunks: Sequence[Chunk], end: ChainEnd) -> None:
        if received is not None:
            received.extend(chunks)

    return ReplicaWriter(
        store,
        frames_of(journal),
        take_over(store, who, None, receive),
        clock_ms=clock.ms,
        monotonic=clock,
        chunk_bytes_max=chunk_bytes_max,
        readers_s=readers_s,
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
    for step in (first.ship, first.renew, first.tidy, first.hand_over):
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
