"""One decision of several parts, each decided as if it were alone.

Two parts may add to one topic, or create it: a later part is rebased onto the earlier ones.

Owns: the numbers of such topics and seqs, and the room they share. Changes nothing. Must not know:
what the parts are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logqueue import events as ev
from logqueue.core.decide.appends import (
    batches_floor,
    require_bytes,
    require_topics,
    seqs_reserved,
)
from logqueue.core.queue_topic import topic_of
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import BlockView
from logqueue.events.split_block import Block


class MultiPartDecision:
    """The parts decided so far.

    Attributes:
        events: All of them, in order.
    """

    def __init__(self, state: State) -> None:
        self.events: list[ev.Event] = []
        self._state = state
        self._created: dict[str, Topic] = {}
        # By topic: blocks that the parts add, and how many records that evicts.
        self._blocks: dict[int, list[Block]] = {}
        self._dropped: dict[int, int] = {}

    def add(self, part: Sequence[ev.Event]) -> None:
        """Take in a part that was rebased onto the others."""
        for event in part:
            self.events.append(event)
            if type(event) is ev.TopicCreated:
                topic = topic_of(event.topic, event.name, event.config)
                self._created[event.name] = topic
            elif type(event) is ev.RecordsAppended:
                self.note(event.topic, [event.block], event.dropped)

    def note(self, topic: int, blocks: Sequence[Block], dropped: int) -> None:
        """Records that a topic gets by another event than `RecordsAppended`."""
        self._blocks.setdefault(topic, []).extend(blocks)
        self._dropped[topic] = self._dropped.get(topic, 0) + dropped

    def rebase(self, part: Sequence[ev.Event]) -> list[ev.Event]:
        """A part as it is after those before it.

        Raises:
            RecordTooLarge, TopicFull: One of its topics has no room for all.
        """
        placed: list[ev.Event] = []
        created: dict[int, Topic] = {}
        own_part = MultiPartDecision(self._state)
        for event in part:
            if type(event) is ev.TopicCreated:
                known = self._created.get(event.name)
                number = self._state.next_topic + len(self._created)
                topic = known or topic_of(number, event.name, event.config)
                created[event.topic] = topic
                if known is None:
                    placed.append(msgspec.structs.replace(event, topic=number))
            elif type(event) is ev.RecordsAppended:
                topic = created.get(event.topic) or self._known(event.topic)
                numbered = self._numbered(topic, event, own_part)
                placed.append(numbered)
                own_part.note(topic.number, [event.block], numbered.dropped)
            elif event.topic in created:
                placed.append(msgspec.structs.replace(event, topic=created[event.topic].number))
            else:
                placed.append(event)
        return placed

    def require_quotas(self, freed_bytes: int) -> None:
        """Refuse parts of which each has room on the server, but not all together.

        Args:
            freed_bytes: What the same decision removes.

        Raises:
            Throttled: The server has no room for them.
        """
        state = self._state
        if self._created and state.quotas.topics_max:
            require_topics(state, len(self._created) - 1)
        size = sum(BlockView(b).size_total() for blocks in self._blocks.values() for b in blocks)
        require_bytes(state, size - freed_bytes)

    def _known(self, number: int) -> Topic:
        """A topic that exists, or that an earlier part creates."""
        topic = self._state.instances.get(number)
        return topic or next(t for t in self._created.values() if t.number == number)

    def _numbered(
        self, topic: Topic, event: ev.RecordsAppended, own_part: MultiPartDecision
    ) -> ev.RecordsAppended:
        """An append behind those to the same topic; it counts those of its own part already."""
        earlier = self._blocks.get(topic.number)
        if earlier is None:
            return msgspec.structs.replace(event, topic=topic.number)
        number = topic.number
        own = own_part._blocks.get(number, [])
        floor, dropped = batches_floor(topic, [*earlier, *own, event.block])
        first_seq = event.first_seq + sum(BlockView(block).count for block in earlier)
        return msgspec.structs.replace(
            event,
            topic=topic.number,
            first_seq=first_seq,
            cap_floor=floor,
            seqs_reserved=seqs_reserved(topic, first_seq + event.count - 1),
            dropped=max(dropped - self._dropped[number] - own_part._dropped.get(number, 0), 0),
        )
