"""A lease and the job under it, as the projection of a queue keeps them.

Owns: the two records. Must not know: queues, how leases change hands.
"""

from __future__ import annotations

from collections.abc import Sequence


class Grant:
    """The leases one claimer got in one pass: one holder, one deadline.

    Attributes:
        deadline: ms since the epoch; the leases are valid while now <= deadline.
        stream: Work stream that holds them, 0 for a claim call.
        live: How many of `seqs` are still under this grant.
    """

    __slots__ = ("deadline", "live", "node", "seqs", "stream")

    def __init__(self, node: str, deadline: int, stream: int, seqs: Sequence[int]) -> None:
        self.node = node
        self.deadline = deadline
        self.stream = stream
        self.seqs = seqs
        self.live = len(seqs)

    def __lt__(self, other: Grant) -> bool:
        return self.deadline < other.deadline


class JobEntry:
    """A job that has been delivered at least once and is not finished.

    Attributes:
        error: The last error a worker gave with it, or None.
        given_back: Deliveries that do not count towards `max_deliveries`.
    """

    __slots__ = ("deliveries", "error", "given_back", "grant", "lease", "live", "ready_at")

    def __init__(self) -> None:
        self.deliveries = 0
        self.given_back = 0
        self.error: str | None = None
        self.lease = 0
        self.grant: Grant | None = None
        self.ready_at = 0
        self.live = True
