"""All there is: the topics and the counters that number things.

Owns: the container. Must not know: commands, events, the log.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

from logqueue.core.limits import Quotas
from logqueue.core.topic import Topic
from logqueue.errors import NotAQueue, TopicNotFound


class State:
    """What a log replays to.

    Attributes:
        topics: By name, in name order.
        instances: The same topics by instance number.
        next_topic: Number of the next topic instance.
        next_lease: Number of the next lease; only grows, across topics and restarts.
        live_bytes: Size of all live records as the limits count it.
        quotas: Caps that commands are refused by; given by the operator, not replayed.
    """

    __slots__ = ("instances", "next_lease", "next_topic", "quotas", "topics")

    def __init__(self, quotas: Quotas | None = None) -> None:
        self.topics: SortedDict[str, Topic] = SortedDict()
        self.instances: dict[int, Topic] = {}
        self.next_topic = 1
        self.next_lease = 1
        self.quotas = quotas or Quotas()

    @property
    def live_bytes(self) -> int:
        """Size of all live records, in bytes."""
        return sum(topic.live_bytes for topic in self.instances.values())

    def topic(self, name: str) -> Topic:
        """A topic by name.

        Raises:
            TopicNotFound: There is none.
        """
        topic: Topic | None = self.topics.get(name)
        if topic is None:
            raise TopicNotFound.named(name)
        return topic

    def queue(self, name: str) -> Topic:
        """A queue by name.

        Raises:
            TopicNotFound: There is no such topic.
            NotAQueue: It is a log.
        """
        topic = self.topic(name)
        if topic.queue is None:
            raise NotAQueue.named(name)
        return topic
