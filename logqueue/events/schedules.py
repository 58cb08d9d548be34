"""Events of schedules: what they are, and that they have fired."""

from __future__ import annotations

from typing import ClassVar

from logqueue.events.event import JOBS, Event, LoggedWhen, PlanVisitor, SyncedWhen
from logqueue.model.schedule import FiringResult, ScheduleOptions


class ScheduleSet(Event, frozen=True, array_like=True, tag=48):
    """A schedule exists with these options; an existing one keeps its counters. `topic` is 0.

    Attributes:
        next_at: When it fires next, ms since the epoch; 0 for never, or while it is paused.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str
    options: ScheduleOptions
    paused: bool
    next_at: int

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.schedule_set(self, self.name, self.next_at)


class ScheduleRemoved(Event, frozen=True, array_like=True, tag=49):
    """A schedule is gone; what it wrote stays. `topic` is 0."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.schedule_removed(self, self.name)


class ScheduleFired(Event, frozen=True, array_like=True, tag=50):
    """A schedule has fired: what it wrote to `topic` is in the events beside this one.

    Attributes:
        scheduled_for: The time of the firing, ms since the epoch.
        next_at: The time of the next, as of `ScheduleSet`.
        seq: The job it made, replaced or found; 0 when it was refused for its key.
        result: What became of its record.
        missed: Firings before this one that are passed over.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "as_configured"

    name: str
    scheduled_for: int
    next_at: int
    seq: int
    result: FiringResult = "created"
    missed: int = 0

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.schedule_fired(self, self.name, self.scheduled_for, self.next_at, self.seq, self.result)


class ScheduleAdvanced(Event, frozen=True, array_like=True, tag=51):
    """Firings of a schedule are passed over. `topic` is 0.

    Attributes:
        next_at: As of `ScheduleSet`.
        missed: How many.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "never"
    has_topic: ClassVar[bool] = False

    name: str
    next_at: int
    missed: int

    def visit_plans(self, to: PlanVisitor) -> None:
        """See `Event.visit_plans`."""
        to.schedule_advanced(self, self.name, self.next_at)
