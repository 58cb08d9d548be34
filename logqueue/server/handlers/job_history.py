"""What the leases log still tells of one job.

Owns: reading a bounded part of the leases log, and which events speak of a job. Runs beside the
event loop. Must not know: HTTP, the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from logqueue import events as ev
from wal import Log, WalError

FRAMES_MAX = 50_000
ENTRIES_MAX = 1000


class LeaseHistory(NamedTuple):
    """What happened to a job, oldest first.

    Attributes:
        is_whole: False when the log has more than was read, or has let its oldest part go.
    """

    entries: list[dict[str, Any]]
    is_whole: bool


def read_history(leases: Log, topic: int, seq: int, deliveries: int) -> LeaseHistory:
    """Collect what happened to a job of a topic instance.

    Args:
        leases: The leases log; only its files are read.
        topic: Number of the topic instance.
        seq: The job.
        deliveries: How often it was claimed, which tells whether anything is missing.
    """
    latest: deque[bytes] = deque(maxlen=FRAMES_MAX)
    found: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)
    try:
        for frame in leases.read():
            latest.append(frame.payload)
    except (WalError, OSError):
        # Compaction has dropped a segment meanwhile; report what was read.
        pass
    for payload in latest:
        try:
            transaction = ev.decode(payload)
        except msgspec.MsgspecError:
            continue
        for event in transaction.events:
            if event.topic == topic:
                found.extend(_history_entries(event, seq))
    claims = sum(entry["event"] == "claimed" for entry in found)
    return LeaseHistory([*found], claims >= deliveries)


def _history_entries(event: ev.Event, seq: int) -> Iterator[dict[str, Any]]:
    """What an event of the job's topic says of it."""
    for change in event.job_changes():
        if change.kind in _SHOWN and seq in change.seqs:
            yield {"at": event.at, **_SHOWN[change.kind](event, change, change.seqs.index(seq))}


def _claimed(event: ev.Event, change: ev.JobChange, place: int) -> dict[str, Any]:
    return {
        "event": "claimed",
        "node": change.node,
        "deadline": change.deadline,
        "lease_id": f"lease_{change.first_lease + place:x}",
    }


def _extended(event: ev.Event, change: ev.JobChange, place: int) -> dict[str, Any]:
    return {"event": "extended", "node": change.node, "deadline": change.deadline}


def _released(event: ev.Event, change: ev.JobChange, place: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"event": change.reason, "node": change.node}
    if change.dues[place] > event.at:
        entry["not_before"] = change.dues[place]
    if change.error is not None:
        entry["error"] = change.error
    return entry


def _held(event: ev.Event, change: ev.JobChange, place: int) -> dict[str, Any]:
    return {"event": "held"}


def _unheld(event: ev.Event, change: ev.JobChange, place: int) -> dict[str, Any]:
    return {"event": "released"}


_SHOWN: dict[ev.JobChangeKind, Callable[[ev.Event, ev.JobChange, int], dict[str, Any]]] = {
    "claimed": _claimed,
    "extended": _extended,
    "released": _released,
    "held": _held,
    "unheld": _unheld,
}
"""The entry of each kind of change that is shown."""
