"""The tables of the pipeline: names, columns, types, and what each column means.

Owns: which tables there are; the schemas for Spark and for Arrow are made from here, and so are the
tables in the docs. Must not know: how a table is computed.

All times come from the log (UTC); durations are milliseconds. Whatever is "open" is open as of the
end of the range that was read, which is stored beside each table.
"""

from __future__ import annotations

from logqueue.pipeline.lifecycle.report_tables import REPORTS
from logqueue.pipeline.lifecycle.simulation_tables import SIMULATED
from logqueue.pipeline.lifecycle.table_kind import STEP, TOPIC, Column, TableKind, columns

__all__ = [
    "ALL",
    "ATTEMPTS",
    "AUDIT_FINDINGS",
    "BY_NAME",
    "JOBS",
    "LEASE_EVENTS",
    "RECORDS",
    "REPORTS",
    "Column",
    "TableKind",
]

LOG_ID = "log_id STRING: identity of the topic's log; a topic that is created again has another one"

RECORDS = TableKind(
    "records",
    "archive",
    "A record, each once, whatever became of it.",
    columns(
        TOPIC,
        "seq BIGINT: number of the record in its topic",
        "ts TIMESTAMP: when it was appended",
        "tag STRING: its tag",
        "key STRING: its `$key`",
        "node STRING: who appended it",
        "meta STRING: its meta, as JSON text",
        "data STRING: its data, as JSON text; binary with `data=binary`, null with `data=none`",
        "size INT: bytes of data and meta",
        "not_before TIMESTAMP: when it may be claimed first; null for at once",
        "segment STRING: the log segment it was read from",
        LOG_ID,
        "priority INT: its priority, 1 to 9; null without one",
        'group STRING: its group; in SQL on DuckDB `"group"`, in quotes',
    ),
    ("topic", "seq"),
)

LEASE_EVENTS = TableKind(
    "lease_events",
    "archive",
    "Something that happened to a job after it was appended.",
    columns(
        TOPIC,
        "lseq BIGINT: place among all decisions of the server",
        "ts TIMESTAMP: when it happened",
        "event STRING: what happened",
        "job_seq BIGINT: the job; with `trimmed`, the floor: this job and all before it",
        "lease_id STRING: the lease, with `claimed` only",
        "worker STRING: the node that did it",
        "deadline TIMESTAMP: when the lease runs out, with `claimed` and `extended`",
        "ready_at TIMESTAMP: when the job may be claimed again, if later than `ts`",
        "reason STRING: more about the event, such as `nack`, `disconnect`, `hand_back`, `ttl`",
        "detail STRING: the error, as reported by the worker",
        LOG_ID,
    ),
    ("topic", "lseq"),
)

ATTEMPTS = TableKind(
    "attempts",
    "lifecycle",
    "A lease of a job: from a claim to whatever ended it.",
    columns(
        TOPIC,
        "job_seq BIGINT: the job",
        "lease_id STRING: the lease",
        "attempt INT: which delivery of the job this is, as the server counts them",
        "worker STRING: the node that held it",
        "tag STRING: the job's tag",
        "key STRING: the job's `$key`",
        "ready_at TIMESTAMP: since when the job could be claimed",
        "claimed_at TIMESTAMP: when it was claimed",
        "ended_at TIMESTAMP: when the lease ended; null while it is open",
        "outcome STRING: `acked`, `released`, `rejected`, `dead_lettered`, `held`, `dropped`, "
        "`superseded`, `cancelled`, `expired` (its deadline passed), `lost` (the log does not say "
        "how it ended, but it had by then), or `open`",
        "reason STRING: why, where the log says so (`nack`, `disconnect`, `hand_back`, …)",
        "error STRING: what the worker said went wrong",
        "extensions INT: how often the lease was extended",
        "deadline_last TIMESTAMP: the last deadline it had",
        "wait_ms BIGINT: from `ready_at` to `claimed_at`",
        "run_ms BIGINT: from `claimed_at` to `ended_at`; null while it is open",
        "overrun_ms BIGINT: how much longer it was held than it was claimed for, by extending it; "
        "null while it is open",
        "date DATE: day the job was appended; the table is partitioned by it",
        LOG_ID,
    ),
    ("topic", "job_seq", "claimed_at"),
)

JOBS = TableKind(
    "jobs",
    "lifecycle",
    "A job of a queue, with what became of it.",
    columns(
        TOPIC,
        "seq BIGINT: the job",
        "tag STRING: its tag",
        "key STRING: its `$key`",
        "appended_at TIMESTAMP: when it was appended; null when its record is not in the range",
        "ready_at TIMESTAMP: when it could be claimed first",
        "first_claim_at TIMESTAMP: when it was claimed first",
        "finished_at TIMESTAMP: when it ended; null while it has not",
        "state STRING: `ready`, `delayed`, `in_flight`, `held`, or how it ended: `acked`, "
        "`rejected`, `dropped`, `expired` (past its time to live), `superseded`, `cancelled`, "
        "`dead_lettered`, `deleted`, `redriven`",
        "attempts INT: how often it was claimed",
        "deliveries INT: the server's count of deliveries: without released ones, and "
        "reset to 0 by a hold",
        "wait_ms BIGINT: from `ready_at` to `first_claim_at`",
        "e2e_ms BIGINT: from `ready_at` to `finished_at`",
        "run_ms_total BIGINT: time under leases that have ended",
        "wasted_ms BIGINT: the part of it that did not end in an ack",
        "last_reason STRING: how the last lease without an ack ended: its reason, or its outcome",
        "last_error STRING: the last thing a worker said went wrong",
        "last_worker STRING: who held it last",
        "variant STRING: what happened to it, as in `claimed>expired>claimed>acked`; `waiting` for "
        "nothing yet",
        f"steps ARRAY<{STEP}>: the same with times, and the state of the job after each step; with "
        "`appended` first, and `ready` where a delay ended; of more than 1000, the first 999 and "
        "the last (`variant` counts all)",
        "date DATE: day it was appended; the table is partitioned by it",
        LOG_ID,
    ),
    ("topic", "seq"),
)

AUDIT_FINDINGS = TableKind(
    "audit_findings",
    "audit",
    "Something in the history that should not be.",
    columns(
        "audit_id STRING: the run that found it",
        "rule STRING: the rule it breaks",
        "severity STRING: `error`, `warning`, or `info` for what cannot be checked",
        TOPIC,
        "first_seq BIGINT: first record, job or decision it is about",
        "last_seq BIGINT: the last one",
        "detail STRING: what is wrong, as a sentence",
        "evidence STRING: what it was seen by, as JSON text",
    ),
    ("rule", "topic", "first_seq"),
)

ALL = (RECORDS, LEASE_EVENTS, ATTEMPTS, JOBS, *REPORTS, *SIMULATED, AUDIT_FINDINGS)

BY_NAME = {kind.name: kind for kind in ALL}
