"""What a log says of schedules and batches of jobs.

Owns: which firings and ends of batches are not as they should be, and who was in which batch. Must
not know: frames, engines, how findings are worded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

FAULTS_MAX: Final = 10_000
"""Of each kind; more than that are not kept."""


class NotedFiring(NamedTuple):
    """One firing of a schedule.

    Attributes:
        scheduled_for, next_at, at: ms since the epoch.
        topic: Number of the instance it wrote to.
        seq: The job it made, replaced or found; 0 for none.
        written: Records appended to the topic in the same transaction.
    """

    scheduled_for: int
    next_at: int
    at: int
    topic: int
    seq: int
    result: str
    written: int


@dataclass(slots=True)
class _Schedule:
    next_at: int | None = None
    last: int = 0


@dataclass(slots=True)
class BatchLife:
    """A batch from its opening to its removal.

    Attributes:
        callbacks: Topics of `on_done` and `on_problem`, "" for none; None when the log at hand
            does not tell.
        joined: By number of a topic: (order, seqs) of jobs that joined.
        ended: Order of its end; None before.
    """

    name: str
    callbacks: tuple[str, str] | None = None
    closed: bool | None = None
    joined: dict[int, list[tuple[int, Sequence[int]]]] = field(default_factory=dict)
    ended: int | None = None


class PlanHistory:
    """Schedules and batches over the life of a log.

    Attributes:
        repeated: (schedule, firing, order) of times that had been fired before.
        unlike: (schedule, firing, order) of firings that wrote another number of jobs than stated.
        batches: All lives of all batches.
        ends: (batch, jobs joined, jobs done, records by topic, order) of ends of batches.
        twice: (batch, order) of ends of batches that had ended before.
        early: (batch, order) of ends of batches that were not closed.
    """

    def __init__(self) -> None:
        self._schedules: dict[str, _Schedule] = {}
        self._open: dict[str, BatchLife] = {}
        self.repeated: list[tuple[str, NotedFiring, int]] = []
        self.unlike: list[tuple[str, NotedFiring, int]] = []
        self.batches: list[BatchLife] = []
        self.ends: list[tuple[BatchLife, int, int, Mapping[int, int], int]] = []
        self.twice: list[tuple[BatchLife, int]] = []
        self.early: list[tuple[BatchLife, int]] = []

    # -- schedules ---------------------------------------------------------------------------------

    def schedule_set(self, name: str, next_at: int) -> None:
        """A schedule has its next firing at this time."""
        self._schedules.setdefault(name, _Schedule()).next_at = next_at

    def schedule_removed(self, name: str) -> None:
        """A schedule is gone; one that is created again may fire at the same times."""
        self._schedules.pop(name, None)

    def schedule_fired(self, name: str, firing: NotedFiring, order: int) -> None:
        """A schedule has fired. One that an operator has run keeps its next time."""
        known = self._schedules.setdefault(name, _Schedule())
        is_run_by_hand = firing.next_at == known.next_at or (
            known.next_at is None and firing.scheduled_for == firing.at
        )
        if not is_run_by_hand:
            if firing.scheduled_for <= known.last and len(self.repeated) < FAULTS_MAX:
                self.repeated.append((name, firing, order))
            known.last = max(known.last, firing.scheduled_for)
        known.next_at = firing.next_at
        is_new = firing.result == "created"
        if firing.written != is_new and len(self.unlike) < FAULTS_MAX:
            self.unlike.append((name, firing, order))

    # -- batches -----------------------------------------------------------------------------------

    def _batch(self, name: str) -> BatchLife:
        known = self._open.get(name)
        if known is None:
            known = self._open[name] = BatchLife(name)
            self.batches.append(known)
        return known

    def batch_opened(self, name: str, on_done: str, on_problem: str, order: int) -> None:
        """A batch exists."""
        self._open.pop(name, None)
        batch = self._batch(name)
        batch.callbacks, batch.closed = (on_done, on_problem), False

    def batch_closed(self, name: str) -> None:
        """A batch is closed."""
        self._batch(name).closed = True

    def batch_removed(self, name: str) -> None:
        """A batch is gone."""
        self._open.pop(name, None)

    def joined(self, topic: int, members: Mapping[str, Sequence[int]], order: int) -> None:
        """Jobs joined batches."""
        for name, seqs in members.items():
            self._batch(name).joined.setdefault(topic, []).append((order, seqs))

    def batch_ended(
        self, name: str, joined: int, done: int, written: Mapping[int, int], order: int
    ) -> None:
        """A batch has ended."""
        batch = self._batch(name)
        if batch.ended is not None:
            self.twice.append((batch, order))
            return
        batch.ended = order
        if batch.closed is False:
            self.early.append((batch, order))
        self.ends.append((batch, joined, done, written, order))
