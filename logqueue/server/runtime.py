"""The one composition root: from settings to a server that runs, and down again in order.

Owns: which object gets which, and the order of start and stop. `open_core` makes what works on the
disk (logs, state, engine, archive); `Runtime` puts it into an event loop behind the API. A process
serves both; tests and simulations run both on another file system and under another clock. Must not
know: sockets, signals, exit statuses.

The phases are explicit. *Recovering*: requests get 503, `recover` replays the logs in any thread.
*Ready*: `begin` was called in the event loop. *Draining*: no new requests, streams end. *Failed*:
the logs were refused; `recover` has raised the reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    InvalidRequest,
    NotWriter,
    ReplicaUnavailable,
    ShuttingDown,
    quoted,
)
from logqueue.model.clock import Clock, SystemClock
from logqueue.model.limits import Quotas
from logqueue.replica.object_store import ObjectStore, StoreError, StoreUnavailable
from logqueue.replica.opening import open_store
from logqueue.replica.reading import ReplicaReader, ReplicaUnreadable
from logqueue.replica.restoring import PARALLEL
from logqueue.replica.writing import WriterFenced
from logqueue.segments.history import HistoryBounds
from logqueue.server.app import http_api
from logqueue.server.engine.background import (
    archive_forever,
    flush_forever,
    offload_forever,
    rebuild_on_failure,
    tidy_forever,
)
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.cooperative import CooperativeExecutor, InlineExecutor, SteppingThread
from logqueue.server.engine.dispatcher import CLOCK_CHECK_MS, STALL_RETRY_S, Dispatcher
from logqueue.server.engine.engine import Engine, EventListener
from logqueue.server.engine.recovery import begin_life
from logqueue.server.engine.replica_watch import ReplicaWatch, watch_replica_forever
from logqueue.server.handing_over import HandOverFailed, ask_to_hand_over
from logqueue.server.metrics import Metrics
from logqueue.server.service import Lifecycle, Phase, Service
from logqueue.server.settings import Settings
from logqueue.server.standby import Standby, StandbyOptions, Succession
from logqueue.server.stats.stats import ServerStats
from logqueue.server.storage.archive import LogArchive
from logqueue.server.storage.archiver import Archiver
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.replica_start import (
    DirectoryChanged,
    ReplicaAway,
    ReplicaOptions,
    ReplicaRefused,
    ReplicaStart,
    ReplicaTaken,
)
from logqueue.server.storage.replication import Replication
from logqueue.server.storage.segment_store import SegmentStore
from wal import FileSystem, OsFileSystem, WalCorrupt, WalError

SETTLE_S = 5.0
"""How long a server that hands over waits for replies that were decided."""

logger = logging.getLogger("logqueue.runtime")


@dataclass(frozen=True, slots=True)
class Core:
    """What one life of a server does on the disk.

    Attributes:
        engine: Ready for commands; it has the journal, the state and the segments.
        archiver: Keeps the archive up to date; None without one.
        replication: Keeps the replica up to date; None without one.
    """

    engine: Engine
    archiver: Archiver | None
    replication: Replication | None = None


def open_core(
    settings: Settings,
    clock: Clock,
    *,
    fs: FileSystem | None = None,
    set_damage_aside: bool = False,
    random_bytes: Callable[[str, int], bytes] = lambda log, length: os.urandom(length),
    progress: Callable[[float], None] | None = None,
    listeners: Iterable[EventListener] = (),
    on_expired: Callable[[Topic, int], None] | None = None,
    on_sync: Callable[[float], None] | None = None,
    replica: ReplicaStart | None = None,
) -> Core:
    """Open a data directory, replay its logs and begin with them. Blocks on the disk.

    Args:
        settings: Which directories, quotas and sizes.
        clock: Of the server.
        fs: Where the directories are; the real file system by default.
        set_damage_aside: Go on without what is damaged or missing.
        random_bytes: Where the identities of new logs come from, by the name of the log.
        progress: Called now and then with the share of the log that is replayed, 0.0 to 1.0.
        listeners: Called with each event that is applied after recovery.
        on_expired: Called with the number of leases of a queue that have expired.
        on_sync: Called with the seconds that each sync of the jobs log took, in another thread.
        replica: Makes the directory one history with its replica, and this server its writer.

    Raises:
        WalLocked, ArchiveLocked: Another server has a directory.
        WalCorrupt, ArchiveRefused: The logs or the archive must be refused; nothing was changed.
        ReplicaRefused, ReplicaTaken: See `ReplicaStart`.
        WalError, OSError: A directory cannot be used.
    """
    while True:
        if replica is not None:
            replica.bring_up()
        try:
            journal = Journal.open(
                settings.data_dir,
                segment_bytes_max=settings.segment_max_bytes,
                fs=fs,
                set_damage_aside=set_damage_aside,
                read_everything=settings.verify_at_start,
                random_bytes=random_bytes,
                on_sync=on_sync,
            )
            state = State(_quotas(settings), journal.payloads)
            archive = _replay(settings, clock, journal, state, progress, replica)
        except DirectoryChanged:
            continue
        except WalCorrupt as damage:
            if replica is None or not replica.discards_damaged(damage):
                raise
            continue
        break
    replication: Replication | None = None
    try:
        replication = replica.begin(journal) if replica is not None else None
    except BaseException:
        _close(journal, archive)
        raise
    writer = replication.writer if replication is not None else None
    segments = SegmentStore(
        journal.fs,
        journal.logs,
        archive,
        writer,
        archives_in_replica=settings.archives_in_replica,
    )
    archiver: Archiver | None = None
    if archive is not None:
        archiver = Archiver(
            archive,
            segments,
            _history_bounds(settings),
        )
    engine = Engine(journal, segments, clock, state, listeners, on_expired)
    return Core(engine, archiver, replication)


def _replay(
    settings: Settings,
    clock: Clock,
    journal: Journal,
    state: State,
    progress: Callable[[float], None] | None,
    replica: ReplicaStart | None,
) -> LogArchive | None:
    """Bring a state to where the logs end, and begin with it; the archive, if there is one."""
    archive: LogArchive | None = None
    try:
        for loss in [*journal.jobs.losses, *journal.leases.losses]:
            logger.error("damage was set aside: %s", loss)
        journal.replay(state, progress)
        # Only now the logs are known to be sound; nothing on the disk was changed before.
        if settings.archive_directory is not None:
            archive = LogArchive.open(settings.archive_directory, journal.fs, journal.logs)
        if replica is not None:
            replica.take_over(journal)
        lost_max = replica.seqs_lost_max if replica is not None else 0
        begin_life(state, journal, clock.now_ms(), seqs_lost_max=lost_max)
    except BaseException:
        _close(journal, archive)
        raise
    return archive


def _close(journal: Journal, archive: LogArchive | None) -> None:
    try:
        journal.close()
    finally:
        if archive is not None:
            archive.close()


def read_state(settings: Settings, fs: FileSystem) -> State:
    """What the logs of a data directory replay to. Changes nothing on the disk.

    Raises:
        WalLocked: A server has the directory.
        WalCorrupt: The logs must be refused.
    """
    journal = Journal.open(
        settings.data_dir,
        segment_bytes_max=settings.segment_max_bytes,
        fs=fs,
        read_everything=True,
    )
    state = State(_quotas(settings), journal.payloads)
    try:
        journal.replay(state)
    finally:
        journal.close()
    return state


def _history_bounds(settings: Settings) -> HistoryBounds:
    return HistoryBounds(settings.archive_max_age_ms, settings.archive_max_bytes)


def _quotas(settings: Settings) -> Quotas:
    return Quotas(
        settings.max_topics,
        settings.max_total_bytes,
        settings.max_routers,
        settings.auto_create,
        settings.max_producers,
        settings.max_schedules,
        settings.max_batches,
    )


class Runtime:
    """One run of a server.

    Attributes:
        service: The server as its handlers see it, from the first moment on.
        metrics: What is counted, from the first moment on.
        stats: What the server shows of itself live.
        api: Answers requests, in every phase.
        replica_watch: Looks at the replica now and then, from `begin` on; None without a replica.
        on_fenced: Called in the event loop when another server has taken over the log.
        on_handed_over: Called in the event loop when this server has ended so that another one may
            take over.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        set_damage_aside: bool = False,
        is_stepped: bool = False,
        clock_check_ms: int = CLOCK_CHECK_MS,
        stall_retry_s: float = STALL_RETRY_S,
        address: str = "",
        open_store: Callable[[str], ObjectStore] = open_store,
        random_bytes: Callable[[str, int], bytes] = lambda log, length: os.urandom(length),
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """In the phase *recovering*.

        Args:
            settings: Of the server.
            fs: Where its directories are; the real file system by default.
            clock: The system's by default.
            set_damage_aside: Go on without what is damaged or missing.
            is_stepped: Without threads and background tasks: the owner steps the logs, and gives
                disk space back, by itself.
            clock_check_ms: How late, at most, a step of the wall clock is noticed.
            stall_retry_s: How often routers that found no room look whether time has made some.
            address: Base URL at which clients reach the server, unless a setting says it.
            open_store: From the URL of a replica to its store.
            random_bytes: Where the identities of new logs come from, by the name of the log, and
                those of writers of a replica ("writer").
            monotonic: A clock for durations, in seconds.
            pause: Waits so many seconds, in a thread.
        """
        self._settings = settings
        self._fs = fs
        self._clock = clock or SystemClock()
        self._set_damage_aside = set_damage_aside
        self._is_stepped = is_stepped
        self._clock_check_ms = clock_check_ms
        self._stall_retry_s = stall_retry_s
        self._address = address
        self._open_store = open_store
        self._random_bytes = random_bytes
        self._monotonic = monotonic
        self._pause = pause
        self._steps = None if is_stepped else SteppingThread()
        self._executor: CooperativeExecutor = self._steps or InlineExecutor()
        self._lifecycle = Lifecycle()
        self._core: Core | None = None
        self._dispatcher: Dispatcher | None = None
        self.replica_watch: ReplicaWatch | None = None
        self._has_ended_shipping = False
        self._background: list[asyncio.Task[None]] = []
        self.on_fenced: Callable[[], None] = lambda: None
        self._standby: Standby | None = None
        self._succession: Succession | None = None
        self._taken: asyncio.Future[int] | None = None
        self.on_handed_over: Callable[[], None] = lambda: None
        self.service = Service(
            settings,
            self._executor,
            self._lifecycle,
            self if settings.replica is not None else None,
        )
        self.metrics = Metrics(self.service)
        self.service.verbosity.on_change = self.metrics.watch_requests
        self.stats = ServerStats(self.service, self.metrics, self._clock)
        self.api = http_api(self.service, self.metrics, self.stats)

    @property
    def engine(self) -> Engine:
        """The engine, once `recover` has returned."""
        assert self._core is not None, "not recovered"
        return self._core.engine

    @property
    def replication(self) -> Replication | None:
        """What keeps the replica, once `recover` has returned; None without one."""
        return self._core.replication if self._core is not None else None

    @property
    def is_following(self) -> bool:
        """Whether this server is a standby now."""
        return self._standby is not None

    @property
    def is_running(self) -> bool:
        """Whether `begin` was called, and not yet `stop`."""
        return self._dispatcher is not None

    def recover(self) -> None:
        """Replay the logs. Blocks on the disk: for a thread beside the event loop.

        Raises:
            WalError, ArchiveRefused, OSError: See `open_core`. The phase is *failed* then.
            ReplicaRefused, ReplicaTaken: The same.
            BadReplicaUrl, MissingExtra, StoreError: The replica cannot be used at all.
        """
        try:
            self._core = open_core(
                self._settings,
                self._clock,
                fs=self._fs,
                set_damage_aside=self._set_damage_aside,
                progress=self._lifecycle.note_progress,
                listeners=(self.metrics.event,),
                on_expired=self.metrics.leases_expired,
                on_sync=self.metrics.fsync,
                random_bytes=self._random_bytes,
                replica=self._replica_start(),
            )
        except BaseException as error:
            if not self._may_follow_again(error):
                self._lifecycle.fail(str(error))
            raise

    async def come_up(self) -> None:
        """Everything up to `begin`: follow the writer, on a standby, until this server is to take
        over; then `recover`, in a thread.

        Raises:
            Exception: See `recover`.
            MirrorDiverged, ReplicaUnreadable: A standby cannot follow.
        """
        loop = asyncio.get_running_loop()
        while True:
            if self._settings.standby:
                await self._follow()
            try:
                await loop.run_in_executor(None, self.recover)
                return
            except (ReplicaTaken, ReplicaRefused) as error:
                self._note_lost(error)
                if not self._may_follow_again(error):
                    raise
                logger.warning("%s: following again", error)

    async def _follow(self) -> None:
        settings = self._settings
        assert settings.replica is not None
        fs = self._fs or OsFileSystem()
        start = self._replica_start()
        assert start is not None
        self._standby = Standby(
            ReplicaReader(
                self._open_store(settings.replica),
                parallel=1 if self._fs is not None else PARALLEL,
                pause=self._pause,
            ),
            fs,
            self._clock,
            self._lifecycle,
            self._executor,
            StandbyOptions(
                settings.data_dir,
                settings.segment_max_bytes,
                _quotas(settings),
                settings.standby_poll_ms / 1000,
                settings.auto_promote / 1000,
            ),
            partial(start.is_ahead, settings.segment_max_bytes),
            monotonic=self._monotonic,
            # The metrics of a writer count what it does itself; on a standby, only the live feed
            # shows what comes.
            listener=Metrics(self.service, self.metrics.activity).event,
        )
        stats: asyncio.Task[None] | None = None
        if not self._is_stepped:
            stats = asyncio.get_running_loop().create_task(self.stats.run(), name="stats")
        try:
            self._succession = await self._standby.follow()
        finally:
            self._standby = None
            if stats is not None:
                stats.cancel()
        logger.warning("taking over: %s", self._succession.why)

    def _may_follow_again(self, error: BaseException) -> bool:
        """Whether a standby that could not take over continues to follow."""
        if isinstance(error, (ReplicaTaken, ReplicaAway)):
            # Where the store was away, nothing says whether this server has taken over: the
            # replica will.
            return self._settings.standby
        # Two standbys of a new replica both make one.
        is_first = self._succession is not None and self._succession.epoch is None
        return is_first and isinstance(error, ReplicaRefused)

    def _note_lost(self, error: Exception) -> None:
        taken, self._taken = self._taken, None
        if taken is not None and not taken.done():
            address = error.address if isinstance(error, ReplicaTaken) else ""
            taken.set_exception(
                NotWriter.because(f"this server did not take over: {error}", address)
            )

    # -- which server writes ---------------------------------------------------------------------

    async def promote(self, authorization: str | None, *, force: bool) -> int:
        """See `ReplicaRole`."""
        replication, standby = self.replication, self._standby
        if self._lifecycle.phase is Phase.READY and replication is not None:
            return replication.writer.epoch
        if self._taken is None:
            if standby is None:
                raise InvalidRequest("this server is not a standby: start it with --standby")
            if not force:
                await self._ask_to_hand_over(standby, authorization)
            if self._taken is None:
                self._taken = asyncio.get_running_loop().create_future()
                self._taken.add_done_callback(_retrieved)
                standby.promote("asked to")
        return await asyncio.shield(self._taken)

    async def _ask_to_hand_over(self, standby: Standby, authorization: str | None) -> None:
        manifest = standby.manifest
        if standby.lost_replica:
            raise NotWriter(
                "the replica of this directory is gone, and a writer may still have it: see that "
                f"{self._settings.replica} can be read here. To make it again from this directory, "
                'send {"force": true}',
                {"writer": ""},
            )
        if manifest is None or manifest.is_released:
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, ask_to_hand_over, standby.writer, authorization)
        except HandOverFailed as failed:
            if await standby.is_released():
                # It had handed over before.
                return
            raise NotWriter(
                f"the writer {standby.writer or '(of unknown address)'} did not hand over: "
                f"{failed}. To take over without it, send "
                '{"force": true}: what it has not committed to the replica is lost then',
                {"writer": standby.writer},
            ) from failed

    async def hand_over(self) -> int:
        """See `ReplicaRole`."""
        replication = self.replication
        if self._lifecycle.phase is Phase.STANDBY:
            self.service.require_writer()
        self.service.require_serving()
        assert replication is not None
        if replication.is_away:
            raise ReplicaUnavailable(f"the replica is away: {replication.stats.last_error}")
        logger.warning("handing over to another server")
        self.drain()
        await self._settled()
        try:
            if await self._stop_background():
                self.engine.shut_down()
            if not self._has_ended_shipping:
                raise StoreUnavailable("a call to it does not end")
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, replication.hand_over)
        except WriterFenced as fenced:
            address = fenced.writer.address if fenced.writer is not None else ""
            raise NotWriter.because("another server has taken over", address) from fenced
        except (StoreError, ReplicaUnreadable, WalError, OSError) as error:
            raise ReplicaUnavailable(
                f"the replica could not be written to its end ({error}): this server ends; "
                "start it again, or take over without what it has not committed"
            ) from error
        finally:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.on_handed_over)
        return replication.writer.epoch

    async def _settled(self) -> None:
        """Let what was decided get its answer."""
        dispatcher = self._dispatcher
        end = self._monotonic() + SETTLE_S
        while dispatcher is not None and dispatcher.barrier.waiting:
            if self._monotonic() >= end:
                break
            await asyncio.sleep(0.005)

    def _replica_start(self) -> ReplicaStart | None:
        settings = self._settings
        if settings.replica is None:
            return None
        return ReplicaStart(
            self._open_store(settings.replica),
            self._fs or OsFileSystem(),
            self._clock,
            ReplicaOptions(
                settings.data_dir,
                settings.advertise or self._address,
                "sync" if settings.replica_mode == "sync" else "async",
                settings.replica_lag_ms,
                settings.replica_keep,
                _history_bounds(settings) if settings.archives_in_replica else None,
                settings.discard_local,
                self._succession is not None,
                self._succession.epoch if self._succession is not None else None,
            ),
            self._random_bytes("writer", 16).hex(),
            progress=self._lifecycle.note_progress,
            monotonic=self._monotonic,
            # Simulated disks are for one thread.
            parallel=1 if self._fs is not None else PARALLEL,
            pause=self._pause,
        )

    def begin(self) -> Dispatcher:
        """Serve from now on, in the present event loop. Call after `recover`."""
        engine = self.engine
        loop = asyncio.get_running_loop()
        replication = self.replication
        if replication is not None and replication.is_sync:
            progress = replication.progress
            barrier = CommitBarrier(engine.journal.jobs, loop, progress, progress.waited_ms)
        else:
            barrier = CommitBarrier(engine.journal.jobs, loop)
        self._dispatcher = dispatcher = Dispatcher(
            engine,
            barrier,
            clock_check_ms=self._clock_check_ms,
            stall_retry_s=self._stall_retry_s,
        )
        if replication is not None:
            self._replicate(replication, dispatcher)
        if not self._is_stepped:
            on_advance = barrier.notify if replication is None else _both(replication, barrier)
            engine.journal.jobs.start(on_advance)
            engine.journal.housework.begin()
            self._start_background(dispatcher)
        self._lifecycle.ready(dispatcher, replication)
        if self._taken is not None and replication is not None and not self._taken.done():
            self._taken.set_result(replication.writer.epoch)
        return dispatcher

    def _shows_the_synced(self) -> bool:
        """Whether all that the disk has may be shown: in sync mode, once the replica has it."""
        replication = self.replication
        if replication is None or not replication.is_sync:
            return True
        return replication.progress.committed >= self.engine.journal.jobs.durable

    def _replicate(self, replication: Replication, dispatcher: Dispatcher) -> None:
        loop, barrier = dispatcher.loop, dispatcher.barrier
        self.replica_watch = ReplicaWatch(
            replication,
            self.engine,
            barrier,
            self._settings.replica_timeout_ms,
            self._monotonic,
        )

        def fenced() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._fence)

        replication.listen(barrier.notify, fenced)
        if replication.is_sync:
            self._warn_of_weak_topics()
        if not self._is_stepped:
            replication.start()

    def _warn_of_weak_topics(self) -> None:
        topics = self.engine.state.topics
        weak = [name for name, topic in topics.items() if topic.config.durability == "disk"]
        if weak or not topics:
            some = f"{len(weak)} topics ({quoted(weak[0])}, …) are" if weak else "topics are"
            logger.warning(
                "%s of class disk, which is the default: in sync mode, too, their replies do not "
                "wait for the replica. Set durability fsync for what must survive this machine",
                some,
            )

    def _fence(self) -> None:
        assert self.replica_watch is not None
        refusal = self.replica_watch.fence()
        self._lifecycle.fence(refusal)
        for task in self._background:
            # Nothing is tidied either: the directory stays as it is.
            task.cancel()
        self.stats.end(refusal)
        if self._dispatcher is not None:
            self._dispatcher.end_streams(refusal)
        self.on_fenced()

    def _start_background(self, dispatcher: Dispatcher) -> None:
        assert self._core is not None
        engine, archiver = self._core.engine, self._core.archiver
        work = {
            "tidy": tidy_forever(engine, dispatcher.barrier),
            "flush": flush_forever(engine),
            "offload": offload_forever(engine.journal, self._executor),
            "stats": self.stats.run(),
            "rebuild": rebuild_on_failure(engine, dispatcher.adopt, self._shows_the_synced),
        }
        if self.replica_watch is not None:
            work["replica"] = watch_replica_forever(self.replica_watch)
        if archiver is not None:
            work["archive"] = archive_forever(archiver, self._clock, self._executor)
        self._background = [
            dispatcher.loop.create_task(task, name=name) for name, task in work.items()
        ]

    def drain(self) -> None:
        """Refuse new requests, and end streams and waiting claims; the rest may finish."""
        self._lifecycle.drain()
        ending = ShuttingDown("the server is shutting down; connect again")
        self.stats.end(ending)
        if self._dispatcher is not None:
            self._dispatcher.end_streams(ending)

    async def stop(self) -> None:
        """End background work, log a last checkpoint, close logs and archive. After `drain`, when
        no request is in progress. Does nothing before `begin`.

        Raises:
            WalError: The log could not be closed cleanly.
        """
        if await self._stop_background():
            self.engine.shut_down()
            if self.replication is not None and self._has_ended_shipping:
                self._ship_the_rest(self.replication)

    def _ship_the_rest(self, replication: Replication) -> None:
        if not replication.ship_all():
            logger.warning(
                "the replica lacks the last %d frames of the log; the next start here ships them",
                replication.frames_behind,
            )

    async def abort(self) -> None:
        """The same without a last word: what the logs do not have by now is lost."""
        if await self._stop_background():
            with suppress(OSError, WalError):
                self.engine.close()

    async def _stop_background(self) -> bool:
        dispatcher, self._dispatcher = self._dispatcher, None
        self.service.verbosity.restore()
        if dispatcher is None:
            return False
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        dispatcher.stop()
        if self.replication is not None:
            self._has_ended_shipping = self.replication.stop()
        if self._steps is not None:
            # No step may be under way when the logs and the archive are closed.
            self._steps.close()
        return True


def _retrieved(taken: asyncio.Future[int]) -> None:
    """The caller may have gone."""
    if not taken.cancelled():
        taken.exception()


def _both(replication: Replication, barrier: CommitBarrier) -> Callable[[], None]:
    """What the committer calls when the log has advanced."""

    def advanced() -> None:
        replication.note_advance()
        barrier.notify()

    return advanced
