"""Transactions as readers decode them: what has nothing for them is passed over unread.

Owns: which events hold records, which tell of jobs, and which are needed to find either; decoding
of many frames at once. Must not know: what is done with them.

A run of frames is decoded in one call, as one array of transactions, and without the cycle
collector: it would look at hundreds of thousands of new objects again and again, none of which can
be garbage. That takes three quarters of the time where frames hold a single event.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from logqueue import events as ev
from logqueue.segments.payloads import PayloadRun


class RecordEvents(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Records of one topic that came in one event; at once the front part of a `RecordsAppended`.

    Millions of these are made, so they are none of the garbage collector's business.

    Attributes:
        at: When they were appended, ms since the epoch, unless the block brings its own times.
        topic: Number of the instance.
        first_seq: Of the first record, unless the block brings its own seqs.
        count: How many.
        block: See `logqueue.events.block`.
    """

    at: int
    topic: int
    first_seq: int
    count: int
    block: bytes


assert RecordEvents.__struct_config__.tag == ev.RecordsAppended.__struct_config__.tag
assert ev.RecordsAppended.__struct_fields__[: len(RecordEvents.__struct_fields__)] == (
    RecordEvents.__struct_fields__
)


class AppendEvents(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A `RecordsAppended` for readers of job events: its block is not looked at.

    Attributes:
        cap_floor: Highest seq that caps have evicted; 0 without any.
    """

    log: ClassVar[int] = ev.JOBS

    at: int
    topic: int
    first_seq: int
    count: int
    block: msgspec.Raw
    cap_floor: int = 0

    def visit_topics(self, to: ev.TopicVisitor) -> None:
        """See `Event.visit_topics`."""

    def job_changes(self) -> Sequence[ev.JobChange]:
        """See `Event.job_changes`."""
        if not self.cap_floor:
            return ()
        return (ev.JobChange("trimmed", (self.cap_floor,), "", 0, reason="cap"),)


assert ev.RecordsAppended.__struct_fields__[: len(AppendEvents.__struct_fields__)] == (
    AppendEvents.__struct_fields__
)


class EventDecoder(NamedTuple):
    """Decodes runs of frame payloads.

    Attributes:
        passed: Types of the events that it passes over: they have no fields.
        one: Decodes a payload: a transaction with `order` and `events`.
        many: Decodes an array of payloads, as a list of such.
    """

    passed: frozenset[type]
    one: Callable[[bytes], Any]
    many: Callable[[bytes], list[Any]]

    def decode(self, run: PayloadRun) -> list[Any]:
        """The transactions of a run. Call it in `no_cycles`.

        Raises:
            PayloadError: One is not a transaction.
        """
        payloads = run.payloads
        head = b"\xdd" + len(payloads).to_bytes(4, "big")
        try:
            return self.many(b"".join([head, *payloads]))
        except msgspec.MsgspecError:
            for offset, payload in zip(*run, strict=True):
                try:
                    self.one(payload)
                except msgspec.MsgspecError as error:
                    raise PayloadError(offset, str(error)) from error
            raise


class PayloadError(ValueError):
    """A frame whose payload is not a transaction.

    Attributes:
        offset: Where it begins in its segment.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(problem)
        self.offset = offset


@contextmanager
def no_cycles() -> Generator[None, None, None]:
    """Keeps the cycle collector from running, for a moment in which much is made and kept."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def records_decoder_of(kinds: Sequence[type[ev.Event]]) -> EventDecoder:
    """The decoder for readers of records, by the traits of the events. The events that it gives are
    `RecordEvents`, passed over, or as in core."""
    return _decoder(kinds, RecordEvents, lambda kind: kind.holds_records)


def jobs_decoder_of(
    kinds: Sequence[type[ev.Event]], log: Literal["jobs", "leases"]
) -> EventDecoder:
    """The decoder for readers of job events in one of the logs. The events that it gives are
    `AppendEvents`, passed over, or as in core."""

    def tells(kind: type[ev.Event]) -> bool:
        its_log = "jobs" if kind.log & ev.JOBS else "leases"
        return its_log == log and kind.job_changes is not ev.Event.job_changes

    return _decoder(kinds, AppendEvents, tells)


def _decoder(
    kinds: Sequence[type[ev.Event]], appended: type, is_wanted: Callable[[type[ev.Event]], bool]
) -> EventDecoder:
    wanted = [
        kind for kind in kinds if is_wanted(kind) or kind.visit_topics is not ev.Event.visit_topics
    ]
    passed = frozenset(
        msgspec.defstruct(
            f"{kind.__name__}Passed", [], tag=kind.__struct_config__.tag, array_like=True, gc=False
        )
        for kind in kinds
        if kind not in wanted
    )
    read = [kind for kind in wanted if kind is not ev.RecordsAppended]
    first = [appended] if ev.RecordsAppended in wanted else []
    transaction = msgspec.defstruct(
        "_Transaction",
        [("order", int), ("events", list[reduce(or_, [*first, *read, *passed])])],  # type: ignore[misc]
        array_like=True,
        gc=False,
    )
    one = msgspec.msgpack.Decoder(transaction)
    many: Any = msgspec.msgpack.Decoder(list[transaction])  # type: ignore[valid-type]
    return EventDecoder(passed, one.decode, many.decode)


RECORDS = records_decoder_of(ev.EVENTS)
JOB_EVENTS = {log: jobs_decoder_of(ev.EVENTS, log) for log in ("jobs", "leases")}
