"""The body of opening a batch of jobs.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

import msgspec

from logqueue.api.bodies.reader import BodyReader, decode, without_blanks
from logqueue.api.bodies.records import JobBody, pack_jobs
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.errors import InvalidRequest, RecordTooLarge
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import require_topic_name
from logqueue.model.job_batch import BatchCallback, require_batch_name

NOT_OF_CALLBACKS = ("key", "on_conflict", "unique", "on_duplicate")
"""What the record of a callback cannot have: it is written once, whatever waits."""


class CallbackBody(msgspec.Struct):
    """A record that is written when a batch ends."""

    topic: str
    record: JobBody


class OpenBatchBody(msgspec.Struct):
    """`POST /v0/batches`."""

    name: str | None = None
    on_done: CallbackBody | None = None
    on_problem: CallbackBody | None = None


class _RawCallback(msgspec.Struct):
    record: msgspec.Raw


class _RawBody(msgspec.Struct):
    """The records as they were sent."""

    on_done: _RawCallback | None = None
    on_problem: _RawCallback | None = None


_read = BodyReader(OpenBatchBody, strips_blanks=True).read
_raw = msgspec.json.Decoder(_RawBody)


def open_command(body: bytes, ignore: Ignore, name: str) -> cmd.OpenBatch:
    """The command of a batch's body.

    Args:
        body: The whole body.
        ignore: Called with unknown members.
        name: For a batch that is not named.

    Raises:
        InvalidRequest: A member is invalid.
        RecordTooLarge: The record of a callback is larger than it may be.
    """
    read: OpenBatchBody = _read(body, ignore)
    raw = decode(_raw, without_blanks(body))
    if read.name is not None:
        require_batch_name(read.name)
        name = read.name
    return cmd.OpenBatch(
        name,
        _callback("on_done", name, read.on_done, raw.on_done),
        _callback("on_problem", name, read.on_problem, raw.on_problem),
    )


def _callback(
    where: str, batch: str, body: CallbackBody | None, raw: _RawCallback | None
) -> BatchCallback | None:
    if body is None or raw is None:
        return None
    require_topic_name(body.topic)
    record = body.record
    for name in NOT_OF_CALLBACKS:
        if getattr(record, name) is not None:
            raise InvalidRequest(f"{where}.record has `{name}`, which a callback cannot have")
    if record.batch == batch:
        raise InvalidRequest(
            f"{where}.record.batch is the batch itself: it has ended when this is written"
        )
    try:
        block, _ = pack_jobs([record], None)
    except InvalidRequest as refusal:
        message = refusal.message.replace("records[0]", f"{where}.record")
        raise InvalidRequest(message) from None
    meta = blocks.BlockView(block).text(blocks.META, 0)
    size = len(record.data) + len(meta)
    if size > limits.CALLBACK_BYTES_MAX:
        raise RecordTooLarge(
            f"{where}.record has {size} bytes of data and meta; that of a callback may have "
            f"{limits.CALLBACK_BYTES_MAX}: keep larger data elsewhere, and name its place"
        )
    return BatchCallback(body.topic, bytes(raw.record), block)
