"""The table of operations: one row each, a module per noun.

Owns: everything that is said about an operation: method, path, scopes, body, command, reply,
refusals, examples, words. The router, the OpenAPI document, the tables of docs/protocol.md, the
matrix of tests and the endpoints of the clients are made from it. Must not know: what handlers do,
sockets, who reads it.
"""

from __future__ import annotations

from logqueue.api.operations import (
    background,
    dead_letters,
    job_batches,
    jobs,
    logs,
    probes,
    producers,
    queues,
    records,
    replica,
    routers,
    schedules,
    server,
    stats,
    streams,
    topics,
)
from logqueue.api.operations.row import Body, KeyPolicy, Kind, Operation

OPERATIONS: tuple[Operation, ...] = (
    *topics.OPERATIONS,
    *records.OPERATIONS,
    *queues.OPERATIONS,
    *jobs.OPERATIONS,
    *dead_letters.OPERATIONS,
    *producers.OPERATIONS,
    *routers.OPERATIONS,
    *schedules.OPERATIONS,
    *job_batches.OPERATIONS,
    *logs.OPERATIONS,
    *replica.OPERATIONS,
    *server.OPERATIONS,
    *streams.OPERATIONS,
    *background.OPERATIONS,
    *stats.OPERATIONS,
    *probes.OPERATIONS,
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}

GROUPS = {
    "topics": "Named, ordered collections of records. A queue is a topic with `type: queue`.",
    "records": "Writing, reading and deleting records.",
    "queues": "Leasing jobs and settling them. Delivery is at least once.",
    "jobs": "Reading and administering jobs, without leasing them.",
    "producers": "Transactional appends: chunks that become visible all at once, exactly once.",
    "replica": "The copy of the logs in object storage, and the servers that share it.",
    "logs": "The logs themselves, for bulk readers and archives.",
    "streams": "Following topics by server-sent events or WebSocket.",
    "routers": "Copying every new record of one topic to another.",
    "schedules": "Writing records at given times: cron texts in a time zone, or intervals.",
    "batches": "Counting jobs together, and writing a record when all of them have ended.",
    "operations": "For supervisors, dashboards and tools.",
}

__all__ = ["BY_NAME", "GROUPS", "OPERATIONS", "Body", "KeyPolicy", "Kind", "Operation"]
