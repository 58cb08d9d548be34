"""Whether the writer of a replica is there: by what it changes, and by our own clock alone.

Owns: for how long a writer is watched before it counts as gone. Must not know: what follows.
"""

from __future__ import annotations

from logqueue.replica.reading import ReplicaReader

WATCH_S = 4.0
"""A writer changes its heartbeat every second. If it is there all the same, it is fenced, and
finds the other one alive when it starts again."""

LOOK_S = 0.5


def is_at_rest(reader: ReplicaReader, seconds: float = WATCH_S) -> bool:
    """Whether the writer does nothing: it has handed over, or its heartbeat does not change.

    Args:
        reader: Of the replica.
        seconds: How long to watch it, unless it changes something before.

    Raises:
        ReplicaUnreadable: There is no replica.
        StoreError: The store cannot be read.
    """
    before = reader.manifest().manifest
    if before.is_released:
        return True
    beat = reader.heartbeat()
    rest = seconds
    while True:
        reader.pause(min(LOOK_S, rest))
        rest -= LOOK_S
        if reader.heartbeat() != beat or reader.manifest().manifest != before:
            return False
        if rest <= 0:
            return True
