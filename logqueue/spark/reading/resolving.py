"""What "latest" or a time means now, as offsets that stay what they are.

Owns: `resolved`, for both formats. Must not know: how a store looks at its log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logqueue.spark.errors import PipelineError
from logqueue.spark.reading import options
from logqueue.spark.reading.advancing import EventsCourse, RecordsCourse
from logqueue.spark.reading.offsets import Place, RecordsOffset
from logqueue.spark.reading.options import EARLIEST, LATEST, Reading
from logqueue.spark.reading.readers import Store


def resolved(at: str | int, given: Mapping[str, str]) -> dict[str, Any]:
    """See `logqueue.spark.reading.offsets.resolve`.

    Raises:
        PipelineError: An option is wrong, or there is no log there.
    """
    names = {name.lower() for name in given}
    if ("url" in names) == ("path" in names):
        raise PipelineError("resolve needs path (files) or url (a server), one of them")
    store, reading = _store("url" in names, given)
    if isinstance(at, str) and at.strip().lower() in (EARLIEST, LATEST):
        return _word(at.strip().lower(), store, reading)
    moment = options.parse_time(str(at), "at")
    snapshot = store.look()
    if reading.events == "leases":
        raise PipelineError(
            "events=leases has no offsets by time: give startingTimestamp to a batch, or start a "
            "stream at latest or earliest and filter its rows by ts"
        )
    return RecordsOffset(
        {
            name: Place(topic.log, snapshot.seq_at(topic, moment), topic.told)
            for name, topic in snapshot.held().items()
        }
    ).json()


def _store(is_live: bool, given: Mapping[str, str]) -> tuple[Store, Reading]:
    if is_live:
        from logqueue.spark.reading.live_source import LiveStore

        asked = options.live(given)
        return LiveStore(asked), asked.reading
    from logqueue.spark.reading.wal_source import WalStore

    files = options.offline(given)
    return WalStore(files), files.reading


def _word(word: str, store: Store, reading: Reading) -> dict[str, Any]:
    snapshot = store.look()
    if reading.events == "leases":
        course = EventsCourse(reading)
        events = snapshot.held_events(settled=True)
        return course.initial(events) if word == EARLIEST else course.end(events)
    records = RecordsCourse(reading)
    held = snapshot.held()
    return records.initial(held) if word == EARLIEST else records.end(held)
