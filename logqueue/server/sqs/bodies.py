"""The bodies of actions.

Owns: their members and types, and how each is read. Must not know: what actions do. Members that
SQS has and this server does not use are left out, and ignored as unknown ones are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from logqueue.json_problems import text_problem, type_problem
from logqueue.server.sqs.message_attributes import Attribute
from logqueue.server.sqs.refusals import (
    EMPTY_BATCH,
    ENTRY_IDS_NOT_DISTINCT,
    INVALID_ENTRY_ID,
    INVALID_PARAMETER,
    MISSING_PARAMETER,
    SERIALIZATION,
    TOO_MANY_ENTRIES,
    SqsRefusal,
)

ENTRIES_MAX: Final = 10
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_MISSING: Final = re.compile(r"missing required field `(\w+)`")

T = TypeVar("T")


class _SqsBody(msgspec.Struct, rename="pascal"):
    """All members are named as in SQS."""


class QueueBody(_SqsBody):
    """Of actions on a queue without further members."""

    queue_url: str


class CreateBody(_SqsBody):
    """Of CreateQueue."""

    queue_name: str
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = msgspec.field(default=None, name="tags")


class NameBody(_SqsBody):
    """Of GetQueueUrl."""

    queue_name: str


class ListBody(_SqsBody):
    """Of ListQueues."""

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class SourcesBody(QueueBody):
    """Of ListDeadLetterSourceQueues."""

    next_token: str | None = None
    max_results: int | None = None


class GetAttributesBody(QueueBody):
    """Of GetQueueAttributes."""

    attribute_names: Sequence[str] | None = None


class SetAttributesBody(QueueBody):
    """Of SetQueueAttributes."""

    attributes: dict[str, str]


class TagBody(QueueBody):
    """Of TagQueue."""

    tags: dict[str, str]


class UntagBody(QueueBody):
    """Of UntagQueue."""

    tag_keys: Sequence[str]


class SqsMessage(_SqsBody):
    """What is sent, alone or in a batch."""

    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, Attribute] | None = None
    message_system_attributes: dict[str, Attribute] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendBody(SqsMessage, kw_only=True):
    """Of SendMessage."""

    queue_url: str


class SendEntry(SqsMessage, kw_only=True):
    """Of an entry of SendMessageBatch."""

    id: str


class SendBatchBody(QueueBody):
    """Of SendMessageBatch."""

    entries: Sequence[SendEntry]


class ReceiveBody(QueueBody):
    """Of ReceiveMessage."""

    attribute_names: Sequence[str] | None = None
    message_system_attribute_names: Sequence[str] | None = None
    message_attribute_names: Sequence[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessageBody(QueueBody):
    """Of DeleteMessage."""

    receipt_handle: str


class DeleteEntry(_SqsBody):
    """Of an entry of DeleteMessageBatch."""

    id: str
    receipt_handle: str


class DeleteBatchBody(QueueBody):
    """Of DeleteMessageBatch."""

    entries: Sequence[DeleteEntry]


class VisibilityBody(QueueBody):
    """Of ChangeMessageVisibility."""

    receipt_handle: str
    visibility_timeout: int


class VisibilityEntry(_SqsBody):
    """Of an entry of ChangeMessageVisibilityBatch."""

    id: str
    receipt_handle: str
    visibility_timeout: int | None = None


class VisibilityBatchBody(QueueBody):
    """Of ChangeMessageVisibilityBatch."""

    entries: Sequence[VisibilityEntry]


class StartMoveBody(_SqsBody):
    """Of StartMessageMoveTask."""

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMovesBody(_SqsBody):
    """Of ListMessageMoveTasks."""

    source_arn: str
    max_results: int | None = None


class CancelMoveBody(_SqsBody):
    """Of CancelMessageMoveTask."""

    task_handle: str


def read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body.

    Raises:
        SqsRefusal: It is not JSON, a member is missing, or of a wrong type.
    """
    try:
        body.decode()
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        missing = _MISSING.search(str(error))
        if missing is not None:
            raise SqsRefusal(
                MISSING_PARAMETER, f"the request must contain the parameter {missing[1]}"
            ) from None
        problem = type_problem(error, decoder.type, "the body")
        raise SqsRefusal(SERIALIZATION, f"invalid request body: {problem}") from None
    except msgspec.DecodeError as error:
        raise SqsRefusal(SERIALIZATION, f"invalid JSON: {text_problem(error, body)}") from None
    except (UnicodeDecodeError, RecursionError):
        raise SqsRefusal(SERIALIZATION, "the body is not UTF-8, or nested too deeply") from None


def require_entries(entries: Sequence[Any]) -> None:
    """Check the entries of a batch, as far as they concern all of it.

    Raises:
        SqsRefusal: None, too many, or ids that are not valid or occur twice.
    """
    if not entries:
        raise SqsRefusal(EMPTY_BATCH, "there must be at least one entry in the request")
    if len(entries) > ENTRIES_MAX:
        raise SqsRefusal(
            TOO_MANY_ENTRIES,
            f"maximum number of entries per request are {ENTRIES_MAX}; you have sent "
            f"{len(entries)}",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _ENTRY_ID.fullmatch(entry.id):
            raise SqsRefusal(
                INVALID_ENTRY_ID, "the id of an entry must be 1 to 80 of A-Z a-z 0-9 _ -"
            )
        if entry.id in seen:
            raise SqsRefusal(ENTRY_IDS_NOT_DISTINCT, f"the id {entry.id} is repeated")
        seen.add(entry.id)


def number(name: str, value: int | None, low: int, high: int) -> int | None:
    """A number within its range; None when it is not given.

    Raises:
        SqsRefusal: It is outside.
    """
    if value is not None and not low <= value <= high:
        raise SqsRefusal(
            INVALID_PARAMETER, f"value {value} for {name} is invalid: it must be {low} to {high}"
        )
    return value
