"""The jobs log and the leases log as one memory: append a transaction, replay both in order.

Owns: which event goes to which log and with what promise, the merge at replay, the checkpoint that
begins every segment, and which segments may go. Must not know: commands, HTTP, asyncio.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

import msgspec

from logqueue import events as ev
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import PayloadTooLarge, ReplicaUnavailable, StorageFull, StorageReadOnly
from logqueue.events import split_block
from logqueue.model.config import TopicOptions
from logqueue.segments.index import LogName
from logqueue.server.storage import data_directory
from logqueue.server.storage.checkpoint import JobsCheckpoint, leases_parts
from logqueue.server.storage.data_directory import log_directory
from logqueue.server.storage.heads_files import HeadsFiles
from logqueue.server.storage.heads_frames import restored
from logqueue.server.storage.housework import Housework
from logqueue.server.storage.log_replay import LogEntry, LogReplay, in_order, joined
from logqueue.server.storage.payload_store import PayloadStore
from logqueue.server.storage.reserve import Reserve
from wal import (
    FileSystem,
    Frame,
    FrameTooLarge,
    Log,
    OsFileSystem,
    SegmentInfo,
    WalCorrupt,
    WalError,
    WalFull,
    segment_path,
)

SPARE_BYTES = 1 << 20
"""Space that producers must leave on a full disk, so that acks and deletes still find room."""

WAKE_BYTES_MIN = 4 << 10
"""Frames from this size on are worth a round of their own; smaller ones wait for the end of the
loop's turn, so that all that arrived in it rides one sync."""

LEASES_SEGMENT_BYTES_MAX = 8 << 20
"""While the end of a leases-log segment is synced, what comes next waits in memory; so segments are
short."""

FLUSH, RESERVE = "flush", "reserve"
"""Names of housework."""

logger = logging.getLogger("logqueue.journal")


class JournalPosition(NamedTuple):
    """A place in the jobs log.

    Attributes:
        number: Frame number, 0 when nothing was logged.
        segment: Segment that holds the frame.
        synced: Whether the frame's promise is a sync (else: handed to the operating system).
    """

    number: int
    segment: int
    synced: bool


NOWHERE = JournalPosition(0, 0, False)


class Journal:
    """Both logs of a data directory.

    Attributes:
        jobs: What work exists.
        leases: Who holds what. Losing its tail is harmless, so nothing ever waits for it.
        order: Number of the next transaction.
        checkpointed_at: When the last checkpoint of the jobs log was complete, in ms since the
            epoch, and the segment that it begins; None before the first since the start.
        live_bytes: About how large the jobs log would be with live data only, when tidying last
            looked.
        leases_lost: Lease transactions that could not be logged (best effort by design).
        refused_noted: Refusals for lack of disk space that tidying has already acted on.
        fs: Where the logs are.
        housework: Does what blocks on the disk.
        jobs_kept_from: Segments of the jobs log before this one are no longer needed: all that
            they alone said has been rewritten, durably.
        leases_kept_from: The same of the leases log.
        payloads: Record data in segment files instead of in memory.
        heads: The files that a start reads in place of sealed segments.
        reserve: Space kept back for moving live data on a full disk.
        lent_bytes: What of it is in use for that: producers must leave as much more.
        unpromisable: Why the promise of a sync cannot be kept now although the log takes frames;
            events that ask for it are refused. "" when it can.
        is_fenced: Another server writes this log by now: nothing is added here, whatever it asks.
    """

    def __init__(
        self,
        jobs: Log,
        leases: Log,
        *,
        data_dir: str,
        fs: FileSystem,
        sets_damage_aside: bool,
        heads: HeadsFiles,
    ) -> None:
        """Not for callers: use `open`."""
        self._data_dir = data_dir
        self.jobs = jobs
        self.leases = leases
        self.fs = fs
        self.jobs_kept_from = 0
        self.leases_kept_from = 0
        self.housework = Housework()
        self.reserve = Reserve(self.fs, jobs.directory)
        self.payloads = PayloadStore(fs, jobs.directory)
        self.heads = heads
        self.lent_bytes = 0
        self.unpromisable = ""
        self.is_fenced = False
        self.order = 1
        self.leases_lost = 0
        self.refused_noted = 0
        self.checkpointed_at: tuple[int, int] | None = None
        self.live_bytes = 0
        self._sets_damage_aside = sets_damage_aside
        self._checkpointed: set[int] = set()
        # The segment that replay has come to.
        self._reached = 0
        self._under_way: JobsCheckpoint | None = None

    @classmethod
    def open(
        cls,
        data_dir: str,
        *,
        segment_bytes_max: int,
        fs: FileSystem | None = None,
        set_damage_aside: bool = False,
        read_everything: bool = False,
        random_bytes: Callable[[str, int], bytes] = lambda log, length: os.urandom(length),
        on_sync: Callable[[float], None] | None = None,
    ) -> Journal:
        """Open (or make) the two logs below a data directory.

        Until `begin` they can only be replayed, and nothing on the disk is changed.

        Args:
            data_dir: It need not exist.
            segment_bytes_max: Size at which a new segment is started, in bytes.
            fs: Where it is.
            set_damage_aside: Go on without what is damaged or missing.
            read_everything: Read every byte of all segments, also of those with a heads file.
            random_bytes: Where the identities of new logs come from, by name.
            on_sync: Called with the seconds that each sync of the jobs log took, in the thread of
                its committer.

        Raises:
            WalLocked: Another server has the directory.
            WalCorrupt: Damage outside the unsynced tail, or something is missing.
        """
        fs = fs or OsFileSystem()
        heads = HeadsFiles(fs, log_directory(data_dir, "jobs"))

        def log(name: str, segment_bytes_max: int) -> Log:
            return Log.open(
                log_directory(data_dir, name),
                fs=fs,
                segment_bytes_max=segment_bytes_max,
                set_damage_aside=set_damage_aside,
                lost_payload=ev.LOST,
                random_bytes=partial(random_bytes, name),
                begin=False,
                on_sync=on_sync if name == "jobs" else None,
                read_short=heads.read if name == "jobs" and not read_everything else None,
            )

        data_directory.require_finished(fs, data_dir)
        known = {} if set_damage_aside else data_directory.read(fs, data_dir)
        if not set_damage_aside:
            data_directory.require_jobs(fs, data_dir, known)
        jobs = log("jobs", segment_bytes_max)
        leases: Log | None = None
        try:
            if not set_damage_aside:
                data_directory.require_leases(fs, data_dir, known, jobs)
            leases = log("leases", min(segment_bytes_max, LEASES_SEGMENT_BYTES_MAX))
            if not set_damage_aside:
                data_directory.require_same(known, {"jobs": jobs, "leases": leases})
        except BaseException:
            jobs.close()
            if leases is not None:
                leases.close()
            raise
        return cls(
            jobs,
            leases,
            data_dir=data_dir,
            fs=fs,
            sets_damage_aside=set_damage_aside,
            heads=heads,
        )

    def begin(self) -> None:
        """Repair what a crash has left, and take transactions from now on. After `replay`, which
        may still find that the logs must be refused.

        Raises:
            WalFull: No disk space for it.
            OSError: The directory cannot be changed.
        """
        if self._sets_damage_aside:
            # Segments may change.
            self.heads.remove_all()
        self.jobs.begin()
        self.leases.begin()
        data_directory.write(self.fs, self._data_dir, self.logs)

    @property
    def logs(self) -> dict[LogName, Log]:
        """Both logs by the names of their directories."""
        return {"jobs": self.jobs, "leases": self.leases}

    def log_id_of(self, topic: Topic) -> str:
        """What tells a topic from others of its name, earlier and elsewhere."""
        return f"{self.jobs.identity.hex()}-{topic.number}"

    def close(self) -> None:
        """Write, sync and release both logs."""
        self.housework.end()
        self.payloads.close()
        try:
            self.jobs.close()
        finally:
            self.leases.close()

    # -- replay ----------------------------------------------------------------------------------

    def replay(self, state: State, progress: Callable[[float], None] | None = None) -> None:
        """Bring an empty state to where the logs end.

        Args:
            state: Changed in place, through the same `apply` as live.
            progress: Called now and then with the share done, 0.0 to 1.0.

        Raises:
            WalCorrupt: A frame holds what this version cannot read.
        """
        note = progress or (lambda share: None)
        replay = LogReplay(state, self.reach, last_order=self.order - 1)
        for entry in self.history(replay, lambda done, total: note(done / total)):
            replay.take(entry)
        self._checkpointed |= replay.checkpointed
        self.order = replay.last_order + 1
        self.require_whole(replay.kept_from)
        replay.finish()
        note(1.0)

    def history(
        self,
        replay: LogReplay,
        progress: Callable[[int, int], None] | None,
        *,
        joins: bool = True,
    ) -> Iterator[LogEntry]:
        """Both logs in the order of decisions.

        Args:
            replay: Learns how the jobs log begins.
            progress: Called after each segment with bytes done and bytes in all.
            joins: Take neighbouring appends of few records as one transaction.

        Raises:
            WalCorrupt: A log is damaged, or a frame holds what this version cannot read.
        """
        jobs = decoded(self.jobs.read(progress), self.jobs.directory, 0, self.payloads)
        if joins:
            jobs = joined(jobs)
        opening = _opening(jobs)
        replay.open(opening)
        leases = decoded(self.leases.read(), self.leases.directory, 1, self.payloads)
        return in_order(chain(opening, jobs), leases)

    def require_whole(self, kept_from: int) -> None:
        """Refuse a log whose oldest segments are missing although they were not dropped."""
        if self.jobs.head_found is not None or self.jobs.losses:
            # The note of the log knows which are needed.
            return
        oldest = self.jobs.segments()[0]
        if oldest.id > kept_from > 0:
            missing = f"segments {kept_from} to {oldest.id - 1} of the jobs log are missing"
            if self._sets_damage_aside:
                # From the next start on the note says that they are not needed.
                logger.warning("%s: damage was set aside, and all they alone said is lost", missing)
                return
            raise WalCorrupt(
                oldest.path,
                None,
                f"{missing}; nothing was changed: put them back, for instance from a backup of the "
                "data directory, or start once with --set-damage-aside to go on without",
            )

    def replay_promised(self, state: State) -> None:
        """Bring an empty state to the durable content of a failed log.

        After a failed write or sync the state in memory holds changes whose promise was never
        kept. This is everything but those: transactions that were to be synced count up to the
        last good sync, the others up to the last good write.

        Args:
            state: Changed in place.
        """
        log, replay = self.jobs, LogReplay(state, self.reach)
        # Not joined: of each frame it must be known whether it counts.
        for entry in self.history(replay, None, joins=False):
            _, place, _, transaction, frame, _ = entry
            is_unsynced = not place and transaction.events and frame.number > log.durable
            if is_unsynced and not _is_valid_unsynced(state, transaction.events):
                replay.pass_over(entry)
            else:
                replay.take(entry)
        replay.finish(is_clean=True)

    def reach(self, frame: Frame) -> None:
        """The events of a frame of the jobs log come next. Data of the segments before it leaves
        memory, so that a log of any size is replayed in the memory of one segment."""
        if len(frame.payload) >= split_block.SPLIT_FROM_BYTES:
            self.payloads.in_frame(frame.segment, frame.offset, (frame.payload,))
        is_first = frame.segment != self._reached
        self._reached = frame.segment
        if is_first and not self.jobs.losses:
            # Where damage is set aside, files are as they were read once the log has begun.
            for segment in self.payloads.waiting:
                if segment < frame.segment:
                    for _ in self.payloads.offload(segment):
                        pass

    def offload(self) -> Generator[None, None, None]:
        """Free the memory of record data in segments that are sealed by now.

        Yields:
            After about a millisecond of work each. The steps may be made in any thread.
        """
        sealed = {info.id for info in self._sealed()}
        for segment in self.payloads.waiting:
            if segment in sealed:
                yield from self.payloads.offload(segment)

    def write_heads(self) -> Generator[None, None, None]:
        """Write heads files of the segments that are sealed by now.

        Yields:
            After about a millisecond of work each. The steps wait for the disk, and may be made in
            any thread.
        """
        for info in self._sealed():
            if self.jobs.failure is not None:
                return
            yield from self.heads.write(info)

    def _sealed(self) -> list[SegmentInfo]:
        """The segments of the jobs log that never change again."""
        pairs = pairwise(self.jobs.segments())
        return [info for info, successor in pairs if successor.header_durable]

    # -- append ----------------------------------------------------------------------------------

    def append(
        self, state: State, events: list[ev.Event], may_use_spare: bool | None = None
    ) -> JournalPosition:
        """Log the events of one decision, before they are applied.

        Args:
            state: As it is before the events.
            events: In order. Events of topics that are not kept on disk are left out.
            may_use_spare: Whether they may take the space that is spared for acks and deletes;
                None when the events tell.

        Returns:
            The position in the jobs log that the reply's promise needs.

        Raises:
            StorageFull: No disk space; nothing was logged.
            PayloadTooLarge: The frame would be larger than the log takes; nothing was logged.
            StorageReadOnly: The log is poisoned; nothing was logged.
            ReplicaUnavailable: The replica has not answered for long; nothing was logged.
        """
        jobs: list[ev.Event] = []
        leases: list[ev.Event] = []
        sync = frees = False
        spare = 0
        for event in events:
            kind = type(event)
            if kind.logged != "always":
                topic = state.instances.get(event.topic)
                if topic is None:
                    if not _created_config(event, events).is_logged:
                        continue
                elif not is_kept(topic, event):
                    continue
            if kind.log & ev.JOBS:
                jobs.append(event)
                sync = sync or _must_sync(state, event, events)
                if kind.space == "takes":
                    spare = SPARE_BYTES + self.lent_bytes
                elif kind.space == "frees":
                    frees = True
            if kind.log & ev.LEASES:
                leases.append(event)
        if frees:
            # The copy of a finished job comes with its removal, which may use the spare.
            spare = 0
        if may_use_spare is not None:
            spare = 0 if may_use_spare else SPARE_BYTES + self.lent_bytes
        position = NOWHERE
        if jobs:
            position = self._append_jobs(state, jobs, sync, spare)
        if leases:
            self._append_leases(state, leases)
        return position

    def _append_leases(self, state: State, events: list[ev.Event]) -> None:
        if self.is_fenced:
            return
        order = self.order
        self.order = order + 1
        payload = ev.encode(order, events)
        try:
            self.leases.append(payload, sync=False)
            for event in events:
                if state.instances[event.topic].config.leases_durable:
                    self.flush_leases()
                    break
        except WalError:
            # Best effort by design: what is lost here comes back as a redelivery.
            self.leases_lost += 1

    def flush_leases(self) -> bool:
        """Hand buffered lease events to the operating system.

        The leases log has no thread of its own: nothing waits for it, and a write without a sync
        is cheaper than a hand-over. What must wait for the disk, as the end of a segment does, is
        done beside the event loop; what comes meanwhile is handed over after it.

        Returns:
            False when some is still to be handed over; call again.
        """
        housework = self.housework
        if housework.is_under_way(FLUSH):
            return False
        if housework.has_thread and self.leases.syncs_next:
            housework.begin_task(FLUSH, self._step_leases)
            return False
        self._step_leases()
        return True

    def _step_leases(self) -> None:
        while self.leases.step():
            pass

    def drop_before(self, log: Log, segment: int) -> Iterator[None]:
        """Delete the segments of a log with an id below this one, beside the event loop.

        Yields:
            While it is under way.

        Raises:
            WalError, OSError: See `Log.drop_before`.
        """
        name = f"drop {log.directory}"
        yield from self.housework.through(name, partial(self.drop_segments, log, segment))

    def drop_segments(self, log: Log, segment: int) -> None:
        """The same at once.

        Raises:
            WalError, OSError: See `Log.drop_before`.
        """
        if log is self.jobs:
            self.payloads.pin_before(segment)
        log.drop_before(segment)
        if log is self.jobs:
            with suppress(OSError):
                self.heads.remove_before(log.segments()[0].id)

    def _append_jobs(
        self, state: State, events: list[ev.Event], sync: bool, spare: int
    ) -> JournalPosition:
        if self.is_fenced or (sync and self.unpromisable):
            raise ReplicaUnavailable(self.unpromisable)
        log = self.jobs
        order = self.order
        self.order = order + 1
        parts = ev.encode_parts(order, events)
        size = sum(map(len, parts))
        try:
            if log.will_roll(size) and not self.is_checkpointing:
                # The checkpoint comes first, in the log and so in the order.
                self.order = order
                # When there is no room for a checkpoint, a small frame may still find some.
                with suppress(WalFull):
                    self.checkpoint(state, events[-1].at)
                parts = ev.encode_parts(self._next_order(), events)
            wake = size >= WAKE_BYTES_MIN
            number = log.append(parts, sync=sync, spare_bytes=spare, wake=wake)
            if log.is_short_of_space and self.housework.has_thread:
                self.housework.begin_task(RESERVE, log.reserve_ahead)
            segment, offset = log.latest
            if size >= split_block.SPLIT_FROM_BYTES:
                self.payloads.in_frame(segment, offset, parts)
        except WalFull as full:
            raise StorageFull.because(full) from full
        except FrameTooLarge as large:
            raise PayloadTooLarge(
                f"this call would make one entry of the log that is too large ({large}); nothing "
                "was stored: send or ask for less at a time"
            ) from large
        except WalError as failure:
            raise StorageReadOnly.because(failure) from failure
        return JournalPosition(number, segment, sync)

    def checkpoint(self, state: State, at: int, *, clean: bool = False) -> None:
        """Begin a new jobs-log segment with everything that no live record says.

        Of many topics only the first are restated at once, and `go_on_with_checkpoint` is for the
        rest; unless it is a `clean` one, after which nothing may come.

        Raises:
            WalFull: No room for it; older segments then stay.
            WalError: The log is poisoned or closed.
        """
        self.jobs.roll()
        self._under_way = None
        checkpoint = JobsCheckpoint(state, self.jobs.segment)
        self._log_part(checkpoint, state, at, clean)
        while clean and not checkpoint.is_complete:
            self._log_part(checkpoint, state, at, clean)

    @property
    def is_checkpointing(self) -> bool:
        """Whether a checkpoint is in progress."""
        return self._under_way is not None

    def go_on_with_checkpoint(self, state: State, at: int) -> None:
        """Log the next part of the checkpoint that is under way.

        Raises:
            WalFull: No room; to be tried again.
            WalError: The log is poisoned or closed.
        """
        assert self._under_way is not None
        self._log_part(self._under_way, state, at, clean=False)

    def _log_part(self, checkpoint: JobsCheckpoint, state: State, at: int, clean: bool) -> None:
        oldest = self.jobs.segments()[0].id
        event = checkpoint.next_part(state, at, oldest, clean=clean)
        self.jobs.append(ev.encode(self._next_order(), [event]), sync=True)
        checkpoint.advance()
        self._under_way = None if checkpoint.is_complete else checkpoint
        if checkpoint.is_complete:
            self._checkpointed.add(checkpoint.segment)
            self.checkpointed_at = at, checkpoint.segment

    def checkpoint_leases(self, state: State, at: int, room_bytes: int = 0) -> Iterator[None]:
        """Log the states of all queues: all that the leases log has to say.

        Args:
            state: As of now, whenever a part is made.
            at: The clock.
            room_bytes: Begin only if there is room for so much behind the first part.

        Yields:
            After each part. Jobs may be claimed and settled between two parts.

        Raises:
            WalError: No room for it, or the log is poisoned or closed.
        """
        for event in leases_parts(state, at):
            payload = ev.encode(self._next_order(), [event])
            self.leases.append(payload, sync=True, spare_bytes=room_bytes)
            room_bytes = 0
            yield

    def begins_with_checkpoint(self, segment: int) -> bool:
        """Whether the jobs log could be replayed from this segment on."""
        return segment in self._checkpointed

    def _next_order(self) -> int:
        order = self.order
        self.order = order + 1
        return order


def is_kept(topic: Topic, event: ev.Event) -> bool:
    """Whether an event about the records or the leases of a topic is logged."""
    if event.logged == "topic_logged":
        return topic.config.durability != "ephemeral"
    # Whatever the class is by now, of records that were logged once all else is logged, too: their
    # removal, and who has them.
    return topic.is_on_disk


def _must_sync(state: State, event: ev.Event, events: list[ev.Event]) -> bool:
    if event.synced != "as_configured":
        return event.synced == "always"
    if getattr(event, "seqs_reserved", 0):
        return True
    topic = state.instances.get(event.topic)
    config = topic.config if topic is not None else _created_config(event, events)
    return config.durability == "fsync"


def _is_valid_unsynced(state: State, events: list[ev.Event]) -> bool:
    """Whether a transaction that was written but not synced has kept its promise."""
    # Topics whose creation was never synced do not exist, nor does what was written to them.
    known = all(event.topic in state.instances for event in events if event.has_topic)
    return known and not any(_must_sync(state, event, events) for event in events)


def _created_config(event: ev.Event, events: list[ev.Event]) -> TopicOptions:
    """Config of a topic that the same decision creates."""
    for other in events:
        if type(other) is ev.TopicCreated and other.topic == event.topic:
            return other.config
    raise AssertionError(f"an event of topic instance {event.topic}, which does not exist")


def decoded(
    frames: Iterable[Frame], directory: str, place: int, payloads: PayloadStore
) -> Iterator[LogEntry]:
    """The transactions in frames of one log.

    Args:
        frames: Of the log.
        directory: Where it is.
        place: Which log, 0 for jobs and 1 for leases.
        payloads: Where record data is.

    Raises:
        WalCorrupt: A frame holds what this version cannot read.
    """
    new = tuple.__new__
    for frame in frames:
        _, segment, payload, _, left_out = frame
        try:
            if left_out:
                begins, transaction = restored(frame, payloads)
            else:
                transaction = ev.decode(payload)
                begins = transaction.order
        except msgspec.MsgspecError as error:
            raise WalCorrupt(
                segment_path(directory, frame.segment),
                None,
                f"frame {frame.number} is whole but is not a transaction of this version: {error}; "
                "nothing was changed. Start the version that wrote it",
            ) from error
        yield new(LogEntry, (transaction.order, place, segment, transaction, frame, begins))


def _opening(jobs: Iterator[LogEntry]) -> list[LogEntry]:
    """The first frames of the jobs log, up to the end of the checkpoint it begins with."""
    opening: list[LogEntry] = []
    for entry in jobs:
        opening.append(entry)
        parts = [e for e in entry.transaction.events if type(e) is ev.Checkpointed]
        if (parts and not parts[-1].more) or (len(opening) == 1 and not parts):
            break
    return opening
