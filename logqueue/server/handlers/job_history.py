"""What the leases log still tells of one job.

Owns: reading a bounded part of the leases log, and which events speak of a job. Runs beside the
event loop. Must not know: HTTP, the state.
"""

from __future__ import annotations

from collections import deque
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
        # Tidying has taken a segment away meanwhile; what was read is told.
        pass
    for payload in latest:
        try:
            transaction = ev.decode(payload)
        except msgspec.MsgspecError:
            continue
        for event in transaction.events:
            if event.topic == topic:
                found.extend(_told(event, seq))
    claims = sum(entry["event"] == "claimed" for entry in found)
    return LeaseHistory([*found], claims >= deliveries)


def _told(event: ev.AnyEvent, seq: int) -> list[dict[str, Any]]:
    """What an event of the job's topic says of it."""
    entry: dict[str, Any] = {"at": event.at}
    if isinstance(event, ev.JobsClaimed):
        lease = event.first_lease
        for node, deadline, _, seqs in event.grants:
            if seq in seqs:
                number = lease + seqs.index(seq)
                entry |= {"event": "claimed", "node": node, "deadline": deadline}
                return [entry | {"lease_id": f"lease_{number:x}"}]
            lease += len(seqs)
    elif isinstance(event, ev.JobsExtended) and seq in event.seqs:
        return [entry | {"event": "extended", "node": event.node, "deadline": event.deadline}]
    elif isinstance(event, ev.JobsReleased) and seq in event.seqs:
        due = event.dues[event.seqs.index(seq)] if event.dues else event.ready_at
        entry |= {"event": event.reason, "node": event.node}
        if due > event.at:
            entry["not_before"] = due
        if event.error is not None:
            entry["error"] = event.error
        return [entry]
    elif isinstance(event, ev.JobsHeld) and any(job[0] == seq for job in event.jobs):
        return [entry | {"event": "held"}]
    elif isinstance(event, ev.HoldsReleased) and seq in event.seqs:
        return [entry | {"event": "released"}]
    return []
