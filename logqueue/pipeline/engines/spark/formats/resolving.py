"""What "latest" or a time means now, as offsets that stay what they are.

Owns: `resolve`, for both formats. Must not know: how a store looks at its log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.offset_planner import EventsOffsetPlanner, RecordsOffsetPlanner
from logqueue.pipeline.reading.offsets import Place, RecordsOffset
from logqueue.pipeline.reading.options import EARLIEST, LATEST, Reading
from logqueue.pipeline.stores.store import Store


def resolve(at: str | int = "latest", **options: str) -> str:
    """Offsets to start a stream with, as text: what "latest" or a time means now.

    A stream cannot be given "latest" itself: Spark asks for its start more than once and keeps no
    answer, so records that come in between would be lost.

        start = resolve("latest", url="http://127.0.0.1:4000", topics="orders")
        spark.readStream.format("logqueue").option("startingOffsets", start)...

    Args:
        at: "earliest", "latest", or a time (ISO 8601, or ms since the epoch): the first record
            that was taken in then or later.
        options: Of the source, under their own names: `path` reads files, `url` asks a server.

    Raises:
        PipelineError: An option is wrong, or there is no log there.
    """
    return json.dumps(_resolved(at, options), separators=(",", ":"))


def _resolved(at: str | int, given: Mapping[str, str]) -> dict[str, Any]:
    names = {name.lower() for name in given}
    if ("url" in names) == ("path" in names):
        raise PipelineError("resolve needs path (files) or url (a server), one of them")
    store, reading = _store("url" in names, given)
    if isinstance(at, str) and at.strip().lower() in (EARLIEST, LATEST):
        return _word(at.strip().lower(), store, reading)
    moment = options.parse_time(str(at), "at")
    snapshot = store.snapshot()
    if reading.events == "leases":
        raise PipelineError(
            "events=leases has no offsets by time: give startingTimestamp to a batch, or start a "
            "stream at latest or earliest and filter its rows by ts"
        )
    return RecordsOffset(
        {
            name: Place(topic.log, snapshot.seq_at(topic, moment), topic.complete_from)
            for name, topic in snapshot.available().items()
        }
    ).json()


def _store(is_live: bool, given: Mapping[str, str]) -> tuple[Store, Reading]:
    if is_live:
        from logqueue.pipeline.stores.live_store import LiveStore

        asked = options.live(given)
        return LiveStore(asked), asked.reading
    from logqueue.pipeline.stores.wal_store import WalStore

    files = options.offline(given)
    return WalStore(files), files.reading


def _word(word: str, store: Store, reading: Reading) -> dict[str, Any]:
    snapshot = store.snapshot()
    if reading.events == "leases":
        planner = EventsOffsetPlanner(reading)
        events = snapshot.available_events(settled=True)
        return planner.initial(events) if word == EARLIEST else planner.end(events)
    records = RecordsOffsetPlanner(reading)
    available = snapshot.available()
    return records.initial(available) if word == EARLIEST else records.end(available)
