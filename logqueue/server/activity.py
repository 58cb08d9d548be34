"""What has happened on each topic since it was last looked at.

Owns: the counts, and which topics have any: those on which an event was applied. A topic on which
nothing happens has none, and costs nothing. Must not know: events, who looks at it, or when.
"""

from __future__ import annotations


class ActivityCounts:
    """What has happened on one topic instance.

    Attributes:
        appended: Records written, copies included.
        claimed: Deliveries of jobs.
        acked: Jobs completed.
        nacked: Jobs given back by a nack that counts.
        expired: Leases that expired.
        dead: Jobs moved to dead letters.
    """

    __slots__ = ("acked", "appended", "claimed", "dead", "expired", "nacked")

    def __init__(self) -> None:
        self.appended = 0
        self.claimed = 0
        self.acked = 0
        self.nacked = 0
        self.expired = 0
        self.dead = 0


class Activity(dict[int, ActivityCounts]):
    """The counts by topic instance. A missing one is made when it is asked for."""

    def __missing__(self, number: int) -> ActivityCounts:
        counts = self[number] = ActivityCounts()
        return counts

    def take(self) -> dict[int, ActivityCounts]:
        """All there is, and begin again with none."""
        taken = dict(self)
        self.clear()
        return taken
