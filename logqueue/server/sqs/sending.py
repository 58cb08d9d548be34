"""SendMessage and SendMessageBatch.

Owns: what a message becomes: a job whose data is the text, with attributes in its meta. Must not
know: how writes are decided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import md5, sha256
from typing import Any, Final, NamedTuple

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import LogqueueError
from logqueue.events import block as blocks
from logqueue.model.config import SqsOptions
from logqueue.model.scopes import Scope
from logqueue.server.engine.pending import Pending, Spent
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
from logqueue.server.sqs.queue_attributes import is_fifo
from logqueue.server.sqs.refusals import (
    BATCH_TOO_LONG,
    INVALID_CONTENTS,
    INVALID_PARAMETER,
    MISSING_PARAMETER,
    SqsRefusal,
    refusal_of,
)

BATCH_BYTES_MAX: Final = 1 << 20
TOKEN: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
TOKEN_RULE: Final = "must be 1 to 128 letters, digits and punctuation marks of ASCII"


class Stored(msgspec.Struct, omit_defaults=True):
    """What the meta of a message has under `$sqs`.

    Attributes:
        attributes: As they were sent.
        trace: The trace header.
        deduplication: The deduplication id.
    """

    attributes: dict[str, Attribute] = {}
    trace: Attribute | None = None
    deduplication: str = ""


class StoredMeta(msgspec.Struct, omit_defaults=True):
    """The meta of a message."""

    sqs: Stored | None = msgspec.field(default=None, name="$sqs")


class _Ready(NamedTuple):
    """A message that may be sent.

    Attributes:
        data, meta, group: JSON fragments of the record.
        key: Idempotency key of a write of this message alone; None in standard queues.
        size: Bytes, as the limits count them.
        digests: Members of the reply.
    """

    data: bytes
    meta: bytes
    group: bytes
    key: str | None
    delay_ms: int
    size: int
    digests: Mapping[str, str | None]


_encoder = msgspec.json.Encoder()
_Batch = tuple[SqsCall, QueueTopic, list[_Ready], list[SendEntry], list[dict[str, Any]]]


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
    return reply(_members(call, topic, ready, result.first_seq))


def _members(call: SqsCall, topic: QueueTopic, ready: _Ready, seq: int) -> dict[str, str]:
    """What a reply says of a message that was sent."""
    members = {name: value for name, value in ready.digests.items() if value is not None}
    if ready.key is not None:
        members["SequenceNumber"] = sequence_number(seq)
    return {"MessageId": _id(call, topic, seq), **members}


def sequence_number(seq: int) -> str:
    """What orders the messages of a FIFO queue."""
    return f"{seq:020d}"


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
    if is_fifo(topic):
        # One write each, so that each has its own idempotency key; in their order.
        submit = call.dispatcher.submit
        sent = [submit(_append(topic, [one]), _result, None) for one in ready]
        return _finish_batch(context, sent)
    return call.dispatcher.submit(_append(topic, ready), _sent_batch, context)


def _result(context: None, result: cmd.AppendResult, spent: Spent) -> cmd.AppendResult:
    return result


async def _finish_batch(context: _Batch, sent: Sequence[Pending[cmd.AppendResult]]) -> Reply:
    call, topic, ready, entries, failed = context
    successful = []
    for entry, message, pending in zip(entries, ready, sent, strict=True):
        await pending.ready()
        try:
            seq = pending.answer().first_seq
        except LogqueueError as error:
            failed.append(failure(entry.id, refusal_of(error, call.request)))
        else:
            successful.append({"Id": entry.id, **_members(call, topic, message, seq)})
    return reply({"Successful": successful, "Failed": failed or None})


def _sent_batch(context: _Batch, result: cmd.AppendResult, spent: Spent) -> Reply:
    call, topic, ready, entries, failed = context
    successful = [
        {"Id": entry.id, **_members(call, topic, message, seq)}
        for seq, (entry, message) in enumerate(zip(entries, ready, strict=True), result.first_seq)
    ]
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
    groups = [message.group for message in messages]
    delays = [message.delay_ms for message in messages]
    if any(metas) or any(groups) or any(delays):
        numbers = {blocks.DELAY: delays} if any(delays) else None
        texts = [data, None, None, metas if any(metas) else None, None]
        block = blocks.pack([*texts, groups if any(groups) else None], numbers=numbers)
    else:
        block = blocks.pack_bare(data)
    key = messages[0].key if len(messages) == 1 else None
    return cmd.Append(topic.name, block, len(data), key, create=False)


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
    token = _token(topic, message, options)
    if token is not None and delay_s is not None:
        raise SqsRefusal(
            INVALID_PARAMETER, "DelaySeconds of a message is not for FIFO queues: set the queue's"
        )
    if delay_s is None:
        delay_s = options.delay_s
    digests = {
        "MD5OfMessageBody": md5(text.encode(), usedforsecurity=False).hexdigest(),
        "MD5OfMessageAttributes": attributes.digest(sent) if sent else None,
        "MD5OfMessageSystemAttributes": attributes.digest(system) if system else None,
    }
    group = message.message_group_id
    return _Ready(
        data=_encoder.encode(text),
        meta=_meta(sent, system, token or ""),
        group=_encoder.encode(group) if group is not None else b"",
        key=_key(token, group, options) if token is not None else None,
        delay_ms=delay_s * 1000,
        size=size,
        digests=digests,
    )


def _meta(sent: Attributes, system: Attributes, deduplication: str) -> bytes:
    if not (sent or system or deduplication):
        return b""
    stored = Stored(dict(sent), system.get(attributes.TRACE), deduplication)
    return _encoder.encode(StoredMeta(stored))


def _token(topic: QueueTopic, message: SqsMessage, options: SqsOptions) -> str | None:
    """The deduplication id of a message; None in a standard queue.

    Raises:
        SqsRefusal: It is missing, or not allowed; or the group is.
    """
    group, token = message.message_group_id, message.message_deduplication_id
    if group is not None and not TOKEN.fullmatch(group):
        raise SqsRefusal(INVALID_PARAMETER, f"MessageGroupId {TOKEN_RULE}")
    if not is_fifo(topic):
        if token is not None:
            raise SqsRefusal(
                INVALID_PARAMETER, "MessageDeduplicationId is not valid for this queue type"
            )
        return None
    if group is None:
        raise SqsRefusal(MISSING_PARAMETER, "the request must contain the parameter MessageGroupId")
    if token is None:
        if not options.deduplicates_content:
            raise SqsRefusal(
                INVALID_PARAMETER,
                "the queue must have ContentBasedDeduplication, or the message must have a "
                "MessageDeduplicationId",
            )
        return sha256(message.message_body.encode()).hexdigest()
    if not TOKEN.fullmatch(token):
        raise SqsRefusal(INVALID_PARAMETER, f"MessageDeduplicationId {TOKEN_RULE}")
    return token


def _key(token: str, group: str | None, options: SqsOptions) -> str:
    """The idempotency key of a message: the one rule for messages that are sent twice."""
    scope = group if options.deduplication_scope == "messageGroup" else None
    return "sqs:" + sha256(_encoder.encode((scope, token))).hexdigest()
