"""A standby: it follows the writer of a replica, serves reads, and finds out when to take over.

Owns: when the replica is looked at, what is served meanwhile, when this server is to become the
writer. Must not know: how it becomes one (`runtime.py`), sockets, how the replica is read
(`logqueue.replica`).

The store is read in a thread, a part at a time; what it brings is applied in the event loop, a few
milliseconds at a time between requests. Nothing here is decided, logged or evicted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from logqueue.core.state import State
from logqueue.errors import LogqueueError, NotReady, NotWriter
from logqueue.model.clock import Clock
from logqueue.model.limits import Quotas
from logqueue.replica.manifest import ReplicaManifest, WriterHeartbeat
from logqueue.replica.mirror import Growth, MirrorDiverged, MirrorStale, ReplicaMirror
from logqueue.replica.object_store import StoreError
from logqueue.replica.reading import ReplicaMissing, ReplicaReader, ReplicaUnreadable
from logqueue.replica.restoring import RestoreProgress
from logqueue.server.engine.background import offload_forever
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.cooperative import CooperativeExecutor
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import EventListener
from logqueue.server.engine.following import FollowingEngine
from logqueue.server.service import Lifecycle
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.log_follower import LogFollower
from logqueue.server.storage.log_replay import LogEntry, OrderViolated
from logqueue.server.storage.replica_note import (
    begin_empty,
    finish_setting_aside,
    has_logs,
    read_note,
    set_logs_aside,
)
from logqueue.server.storage.replica_start import ReplicaAway, WriterAlive, note_followed
from logqueue.server.storage.segment_store import SegmentStore
from wal import FileSystem

T = TypeVar("T")

STEP_S = 0.003
HELD_S = 2.0
"""How long a transaction waits for an earlier one of the other log that may be lost."""

HEARTBEAT_S = 0.5
"""How often the heartbeat is looked at, at most: twice as often as it changes."""

ALL_SEGMENTS = 1 << 62

logger = logging.getLogger("logqueue.standby")


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """How a standby follows.

    Attributes:
        data_dir: Where the logs are copied to; this process has it locked.
        segment_bytes_max: Of the logs, as for any start.
        quotas: Of the server.
        poll_s: How often the replica is looked at, in seconds.
        auto_promote_s: Take over once the writer has shown no heartbeat for so long, in seconds;
            0.0 for never.
    """

    data_dir: str
    segment_bytes_max: int
    quotas: Quotas
    poll_s: float = 0.5
    auto_promote_s: float = 0.0


class Succession(NamedTuple):
    """Why and from whom a standby is to take over.

    Attributes:
        epoch: Of the writer that ends; None when there was no replica. If there is a later one by
            then, another server was faster.
        why: For the log.
    """

    epoch: int | None
    why: str


class _Signs(NamedTuple):
    """What a writer that is there keeps changing."""

    heartbeat: WriterHeartbeat | None
    epoch: int
    chunk: int


class _Vigil:
    """Watches whether a writer is there, by this server's own clock alone."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._signs: _Signs | None = None
        self._since: float | None = None
        self._asked_at = 0.0
        self.unchanged_s = 0.0

    def saw(self, signs: _Signs | None, asked_at: float, answered_at: float) -> None:
        """The store was read.

        Args:
            signs: None when there is no replica.
            asked_at: When it was asked, by our own clock, in seconds: what it says is not younger,
                however long this process slept since.
            answered_at: When it had answered.
        """
        # A process that slept for so long has not watched: the writer may have slept, too.
        has_slept = answered_at - self._asked_at >= self._timeout_s
        if self._since is None or signs != self._signs or has_slept:
            self._signs, self._since = signs, answered_at
        self._asked_at = asked_at
        self.unchanged_s = max(asked_at - self._since, 0.0)

    def interrupt(self) -> None:
        """The store could not be read: whether it changed is unknown, and a writer that finds the
        same is alive."""
        self._since = None
        self.unchanged_s = 0.0


class _Lost(Exception):
    """What is served cannot be continued: begin again from the files."""


class _IsAhead(Exception):
    """The directory is that of the last writer, and has what the replica lacks."""


class Standby:
    """One standby, from its start until it takes over or stops.

    Attributes:
        manifest: The manifest as it was last read; None before.
        chunk: The last chunk that is applied.
        lost_replica: The store has no replica, and the local logs are of one. A second one of the
            same log would be a fork, so it is made only when asked for.
    """

    def __init__(
        self,
        reader: ReplicaReader,
        fs: FileSystem,
        clock: Clock,
        lifecycle: Lifecycle,
        executor: CooperativeExecutor,
        options: StandbyOptions,
        is_ahead: Callable[[], bool],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        listener: EventListener | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            reader: Of the replica.
            fs: Where the data directory is.
            clock: Of the server.
            lifecycle: Learns what is served.
            executor: Where record data is moved out of memory.
            options: How to follow.
            is_ahead: Whether logs that are not a part of the replica are those of its last writer,
                and continue it; what else can be done about them is done. Blocks.
            monotonic: A clock for durations, in seconds.
            listener: Called with each event that is shown.
        """
        self._listener = listener
        self.manifest: ReplicaManifest | None = None
        self.chunk = 0
        self.lost_replica = False
        self._reader = reader
        self._fs = fs
        self._clock = clock
        self._lifecycle = lifecycle
        self._executor = executor
        self._options = options
        self._is_ahead = is_ahead
        self._monotonic = monotonic
        self._mirror = ReplicaMirror(reader, fs, options.data_dir, progress=self._note_restored)
        self._vigil = _Vigil(options.auto_promote_s)
        self._next_heartbeat = 0.0
        self._current_at: float | None = None
        self._held_since: float | None = None
        self._asked: Succession | None = None
        self._wake = asyncio.Event()
        self._served: LogFollower | None = None
        self._dispatcher: Dispatcher | None = None
        self._offloading: asyncio.Task[None] | None = None
        self._complained = ""
        self._under_way: asyncio.Future[Any] | None = None

    # -- what it says of itself ------------------------------------------------------------------

    @property
    def behind_ms(self) -> int:
        """See `StandbyView`."""
        if self._current_at is None:
            return 0
        return max(int((self._monotonic() - self._current_at) * 1000), 0)

    @property
    def writer(self) -> str:
        """Base URL of the writer; "" when it is not known."""
        return self.manifest.writer.address if self.manifest is not None else ""

    @property
    def epoch(self) -> int | None:
        """Of the writer; None when there is no replica."""
        return self.manifest.epoch if self.manifest is not None else None

    def refusal(self) -> LogqueueError:
        """See `StandbyView`."""
        return NotWriter.because("this server is a standby", self.writer)

    def status(self) -> dict[str, object]:
        """See `StandbyView`."""
        status: dict[str, object] = {
            "state": "behind" if self._complained else "current",
            "url": self._reader.store.url,
            "lag_ms": self.behind_ms,
            "last_chunk": self.chunk,
        }
        manifest = self.manifest
        if manifest is not None:
            writer = manifest.writer
            status["log_id"] = manifest.log_id
            status["epoch"] = manifest.epoch
            status["writer"] = {"id": writer.id, "address": writer.address}
        return status

    async def is_released(self) -> bool:
        """Whether the writer has handed over, as the replica says now."""
        loop = asyncio.get_running_loop()
        try:
            stored = await loop.run_in_executor(None, self._reader.manifest)
        except (StoreError, ReplicaUnreadable):
            return False
        return stored.manifest.is_released

    def promote(self, why: str) -> None:
        """Take over as soon as all that the replica has is here."""
        self._asked = Succession(self.epoch, why)
        self._wake.set()

    # -- following -------------------------------------------------------------------------------

    async def follow(self) -> Succession:
        """Serve reads until this server is to take over. Call it again if it could not.

        Returns:
            Why it is to. Nothing is served then, and the files are closed.

        Raises:
            MirrorDiverged: The local logs are not a part of the replica.
            ReplicaUnreadable: The replica is damaged.
            WalError, OSError: The local logs cannot be used.
        """
        self._asked = None
        self._vigil = _Vigil(self._options.auto_promote_s)
        try:
            while True:
                try:
                    if await self._load():
                        return await self._follow()
                except _IsAhead:
                    return Succession(self.epoch, "the directory has more than the replica")
                except _Lost as lost:
                    logger.warning("%s: beginning again from the files", lost)
                    continue
                succession = self._succession()
                if succession is not None:
                    return succession
                await self._rest()
        finally:
            await self._end()

    async def _load(self) -> bool:
        """Begin to serve what the replica has; False when there is none, or it cannot be read."""
        began = self._monotonic()
        loop = asyncio.get_running_loop()
        try:
            journal, follower = await self._in_thread(self._prepare)
        except ReplicaMissing as missing:
            self.manifest = None
            self.lost_replica = read_note(self._fs, self._options.data_dir) is not None
            if self.lost_replica:
                # It may be there for its writer, for instance where a mount is missing here.
                self._vigil.interrupt()
                self._complain(f"the replica of this directory is gone: {missing}")
            else:
                self._vigil.saw(None, began, self._monotonic())
                self._complain("there is no replica yet")
            return False
        except (StoreError, ReplicaAway) as error:
            self._note_unavailable(error)
            return False
        except WriterAlive:
            self._vigil.interrupt()
            self._complain(
                "this directory is a copy of that of the writer, which has not committed all of it "
                "yet"
            )
            return False
        await self._retire()
        self._served = follower
        segments = SegmentStore(journal.fs, journal.logs, None)
        engine = FollowingEngine(
            journal,
            segments,
            self._clock,
            follower.state,
            lambda: follower.last_at,
            self.refusal,
        )
        if self._listener is not None:
            engine.listen(self._listener)
        self._dispatcher = Dispatcher(engine, CommitBarrier(journal.jobs, loop))
        self._offloading = loop.create_task(offload_forever(journal, self._executor))
        self._note_current(began)
        self._lifecycle.follow(self._dispatcher, self)
        logger.info(
            "standby of %s: %d topics, chunk %d",
            self.writer or "an unknown writer",
            len(follower.state.topics),
            self.chunk,
        )
        return True

    def _prepare(self) -> tuple[Journal, LogFollower]:
        """Bring the files to where the replica ends, and replay them. Blocks."""
        served = self._served
        if served is not None:
            # The same process opens the same files again; what is served keeps its own open.
            served.journal.payloads.pin_before(ALL_SEGMENTS)
            served.journal.jobs.close()
            served.journal.leases.close()
        self._bring_up()
        options = self._options
        journal = Journal.open(
            options.data_dir, segment_bytes_max=options.segment_bytes_max, fs=self._fs
        )
        try:
            # Now, not at the end: after a kill, too, these logs are known to be of a replica.
            self._note_followed(journal)
            follower = LogFollower(journal, State(options.quotas, journal.payloads))
            follower.load(self._lifecycle.note_progress)
        except BaseException:
            journal.close()
            raise
        return journal, follower

    def _bring_up(self) -> None:
        mirror, fs, data_dir = self._mirror, self._fs, self._options.data_dir
        mirror.close()
        finish_setting_aside(fs, data_dir)
        if not has_logs(fs, data_dir):
            begin_empty(fs, data_dir)
        try:
            self._catch_up()
        except MirrorStale as stale:
            logger.warning("%s: restoring the replica again", stale)
            if self._served is not None:
                # This process has found that all of it is the replica's.
                mirror.wipe()
                begin_empty(fs, data_dir)
            else:
                mirror.close()
                aside = set_logs_aside(fs, data_dir)
                logger.warning("the logs of %s are now %s and beside", data_dir, aside)
            self._catch_up()
        except MirrorDiverged as diverged:
            mirror.close()
            logger.warning("%s", diverged)
            if self._is_ahead():
                self.manifest = self._reader.manifest().manifest
                raise _IsAhead from None
            self._catch_up()

    def _catch_up(self) -> None:
        for _ in self._mirror.catch_up():
            pass

    async def _follow(self) -> Succession:
        """Look again and again."""
        while True:
            await self._rest()
            if await self._poll():
                # Only now it is known whether the writer has shown itself meanwhile.
                succession = self._succession()
                if succession is not None:
                    return succession

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._options.poll_s)
        self._wake.clear()

    def _succession(self) -> Succession | None:
        if self._asked is not None:
            return self._asked
        wanted = self._options.auto_promote_s
        if wanted and self._vigil.unchanged_s >= wanted:
            return Succession(self.epoch, f"no heartbeat for {self._vigil.unchanged_s:.1f} s")
        return None

    async def _poll(self) -> bool:
        """Take what is new. Whether all of it came."""
        began = self._monotonic()
        growing = self._mirror.catch_up()
        try:
            while True:
                grown = await self._in_thread(partial(self._next_growth, growing))
                if grown is None:
                    break
                await self._apply(grown)
            asked_at = self._monotonic()
            signs = await self._in_thread(self._look_for_signs)
        except StoreError as error:
            self._note_unavailable(error)
            return False
        except (MirrorStale, OrderViolated) as lost:
            raise _Lost(str(lost)) from lost
        except (ReplicaUnreadable, OSError) as error:
            self._complain(str(error))
            raise _Lost(str(error)) from error
        if signs is not None:
            self._vigil.saw(signs, asked_at, self._monotonic())
        await self._release_held()
        await self._in_thread(self._drop_old)
        self._note_current(began)
        return True

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._under_way = asyncio.get_running_loop().run_in_executor(None, work)
        return await asyncio.shield(self._under_way)

    def _next_growth(self, growing: Iterator[Growth]) -> list[LogEntry] | None:
        grown = next(growing, None)
        if grown is None:
            return None
        assert self._served is not None
        return self._served.note_growth(
            grown.log, grown.header, grown.end, grown.last, grown.frames
        )

    def _drop_old(self) -> None:
        """Remove local segments that the present no longer needs. All that says so is here."""
        follower = self._served
        assert follower is not None
        for name, log in follower.journal.logs.items():
            segments = log.segments()
            kept_from = min(self._mirror.kept_from.get(name, 0), segments[-1].id)
            if segments[0].id < kept_from:
                follower.journal.drop_segments(log, kept_from)
                self._mirror.forget_before(name, kept_from)

    def _look_for_signs(self) -> _Signs | None:
        """None where nothing follows from them, or they were looked at just now."""
        manifest, end = self._mirror.manifest, self._mirror.end
        assert manifest is not None and end is not None
        now = self._monotonic()
        if not self._options.auto_promote_s or now < self._next_heartbeat:
            return None
        self._next_heartbeat = now + HEARTBEAT_S
        return _Signs(self._reader.heartbeat(), manifest.epoch, end.number)

    async def _apply(self, entries: list[LogEntry], *, everything: bool = False) -> None:
        follower, dispatcher = self._served, self._dispatcher
        assert follower is not None and dispatcher is not None
        engine = dispatcher.engine
        assert isinstance(engine, FollowingEngine)
        follower.add(entries)
        taken: list[LogEntry] = []
        until = time.perf_counter() + STEP_S
        for entry in follower.take(everything=everything):
            if entry is not None:
                taken.append(entry)
            if time.perf_counter() >= until:
                self._show(engine, follower, taken)
                taken = []
                await asyncio.sleep(0)
                until = time.perf_counter() + STEP_S
        self._show(engine, follower, taken)

    def _show(self, engine: FollowingEngine, follower: LogFollower, taken: list[LogEntry]) -> None:
        follower.catch_up()
        for entry in taken:
            engine.applied(entry.transaction.events)

    async def _release_held(self) -> None:
        assert self._served is not None
        if not self._served.held:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = self._monotonic()
        elif self._monotonic() - self._held_since >= HELD_S:
            self._held_since = None
            await self._apply([], everything=True)

    def _note_current(self, at: float) -> None:
        end = self._mirror.end
        self.manifest = self._mirror.manifest
        self.lost_replica = False
        self.chunk = end.number if end is not None else 0
        self._current_at = at
        if self._complained:
            self._complained = ""
            logger.info("the replica can be read again")

    def _note_unavailable(self, error: Exception) -> None:
        self._vigil.interrupt()
        self._complain(str(error))

    def _complain(self, what: str) -> None:
        if self._complained != what:
            self._complained = what
            logger.warning("the replica cannot be followed now: %s", what)

    def _note_restored(self, progress: RestoreProgress) -> None:
        self._lifecycle.note_progress(min(progress.done / max(progress.total, 1), 1.0))

    # -- the end ---------------------------------------------------------------------------------

    async def _retire(self) -> None:
        """What was served is replaced."""
        dispatcher, self._dispatcher = self._dispatcher, None
        offloading, self._offloading = self._offloading, None
        if offloading is not None:
            offloading.cancel()
            await asyncio.gather(offloading, return_exceptions=True)
        if dispatcher is not None:
            dispatcher.end_streams(NotReady("this server begins again: connect in a moment"))
            dispatcher.stop()

    async def _end(self) -> None:
        self._lifecycle.recover()
        if self._under_way is not None:
            # Cancelled or not: nothing is closed under a thread.
            await asyncio.gather(self._under_way, return_exceptions=True)
        await self._retire()
        served, self._served = self._served, None
        self._current_at = None
        if served is not None:
            served.journal.close()
            self._note_followed(served.journal)
        self._mirror.close()

    def _note_followed(self, journal: Journal) -> None:
        end = self._mirror.end
        if end is not None:
            log_id = journal.jobs.identity.hex()
            note_followed(self._fs, self._options.data_dir, log_id, end)
