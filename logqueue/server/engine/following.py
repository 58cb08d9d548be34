"""The engine of a standby: reads of a state that another server decides.

Owns: that nothing here is decided or logged, and up to when time acts. Must not know: where the
state comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, NoReturn

from logqueue import events as ev
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.model.clock import Clock
from logqueue.server.engine.engine import Engine
from logqueue.server.storage.journal import Journal
from logqueue.server.storage.segment_store import SegmentStore


class FollowingEngine(Engine):
    """Shows a state, and passes on what is applied to it."""

    fires: ClassVar[bool] = False

    def __init__(
        self,
        journal: Journal,
        segments: SegmentStore,
        clock: Clock,
        state: State,
        reached: Callable[[], int],
        refusal: Callable[[], LogqueueError],
    ) -> None:
        """Begin with a state that can be read.

        Args:
            journal: Opened and never begun.
            segments: Of that journal.
            clock: Of this server.
            state: Others change it, between two calls.
            reached: Up to which time the state is known, ms since the epoch. Time acts up to there
                only: what the writer has decided since then, such as a longer lease, may still
                come.
            refusal: What a command gets.
        """
        self._reached = reached
        self._refusal = refusal
        super().__init__(journal, segments, clock, state)

    def applied(self, events: Iterable[ev.Event]) -> None:
        """Pass on events that the state has by now."""
        for event in events:
            topic = self.state.instances.get(event.topic)
            changes = tuple(event.job_changes())
            for listener in self._listeners:
                listener(topic, event, changes)

    def lapse(self, topic: Topic, now: int) -> None:
        """See Engine."""
        self._elapse(topic, min(now, self._reached()))

    def _advance_time(self, topic: Topic, now: int) -> None:
        self._elapse(topic, min(now, self._reached()))

    def _note_routers(self, topic: Topic) -> None:
        """The writer copies."""

    def _commit(self, events: list[ev.Event], may_use_spare: bool | None = None) -> NoReturn:
        raise self._refusal()
