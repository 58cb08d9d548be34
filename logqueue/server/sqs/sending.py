"""SendMessage and SendMessageBatch.

Owns: what a message becomes: a job whose data is the text, with attributes in its meta. Must not
know: how writes are decided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Any, Final, NamedTuple

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.queue_topic import QueueTopic
from logqueue.events import block as blocks
from logqueue.model.config import SqsOptions
from logqueue.model.scopes import Scope
from logqueue.server.engine.pending import Spent
from logqueue.server.http.requests import Answer, Reply
from logqueue.server.sqs import message_attributes as attributes
from logqueue.server.sqs.addresses import queue_of_url
from logqueue.server.sqs.bodies import (
    SendBatchBody,
    SendBody,
    SendEntry,
    SqsMessage,
    number,
    require_entries,
)
from logqueue.server.sqs.calls import SqsCall, action, reply
from logqueue.server.sqs.handles import message_id
from logqueue.server.sqs.message_attributes import Attribute, Attributes
from logqueue.server.sqs.refusals import (
    BATCH_TOO_LONG,
    INVALID_CONTENTS,
    INVALID_PARAMETER,
    MISSING_PARAMETER,
    UNSUPPORTED,
    SqsRefusal,
)

BATCH_BYTES_MAX: Final = 1 << 20
_TOKEN: Final = re.compile(r"[!-~]{1,128}", re.ASCII)


class Stored(msgspec.Struct, omit_defaults=True):
    """What the meta of a message has under `$sqs`.

    Attributes:
        attributes: As they were sent.
        trace: The trace header.
        group: The message group.
    """

    attributes: dict[str, Attribute] = {}
    trace: Attribute | None = None
    group: str = ""


class StoredMeta(msgspec.Struct, omit_defaults=True):
    """The meta of a message."""

    sqs: Stored | None = msgspec.field(default=None, name="$sqs")


class _Ready(NamedTuple):
    """A message that may be sent.

    Attributes:
        data, meta: JSON fragments of the record.
        size: Bytes, as the limits count them.
        digests: Members of the reply.
    """

    data: bytes
    meta: bytes
    delay_ms: int
    size: int
    digests: Mapping[str, str | None]


_encoder = msgspec.json.Encoder()


@action("SendMessage", SendBody, Scope.WRITE)
def send(call: SqsCall, body: SendBody) -> Answer:
    """Append one message."""
    topic = call.queue(queue_of_url(body.queue_url))
    ready = _prepared(topic, body)
    return call.dispatcher.submit(_append(topic, [ready]), _sent, (call, topic, ready))


def _sent(
    context: tuple[SqsCall, QueueTopic, _Ready], result: cmd.AppendResult, spent: Spent
) -> Reply:
    call, topic, ready = context
    return reply({**ready.digests, "MessageId": _id(call, topic, result.first_seq)})


@action("SendMessageBatch", SendBatchBody, Scope.WRITE)
def send_batch(call: SqsCall, body: SendBatchBody) -> Answer:
    """Append the messages of a batch that are in order; the others are named with what is wrong."""
    topic = call.queue(queue_of_url(body.queue_url))
    require_entries(body.entries)
    ready: list[_Ready] = []
    entries: list[SendEntry] = []
    failed: list[dict[str, Any]] = []
    size = 0
    for entry in body.entries:
        size += _size(entry)
        if size > BATCH_BYTES_MAX:
            raise SqsRefusal(
                BATCH_TOO_LONG, f"batch requests cannot be longer than {BATCH_BYTES_MAX} bytes"
            )
    for entry in body.entries:
        try:
            ready.append(_prepared(topic, entry))
            entries.append(entry)
        except SqsRefusal as refusal:
            failed.append(failure(entry.id, refusal))
    if not ready:
        return reply({"Failed": failed, "Successful": []})
    context = (call, topic, ready, entries, failed)
    return call.dispatcher.submit(_append(topic, ready), _sent_batch, context)


def _sent_batch(
    context: tuple[SqsCall, QueueTopic, list[_Ready], list[SendEntry], list[dict[str, Any]]],
    result: cmd.AppendResult,
    spent: Spent,
) -> Reply:
    call, topic, ready, entries, failed = context
    successful = []
    for seq, (entry, message) in enumerate(zip(entries, ready, strict=True), result.first_seq):
        digests = {name: value for name, value in message.digests.items() if value is not None}
        successful.append({"Id": entry.id, "MessageId": _id(call, topic, seq), **digests})
    return reply({"Successful": successful, "Failed": failed or None})


def failure(entry: str, refusal: SqsRefusal) -> dict[str, Any]:
    """An entry of a batch that failed, as the reply names it."""
    kind = refusal.kind
    return {
        "Id": entry,
        "SenderFault": kind.is_senders,
        "Code": kind.code,
        "Message": refusal.message,
    }


def _id(call: SqsCall, topic: QueueTopic, seq: int) -> str:
    return message_id(call.dispatcher.engine.journal.log_id_of(topic), seq)


def _append(topic: QueueTopic, messages: Sequence[_Ready]) -> cmd.Append:
    data = [message.data for message in messages]
    metas = [message.meta for message in messages]
    delays = [message.delay_ms for message in messages]
    if any(metas) or any(delays):
        numbers = {blocks.DELAY: delays} if any(delays) else None
        texts = [data, None, None, metas if any(metas) else None]
        block = blocks.pack(texts, numbers=numbers)
    else:
        block = blocks.pack_bare(data)
    return cmd.Append(topic.name, block, len(data), create=False)


def _size(message: SqsMessage) -> int:
    sent = message.message_attributes or {}
    body = message.message_body
    size = len(body) if body.isascii() else len(body.encode("utf-8", "surrogatepass"))
    return size + sum(len(name) + _rough(attribute) for name, attribute in sent.items())


def _rough(attribute: Attribute) -> int:
    """The size of an attribute that is not checked yet."""
    binary = attribute.binary_value
    text = attribute.string_value or ""
    return len(attribute.data_type) + len(text.encode()) + len(binary or "") * 3 // 4


def _prepared(topic: QueueTopic, message: SqsMessage) -> _Ready:
    """A message as it will be stored.

    Raises:
        SqsRefusal: It breaks a rule.
    """
    options = topic.config.sqs or SqsOptions()
    text = message.message_body
    if not text:
        raise SqsRefusal(MISSING_PARAMETER, "the request must contain the parameter MessageBody")
    if not attributes.is_allowed_text(text):
        raise SqsRefusal(
            INVALID_CONTENTS,
            "the message has characters that are not allowed: #x9, #xA, #xD, #x20 to #xD7FF, "
            "#xE000 to #xFFFD and #x10000 to #x10FFFF are",
        )
    sent = message.message_attributes or {}
    system = message.message_system_attributes or {}
    attributes.require_attributes(sent)
    attributes.require_system_attributes(system)
    size = _size(message)
    if size > options.message_bytes_max:
        raise SqsRefusal(
            INVALID_PARAMETER,
            f"one or more parameters are invalid: message must be shorter than "
            f"{options.message_bytes_max} bytes",
        )
    delay_s = number("DelaySeconds", message.delay_seconds, 0, 900)
    if delay_s is None:
        delay_s = options.delay_s
    digests = {
        "MD5OfMessageBody": md5(text.encode(), usedforsecurity=False).hexdigest(),
        "MD5OfMessageAttributes": attributes.digest(sent) if sent else None,
        "MD5OfMessageSystemAttributes": attributes.digest(system) if system else None,
    }
    meta = _meta(sent, system, _group(message))
    return _Ready(_encoder.encode(text), meta, delay_s * 1000, size, digests)


def _meta(sent: Attributes, system: Attributes, group: str) -> bytes:
    if not (sent or system or group):
        return b""
    stored = Stored(dict(sent), system.get(attributes.TRACE), group)
    return _encoder.encode(StoredMeta(stored))


def _group(message: SqsMessage) -> str:
    """The message group of a message in a standard queue."""
    group = message.message_group_id
    if message.message_deduplication_id is not None:
        raise SqsRefusal(
            UNSUPPORTED,
            "MessageDeduplicationId is for FIFO queues, which this server does not have",
        )
    if group is not None and not _TOKEN.fullmatch(group):
        raise SqsRefusal(
            INVALID_PARAMETER,
            "MessageGroupId must be 1 to 128 letters, digits and punctuation marks of ASCII",
        )
    return group or ""
