"""What the server says: the shape of every reply, of every item in one, and of every stream frame.

Owns: names, types and presence of fields, as they stand on the wire. Must not know: how a reply is
computed, sent or asked for. Clients decode into these; descriptions of the API are derived from
them. A field without a default is always sent. A field with a default may be left out, be it
because there is nothing to say or because the server knows no such thing. Unknown fields are
ignored, so that an older client reads a newer server.

Times (`ts`, `deadline`, `not_before`, names in `_ts` and `_at`) are milliseconds since the Unix
epoch by the server's clock; durations end in `_ms`.
"""

from __future__ import annotations

from logqueue.shapes.operations import (
    Health,
    Ready,
)
from logqueue.shapes.producers import (
    Committed,
    CommittedRange,
    Producer,
    Staged,
    StagedEpochs,
)
from logqueue.shapes.queues import (
    Acked,
    Cancelled,
    Claimed,
    Extended,
    Job,
    JobEvent,
    JobHistory,
    JobPage,
    JobView,
    Nacked,
    Purged,
    Redriven,
    Rejected,
    Released,
    WorkerList,
    WorkerView,
)
from logqueue.shapes.records import (
    Appended,
    ErrorBody,
    ErrorReply,
    Page,
    Record,
    RecordsDeleted,
    Tombstone,
    WriteResult,
)
from logqueue.shapes.segments import (
    BorrowedRecords,
    Segment,
    SegmentPage,
    SegmentRouterFacts,
    SegmentTopic,
    SegmentTopicFacts,
    SeqAt,
)
from logqueue.shapes.streams import (
    CaughtUp,
    Gap,
    JobFrame,
    Records,
    StreamError,
    TopicDeleted,
    WatchedTopic,
    WatchSession,
)
from logqueue.shapes.topics import (
    ClaimRate,
    Paused,
    QueueCounters,
    RetryBackoff,
    Router,
    RouterDropped,
    RouterEntry,
    RouterPage,
    TopicConfig,
    TopicDropped,
    TopicEntry,
    TopicPage,
    TopicPut,
    TopicState,
)
from logqueue.shapes.values import (
    DeadLetterReason,
    Durability,
    EmptyReason,
    GapReason,
    Guarantee,
    JobState,
    Performance,
    TopicType,
)

__all__ = [
    "Acked",
    "Appended",
    "BorrowedRecords",
    "Cancelled",
    "CaughtUp",
    "ClaimRate",
    "Claimed",
    "Committed",
    "CommittedRange",
    "DeadLetterReason",
    "Durability",
    "EmptyReason",
    "ErrorBody",
    "ErrorReply",
    "Extended",
    "Gap",
    "GapReason",
    "Guarantee",
    "Health",
    "Job",
    "JobEvent",
    "JobFrame",
    "JobHistory",
    "JobPage",
    "JobState",
    "JobView",
    "Nacked",
    "Page",
    "Paused",
    "Performance",
    "Producer",
    "Purged",
    "QueueCounters",
    "Ready",
    "Record",
    "Records",
    "RecordsDeleted",
    "Redriven",
    "Rejected",
    "Released",
    "RetryBackoff",
    "Router",
    "RouterDropped",
    "RouterEntry",
    "RouterPage",
    "Segment",
    "SegmentPage",
    "SegmentRouterFacts",
    "SegmentTopic",
    "SegmentTopicFacts",
    "SeqAt",
    "Staged",
    "StagedEpochs",
    "StreamError",
    "Tombstone",
    "TopicConfig",
    "TopicDeleted",
    "TopicDropped",
    "TopicEntry",
    "TopicPage",
    "TopicPut",
    "TopicState",
    "TopicType",
    "WatchSession",
    "WatchedTopic",
    "WorkerList",
    "WorkerView",
    "WriteResult",
]
