"""Writing any number of records: which requests they become, and what their replies add up to.

Owns: records as they are sent, batches, their idempotency keys. Must not know: how a request is
made, whether the caller blocks or awaits.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from logqueue.client.calls import CallRequest, encode
from logqueue.client.endpoints import WRITE_RECORDS
from logqueue.client.topic_calls import ConfigFields, known_config
from logqueue.errors import TopicNotFound
from logqueue.shapes import Appended, Record, Tombstone

CHUNK_DEFAULT = 1000
CHUNK_MAX = 10_000
BODY_BYTES_SPLIT = 16 * 1024 * 1024
"""A larger body is cut in two, so that a batch of big records stays below the server's limit."""

OnProgress = Callable[[Appended], object]
"""Called with the reply to each batch as soon as it is stored."""


def new_key() -> str:
    """A unique idempotency key."""
    return secrets.token_hex(12)


class NewRecord(msgspec.Struct, omit_defaults=True, frozen=True):
    """A record to write, when there is more to say than its data.

    Attributes:
        data: Any JSON value; `msgspec.Raw` is sent unchanged.
        tag: Up to 256 bytes, to filter and delete by.
        node: Who produced it, up to 128 bytes.
        meta: Any JSON value, up to 16 KiB, beside the data.
        delay_ms: Not claimable until so long after the write.
        not_before: Not claimable before this time in ms since the epoch; not with `delay_ms`.
        ttl_ms: Its own time to live; the shorter of it and the topic's counts.
        max_deliveries: Overrides the queue's.
        key: At most one waiting job of a queue has this key, up to 256 bytes.
        priority: 0 to 9; jobs with a higher one go first.
        group: Whose job it is, up to 128 bytes, for queues that have `groups`.
        on_conflict: What a write does when a job has the key; "replace" when not given.
        unique: How long a job has its key: while it is "waiting" (when not given), until it ends
            ("running"), or until its result is forgotten ("kept").
        on_duplicate: The newer name of `on_conflict`; give one of them.
        then: The steps that follow the job, 32 at most: when it is acked, the first of them is
            written, with its result in the meta as `$input`, and so on.
        batch: The batch that the job is in.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None
    delay_ms: int | None = None
    not_before: int | None = None
    ttl_ms: int | None = None
    max_deliveries: int | None = None
    key: str | None = None
    on_conflict: Literal["replace", "keep", "reject"] | None = None
    priority: int | None = None
    group: str | None = None
    then: Sequence[NextStep] | None = None
    batch: str | None = None
    unique: Literal["waiting", "running", "kept"] | None = None
    on_duplicate: Literal["replace", "keep", "reject"] | None = None


class NextStep(msgspec.Struct, frozen=True):
    """A step that follows a job.

    Attributes:
        topic: Where it is written to; created as a queue when absent.
        record: What is written; without a key, and without steps of its own.
    """

    topic: str
    record: NewRecord


class _Body(msgspec.Struct, omit_defaults=True):
    records: Sequence[NewRecord]
    idempotency_key: str
    node: str | None = None
    create: bool | None = None
    config: Mapping[str, Any] | None = None


class AppendBatches:
    """Turns records into the requests of one append.

    Each request carries an idempotency key: the first one `key`, the further ones `key/1`,
    `key/2`, ... So the same records with the same key and chunk size are stored once, however
    often they are appended while the topic remembers keys (`idempotency_window_ms`).
    """

    def __init__(
        self,
        topic: str,
        *,
        key: str,
        node: str | None,
        create: bool | None,
        config: ConfigFields | None,
        return_seqs: bool,
    ) -> None:
        self._where = WRITE_RECORDS.path(topic, return_seqs=None if return_seqs else False)
        self._key = key
        self._node = node
        # A name that is mistyped must not become a log of its own.
        self._create = False if create is None and config is None else create
        self._config = None if config is None else known_config(config)
        self._made = 0

    def requests(self, chunk: Sequence[Any]) -> list[CallRequest]:
        """The requests for the next records: one, or more when they are big.

        Raises:
            TypeError: A record is a Tombstone, or nothing that JSON can say.
        """
        return self._cut([new_record(record) for record in chunk])

    def _cut(self, records: Sequence[NewRecord]) -> list[CallRequest]:
        key = f"{self._key}/{self._made}" if self._made else self._key
        content = encode(_Body(records, key, self._node, self._create, self._config))
        if len(content) > BODY_BYTES_SPLIT and len(records) > 1:
            half = len(records) // 2
            return self._cut(records[:half]) + self._cut(records[half:])
        self._made += 1
        return [CallRequest(WRITE_RECORDS.method, self._where, content)]


def new_record(record: Any) -> NewRecord:
    """What is written for a value, a NewRecord, or a Record read elsewhere.

    Raises:
        TypeError: It is a Tombstone.
    """
    if isinstance(record, NewRecord):
        return record
    if isinstance(record, Record):
        return NewRecord(record.data, record.tag, record.node, record.meta)
    if isinstance(record, Tombstone):
        raise TypeError(
            f"a Tombstone is not a record: {record.gap_from} to {record.gap_to} are lost; decide "
            "what that means before copying"
        )
    return NewRecord(record)


class Total:
    """What the replies to one append add up to."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._batches = 0
        self._first_seq = 0
        self._count = 0
        self._created = False
        self._deduped = True
        self._last: Appended | None = None

    def add(self, reply: Appended) -> None:
        """Take in the reply to one batch."""
        if not self._batches:
            self._first_seq = reply.first_seq
        self._batches += 1
        self._count += reply.count
        self._created |= reply.created
        self._deduped &= reply.deduped
        self._last = reply

    def result(self) -> Appended:
        """One reply for all: that of a single batch as it came, else without lists per record."""
        last = self._last
        if last is None:
            return Appended(
                topic=self._topic,
                first_seq=0,
                last_seq=0,
                head_seq=0,
                count=0,
                created=False,
                deduped=False,
            )
        if self._batches == 1:
            return last
        return Appended(
            topic=self._topic,
            first_seq=self._first_seq,
            last_seq=last.last_seq,
            head_seq=last.head_seq,
            count=self._count,
            created=self._created,
            deduped=self._deduped,
        )

    def note_on(self, error: BaseException) -> None:
        """Say in an error how far the append had come, and how to make a missing topic."""
        if isinstance(error, TopicNotFound):
            error.message = (
                f"topic '{self._topic}' does not exist: create it with ensure_topic, or append "
                "with create=True"
            )
            error.args = (error.message,)
        if self._last is not None:
            error.add_note(
                f"{self._count} records were stored before this, up to seq {self._last.last_seq}"
            )


def check_records(records: object, chunk: int) -> None:
    """Refuse what is a single record by mistake, and chunks no write can have.

    Raises:
        TypeError: `records` is one record, not several.
        ValueError: `chunk` is out of range.
    """
    if isinstance(records, Mapping | str | bytes | msgspec.Struct):
        raise TypeError(
            f"append takes an iterable of records, not one {type(records).__name__}: "
            "put a single record into a list"
        )
    if not 1 <= chunk <= CHUNK_MAX:
        raise ValueError(f"chunk must be from 1 to {CHUNK_MAX}")
