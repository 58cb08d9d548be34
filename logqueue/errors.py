"""All errors of the API, one class per wire code.

Owns: the code, the HTTP status, whether the same call may be tried again, and whether it is certain
that nothing happened. The server encodes replies from these classes, the client decodes back into
the same classes, and retry policies read the flags. Must not know: HTTP framing, topics, logs.

    LogqueueError
    ├── InvalidRequest          400 invalid_request
    ├── BatchTooLarge           400 batch_too_large
    ├── RecordTooLarge          400 record_too_large
    ├── Unauthorized            401 unauthorized
    ├── Forbidden               403 forbidden
    ├── NotFound                404 not_found
    │   ├── TopicNotFound       404 topic_not_found
    │   ├── RouterNotFound      404 router_not_found
    │   ├── ScheduleNotFound    404 schedule_not_found
    │   ├── BatchNotFound       404 batch_not_found
    │   └── SegmentNotFound     404 segment_not_found
    ├── MethodNotAllowed        405 method_not_allowed
    ├── NotAcceptable           406 not_acceptable
    ├── RouterCycle             409 router_cycle
    ├── TopicExistsIncompatible 409 topic_exists_incompatible
    ├── TopicNotEmpty           409 topic_not_empty
    ├── NotAQueue               409 not_a_queue
    ├── KeyConflict             409 key_conflict
    ├── JobInFlight             409 job_in_flight
    ├── EpochConflict           409 epoch_conflict
    ├── BatchExists             409 batch_exists
    ├── BatchClosed             409 batch_closed
    ├── BatchNotEmpty           409 batch_not_empty
    ├── PayloadTooLarge         413 payload_too_large
    ├── UnsupportedMediaType    415 unsupported_media_type
    ├── RangeNotSatisfiable     416 range_not_satisfiable
    ├── TopicFull               422 topic_full
    ├── Throttled               429 throttled
    ├── Internal                500 internal
    │   ├── StorageReadOnly     500 internal, detail.reason = storage_read_only
    │   ├── StorageFull         500 internal, detail.reason = storage_full
    │   └── StorageUnreadable   500 internal, detail.reason = storage_unreadable
    ├── NotReady                503 not_ready
    ├── NotWriter               503 not_writer
    │   └── Fenced              503 fenced
    ├── ReplicaUnavailable      503 replica_unavailable
    └── ShuttingDown            503 shutting_down
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

HIDDEN = "<hidden>"
"""Replaces a name that the caller may not read. It is not a valid topic or router name."""


def quoted(text: str) -> str:
    """Text as messages quote it: in single quotes, characters that cannot be printed as escapes."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return f"'{text}'"


class LogqueueError(Exception):
    """A refusal with a wire code.

    Attributes:
        message: What is wrong and what to do, for people. Never empty.
        detail: Structured details for programs, or None when the code says it all.
        names: Topics and routers in message and detail that the caller has not named: not every
            caller may read them, see `hiding`. The message quotes them as `repr` does.
        status: Its HTTP status; 0 for failures that have no reply.
        retry_after_s: After how many seconds to try again, as the reply says or the class knows.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    had_no_effect: ClassVar[bool] = True
    retry_after_s: int | None = None

    def __init__(
        self,
        message: str,
        detail: Mapping[str, Any] | None = None,
        *,
        names: Sequence[str] = (),
    ) -> None:
        assert message, "a refusal must say what was wrong"
        super().__init__(message)
        self.message = message
        self.detail = dict(detail) if detail is not None else None
        self.names = names

    def hiding(self, allows: Callable[[str], bool]) -> Self:
        """This refusal for a caller who may not read all names: `HIDDEN` replaces the others."""
        hidden = [name for name in self.names if not allows(name)]
        if not hidden:
            return self
        message = self.message
        for name in hidden:
            message = message.replace(quoted(name), quoted(HIDDEN))
        shown = type(self)(message, _without(self.detail, hidden))
        shown.retry_after_s = self.retry_after_s
        return shown


def _without(value: Any, hidden: Sequence[str]) -> Any:
    """A detail with `HIDDEN` in the place of some names."""
    if isinstance(value, dict):
        return {member: _without(inner, hidden) for member, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, hidden) for inner in value]
    return HIDDEN if isinstance(value, str) and value in hidden else value


class InvalidRequest(LogqueueError):
    """The request cannot be understood: syntax, type, name, bound or a missing field."""

    code = "invalid_request"
    status = 400


class BatchTooLarge(LogqueueError):
    """More records or seqs in one call than the bound allows."""

    code = "batch_too_large"
    status = 400


class RecordTooLarge(LogqueueError):
    """A record above the size bound, or a batch that could never fit its topic's whole cap."""

    code = "record_too_large"
    status = 400


class Unauthorized(LogqueueError):
    """No API key, or an unknown one."""

    code = "unauthorized"
    status = 401


class Forbidden(LogqueueError):
    """A valid key without the scope or the name prefix that the call needs."""

    code = "forbidden"
    status = 403


class NotFound(LogqueueError):
    """An unknown route, job or watch session; jobs that are finished and sessions that have expired
    count as unknown."""

    code = "not_found"
    status = 404


class TopicNotFound(NotFound):
    """The topic does not exist (names that could never exist included)."""

    code = "topic_not_found"

    @classmethod
    def named(cls, topic: str, *, by_writing: bool = True) -> TopicNotFound:
        """The usual message and detail for an absent topic.

        Args:
            topic: Its name.
            by_writing: Whether a write would create it.
        """
        advice = "create it with PUT /v0/topics/<topic>"
        if by_writing:
            advice += " or by writing a record to it"
        else:
            advice += ', or write with `"create": true` (this server runs with --auto-create off)'
        return cls(f"topic {quoted(topic)} does not exist; {advice}", {"topic": topic})


class RouterNotFound(NotFound):
    """The router does not exist."""

    code = "router_not_found"

    @classmethod
    def named(cls, router: str) -> RouterNotFound:
        """The usual message and detail for an absent router."""
        return cls(
            f"router {quoted(router)} does not exist; create it with PUT /v0/routers/<router>",
            {"router": router},
        )


class ScheduleNotFound(NotFound):
    """The schedule does not exist."""

    code = "schedule_not_found"

    @classmethod
    def named(cls, schedule: str) -> ScheduleNotFound:
        """The usual message and detail for an absent schedule."""
        return cls(
            f"schedule {quoted(schedule)} does not exist; create it with PUT "
            "/v0/schedules/<schedule>",
            {"schedule": schedule},
        )


class BatchNotFound(NotFound):
    """The batch does not exist."""

    code = "batch_not_found"

    @classmethod
    def named(cls, batch: str) -> BatchNotFound:
        """The usual message and detail for an absent batch."""
        return cls(
            f"batch {quoted(batch)} does not exist: it was never opened, was deleted, or ended "
            "over a day ago; open it with POST /v0/batches",
            {"batch": batch},
        )


class SegmentNotFound(NotFound):
    """The log segment does not exist, or was dropped."""

    code = "segment_not_found"

    @classmethod
    def named(cls, segment: str) -> SegmentNotFound:
        """The usual message and detail for an absent segment."""
        return cls(
            f"log segment {quoted(segment)} does not exist, or was dropped: list the segments with "
            "GET /v0/log/segments; dropped segments are kept in a log archive only "
            "(LOGQUEUE_ARCHIVE_DIR), for as long as its bounds allow",
            {"segment": segment},
        )


class MethodNotAllowed(LogqueueError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    status = 405


class NotAcceptable(LogqueueError):
    """A stream route asked for with an Accept header that excludes event streams."""

    code = "not_acceptable"
    status = 406


class RouterCycle(LogqueueError):
    """The router would close a loop."""

    code = "router_cycle"
    status = 409


class TopicExistsIncompatible(LogqueueError):
    """A topic or router with this name exists and cannot be changed to what was requested."""

    code = "topic_exists_incompatible"
    status = 409


class TopicNotEmpty(LogqueueError):
    """Delete-if-empty on a topic that still holds records."""

    code = "topic_not_empty"
    status = 409


class BatchExists(LogqueueError):
    """Another batch has the name."""

    code = "batch_exists"
    status = 409

    @classmethod
    def named(cls, batch: str) -> BatchExists:
        """The usual message and detail."""
        return cls(
            f"batch {quoted(batch)} exists already, with other callbacks or closed; use another "
            "name, or delete it",
            {"batch": batch},
        )


class BatchClosed(LogqueueError):
    """A job cannot join a batch that is closed and has no jobs left."""

    code = "batch_closed"
    status = 409

    @classmethod
    def named(cls, batch: str) -> BatchClosed:
        """The usual message and detail."""
        return cls(
            f"batch {quoted(batch)} is closed and its jobs have ended; nothing was written: open "
            "another batch",
            {"batch": batch},
        )


class BatchNotEmpty(LogqueueError):
    """A batch that still has jobs cannot be deleted."""

    code = "batch_not_empty"
    status = 409

    @classmethod
    def named(cls, batch: str, left: int) -> BatchNotEmpty:
        """The usual message and detail."""
        return cls(
            f"batch {quoted(batch)} has {left} jobs left; wait for them or cancel them first",
            {"batch": batch, "left": left},
        )


class NotAQueue(LogqueueError):
    """A queue call on a plain log topic."""

    code = "not_a_queue"
    status = 409

    @classmethod
    def named(cls, topic: str) -> NotAQueue:
        """The usual message and detail for a log where a queue is needed."""
        return cls(
            f"topic {quoted(topic)} is a log, not a queue; only topics created with "
            '"type":"queue" hand out jobs',
            {"topic": topic},
        )


class ConfigChanged(LogqueueError):
    """The config of a topic is not of the version that a change of it was made for."""

    code = "config_changed"
    status = 412


class KeyConflict(LogqueueError):
    """A keyed write with on_conflict "reject" met a waiting job with that key."""

    code = "key_conflict"
    status = 409


class JobInFlight(LogqueueError):
    """The job is leased, and only its worker may change it now."""

    code = "job_in_flight"
    status = 409


class EpochConflict(LogqueueError):
    """A producer's epoch leaves a gap, has other content than before, or lacks chunks."""

    code = "epoch_conflict"
    status = 409


class PayloadTooLarge(LogqueueError):
    """A request body above the server's limit."""

    code = "payload_too_large"
    status = 413


class UnsupportedMediaType(LogqueueError):
    """A body that is not declared as JSON."""

    code = "unsupported_media_type"
    status = 415


class RangeNotSatisfiable(LogqueueError):
    """A `Range` that begins behind the end of what it is of."""

    code = "range_not_satisfiable"
    status = 416


class TopicFull(LogqueueError):
    """A topic with discard "reject" has no room now."""

    code = "topic_full"
    status = 422
    retryable = True


class Throttled(LogqueueError):
    """A resource cap of the server or of the key is reached."""

    code = "throttled"
    status = 429
    retryable = True
    retry_after_s = 1


class Internal(LogqueueError):
    """The server failed; whether the call took effect is unknown unless a subclass says so."""

    code = "internal"
    status = 500
    had_no_effect = False


class StorageReadOnly(Internal):
    """A write or sync failed earlier: the log takes no more until a restart has recovered it."""

    had_no_effect = False

    @classmethod
    def because(cls, failure: object) -> StorageReadOnly:
        """The usual message for a poisoned log."""
        return cls(
            f"storage is read-only since a write or sync failed ({failure}); this call may or may "
            "not be stored: check the disk, restart the server, then repeat with the same "
            "idempotency key",
            {"reason": "storage_read_only"},
        )


class StorageFull(Internal):
    """No disk space for the write; nothing was stored and writes work again once there is room."""

    retryable = True
    had_no_effect = True

    @classmethod
    def because(cls, failure: object) -> StorageFull:
        """The usual message for a full disk."""
        return cls(
            f"no disk space for this write ({failure}); nothing was stored: free space on the "
            "data directory's disk or ack and delete records, then try again",
            {"reason": "storage_full"},
        )


class StorageUnreadable(Internal):
    """The data of a stored record cannot be read back: an I/O error, or damage on the disk."""

    had_no_effect = True

    @classmethod
    def because(cls, segment: str, offset: int, problem: str) -> StorageUnreadable:
        """The usual message.

        Args:
            segment: Name of the log segment that has the data.
            offset: Where in its file, in bytes.
            problem: What went wrong.
        """
        return cls(
            f"the data of a record cannot be read from log segment {segment} at byte {offset}: "
            f"{problem}; nothing was changed and other records are not affected: check the "
            "server's disk and its log, then restore the segment from a backup or an archive, or "
            "delete the record",
            {"reason": "storage_unreadable", "segment": segment},
        )

    def of_record(self, topic: str, seq: int) -> StorageUnreadable:
        """The same, with the record that it is about."""
        detail = {**(self.detail or {}), "topic": topic, "seq": seq}
        return StorageUnreadable(
            f"record {seq} of topic {quoted(topic)}: {self.message}; to read on without it, use "
            f"`from_seq` {seq}",
            detail,
        )


class NotReady(LogqueueError):
    """The server is still replaying its log."""

    code = "not_ready"
    status = 503
    retryable = True
    retry_after_s = 1


class NotWriter(LogqueueError):
    """This server follows another one: changes go to the writer, `detail.writer` where known."""

    code = "not_writer"
    status = 503
    retryable = True
    retry_after_s = 1

    @classmethod
    def because(cls, what: str, writer: str) -> Self:
        """A refusal that names the server to use.

        Args:
            what: Why this server does not answer, as the message begins.
            writer: Base URL of the writer; "" when it is not known.
        """
        if writer:
            return cls(f"{what}: send this to the writer, {writer}", {"writer": writer})
        return cls(f"{what}: send this to the writer of this log, or try again in a moment")


class Fenced(NotWriter):
    """Another server has taken over the log: this one answers no more, and ends. What it was asked
    to store last may or may not be stored."""

    code = "fenced"
    had_no_effect = False


class ReplicaUnavailable(LogqueueError):
    """The replica does not answer, and the reply had to wait for it; whether the call took effect
    is unknown until it answers again."""

    code = "replica_unavailable"
    status = 503
    retryable = True
    had_no_effect = False
    retry_after_s = 2


class ShuttingDown(LogqueueError):
    """The server is draining; another request should go to its successor."""

    code = "shutting_down"
    status = 503
    retryable = True
    retry_after_s = 1


def every_error() -> Iterator[type[LogqueueError]]:
    """All classes that a reply can say, parents before children, in the order of the tree above."""
    pending: list[type[LogqueueError]] = [LogqueueError]
    while pending:
        kind = pending.pop(0)
        pending[:0] = kind.__subclasses__()
        if kind is not LogqueueError and kind.status:
            yield kind
