"""Thousands of histories of servers that fail in every way, and rules that are needed to survive.

Each rule of docs/replication.md is switched off in turn: some history must then go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from logqueue.replica import collecting, retention, upkeep
from logqueue.replica.chain import LOGS, ChainEnd
from logqueue.replica.chunk import LogName, decode_chunk_header
from logqueue.replica.manifest import ReplicaManifest
from logqueue.replica.object_store import StoreUnavailable
from logqueue.replica.reading import ReplicaReader, StoredManifest
from logqueue.replica.takeover import _Attempt
from logqueue.replica.upkeep import ReplicaUpkeep
from logqueue.replica.writing import ReplicaWriter, _Pending
from logqueue.segments.history import SealedSegment
from tests.effort import scaled
from tests.replica import protocol_world
from tests.replica.protocol_world import (
    FAIR,
    FORGETFUL,
    HESITANT,
    SLEEPY,
    STALLED,
    TWINS,
    WatchedStore,
    Weather,
    history,
    outline,
)

HISTORIES = scaled(300, 10_000)
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_nothing_acknowledged_is_lost(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        history(seed)


def test_the_histories_are_eventful() -> None:
    """A simulation in which nothing happens finds nothing."""
    worlds = [history(seed) for seed in range(60)]
    assert sum(len(world.acked) for world in worlds) > 1000
    assert sum(world.takeovers for world in worlds) > 60
    assert sum(world.restores for world in worlds) > 100
    assert sum(world.fenced for world in worlds) > 3
    assert sum(world.store.collected for world in worlds) > 50


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert outline(history(seed)) == outline(history(seed))


# -- without a rule --------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def chunks_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    """I1."""
    create = WatchedStore.create

    def created(store: WatchedStore, key: str, data: bytes) -> str:
        if not key.startswith("chunks/"):
            return create(store, key, data)
        store.put(key, data)
        return ""

    patch.setattr(WatchedStore, "create", created)


def unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    """I2a."""
    commit = ReplicaWriter._commit

    def committed(writer: ReplicaWriter, pending: _Pending) -> None:
        store = writer._store
        try:
            commit(writer, pending)
        except StoreUnavailable:
            writer._store = Agreeable()  # type: ignore[assignment]
            commit(writer, pending)
        finally:
            writer._store = store

    patch.setattr(ReplicaWriter, "_commit", committed)


class Agreeable:
    """A store to which everything was written."""

    def create(self, key: str, data: bytes) -> str:
        return ""


def unknown_is_failure(patch: pytest.MonkeyPatch) -> None:
    """I2b."""
    commit = ReplicaWriter._commit

    def committed(writer: ReplicaWriter, pending: _Pending) -> None:
        try:
            commit(writer, pending)
        except StoreUnavailable:
            writer._pending = None
            raise

    patch.setattr(ReplicaWriter, "_commit", committed)


def the_writer_is_enough(patch: pytest.MonkeyPatch) -> None:
    """I2c."""

    def is_ours(writer: ReplicaWriter, key: str, pending: _Pending) -> bool:
        header = decode_chunk_header(writer._store.get(key).data, pending.header.number)
        return header.writer == writer.writer.id

    patch.setattr(ReplicaWriter, "_is_ours", is_ours)


def takeovers_are_garbage(patch: pytest.MonkeyPatch) -> None:
    """I4."""
    patch.setattr(ReplicaUpkeep, "_is_takeover", lambda self, number: False)
    patch.setattr(collecting, "_is_takeover", lambda store, key: False)


def takeovers_are_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """I5."""

    def confirmed(attempt: _Attempt, manifest: ReplicaManifest, number: int) -> StoredManifest:
        return StoredManifest(manifest, "not known")

    patch.setattr(_Attempt, "_confirmed", confirmed)


def deleted_before_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """I6, the writer's part."""
    change = ReplicaUpkeep.change

    def changed(self: ReplicaUpkeep, changed: Callable[[ReplicaManifest], ReplicaManifest]) -> bool:
        wanted = changed(self.stored.manifest)
        self._store.delete([*collecting.garbage(self._store, wanted)])
        return change(self, changed)

    patch.setattr(ReplicaUpkeep, "change", changed)


def readers_do_not_look_at_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """I6, the readers' part."""
    patch.setattr(ReplicaReader, "_require_kept", lambda self, number: None)


def later_epochs_are_followed(patch: pytest.MonkeyPatch) -> None:
    """I8, and I5 with it: nothing ends a candidate that is late."""
    takeovers_are_not_confirmed(patch)
    made = _Attempt._begin_epoch

    def begun(attempt: _Attempt) -> ReplicaManifest:
        manifest = made(attempt)
        attempt._reader = Ageless(attempt._store, tries=1)
        return manifest

    patch.setattr(_Attempt, "_begin_epoch", begun)


class Ageless(ReplicaReader):
    """Says of no chunk that it is of a later epoch."""

    def chunk(self, number: int) -> Any:
        found = super().chunk(number)
        if found is not None:
            header = msgspec.structs.replace(found.header, epoch=0)
            found = msgspec.structs.replace(found, header=header)
        return found


def chunks_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """I9."""

    def received(server: Any, chunks: Sequence[Any], end: ChainEnd | None) -> None:
        if end is not None:
            server.logs.end = end

    patch.setattr(protocol_world.Server, "_receive", received)


def sealed_by_oneself(patch: pytest.MonkeyPatch) -> None:
    """I10."""

    def is_settled(self: ReplicaUpkeep, log: LogName, segment: SealedSegment) -> bool:
        return segment.last <= self._end.frame(log)

    patch.setattr(ReplicaUpkeep, "is_settled", is_settled)


def needless_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """I11."""
    step = ReplicaUpkeep.step

    def stepped(self: ReplicaUpkeep, end: ChainEnd, kept_from: Mapping[LogName, int]) -> bool:
        return step(self, end, self._source.kept_from())

    patch.setattr(ReplicaUpkeep, "step", stepped)


def dropped_before_it_is_listed(patch: pytest.MonkeyPatch) -> None:
    """I12."""
    patch.setattr(ReplicaWriter, "may_drop_before", lambda self, log: 1 << 60)


def all_that_is_old_goes(patch: pytest.MonkeyPatch) -> None:
    """I13."""
    patch.setattr(retention, "newest_listed", lambda manifest: dict.fromkeys(LOGS, 1 << 60))


def kept_beyond_what_is_listed(patch: pytest.MonkeyPatch) -> None:
    """I16."""
    patch.setattr(upkeep, "_begins_at", lambda log, kept_from, newest: kept_from.get(log, 0))


def the_manifest_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    """I14."""

    def replaced(store: WatchedStore, key: str, data: bytes, version: str) -> str:
        store.put(key, data)
        return store.get(key).version

    patch.setattr(WatchedStore, "replace", replaced)


WITHOUT: dict[str, tuple[Patch, Weather, int]] = {
    "put instead of create": (chunks_are_overwritten, FAIR, 0),
    "unknown outcome taken for success": (unknown_is_success, FAIR, 0),
    "unknown outcome taken for failure": (unknown_is_failure, FAIR, 0),
    "no digest check": (the_writer_is_enough, TWINS, 0),
    "takeover chunks deleted": (takeovers_are_garbage, STALLED, 0),
    "no second look at the manifest": (takeovers_are_not_confirmed, HESITANT, 40),
    "boundary moved after deleting": (deleted_before_the_boundary, SLEEPY, 560),
    "readers do not look at the boundary": (readers_do_not_look_at_the_boundary, SLEEPY, 0),
    "later epochs followed": (later_epochs_are_followed, SLEEPY, 40),
    "chunks not kept before the takeover": (chunks_are_not_kept, FAIR, 50),
    "segments sealed by oneself": (sealed_by_oneself, FAIR, 1095),
    "segments needless before that is committed": (needless_before_it_is_committed, FAIR, 0),
    "segments dropped before they are listed": (dropped_before_it_is_listed, FAIR, 0),
    "the newest segments retired": (all_that_is_old_goes, FORGETFUL, 810),
    "kept beyond what is listed": (kept_beyond_what_is_listed, STALLED, 2992),
    "manifest overwritten": (the_manifest_is_overwritten, FAIR, 0),
}
"""What switches a rule off, what is dangerous then, and where to begin to search."""

BOUND = 1500
"""After so many histories a rule that is switched off must have been missed."""


@pytest.mark.parametrize("rule", WITHOUT)
def test_every_rule_is_needed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_off, weather, first = WITHOUT[rule]
    switch_off(monkeypatch)
    for seed in range(first, first + BOUND):
        try:
            history(seed, weather)
        except Exception as error:
            print(f"{rule}: history {seed}: {error}")
            return
    pytest.fail(f"{BOUND} histories have not missed it")
