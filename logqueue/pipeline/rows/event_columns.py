"""Job events of a run of frames as columns.

Owns: which fields of events become which columns, for thousands of events at once. Must not know:
Arrow, who reads. `job_events.rows_of` says what an event means; the four kinds that nearly all
events are of are taken apart here field by field, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from logqueue import events as ev
from logqueue.pipeline.lifecycle.job_history import ACKED, CLAIMED, EVENTS, EXTENDED, RELEASED
from logqueue.segments.fast_decode import JOB_EVENTS, AppendEvents, no_cycles
from logqueue.segments.job_events import reason_of, rows_of
from logqueue.segments.known import KnownTopics
from logqueue.segments.payloads import payload_runs
from logqueue.segments.plan import SegmentRead
from logqueue.segments.walk import EventReader, EventRun

Longs = npt.NDArray[np.int64]

_KINDS = {name: kind for kind, name in enumerate(EVENTS)}
_MAX = int(np.iinfo(np.int64).max)
_TOPIC = attrgetter("topic")


class Words(NamedTuple):
    """A column of few different texts: the place of each row's in `words`, where None is none."""

    codes: npt.NDArray[np.int32]
    words: list[str | None]


class EventColumns(NamedTuple):
    """Job events, a row for each job; fields as in `JobTransition`.

    Attributes:
        kind: Place in `EVENTS`.
    """

    topic: Longs
    order: Longs
    at: Longs
    kind: Longs
    seq: Longs
    lease: Longs
    deadline: Longs
    ready_at: Longs
    worker: Words
    reason: Words
    detail: Words


def event_columns(data: bytes, read: SegmentRead, path: str = "") -> Iterator[EventColumns]:
    """The job events that a read takes of its segment, some thousand at a time, in the order of the
    log.

    Args:
        data: The segment from its first byte.
        read: What to take; made by `plan_events`.
        path: How errors name the segment.

    Raises:
        SegmentDamaged: The bytes are not what they were.
    """
    known = read.seeds.known()
    wanted = {topic.topic for topic in read.topics}
    reader = EventReader(read, path)
    for run in payload_runs(data, reader.path, length=read.bytes, checksum=read.crc32):
        with no_cycles():
            found = _columns(reader.decode(run), read, wanted, known)
        if found is not None:
            yield found
        if reader.is_over:
            return


class _Changes(NamedTuple):
    """Some jobs to which the same happened at once, several times: a row for each time.

    Attributes:
        place: Of the event in its run.
        lease: Of the first job; those of the others count up from it, unless it is 0.
    """

    place: Sequence[int] | Longs
    topic: Sequence[int] | Longs
    at: Sequence[int] | Longs
    kind: Longs
    seqs: Sequence[Sequence[int]]
    worker: Sequence[str]
    reason: Sequence[str]
    detail: Sequence[str | None]
    lease: Sequence[int] | Longs
    deadline: Sequence[int] | Longs
    ready_at: Sequence[int] | Longs


def _columns(
    run: EventRun, read: SegmentRead, wanted: Collection[int], known: KnownTopics
) -> EventColumns | None:
    kinds = [*map(type, run.events)]
    present = {*kinds} - JOB_EVENTS[read.log].passed
    parts = [
        part
        for kind in present & _BY_COLUMN.keys()
        for part in _of_kind(kind, kinds, run, read, wanted)
    ]
    rare = present - _BY_COLUMN.keys()
    parts += _one_by_one(rare, kinds, run, read, wanted, known)
    parts = [part for part in parts if len(part.place)]
    return _joined(parts, run.orders) if parts else None


def _joined(parts: Sequence[_Changes], orders: Sequence[int]) -> EventColumns:
    """All changes as rows, in the order of their events."""
    place = _longs(chain.from_iterable(part.place for part in parts))
    seqs: Sequence[Sequence[int]] = [*chain.from_iterable(part.seqs for part in parts)]
    by = np.argsort(place, kind="stable")
    if len(parts) > 1:
        seqs = [*map(seqs.__getitem__, by.tolist())]
    counts = _lengths(seqs)
    is_single = bool((counts == 1).all())

    def rows(column: Longs) -> Longs:
        found: Longs = column[by] if len(parts) > 1 else column
        return found if is_single else np.repeat(found, counts)

    def numbers(name: str) -> Longs:
        return rows(np.concatenate([_longs(getattr(part, name)) for part in parts]))

    def words(name: str) -> Words:
        texts = [*chain.from_iterable(getattr(part, name) for part in parts)]
        index = {text: code for code, text in enumerate(dict.fromkeys(texts))}
        codes = np.fromiter(map(index.__getitem__, texts), np.int64, len(texts))
        return Words(rows(codes).astype(np.int32), [text or None for text in index])

    at, due, lease = numbers("at"), numbers("ready_at"), numbers("lease")
    if not is_single:
        total = int(counts.sum())
        inner = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        lease = np.where(lease > 0, lease + inner, 0)
    return EventColumns(
        topic=numbers("topic"),
        order=rows(_longs(orders)[place]),
        at=at,
        kind=numbers("kind"),
        seq=np.fromiter(chain.from_iterable(seqs), np.int64),
        lease=lease,
        deadline=numbers("deadline"),
        ready_at=np.where(due > at, due, 0),
        worker=words("worker"),
        reason=words("reason"),
        detail=words("detail"),
    )


# -- the kinds that most events are of -------------------------------------------------------------


def _of_kind(
    kind: type, kinds: Sequence[type], run: EventRun, read: SegmentRead, wanted: Collection[int]
) -> Iterator[_Changes]:
    """What the events of one kind say, field by field; events with what is rare, row by row."""
    places = [place for place, its in enumerate(kinds) if its is kind]
    events = [*map(run.events.__getitem__, places)]
    if not {*map(_TOPIC, events)} <= set(wanted) or run.orders[0] < read.first_order:
        places = [
            place
            for place, event in zip(places, events, strict=True)
            if event.topic in wanted and run.orders[place] >= read.first_order
        ]
        events = [*map(run.events.__getitem__, places)]
    taken, is_rare = _BY_COLUMN[kind]
    if is_rare is not None:
        rare = [place for place, event in zip(places, events, strict=True) if is_rare(event)]
        if rare:
            yield _row_by_row(rare, run, read, KnownTopics())
            left = set(rare)
            places = [place for place in places if place not in left]
            events = [*map(run.events.__getitem__, places)]
    if events:
        yield taken(_longs(places), events)


def _claimed(places: Longs, events: Sequence[ev.JobsClaimed]) -> _Changes:
    at, topic, first, grants = _fields(events, "at", "topic", "first_lease", "grants")
    of = np.repeat(np.arange(len(events)), _lengths(grants))
    worker, deadline, _, seqs = zip(*chain.from_iterable(grants), strict=True)
    counts = _lengths(seqs)
    before = np.cumsum(counts) - counts
    # Leases count up through the grants of an event.
    of_event = before[np.searchsorted(of, of)]
    rows = len(of)
    return _Changes(
        places[of],
        _longs(topic)[of],
        _longs(at)[of],
        _all(CLAIMED, rows),
        seqs,
        worker,
        [""] * rows,
        [None] * rows,
        _longs(first)[of] + before - of_event,
        deadline,
        _all(0, rows),
    )


def _extended(places: Longs, events: Sequence[ev.JobsExtended]) -> _Changes:
    at, topic, worker, deadline, seqs = _fields(events, "at", "topic", "node", "deadline", "seqs")
    rows = len(events)
    none = _all(0, rows)
    return _Changes(
        places, topic, at, _all(EXTENDED, rows), seqs, worker, [""] * rows, [None] * rows, none,
        deadline, none,
    )  # fmt: skip


def _released(places: Longs, events: Sequence[ev.JobsReleased]) -> _Changes:
    at, topic, worker, due, seqs, error = _fields(
        events, "at", "topic", "node", "ready_at", "seqs", "error"
    )
    rows = len(events)
    none = _all(0, rows)
    reasons = [*map(reason_of, events)]
    return _Changes(
        places, topic, at, _all(RELEASED, rows), seqs, worker, reasons, error, none, none, due
    )


def _acked(places: Longs, events: Sequence[ev.JobsAcked]) -> _Changes:
    at, topic, worker, seqs = _fields(events, "at", "topic", "node", "seqs")
    rows = len(events)
    none = _all(0, rows)
    return _Changes(
        places, topic, at, _all(ACKED, rows), seqs, worker, [""] * rows, [None] * rows, none, none,
        none,
    )  # fmt: skip


_BY_COLUMN: dict[type, tuple[Callable[..., _Changes], Callable[[Any], Any] | None]] = {
    ev.JobsClaimed: (_claimed, lambda event: not event.grants),
    ev.JobsExtended: (_extended, None),
    ev.JobsReleased: (_released, attrgetter("dues")),
    ev.JobsAcked: (_acked, attrgetter("shares")),
}
"""By kind: what takes its events apart, and which of them are not for it."""


# -- all others ------------------------------------------------------------------------------------


def _one_by_one(
    rare: Collection[type],
    kinds: Sequence[type],
    run: EventRun,
    read: SegmentRead,
    wanted: Collection[int],
    known: KnownTopics,
) -> Iterator[_Changes]:
    """What events of other kinds say; topics and floors that are known move along."""
    if not rare:
        return
    if rare == {AppendEvents}:
        # Nearly all writes evict nothing.
        places = [
            place
            for place, event in enumerate(run.events)
            if type(event) is AppendEvents and event.cap_floor
        ]
    else:
        places = [place for place, kind in enumerate(kinds) if kind in rare]
    taken = []
    for place in places:
        event = run.events[place]
        if event.topic in wanted:
            found = _row_by_row([place], run, read, known)
            if run.orders[place] >= read.first_order and len(found.place):
                taken.append(found)
        event.visit_topics(known)
    yield from taken


def _row_by_row(
    places: Iterable[int], run: EventRun, read: SegmentRead, known: KnownTopics
) -> _Changes:
    rows = [
        (place, row)
        for place in places
        for row in rows_of(run.events[place], run.orders[place], read.log, known)
    ]
    return _Changes(
        [place for place, _ in rows],
        [row.topic for _, row in rows],
        [row.at for _, row in rows],
        _longs(_KINDS[row.event] for _, row in rows),
        [(row.seq,) for _, row in rows],
        [row.worker for _, row in rows],
        [row.reason for _, row in rows],
        [row.detail for _, row in rows],
        [row.lease for _, row in rows],
        [row.deadline for _, row in rows],
        [row.ready_at for _, row in rows],
    )


# -- arrays ----------------------------------------------------------------------------------------


def _fields(events: Sequence[Any], *names: str) -> list[Any]:
    return [*zip(*map(attrgetter(*names), events), strict=True)]


def _longs(numbers: Iterable[int] | Longs) -> Longs:
    if isinstance(numbers, np.ndarray):
        return numbers
    listed = numbers if isinstance(numbers, list | tuple) else [*numbers]
    try:
        return np.fromiter(listed, np.int64, len(listed))
    except OverflowError:
        return np.fromiter((min(number, _MAX) for number in listed), np.int64, len(listed))


def _lengths(items: Sequence[Sequence[Any]]) -> Longs:
    return np.fromiter(map(len, items), np.int64, len(items))


def _all(number: int, rows: int) -> Longs:
    return np.full(rows, number, np.int64)
