"""All there is: the topics, the routers between them, and the counters that number things.

Owns: the container. Must not know: commands, events, the log.
"""

from __future__ import annotations

from typing import Any, Protocol

from sortedcontainers import SortedDict

from logqueue.core.job_batches import JobBatches
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.routers import RouterState
from logqueue.core.schedules import Schedules
from logqueue.core.staging import ProducerState
from logqueue.core.topic import Topic
from logqueue.errors import NotAQueue, RouterNotFound, TopicNotFound
from logqueue.events.split_block import Block
from logqueue.model.limits import Quotas


class BlockKeeper(Protocol):
    """Decides in what form a block is held."""

    def keep(self, block: Block, segment: int) -> Block:
        """The block to hold; `segment` is the log segment of its frame, 0 when it has none."""
        ...


class InMemory:
    """Holds every block as it is."""

    def keep(self, block: Block, segment: int) -> Block:
        """See BlockKeeper."""
        return block


class State:
    """What a log replays to.

    Attributes:
        topics: By name, in name order.
        instances: The same topics by instance number.
        routers: By name, in name order; `routers_by_number` the same by instance number.
        routers_out, routers_in: Those of a source, and into a destination, by topic instance.
        kept_from: Log segments below this one are about to be dropped, so nothing new may refer
            to them; set by tidying, not replayed.
        producers: Those that append in epochs, by name.
        schedules: Those that write at times of their own.
        batches: Jobs that were written to be done together.
        staged_bytes, staged_chunks: What all producers together have staged.
        keeper: Which form blocks have in memory; no event and no decision depends on it.
        next_topic: Number of the next instance of a topic or router.
        next_lease: Number of the next lease; only grows, across topics and restarts.
        live_bytes: Size of all live records as the limits count it; kept by `apply`.
        discarded: What was taken out whole and is no longer used; freeing it takes time, so it
            is done bit by bit.
        replacing: Topics where some of what a write has replaced is not in its place yet.
        quotas: Caps that commands are refused by; given by the operator, not replayed.
    """

    __slots__ = (
        "batches", "discarded", "instances", "keeper", "kept_from", "live_bytes",
        "next_lease", "next_topic",
        "producers", "quotas", "replacing",
        "routers", "routers_by_number", "routers_in", "routers_out", "schedules",
        "staged_bytes", "staged_chunks", "topics",
    )  # fmt: skip

    def __init__(self, quotas: Quotas | None = None, keeper: BlockKeeper | None = None) -> None:
        self.topics: SortedDict[str, Topic] = SortedDict()
        self.instances: dict[int, Topic] = {}
        self.routers: SortedDict[str, RouterState] = SortedDict()
        self.routers_by_number: dict[int, RouterState] = {}
        self.routers_out: dict[int, list[RouterState]] = {}
        self.routers_in: dict[int, list[RouterState]] = {}
        self.discarded: list[list[Any] | dict[Any, Any]] = []
        self.producers: dict[str, ProducerState] = {}
        self.schedules = Schedules()
        self.batches = JobBatches()
        self.replacing: dict[int, Topic] = {}
        self.live_bytes = 0
        self.staged_bytes = 0
        self.staged_chunks = 0
        self.kept_from = 0
        self.next_topic = 1
        self.next_lease = 1
        self.quotas = quotas or Quotas()
        self.keeper = keeper or InMemory()

    def topic(self, name: str) -> Topic:
        """A topic by name.

        Raises:
            TopicNotFound: There is none.
        """
        topic: Topic | None = self.topics.get(name)
        if topic is None:
            raise TopicNotFound.named(name, by_writing=self.quotas.auto_create)
        return topic

    def queue(self, name: str) -> QueueTopic:
        """A queue by name.

        Raises:
            TopicNotFound: There is no such topic.
            NotAQueue: It is a log.
        """
        topic: Topic | None = self.topics.get(name)
        if isinstance(topic, QueueTopic):
            return topic
        if topic is None:
            raise TopicNotFound.named(name, by_writing=self.quotas.auto_create)
        raise NotAQueue.named(name)

    def queue_instance(self, number: int) -> QueueTopic | None:
        """A queue by instance number; None when there is none, or it is a log."""
        topic = self.instances.get(number)
        return topic if isinstance(topic, QueueTopic) else None

    def router(self, name: str) -> RouterState:
        """A router by name.

        Raises:
            RouterNotFound: There is none.
        """
        router: RouterState | None = self.routers.get(name)
        if router is None:
            raise RouterNotFound.named(name)
        return router

    def add_router(self, router: RouterState) -> None:
        """Take in a new router."""
        self.routers[router.name] = router
        self.routers_by_number[router.number] = router
        self.routers_out.setdefault(router.source, []).append(router)
        self.routers_in.setdefault(router.dest, []).append(router)

    def remove_router(self, router: RouterState) -> None:
        """Remove a router."""
        del self.routers_by_number[router.number]
        if self.routers.get(router.name) is router:
            del self.routers[router.name]
        for edges, topic in ((self.routers_out, router.source), (self.routers_in, router.dest)):
            edges[topic].remove(router)
            if not edges[topic]:
                del edges[topic]

    def routers_of(self, topic: int) -> list[RouterState]:
        """The routers from or into a topic instance, each once, in name order."""
        found = {*self.routers_out.get(topic, ()), *self.routers_in.get(topic, ())}
        return sorted(found, key=lambda router: router.name)
