"""Whatever is wrong with a replica is refused with the name of the object, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from logqueue.replica.chunk import Chunk, chunk_key, decode_chunk, encode_chunk
from logqueue.replica.manifest import (
    MANIFEST_KEY,
    ReplicaManifest,
    encode_manifest,
    segment_key,
)
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import StoreUnavailable
from logqueue.replica.reading import ReadVoid, ReplicaDamaged, ReplicaMissing, ReplicaReader
from logqueue.replica.restoring import (
    RestoreProgress,
    RestoreRefused,
    is_unfinished,
    restore,
    settle,
)
from logqueue.server.storage.journal import Journal
from logqueue.testing.simulated_store import SOME_FAULTS, SimulatedStore, StoreCall
from tests.effort import scaled
from tests.replica.moments import ReplicatedHistory
from wal import WalCorrupt
from wal.testing.simfs import SimCrash, SimFileSystem


class MadeReplica(NamedTuple):
    """A sound replica."""

    store: MemoryStore
    manifest: ReplicaManifest
    chunks: range


@pytest.fixture(scope="module")
def made() -> MadeReplica:
    store = MemoryStore("memory://damaged")
    history = ReplicatedHistory(1, store, chunk_bytes_max=900)
    world = history.live(25)
    for number in range(4):
        world.write("a", "last", number)
        world.step()
        history.writer.ship()
    history.writer.renew()
    manifest = ReplicaReader(store).manifest().manifest
    last = ReplicaReader(store).listed_chunks(1)[-1].number
    assert last > manifest.start_chunk + 2 and len(manifest.segments) > 2
    return MadeReplica(store, manifest, range(manifest.start_chunk, last + 1))


def copy_of(store: MemoryStore) -> MemoryStore:
    other = MemoryStore(store.url)
    for info in store.list():
        other.put(info.key, store.get(info.key).data)
    return other


def flipped(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def assert_refused(store: MemoryStore, key: str) -> None:
    for parallel in (1, 3):
        fs = SimFileSystem(Random(0))
        with pytest.raises(ReplicaDamaged, match=key):
            restore(store, fs, "data", parallel=parallel, pause=lambda seconds: None)
        assert_empty(fs)


def assert_empty(fs: SimFileSystem) -> None:
    for name in ("data", "data/jobs", "data/leases"):
        with suppress(FileNotFoundError):
            assert [found for found in fs.listdir(name) if "." in found or found.isupper()] == []


Damage = Callable[[MemoryStore, str, Random], None]


def missing(store: MemoryStore, key: str, rng: Random) -> None:
    store.delete([key])


def cut_short(store: MemoryStore, key: str, rng: Random) -> None:
    data = store.get(key).data
    store.put(key, data[: rng.randrange(len(data))])


def too_long(store: MemoryStore, key: str, rng: Random) -> None:
    store.put(key, store.get(key).data + rng.randbytes(rng.randrange(1, 50)))


def one_bit(store: MemoryStore, key: str, rng: Random) -> None:
    store.put(key, flipped(store.get(key).data, rng))


DAMAGES: tuple[Damage, ...] = (missing, cut_short, too_long, one_bit)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_by_name(made: MadeReplica, damage: Damage) -> None:
    rng = Random(1)
    needed = [
        segment_key(entry.log, entry.id)
        for entry in made.manifest.segments
        if entry.id >= made.manifest.kept_from.get(entry.log, 0)
    ]
    chunks = [chunk_key(number) for number in made.chunks]
    keys = [chunks[0], chunks[-1], *rng.sample(chunks, 2), *rng.sample(needed, 2)]
    for key in keys:
        for _ in range(scaled(2, 40)):
            store = copy_of(made.store)
            damage(store, key, rng)
            assert_refused(store, key)


def test_a_chunk_of_another_log_is_refused(made: MadeReplica) -> None:
    number = made.chunks[1]
    store = copy_of(made.store)
    chunk = read(store, number)
    for changes in ({"log_id": "ab" * 16}, {"leases_id": "ab" * 16}):
        header = msgspec.structs.replace(chunk.header, **changes)
        store.put(chunk_key(number), encode_chunk(header, chunk.data)[0])
        assert_refused(store, f"{chunk_key(number)} is of another log")


def test_a_number_that_is_there_twice_is_refused(made: MadeReplica) -> None:
    first, second = made.chunks[1], made.chunks[2]
    store = copy_of(made.store)
    store.put(chunk_key(second), store.get(chunk_key(first)).data)
    assert_refused(store, f"{chunk_key(second)} is damaged: it is chunk {first}")
    # Two of one number, with all digests right: the next chunk names the one that was replaced.
    store = copy_of(made.store)
    chunk = read(store, first)
    header = msgspec.structs.replace(chunk.header, writer="somebody")
    store.put(chunk_key(first), encode_chunk(header, chunk.data)[0])
    assert_refused(store, f"{chunk_key(second)} does not follow on chunk {first}")


def test_runs_that_do_not_follow_are_refused(made: MadeReplica) -> None:
    number = made.chunks[-1]
    store = copy_of(made.store)
    chunk = read(store, number)
    assert chunk.header.runs
    run = chunk.header.runs[0]
    runs = (msgspec.structs.replace(run, first=run.first + 1, last=run.last + 1),)
    header = msgspec.structs.replace(chunk.header, runs=(*runs, *chunk.header.runs[1:]))
    store.put(chunk_key(number), encode_chunk(header, chunk.data)[0])
    assert_refused(store, f"{chunk_key(number)}: frame {run.first + 1}")


def read(store: MemoryStore, number: int) -> Chunk:
    return decode_chunk(store.get(chunk_key(number)).data, number)


def test_a_manifest_that_is_not_one_is_refused(made: MadeReplica) -> None:
    for data in (b"", b"{}", b"\xff", encode_manifest(made.manifest)[:-9]):
        store = copy_of(made.store)
        store.put(MANIFEST_KEY, data)
        assert_refused(store, "manifest.json is damaged")
    store = copy_of(made.store)
    store.put(MANIFEST_KEY, encode_manifest(made.manifest).replace(b'"format":1', b'"format":2'))
    assert_refused(store, "manifest.json is damaged: it has format 2; this version reads 1")
    store.delete([MANIFEST_KEY])
    with pytest.raises(ReplicaMissing, match=r"has no manifest\.json"):
        restore(store, SimFileSystem(Random(0)), "data")


def test_a_segment_of_another_log_is_refused(made: MadeReplica) -> None:
    """The manifest says so itself: its digest is right, its header is not."""
    first, second = [e for e in made.manifest.segments if e.log == "jobs"][-2:]
    store = copy_of(made.store)
    data = store.get(segment_key("jobs", second.id)).data
    store.put(segment_key("jobs", first.id), data)
    changed = msgspec.structs.replace(first, bytes=second.bytes, sha256=second.sha256)
    segments = tuple(changed if e == first else e for e in made.manifest.segments)
    kept = {**made.manifest.kept_from, "jobs": first.id}
    manifest = msgspec.structs.replace(made.manifest, segments=segments, kept_from=kept)
    store.put(MANIFEST_KEY, encode_manifest(manifest))
    assert_refused(store, segment_key("jobs", first.id))


# -- a collector, a bad way to the store ---------------------------------------------------------


def test_what_the_collector_has_passed_is_read_again(made: MadeReplica) -> None:
    """The manifest lists more when the chunks are asked for; those before the start are gone."""
    store = copy_of(made.store)
    behind = made.manifest
    # A reader that had read the manifest when all of it was still in chunks.
    early = msgspec.structs.replace(
        behind, segments=(), kept_from={}, start_chunk=1, start_digest="", garbage_before=1
    )
    store.put(MANIFEST_KEY, encode_manifest(early))
    way = SimulatedStore()
    way.shared.objects = store

    def collect(call: StoreCall, moment: str) -> None:
        if call.method == "list" and moment == "before":
            store.put(MANIFEST_KEY, encode_manifest(behind))

    way._on_call = collect
    fs, plain = SimFileSystem(Random(0)), SimFileSystem(Random(0))
    found = restore(way, fs, "data", parallel=1)
    assert found == restore(store, plain, "data", parallel=1)
    assert files(fs) == files(plain)
    with pytest.raises(ReadVoid, match="was collected"):
        way._on_call = lambda call, moment: None
        reader = ReplicaReader(way)
        [*reader.chunks(2, "")]


def files(fs: SimFileSystem) -> dict[str, bytes]:
    found = {}
    for name in ("jobs", "leases"):
        for path in fs.listdir(f"data/{name}"):
            file = fs.open(f"data/{name}/{path}")
            found[f"{name}/{path}"] = file.pread(file.size(), 0)
    return found


def test_a_bad_way_to_the_store_costs_time_only(made: MadeReplica) -> None:
    plain = SimFileSystem(Random(0))
    wanted = restore(made.store, plain, "data", parallel=1)
    given_up = 0
    for seed in range(scaled(3, 100)):
        slept: list[float] = []
        way = SimulatedStore(seed=seed, faults=SOME_FAULTS, pause=slept.append)
        way.shared.objects = made.store
        fs = SimFileSystem(Random(0))
        try:
            found = restore(way, fs, "data", parallel=1, pause=slept.append)
        except StoreUnavailable:
            # As often as it tries a call, the way was bad.
            given_up += 1
            continue
        assert found == wanted
        assert files(fs) == files(plain)
        assert slept
    assert given_up <= 2


# -- the directory -------------------------------------------------------------------------------


def test_a_directory_with_logs_is_refused_and_left_alone(made: MadeReplica) -> None:
    fs = SimFileSystem(Random(0))
    restore(made.store, fs, "data", parallel=1)
    before = files(fs)
    with pytest.raises(RestoreRefused, match="there are logs in data"):
        restore(made.store, fs, "data", parallel=1)
    settle(fs, "data")
    assert files(fs) == before


def test_a_power_cut_leaves_a_whole_directory_or_none(made: MadeReplica) -> None:
    plain = SimFileSystem(Random(0))
    restore(made.store, plain, "data", parallel=1)
    total = plain.ops
    (finished,) = (op.number for op in plain.history if op.kind == "remove")
    for point in sorted(Random(2).sample(range(total), scaled(25, total))):
        fs = SimFileSystem(Random(point))
        fs.crash_after(point)
        with pytest.raises(SimCrash):
            restore(made.store, fs, "data", parallel=1)
        survivor = fs.crash_clone(Random(point))
        if is_unfinished(survivor, "data"):
            with pytest.raises(WalCorrupt, match="was not finished"):
                Journal.open("data", segment_bytes_max=1 << 20, fs=survivor)
        try:
            restore(made.store, survivor, "data", parallel=1)
        except RestoreRefused:
            # The mark was removed; only that this is durable was missing.
            assert point >= finished
        assert files(survivor) == files(plain), f"stopped after {point} of {total}"


def test_progress_ends_at_its_total(made: MadeReplica) -> None:
    for parallel in (1, 4):
        seen: list[RestoreProgress] = []
        restore(
            made.store, SimFileSystem(Random(0)), "data", parallel=parallel, progress=seen.append
        )
        assert [one.done for one in seen] == sorted(one.done for one in seen)
        assert seen[-1].done == seen[-1].total
        assert 0.8 * seen[-1].total < seen[-2].done <= seen[-1].total
