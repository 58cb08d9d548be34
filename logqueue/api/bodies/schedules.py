"""The body of configuring a schedule.

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
from logqueue.firing_times import require_cron, require_zone
from logqueue.model import limits
from logqueue.model.config import U64, require_topic_name
from logqueue.model.schedule import CatchUp, ScheduleOptions

STAMPS = ("schedule", "scheduled_for")
"""What a firing adds to the `meta` of its job."""
_STAMP_BYTES = len('"schedule":"","scheduled_for":,') + limits.NAME_BYTES_MAX + 20


class ScheduleBody(msgspec.Struct):
    """`PUT /v0/schedules/:schedule`."""

    topic: str
    record: JobBody
    cron: str | None = None
    every_ms: U64 | None = None
    timezone: str = "UTC"
    jitter_ms: U64 = 0
    catch_up: CatchUp = "one"
    paused: bool | None = None


class _RawRecord(msgspec.Struct):
    """The record as it was sent."""

    record: msgspec.Raw


_read = BodyReader(ScheduleBody, strips_blanks=True).read
_raw = msgspec.json.Decoder(_RawRecord)
_meta = msgspec.json.Decoder(dict[str, msgspec.Raw])


def schedule_command(
    schedule: str, body: bytes, ignore: Ignore, *, if_absent: bool
) -> cmd.PutSchedule:
    """The command of a schedule's body.

    Raises:
        InvalidRequest: A member is invalid.
        RecordTooLarge: The record is larger than that of a schedule may be.
    """
    read: ScheduleBody = _read(body, ignore)
    require_topic_name(read.topic)
    cron, every_ms = _times(read)
    if read.jitter_ms > limits.SCHEDULE_JITTER_MS_MAX:
        raise InvalidRequest(f"`jitter_ms` must be at most {limits.SCHEDULE_JITTER_MS_MAX} (a day)")
    block, keyed = _record(read.record)
    options = ScheduleOptions(
        read.topic,
        bytes(decode(_raw, without_blanks(body)).record),
        block,
        cron,
        every_ms,
        read.timezone,
        read.jitter_ms,
        read.catch_up,
        keyed[0].on_conflict if keyed else "",
    )
    return cmd.PutSchedule(schedule, options, read.paused, if_absent)


def _times(body: ScheduleBody) -> tuple[str, int]:
    require_zone(body.timezone)
    if (body.cron is None) == (body.every_ms is None):
        raise InvalidRequest("give either `cron` or `every_ms`")
    if body.cron is not None:
        return require_cron(body.cron), 0
    every_ms = body.every_ms or 0
    if not limits.EVERY_MS_MIN <= every_ms <= limits.EVERY_MS_MAX:
        raise InvalidRequest(
            f"`every_ms` must be {limits.EVERY_MS_MIN} (a second) to {limits.EVERY_MS_MAX} (a year)"
        )
    return "", every_ms


def _record(record: JobBody) -> tuple[bytes, tuple[cmd.Keyed, ...]]:
    """The block of the record, which has room for what a firing adds.

    Raises:
        InvalidRequest, RecordTooLarge: It is out of bounds.
    """
    try:
        block, keyed = pack_jobs([record], None)
    except InvalidRequest as refusal:
        raise InvalidRequest(refusal.message.replace("records[0]", "record")) from None
    meta = blocks.BlockView(block).text(blocks.META, 0)
    if meta:
        if not meta.startswith(b"{"):
            raise InvalidRequest("record.meta must be an object: each firing adds to it")
        members = decode(_meta, meta)
        taken = [name for name in STAMPS if name in members]
        if taken:
            raise InvalidRequest(f"record.meta.{taken[0]} is set by the server: leave it out")
        if len(members) + len(STAMPS) > limits.META_KEYS_MAX:
            raise InvalidRequest(
                f"record.meta has over {limits.META_KEYS_MAX - len(STAMPS)} keys: the server adds "
                f"{len(STAMPS)}"
            )
        if len(meta) + _STAMP_BYTES > limits.META_BYTES_MAX:
            raise InvalidRequest(
                f"record.meta is over {limits.META_BYTES_MAX - _STAMP_BYTES} bytes of JSON: the "
                "server adds to it"
            )
    size = len(record.data) + len(meta)
    if size > limits.SCHEDULE_RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"record has {size} bytes of data and meta; that of a schedule may have "
            f"{limits.SCHEDULE_RECORD_BYTES_MAX}: keep larger data elsewhere, and name its place"
        )
    return block, keyed
