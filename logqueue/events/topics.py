"""Events of topics."""

from __future__ import annotations

from typing import ClassVar

from logqueue.events.event import JOBS, Event, LoggedWhen, SyncedWhen, TopicVisitor
from logqueue.model.config import TopicOptions


class TopicCreated(Event, frozen=True, array_like=True, tag=1):
    """A new topic instance exists."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    changes_topology: ClassVar[bool] = True

    name: str
    config: TopicOptions

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.topic_created(self, self.name, self.config)


class TopicConfigured(Event, frozen=True, array_like=True, tag=2):
    """The whole config was replaced.

    Attributes:
        head, cap_floor: As they were then. What has moved them may be in no log, because of the
            class the topic had, or because a start has stepped over seqs that were promised.
    """

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"

    config: TopicOptions
    head: int = 0
    cap_floor: int = 0

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.topic_configured(self, self.config)


class TopicRemoved(Event, frozen=True, array_like=True, tag=3):
    """The instance and all it held is gone."""

    log: ClassVar[int] = JOBS
    logged: ClassVar[LoggedWhen] = "always"
    synced: ClassVar[SyncedWhen] = "always"
    changes_topology: ClassVar[bool] = True
    ends_topic: ClassVar[bool] = True

    def visit_topics(self, to: TopicVisitor) -> None:
        """See `Event.visit_topics`."""
        to.topic_removed(self)
