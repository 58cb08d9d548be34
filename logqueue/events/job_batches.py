"""Events of batches of jobs: opened, closed, ended, removed. `topic` is 0 in all of them."""

from __future__ import annotations

from typing import ClassVar

from logqueue.events.event import JOBS, Event, LoggedWhen, SpaceEffect, SyncedWhen
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


class JobBatchClosed(Event, frozen=True, array_like=True, tag=45):
    """No job joins a batch any longer, but while jobs of it are left."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str


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


class JobBatchRemoved(Event, frozen=True, array_like=True, tag=47):
    """A batch is gone."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    space: ClassVar[SpaceEffect] = "frees"
    has_topic: ClassVar[bool] = False
    changes_topology: ClassVar[bool] = True

    name: str
