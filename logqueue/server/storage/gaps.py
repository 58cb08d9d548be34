"""Replaying logs that have gaps, because damage was set aside at some start.

Owns: what is reported about lost records, and what must be put right in a state of which some
history is missing. `apply` passes over events about what is not there, so gaps need nothing more
while they are replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from logqueue import events as ev
from logqueue.core.apply.dispatch import apply
from logqueue.core.state import State

logger = logging.getLogger("logqueue.journal")


class Gaps(ev.RecordVisitor):
    """The gaps of one replay.

    Attributes:
        count: Frames of both logs that are lost.
    """

    def __init__(self) -> None:
        self.count = 0
        # Topics of which nothing was appended since the latest gap in the jobs log.
        self._doubtful: set[int] = set()
        self._state = State()

    def note(self, state: State, place: int) -> None:
        """Here a frame is lost.

        Args:
            state: As far as it is replayed.
            place: Which log, 0 for jobs.
        """
        self.count += 1
        if not place:
            self._doubtful.update(state.instances)

    def check(self, state: State, event: ev.Event) -> None:
        """Tell which records are lost, as soon as an event shows it."""
        if event.topic in self._doubtful:
            self._state = state
            event.visit_records(self)

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self._begins_at(event, first_seq)

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        self._begins_at(event, first_seq)

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        self._begins_at(event, first_seq)

    def _begins_at(self, event: ev.Event, first_seq: int) -> None:
        """Of a topic that something may be lost of, the first new record has this seq."""
        topic = self._state.instances.get(event.topic)
        if event.topic in self._doubtful and topic is not None and first_seq > topic.head + 1:
            logger.warning(
                "topic %s: no record with a seq from %d to %d is in the log (damage was set aside)",
                topic.name,
                topic.head + 1,
                first_seq - 1,
            )
        self._doubtful.discard(event.topic)

    def close(self, state: State) -> None:
        """Drop topics and routers of which only the end is lost, or what they belong to."""
        for number, topic in [*state.instances.items()]:
            if state.topics.get(topic.name) is not topic:
                apply(state, ev.TopicRemoved(0, number))
        for router in [*state.routers_by_number.values()]:
            ends_are_there = router.source in state.instances and router.dest in state.instances
            if not ends_are_there or state.routers.get(router.name) is not router:
                state.remove_router(router)
        logger.warning(
            "%d frames of the logs are lost since damage was set aside; what they said is not part "
            "of the state",
            self.count,
        )
