"""What follows a job, as the block keeps it: the rest of its chain, and its batch.

Owns: the column FOLLOW of a block, `{"batch":name,"then":[step,...]}` with the members that a job
has, in this order and without blanks; and the block of the steps that begin. Must not know: which
jobs end, topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from logqueue.events import block as blocks
from logqueue.events.split_block import Block

INPUT = "$input"
"""Where the meta of a step has the result of the job before it."""

STRAY_META = "$meta"
"""Where it keeps a meta of its own that is not an object."""

_BATCH = b'{"batch":"'
_THEN = b'"then":['

_encoder = msgspec.json.Encoder()
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


NO_META = msgspec.Raw(b"")
"""That a step has none."""


class StoredRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a step: what a write of it could say, but for keys."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = NO_META
    delay_ms: int = 0
    not_before: int = 0
    ttl_ms: int = 0
    max_deliveries: int = 0
    priority: int = 0
    group: str | None = None
    batch: str | None = None


class StoredStep(msgspec.Struct, frozen=True):
    """One step of a chain: a record, and the topic that it is written to."""

    topic: str
    record: StoredRecord


class Follow(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that follows a job."""

    batch: str | None = None
    then: list[StoredStep] = []


_decoder = msgspec.json.Decoder(Follow)
_steps = msgspec.json.Decoder(list[StoredStep])


def fragment(batch: str | None, then: Sequence[StoredStep]) -> bytes:
    """What a block keeps of a job; b"" when nothing follows it."""
    if batch is None and not then:
        return b""
    return _encoder.encode(Follow(batch, [*then]))


def has_steps(text: bytes) -> bool:
    """Whether steps follow a job."""
    if text.startswith(_BATCH):
        text = b"{" + text[text.index(b'"', len(_BATCH)) + 2 :]
    return text.startswith(b"{" + _THEN)


def may_have_steps(view: blocks.BlockView) -> bool:
    """Whether steps may follow a job of a block: certain when it says no."""
    return view.may_have(blocks.FOLLOW, 0, view.count, (_THEN,))


def batch_of(text: bytes) -> str | None:
    """The batch of a job. Names have no character that JSON escapes."""
    if not text.startswith(_BATCH):
        return None
    return text[len(_BATCH) : text.index(b'"', len(_BATCH))].decode()


def steps_of(text: bytes) -> list[StoredStep]:
    """The steps that follow a job."""
    return _decoder.decode(text).then if has_steps(text) else []


def names_in(block: Block) -> set[str]:
    """The topics of the steps that follow the jobs of a block, and all batches that are named."""
    found: set[str] = set()
    for text in {*(blocks.BlockView(block).column(blocks.FOLLOW) or ())} - {b""}:
        follow = _decoder.decode(text)
        batches = (follow.batch, *(step.record.batch for step in follow.then))
        found.update(batch for batch in batches if batch is not None)
        found.update(step.topic for step in follow.then)
    return found


def steps_text(text: bytes) -> str:
    """The steps of a job as JSON, "" when there are none."""
    steps = steps_of(text)
    return _encoder.encode(steps).decode() if steps else ""


def read_steps(text: str) -> list[StoredStep]:
    """Steps that were kept as JSON; none where the text is something else."""
    try:
        return _steps.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return []


def members_in(view: blocks.BlockView, places: Sequence[int] | None = None) -> Counter[str]:
    """How many jobs of a block are in which batch.

    Args:
        view: The block.
        places: Only these records; None for all.
    """
    column = view.column(blocks.FOLLOW)
    if column is None:
        return Counter()
    found: Counter[str] = Counter()
    texts = Counter(column if places is None else [column[place] for place in places])
    for text, count in texts.items():
        batch = batch_of(text)
        if batch is not None:
            found[batch] += count
    return found


def with_input(meta: bytes, result: bytes) -> bytes:
    """The meta of a step with the result of the job before it (JSON, b"" when it had none)."""
    return with_member(meta, INPUT, result or b"null")


def with_member(meta: bytes, name: str, value: bytes) -> bytes:
    """A meta with one more member, JSON; one that is not an object is kept in it."""
    members: dict[str, msgspec.Raw] = {}
    if meta.startswith(b"{"):
        members = _objects.decode(meta)
    elif meta:
        members[STRAY_META] = msgspec.Raw(meta)
    members[name] = msgspec.Raw(value)
    return _encoder.encode(members)


def begin(chains: Sequence[tuple[Sequence[StoredStep], bytes]]) -> bytes:
    """The block of the first steps of some chains, each carrying the steps behind it.

    Args:
        chains: Steps, one at least, and the result that the first of them gets as its input.
    """
    records = [steps[0].record for steps, _ in chains]
    columns = [
        [bytes(record.data) for record in records],
        [_text(record.tag) for record in records],
        [_text(record.node) for record in records],
        [with_input(bytes(steps[0].record.meta), result) for steps, result in chains],
        [],
        [_text(record.group) for record in records],
        [fragment(steps[0].record.batch, steps[1:]) for steps, _ in chains],
    ]
    numbers = {
        blocks.DELAY: [record.delay_ms for record in records],
        blocks.NOT_BEFORE: [record.not_before for record in records],
        blocks.TTL: [record.ttl_ms for record in records],
        blocks.MAX_DELIVERIES: [record.max_deliveries for record in records],
        blocks.PRIORITY: [record.priority for record in records],
    }
    return blocks.pack(
        [column if any(column) else None for column in columns],
        numbers={column: values for column, values in numbers.items() if any(values)},
    )


def _text(value: str | None) -> bytes:
    return b"" if value is None else blocks.write_string(value)
