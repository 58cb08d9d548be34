"""Who works on which queue, as far as this run of the server has seen.

Owns: what was observed of each node. Observations are not replayed and their memory is bounded: the
node that was seen least recently is forgotten first. Must not know: HTTP, who holds which lease now
(that is asked of the queue).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from logqueue import events as ev

NODES_MAX = 10_000


class Observed:
    """What one node did on one queue.

    Attributes:
        seen_at: When it last called, streamed or settled; ms since the epoch.
        claimed, acked, nacked, rejected: Jobs.
        worked: How often it settled or extended some. Giving jobs back uncounted is not work.
        marked, before: How many it had acked at the last mark, and at the one before; `mark` is
            which one that was: see `Workers.mark`.
    """

    __slots__ = (
        "acked", "before", "claimed", "mark", "marked", "nacked", "rejected", "seen_at", "worked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seen_at = 0
        self.claimed = 0
        self.acked = 0
        self.nacked = 0
        self.rejected = 0
        self.worked = 0
        self.mark = 0
        self.marked = 0
        self.before = 0


class Workers:
    """The nodes of all queues."""

    def __init__(self, nodes_max: int = NODES_MAX) -> None:
        self._nodes_max = nodes_max
        self._nodes: OrderedDict[tuple[int, str], Observed] = OrderedDict()
        self._mark = 0
        self._marked_at = (0, 0)

    def seen(self, topic: int, node: str, now: int) -> Observed:
        """Note that a node has called about a queue instance."""
        place = (topic, node)
        observed = self._nodes.get(place)
        if observed is None:
            observed = self._nodes[place] = Observed()
            if len(self._nodes) > self._nodes_max:
                self._nodes.popitem(last=False)
        else:
            self._nodes.move_to_end(place)
        observed.seen_at = now
        return observed

    def of(self, topic: int) -> Iterator[tuple[str, Observed]]:
        """What is known of the nodes of one queue instance."""
        for (number, node), observed in self._nodes.items():
            if number == topic:
                yield node, observed

    def latest(self) -> Iterator[tuple[int, str, Observed]]:
        """All nodes of all queue instances, the last seen first; nothing may be seen meanwhile."""
        for (number, node), observed in reversed(self._nodes.items()):
            yield number, node, observed

    def begin_mark(self, now: int) -> list[Observed]:
        """Begin a mark, from which rates are measured later, some seconds after the last.

        Returns:
            The nodes that were seen since the last: each is for `Workers.set_mark`.
        """
        self._mark += 1
        since = self._marked_at[1]
        self._marked_at = (since, now)
        found = []
        for observed in reversed(self._nodes.values()):
            if observed.seen_at < since:
                break
            found.append(observed)
        return found

    def set_mark(self, observed: Observed) -> None:
        """Note what a node has done up to the last mark. Others have done nothing since theirs."""
        observed.before, observed.marked = observed.marked, observed.acked
        observed.mark = self._mark

    def acked_per_s(self, observed: Observed, now: int) -> float:
        """Jobs that a node acks per second, the mean since the mark before the last, or since the
        first."""
        since = self._marked_at[0] or self._marked_at[1]
        if not since or now <= since:
            return 0.0
        before = observed.before if observed.mark == self._mark else observed.marked
        return (observed.acked - before) * 1000 / (now - since)

    def event(self, event: ev.Event, changes: Sequence[ev.JobChange]) -> None:
        """Count what one applied event says of nodes."""
        for change in changes:
            if not change.node or (change.kind == "released" and change.reason != "nack"):
                continue
            observed = self.seen(event.topic, change.node, event.at)
            if change.kind == "claimed":
                observed.claimed += change.count
                continue
            observed.worked += not change.uncounted
            if change.kind == "acked":
                observed.acked += change.count
            elif change.kind == "released":
                observed.nacked += change.count
            elif change.kind != "extended":
                observed.rejected += len(change.seqs)
        if event.ends_topic:
            for place in [place for place in self._nodes if place[0] == event.topic]:
                del self._nodes[place]
