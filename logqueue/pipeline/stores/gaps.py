"""What a log or a server does not have any longer.

Owns: the gaps of all topic instances of a place. Must not know: what readers make of them.
"""

from __future__ import annotations

from typing import Any

from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.place import InputPlace
from logqueue.pipeline.stores.live_store import LiveStore
from logqueue.pipeline.stores.wal_store import WalStore
from logqueue.segments.ranges import Ranges


def gaps_of(place: InputPlace) -> dict[str, Ranges]:
    """Seqs of dropped segments, by log_id; what became of their records is unknown.

    Raises:
        PipelineError: There is no log, or it cannot be reached.
    """
    given = place.source_options()
    store: Any = (
        LiveStore(options.live(given))
        if place.url is not None
        else WalStore(options.offline(given))
    )
    snapshot = store.snapshot()
    return {
        topic.log: [*topic.gaps] for topic in (*snapshot.available().values(), *snapshot.older())
    }
