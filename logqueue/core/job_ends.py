"""That jobs of a queue have come to an end, and who wants to know.

Owns: the form in which `apply` reports ends, and the protocol of listeners. Must not know: any
listener, events, the log.

Ends are spread over many events: acks, rejects, dead letters, cancels, evictions. What depends on
them all (results, batches) does not look at those events, but is a listener of its queue
(`QueueState.end_listeners`). A queue without one does no work for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from logqueue.events.event import JobEndKind

Q_contra = TypeVar("Q_contra", contravariant=True)


class JobEnds(NamedTuple):
    """Some jobs of a queue end, all in the same way.

    Attributes:
        seqs: The jobs, each once, in any order. At replay the record of a job may not be known:
            its segment of the log is gone.
        outcome: How they end.
        at: When, ms since the epoch.
        node: Whose doing it is; "" when time or an operator ends them.
        reason: Of "dead_lettered": why.
        segment: Replay learns of this end only from this segment of the jobs log and those behind
            it; 0 when it is not logged.
    """

    seqs: Sequence[int]
    outcome: JobEndKind
    at: int
    node: str = ""
    reason: str = ""
    segment: int = 0


class EndListener(Protocol[Q_contra]):
    """Learns of the ends of all live jobs of a queue (a `QueueTopic`), each exactly once."""

    def jobs_ended(self, topic: Q_contra, ends: JobEnds) -> None:
        """Jobs are about to end: their records and leases are still there to be looked at.

        Called by `apply` only, live and at replay alike. The deletion of a whole topic is not
        reported job by job.
        """
