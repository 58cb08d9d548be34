"""Any moment of a replica comes back as it was, or is refused."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from logqueue.core.invariants import check
from logqueue.core.state import State
from logqueue.model.limits import Quotas
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.reading import ReplicaReader
from logqueue.replica.restoring import Cut, RestoreRefused, restore
from logqueue.segments.history import HistoryBounds
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.log_follower import LogFollower
from logqueue.testing.simulated_store import SimulatedObjects, SimulatedStore
from tests.clock import ManualClock
from tests.core.world import World
from tests.effort import scaled
from tests.replica.moments import RecordedMoment, ReplicatedHistory, picture
from wal import segment_ids
from wal.testing.simfs import SimFileSystem

ROUTERS = {"router ab", "router bc", "router qd"}
SEEDS = range(scaled(2, 60))


def restored(store: MemoryStore, cut: Cut | None = None) -> SimFileSystem:
    fs = SimFileSystem(Random(5))
    restore(store, fs, "data", cut, parallel=1)
    return fs


def assert_is(fs: SimFileSystem, moment: RecordedMoment) -> None:
    """Compare a restored directory field by field, and start a server on it."""
    journal = Journal.open("data", segment_bytes_max=1 << 20, fs=fs)
    follower = LogFollower(journal, State(Quotas(), journal.payloads))
    follower.load()
    found = picture(follower.state, moment.at)
    journal.close()
    assert found.keys() == moment.facts.keys()
    for name, facts in moment.facts.items():
        for fact, value in facts.items():
            assert found[name].get(fact) == value, f"{name}: {fact}"
    world = World(fs, clock=ManualClock(moment.at))
    check(world.state)
    assert world.state.topics.keys() == moment.facts.keys() - ROUTERS


@pytest.mark.parametrize("seed", SEEDS)
def test_any_moment_comes_back(seed: int) -> None:
    store = MemoryStore(f"memory://moments-{seed}")
    history = ReplicatedHistory(seed, store)
    history.live(60)
    manifest = ReplicaReader(store).manifest().manifest
    assert manifest.kept_from and len(manifest.segments) > 3
    rng = Random(seed)
    assert_is(restored(store), history.moments[-1])
    for moment in rng.sample(history.moments, scaled(6, 30)):
        assert_is(restored(store, Cut(order=moment.order)), moment)
        # The last one of that millisecond.
        latest = [other for other in history.moments if other.at == moment.at][-1]
        assert_is(restored(store, Cut(at=moment.at)), latest)


BOUNDS: dict[str, HistoryBounds | None] = {
    "moments": None,
    "bytes": HistoryBounds(max_bytes=800_000),
    "age": HistoryBounds(max_age_ms=200_000),
    "all": HistoryBounds(),
}


@pytest.mark.parametrize("kept", BOUNDS)
def test_what_was_not_kept_is_refused(kept: str) -> None:
    """Kept are the moments of the retention, and beyond them what the bounds of history allow."""
    store = MemoryStore(f"memory://short-{kept}")
    history = ReplicatedHistory(4, store, keep_ms=100_000, bounds=BOUNDS[kept])
    history.live(120)
    manifest = ReplicaReader(store).manifest().manifest
    if kept == "bytes":
        assert 400_000 < sum(entry.bytes for entry in manifest.segments) <= 800_000
    if kept == "all":
        assert not manifest.reaches_back_to and manifest.segments[0].id == 1
        assert_is(restored(store, Cut(order=history.moments[9].order)), history.moments[9])
        return
    assert manifest.reaches_back_to
    reach = manifest.reaches_back_to
    refused = came_back = 0
    for moment, following in pairwise(history.moments[::9]):
        latest = [other for other in history.moments if other.at == moment.at][-1]
        if moment.at < reach:
            with pytest.raises(RestoreRefused, match=str(reach)):
                restored(store, Cut(at=moment.at))
            refused += 1
        else:
            assert_is(restored(store, Cut(at=moment.at)), latest)
            assert_is(restored(store, Cut(order=moment.order)), moment)
            came_back += 1
        if following.at < reach:
            with pytest.raises(RestoreRefused, match=str(reach)):
                restored(store, Cut(order=moment.order))
    assert refused and came_back
    with pytest.raises(RestoreRefused, match=r"from before|earliest"):
        restored(store, Cut(order=0))


def test_an_order_of_late_needs_no_old_segments() -> None:
    objects = MemoryStore("memory://late")
    history = ReplicatedHistory(4, objects, keep_ms=10**6)
    history.live(120)
    manifest = ReplicaReader(objects).manifest().manifest
    marks = manifest.marks
    assert len(marks) > 2 and all(mark.frame for mark in marks)
    every = sum(1 for entry in manifest.segments if entry.log == "jobs")
    fetched: list[int] = []
    for moment in (history.moments[2], history.moments[-2]):
        store = SimulatedStore(SimulatedObjects(objects))
        fs = SimFileSystem(Random(5))
        restore(store, fs, "data", Cut(order=moment.order), parallel=1)
        assert_is(fs, moment)
        fetched.append(len(segment_ids(fs, "data/jobs")))
        assert store.calls["get"] < 12 + fetched[-1]
    assert fetched[1] < every // 2
    # What an index cannot tell is looked for in the segments.
    for info in list(objects.list("segments/jobs/")):
        if info.key.endswith(".idx"):
            objects.delete([info.key])
    fs = restored(objects, Cut(order=history.moments[-2].order))
    assert_is(fs, history.moments[-2])
    assert len(segment_ids(fs, "data/jobs")) > fetched[1]
