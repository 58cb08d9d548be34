"""One example of every refusal, and how refusals are described.

Owns: the examples. Codes, statuses and envelopes are those of `logqueue.errors` and `replies`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from logqueue import errors
from logqueue.api import replies
from logqueue.errors import LogqueueError
from logqueue.model import limits

EXAMPLES: tuple[LogqueueError, ...] = (
    errors.InvalidRequest("invalid request body: `max` must be an integer, got a string"),
    errors.BatchTooLarge(
        "1200 seqs in one call; send at most 1000",
        {"seqs": 1200, "max": limits.SEQS_PER_CALL_MAX},
    ),
    errors.RecordTooLarge(
        "records[0] has 1048600 bytes of data and meta; at most 1048576 are allowed"
    ),
    errors.Unauthorized("missing or unknown API key: send `Authorization: Bearer <key>`"),
    errors.Forbidden("this key may not access topics outside its prefixes", {"topic": "orders"}),
    errors.NotFound("there is no such route; the API lives below /v0"),
    errors.TopicNotFound.named("transcode"),
    errors.RouterNotFound.named("audit"),
    errors.ScheduleNotFound.named("nightly"),
    errors.SegmentNotFound.named("jobs-1"),
    errors.MethodNotAllowed("this path takes GET, PUT, DELETE, POST"),
    errors.NotAcceptable("this route answers with an event stream: accept text/event-stream"),
    errors.RouterCycle(
        "the router would close a loop: b -> a -> b; pass `allow_cycle` to allow it",
        {"cycle": ["b", "a", "b"]},
    ),
    errors.TopicExistsIncompatible(
        "topic 'transcode' is a queue and cannot become a log",
        {"topic": "transcode", "existing_type": "queue", "requested_type": "log"},
    ),
    errors.TopicNotEmpty(
        "topic 'transcode' still holds 2 records", {"topic": "transcode", "count": 2}
    ),
    errors.NotAQueue.named("orders"),
    errors.ConfigChanged(
        "the config of topic 'transcode' has changed since it was read: look at the present "
        "config, and send the change again with its version",
        {"topic": "transcode", "config_version": "5d8f0c41b6a2e973", "config": {"type": "queue"}},
    ),
    errors.KeyConflict("a waiting job has this key", {"key": "user-17"}),
    errors.JobInFlight(
        "job 7 of 'transcode' is leased to 'api-fra-1': wait until it is given back, or end the "
        "lease first",
        {"topic": "transcode", "seq": 7, "deadline": 1795211132582},
    ),
    errors.EpochConflict("epoch 9 of producer 'etl' does not follow 7"),
    errors.PayloadTooLarge("the body is over the limit of 67108864 bytes"),
    errors.UnsupportedMediaType("send the body as JSON: `content-type: application/json`"),
    errors.RangeNotSatisfiable(
        "the range begins behind the end: there are 8192 bytes", {"bytes": 8192}
    ),
    errors.BatchNotFound.named("import-17"),
    errors.BatchExists.named("import-17"),
    errors.BatchClosed.named("import-17"),
    errors.BatchNotEmpty.named("import-17", 2),
    errors.TopicFull(
        "topic 'transcode' is full",
        {
            "topic": "transcode",
            "cap_records": 3,
            "cap_bytes": 0,
            "head_seq": 3,
            "earliest_seq": 1,
        },
    ),
    errors.Throttled("the server has its maximum of topics", {"limit": "max_topics", "max": 10}),
    errors.Internal("the server failed on this request; its log has the details"),
    errors.StorageReadOnly.because("sync: [Errno 5] Input/output error"),
    errors.StorageFull.because("[Errno 28] No space left on device"),
    errors.StorageUnreadable.because("jobs-7", 8192, "[Errno 5] Input/output error"),
    errors.NotReady(
        "the log is being replayed (40%); try again in a moment", {"replay_progress": 0.4}
    ),
    errors.NotWriter.because("this server is a standby", "http://10.0.0.1:4000"),
    errors.Fenced.because("another server has taken over this log", "http://10.0.0.2:4000"),
    errors.ReplicaUnavailable(
        "the replica has not confirmed this call within 10 s; it may or may not be stored: repeat "
        "it with the same idempotency key"
    ),
    errors.ShuttingDown("the server is shutting down; connect again in a moment"),
)

_RETRY_AFTER = {
    "description": "Seconds after which to try again.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}


def examples() -> dict[str, Any]:
    """The envelopes, by class."""
    return {
        type(error).__name__: {
            "summary": error.code,
            "value": msgspec.json.decode(replies.encode_error(error)),
        }
        for error in EXAMPLES
    }


def by_status(kinds: Iterable[type[LogqueueError]]) -> dict[int, list[type[LogqueueError]]]:
    """Classes without repeats, grouped by status, in rising order of it."""
    grouped: dict[int, list[type[LogqueueError]]] = {}
    for kind in sorted(dict.fromkeys(kinds), key=lambda kind: kind.status):
        grouped.setdefault(kind.status, []).append(kind)
    return grouped


def response(kinds: list[type[LogqueueError]]) -> dict[str, Any]:
    """A reply that says one of some refusals, all of one status."""
    codes = list(dict.fromkeys(kind.code for kind in kinds))
    reply: dict[str, Any] = {
        "description": " / ".join(f"`{kind.code}`: {_first_line(kind)}" for kind in kinds),
        "content": {
            "application/json": {
                "schema": {
                    "allOf": [
                        {"$ref": "#/components/schemas/ErrorReply"},
                        {"properties": {"error": {"properties": {"code": {"enum": codes}}}}},
                    ]
                },
                "examples": {
                    kind.__name__: {"$ref": f"#/components/examples/{kind.__name__}"}
                    for kind in kinds
                },
            }
        },
    }
    if all(kind.retry_after_s is not None for kind in kinds):
        reply["headers"] = {"Retry-After": _RETRY_AFTER}
    return reply


def _first_line(kind: type[LogqueueError]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]
