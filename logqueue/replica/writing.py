"""The writer of a replica: chunk after chunk, the heartbeat, the end.

Owns: what is committed, what to do when an answer is unknown, when a writer is fenced. Must not
know: how one becomes the writer (takeover.py), which segments are uploaded and what is garbage
(upkeep.py), threads, what waits for a commit.

Methods block. `ship` and `hand_over` are for one thread, `tidy` for the same or one other, `renew`
for the same or one other; attributes and queries may be read from every thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from logqueue.replica.chain import LOGS, ChainEnd, LogPlace, chain_start, extended
from logqueue.replica.chunk import FORMAT, Chunk, ChunkHeader, LogName, chunk_key, encode_chunk
from logqueue.replica.collecting import read_chunk_header
from logqueue.replica.frame_source import FrameSource
from logqueue.replica.manifest import (
    HEARTBEAT_KEY,
    ReplicaManifest,
    WriterHeartbeat,
    WriterInfo,
)
from logqueue.replica.object_store import (
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreError,
    StoreUnavailable,
)
from logqueue.replica.reading import ReplicaReader, ReplicaUnreadable
from logqueue.replica.takeover import Takeover, TakeoverLost, take_over
from logqueue.replica.upkeep import (
    ManifestLost,
    ReplicaUpkeep,
    UpkeepStats,
    facts_of,
    is_same_writer,
)
from logqueue.segments.history import HistoryBounds

CHUNK_BYTES_MAX = 8 << 20
CHUNKS_BEHIND_MAX = 1024
BYTES_BEHIND_MAX = 128 << 20
ROLL_EVERY_S = 300.0
"""New segments for the sake of chunks alone come that far apart. The manifest lists all segments of
the retention, and each server reads it every second: 7 days are then at most a few thousand."""

CHUNKS_MANY = 64 << 10
"""Behind so many chunks they come at once: a restore reads them one by one."""

READERS_S = 600.0
"""A restore of 100 GB reads its chunks after so long, and a standby may have slept."""

CANDIDATE_PAUSE_S = 1.0
"""How long a writer that finds another one in the manifest leaves the next number to it, each
time: the other must read the last chunk before it can take the number behind it."""

CANDIDATE_S = 30.0
"""After so long without a chunk of that other one, the writer begins an epoch of its own."""


class WriterFenced(Exception):
    """Another server has taken over: this one can commit nothing, for ever.

    Attributes:
        writer: The writer of now; None when it could not be read.
    """

    def __init__(self, writer: WriterInfo | None) -> None:
        super().__init__("another server has taken over the replica")
        self.writer = writer


@dataclass(slots=True)
class ShippingStats:
    """Counters since the takeover.

    Attributes:
        chunks: That were committed.
        chunk_bytes: Of these, in bytes.
        failures: Calls of `ship`, `tidy` and `renew` that the store has failed.
        ship_s: How long the last commit took from its first try on, in seconds.
    """

    chunks: int = 0
    chunk_bytes: int = 0
    failures: int = 0
    ship_s: float = 0.0


@dataclass(slots=True)
class _Pending:
    """A chunk that may be in the store, or not. Its bytes stay the same in every try.

    Attributes:
        data: The object.
        header: Of the chunk.
        end: Where the chain ends with it.
        as_of: When the frames in it were looked up, by our own clock.
        written: The last frame of each log then.
        kept_from: What the state needed then.
    """

    data: bytes
    header: ChunkHeader
    end: ChainEnd
    as_of: float
    written: Mapping[LogName, int]
    kept_from: Mapping[LogName, int]


class ReplicaWriter:
    """Writes one replica, from its takeover until it is fenced or hands over.

    Attributes:
        writer: Who this is.
        epoch: Of this writer.
        end: The last chunk that is committed, and where each log ends there: what a restart may
            begin with. It is replaced, never changed.
        chunk_bytes_max: Of the chunks that come, in bytes, unless one frame is larger.
        stats: Counters of chunks; those of segments are in `upkeep_stats`.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: FrameSource,
        takeover: Takeover,
        *,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        keep_ms: int = 0,
        history: HistoryBounds | None = None,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        readers_s: float = READERS_S,
    ) -> None:
        """Begin where the takeover ended.

        Args:
            store: Where the replica is.
            source: The logs. They hold all that the replica had at the takeover.
            takeover: As `take_over` returned it.
            clock_ms: The clock of the events, ms since the epoch.
            monotonic: A clock for durations, in seconds.
            keep_ms: How far back any moment can be restored, in ms; 0 for as far as there is.
            history: What is kept of segments that none of these moments needs; None for nothing.
            chunk_bytes_max: Of a chunk, in bytes, unless one frame is larger.
            readers_s: How long chunks stay that segments have replaced, so that those who are
                reading them need not begin again, in seconds.
        """
        manifest = takeover.stored.manifest
        self.writer = manifest.writer
        self.epoch = manifest.epoch
        self.end: ChainEnd = takeover.end
        self.stats = ShippingStats()
        self._store = store
        self._reader = ReplicaReader(store, tries=1)
        self._source = source
        self._monotonic = monotonic
        self.chunk_bytes_max = chunk_bytes_max
        self._log_ids = manifest.log_id, manifest.leases_id
        self._pending: _Pending | None = None
        self._kept_from: Mapping[LogName, int] = {}
        # All that was written before this moment is committed.
        self._complete_as_of = monotonic()
        self._fenced: WriterFenced | None = None
        self._beat = 0
        # Epoch of another writer that is in the manifest and has taken no number yet; since when.
        self._candidate: tuple[int, float] | None = None
        self._is_reclaiming = False
        self._committed_at = monotonic()
        self._upkeep = ReplicaUpkeep(
            store,
            source,
            self.writer,
            takeover.stored,
            clock_ms=clock_ms,
            monotonic=monotonic,
            keep_ms=keep_ms,
            history=history,
            readers_s=readers_s,
        )

    # -- queries ---------------------------------------------------------------------------------

    @property
    def committed(self) -> Mapping[LogName, int]:
        """Number of the last frame of each log that is in a committed chunk; 0 for none."""
        end = self.end
        return {log: end.frame(log) for log in LOGS}

    @property
    def manifest(self) -> ReplicaManifest:
        """The manifest as this writer has read or written it last."""
        return self._upkeep.stored.manifest

    @property
    def upkeep_stats(self) -> UpkeepStats:
        """Counters of segments, and of what was collected."""
        return self._upkeep.stats

    @property
    def listed(self) -> tuple[int, int]:
        """How many sealed segments the replica has, and their bytes."""
        return self._upkeep.listed

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes are written and not committed."""
        return self._source.waiting_bytes(self.end.places)

    @property
    def lag_ms(self) -> int:
        """For how long the oldest frame that is not committed may have been written, in ms."""
        as_of, end = self._complete_as_of, self.end
        if _reaches(end, self._source.written()):
            return 0
        return max(int((self._monotonic() - as_of) * 1000), 0)

    @property
    def chunks_behind(self) -> int:
        """Chunks that a restore has to read behind the segments."""
        return self.end.number + 1 - self.manifest.start_chunk

    def wanted_rolls(self) -> frozenset[LogName]:
        """The logs that should begin a new segment, so that chunks can go: there are too many
        behind the segments, and these logs keep them."""
        if not self._is_far_behind():
            return frozenset()
        listed = chain_start(self.manifest).places
        found: set[LogName] = set()
        for log, place in self.end.places.items():
            known = listed.get(log, LogPlace(0, 0, 0))
            # What is sealed is uploaded as soon as its successor has begun in a chunk.
            is_due = any(segment.id > known.segment for segment in self._source.sealed(log))
            if place.frame > known.frame and not is_due:
                found.add(log)
        return frozenset(found)

    def _is_far_behind(self) -> bool:
        chunks = self.chunks_behind
        is_time = self._monotonic() >= self._upkeep.reading_began_at + ROLL_EVERY_S
        if chunks > CHUNKS_MANY or (chunks > CHUNKS_BEHIND_MAX and is_time):
            return True
        return self._bytes_behind() > BYTES_BEHIND_MAX

    def _bytes_behind(self) -> int:
        """About how many bytes are in chunks and not in listed segments."""
        listed = chain_start(self.manifest).places
        return self._source.waiting_bytes(listed) - self._source.waiting_bytes(self.end.places)

    def may_drop_before(self, log: LogName) -> int:
        """Segments of a log with a lower id may be dropped locally: the replica lists them, and
        this writer has committed what is in them."""
        return min(self._upkeep.may_drop_before(log), self.committed_segment(log))

    def committed_segment(self, log: LogName) -> int:
        """The segment with the last frame of a log that is committed; 0 for none. Those before it
        are sealed, and the same for every later writer."""
        place = self.end.places.get(log)
        return place.segment if place is not None else 0

    # -- chunks ----------------------------------------------------------------------------------

    def ship(self) -> bool:
        """Commit what is written, as far as one chunk goes.

        When it raises `StoreUnavailable`, the outcome is not known; the next call finds it out.

        Returns:
            False when there was nothing to do.

        Raises:
            WriterFenced: Another server has taken over. Every later call raises it, too.
            StoreError: The store cannot be written.
            OSError: A segment file cannot be read.
        """
        self._require_unfenced()
        with self._counted():
            if self._pending is None and self._gives_way():
                return False
            return self._ship()

    def ship_all(self) -> None:
        """Commit all that is written by now, also while another server tries to take over.

        Raises:
            WriterFenced: It has.
            StoreError: The store cannot be written: call it again.
            OSError: A segment file cannot be read.
        """
        self._require_unfenced()
        with self._counted():
            while self._ship():
                pass

    def _ship(self) -> bool:
        if self._is_reclaiming:
            self._reclaim()
        self._pending = self._pending or self._next_chunk()
        if self._pending is None:
            return False
        self._commit(self._pending)
        self._pending = None
        return True

    def _next_chunk(self) -> _Pending | None:
        # In this order: what makes segments needless was written before the mark was set.
        as_of = self._monotonic()
        kept_from = self._source.kept_from()
        written = self._source.written()
        runs = self._source.runs_after(self.end.places, self.chunk_bytes_max)
        if not runs:
            self._complete(as_of, written, kept_from)
            return None
        header = ChunkHeader(
            FORMAT,
            *self._log_ids,
            self.epoch,
            self.writer.id,
            self.end.number + 1,
            self.end.digest,
            "frames",
            tuple(run for run, _ in runs),
        )
        data, digest = encode_chunk(header, [part for _, part in runs])
        end = extended(self.end, Chunk(header, (), digest))
        return _Pending(data, header, end, as_of, written, kept_from)

    def _commit(self, pending: _Pending) -> None:
        """Create a chunk. Whatever an earlier try has come to, creating it again tells."""
        key = chunk_key(pending.end.number)
        try:
            self._store.create(key, pending.data)
        except ObjectExists:
            if not self._is_ours(key, pending):
                self._fence()
        self._upkeep.facts[pending.end.number] = facts_of(pending.header)
        self.end = pending.end
        self._committed_at = self._monotonic()
        self._complete(pending.as_of, pending.written, pending.kept_from)
        self.stats.chunks += 1
        self.stats.chunk_bytes += len(pending.data)
        self.stats.ship_s = self._committed_at - pending.as_of

    def _is_ours(self, key: str, pending: _Pending) -> bool:
        """Whether the object of that key is this very chunk."""
        try:
            return self._store.get(key).data == pending.data
        except ObjectMissing as error:
            # Collected, so it is not a takeover: the next try tells.
            raise StoreUnavailable(f"{self._store.url}/{key} went away meanwhile") from error

    def _complete(
        self, as_of: float, written: Mapping[LogName, int], kept_from: Mapping[LogName, int]
    ) -> None:
        """Note what follows when all that was written at a moment is committed."""
        if _reaches(self.end, written):
            self._complete_as_of = as_of
            self._kept_from = kept_from

    # -- other writers ---------------------------------------------------------------------------

    def renew(self) -> None:
        """Renew the heartbeat, and find out whether another server has taken over.

        Raises:
            WriterFenced: It has.
            StoreError: The store cannot be read or written.
        """
        self._require_unfenced()
        with self._counted():
            # A zombie leaves no heartbeat, nor does a writer whose replica was removed.
            self._look_for_others()
            self._beat += 1
            beat = WriterHeartbeat(self.writer.id, self.epoch, self._beat, self.end.number)
            self._store.put(HEARTBEAT_KEY, msgspec.json.encode(beat))

    def _look_for_others(self) -> None:
        number, ours = self.end.number + 1, self.manifest
        current = self._reader.manifest().manifest
        if is_same_writer(current, ours):
            return
        header = read_chunk_header(self._store, number)
        if header is not None and header.writer != self.writer.id:
            self._fence()
        if self._candidate is None or self._candidate[0] != current.epoch:
            self._candidate = current.epoch, self._monotonic()

    def _gives_way(self) -> bool:
        """Whether the next number is left to a candidate for now. When it does not come, this
        writer begins an epoch of its own."""
        if self._candidate is None or self._is_reclaiming:
            return False
        now = self._monotonic()
        if now < self._candidate[1] + CANDIDATE_S:
            return now < self._committed_at + CANDIDATE_PAUSE_S
        self._is_reclaiming = True
        return False

    def _reclaim(self) -> None:
        """Take over from a candidate that has not come. Until that has succeeded, the next number
        may have a takeover chunk of this writer."""
        try:
            takeover = take_over(self._store, self.writer, self.end, self._require_own)
        except TakeoverLost:
            # There is another one, which is alive.
            self._fence()
        self.epoch = takeover.stored.manifest.epoch
        self.end = takeover.end
        self._upkeep.adopt(takeover.stored)
        self._candidate = None
        self._is_reclaiming = False

    def _require_own(self, chunks: Sequence[Chunk], end: ChainEnd) -> None:
        """Behind the last chunk that this writer knows, only its own takeovers may come."""
        for chunk in chunks:
            if (chunk.header.writer, chunk.header.kind) != (self.writer.id, "takeover"):
                self._fence()

    def _fence(self) -> NoReturn:
        writer: WriterInfo | None = None
        with suppress(StoreError, ReplicaUnreadable):
            writer = self._reader.manifest().manifest.writer
        self._fenced = WriterFenced(writer)
        raise self._fenced

    def _require_unfenced(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    # -- upkeep ----------------------------------------------------------------------------------

    def tidy(self) -> bool:
        """Upload sealed segments, and collect what they and the retention make needless. One step.

        Returns:
            Whether there is more to do at once.

        Raises:
            WriterFenced: Another server has taken over.
            ReplicaDamaged: An object is not what this writer knows of it.
            StoreError: The store cannot be read or written.
            OSError: A segment file cannot be read.
        """
        self._require_unfenced()
        with self._counted():
            try:
                return self._upkeep.step(self.end, self._kept_from)
            except ManifestLost:
                self._look_for_others()
        return False

    def hand_over(self) -> None:
        """Commit all that is written, and say in the manifest that this writer has ended. Nothing
        may be written to the logs meanwhile, and `tidy` must not run.

        Raises:
            WriterFenced: Another server has taken over.
            StoreError: The store cannot be read or written: call it again.
            OSError: A segment file cannot be read.
        """
        self.ship_all()
        # Another writer in the manifest reads all of it, and needs no word of that.
        with self._counted(), suppress(ManifestLost):
            self._upkeep.change(
                lambda manifest: msgspec.structs.replace(manifest, is_released=True)
            )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.stats.failures += 1
            raise


def _reaches(end: ChainEnd, written: Mapping[LogName, int]) -> bool:
    return all(end.frame(log) >= last for log, last in written.items())
