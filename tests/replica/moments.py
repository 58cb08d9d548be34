"""A random life that is replicated, with what was there after each of its steps.

Owns: the writers, and the pictures of moments. Must not know: how a moment is restored.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

from logqueue.core.apply.elapse import elapse
from logqueue.core.state import State
from logqueue.replica.frame_source import JournalFrames
from logqueue.replica.manifest import WriterInfo
from logqueue.replica.object_store import ObjectExists, ObjectStore
from logqueue.replica.takeover import create_replica, take_over
from logqueue.replica.writing import ReplicaWriter
from logqueue.segments.history import HistoryBounds
from logqueue.server.storage.journal import Journal
from tests.core.world import World
from tests.portrait import portrait
from tests.segments.histories import History
from wal import Log

_numbers = count(1)


class RecordedMoment(NamedTuple):
    """What was there.

    Attributes:
        order: Of the last transaction.
        at: The clock.
        facts: A portrait.
    """

    order: int
    at: int
    facts: dict[str, Any]


def picture(state: State, now: int) -> dict[str, Any]:
    """What the logs say of a state, with all that time has done."""
    for topic in state.instances.values():
        elapse(topic, now, jobs_max=None)
    facts = portrait(state, now)
    for topic in facts.values():
        if not topic.get("attributes", True):
            # Those that had some are gone.
            del topic["attributes"]
        if "queue" in topic:
            # Jobs whose record is gone; a live server remembers them until they are settled.
            topic["queue"].pop("orphans")
    return deepcopy(facts)


class WorldReplica:
    """The replica of one life of a world.

    Attributes:
        store: Where it is.
        writer: Of this life.
    """

    def __init__(
        self,
        store: ObjectStore,
        world: World,
        *,
        keep_ms: int,
        chunk_bytes_max: int,
        bounds: HistoryBounds | None = None,
    ) -> None:
        """Take over; the replica is made if there is none."""
        self.store = store
        self._seconds = 0.0
        journal = world.engine.journal
        me = WriterInfo(f"writer-{next(_numbers)}", "")
        identities = {name: log.identity.hex() for name, log in journal.logs.items()}
        with suppress(ObjectExists):
            create_replica(store, identities["jobs"], identities["leases"], me)
        frames = JournalFrames(
            journal.logs,
            journal.fs,
            lambda: {"jobs": journal.jobs_kept_from, "leases": journal.leases_kept_from},
        )
        self.writer = ReplicaWriter(
            store,
            frames,
            take_over(store, me, None, lambda chunks, end: None),
            clock_ms=lambda: world.now,
            monotonic=lambda: self._seconds,
            keep_ms=keep_ms,
            history=bounds,
            chunk_bytes_max=chunk_bytes_max,
            readers_s=0.0,
        )

    def ship(self, *, with_segments: bool) -> None:
        """Commit what is written; upload what is sealed, and collect."""
        while self.writer.ship():
            pass
        self._seconds += 3
        while with_segments and self.writer.tidy():
            self._seconds += 3


class ReplicatedHistory(History):
    """A random life with a replica.

    Attributes:
        store: Where its replica is.
        moments: After each step.
        replica: Of the last life.
    """

    def __init__(
        self,
        seed: int,
        store: ObjectStore,
        *,
        keep_ms: int = 10**9,
        chunk_bytes_max: int = 2000,
        bounds: HistoryBounds | None = None,
    ) -> None:
        super().__init__(seed)
        self.store = store
        self.moments: list[RecordedMoment] = []
        self.replica: WorldReplica | None = None
        self._keep_ms = keep_ms
        self._bounds = bounds
        self._chunk_bytes_max = chunk_bytes_max
        self._journal: Journal | None = None

    @property
    def writer(self) -> ReplicaWriter:
        """The last one."""
        assert self.replica is not None
        return self.replica.writer

    def _begin(self, world: World) -> None:
        # After a kill, topics of weaker classes go on behind the seqs that were promised.
        for name in ("d", "attic"):
            world.put(name, type="log", durability="fsync")
        super()._begin(world)

    def _keep_segments(self, world: World) -> None:
        journal = world.engine.journal
        if journal is not self._journal:
            self._journal = journal
            self.replica = WorldReplica(
                self.store,
                world,
                keep_ms=self._keep_ms,
                chunk_bytes_max=self._chunk_bytes_max,
                bounds=self._bounds,
            )
        assert self.replica is not None
        self.moments.append(
            RecordedMoment(journal.order - 1, world.now, picture(world.state, world.now))
        )
        self.replica.ship(with_segments=self.rng.random() < 0.5)

    def _end_a_life(self, world: World) -> None:
        super()._end_a_life(world)
        self._keep_segments(world)

    def _keep(self, log: Log) -> None:
        """Segments of this log are about to be dropped: a server waits until they are listed."""
        super()._keep(log)
        if self.replica is not None:
            self.replica.ship(with_segments=True)
