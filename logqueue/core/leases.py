"""A lease and the job under it, as the state of a queue keeps them.

Owns: the two records. Must not know: queues, how leases change hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class Grant(msgspec.Struct, eq=False, gc=False):
    """The leases one claimer got in one pass: one holder, one deadline.

    Attributes:
        deadline: ms since the epoch; the leases are valid while now <= deadline.
        stream: Work stream that holds them, 0 for a claim call.
        live: How many of `seqs` are still under this grant.
    """

    node: str
    deadline: int
    stream: int
    seqs: Sequence[int]
    live: int = 0

    def __lt__(self, other: Grant) -> bool:
        return self.deadline < other.deadline


class JobProgress(NamedTuple):
    """What a worker has said of a job that it holds.

    Attributes:
        share: How far it is, 0 to 1; None when it did not say.
        note: A short text, "" for none.
    """

    share: float | None = None
    note: str = ""


class JobEntry(msgspec.Struct, eq=False, gc=False):
    """A job that has been delivered at least once and is not finished.

    Attributes:
        error: The last error a worker gave with it, or None.
        given_back: Deliveries that do not count towards `max_deliveries`.
    """

    # Made by the hundred with each claim: a struct takes half the time of a class with slots.
    deliveries: int = 0
    lease: int = 0
    grant: Grant | None = None
    given_back: int = 0
    error: str | None = None
    ready_at: int = 0
    live: bool = True
