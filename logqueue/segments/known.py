"""What is known of topics and routers at a place in the jobs log.

Owns: learning it from events, and from the indexes of segments before. Must not know: records,
files. Names and types of topic instances never change; floors and the options of routers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from logqueue import events as ev
from logqueue.model.config import RouterOptions, TopicOptions

UNKNOWN = -1
"""A floor that no event has named yet: the first that is named is not a movement."""


class TopicFacts(msgspec.Struct):
    """One topic instance.

    Attributes:
        topic: Number of the instance.
        name: Of the topic; "" when no segment at hand tells it.
        is_queue: Whether its records are jobs.
        cap_floor, ttl_floor: Highest seq gone by caps and by TTL; UNKNOWN before the first event.
        is_dropped: Whether the instance is gone.
        head: Highest seq as the latest checkpoint tells it; UNKNOWN before any did.
    """

    topic: int
    name: str = ""
    is_queue: bool = False
    cap_floor: int = UNKNOWN
    ttl_floor: int = UNKNOWN
    is_dropped: bool = False
    head: int = UNKNOWN


class RouterFacts(msgspec.Struct):
    """One router instance, from topic instance `source` to `dest`."""

    router: int
    name: str
    source: int
    dest: int
    options: RouterOptions


class KnownTopics(ev.TopicVisitor):
    """Topics and routers by number. Floors that writes move are for `raise_cap` and `raise_ttl`.

    Attributes:
        changed: Numbers of topics that events changed (not only looked at) since the last `begin`.
        changed_routers: The same of routers.
    """

    __slots__ = ("changed", "changed_routers", "routers", "topics")

    def __init__(self) -> None:
        self.topics: dict[int, TopicFacts] = {}
        self.routers: dict[int, RouterFacts] = {}
        self.changed: set[int] = set()
        self.changed_routers: set[int] = set()

    def copy(self) -> KnownTopics:
        """The same, to be changed by itself, with nothing changed since."""
        copy = KnownTopics()
        copy.topics = {number: msgspec.structs.replace(t) for number, t in self.topics.items()}
        copy.routers = {number: msgspec.structs.replace(r) for number, r in self.routers.items()}
        return copy

    def add(self, topics: Iterable[TopicFacts], routers: Iterable[RouterFacts]) -> None:
        """Take over what a later segment says."""
        for topic in topics:
            known = self.topics.get(topic.topic)
            self.topics[topic.topic] = msgspec.structs.replace(topic)
            if known is not None and not topic.name:
                self.topics[topic.topic].name = known.name
                self.topics[topic.topic].is_queue = known.is_queue
        for router in routers:
            self.routers[router.router] = msgspec.structs.replace(router)

    def topic(self, number: int) -> TopicFacts:
        """What is known of a topic instance; little when no event has said more."""
        facts = self.topics.get(number)
        if facts is None:
            facts = self.topics[number] = TopicFacts(number)
        return facts

    def name(self, number: int) -> str:
        """Name of a topic instance, "" when it is not known."""
        facts = self.topics.get(number)
        return facts.name if facts is not None else ""

    def is_queue(self, number: int) -> bool:
        """Whether a topic instance is known to be a queue."""
        facts = self.topics.get(number)
        return facts is not None and facts.is_queue

    def topic_created(self, event: ev.Event, name: str, config: TopicOptions) -> None:
        """See `TopicVisitor`."""
        self.topics[event.topic] = TopicFacts(event.topic, name, config.is_queue, 0, 0, head=0)
        self.changed.add(event.topic)

    def topic_removed(self, event: ev.Event) -> None:
        """See `TopicVisitor`."""
        self.topic(event.topic).is_dropped = True
        self.changed.add(event.topic)

    def router_created(
        self, event: ev.Event, router: int, name: str, dest: int, cursor: int,
        options: RouterOptions,
    ) -> None:  # fmt: skip
        """See `TopicVisitor`."""
        self.routers[router] = RouterFacts(router, name, event.topic, dest, options)
        self.changed_routers.add(router)

    def router_configured(self, event: ev.Event, router: int, options: RouterOptions) -> None:
        """See `TopicVisitor`."""
        known = self.routers.get(router)
        if known is not None:
            known.options = options
            self.changed_routers.add(router)

    def checkpointed(
        self,
        event: ev.Event,
        topics: Sequence[ev.TopicSnapshot],
        routers: Sequence[ev.RouterSnapshot],
        producers: Sequence[ev.ProducerSnapshot],
        *,
        clean: bool,
    ) -> None:
        """See `TopicVisitor`."""
        for kept in topics:
            facts = self.topic(kept.topic)
            facts.name, facts.is_queue = kept.name, kept.config.is_queue
            facts.cap_floor = max(facts.cap_floor, kept.cap_floor)
            facts.ttl_floor = max(facts.ttl_floor, kept.ttl_floor)
            facts.head = max(facts.head, kept.head)
            self.changed.add(kept.topic)
        for edge in routers:
            self.routers[edge.router] = RouterFacts(
                edge.router, edge.name, edge.source, edge.dest, edge.options
            )
            self.changed_routers.add(edge.router)

    def raise_cap(self, number: int, floor: int) -> bool:
        """Note a floor of caps; whether it has moved up from one that was known."""
        facts = self.topic(number)
        known = facts.cap_floor
        if floor <= known:
            return False
        facts.cap_floor = floor
        self.changed.add(number)
        return known != UNKNOWN

    def raise_ttl(self, number: int, floor: int) -> bool:
        """Note a floor of TTL; whether it has moved up from one that was known."""
        facts = self.topic(number)
        known = facts.ttl_floor
        if floor <= known:
            return False
        facts.ttl_floor = floor
        self.changed.add(number)
        return known != UNKNOWN
