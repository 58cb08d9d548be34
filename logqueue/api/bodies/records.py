"""The shapes of writes: bytes to the command that appends a batch.

Owns: the members of a write and of its records, their types and bounds. Must not know: how a write
is decided, replies, routes. Payload bytes are checked and stripped of blanks once, on the way in;
they are never decoded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from io import BytesIO
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import msgspec

from logqueue.api.bodies.reader import BodyReader, decode
from logqueue.core import commands as cmd
from logqueue.errors import BatchTooLarge, InvalidRequest, LogqueueError, RecordTooLarge
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model import limits
from logqueue.model.config import U64, TopicOptions, is_topic_name, require_topic_name

_ABSENT: Any = msgspec.UNSET
"""No value. An empty Raw would do, but no JSON Schema could be made of such a default."""
_STEP_BYTES = 512 << 10
_STEP_RECORD_BYTES = 1 << 10
"""What a record costs beside its bytes."""


_R = TypeVar("_R", bound="RecordBody")

Unique = Literal["waiting", "running", "kept"]
UNIQUE_FOR: Mapping[Unique, int] = {"waiting": 0, "running": 1, "kept": 2}
"""How long a job has its key, as the column `UNIQUE` has it."""

Priority = Annotated[int, msgspec.Meta(ge=0, le=limits.JOB_PRIORITY_MAX)]


class RecordBody(msgspec.Struct, forbid_unknown_fields=True):
    """One record of a write, as most are."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = _ABSENT


class AppendBody(msgspec.Struct):
    """`POST /v0/topics/:topic`.

    Attributes:
        are_jobs: Whether its records are `JobBody`.
        disable_backpressure: Checked, and nothing more: the API has it, no write waits here.
    """

    are_jobs: ClassVar[bool] = False

    records: Sequence[RecordBody]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicOptions | None = None
    disable_backpressure: bool = False


class JobBody(RecordBody, forbid_unknown_fields=False):
    """One record with everything it may say."""

    delay_ms: U64 | None = None
    not_before: U64 | None = None
    ttl_ms: U64 | None = None
    max_deliveries: U64 | None = None
    key: str | None = None
    on_conflict: cmd.OnConflict | None = None
    unique: Unique | None = None
    on_duplicate: cmd.OnConflict | None = None
    priority: Priority | None = None
    group: str | None = None
    then: Sequence[StepBody] | None = None
    batch: str | None = None


class StepBody(msgspec.Struct):
    """One step of a chain."""

    topic: str
    record: JobBody


class JobsBody(AppendBody):
    """A write whose records say more than most, or have unknown members."""

    are_jobs: ClassVar[bool] = True

    records: Sequence[JobBody]


class StrictJobBody(JobBody, forbid_unknown_fields=True):
    """One record with everything it may say, and nothing else."""

    then: Sequence[StrictStepBody] | None = None


class StrictStepBody(StepBody, forbid_unknown_fields=True):
    """One step of a chain that says nothing else."""

    record: StrictJobBody


Content = tuple[bytes, tuple[cmd.Keyed, ...]]
"""A block, and which of its records have keys."""


class PackedRecords(Sequence[Any]):
    """The records of a large body, packed in small steps: see `packing`. There is nothing left of
    them but their number and their block."""

    def __init__(self, count: int, content: Content | LogqueueError) -> None:
        """Hold a block.

        Args:
            count: How many records there were.
            content: What became of them, or what is wrong with one.
        """
        self._count = count
        self._content = content

    @property
    def content(self) -> Content:
        """What became of them.

        Raises:
            LogqueueError: What is wrong with one.
        """
        if isinstance(self._content, LogqueueError):
            raise self._content
        return self._content

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        raise TypeError("packed records are counted only")


class _PlainAppend(AppendBody, forbid_unknown_fields=True):
    """The write of most producers."""


class _StrictAppend(JobsBody, forbid_unknown_fields=True):
    """Every write without unknown members."""

    records: Sequence[StrictJobBody]


read_append_body = BodyReader(
    JobsBody,
    _PlainAppend,
    _StrictAppend,
    strips_blanks=True,
    is_open=attrgetter("config"),
).read
"""Bytes to an `AppendBody`. One of plain records pays nothing for what its records do not say."""

_meta_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def append_command(topic: str, body: AppendBody, header_key: str | None) -> cmd.Append:
    """The command of a decoded write.

    Raises:
        InvalidRequest, BatchTooLarge, RecordTooLarge: A bound is exceeded; nothing was changed.
    """
    count = len(body.records)
    if not 0 < count <= limits.RECORDS_PER_WRITE_MAX:
        raise wrong_count(count)
    key = body.idempotency_key if body.idempotency_key is not None else header_key
    if key is not None and len(key.encode("utf-8", "surrogatepass")) > limits.KEY_BYTES_MAX:
        raise InvalidRequest(f"the idempotency key is over {limits.KEY_BYTES_MAX} bytes")
    config = body.config.resolved() if body.config is not None else None
    block, keyed = content_of(body.records, body.node, are_jobs=body.are_jobs)
    return cmd.Append(topic, block, count, key, body.create, config, keyed)


def content_of(records: Sequence[RecordBody], batch_node: str | None, *, are_jobs: bool) -> Content:
    """What becomes of the records of a body, packed before or not; `batch_node` is the producer of
    those that name none.

    Raises:
        InvalidRequest, RecordTooLarge: A record is out of bounds.
    """
    if isinstance(records, PackedRecords):
        return records.content
    if are_jobs:
        return pack_jobs(cast("Sequence[JobBody]", records), batch_node)
    data: list[bytes] = []
    for record in records:
        is_bare = record.tag is None and record.node is None and record.meta is _ABSENT
        if not is_bare or len(record.data) > limits.RECORD_BYTES_MAX:
            break
        data.append(record.data)
    if batch_node is None and len(data) == len(records):
        return blocks.pack_bare(data), ()
    texts = _Texts()
    texts.add(records, 0, batch_node)
    return blocks.pack(texts.used()), ()


def wrong_count(count: int) -> LogqueueError:
    """The refusal of a write of no records, or of too many."""
    if not count:
        return InvalidRequest("`records` must hold at least one record")
    return BatchTooLarge(
        f"{count} records in one write; send at most {limits.RECORDS_PER_WRITE_MAX}"
    )


def pack_jobs(records: Sequence[JobBody], batch_node: str | None) -> Content:
    """The block of records that may say everything, and which of them have keys.

    Raises:
        InvalidRequest, RecordTooLarge: A record is out of bounds.
    """
    texts = _Texts()
    texts.add(records, 0, batch_node)
    own = _JobTexts()
    own.add(records, 0)
    return blocks.pack([*texts.used(), *own.used()], numbers=_numbers(records)), tuple(own.keyed)


def packing(
    records: Sequence[RecordBody], batch_node: str | None, *, are_jobs: bool
) -> Generator[None, None, PackedRecords]:
    """Pack many records in small steps. An invalid record is reported when they are requested, so
    that other checks come before."""
    content: Content | LogqueueError = b"", ()
    if records:
        try:
            content = yield from _packing(records, batch_node, are_jobs=are_jobs)
        except LogqueueError as refusal:
            content = refusal
    return PackedRecords(len(records), content)


def _packing(
    records: Sequence[RecordBody], batch_node: str | None, *, are_jobs: bool
) -> Generator[None, None, Content]:
    texts = _Texts()
    for first, some in _portions(records):
        texts.add(some, first, batch_node)
        yield
    own = _JobTexts()
    numbers: dict[int, list[int]] = {}
    if are_jobs:
        all_jobs = cast("Sequence[JobBody]", records)
        for first, jobs in _portions(all_jobs):
            own.add(jobs, first)
            yield
        numbers = _numbers(all_jobs)
        yield
    head, values = blocks.layout([*texts.used(), *own.used()], numbers)
    # Written over in place: a buffer that grows is copied whole now and then.
    block = BytesIO(bytes(sum(map(len, head)) + sum(map(len, values))))
    block.writelines(head)
    size = 0
    for value in values:
        block.write(value)
        size += len(value)
        if size >= _STEP_BYTES:
            yield
            size = 0
    # Nor is this a copy: the buffer becomes the block.
    return block.getvalue(), tuple(own.keyed)


def _portions(records: Sequence[_R]) -> Iterator[tuple[int, Sequence[_R]]]:
    """Records that are packed in one step, with the place of the first."""
    first = size = 0
    for place, record in enumerate(records, 1):
        size += len(record.data) + _STEP_RECORD_BYTES
        if size >= _STEP_BYTES:
            yield first, records[first:place]
            first, size = place, 0
    yield first, records[first:]


def _numbers(records: Sequence[JobBody]) -> dict[int, list[int]]:
    """The number columns that any record uses."""
    numbers = {
        blocks.DELAY: [record.delay_ms or 0 for record in records],
        blocks.NOT_BEFORE: [record.not_before or 0 for record in records],
        blocks.TTL: [record.ttl_ms or 0 for record in records],
        blocks.MAX_DELIVERIES: [record.max_deliveries or 0 for record in records],
        blocks.PRIORITY: [record.priority or 0 for record in records],
        blocks.UNIQUE: [UNIQUE_FOR[record.unique or "waiting"] for record in records],
    }
    return {column: values for column, values in numbers.items() if any(values)}


class _Texts:
    """The text columns of a batch, after the checks of each record."""

    def __init__(self) -> None:
        self._columns: list[list[bytes]] = [[], [], [], []]

    def add(self, records: Sequence[RecordBody], first: int, batch_node: str | None) -> None:
        """Take in records, the first of which has this place in its batch."""
        texts = self._columns
        for index, record in enumerate(records, first):
            node = batch_node if record.node is None else record.node
            meta = b"" if record.meta is _ABSENT else bytes(record.meta)
            if meta == b"null":
                meta = b""
            _check_record(f"records[{index}]", record, node, meta)
            tag = b"" if record.tag is None else blocks.write_string(record.tag)
            texts[blocks.DATA].append(bytes(record.data))
            texts[blocks.TAG].append(tag)
            texts[blocks.NODE].append(b"" if node is None else blocks.write_string(node))
            texts[blocks.META].append(meta)

    def used(self) -> list[list[bytes] | None]:
        """The columns, None for one that no record uses."""
        return [column if any(column) else None for column in self._columns]


class _JobTexts:
    """The text columns that only jobs have, after the checks of each job."""

    def __init__(self) -> None:
        self.keyed: list[cmd.Keyed] = []
        self._keys: list[bytes] = []
        self._groups: list[bytes] = []
        self._follow: list[bytes] = []

    def add(self, records: Sequence[JobBody], first: int) -> None:
        """Take in jobs, the first of which has this place in its batch."""
        for index, record in enumerate(records, first):
            _check_job(f"records[{index}]", record)
            key = b"" if record.key is None else blocks.write_string(record.key)
            self._keys.append(key)
            group = b"" if record.group is None else blocks.write_string(record.group)
            self._groups.append(group)
            follows = record.then is not None or record.batch is not None
            self._follow.append(_follow(f"records[{index}]", record) if follows else b"")
            if record.key is not None:
                on_conflict = record.on_duplicate or record.on_conflict or "replace"
                self.keyed.append(cmd.Keyed(index, key, on_conflict))

    def used(self) -> list[list[bytes] | None]:
        """The columns from the key on, None for one that no job uses."""
        columns = (self._keys, self._groups, self._follow)
        return [column if any(column) else None for column in columns]


def _check_record(where: str, record: RecordBody, node: str | None, meta: bytes) -> None:
    if record.tag is not None and len(record.tag.encode()) > limits.TAG_BYTES_MAX:
        raise InvalidRequest(f"{where}.tag is over {limits.TAG_BYTES_MAX} bytes")
    if node is not None and len(node.encode()) > limits.NODE_BYTES_MAX:
        raise InvalidRequest(f"{where}.node is over {limits.NODE_BYTES_MAX} bytes")
    if len(meta) > limits.META_BYTES_MAX:
        raise InvalidRequest(f"{where}.meta is over {limits.META_BYTES_MAX} bytes of JSON")
    if meta.startswith(b"{") and len(decode(_meta_keys, meta)) > limits.META_KEYS_MAX:
        raise InvalidRequest(f"{where}.meta has over {limits.META_KEYS_MAX} keys")
    if len(record.data) + len(meta) > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"{where} has {len(record.data) + len(meta)} bytes of data and meta; "
            f"at most {limits.RECORD_BYTES_MAX} are allowed"
        )


def _follow(where: str, record: JobBody) -> bytes:
    """What follows a job, after the checks of each step."""
    if record.batch is not None and not is_topic_name(record.batch):
        raise InvalidRequest(
            f"{where}.batch is an invalid batch name: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - starting with a letter or digit"
        )
    steps = record.then or []
    if len(steps) > limits.STEPS_MAX:
        raise InvalidRequest(
            f"{where}.then has {len(steps)} steps; give at most {limits.STEPS_MAX}"
        )
    then = [_step(f"{where}.then[{place}]", step) for place, step in enumerate(steps)]
    text = follow.fragment(record.batch, then)
    if len(text) > limits.FOLLOW_BYTES_MAX:
        raise InvalidRequest(
            f"{where}.then has {len(text)} bytes of JSON; at most {limits.FOLLOW_BYTES_MAX} are "
            "allowed: send references to large data"
        )
    return text


NOT_OF_STEPS = ("then", "key", "on_conflict", "unique", "on_duplicate")
"""What the record of a step cannot have."""


def _step(where: str, step: StepBody) -> follow.StoredStep:
    require_topic_name(step.topic)
    record, within = step.record, f"{where}.record"
    for name in NOT_OF_STEPS:
        if getattr(record, name) is not None:
            raise InvalidRequest(
                f"{within} has `{name}`, which a step cannot have"
                + ("; put all steps into one list" if name == "then" else "")
            )
    meta = b"" if record.meta is _ABSENT else bytes(record.meta)
    if meta == b"null":
        meta = b""
    _check_record(within, record, record.node, meta)
    _check_job(within, record)
    if record.batch is not None:
        _follow(within, record)
    return follow.StoredStep(
        step.topic,
        follow.StoredRecord(
            record.data,
            record.tag,
            record.node,
            msgspec.Raw(meta) if meta else follow.NO_META,
            record.delay_ms or 0,
            record.not_before or 0,
            record.ttl_ms or 0,
            record.max_deliveries or 0,
            record.priority or 0,
            record.group,
            record.batch,
        ),
    )


def _check_job(where: str, record: JobBody) -> None:
    if record.delay_ms is not None and record.not_before is not None:
        raise InvalidRequest(f"{where} has both `delay_ms` and `not_before`; give one of them")
    if record.delay_ms is not None and record.delay_ms > limits.DELAY_MS_MAX:
        raise InvalidRequest(f"{where}.delay_ms must be at most {limits.DELAY_MS_MAX} (a year)")
    for name in ("not_before", "ttl_ms", "max_deliveries"):
        value: int | None = getattr(record, name)
        if value is not None and value > limits.U64_MAX:
            raise InvalidRequest(f"{where}.{name} must be at most {limits.U64_MAX}")
    if record.group is not None:
        if not record.group:
            raise InvalidRequest(f"{where}.group is empty; leave it out for a job without a group")
        if len(record.group.encode()) > limits.GROUP_BYTES_MAX:
            raise InvalidRequest(f"{where}.group is over {limits.GROUP_BYTES_MAX} bytes")
    both = record.on_conflict, record.on_duplicate
    if None not in both and both[0] != both[1]:
        raise InvalidRequest(
            f"{where} has `on_conflict` {both[0]} and `on_duplicate` {both[1]}, which mean the "
            "same: give one of them"
        )
    if record.key is None:
        if record.unique is not None:
            raise InvalidRequest(f"{where} has `unique` without `key`; give both, or none")
        return
    if not record.key:
        raise InvalidRequest(f"{where}.key is empty; leave it out for a job without a key")
    if len(record.key.encode()) > limits.JOB_KEY_BYTES_MAX:
        raise InvalidRequest(f"{where}.key is over {limits.JOB_KEY_BYTES_MAX} bytes")
