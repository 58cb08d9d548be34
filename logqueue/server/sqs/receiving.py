"""ReceiveMessage: jobs become messages.

Owns: what a job looks like to clients of SQS, whatever client wrote it. Must not know: how claims
are decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import md5
from typing import Any, Final, NamedTuple

import msgspec

from logqueue.api.replies import raw
from logqueue.core import commands as cmd
from logqueue.core.letters import LetterMeta, letter_meta
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.events.block import DATA, META, read_string
from logqueue.model.config import SqsOptions
from logqueue.model.limits import LEASE_MS_MIN
from logqueue.model.scopes import Scope
from logqueue.server.engine.pending import Pending, Spent
from logqueue.server.http.api import long_poll
from logqueue.server.http.requests import Answer, PendingReply, Reply
from logqueue.server.sqs import message_attributes as attributes
from logqueue.server.sqs.addresses import ACCOUNT, queue_of_url
from logqueue.server.sqs.bodies import ReceiveBody, number
from logqueue.server.sqs.calls import SqsCall, action, reply
from logqueue.server.sqs.handles import Receipt, message_id, write_handle
from logqueue.server.sqs.queue_attributes import KNOWN, VISIBILITY_S_MAX, is_fifo
from logqueue.server.sqs.refusals import INVALID_ATTRIBUTE_NAME, INVALID_PARAMETER, SqsRefusal
from logqueue.server.sqs.sending import (
    TOKEN,
    TOKEN_RULE,
    Stored,
    StoredMeta,
    sequence_number,
)

NODE: Final = "sqs"
"""The node that all clients of SQS are: a receipt handle may go from one to another."""
MESSAGES_MAX: Final = 10
WAIT_S_MAX: Final = 20
STEP_BYTES: Final = 256 << 10
"""Messages that are probably larger in all are made one by one."""
_SYSTEM: Final = (
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
)

_strings = msgspec.json.Decoder(str)
_metas = msgspec.json.Decoder(StoredMeta)
_NOTHING: Final = Stored()


class _Wanted(NamedTuple):
    """What a receive shows."""

    call: SqsCall
    topic: QueueTopic
    system: frozenset[str]
    attributes: Sequence[str]
    attempt: str | None


@action("ReceiveMessage", ReceiveBody, Scope.READ | Scope.WRITE)
def receive(call: SqsCall, body: ReceiveBody) -> Answer:
    """Lease jobs; wait for some if there are none."""
    topic = call.queue(queue_of_url(body.queue_url))
    options = topic.config.sqs or SqsOptions()
    most = number("MaxNumberOfMessages", body.max_number_of_messages, 1, MESSAGES_MAX)
    visibility_s = number("VisibilityTimeout", body.visibility_timeout, 0, VISIBILITY_S_MAX)
    wait_s = number("WaitTimeSeconds", body.wait_time_seconds, 0, WAIT_S_MAX)
    if wait_s is None:
        wait_s = options.wait_s
    named = {*(body.attribute_names or ()), *(body.message_system_attribute_names or ())}
    unknown = named.difference(_SYSTEM, KNOWN)
    if unknown:
        raise SqsRefusal(INVALID_ATTRIBUTE_NAME, f"unknown attribute {min(unknown)[:80]}")
    system = frozenset(_SYSTEM if "All" in named else named)
    attempt = _attempt(topic, body.receive_request_attempt_id)
    wanted = _Wanted(call, topic, system, body.message_attribute_names or (), attempt)
    if attempt is not None:
        again = _received_before(wanted, attempt)
        if again:
            shown_s = visibility_s if visibility_s is not None else topic.config.lease_ms / 1000
            return _repeat(wanted, again, int(shown_s * 1000))
    lease_ms = visibility_s * 1000 if visibility_s else None
    claimer = cmd.Claimer(NODE, most or 1, lease_ms)
    command = cmd.ClaimJobs(topic.name, (claimer,), wait_ms=wait_s * 1000)
    is_glance = visibility_s == 0
    if is_glance or topic.live_bytes * (most or 1) > topic.live * STEP_BYTES:
        work = _receive_in_steps(wanted, command, is_glance=is_glance)
        return long_poll(call.service, call.request, work)
    return call.dispatcher.submit(command, _received, wanted)


async def _receive_in_steps(wanted: _Wanted, command: cmd.ClaimJobs, *, is_glance: bool) -> Reply:
    """A receive of large messages, which are made one in a turn of the loop; or one that hides
    nothing, so that what it shows can be received again at once."""
    dispatcher = wanted.call.dispatcher
    pending: Pending[cmd.ClaimedJobs] = dispatcher.submit(command, _claimed, wanted)
    await pending.ready()
    jobs = pending.answer()
    messages: list[dict[str, Any]] = []
    try:
        for job in jobs:
            await asyncio.sleep(0)
            messages.append(_message(wanted, wanted.call.log, job))
        if is_glance and messages:
            back = cmd.NackJobs(command.topic, NODE, jobs.seqs, jobs.leases, delay_ms=0)
            given: PendingReply = dispatcher.submit(back, _done, None)
            await given.ready()
            given.answer()
    except asyncio.CancelledError:
        if pending.on_undelivered is not None:
            pending.on_undelivered()
        raise
    shown = reply({"Messages": messages or None})
    shown.on_undelivered = None if is_glance else pending.on_undelivered
    return shown


def _attempt(topic: QueueTopic, attempt: str | None) -> str | None:
    """The id under which a receive may be asked for again.

    Raises:
        SqsRefusal: It is malformed, or the queue is not a FIFO queue.
    """
    if attempt is not None and not (is_fifo(topic) and TOKEN.fullmatch(attempt)):
        raise SqsRefusal(
            INVALID_PARAMETER,
            f"ReceiveRequestAttemptId is for FIFO queues, and {TOKEN_RULE}",
        )
    return attempt


def _received_before(wanted: _Wanted, attempt: str) -> list[cmd.ClaimedJob]:
    """What the same receive got before; [] unless all of it is still in flight as it was."""
    topic = wanted.topic
    now = wanted.call.dispatcher.engine.clock.now_ms()
    jobs = wanted.call.observations.attempts.find(topic.number, attempt, now)
    for job in jobs:
        entry = topic.queue.jobs.get(job.seq)
        if entry is None or not entry.live or entry.lease != job.lease:
            return []
        if entry.grant is None or entry.grant.deadline < now:
            return []
    return jobs


async def _repeat(wanted: _Wanted, jobs: Sequence[cmd.ClaimedJob], lease_ms: int) -> Reply:
    """The messages of an earlier receive again, with their timeout from now on."""
    call, topic = wanted.call, wanted.topic
    seqs = [job.seq for job in jobs]
    leases = [job.lease for job in jobs]
    extend = cmd.ExtendLeases(topic.name, NODE, seqs, max(lease_ms, LEASE_MS_MIN), leases)
    log = call.log
    texts = {seq: found for seq, _, found in topic.records(seqs)}
    messages = [
        _message(wanted, log, job._replace(data=texts[job.seq][DATA], meta=texts[job.seq][META]))
        for job in jobs
    ]
    pending: PendingReply = call.dispatcher.submit(extend, _done, None)
    await pending.ready()
    pending.answer()
    return reply({"Messages": messages})


def _done(context: None, result: object, spent: Spent) -> Reply:
    return reply({})


def _claimed(wanted: _Wanted, result: cmd.ClaimResult, spent: Spent) -> cmd.ClaimedJobs:
    jobs = result.jobs[0]
    if wanted.attempt is not None and jobs.seqs:
        now = wanted.call.dispatcher.engine.clock.now_ms()
        attempts = wanted.call.observations.attempts
        attempts.note(wanted.topic.number, wanted.attempt, now, [*jobs])
    return jobs


def _received(wanted: _Wanted, result: cmd.ClaimResult, spent: Spent) -> Reply:
    log = wanted.call.log
    messages = [_message(wanted, log, job) for job in _claimed(wanted, result, spent)]
    return reply({"Messages": messages or None})


def _message(wanted: _Wanted, log: str, job: cmd.ClaimedJob) -> dict[str, Any]:
    call, topic = wanted.call, wanted.topic
    letter = letter_meta(job.meta)
    body, text = _body(job.data)
    stored = _stored(job.meta)
    message: dict[str, Any] = {
        "MessageId": _id(call, topic, letter, job.seq),
        "ReceiptHandle": write_handle(log, Receipt(topic.number, job.seq, job.lease)),
        "MD5OfBody": md5(text, usedforsecurity=False).hexdigest(),
        "Body": raw(body),
    }
    if wanted.system:
        found = _system(wanted, job, letter, stored)
        if found:
            message["Attributes"] = found
    if wanted.attributes and stored.attributes:
        shown = attributes.shown(stored.attributes, wanted.attributes)
        if shown:
            message["MessageAttributes"] = shown
            message["MD5OfMessageAttributes"] = attributes.digest(shown)
    return message


def _body(data: bytes) -> tuple[bytes, bytes]:
    """The body of a message as a JSON string fragment, and its bytes. Data that is a string is the
    text itself; of anything else, the JSON is."""
    if data.startswith(b'"'):
        try:
            return data, _strings.decode(data).encode()
        except (msgspec.DecodeError, UnicodeError):
            # A lone surrogate, which no UTF-8 has.
            pass
    return msgspec.json.encode(data.decode()), data


def _stored(meta: bytes) -> Stored:
    if b'"$sqs"' not in meta:
        return _NOTHING
    try:
        stored = _metas.decode(meta).sqs or _NOTHING
        attributes.require_attributes(stored.attributes)
    except (msgspec.ValidationError, SqsRefusal):
        # Of another producer, which may write any meta.
        return _NOTHING
    return stored


def _id(call: SqsCall, topic: QueueTopic, letter: LetterMeta, seq: int) -> str:
    """A dead letter keeps the id that the message had."""
    journal = call.dispatcher.engine.journal
    if letter.origin is None:
        return message_id(journal.log_id_of(topic), seq)
    origin: Topic | None = call.dispatcher.engine.state.topics.get(letter.origin)
    of = journal.log_id_of(origin) if origin is not None else letter.origin
    return message_id(of, _whole(letter.src_seq))


def _whole(text: str | None) -> int:
    """What a stamp says that anyone may have written; 0 for anything else than a number."""
    return int(text[:20]) if text and text.isascii() and text.isdigit() else 0


def _system(
    wanted: _Wanted, job: cmd.ClaimedJob, letter: LetterMeta, stored: Stored
) -> dict[str, str]:
    names = wanted.system
    found: dict[str, str | None] = {
        "SenderId": ACCOUNT,
        "SentTimestamp": str(job.updated_at or job.ts),
        "ApproximateReceiveCount": str(job.deliveries + _whole(letter.deliveries)),
        "AWSTraceHeader": stored.trace.string_value if stored.trace is not None else None,
        "MessageGroupId": read_string(job.group) if job.group else None,
        "MessageDeduplicationId": stored.deduplication or None,
    }
    if is_fifo(wanted.topic):
        found["SequenceNumber"] = sequence_number(job.seq)
    if letter.origin is not None:
        found["DeadLetterQueueSourceArn"] = wanted.call.addresses.arn(letter.origin)
    if "ApproximateFirstReceiveTimestamp" in names:
        now = wanted.call.dispatcher.engine.clock.now_ms()
        first = wanted.call.observations.first_receives.of(wanted.topic.number, job.seq, now)
        found["ApproximateFirstReceiveTimestamp"] = str(first)
    return {name: value for name, value in found.items() if value is not None and name in names}
