"""Events of batches of jobs: opened, closed, ended, removed. `topic` is 0 in all of them."""

from __future__ import annotations

from typing import ClassVar

from logqueue.events.event import JOBS, Event, LoggedWhen, PlanVisitor, SpaceEffect, SyncedWhen
from logqueue.model.job_batch import BatchCallback


class JobBatchOpened(Event, frozen=True, array_like=True, tag=44):
    """A batch exists, and jobs may join it.

    Attributes:
        on_done, on_problem: What is written when it ends.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str
    on_done: BatchCallback | None
    on_problem: BatchCallback | None

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        done, problem = (c.topic if c is not None else "" for c in (self.on_done, self.on_problem))
        to.batch_opened(self, self.name, done, problem)


class JobBatchClosed(Event, frozen=True, array_like=True, tag=45):
    """No job joins a batch any longer, but while jobs of it are left."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.batch_closed(self, self.name)


class JobBatchEnded(Event, frozen=True, array_like=True, tag=46):
    """A batch that is closed has no jobs left; its callback is in the events before this one.

    Attributes:
        joined, done: How many jobs it had, and how many of them were acked.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str
    joined: int
    done: int

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.batch_ended(self, self.name, self.joined, self.done)


class JobBatchRemoved(Event, frozen=True, array_like=True, tag=47):
    """A batch is gone."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    space: ClassVar[SpaceEffect] = "frees"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.batch_removed(self, self.name)
