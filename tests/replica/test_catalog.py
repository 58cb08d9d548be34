"""The segments of a replica are those of the log, whether they are objects or parts of chunks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.stores.audited_segments import segments_of
from logqueue.pipeline.stores.log_files import LogFiles
from logqueue.replica.catalog import ReplicaSegments, SegmentCollected
from logqueue.replica.chunk import chunk_key
from logqueue.replica.collecting import segment_keys
from logqueue.replica.manifest import MANIFEST_KEY, encode_manifest, segment_key
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.opening import open_store
from logqueue.replica.reading import ReplicaDamaged, ReplicaMissing, ReplicaReader
from logqueue.replica.restoring import restore
from logqueue.segments.catalog import Catalog, IndexCache, open_catalog, read_segment
from tests.effort import scaled
from tests.replica.moments import ReplicatedHistory
from wal import OsFileSystem, SegmentHeader, encode_header, segment_path


@pytest.fixture(params=range(scaled(3, 30)))
def history(request: pytest.FixtureRequest) -> Iterator[ReplicatedHistory]:
    store = open_store(f"memory://catalog-{request.param}")
    assert isinstance(store, MemoryStore)
    for info in list(store.list()):
        store.delete([info.key])
    history = ReplicatedHistory(request.param, store, chunk_bytes_max=900)
    world = history.live(25)
    assert history.writer is not None
    for number in range(4):
        world.write("a", "last", number)
        world.step()
        history.writer.ship()
    yield history


def local(store: MemoryStore, directory: Path) -> Catalog:
    """The same log as files."""
    restore(store, OsFileSystem(), str(directory))
    return open_catalog([directory], cache=IndexCache(directory / "cache"))


def assert_same(url: str, store: MemoryStore, directory: Path) -> None:
    segments = ReplicaSegments(url)
    found, files = segments.catalog(), local(store, directory)
    # A restore brings what the present needs; earlier moments may have more.
    assert {f.segment for f in files.jobs} <= {f.segment for f in found.jobs}
    elsewhere: ReplicaSegments = pickle.loads(pickle.dumps(segments))
    for file in [*files.jobs, *files.leases]:
        other = found.file(file.log, file.segment)
        assert other.index.bytes == file.index.bytes
        assert other.index.topics == file.index.topics
        data = elsewhere.fetch(file.log, file.segment, file.index.bytes)
        assert data == read_segment(file.path, file.index.bytes)


def test_it_is_the_catalog_of_the_files(history: ReplicatedHistory, tmp_path: Path) -> None:
    store = history.store
    assert isinstance(store, MemoryStore)
    assert_same(store.url, store, tmp_path / "with-indexes")
    for info in list(store.list("segments/")):
        if info.key.endswith(".idx"):
            store.delete([info.key])
    assert_same(store.url, store, tmp_path / "without")


def test_what_was_sealed_meanwhile_is_found_where_it_went(history: ReplicatedHistory) -> None:
    segments = ReplicaSegments(history.store.url)
    last = segments.catalog().jobs[-1]
    before = segments.fetch("jobs", last.segment, last.index.bytes)
    number = ReplicaReader(history.store).listed_chunks(1)[-1].number
    # As the writer does: the segment whole, then its chunks go.
    history.store.create(segment_key("jobs", last.segment), before)
    history.store.delete([chunk_key(at) for at in range(1, number + 1)])
    assert segments.fetch("jobs", last.segment, last.index.bytes) == before
    history.store.delete([segment_key("jobs", last.segment)])
    with pytest.raises(SegmentCollected):
        segments.fetch("jobs", last.segment, last.index.bytes)


def test_damage_is_named(history: ReplicatedHistory) -> None:
    store = history.store
    listed = ReplicaReader(store).manifest().manifest.segments[0]
    index, whole = segment_keys(listed.log, listed.id)
    store.put(index, b"not an index")
    store.put(whole, store.get(whole).data[:-8])
    with pytest.raises(ReplicaDamaged, match=whole):
        ReplicaSegments(store.url).catalog()
    with pytest.raises(ReplicaDamaged, match=whole):
        ReplicaSegments(store.url).fetch(listed.log, listed.id, listed.bytes)
    with pytest.raises(ReplicaMissing, match="memory://nothing-there"):
        ReplicaSegments("memory://nothing-there").catalog()


def test_an_archive_and_a_replica_are_read_as_one(
    history: ReplicatedHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History in a directory, from before there was a replica."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = history.store
    whole = ReplicaSegments(store.url).catalog()
    stored = ReplicaReader(store).manifest()
    listed = [(entry.log, entry.id) for entry in stored.manifest.segments]
    old = [key for key in listed if key < max(other for other in listed if other[0] == key[0])]
    for log, id in old:
        (tmp_path / log).mkdir(exist_ok=True)
        data = store.get(segment_key(log, id)).data
        Path(segment_path(str(tmp_path / log), id)).write_bytes(data)
        store.delete(segment_keys(log, id))
    kept = [entry for entry in stored.manifest.segments if (entry.log, entry.id) not in old]
    shorter = msgspec.structs.replace(stored.manifest, segments=tuple(kept))
    store.replace(MANIFEST_KEY, encode_manifest(shorter), stored.version)
    jobs = [log for log, _ in old].count("jobs")
    assert len(LogFiles([store.url]).catalog().jobs) == len(whole.jobs) - jobs
    files: LogFiles = pickle.loads(pickle.dumps(LogFiles([store.url, str(tmp_path)])))
    found = files.catalog()
    for one, other in zip((*found.jobs, *found.leases), (*whole.jobs, *whole.leases), strict=True):
        assert (one.segment, one.is_sealed) == (other.segment, other.is_sealed)
        assert one.index.crc32 == other.index.crc32
        assert crc32(files.fetch(one.log, one.segment, one.index.bytes)) == one.index.crc32
    assert found.identity == whole.identity
    # An audit has all of the history, too.
    segments, _ = segments_of(f"{tmp_path},{store.url}")
    assert sum(source.file.log == "jobs" for source in segments) == len(whole.jobs)
    (tmp_path / "other" / "jobs").mkdir(parents=True)
    foreign = encode_header(SegmentHeader(1, 1, b"another identity"))
    Path(segment_path(str(tmp_path / "other" / "jobs"), 1)).write_bytes(foreign)
    with pytest.raises(PipelineError, match="are of different logs"):
        LogFiles([store.url, str(tmp_path / "other")]).catalog()
