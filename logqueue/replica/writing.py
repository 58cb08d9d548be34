"""The writer of a replica: chunk after chunk, segments, the manifest, the heartbeat.

Owns: what is committed, what to do when an answer is unknown, when a writer is fenced. Must not
know: how one becomes the writer (takeover.py), threads, what waits for a commit.

Methods block. `ship` and `hand_over` are for one thread, `tidy` for the same or one other, `renew`
for any one; the attributes and queries may be read from every thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from logqueue.replica.chain import ChainEnd
from logqueue.replica.chunk import LogName
from logqueue.replica.frame_source import FrameSource
from logqueue.replica.manifest import WriterInfo
from logqueue.replica.object_store import ObjectStore
from logqueue.replica.takeover import Takeover

CHUNK_BYTES_MAX = 8 << 20
CHUNKS_BEHIND_MAX = 1024
BYTES_BEHIND_MAX = 128 << 20
READERS_S = 60.0


class WriterFenced(Exception):
    """Another server has taken over: this one can commit nothing, for ever.

    Attributes:
        writer: The writer of now; None when it could not be read.
    """

    def __init__(self, writer: WriterInfo | None) -> None:
        super().__init__("another server has taken over the replica")
        self.writer = writer


@dataclass(slots=True)
class ReplicaStats:
    """Counters since the takeover.

    Attributes:
        chunks: That were committed.
        chunk_bytes: Of these, in bytes.
        segments: Sealed segments that were uploaded.
        segment_bytes: Of these, in bytes.
        collected: Objects that were deleted.
        failures: Calls of `ship`, `tidy` and `renew` that the store has failed.
        ship_s: How long the last commit took, in seconds, from its first try on.
    """

    chunks: int = 0
    chunk_bytes: int = 0
    segments: int = 0
    segment_bytes: int = 0
    collected: int = 0
    failures: int = 0
    ship_s: float = 0.0


class ReplicaWriter:
    """Writes one replica, from its takeover until it is fenced or hands over.

    Attributes:
        writer: Who this is.
        epoch: Of this writer.
        end: The last chunk that is committed, and where each log ends there: what a restart may
            begin with. It is replaced, never changed.
        stats: Counters.
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
            chunk_bytes_max: Of a chunk, in bytes, unless one frame is larger.
            readers_s: How long chunks stay that segments have replaced, so that those who are
                reading them need not begin again, in seconds.
        """
        self.writer = takeover.stored.manifest.writer
        self.epoch = takeover.stored.manifest.epoch
        self.end: ChainEnd = takeover.end
        self.stats = ReplicaStats()

    # -- queries ---------------------------------------------------------------------------------

    @property
    def committed(self) -> Mapping[LogName, int]:
        """Number of the last frame of each log that is in a committed chunk; 0 for none."""
        raise NotImplementedError

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes are written and not committed."""
        raise NotImplementedError

    @property
    def lag_ms(self) -> int:
        """For how long the oldest frame that is not committed may have been written, in ms."""
        raise NotImplementedError

    @property
    def chunks_behind(self) -> int:
        """Chunks that a restore has to read behind the segments."""
        raise NotImplementedError

    def wanted_rolls(self) -> frozenset[LogName]:
        """The logs that should begin a new segment, so that chunks can go: there are too many."""
        raise NotImplementedError

    def may_drop_before(self, log: LogName) -> int:
        """Segments of a log with a lower id may be dropped locally: the replica lists them."""
        raise NotImplementedError

    # -- work ------------------------------------------------------------------------------------

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
        raise NotImplementedError

    def renew(self) -> None:
        """Renew the heartbeat, and find out whether another server has taken over.

        Raises:
            WriterFenced: It has.
            StoreError: The store cannot be read or written.
        """
        raise NotImplementedError

    def tidy(self) -> bool:
        """Upload sealed segments, and collect what they and the retention make needless. One step.

        Returns:
            Whether there is more to do at once.

        Raises:
            WriterFenced: Another server has taken over.
            StoreError: The store cannot be read or written.
            OSError: A segment file cannot be read.
        """
        raise NotImplementedError

    def hand_over(self) -> None:
        """Commit all that is written, and say in the manifest that this writer has ended. Nothing
        may be written to the logs meanwhile.

        Raises:
            WriterFenced: Another server has taken over.
            StoreError: The store cannot be read or written: call it again.
            OSError: A segment file cannot be read.
        """
        raise NotImplementedError
