"""The replica of a running server: what is shipped when, how far it has come, and its threads.

Owns: when the writer of the replica acts, how failures of the store are spaced out, what is known
of it all. Two threads: one ships chunks and renews the heartbeat, the other uploads sealed segments
and collects, so that no commit waits for a large upload. Must not know: the protocol
(`logqueue.replica`), asyncio, HTTP.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from logqueue.replica.chain import ChainEnd
from logqueue.replica.object_store import StoreError
from logqueue.replica.reading import ReplicaUnreadable
from logqueue.replica.writing import CHUNK_BYTES_MAX, ReplicaWriter, WriterFenced
from logqueue.segments.index import LogName
from wal import Log, Progress

HEARTBEAT_S: Final = 1.0
"""A third of the shortest time after which a standby takes over by itself."""

TIDY_S: Final = 2.0
EAGER_BYTES: Final = 1 << 20
"""So many bytes that wait are shipped without waiting for the time to do so."""

CHUNK_BYTES_MIN: Final = 256 << 10
"""Chunks become smaller, down to this, until each is sent before the next heartbeat is due."""

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
NOTE_S: Final = 30.0
STOP_S: Final = 5.0
HAND_OVER_TRIES: Final = 6
SYNCS_NOTED_MAX: Final = 1024
FOREVER_S: Final = 3600.0

EXPECTED: Final = (StoreError, ReplicaUnreadable, OSError)
"""What a replica may fail with. Anything else is a mistake in a program."""

ReplicaMode = Literal["async", "sync"]
ReplicaState = Literal["current", "behind", "stalled", "fenced", "ended"]

logger = logging.getLogger("logqueue.replica")


class ReplicatedProgress:
    """How far the jobs log has come where durable means: on the disk and in the replica."""

    def __init__(self, log: Log, committed: int) -> None:
        """Begin where both logs and replica are.

        Args:
            log: The jobs log.
            committed: Number of its last frame in the replica.
        """
        self._log: Progress = log.progress
        self.committed = committed
        # When which position was synced, for those who ask where the time went.
        self._syncs: deque[tuple[int, float]] = deque(maxlen=SYNCS_NOTED_MAX)

    @property
    def written(self) -> int:
        """See `Log.written`."""
        return self._log.written

    @property
    def durable(self) -> int:
        """Highest frame number that survives the loss of the machine; 0 for none."""
        durable = self._log.durable
        committed = self.committed
        return durable if durable < committed else committed

    @property
    def failure(self) -> BaseException | None:
        """See `Log.failure`."""
        return self._log.failure

    def note_sync(self) -> None:
        """The log has advanced. In the thread of the committer."""
        durable = self._log.durable
        syncs = self._syncs
        if not syncs or syncs[-1][0] < durable:
            syncs.append((durable, time.perf_counter()))

    def waited_ms(self, durable: int) -> float:
        """How long after its sync a position was committed, if it is only now, in ms."""
        syncs = self._syncs
        while len(syncs) > 1 and syncs[0][0] < durable and syncs[1][0] <= durable:
            syncs.popleft()
        noted = [*syncs]
        place = bisect_left(noted, (durable, 0.0))
        if place == len(noted):
            return 0.0
        return (time.perf_counter() - noted[place][1]) * 1000


@dataclass(slots=True)
class ReplicationStats:
    """Counters since the start.

    Attributes:
        puts: Chunks that were committed.
        put_failures: Calls of the store that have failed.
        put_s: Seconds that all commits took together.
        last_error: What the store said last; "" while it works.
        last_error_at: When, ms since the epoch.
    """

    puts: int = 0
    put_failures: int = 0
    put_s: float = 0.0
    last_error: str = ""
    last_error_at: int = 0


class _Pace:
    """How long one thread rests after failures of the store."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self.failures = 0
        self._jitter = jitter

    def rest_s(self) -> float:
        """Another failure: the rest that follows, in seconds."""
        self.failures += 1
        longest = min(BACKOFF_MIN_S * 2.0 ** min(self.failures, 10), BACKOFF_MAX_S)
        return longest * (0.5 + 0.5 * self._jitter())


class Replication:
    """Runs the writer of a replica.

    Attributes:
        writer: Says what is committed.
        mode: Whether replies wait for the replica.
        progress: How far both the disk and the replica have come.
        stats: Counters.
        store_url: Where the replica is, without credentials.
        log_id: Identity of the jobs log, in hex.
        fenced_by: Base URL of the server that has taken over; "" when it is not known, None while
            this one is the writer.
        stalled_through: Position of the jobs log that should have been committed long ago, set by
            the watch of the event loop; while it is not committed, no new change may be promised.
        wanted_rolls: The logs that should begin a new segment, so that chunks can go.
    """

    def __init__(
        self,
        writer: ReplicaWriter,
        logs: dict[LogName, Log],
        *,
        mode: ReplicaMode,
        lag_ms: int,
        store_url: str,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_end: Callable[[ChainEnd], None] = lambda end: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is shipped yet.

        Args:
            writer: After its takeover.
            logs: What it ships, after `begin`.
            mode: Whether replies wait for the replica.
            lag_ms: How long written frames wait at most before they are shipped, in ms.
            store_url: Where the replica is, without credentials.
            clock_ms: The clock, ms since the epoch.
            monotonic: A clock for durations, in seconds.
            jitter: From 0.0 to 1.0: where in its range a pause is.
            on_end: Called now and then with what is committed, in any thread.
            pause: Waits so many seconds.
        """
        self.writer = writer
        self.mode: ReplicaMode = mode
        self.store_url = store_url
        self.stats = ReplicationStats()
        self.fenced_by: str | None = None
        self.stalled_through = 0
        self.wanted_rolls: frozenset[LogName] = frozenset()
        self.log_id = logs["jobs"].identity.hex()
        self._jobs = logs["jobs"]
        self.progress = ReplicatedProgress(self._jobs, writer.committed.get("jobs", 0))
        self._lag_s = lag_ms / 1000
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._shipping, self._tidying = _Pace(jitter), _Pace(jitter)
        self._next_ship = self._next_beat = self._next_note = 0.0
        self._noted = writer.end
        self._eager_from = self._jobs.stats.bytes_written + EAGER_BYTES
        self._on_advance: Callable[[], None] = lambda: None
        self._on_fenced: Callable[[], None] = lambda: None
        self._on_end = on_end
        self._pause = pause
        self._ended = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._wake_tidying = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- queries ---------------------------------------------------------------------------------

    @property
    def is_sync(self) -> bool:
        """Whether replies wait for the replica."""
        return self.mode == "sync"

    @property
    def is_stalled(self) -> bool:
        """Whether what should have been committed long ago is not."""
        return self.progress.committed < self.stalled_through

    @property
    def is_away(self) -> bool:
        """Whether the last call of the store that commits, or would show a takeover, has failed."""
        return self._shipping.failures > 0

    @property
    def frames_behind(self) -> int:
        """Frames of the jobs log that are not in the replica."""
        return max(self._jobs.appended - self.progress.committed, 0)

    def state(self) -> ReplicaState:
        """What an operator should know first."""
        if self.fenced_by is not None:
            return "fenced"
        if self._ended:
            return "ended"
        if self.is_stalled:
            return "stalled"
        return "behind" if self.stats.last_error else "current"

    # -- for the threads, or for the owner of a server without them -------------------------------

    def ship_step(self) -> float:
        """Ship a chunk, or renew the heartbeat, if it is time to.

        Returns:
            After how many seconds the next step is due; 0.0 for at once.
        """
        if self._ended:
            return FOREVER_S
        now = self._monotonic()
        try:
            if now >= self._next_beat:
                self._next_beat = now + HEARTBEAT_S
                self.writer.renew()
                self._note_success(self._shipping)
            return self._ship(now)
        except WriterFenced as fenced:
            self._note_fenced(fenced)
            return FOREVER_S
        except ReplicaUnreadable as error:
            # Chunks mean nothing without a manifest: none is added before it was seen again.
            self._next_beat = now
            return self._back_off(error, self._shipping)
        except Exception as error:
            return self._back_off(error, self._shipping)

    def _ship(self, now: float) -> float:
        is_due = self.is_sync or now >= self._next_ship
        if not is_due and self.writer.waiting_bytes < EAGER_BYTES:
            return min(self._next_ship, self._next_beat) - now
        self._eager_from = self._jobs.stats.bytes_written + EAGER_BYTES
        began = time.perf_counter()
        if self.writer.ship():
            self._note_success(self._shipping)
            self._fit_chunks(self._monotonic() - now)
            self.stats.puts += 1
            self.stats.put_s += time.perf_counter() - began
            self._note_committed()
            if self.is_sync or self.writer.waiting_bytes >= EAGER_BYTES:
                return 0.0
        self._next_ship = self._monotonic() + self._lag_s
        # Frames that were written while this was decided wake the thread.
        return max(min(self._next_ship, self._next_beat) - self._monotonic(), 0.001)

    def _fit_chunks(self, took_s: float) -> None:
        """On a slow link the heartbeat must not wait for large chunks: who does not see it takes
        over. It stays in the thread that ships, since a writer that can commit nothing must not
        seem alive."""
        writer = self.writer
        if took_s > HEARTBEAT_S:
            writer.chunk_bytes_max = max(writer.chunk_bytes_max // 2, CHUNK_BYTES_MIN)
        elif took_s < HEARTBEAT_S / 4:
            writer.chunk_bytes_max = min(writer.chunk_bytes_max * 2, CHUNK_BYTES_MAX)

    def tidy_step(self) -> float:
        """Upload sealed segments and collect what they replace, a step of it.

        Returns:
            After how many seconds the next step is due; 0.0 for at once.
        """
        if self._ended:
            return FOREVER_S
        try:
            self._note_end()
            has_more = self.writer.tidy()
            # It looks at all segments: not for the event loop.
            self.wanted_rolls = self.writer.wanted_rolls()
            self._note_success(self._tidying)
            return 0.0 if has_more else TIDY_S
        except WriterFenced as fenced:
            self._note_fenced(fenced)
            return FOREVER_S
        except Exception as error:
            return self._back_off(error, self._tidying)

    def _note_end(self) -> None:
        now = self._monotonic()
        if now >= self._next_note and self.writer.end is not self._noted:
            self._next_note = now + NOTE_S
            self._noted = self.writer.end
            self._on_end(self._noted)

    def _note_committed(self) -> None:
        self.progress.committed = self.writer.committed.get("jobs", 0)
        self._on_advance()

    def _note_success(self, pace: _Pace) -> None:
        """A call of the store has worked, of those that one thread makes."""
        pace.failures = 0
        if self.stats.last_error and not self._shipping.failures and not self._tidying.failures:
            self.stats.last_error = ""
            logger.info("the replica %s answers again", self.store_url)

    def _back_off(self, error: Exception, pace: _Pace) -> float:
        stats = self.stats
        stats.put_failures += 1
        if not stats.last_error:
            logger.warning(
                "the replica %s cannot be written; it is tried again: %s",
                self.store_url,
                error,
                exc_info=None if isinstance(error, EXPECTED) else error,
            )
        stats.last_error, stats.last_error_at = str(error), self._clock_ms()
        return pace.rest_s()

    def _note_fenced(self, fenced: WriterFenced) -> None:
        if self.fenced_by is None:
            self.fenced_by = fenced.writer.address if fenced.writer is not None else ""
            logger.error(
                "another server%s has taken over the replica %s: this one ends, and keeps its data "
                "directory as it is",
                f" ({self.fenced_by})" if self.fenced_by else "",
                self.store_url,
            )
        self._ended = True
        self._on_fenced()

    # -- threads ---------------------------------------------------------------------------------

    def listen(self, on_advance: Callable[[], None], on_fenced: Callable[[], None]) -> None:
        """Set what is called when more is committed, and when this server is fenced. In any
        thread; both must be quick."""
        self._on_advance, self._on_fenced = on_advance, on_fenced

    def start(self) -> None:
        """Start the threads."""
        assert not self._threads, "started already"
        for name, step, wake, pace in (
            ("replica-ship", self.ship_step, self._wake, self._shipping),
            ("replica-tidy", self.tidy_step, self._wake_tidying, self._tidying),
        ):
            arguments = step, wake, pace
            thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, step: Callable[[], float], wake: threading.Event, pace: _Pace) -> None:
        while not self._ended:
            wake.clear()
            delay_s = step()
            if delay_s:
                # New frames must not shorten the rest of a store that is away.
                (self._stopping if pace.failures else wake).wait(delay_s)

    def note_advance(self) -> None:
        """The jobs log has advanced: ship if it is worth it. In the thread of the committer."""
        if self.mode == "sync":
            self.progress.note_sync()
        elif self._jobs.stats.bytes_written < self._eager_from:
            return
        if not self._wake.is_set():
            self._wake.set()

    def ship_all(self) -> bool:
        """Ship what is written, until nothing is left or the store fails. After `stop`, or before
        `start`.

        Returns:
            Whether all of it is committed.
        """
        try:
            self.writer.ship_all()
        except WriterFenced as fenced:
            self._note_fenced(fenced)
            return False
        except Exception as error:
            self._back_off(error, self._shipping)
            return False
        self._note_committed()
        return True

    def hand_over(self) -> None:
        """Commit all that is written, and say in the replica that this writer has ended. After
        `stop`; tries for a while.

        Raises:
            StoreError: The store cannot be written.
            OSError: A segment file cannot be read.
            WriterFenced: Another server has taken over.
        """
        for failures in range(HAND_OVER_TRIES):
            try:
                self.writer.hand_over()
                return
            except StoreError as error:
                self._back_off(error, self._shipping)
                if failures + 1 == HAND_OVER_TRIES:
                    raise
                self._pause(0.1 * 2**failures)

    def stop(self) -> bool:
        """End both threads, and wait for what they are doing, `STOP_S` at most.

        Returns:
            Whether they have ended: only then `ship_all` may be called.
        """
        self._ended = True
        for event in (self._stopping, self._wake, self._wake_tidying):
            event.set()
        end = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)
