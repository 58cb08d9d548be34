"""The words that several shapes use. See the package."""

from __future__ import annotations

from typing import Literal

Performance = dict[str, float]
"""What a call cost the server: `server_total_ms` and, where they apply, its parts."""

TopicType = Literal["log", "queue"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Guarantee = Literal["at_least_once", "exactly_once"]
GapReason = Literal["cap", "ttl", "mixed", "recreated", "source_trim", "from_seq_too_old"]
JobAction = Literal["retry", "delay", "hold", "release", "cancel", "return", "prioritize"]
JobState = Literal["ready", "delayed", "in_flight", "held"]
JobEnding = Literal[
    "acked",
    "rejected",
    "dropped",
    "expired",
    "superseded",
    "cancelled",
    "dead_lettered",
    "redriven",
    "deleted",
    "done",
    "dead",
    "gone",
]
"""How a job ended; "gone" where that is not known. Queues that keep results say "done" and
"dead"."""
WhyCode = Literal[
    "ready",
    "behind",
    "ready_no_worker",
    "paused",
    "rate_limited",
    "max_in_flight",
    "group_busy",
    "delayed",
    "backoff",
    "exhausted",
    "expiring",
    "superseded",
    "in_flight",
    "lease_expired",
    "held",
    "standby",
    "ended",
]
DeadLetterReason = Literal["max_deliveries", "rejected", "expired"]
EmptyReason = Literal[
    "empty", "delayed", "in_flight", "paused", "rate_limited", "max_in_flight", "group_busy"
]
