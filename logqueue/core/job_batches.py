"""Batches of jobs: how many of their jobs are left, and which of them are over.

Owns: the counts, and which batches are due to end. Must not know: commands, events, what writes a
callback.

Jobs left are the live records that name the batch: topics count them as records come and go, and
each change is added here. Jobs done are counted by acks. All others that have joined have failed,
however they ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sortedcontainers import SortedDict

from logqueue.core.topic import Topic
from logqueue.errors import BatchNotFound, LogqueueError
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.events.split_block import Block, head_of
from logqueue.model.job_batch import BatchCallback


class JobBatch:
    """The state of one batch. Times are ms since the epoch, 0 for not yet.

    Attributes:
        joined: Jobs that were ever in it.
        done: Jobs that were acked.
        error: Why its callback was refused last; None when it was not. Not replayed.
    """

    __slots__ = (
        "closed_at", "created_at", "done", "ended_at", "error", "joined", "name", "on_done",
        "on_problem",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        created_at: int,
        on_done: BatchCallback | None,
        on_problem: BatchCallback | None,
    ) -> None:
        self.name = name
        self.created_at = created_at
        self.on_done = on_done
        self.on_problem = on_problem
        self.closed_at = self.ended_at = 0
        self.joined = self.done = 0
        self.error: LogqueueError | None = None


class JobBatches:
    """All batches of a server.

    Attributes:
        by_name: In name order.
        left: Jobs that are left, by batch; without those that have none.
        places: The topics where jobs of a batch are or were, by their numbers.
        due: Batches that are closed and have no jobs left, and whose end is to be decided.
        ended: How many have ended.
    """

    __slots__ = ("by_name", "due", "ended", "left", "places")

    def __init__(self) -> None:
        self.by_name: SortedDict[str, JobBatch] = SortedDict()
        self.left: dict[str, int] = {}
        self.places: dict[str, set[int]] = {}
        self.due: dict[str, None] = {}
        self.ended = 0

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def running(self) -> int:
        """How many have not ended."""
        return len(self.by_name) - self.ended

    def find(self, name: str) -> JobBatch | None:
        """A batch by name, None when there is none."""
        found: JobBatch | None = self.by_name.get(name)
        return found

    def named(self, name: str) -> JobBatch:
        """A batch by name.

        Raises:
            BatchNotFound: There is none.
        """
        found = self.find(name)
        if found is None:
            raise BatchNotFound.named(name)
        return found

    def failed(self, batch: JobBatch) -> int:
        """Jobs of a batch that ended otherwise than by an ack."""
        return batch.joined - batch.done - self.left.get(batch.name, 0)

    def is_open_to(self, batch: JobBatch) -> bool:
        """Whether jobs may join: until it is closed, and after that while jobs are left."""
        return not batch.closed_at or self.left.get(batch.name, 0) > 0

    # -- changes (by core/apply only) ------------------------------------------------------------

    def add(self, batch: JobBatch) -> None:
        """Take in a batch; one of the same name goes."""
        self.remove(batch.name)
        self.by_name[batch.name] = batch
        self.ended += batch.ended_at > 0

    def remove(self, name: str) -> None:
        """Remove a batch."""
        batch: JobBatch | None = self.by_name.pop(name, None)
        if batch is not None:
            self.ended -= batch.ended_at > 0
        self.due.pop(name, None)
        self.places.pop(name, None)

    def join(self, block: Block) -> None:
        """Records were added."""
        if head_of(block)[1] >> blocks.FOLLOW & 1:
            for name, count in follow.members_in(blocks.BlockView(block)).items():
                self.joined(name, count)

    def joined(self, name: str, count: int) -> None:
        """Jobs have joined a batch."""
        batch = self.find(name)
        if batch is not None:
            batch.joined += count

    def acked(self, counts: Iterable[tuple[str, int]]) -> None:
        """Jobs were acked."""
        for name, count in counts:
            batch = self.find(name)
            if batch is not None:
                batch.done += count

    def move(self, topic: int, moved: Mapping[str, int]) -> None:
        """Jobs of batches have come to a topic, or are gone from it."""
        for name, change in moved.items():
            left = self.left.get(name, 0) + change
            if left:
                self.left[name] = left
                self.places.setdefault(name, set()).add(topic)
            else:
                self.left.pop(name, None)
                self.look(name)

    def look(self, name: str) -> None:
        """Note a batch whose end is to be decided."""
        batch = self.find(name)
        if batch is not None and batch.closed_at and not batch.ended_at and name not in self.left:
            self.due[name] = None

    def settle(self, topics: Iterable[Topic]) -> None:
        """Count again what is there, after a replay: jobs may have been lost without an event."""
        self.left.clear()
        self.due.clear()
        for topic in topics:
            attributes = topic.attributes
            if attributes is not None and attributes.members:
                attributes.moved.clear()
                self.move(topic.number, attributes.members)
        for name, batch in self.by_name.items():
            # Of a topic that is not logged, only memory knows who joined.
            batch.joined = max(batch.joined, batch.done + self.left.get(name, 0))
            self.look(name)
