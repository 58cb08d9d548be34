"""A start with a replica: directory and replica become one history, and this server its writer.

Owns: the order of it, what is refused, what is set aside. `prepare` comes before the logs are
opened, `take_over` after they were replayed and before they begin, `begin` after that. All of it
blocks. Must not know: asyncio, HTTP, how the protocol works (`logqueue.replica`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from logqueue import events as ev
from logqueue.events.event import ChunkKey
from logqueue.model.clock import Clock
from logqueue.replica.chain import LOGS, ChainEnd
from logqueue.replica.chunk import Chunk, LogName
from logqueue.replica.comparing import Comparison, compare
from logqueue.replica.frame_source import JournalFrames
from logqueue.replica.liveness import is_at_rest
from logqueue.replica.manifest import ReplicaManifest, WriterInfo
from logqueue.replica.mirror import MirrorDiverged, MirrorStale, ReplicaMirror
from logqueue.replica.object_store import (
    ObjectExists,
    ObjectStore,
    StoreError,
    StoreUnavailable,
)
from logqueue.replica.probing import require_conditions
from logqueue.replica.reading import ReadVoid, ReplicaMissing, ReplicaReader, ReplicaUnreadable
from logqueue.replica.restoring import RestoreProgress, RestoreRefused, settle
from logqueue.replica.takeover import Takeover, TakeoverLost, create_replica, take_over
from logqueue.replica.writing import ReplicaWriter
from logqueue.segments.history import HistoryBounds
from logqueue.server.storage.data_directory import log_directory
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.replica_note import (
    ReplicaNote,
    begin_empty,
    finish_setting_aside,
    has_logs,
    read_note,
    set_logs_aside,
    write_note,
)
from logqueue.server.storage.replication import ReplicaMode, Replication
from wal import FileSystem, WalCorrupt, read_head

NOTE_VERSION = 1
TRIES = 20
"""How often a start begins again because another server, or the collector, went on meanwhile."""
STORE_TRIES = 8
SEQS_LOST_MAX = 1 << 20
"""So many seqs of a topic are skipped after a takeover that may have lost some: far more than a
topic gets within the lag. They cost nothing."""

PAUSE_S = 0.2
"""How often a start tries a store that does not answer, and how much longer it waits each time."""

logger = logging.getLogger("logqueue.replica")


class ReplicaRefused(Exception):
    """The server must not start with this replica now; the message says why and what to do."""


class ReplicaAway(ReplicaRefused):
    """The store does not answer, or refuses."""


class ReplicaTaken(Exception):
    """Another server is the writer: it took over while this one started, or before.

    Attributes:
        address: Its base URL; "" when it is not known.
    """

    def __init__(self, writer: WriterInfo | None, what: str = "") -> None:
        self.address = writer.address if writer is not None else ""
        at = f" ({self.address})" if self.address else ""
        what = what or "took over the replica while this one started"
        super().__init__(f"another server{at} {what}")


class WriterAlive(Exception):
    """The directory has frames that the replica lacks, and is a copy: their writer is running."""


class DirectoryChanged(Exception):
    """The logs of the directory were, or must be, changed: open them again, after `bring_up`."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Settings of a replica, as a start needs them.

    Attributes:
        data_dir: The data directory; this process has it locked.
        address: Base URL at which clients reach this server.
        mode: Whether replies wait for the replica.
        lag_ms: How long frames wait at most before they are shipped, in ms.
        keep_ms: How far back any moment can be restored, in ms.
        history: What the replica keeps of segments that none of these moments needs; None for
            nothing.
        discard_local: Set logs of the directory aside that are not the replica's.
        is_promoted: A standby takes over, which has found that it should.
        from_epoch: Take over from the writer of this epoch only, or from none; None for any.
    """

    data_dir: str
    address: str = ""
    mode: ReplicaMode = "async"
    lag_ms: int = 1000
    keep_ms: int = 0
    history: HistoryBounds | None = None
    discard_local: bool = False
    is_promoted: bool = False
    from_epoch: int | None = None


class ReplicaStart:
    """One start of one server."""

    def __init__(
        self,
        store: ObjectStore,
        fs: FileSystem,
        clock: Clock,
        options: ReplicaOptions,
        writer_id: str,
        *,
        progress: Callable[[float], None] = lambda share: None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        parallel: int = 1,
    ) -> None:
        """Nothing is read yet.

        Args:
            store: Where the replica is.
            fs: Where the data directory is.
            clock: Of the server.
            options: What is wanted.
            writer_id: Of this run; never used before.
            progress: Called with the share of a restore that is done, 0.0 to 1.0.
            monotonic: A clock for durations, in seconds.
            pause: Waits so many seconds.
            parallel: How many objects are fetched at the same time, in threads; 1 for none.
        """
        self._store = store
        self._fs = fs
        self._clock = clock
        self._options = options
        self._writer = WriterInfo(writer_id, options.address)
        self._progress = progress
        self._monotonic = monotonic
        self._pause = pause
        self._reader = ReplicaReader(store, parallel=parallel, pause=pause)
        self._takeover: Takeover | None = None
        self._note: ReplicaNote | None = None
        self._must_discard = self._has_discarded = False
        self._lacks = self._has_lacked = False
        self._lacks_tail = False
        self._has_asked = False

    def require_no_successor(self) -> None:
        """Refuse to take the log back from a server that took it over from this directory, and is
        running: two servers that are started again and again would take it from each other for
        ever.

        Raises:
            ReplicaTaken: There is such a server.
            ReplicaRefused: The replica cannot be read.
        """
        note = read_note(self._fs, self._options.data_dir)
        if note is None or not note.writers:
            # This directory has never been the writer's.
            return
        with self._refusing():
            try:
                manifest = self._reader.manifest().manifest
            except ReplicaMissing:
                return
            writer = manifest.writer
            if note.log_id != manifest.log_id or writer.id in note.writers:
                return
            if is_at_rest(self._reader):
                return
        raise ReplicaTaken(
            writer,
            f"has taken over the replica {self._store.url} from this one, and is running; nothing "
            "was changed: start this one with --standby to follow it, or stop the other one first",
        )

    def bring_up(self) -> None:
        """Bring the directory to where its logs can be opened: restore them when there are none,
        add what the replica has beyond them. Before each time the logs are opened.

        Raises:
            ReplicaRefused: That is impossible.
            ReplicaTaken: See `require_no_successor`.
        """
        fs, data_dir = self._fs, self._options.data_dir
        if not self._has_asked and not self._options.is_promoted:
            self.require_no_successor()
        self._has_asked = True
        with self._refusing():
            finish_setting_aside(fs, data_dir)
            settle(fs, data_dir)
            if self._must_discard:
                self._must_discard = self._lacks = False
                logger.warning(
                    "the logs of %s are not those of the replica %s: they are now %s and beside",
                    data_dir,
                    self._store.url,
                    set_logs_aside(fs, data_dir),
                )
            if not has_logs(fs, data_dir):
                self._restore()
            elif self._lacks:
                self._lacks, self._has_lacked = False, True
                self._add_missing()

    def _restore(self) -> None:
        try:
            manifest = self._reader.manifest().manifest
        except ReplicaMissing:
            return
        began = self._monotonic()
        begin_empty(self._fs, self._options.data_dir)
        end = self._catch_up(
            ReplicaMirror(
                self._reader, self._fs, self._options.data_dir, progress=self._note_progress
            )
        )
        logger.info(
            "restored %s from the replica %s, chunk %d, in %.1f s",
            self._options.data_dir,
            self._store.url,
            end.number,
            self._monotonic() - began,
        )
        # Logs that are opened once more before this server is the writer are compared again.
        starts = {name: self._starts_of(name) for name in LOGS}
        write_note(
            self._fs,
            self._options.data_dir,
            ReplicaNote(NOTE_VERSION, manifest.log_id, starts=starts, end=end),
        )

    def _starts_of(self, name: LogName) -> int:
        head = read_head(self._fs, log_directory(self._options.data_dir, name))
        return head.starts if head is not None else 0

    def _add_missing(self) -> None:
        mirror = ReplicaMirror(
            self._reader,
            self._fs,
            self._options.data_dir,
            progress=self._note_progress,
            may_be_ahead=True,
        )
        self._catch_up(mirror)
        logger.info("the data directory has caught up with the replica %s", self._store.url)

    def _catch_up(self, mirror: ReplicaMirror) -> ChainEnd:
        with closing(mirror):
            for _ in mirror.catch_up():
                pass
            assert mirror.end is not None
            return mirror.end

    def _note_progress(self, progress: RestoreProgress) -> None:
        self._progress(min(progress.done / max(progress.total, 1), 1.0))

    def is_ahead(self, segment_bytes_max: int) -> bool:
        """Whether the directory has what the replica lacks, and may go on as its writer; for a
        standby that cannot follow with these logs. Sets logs aside as a start would.

        Args:
            segment_bytes_max: As for any start.

        Raises:
            ReplicaRefused: The two are not one history, or the replica cannot be used.
            WriterAlive: The directory is a copy of that of the writer, which is running.
            WalError, OSError: The logs cannot be used.
        """
        self._has_asked = True
        self.bring_up()
        journal = Journal.open(
            self._options.data_dir, segment_bytes_max=segment_bytes_max, fs=self._fs
        )
        try:
            with closing(journal), self._refusing(), suppress(ReadVoid):
                for log in journal.logs.values():
                    log.examine()
                end = self._compare(journal)
                if all(log.appended <= end.frame(name) for name, log in journal.logs.items()):
                    return False
                if not is_at_rest(self._reader):
                    raise WriterAlive
                return True
        except DirectoryChanged:
            # What is missing comes as for any standby: a writer that is alive adds to it.
            self._lacks = False
            self.bring_up()
        return False

    def discards_damaged(self, damage: WalCorrupt) -> bool:
        """Whether logs that are damaged are to be set aside, for what the replica has: the next
        `bring_up` does so, once, if that was asked for and there is a replica.

        Raises:
            ReplicaRefused: The replica cannot be read.
        """
        if not self._options.discard_local or self._has_discarded:
            return False
        with self._refusing():
            try:
                self._reader.manifest()
            except ReplicaMissing:
                return False
        logger.error("%s", damage)
        self._must_discard = self._has_discarded = True
        return True

    # -- becoming the writer ---------------------------------------------------------------------

    def take_over(self, journal: Journal) -> None:
        """Compare the logs with the replica, and become its writer. After `replay`, before `begin`.

        Raises:
            DirectoryChanged: Close the journal, and begin with `bring_up` again.
            ReplicaRefused: The two are not one history, or the replica cannot be used.
            ReplicaTaken: Another server was faster.
        """
        if journal.jobs.losses or journal.leases.losses:
            raise ReplicaRefused(
                f"damage in {self._options.data_dir} cannot be set aside beside a replica, which "
                "may have what is damaged; nothing was changed: start once with --discard-local to "
                "continue from the replica, or without LOGQUEUE_REPLICA"
            )
        failures = 0
        with self._refusing():
            for _ in range(TRIES):
                try:
                    known = self._compare(journal)
                    self._note_candidate(journal)
                    self._takeover = take_over(
                        self._store,
                        self._writer,
                        known,
                        _refuse_chunks,
                        from_epoch=self._options.from_epoch,
                    )
                    return
                except (ReadVoid, _ReplicaGrew, ObjectExists):
                    continue
                except StoreUnavailable:
                    failures += 1
                    # Of one epoch alone it cannot be tried twice: the first try may have ended it.
                    if failures == STORE_TRIES or self._options.from_epoch is not None:
                        raise
                    self._pause(PAUSE_S * failures)
        raise ReplicaRefused(
            f"the replica {self._store.url} changed in each of {TRIES} tries: another server is "
            "writing it; stop that one, or start this one with --standby"
        )

    def _compare(self, journal: Journal) -> ChainEnd:
        """A chunk up to which both are the same, if this server may become the writer."""
        try:
            manifest = self._reader.manifest().manifest
        except ReplicaMissing:
            self._create(journal)
            manifest = self._reader.manifest().manifest
        self._require_same_logs(journal, manifest)
        segments = {name: log.segments() for name, log in journal.logs.items()}
        self._note = note = self._note_of(journal)
        own = note.writers
        self._look_for_lost_tail(note, manifest)
        found = compare(self._reader, manifest, journal.fs, segments, note.end, own)
        if found.parted or _has_new_leases_log(journal, manifest):
            self._part(journal, found, manifest)
        if found.lacks:
            self._lacks = True
            raise DirectoryChanged
        return found.end

    def _look_for_lost_tail(self, note: ReplicaNote, manifest: ReplicaManifest) -> None:
        """Find out whether the writer before may have had more than the replica and this directory
        have. Once this server is in the manifest itself, that is known."""
        before = manifest.writer.id
        if before == self._writer.id:
            return
        has_ended = manifest.is_released or not manifest.epoch
        # A directory that had lacked something may be a copy of that of the writer.
        is_its_own = before in note.writers and not self._has_lacked
        self._lacks_tail = note.lacks_tail or not (has_ended or is_its_own)

    @property
    def seqs_lost_max(self) -> int:
        """How many seqs of each topic the writer before may have given out that are in no log, as
        `take_over` has found. In sync mode no seq is shown before it is in the replica."""
        return SEQS_LOST_MAX if self._lacks_tail and self._options.mode == "async" else 0

    def _create(self, journal: Journal) -> None:
        logger.info("making a new replica: %s", self._store.url)
        ids = [journal.logs[name].identity.hex() for name in ("jobs", "leases")]
        require_conditions(self._store, self._writer.id)
        create_replica(self._store, ids[0], ids[1], self._writer)

    def _require_same_logs(self, journal: Journal, manifest: ReplicaManifest) -> None:
        log_id = journal.jobs.identity.hex()
        if log_id != manifest.log_id:
            raise ReplicaRefused(
                f"{self._store.url} is the replica of another log ({manifest.log_id}) than the one "
                f"in {self._options.data_dir} ({log_id}); nothing was changed: set another "
                "LOGQUEUE_REPLICA, or another data directory"
            )

    def _note_of(self, journal: Journal) -> ReplicaNote:
        """What the directory says of its replica, as far as it is to be believed."""
        log_id = journal.jobs.identity.hex()
        note = read_note(journal.fs, self._options.data_dir)
        if note is None or note.version != NOTE_VERSION or note.log_id != log_id:
            return ReplicaNote(NOTE_VERSION, log_id)
        if note.starts != _starts_found(journal):
            # Opened since then, and perhaps written, without a replica.
            return msgspec.structs.replace(note, end=None)
        return note

    def _part(self, journal: Journal, found: Comparison, manifest: ReplicaManifest) -> NoReturn:
        """Directory and replica have both gone on."""
        jobs_first = found.only_here.get("jobs")
        if jobs_first is None or self._options.discard_local:
            # What only the leases log says was never promised.
            self._must_discard = True
            raise DirectoryChanged
        records, acks = _at_stake(journal, jobs_first)
        frames = journal.jobs.segments()[-1].last - jobs_first + 1
        other = f" ({manifest.writer.address})" if manifest.writer.address else ""
        if "jobs" in found.forked:
            why = "has other frames of the same numbers"
        elif found.taken_over:
            why = f"does not have, and another server{other} has taken over since"
        else:
            why = "does not have, and its leases log is no longer the one of the replica"
        raise ReplicaRefused(
            f"{self._options.data_dir} has {frames} frames, with {records} records and {acks} acks,"
            f" that the replica {self._store.url} {why}; nothing was changed. To go on from the "
            "replica, start once with --discard-local: the logs of the directory are kept beside "
            "it. To go on from the directory, set another LOGQUEUE_REPLICA"
        )

    def _note_candidate(self, journal: Journal) -> None:
        """Before the takeover, note by whom it is: after a crash its chunk is known as ours."""
        assert self._note is not None
        self._note = msgspec.structs.replace(
            self._note.with_writer(self._writer.id), lacks_tail=self._lacks_tail
        )
        write_note(journal.fs, self._options.data_dir, self._note)

    def begin(self, journal: Journal) -> Replication:
        """The replica of a journal that has begun. In sync mode all of it is committed then.

        Raises:
            ReplicaRefused: The replica cannot be written.
            ReplicaTaken: Another server has taken over by now.
        """
        takeover = self._takeover
        assert takeover is not None, "take_over() was not called"
        options = self._options

        def kept_from() -> dict[LogName, int]:
            return {"jobs": journal.jobs_kept_from, "leases": journal.leases_kept_from}

        writer = ReplicaWriter(
            self._store,
            JournalFrames(journal.logs, journal.fs, kept_from),
            takeover,
            clock_ms=self._clock.now_ms,
            monotonic=self._monotonic,
            keep_ms=options.keep_ms,
            history=options.history,
        )
        log_id = journal.jobs.identity.hex()
        writers = self._note.writers if self._note is not None else (self._writer.id,)

        # From there on the log says which seqs are skipped.
        skipped_through = journal.jobs.appended

        def note_end(end: ChainEnd) -> None:
            lacks_tail = self._lacks_tail and end.frame("jobs") < skipped_through
            write_note(
                journal.fs,
                options.data_dir,
                ReplicaNote(
                    NOTE_VERSION,
                    log_id,
                    writers,
                    writer.epoch,
                    _starts(journal),
                    end,
                    lacks_tail,
                ),
            )

        replication = Replication(
            writer,
            journal.logs,
            mode=options.mode,
            lag_ms=options.lag_ms,
            store_url=self._store.url,
            clock_ms=self._clock.now_ms,
            monotonic=self._monotonic,
            on_end=note_end,
        )
        with self._refusing():
            note_end(takeover.end)
        if replication.is_sync:
            self._commit_all(journal, replication)
        return replication

    def _commit_all(self, journal: Journal, replication: Replication) -> None:
        """Whatever is shown from now on is in the replica."""
        journal.jobs.sync()
        while journal.jobs.step():
            pass
        for failures in range(STORE_TRIES):
            if failures:
                self._pause(PAUSE_S * failures)
            if replication.ship_all():
                return
            if replication.fenced_by is not None:
                raise ReplicaTaken(WriterInfo("", replication.fenced_by))
        raise ReplicaRefused(
            f"the replica {self._store.url} cannot be written: {replication.stats.last_error}"
        )

    def _refusing(self) -> _Refusing:
        return _Refusing(self._store.url)


class _Refusing:
    """Turns what a replica can fail with into what a start says of it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """See the class."""
        if isinstance(error, TakeoverLost):
            raise ReplicaTaken(error.writer) from error
        if isinstance(error, StoreError):
            raise ReplicaAway(
                f"the replica {self._url} cannot be reached or used, and without it nothing says "
                f"whether another server has taken over: {error}; check its URL, "
                "credentials and network, then start again"
            ) from error
        if isinstance(error, (ReplicaUnreadable, MirrorDiverged, MirrorStale, RestoreRefused)):
            raise ReplicaRefused(f"the replica {self._url} cannot be used: {error}") from error


class _ReplicaGrew(Exception):
    """Another writer has added chunks since the comparison."""


def _refuse_chunks(chunks: Sequence[Chunk], end: ChainEnd) -> None:
    raise _ReplicaGrew


def _has_new_leases_log(journal: Journal, manifest: ReplicaManifest) -> bool:
    """Whether the leases log was begun again here, after damage in it was set aside."""
    return journal.leases.identity.hex() != manifest.leases_id


def _starts_found(journal: Journal) -> dict[LogName, int]:
    """How often each log had been opened before."""
    return {
        name: log.head_found.starts if log.head_found is not None else 0
        for name, log in journal.logs.items()
    }


def note_followed(fs: FileSystem, data_dir: str, log_id: str, end: ChainEnd) -> None:
    """Note of logs that are not open that they are those of the replica up to a chunk.

    Raises:
        OSError: As the file system does.
    """
    note = read_note(fs, data_dir)
    if note is None or note.version != NOTE_VERSION or note.log_id != log_id:
        note = ReplicaNote(NOTE_VERSION, log_id)
    starts: dict[LogName, int] = {}
    for name in LOGS:
        head = read_head(fs, log_directory(data_dir, name))
        starts[name] = head.starts if head is not None else 0
    write_note(fs, data_dir, msgspec.structs.replace(note, starts=starts, end=end))


def _starts(journal: Journal) -> dict[LogName, int]:
    """The same, this time included."""
    return {name: log.starts for name, log in journal.logs.items()}


class _Counting(ev.RecordVisitor):
    """Counts records that were appended."""

    def __init__(self) -> None:
        self.records = 0

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See RecordVisitor."""
        self.records += count

    def committed(self, event: ev.Event, chunk: ChunkKey, first_seq: int, count: int) -> None:
        """See RecordVisitor."""
        self.records += count


def _at_stake(journal: Journal, first: int) -> tuple[int, int]:
    """How many records and acks the jobs log has from a frame on."""
    counting = _Counting()
    acks = 0
    for frame in journal.jobs.read():
        if frame.number < first:
            continue
        for event in ev.decode(frame.payload).events:
            event.visit_records(counting)
            acks += sum(change.count for change in event.job_changes() if change.kind == "acked")
    return counting.records, acks
