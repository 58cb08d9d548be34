"""A write of new records with all that follows from it.

Owns: what an archive keeps of jobs that a write evicts. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logqueue import events as ev
from logqueue.core.batch import Record
from logqueue.core.decide.appends import NOTHING_FREED, append_event, evicted_with
from logqueue.core.decide.endings import archive
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import Texts


def write(
    state: State,
    topic: Topic,
    block: bytes,
    count: int,
    now: int,
    key: str | None = None,
    replaced: Mapping[int, Texts] | None = None,
    hops: int = 0,
    freed: tuple[int, int] = NOTHING_FREED,
) -> list[ev.Event]:
    """The events that add a batch to a topic, evictions and their archive copies included.

    Args:
        state, topic: Read only.
        block: The records.
        count: How many.
        now: The clock.
        key: Idempotency key, or None.
        replaced: New contents, by seq, that the same write gives to waiting jobs.
        hops: How many routers the records have come through.
        freed: See `append_event`.

    Raises:
        RecordTooLarge, TopicFull, Throttled: See `append_event`; also of the archive.
    """
    appended = append_event(state, topic, block, count, now, key, hops, freed)
    if not appended.dropped or topic.config.archive is None:
        return [appended]
    evicted = _evicted(topic, appended, replaced or {})
    return [*archive(state, topic, evicted, "dropped", now, hops=hops), appended]


def _evicted(
    topic: Topic, appended: ev.RecordsAppended, replaced: Mapping[int, Texts]
) -> Iterator[Record]:
    for seq, ts, texts in evicted_with(topic, appended.cap_floor, [appended.block], appended.at):
        yield seq, ts, replaced.get(seq, texts)
