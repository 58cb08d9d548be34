"""What the handlers of one server share.

Owns: the phase the server is in, its settings, and the counts of what is in progress. Must not
know: how a request is read or answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from enum import Enum
from typing import Any, NoReturn, Protocol

from logqueue.errors import (
    Fenced,
    Internal,
    LogqueueError,
    NotReady,
    ReplicaUnavailable,
    ShuttingDown,
    StorageReadOnly,
    Throttled,
    Unauthorized,
)
from logqueue.server.auth import Key, KeyRing
from logqueue.server.backup import Backup
from logqueue.server.client_memory import ClientMemory
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.cooperative import CooperativeExecutor, InlineExecutor
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.watch_sessions import WatchSessions
from logqueue.server.log_level import LogVerbosity
from logqueue.server.long_bodies import LongBodies
from logqueue.server.process_memory import resident_bytes
from logqueue.server.settings import Settings
from logqueue.server.storage.replication import Replication


class Phase(Enum):
    """The life of a server."""

    RECOVERING = "recovering"
    STANDBY = "standby"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    FENCED = "fenced"


class StandbyView(Protocol):
    """What a standby says of itself."""

    @property
    def behind_ms(self) -> int:
        """For how long at most there may have been more in the replica than is shown, in ms."""
        ...

    def refusal(self) -> LogqueueError:
        """What a change gets: the address of the writer."""
        ...

    def status(self) -> dict[str, object]:
        """What it knows of the replica, as members of `shapes.ReplicaStatus`."""
        ...


class ReplicaRole(Protocol):
    """Changes which server writes the log."""

    async def promote(self, authorization: str | None, *, force: bool) -> int:
        """Take over from the writer, and serve. Returns once this server is the writer.

        Args:
            authorization: The header with which the writer is asked to hand over.
            force: Do not ask it.

        Returns:
            The epoch of this writer.

        Raises:
            InvalidRequest: This server is not one that can take over.
            NotWriter: The writer did not hand over, or another server was faster.
        """
        ...

    async def hand_over(self) -> int:
        """Commit all there is to the replica, and end.

        Returns:
            The epoch of this writer.

        Raises:
            InvalidRequest, NotWriter: This server is not the writer of a replica.
            ReplicaUnavailable: The replica cannot be written.
        """
        ...


class Lifecycle:
    """Which phase a server is in: recovering, then ready or failed, and draining at the end; fenced
    once another server has taken over its log. A standby is in a phase of its own, until it
    recovers.

    Attributes:
        replay_progress: Share of the log that is replayed, 0.0 to 1.0.
        failure: Why recovery failed; empty in any other phase.
        dispatcher: Runs the engine, from the moment the server is ready or follows.
        replication: Keeps the replica, while the server is ready; None without one.
        following: What a standby says of itself; None in any other phase.
        refusal: What everything is refused with once the server is fenced.
    """

    def __init__(self) -> None:
        self.phase = Phase.RECOVERING
        self.replay_progress = 0.0
        self.failure = ""
        self.dispatcher: Dispatcher | None = None
        self.replication: Replication | None = None
        self.refusal: Fenced | None = None
        self.following: StandbyView | None = None

    def follow(self, dispatcher: Dispatcher, following: StandbyView) -> None:
        """Reads are served from now on, of what another server writes."""
        assert self.phase in (Phase.RECOVERING, Phase.STANDBY), f"{self.phase.value} -> standby"
        self.dispatcher = dispatcher
        self.following = following
        self.phase = Phase.STANDBY

    def recover(self) -> None:
        """Nothing is served for now: a standby becomes the writer, or begins again."""
        if self.phase is Phase.STANDBY:
            self.dispatcher = None
            self.following = None
            self.replay_progress = 0.0
            self.phase = Phase.RECOVERING

    def note_progress(self, share: float) -> None:
        """So much of the log is replayed."""
        self.replay_progress = share

    def ready(self, dispatcher: Dispatcher, replication: Replication | None = None) -> None:
        """Recovery is done: requests are served from now on."""
        assert self.phase is Phase.RECOVERING, f"{self.phase.value} -> ready"
        self.dispatcher = dispatcher
        self.replication = replication
        self.replay_progress = 1.0
        self.phase = Phase.READY

    def fail(self, reason: str) -> None:
        """Recovery failed: nothing is ever served."""
        if self.phase is Phase.RECOVERING:
            self.failure = reason
            self.phase = Phase.FAILED

    def fence(self, refusal: Fenced) -> None:
        """Another server has taken over: nothing is served from now on."""
        self.refusal = refusal
        self.phase = Phase.FENCED

    def drain(self) -> None:
        """No new requests from now on, whatever the phase; a fenced server stays fenced."""
        self.following = None
        if self.phase is not Phase.FENCED:
            self.phase = Phase.DRAINING


class Service:
    """The server as its handlers see it.

    Attributes:
        keys: Those that are valid now; empty on a server without authentication.
        key_reloads, key_reload_failures: How often the file of keys was read again, and could not
            be used.
        lifecycle: Which phase the server is in.
        role: Changes which server writes; None where there is only one.
        started_at: When the process began to serve, ms since the epoch.
        memory_at_start: Bytes of the process before it had read any log; None when not known.
        verbosity: How much is logged.
        backup: The backup that is being downloaded; None when there is none.
        connections: All that are open; each adds and removes itself.
        streams: Open push streams; `streams_by_key` the same per key.
        inflight: Requests in progress per key, when keys are configured.
        large_bodies: Held while one is read.
        large_pages: Held while a large page of records is made.
        long_bodies: Those that are being written piece by piece.
        memory: What is held for clients.
        watch_sessions: Who may open which watch stream.
        stepping: Where long work is done.
    """

    def __init__(
        self,
        settings: Settings,
        stepping: CooperativeExecutor | None = None,
        lifecycle: Lifecycle | None = None,
        role: ReplicaRole | None = None,
    ) -> None:
        self.settings = settings
        self.role = role
        self.lifecycle = lifecycle or Lifecycle()
        self.keys = settings.api_keys
        self._valid_keys = frozenset(settings.api_keys.keys)
        self._long_polls: dict[asyncio.Future[NoReturn], Key] = {}
        self.key_reloads = 0
        self.key_reload_failures = 0
        self.stepping = stepping or InlineExecutor()
        self.started = time.monotonic()
        self.started_at = int(time.time() * 1000)
        self.memory_at_start = resident_bytes()
        self.verbosity = LogVerbosity()
        self.connections: set[Any] = set()
        self.backup: Backup | None = None
        self.streams = 0
        self.streams_by_key: Counter[str] = Counter()
        self.inflight: Counter[str] = Counter()
        self.large_bodies = asyncio.Lock()
        self.large_pages = asyncio.Lock()
        self.long_bodies = LongBodies(lambda: self.barrier.held_back if self.barrier else 0)
        self.memory = ClientMemory(
            settings.max_client_bytes,
            settings.max_client_bytes_per_key,
            lambda: self.watch_sessions.forget_expired(),
        )
        self.watch_sessions = WatchSessions(
            settings.max_watch_sessions, time.monotonic, self.memory
        )

    @property
    def uptime_ms(self) -> int:
        """Time since the process began to serve."""
        return int((time.monotonic() - self.started) * 1000)

    @property
    def phase(self) -> Phase:
        """The phase the server is in."""
        return self.lifecycle.phase

    @property
    def replay_progress(self) -> float:
        """Share of the log that is replayed, 0.0 to 1.0."""
        return self.lifecycle.replay_progress

    @property
    def engine(self) -> Engine | None:
        """The engine once it has recovered, whatever the phase."""
        return self.lifecycle.dispatcher.engine if self.lifecycle.dispatcher is not None else None

    @property
    def barrier(self) -> CommitBarrier | None:
        """Where replies wait, once there is a log to wait for."""
        return self.lifecycle.dispatcher.barrier if self.lifecycle.dispatcher is not None else None

    @property
    def replication(self) -> Replication | None:
        """What keeps the replica, once the server is ready; None without one."""
        return self.lifecycle.replication

    @property
    def claims_waiting(self) -> int:
        """Claims that wait for jobs now."""
        return (
            self.lifecycle.dispatcher.claims_waiting if self.lifecycle.dispatcher is not None else 0
        )

    def require_serving(self) -> Dispatcher:
        """The dispatcher, for a route that needs it.

        Raises:
            NotReady: The log is still being replayed.
            ShuttingDown: The server drains.
            Fenced: Another server has taken over.
            Internal: Recovery failed.
        """
        lifecycle = self.lifecycle
        if lifecycle.phase is Phase.READY or lifecycle.phase is Phase.STANDBY:
            assert lifecycle.dispatcher is not None
            return lifecycle.dispatcher
        if lifecycle.phase is Phase.RECOVERING:
            raise NotReady(
                f"the log is being replayed ({self.replay_progress:.0%}); try again in a moment",
                {"replay_progress": round(self.replay_progress, 4)},
            )
        if lifecycle.phase is Phase.DRAINING:
            raise ShuttingDown("the server is shutting down; connect again in a moment")
        if lifecycle.phase is Phase.FENCED:
            assert lifecycle.refusal is not None
            raise Fenced(lifecycle.refusal.message, lifecycle.refusal.detail)
        raise Internal(f"recovery failed: {lifecycle.failure}")

    def require_writer(self) -> None:
        """Refuse a change on a server that follows another.

        Raises:
            NotWriter: It does.
        """
        following = self.lifecycle.following
        if following is not None:
            raise following.refusal()

    def require_ready(self) -> Dispatcher:
        """As `require_serving`, and the log must take writes.

        Raises:
            StorageReadOnly: A write or sync has failed.
            ReplicaUnavailable: The replica is further behind than it may be.
        """
        dispatcher = self.require_serving()
        failure = dispatcher.engine.journal.jobs.failure
        if failure is not None:
            raise StorageReadOnly.because(failure)
        if self.replication is not None:
            _require_replicated(self.replication, self.settings.replica_lag_max_ms)
        return dispatcher

    # -- keys ------------------------------------------------------------------------------------

    def change_keys(self, ring: KeyRing) -> None:
        """Replace the keys. Long polls, streams and watch sessions end when their key is not among
        the new ones, or has other scopes or prefixes there."""
        self.keys = ring
        self._valid_keys = valid = frozenset(ring.keys)
        self.watch_sessions.forget_keys_but(valid)
        if self.lifecycle.dispatcher is not None:
            self.lifecycle.dispatcher.end_streams_of(
                lambda key: key is not None and key not in valid, _key_removed()
            )
        for removed, key in list(self._long_polls.items()):
            if key not in valid and not removed.done():
                removed.set_exception(_key_removed())

    def _require_valid(self, key: Key) -> None:
        """Check a key again: it may have been removed since the head of the request came.

        Raises:
            Unauthorized: It was.
        """
        if key not in self._valid_keys:
            raise _key_removed()

    def key_removed(self, key: Key | None) -> asyncio.Future[NoReturn] | None:
        """What a long poll awaits besides its result: it fails once the key is removed.

        Returns:
            A future that fails with `Unauthorized`, to be cancelled when no longer needed;
            None on a server without keys.

        Raises:
            Unauthorized: The key was removed after the head of the request was read.
        """
        if key is None:
            return None
        self._require_valid(key)
        removed: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        self._long_polls[removed] = key
        removed.add_done_callback(self._forget_poll)
        return removed

    def _forget_poll(self, removed: asyncio.Future[NoReturn]) -> None:
        del self._long_polls[removed]

    # -- caps ------------------------------------------------------------------------------------

    def enter(self, key: Key | None) -> None:
        """Count a request in progress.

        Raises:
            Throttled: The key has all the requests it may have in progress.
        """
        if key is None:
            return
        most = self.settings.max_inflight_per_key
        if most and self.inflight[key.id] >= most:
            raise Throttled(f"this key already has {most} requests in progress")
        self.inflight[key.id] += 1

    def leave(self, key: Key | None) -> None:
        """The request is over."""
        _count_down(self.inflight, key)

    def enter_stream(self, key: Key | None) -> None:
        """Count an open stream.

        Raises:
            Throttled: The server, or the key, has all the streams it may have.
            Unauthorized: The key was removed after the head of the request was read.
        """
        if key is not None:
            self._require_valid(key)
        most = self.settings.max_sse_connections
        if most and self.streams >= most:
            raise Throttled(f"the server already has its maximum of {most} open streams")
        if key is not None:
            per_key = self.settings.max_sse_connections_per_key
            if per_key and self.streams_by_key[key.id] >= per_key:
                raise Throttled(f"this key already has its maximum of {per_key} open streams")
            self.streams_by_key[key.id] += 1
        self.streams += 1

    def leave_stream(self, key: Key | None) -> None:
        """The stream is closed."""
        self.streams -= 1
        assert self.streams >= 0
        _count_down(self.streams_by_key, key)


def _require_replicated(replication: Replication, lag_max_ms: int) -> None:
    """Whether the replica is as it should be.

    Raises:
        ReplicaUnavailable: It is not.
    """
    lag_ms = replication.writer.lag_ms
    if replication.is_stalled or (lag_max_ms and not replication.is_sync and lag_ms > lag_max_ms):
        why = replication.stats.last_error or "it is slower than what is written"
        raise ReplicaUnavailable(
            f"the replica is {lag_ms} ms behind: {why}",
            {"replica": {"state": replication.state(), "lag_ms": lag_ms}},
        )


def _key_removed() -> Unauthorized:
    return Unauthorized("this key is no longer valid: the keys of the server have changed")


def _count_down(counts: Counter[str], key: Key | None) -> None:
    if key is None:
        return
    counts[key.id] -= 1
    assert counts[key.id] >= 0
    if not counts[key.id]:
        del counts[key.id]
