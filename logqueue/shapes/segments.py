"""Shapes of the segments of the logs. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.values import Performance


class SeqAt(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to asking where the records from a time on begin.

    Attributes:
        log_id: Of the topic as it is now; another one after it was deleted and recreated.
        seq: The first record accepted at `ts` or later; one above the head when there is none.
        previous_seq: The record before it, 0 when there is none; those between were removed.
    """

    topic: str
    log_id: str
    ts: int
    seq: int
    previous_seq: int
    earliest_seq: int
    head_seq: int
    performance: Performance = {}


class SegmentTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment holds of one topic.

    Attributes:
        topic: Number of the topic; one that is deleted and recreated gets another.
        name: Of the topic; empty when no segment at hand tells.
        log_id: The one of its state.
        ranges: Seqs appended in the segment: first and last, inclusive, ascending.
        rows, bytes: Records in these, and their data and meta.
        first_ts, last_ts: When they were appended; 0 without any.
        moved: Seqs rewritten in the segment, since the one that had them was dropped. They count
            only where no earlier segment has them. Seqs in between may be gone.
        moved_rows, moved_bytes, moved_first_ts, moved_last_ts: The same of these.
        events: What the segment tells of the lives of its jobs, in rows.
        events_first_ts, events_last_ts: When that was; 0 without any, or where it is not known.
        floors: How many of these rows are of the kind "trimmed".
    """

    topic: int
    name: str
    log_id: str
    ranges: list[tuple[int, int]] = []
    rows: int = 0
    bytes: int = 0
    first_ts: int = 0
    last_ts: int = 0
    moved: list[tuple[int, int]] = []
    moved_rows: int = 0
    moved_bytes: int = 0
    moved_first_ts: int = 0
    moved_last_ts: int = 0
    events: int = 0
    events_first_ts: int = 0
    events_last_ts: int = 0
    floors: int = 0


class SegmentTopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment tells of a topic itself.

    Attributes:
        cap_floor, ttl_floor: Highest seq gone by caps and by TTL; -1 when it does not tell.
        head: Highest seq as the latest checkpoint tells it; -1 when there was none.
    """

    topic: int
    name: str = ""
    is_queue: bool = False
    cap_floor: int = -1
    ttl_floor: int = -1
    is_dropped: bool = False
    head: int = -1


class SegmentRouterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment tells of a router. `source` and `dest` are numbers of topics."""

    router: int
    name: str
    source: int
    dest: int
    options: Any


class BorrowedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a segment whose content is in earlier ones.

    Attributes:
        topic: Number of the topic they are of.
        first, count: Their seqs, which follow on.
        source, source_first: The topic and the first seq of the records that they copy.
        chunk: Or the staged chunk that they are: producer, epoch, partition, attempt, number.
    """

    topic: int
    first: int
    count: int
    source: int = 0
    source_first: int = 0
    chunk: tuple[str, int, int, str, int] | None = None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a log.

    Attributes:
        id: What to fetch it by.
        sealed: It never changes again. The others grow at their end.
        archived: It is in the archive, and stays when the log drops it.
        bytes: Up to where it is durable, and known to be whole.
        crc32: Of these bytes.
        first_frame, last_frame: Numbers of frames, which count up through a whole log.
        first_order, last_order: Orders of its transactions, which count up through both logs; 0
            when it has none.
        first_at, last_at: Lowest and highest time of what it tells.
        learned, routers: What it tells of topics and routers themselves.
        borrowed: Records whose content is in earlier segments.
        staged: Chunks that were staged but not committed here.
        damage: What is wrong behind `bytes`; None when nothing is.
    """

    id: str
    sealed: bool
    archived: bool
    version: int
    log: Literal["jobs", "leases"]
    log_id: str
    identity: str
    segment: int
    first_frame: int
    last_frame: int
    bytes: int
    crc32: int
    first_order: int
    last_order: int
    first_at: int
    last_at: int
    topics: list[SegmentTopic] = []
    learned: list[SegmentTopicFacts] = []
    routers: list[SegmentRouterFacts] = []
    borrowed: list[BorrowedRecords] = []
    staged: list[tuple[str, int, int, str, int]] = []
    damage: str | None = None


class SegmentPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of segments.

    Attributes:
        log_id: Identity of the jobs log, which is that of the server's data.
        order: Every transaction of a smaller order is in the segments, as of the first page.
        next_cursor: Only when there is more.
    """

    log: Literal["jobs", "leases"]
    log_id: str
    order: int
    segments: list[Segment]
    next_cursor: str | None = None
    performance: Performance = {}
