"""DeleteMessage and ChangeMessageVisibility, alone and in batches: the lease is what counts.

Owns: what becomes of a receipt handle whose lease is over. Must not know: how settles are decided.

As in SQS, a message can still be deleted with its last receipt handle after the visibility timeout,
as long as it was not received again meanwhile; and deleting what is gone succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from logqueue.core import commands as cmd
from logqueue.core.queue_topic import QueueTopic
from logqueue.model.scopes import Scope
from logqueue.server.engine.pending import Pending, Spent
from logqueue.server.http.requests import Answer, Reply
from logqueue.server.sqs.addresses import queue_of_url
from logqueue.server.sqs.bodies import (
    DeleteBatchBody,
    DeleteMessageBody,
    VisibilityBatchBody,
    VisibilityBody,
    number,
    require_entries,
)
from logqueue.server.sqs.calls import SqsCall, action, reply
from logqueue.server.sqs.handles import Receipt, read_handle
from logqueue.server.sqs.queue_attributes import VISIBILITY_S_MAX, is_fifo
from logqueue.server.sqs.receiving import NODE
from logqueue.server.sqs.refusals import (
    INVALID_PARAMETER,
    MESSAGE_NOT_INFLIGHT,
    MISSING_PARAMETER,
    RECEIPT_HANDLE_IS_INVALID,
    SqsRefusal,
)
from logqueue.server.sqs.sending import failure


class _BatchEntry(NamedTuple):
    """One message to settle; `refusal` says why not."""

    id: str
    receipt: Receipt | None
    refusal: SqsRefusal | None
    timeout_s: int = 0


def _result(context: None, result: Any, spent: Spent) -> Any:
    return result


@action("DeleteMessage", DeleteMessageBody, Scope.WRITE)
def delete(call: SqsCall, body: DeleteMessageBody) -> Answer:
    """End a job."""
    topic = call.queue(queue_of_url(body.queue_url))
    receipt = _receipt(call, topic, body.receipt_handle)
    acked = _submit_ack(call, topic, [receipt])

    async def finish() -> Reply:
        expired = await _finish_delete(call, topic, [receipt], acked)
        if expired:
            raise _expired()
        return reply({})

    return finish()


@action("DeleteMessageBatch", DeleteBatchBody, Scope.WRITE)
def delete_batch(call: SqsCall, body: DeleteBatchBody) -> Answer:
    """End some jobs."""
    topic = call.queue(queue_of_url(body.queue_url))
    require_entries(body.entries)
    entries = [_entry(call, topic, entry.id, entry.receipt_handle) for entry in body.entries]
    receipts = [entry.receipt for entry in entries if entry.receipt is not None]
    acked = _submit_ack(call, topic, receipts) if receipts else None

    async def finish() -> Reply:
        if acked is None:
            return _batch_reply(entries)
        expired = await _finish_delete(call, topic, receipts, acked)
        return _batch_reply(
            [
                entry._replace(refusal=_expired()) if entry.receipt in expired else entry
                for entry in entries
            ]
        )

    return finish()


def _submit_ack(
    call: SqsCall, topic: QueueTopic, receipts: Sequence[Receipt]
) -> Pending[cmd.SettleResult]:
    seqs = [receipt.seq for receipt in receipts]
    leases = [receipt.lease for receipt in receipts]
    command = cmd.AckJobs(topic.name, NODE, seqs, leases)
    return call.dispatcher.submit(command, _result, None)


async def _finish_delete(
    call: SqsCall,
    topic: QueueTopic,
    receipts: Sequence[Receipt],
    acked: Pending[cmd.SettleResult],
) -> set[Receipt]:
    """Wait for an ack; the receipts that have expired, of a queue where they then delete nothing.
    In a FIFO queue a message that is visible again has its place in its group."""
    await acked.ready()
    skipped = {*acked.answer().skipped}
    if is_fifo(topic):
        return {one for one in receipts if one.seq in skipped and topic.holds(one.seq)}
    for receipt in receipts:
        if receipt.seq in skipped and _is_last(topic, receipt):
            cancel = cmd.CancelJob(topic.name, receipt.seq)
            cancelled: Pending[Any] = call.dispatcher.submit(cancel, _result, None)
            await cancelled.ready()
            cancelled.answer()
    return set()


def _expired() -> SqsRefusal:
    return SqsRefusal(INVALID_PARAMETER, "the receipt handle has expired")


def _is_last(topic: QueueTopic, receipt: Receipt) -> bool:
    """Whether a job waits that was not received since."""
    queue = topic.queue
    job = queue.jobs.get(receipt.seq)
    if job is None or not job.live or receipt.seq in queue.held:
        return False
    return job.lease == receipt.lease


@action("ChangeMessageVisibility", VisibilityBody, Scope.WRITE)
def change_visibility(call: SqsCall, body: VisibilityBody) -> Answer:
    """Extend a lease, or end it."""
    topic = call.queue(queue_of_url(body.queue_url))
    timeout_s = number("VisibilityTimeout", body.visibility_timeout, 0, VISIBILITY_S_MAX) or 0
    receipt = _receipt(call, topic, body.receipt_handle)
    changed = _submit_change(call, topic, receipt, timeout_s)

    async def finish() -> Reply:
        refusal = await _problem(topic, receipt, changed)
        if refusal is not None:
            raise refusal
        return reply({})

    return finish()


@action("ChangeMessageVisibilityBatch", VisibilityBatchBody, Scope.WRITE)
def change_visibility_batch(call: SqsCall, body: VisibilityBatchBody) -> Answer:
    """Extend some leases, or end them."""
    topic = call.queue(queue_of_url(body.queue_url))
    require_entries(body.entries)
    entries = []
    for entry in body.entries:
        found = _entry(call, topic, entry.id, entry.receipt_handle)
        try:
            timeout_s = number("VisibilityTimeout", entry.visibility_timeout, 0, VISIBILITY_S_MAX)
        except SqsRefusal as refusal:
            found = found._replace(receipt=None, refusal=refusal)
        else:
            found = found._replace(timeout_s=timeout_s or 0)
            if timeout_s is None:
                missing = "the request must contain the parameter VisibilityTimeout"
                refused = SqsRefusal(MISSING_PARAMETER, missing)
                found = found._replace(receipt=None, refusal=refused)
        entries.append(found)
    changes = [
        _submit_change(call, topic, entry.receipt, entry.timeout_s)
        if entry.receipt is not None
        else None
        for entry in entries
    ]

    async def finish() -> Reply:
        settled = []
        for entry, changed in zip(entries, changes, strict=True):
            refusal = entry.refusal
            if changed is not None and entry.receipt is not None:
                refusal = await _problem(topic, entry.receipt, changed)
            settled.append(entry._replace(refusal=refusal))
        return _batch_reply(settled)

    return finish()


def _submit_change(
    call: SqsCall, topic: QueueTopic, receipt: Receipt, timeout_s: int
) -> Pending[Any]:
    command: cmd.Command[Any]
    if timeout_s:
        command = cmd.ExtendLeases(
            topic.name, NODE, [receipt.seq], timeout_s * 1000, [receipt.lease]
        )
    else:
        command = cmd.NackJobs(topic.name, NODE, [receipt.seq], [receipt.lease], delay_ms=0)
    return call.dispatcher.submit(command, _result, None)


async def _problem(topic: QueueTopic, receipt: Receipt, changed: Pending[Any]) -> SqsRefusal | None:
    """Why a timeout could not be changed; None when it was."""
    await changed.ready()
    if not changed.answer().skipped:
        return None
    if topic.holds(receipt.seq):
        return SqsRefusal(MESSAGE_NOT_INFLIGHT, "the message is not in flight under this handle")
    return SqsRefusal(
        INVALID_PARAMETER,
        "the receipt handle is invalid: the message does not exist, so that its visibility timeout "
        "cannot be changed",
    )


def _receipt(call: SqsCall, topic: QueueTopic, handle: str) -> Receipt:
    """What a receipt handle for a queue says.

    Raises:
        SqsRefusal: It is not one of this queue.
    """
    receipt = read_handle(call.log, handle)
    if receipt is None:
        raise SqsRefusal(RECEIPT_HANDLE_IS_INVALID, "the input receipt handle is invalid")
    if receipt.instance != topic.number:
        raise SqsRefusal(
            RECEIPT_HANDLE_IS_INVALID, "the input receipt handle is not one of this queue"
        )
    return receipt


def _entry(call: SqsCall, topic: QueueTopic, identity: str, handle: str) -> _BatchEntry:
    try:
        return _BatchEntry(identity, _receipt(call, topic, handle), None)
    except SqsRefusal as refusal:
        return _BatchEntry(identity, None, refusal)


def _batch_reply(entries: Sequence[_BatchEntry]) -> Reply:
    done = [{"Id": entry.id} for entry in entries if entry.refusal is None]
    failed = [failure(entry.id, entry.refusal) for entry in entries if entry.refusal is not None]
    return reply({"Successful": done, "Failed": failed or None})
